//! Archives, and policies that maps have for what is done with them by itself: archiving and spilling over.

use polyshard_engine::{Dialect, Row, Statement};
use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_shard::OpId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::sql_catalog::{from_json, parse, to_json};
use crate::tx::{CatalogTx, Reply};

/// Archives that are remembered: a list that can be read, of days for a quarter of a century.
pub const ARCHIVES_MAX: usize = 10_000;
/// Policies that there may be: each is looked at every minute.
pub const POLICIES_MAX: usize = 1_000;
/// The format this program writes.
const FORMAT: u32 = 1;

/// The tables.
pub(crate) fn statements(dialect: Dialect) -> [String; 2] {
    let (int, text) = (dialect.bigint(), dialect.text());
    [
        format!(
            "CREATE TABLE IF NOT EXISTS {} (name {text} PRIMARY KEY, record {text} NOT NULL)",
            dialect.own_table("archive")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {text} PRIMARY KEY, map {text} NOT NULL, kind {text} NOT NULL, \
             body {text} NOT NULL, last {int} NOT NULL)",
            dialect.own_table("policy")
        ),
    ]
}

/// How far an archive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveState {
    /// It is being written; the rows are where they were.
    Writing,
    /// It is whole and was compared: the rows are in it, and perhaps still where they were.
    Written,
    /// The rows are in it, and nowhere else.
    Archived,
    /// The rows are back on a shard, and still in it.
    Restored,
}

impl ArchiveState {
    /// The word for people.
    pub fn as_str(self) -> &'static str {
        match self {
            ArchiveState::Writing => "writing",
            ArchiveState::Written => "written",
            ArchiveState::Archived => "archived",
            ArchiveState::Restored => "restored",
        }
    }
}

/// One archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveRecord {
    format: u32,
    /// Tells it from another of the same name.
    pub id: Uuid,
    /// Its name in the cluster, and in its place.
    pub name: String,
    /// The map.
    pub map: MapName,
    /// What it holds of the map.
    pub range: KeyRange,
    /// The shard that had it.
    pub shard: ShardId,
    /// Where it is kept: a folder, or a prefix in an object store.
    pub place: String,
    /// How far it is.
    pub state: ArchiveState,
    /// Columns that are left out of it, as `table.column`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// Whether a readable copy is written beside it.
    #[serde(default)]
    pub csv: bool,
    /// Rows that it holds.
    #[serde(default)]
    pub rows: u64,
    /// Bytes that it holds.
    #[serde(default)]
    pub bytes: u64,
    /// When it was begun, by the catalog's clock.
    #[serde(default)]
    pub began_ms: i64,
}

impl ArchiveRecord {
    /// One that is about to be written.
    pub fn new(
        (id, name): (Uuid, String),
        (map, range): (MapName, KeyRange),
        shard: ShardId,
        place: String,
    ) -> ArchiveRecord {
        ArchiveRecord {
            format: FORMAT,
            id,
            name,
            map,
            range,
            shard,
            place,
            state: ArchiveState::Writing,
            without: Vec::new(),
            csv: false,
            rows: 0,
            bytes: 0,
            began_ms: 0,
        }
    }
}

/// What is done with a map by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Its id.
    pub id: OpId,
    /// The map.
    pub map: MapName,
    /// `archive` or `spill`.
    pub kind: String,
    /// What it says, as whoever carries it out writes it.
    pub body: Value,
    /// When somebody last took it up, by the catalog's clock; 0 for never.
    pub last_ms: i64,
}

fn read_record(row: &Row) -> Reply<ArchiveRecord> {
    let record: ArchiveRecord = from_json("archive", row.text(0)?)?;
    if record.format > FORMAT {
        let detail = format!("format {} is of a newer program", record.format);
        return Err(CatalogError::Damaged { what: "archive", detail });
    }
    Ok(record)
}

impl Catalog {
    /// Records archives that are about to be written, all or none; a name may not be taken.
    pub async fn add_archives(&self, records: &[ArchiveRecord]) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let now = tx.now_ms().await?;
        let table = tx.own("archive");
        let known = tx.rows(Statement::new(format!("SELECT name FROM {table}"))).await?;
        if known.len() + records.len() > ARCHIVES_MAX {
            return Err(CatalogError::Invalid(format!(
                "there are {} archives, and {ARCHIVES_MAX} is the most; 'polyshard archive forget' those that were \
                 restored",
                known.len()
            )));
        }
        for record in records {
            let insert = format!(
                "INSERT INTO {table} (name, record) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1"
            );
            let record = ArchiveRecord { began_ms: now, ..record.clone() };
            let insert = Statement::new(insert).bind(record.name.clone()).bind(to_json(&record));
            if tx.rows(insert).await?.is_empty() {
                return Err(CatalogError::Exists(format!("archive {}", record.name)));
            }
        }
        tx.commit().await
    }

    /// Changes an archive's record; one that is gone stays so.
    pub async fn set_archive(&self, name: &str, change: impl FnOnce(&mut ArchiveRecord) + Send) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let table = tx.own("archive");
        let sql = format!("SELECT record FROM {table} WHERE name = $1");
        let rows = tx.rows(Statement::new(sql).bind(name.to_owned())).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let mut record = read_record(row)?;
        change(&mut record);
        let sql = format!("UPDATE {table} SET record = $2 WHERE name = $1");
        tx.done(Statement::new(sql).bind(name.to_owned()).bind(to_json(&record))).await?;
        tx.commit().await
    }

    /// One archive.
    pub async fn archive(&self, name: &str) -> Reply<Option<ArchiveRecord>> {
        let db = self.db().await?;
        let sql = format!("SELECT record FROM {} WHERE name = $1", db.dialect().own_table("archive"));
        db.read(Statement::new(sql).bind(name.to_owned())).await?.first().map(read_record).transpose()
    }

    /// All archives, by name.
    pub async fn archives(&self) -> Reply<Vec<ArchiveRecord>> {
        let db = self.db().await?;
        let sql = format!("SELECT record FROM {} ORDER BY name", db.dialect().own_table("archive"));
        db.read(Statement::new(sql)).await?.iter().map(read_record).collect()
    }

    /// Forgets an archive; what is in its place is not touched.
    pub async fn remove_archive(&self, name: &str) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let sql = format!("DELETE FROM {} WHERE name = $1", tx.own("archive"));
        tx.done(Statement::new(sql).bind(name.to_owned())).await?;
        tx.commit().await
    }

    /// What is done with maps by itself.
    pub async fn policies(&self, kind: &str) -> Reply<Vec<Policy>> {
        let db = self.db().await?;
        let sql = format!(
            "SELECT id, map, kind, body, last FROM {} WHERE kind = $1 ORDER BY map, id",
            db.dialect().own_table("policy")
        );
        let rows = db.read(Statement::new(sql).bind(kind.to_owned())).await?;
        let read = |row: &Row| -> Reply<Policy> {
            Ok(Policy {
                id: parse("policy", row.text(0)?)?,
                map: parse("policy", row.text(1)?)?,
                kind: row.text(2)?.to_owned(),
                body: from_json("policy", row.text(3)?)?,
                last_ms: row.int(4)?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Records a policy; the same again is the one that is there.
    pub async fn add_policy(&self, map: &MapName, kind: &str, body: &Value) -> Reply<OpId> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        if tx.map(map).await?.is_none_or(|record| !record.live) {
            return Err(CatalogError::NoSuchMap(map.clone()));
        }
        let table = tx.own("policy");
        let known = tx.rows(Statement::new(format!("SELECT id, map, kind, body FROM {table}"))).await?;
        for row in &known {
            let same = row.text(1)? == map.as_str() && row.text(2)? == kind;
            if same && from_json::<Value>("policy", row.text(3)?)? == *body {
                return parse("policy", row.text(0)?);
            }
        }
        if known.len() >= POLICIES_MAX {
            return Err(CatalogError::Invalid(format!("there are {POLICIES_MAX} of them; remove some")));
        }
        let id = OpId::new(self.fresh_id());
        let sql = format!("INSERT INTO {table} (id, map, kind, body, last) VALUES ($1, $2, $3, $4, 0)");
        let insert = Statement::new(sql)
            .bind(id.to_string())
            .bind(map.to_string())
            .bind(kind.to_owned())
            .bind(body.to_string());
        tx.done(insert).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Forgets a policy.
    pub async fn remove_policy(&self, id: OpId, kind: &str) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let sql = format!("DELETE FROM {} WHERE id = $1 AND kind = $2 RETURNING id", tx.own("policy"));
        if tx.rows(Statement::new(sql).bind(id.to_string()).bind(kind.to_owned())).await?.is_empty() {
            return Err(CatalogError::NoSuchOperation(id));
        }
        tx.commit().await
    }

    /// Whether a policy is to be carried out, and this process is the one: nobody has taken it up since that moment.
    pub async fn claim_policy(&self, id: OpId, since_ms: i64) -> Reply<bool> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        // Whose clock is ahead is not told so again and again.
        let now = tx.now_ms().await?.max(since_ms);
        let sql =
            format!("UPDATE {} SET last = $2 WHERE id = $1 AND last < $3 RETURNING id", tx.own("policy"));
        let claim = Statement::new(sql).bind(id.to_string()).bind(now).bind(since_ms);
        let claimed = !tx.rows(claim).await?.is_empty();
        tx.commit().await?;
        Ok(claimed)
    }

    /// Says that a policy that was claimed was not carried out.
    pub async fn release_policy(&self, id: OpId, last_ms: i64) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let sql = format!("UPDATE {} SET last = $2 WHERE id = $1", tx.own("policy"));
        tx.done(Statement::new(sql).bind(id.to_string()).bind(last_ms)).await?;
        tx.commit().await
    }
}
