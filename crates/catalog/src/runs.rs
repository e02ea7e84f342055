//! Backups and restorations of the cluster: one at a time, each with an owner and a lease, whatever process it runs in.

use std::time::Duration;

use polyshard_engine::{Dialect, Row, Statement};
use serde::{Deserialize, Serialize};

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::sql_catalog::{SqlCatalog, from_json, to_json};
use crate::tx::{CatalogTx, Reply};

/// How long the process that runs one may be silent. Longer than an operation's lease: a backup that is thought dead is
/// begun anew, which costs more than a wait.
pub const RUN_LEASE: Duration = Duration::from_secs(10);
/// When a class's backup that failed is tried again, if it is not due sooner anyway.
pub const RETRY_AFTER: Duration = Duration::from_secs(300);
/// Ended runs that are remembered.
const RUNS_KEPT: i64 = 1_000;
/// Said of a backup whose process is gone.
const LEFT: &str =
    "the process that ran it ended before it was done; what has no manifest is no backup, and is pruned";
/// Said of a restoration whose process is gone: its one transaction may have been committed last of all.
const LEFT_RESTORE: &str = "the process that ran it ended before it was done; the rows are all as they were, or \
                            all as in the backup: look, and restore them again if need be";

/// The table.
pub(crate) fn statements(dialect: Dialect) -> Vec<String> {
    let (int, text) = (dialect.bigint(), dialect.text());
    vec![format!(
        "CREATE TABLE IF NOT EXISTS {} (id {int} PRIMARY KEY, state {text} NOT NULL, class {text} NOT NULL, \
         owner {text} NOT NULL, lease_until {int} NOT NULL, began {int} NOT NULL, ended {int}, \
         cancel {int} NOT NULL, body {text} NOT NULL, message {text})",
        dialect.own_table("backup_run")
    )]
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It is under way.
    Running,
    /// It is done.
    Done,
    /// It was given up.
    Failed,
}

/// What a run does, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunBody {
    /// `backup` or `restore`.
    pub kind: String,
    /// The backup's address.
    pub at: String,
    /// What of the cluster: `everything`, names of shards, or a map and a key.
    pub what: String,
    /// The moment the backup is of; 0 before it is held.
    #[serde(default)]
    pub moment_ms: i64,
    /// Databases to copy.
    #[serde(default)]
    pub databases: u64,
    /// Databases copied.
    #[serde(default)]
    pub copied: u64,
    /// Bytes read so far.
    #[serde(default)]
    pub bytes: u64,
    /// Bytes that were new in the depot.
    #[serde(default)]
    pub new_bytes: u64,
    /// How long writes waited.
    #[serde(default)]
    pub pause_ms: u64,
    /// Rows restored.
    #[serde(default)]
    pub rows: u64,
    /// What the operator must do if it failed: `busy`, `refused`, `damaged` or `failed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its number in the cluster.
    pub id: u64,
    /// How far it is.
    pub state: RunState,
    /// The class of the schedule; empty if somebody asked for it.
    pub class: String,
    /// Who runs it.
    pub owner: String,
    /// When it began, by the catalog's clock, in milliseconds since 1970.
    pub began_ms: i64,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// What it does.
    pub body: RunBody,
    /// Why it failed.
    pub message: Option<String>,
}

const COLUMNS: &str = "id, state, class, owner, began, ended, body, message";

fn read_run(row: &Row) -> Reply<Run> {
    let word = |state: &str| from_json("state of a run", &format!("{state:?}"));
    Ok(Run {
        id: row.int(0)? as u64,
        state: word(row.text(1)?)?,
        class: row.text(2)?.to_owned(),
        owner: row.text(3)?.to_owned(),
        began_ms: row.int(4)?,
        ended_ms: row.opt_int(5)?,
        body: from_json("run", row.text(6)?)?,
        message: row.opt_text(7)?.map(str::to_owned),
    })
}

/// What a process that wants to begin one is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// It is this process's.
    Mine(Run),
    /// Another is under way.
    Busy(Run),
    /// The class had one lately.
    NotDue,
}

impl Catalog {
    /// Whether a class has to have a backup again: none was done that began less than `every` ago, and none was tried
    /// within `RETRY_AFTER`.
    pub async fn is_run_due(&self, class: &str, every: Duration) -> Reply<bool> {
        let db = self.db().await?;
        let rows = db.read(due_statement(db.dialect(), class, every)).await?;
        Ok(rows.is_empty())
    }

    /// Begins a run, unless one is under way, or the class does not have to have one yet.
    pub async fn begin_run(&self, class: &str, every: Option<Duration>, body: &RunBody) -> Reply<Begun> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let now = tx.now_ms().await?;
        expire(&mut tx, now).await?;
        let table = tx.own("backup_run");
        let sql = format!("SELECT {COLUMNS} FROM {table} WHERE state = 'running'");
        if let Some(row) = tx.rows(Statement::new(sql)).await?.first() {
            let run = read_run(row)?;
            tx.commit().await?;
            return Ok(Begun::Busy(run));
        }
        if let Some(every) = every {
            let late = due_statement(tx.dialect(), class, every);
            if !tx.rows(late).await?.is_empty() {
                tx.commit().await?;
                return Ok(Begun::NotDue);
            }
        }
        let sql = format!(
            "INSERT INTO {table} (id, state, class, owner, lease_until, began, cancel, body) \
             VALUES ((SELECT COALESCE(max(id), 0) + 1 FROM {table}), 'running', $1, $2, $3, $4, 0, $5) \
             RETURNING {COLUMNS}"
        );
        let insert = Statement::new(sql)
            .bind(class.to_owned())
            .bind(self.owner().to_owned())
            .bind(now + RUN_LEASE.as_millis() as i64)
            .bind(now)
            .bind(to_json(body));
        let rows = tx.rows(insert).await?;
        let missing = CatalogError::Damaged { what: "run", detail: "it was not recorded".into() };
        let run = rows.first().map(read_run).ok_or(missing)??;
        // The last success of each class says when the next is due.
        let old = format!(
            "DELETE FROM {table} WHERE id <= $1 AND state <> 'running' \
             AND id NOT IN (SELECT max(id) FROM {table} WHERE state = 'done' GROUP BY class)"
        );
        tx.done(Statement::new(old).bind(run.id as i64 - RUNS_KEPT)).await?;
        tx.commit().await?;
        Ok(Begun::Mine(run))
    }

    /// Says that a run goes on. False if it shall not: it was cancelled, or thought dead.
    pub async fn renew_run(&self, id: u64, body: &RunBody) -> Reply<bool> {
        let mut tx = self.begin().await?;
        let now = tx.now_ms().await?;
        let sql = format!(
            "UPDATE {} SET lease_until = $3, body = $4 WHERE id = $1 AND owner = $2 AND state = 'running' \
             RETURNING cancel",
            tx.own("backup_run")
        );
        let update = Statement::new(sql)
            .bind(id as i64)
            .bind(self.owner().to_owned())
            .bind(now + RUN_LEASE.as_millis() as i64)
            .bind(to_json(body));
        let rows = tx.rows(update).await?;
        let on = rows.first().map(|row| row.int(0)).transpose()?.is_some_and(|cancel| cancel == 0);
        tx.commit().await?;
        Ok(on)
    }

    /// Ends a run of this process. False if it was ended by somebody else.
    pub async fn end_run(&self, id: u64, body: &RunBody, failed: Option<&str>) -> Reply<bool> {
        let mut tx = self.begin().await?;
        let now = tx.now_ms().await?;
        let sql = format!(
            "UPDATE {} SET state = $3, ended = $4, body = $5, message = $6 \
             WHERE id = $1 AND owner = $2 AND state = 'running' RETURNING id",
            tx.own("backup_run")
        );
        let state = if failed.is_some() { "failed" } else { "done" };
        let update = Statement::new(sql)
            .bind(id as i64)
            .bind(self.owner().to_owned())
            .bind(state.to_owned())
            .bind(now)
            .bind(to_json(body))
            .bind(failed.map(str::to_owned));
        let mine = !tx.rows(update).await?.is_empty();
        tx.commit().await?;
        Ok(mine)
    }

    /// Asks for a run to be given up. False if it is not under way.
    pub async fn cancel_run(&self, id: u64) -> Reply<bool> {
        let mut tx = self.begin().await?;
        let sql = format!(
            "UPDATE {} SET cancel = 1 WHERE id = $1 AND state = 'running' RETURNING id",
            tx.own("backup_run")
        );
        let found = !tx.rows(Statement::new(sql).bind(id as i64)).await?.is_empty();
        tx.commit().await?;
        Ok(found)
    }

    /// Says of all runs that they have failed. For a process that starts on an embedded catalog, which belongs to it
    /// alone: whoever ran them is gone.
    pub async fn abandon_runs(&self) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        expire(&mut tx, i64::MAX).await?;
        tx.commit().await
    }

    /// Runs, the latest first. Those whose process is gone are said to have failed.
    pub async fn runs(&self, limit: u32) -> Reply<Vec<Run>> {
        let db = self.db().await?;
        let table = db.dialect().own_table("backup_run");
        let select =
            || Statement::new(format!("SELECT {COLUMNS} FROM {table} ORDER BY id DESC LIMIT {limit}"));
        let late = format!(
            "SELECT 1 FROM {table} WHERE state = 'running' AND lease_until < {}",
            db.dialect().now_ms()
        );
        if !db.read(Statement::new(late)).await?.is_empty() {
            let mut tx = self.begin().await?;
            tx.lock().await?;
            let now = tx.now_ms().await?;
            expire(&mut tx, now).await?;
            tx.commit().await?;
        }
        db.read(select()).await?.rows().iter().map(read_run).collect()
    }

    /// When the last backup of each class was done that did not fail: the moment it is of.
    pub async fn last_runs(&self) -> Reply<Vec<(String, i64)>> {
        let db = self.db().await?;
        let sql = format!(
            "SELECT class, max(began) FROM {} WHERE state = 'done' AND body LIKE '%\"kind\":\"backup\"%' \
             GROUP BY class ORDER BY class",
            db.dialect().own_table("backup_run")
        );
        let rows = db.read(Statement::new(sql)).await?;
        rows.rows().iter().map(|row| Ok((row.text(0)?.to_owned(), row.int(1)?))).collect()
    }
}

/// Finds a run that makes another of its class unnecessary for now.
fn due_statement(dialect: Dialect, class: &str, every: Duration) -> Statement {
    let (every, retry) = (every.as_millis() as i64, every.min(RETRY_AFTER).as_millis() as i64);
    let (table, now) = (dialect.own_table("backup_run"), dialect.now_ms());
    let sql = format!(
        "SELECT 1 FROM {table} WHERE class = $1 AND ((state = 'done' AND began > {now} - {every}) \
         OR began > {now} - {retry}) LIMIT 1"
    );
    Statement::new(sql).bind(class.to_owned())
}

/// Marks what nobody runs any more.
async fn expire(tx: &mut SqlCatalog, now: i64) -> Reply<()> {
    let sql = format!(
        "UPDATE {} SET state = 'failed', ended = {}, \
         message = CASE WHEN body LIKE '%\"kind\":\"restore\"%' THEN $3 ELSE $2 END \
         WHERE state = 'running' AND lease_until < $1",
        tx.own("backup_run"),
        tx.dialect().now_ms()
    );
    tx.done(Statement::new(sql).bind(now).bind(LEFT.to_owned()).bind(LEFT_RESTORE.to_owned())).await
}
