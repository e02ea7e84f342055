//! Procedures and rules in the catalog: what is made of several changes and moves, and what plans must heed.
//!
//! A procedure is recorded before it begins and after each of its tasks. Whoever drives it holds a lease, as for an
//! operation, and a token that grows with each takeover; what the tasks are is the driver's matter.

use polyshard_engine::{Dialect, Row, Statement};
use polyshard_map::MapName;
use polyshard_shard::OpId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::CatalogError;
use crate::carrier::Wish;
use crate::catalog::Catalog;
use crate::sql_catalog::{SqlCatalog, from_json, parse, to_json};
use crate::tx::{CatalogTx, Reply};
use crate::types::OpState;

/// Rules that one map may have: a plan looks at each of them for each of its pieces.
pub const RULES_MAX: usize = 1_000;
/// The kind of procedures that carry rows past the barrier of backups, which look for them by it.
pub const REPAIR: &str = "repair";
/// Those that remove and put back the rows of archives: likewise.
pub const ARCHIVE: &str = "archive";
/// The one that brings an archive's rows back: likewise.
pub const RESTORE_ARCHIVE: &str = "archive restore";

/// Ended procedures that are remembered: more than anybody reads, and few enough to list.
pub const PROCEDURES_KEPT: u32 = 1_000;
/// For how long they are remembered: a month, in milliseconds.
const KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1_000;

/// A procedure as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcedureRecord {
    /// Its name, told apart from operations by being none.
    pub id: OpId,
    /// What an operator calls it.
    pub kind: String,
    /// The map that it is about.
    pub map: Option<MapName>,
    /// Its tasks and how far they are, as their driver writes them.
    pub body: Value,
    /// What it is at, in words.
    pub step: String,
    /// Whether it has ended.
    pub state: OpState,
    /// What is wanted of it.
    pub wish: Wish,
    /// Counts the drivers it has had.
    pub token: u64,
    /// When it began.
    pub started_ms: i64,
    /// When it ended; when it began, of one that has not or whose end is not on record.
    pub ended_ms: i64,
    /// Why it was given up, or what it waits for.
    pub message: Option<String>,
}

/// What is stored as one text.
#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    map: Option<MapName>,
    body: Value,
    step: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_ms: Option<i64>,
}

/// The format this program writes.
const FORMAT: u32 = 1;

/// The tables.
pub(crate) fn statements(dialect: Dialect) -> Vec<String> {
    let (int, text) = (dialect.bigint(), dialect.text());
    let mut out = vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {text} PRIMARY KEY, record {text} NOT NULL, state {text} NOT NULL, \
             wish {text} NOT NULL, token {int} NOT NULL, owner {text} NOT NULL, lease_until {int} NOT NULL, \
             started {int} NOT NULL)",
            dialect.own_table("procedure")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {text} PRIMARY KEY, map {text} NOT NULL, body {text} NOT NULL)",
            dialect.own_table("rule")
        ),
    ];
    out.extend(crate::archives::statements(dialect));
    out
}

impl Catalog {
    /// Records a new procedure, which this process drives. Refused while another of its kind runs on the same map.
    pub async fn begin_procedure(
        &self,
        kind: &str,
        map: Option<&MapName>,
        body: Value,
        step: &str,
    ) -> Reply<ProcedureRecord> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let now = tx.now_ms().await?;
        let running = tx.procedures("state = 'running'").await?;
        if let Some(other) = running.iter().find(|other| other.kind == kind && other.map.as_ref() == map) {
            return Err(CatalogError::Busy { op: other.id, kind: other.kind.clone() });
        }
        let record = ProcedureRecord {
            id: OpId::new(self.fresh_id()),
            kind: kind.to_owned(),
            map: map.cloned(),
            body,
            step: step.to_owned(),
            state: OpState::Running,
            wish: Wish::Run,
            token: 1,
            started_ms: now,
            ended_ms: now,
            message: None,
        };
        let sql = format!(
            "INSERT INTO {} (id, record, state, wish, token, owner, lease_until, started) \
             VALUES ($1, $2, 'running', $3, 1, $4, $5, $6)",
            tx.own("procedure")
        );
        let insert = Statement::new(sql)
            .bind(record.id.to_string())
            .bind(stored(&record, now))
            .bind(to_json(&record.wish))
            .bind(self.owner().to_owned())
            .bind(now + self.lease().as_millis() as i64)
            .bind(now);
        tx.done(insert).await?;
        tx.prune_procedures(now).await?;
        tx.commit().await?;
        Ok(record)
    }

    /// Takes over the procedures whose driver has been silent for longer than its lease.
    pub async fn take_procedures(&self) -> Reply<Vec<ProcedureRecord>> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let now = tx.now_ms().await?;
        let mut taken = tx.procedures(&format!("state = 'running' AND lease_until <= {now}")).await?;
        for record in &mut taken {
            record.token += 1;
            let sql = format!(
                "UPDATE {} SET token = $2, owner = $3, lease_until = $4 WHERE id = $1",
                tx.own("procedure")
            );
            let update = Statement::new(sql)
                .bind(record.id.to_string())
                .bind(record.token as i64)
                .bind(self.owner().to_owned())
                .bind(now + self.lease().as_millis() as i64);
            tx.done(update).await?;
        }
        tx.commit().await?;
        Ok(taken)
    }

    /// Stores how far a procedure is, if its driver still owns it, and renews the lease. Answers what is wanted of it.
    pub async fn save_procedure(&self, record: &ProcedureRecord) -> Reply<Wish> {
        let mut tx = self.begin().await?;
        let now = tx.now_ms().await?;
        let sql = format!(
            "UPDATE {} SET record = $2, state = $3, lease_until = $4 \
             WHERE id = $1 AND token = $5 AND state = 'running' RETURNING wish",
            tx.own("procedure")
        );
        let update = Statement::new(sql)
            .bind(record.id.to_string())
            .bind(stored(record, now))
            .bind(word(record.state))
            .bind(now + self.lease().as_millis() as i64)
            .bind(record.token as i64);
        let rows = tx.rows(update).await?;
        let row = rows.first().ok_or(CatalogError::Superseded(record.id))?;
        let wish = from_json("wish", row.text(0)?)?;
        tx.commit().await?;
        Ok(wish)
    }

    /// The unfinished procedures and the latest others, the latest first.
    pub async fn procedures(&self, limit: u32) -> Reply<Vec<ProcedureRecord>> {
        let db = self.db().await?;
        let sql = format!(
            "{} ORDER BY CASE state WHEN 'running' THEN 0 ELSE 1 END, started DESC, id LIMIT {limit}",
            select(db.dialect())
        );
        db.read(Statement::new(sql)).await?.iter().map(read).collect()
    }

    /// One procedure, if there is one of that name.
    pub async fn procedure(&self, id: OpId) -> Reply<Option<ProcedureRecord>> {
        let db = self.db().await?;
        let sql = format!("{} WHERE id = $1", select(db.dialect()));
        db.read(Statement::new(sql).bind(id.to_string())).await?.first().map(read).transpose()
    }

    /// Says what is wanted of a procedure under way.
    pub async fn wish_for_procedure(&self, id: OpId, wish: Wish) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let found = tx.procedures(&format!("id = '{id}'")).await?;
        let record = found.first().ok_or(CatalogError::NoSuchOperation(id))?;
        if record.state != OpState::Running {
            return Err(CatalogError::Invalid(format!("operation {id}: it has ended")));
        }
        if record.wish == Wish::Cancel && wish != Wish::Cancel {
            return Err(CatalogError::Invalid(format!("operation {id}: it is being cancelled")));
        }
        let sql = format!("UPDATE {} SET wish = $2 WHERE id = $1", tx.own("procedure"));
        tx.done(Statement::new(sql).bind(id.to_string()).bind(to_json(&wish))).await?;
        tx.commit().await
    }

    /// The rules of a map, or of all: name, map and what it says, in the order of their names.
    pub async fn rules(&self, map: Option<&MapName>) -> Reply<Vec<(OpId, MapName, Value)>> {
        let db = self.db().await?;
        let sql = format!("SELECT id, map, body FROM {} ORDER BY map, id", db.dialect().own_table("rule"));
        let rows = db.read(Statement::new(sql)).await?;
        let read = |row: &Row| -> Reply<(OpId, MapName, Value)> {
            let (id, map) = (parse("rule", row.text(0)?)?, parse("rule", row.text(1)?)?);
            Ok((id, map, from_json("rule", row.text(2)?)?))
        };
        let all: Vec<_> = rows.iter().map(read).collect::<Reply<_>>()?;
        Ok(all.into_iter().filter(|(_, of, _)| map.is_none_or(|map| map == of)).collect())
    }

    /// Records a rule; the same rule again is the one that is there.
    pub async fn add_rule(&self, map: &MapName, body: &Value) -> Reply<OpId> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        if tx.map(map).await?.is_none_or(|record| !record.live) {
            return Err(CatalogError::NoSuchMap(map.clone()));
        }
        let sql = format!("SELECT id, body FROM {} WHERE map = $1", tx.own("rule"));
        let known = tx.rows(Statement::new(sql).bind(map.to_string())).await?;
        for row in &known {
            if from_json::<Value>("rule", row.text(1)?)? == *body {
                return parse("rule", row.text(0)?);
            }
        }
        if known.len() >= RULES_MAX {
            return Err(CatalogError::Invalid(format!(
                "map {map} has {RULES_MAX} rules, which is the most; remove some"
            )));
        }
        let id = OpId::new(self.fresh_id());
        let sql = format!("INSERT INTO {} (id, map, body) VALUES ($1, $2, $3)", tx.own("rule"));
        tx.done(Statement::new(sql).bind(id.to_string()).bind(map.to_string()).bind(body.to_string()))
            .await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Forgets a rule.
    pub async fn remove_rule(&self, id: OpId) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let sql = format!("DELETE FROM {} WHERE id = $1 RETURNING id", tx.own("rule"));
        if tx.rows(Statement::new(sql).bind(id.to_string())).await?.is_empty() {
            return Err(CatalogError::NoSuchOperation(id));
        }
        tx.commit().await
    }
}

impl SqlCatalog {
    /// Forgets ended procedures: those of long ago, and the oldest beyond those that are kept.
    async fn prune_procedures(&mut self, now: i64) -> Reply<()> {
        let table = self.own("procedure");
        let sql = format!(
            "DELETE FROM {table} WHERE state <> 'running' AND (started < $1 OR id NOT IN \
             (SELECT id FROM {table} WHERE state <> 'running' ORDER BY started DESC, id LIMIT {PROCEDURES_KEPT}))"
        );
        self.done(Statement::new(sql).bind(now - KEPT_MS)).await
    }

    /// Refuses what a driver of a procedure does who is not its driver any more, or who was told to give it up.
    pub(crate) async fn require_procedure(&mut self, id: OpId, token: u64) -> Reply<()> {
        let found = self.procedures(&format!("id = '{id}'")).await?;
        let drives = |record: &ProcedureRecord| {
            record.token == token && record.state == OpState::Running && record.wish != Wish::Cancel
        };
        match found.first().is_some_and(drives) {
            true => Ok(()),
            false => Err(CatalogError::Superseded(id)),
        }
    }

    async fn procedures(&mut self, condition: &str) -> Reply<Vec<ProcedureRecord>> {
        let sql = format!("{} WHERE {condition} ORDER BY started, id", select(self.dialect()));
        self.rows(Statement::new(sql)).await?.iter().map(read).collect()
    }
}

fn select(dialect: Dialect) -> String {
    format!("SELECT id, record, state, wish, token, started FROM {}", dialect.own_table("procedure"))
}

fn read(row: &Row) -> Reply<ProcedureRecord> {
    let stored: Stored = from_json("procedure", row.text(1)?)?;
    if stored.format > FORMAT {
        return Err(CatalogError::Damaged {
            what: "procedure",
            detail: format!("format {} is of a newer program", stored.format),
        });
    }
    let state = match row.text(2)? {
        "running" => OpState::Running,
        "done" => OpState::Done,
        _ => OpState::RolledBack,
    };
    Ok(ProcedureRecord {
        id: parse("procedure", row.text(0)?)?,
        kind: stored.kind,
        map: stored.map,
        body: stored.body,
        step: stored.step,
        state,
        wish: from_json("wish", row.text(3)?)?,
        token: row.int(4)? as u64,
        started_ms: row.int(5)?,
        ended_ms: stored.ended_ms.unwrap_or(row.int(5)?),
        message: stored.message,
    })
}

fn stored(record: &ProcedureRecord, now: i64) -> String {
    to_json(&Stored {
        format: FORMAT,
        kind: record.kind.clone(),
        map: record.map.clone(),
        body: record.body.clone(),
        step: record.step.clone(),
        message: record.message.clone(),
        ended_ms: (record.state != OpState::Running).then_some(now),
    })
}

fn word(state: OpState) -> &'static str {
    match state {
        OpState::Running => "running",
        OpState::Done => "done",
        OpState::RolledBack => "rolled_back",
    }
}
