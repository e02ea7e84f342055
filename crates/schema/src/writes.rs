//! Writes on several shards that are completed whatever happens: each shard's part is decided in the catalog before the
//! first of them commits, and a shard that misses its commit runs its part from there, once.
//!
//! Once, because the transaction that does a part also leaves a mark on the shard, and the part is struck off in the
//! catalog only after that; marks go only after their parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_catalog::{CatalogError, NewWrite, Pending, PendingPart, WriteRecord};
use polyshard_engine::{self as engine, Dialect, Statement, Transaction};
use polyshard_map::{KeyBytes, KeyRange, MapName, ShardId};
use polyshard_router::{Access, Ticket};
use polyshard_shard::ShardError;
use polyshard_sql::{SqlError, SqlState};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::JournalError;
use crate::entry::Recorded;
use crate::journal::{Inner, Journal};
use crate::run::Rows;

/// The format of a part that this program writes.
const FORMAT: u32 = 1;
/// Bytes of all statements of one write: they are a row each in the catalog, which every shard's write waits for.
pub const WRITE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Characters of a write's statement that are shown to people.
const ABOUT_CHARS: usize = 120;
/// How old a part is before the background looks after it: whoever decided it is usually done by then.
const LOOK_AFTER_MS: i64 = 2_000;
/// How long it is waited for leave to write: whoever wants to use the shard waits for it.
const ENTER_WAIT: Duration = Duration::from_secs(1);
/// How often a catalog that cannot say whether it has decided is asked, and the pause between.
const SETTLE_TRIES: (u32, Duration) = (20, Duration::from_millis(250));
/// Marks looked at in one go.
const MARKS_PAGE: u32 = 1_000;
/// Marks forgotten in one transaction: what else writes on a file waits for it.
const MARKS_AT_ONCE: usize = 250;

/// A write on several shards that every one of them has run, in a transaction that is still open.
#[derive(Debug, Clone)]
pub struct LastingWrite {
    /// Its name.
    pub id: Uuid,
    /// The statement, for people.
    pub about: String,
    /// What each shard has run.
    pub parts: BTreeMap<ShardId, Vec<LastingStatement>>,
    /// Session settings that the statements' meaning depends on.
    pub settings: BTreeMap<String, String>,
    /// The ranges that it is about, by map.
    pub ranges: Vec<(MapName, Vec<KeyRange>)>,
    /// The last event of the view that they were found in.
    pub since: u64,
}

/// A statement that does the same whenever it is run.
#[derive(Debug, Clone)]
pub struct LastingStatement {
    /// What is run.
    pub sql: String,
    /// Whether it finds its rows itself, rather than name them: it must not meet rows that are not the shard's own.
    pub finds: bool,
}

/// A part as it is stored.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    format: u32,
    /// The journal's position when it was decided.
    position: u64,
    statements: Vec<Recorded>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    settings: BTreeMap<String, String>,
    /// The maps of whose ranges no row may be here that is not the shard's own; none where rows are named.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    finds: BTreeSet<MapName>,
    /// The database that is to do it: another one may have the shard's name by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    incarnation: Option<Uuid>,
}

impl Part {
    fn of(pending: &PendingPart) -> Result<Part, JournalError> {
        let damaged = |detail: String| JournalError::Damaged { what: "part of a write", detail };
        let part: Part = serde_json::from_str(&pending.body)
            .map_err(|error| damaged(format!("write {}: {error}", pending.id)))?;
        if part.format > FORMAT {
            return Err(damaged(format!(
                "write {} has format {}, newer than this program's {FORMAT}; upgrade this process",
                pending.id, part.format
            )));
        }
        Ok(part)
    }
}

/// What came of trying to complete a part.
enum Tried {
    /// The shard has it, or says that it cannot take it, which is noted.
    Over,
    /// Rows are in the way that are not the shard's own, perhaps for long.
    Hindered,
    /// The shard cannot be worked on just now.
    NotNow(JournalError),
}

/// The refusal of a write whose statements are more than [`WRITE_BYTES_MAX`].
pub fn too_large() -> SqlError {
    let message = format!("a write on several shards has more than {WRITE_BYTES_MAX} bytes");
    SqlError::new(SqlState("54000"), message)
        .hint("Write fewer rows by one statement, or by one transaction.")
}

impl Journal {
    /// The last statement of a part in its shard's transaction.
    pub fn write_mark(&self, dialect: Dialect, id: Uuid) -> Statement {
        mark(dialect, id)
    }

    /// Decides a write. Every shard's transaction has run its part and the mark, and is still open: after this they are
    /// committed, and those that cannot be are completed from the catalog. On an error they are rolled back;
    /// [`JournalError::Unknown`] says that it may have been decided all the same, and then it is completed, too.
    pub async fn decide_write(&self, write: LastingWrite) -> Result<(), JournalError> {
        let position = self.inner.position();
        let view = self.inner.router.view();
        let maps: BTreeSet<MapName> = write.ranges.iter().map(|(map, _)| map.clone()).collect();
        let (mut parts, mut bytes) = (Vec::with_capacity(write.parts.len()), 0);
        for (shard, statements) in write.parts {
            let finds = statements.iter().any(|statement| statement.finds);
            let part = Part {
                format: FORMAT,
                position,
                statements: statements.into_iter().map(|statement| Recorded::new(statement.sql)).collect(),
                settings: write.settings.clone(),
                finds: if finds { maps.clone() } else { BTreeSet::new() },
                incarnation: view.shards.get(&shard).map(|record| record.incarnation),
            };
            let body =
                serde_json::to_string(&part).expect("a part has string keys only and always serialises");
            bytes += body.len();
            parts.push((shard, body));
        }
        if bytes > WRITE_BYTES_MAX {
            return Err(too_large().into());
        }
        let about: String = write.about.chars().take(ABOUT_CHARS).collect();
        let new = NewWrite { id: write.id, about, parts, ranges: write.ranges, since: write.since };
        self.inner.marks.store(true, Ordering::Relaxed);
        let decided = match self.inner.catalog.decide_write(&new).await {
            Err(CatalogError::Engine(engine::Error::OutcomeUnknown { message })) => {
                self.inner.settle_write(write.id, &message).await?
            }
            reply => reply?,
        };
        if decided {
            return Ok(());
        }
        let message = "the catalog was lost before the write was decided; nothing was written, try again";
        Err(CatalogError::Unsettled(message.to_owned()).into())
    }

    /// Notes that shards have committed their parts. If it cannot be noted now, it is found out later.
    pub async fn write_committed(&self, id: Uuid, shards: &[ShardId]) {
        if let Err(error) = self.inner.catalog.complete_parts(id, shards).await {
            tracing::debug!(write = %id, %error, "that shards have a write is noted later");
        }
    }

    /// Says that a shard may have missed its part of a write: whoever uses it next completes it first.
    pub fn write_missed(&self, shard: &ShardId) {
        self.inner.miss(shard);
    }

    /// Tries now to complete a write on the shards that are still to get it; true if all have it.
    pub async fn complete_write(&self, id: Uuid) -> Result<bool, JournalError> {
        for pending in self.inner.catalog.pending_parts(Pending::Of(id)).await? {
            let _: Tried = self.inner.complete(&pending).await;
        }
        Ok(self.inner.catalog.pending_parts(Pending::Of(id)).await?.is_empty())
    }

    /// A write on several shards, if it is remembered.
    pub async fn write(&self, id: Uuid) -> Result<Option<WriteRecord>, JournalError> {
        Ok(self.inner.catalog.write(id).await?)
    }

    /// The writes on several shards that are remembered: those to be completed first, then the newest.
    pub async fn writes(&self, limit: u32) -> Result<Vec<WriteRecord>, JournalError> {
        Ok(self.inner.catalog.writes(limit).await?)
    }

    /// Gives a part up, which somebody has mended otherwise. False if it is not one to come, or was done before.
    pub async fn skip_write(&self, id: Uuid, shard: &ShardId) -> Result<bool, JournalError> {
        // Whoever completes it, or still has its first transaction open, is waited for, or kept away meanwhile. A shard
        // that cannot be reached is given up all the same.
        let held = match self.inner.hold_part(id, shard).await {
            Ok(Some(held)) => Some(held),
            Ok(None) => {
                self.write_committed(id, std::slice::from_ref(shard)).await;
                return Ok(false);
            }
            Err(error) if is_away(&error) => None,
            Err(error) => return Err(error),
        };
        let skipped = self.inner.catalog.skip_part(id, shard).await;
        if let Some(held) = held
            && let Err(error) = held.rollback().await
        {
            tracing::debug!(write = %id, %shard, %error, "a part that is given up is let go of later");
        }
        Ok(skipped?)
    }

    /// Completes what is left.
    pub(crate) async fn look_after_writes(&self) -> Result<(), JournalError> {
        self.inner.complete_older(LOOK_AFTER_MS).await
    }

    /// Forgets marks whose parts are struck off, and writes that are long complete.
    pub(crate) async fn forget_writes(&self) -> Result<(), JournalError> {
        // Nothing was ever decided: nobody needs the shards for it.
        if self.position() == 0 || !self.inner.marks.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.inner.catalog.forget_writes().await?;
        for shard in self.inner.serving() {
            if let Err(error) = self.inner.forget_marks(&shard).await {
                self.inner.marks.store(true, Ordering::Relaxed);
                tracing::debug!(%shard, %error, "marks of writes are forgotten later");
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Completes a shard's parts that were decided up to a position of the journal. What cannot be done is noted, and
    /// tried again: the shard serves meanwhile. A file serves nobody while it could not even be tried: it has no other
    /// users, who would have seen it without the part already.
    pub(crate) async fn complete_on(&self, shard: &ShardId, upto: u64) -> Result<(), JournalError> {
        for pending in self.catalog.pending_parts(Pending::On(shard)).await? {
            // One that cannot be read is told about where it is tried.
            let is_due = Part::of(&pending).map_or(true, |part| part.position <= upto);
            if !is_due {
                continue;
            }
            match self.complete(&pending).await {
                Tried::Over => {}
                Tried::NotNow(error) if self.is_file(shard) => return Err(error),
                Tried::Hindered | Tried::NotNow(_) => break,
            }
        }
        Ok(())
    }

    /// Completes whatever can be.
    pub(crate) async fn complete_all(&self) -> Result<(), JournalError> {
        self.complete_older(0).await
    }

    async fn complete_older(&self, ms: i64) -> Result<(), JournalError> {
        let mut away = BTreeSet::new();
        for pending in self.catalog.pending_parts(Pending::OlderThan(ms)).await? {
            if !away.contains(&pending.shard) && !matches!(self.complete(&pending).await, Tried::Over) {
                away.insert(pending.shard);
            }
        }
        Ok(())
    }

    /// Completes a part.
    #[boxed]
    async fn complete(&self, pending: &PendingPart) -> Tried {
        let (tried, why) = match self.complete_once(pending).await {
            Ok(None) => return Tried::Over,
            Ok(Some(why)) => (Tried::Hindered, why),
            Err(error) if error.is_retryable() => {
                let why = error.to_string();
                (Tried::NotNow(error), why)
            }
            Err(error) => (Tried::Over, error.to_string()),
        };
        if pending.error.as_ref() != Some(&why) {
            tracing::warn!(write = %pending.id, shard = %pending.shard, why, "a write is not complete yet");
            if let Err(error) = self.catalog.note_part(pending.id, &pending.shard, &why).await {
                tracing::debug!(write = %pending.id, %error, "why a write is not complete could not be noted");
            }
        }
        tried
    }

    /// Completes a part; or says which rows are in the way.
    async fn complete_once(&self, pending: &PendingPart) -> Result<Option<String>, JournalError> {
        let (id, shard_id) = (pending.id, &pending.shard);
        let part = Part::of(pending)?;
        let now = self.router.view().shards.get(shard_id).map(|record| record.incarnation);
        if let (Some(meant), Some(now)) = (part.incarnation, now)
            && meant != now
        {
            let message = format!("shard {shard_id} is another database now");
            let hint = format!("Give the part up: polyshard writes skip {id} --shard {shard_id} --yes.");
            return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).hint(hint).into());
        }
        self.pass(&format!("complete:{shard_id}.before"))?;
        // Held until the catalog knows: a backup has both, or neither.
        let ticket = self.enter_shortly(shard_id).await?;
        let shard = self.shard(shard_id).await?;
        let dialect = shard.dialect();
        let mut tx = shard.patient_transaction().await.map_err(|error| JournalError::on(shard_id, error))?;
        let fail = |error: engine::Error| JournalError::on(shard_id, error);
        // Whoever else does the same, or still has the first transaction open, is waited for here.
        let fresh = tx.run(mark_unless_there(dialect, id)).await.map_err(fail)?;
        if fresh.is_empty() {
            tx.rollback().await.map_err(fail)?;
        } else {
            // The mark may be gone because the part is: marks go after their parts.
            if !self.catalog.is_part_pending(id, shard_id).await? {
                tx.rollback().await.map_err(fail)?;
                return Ok(None);
            }
            let moving = self.moving_on(shard_id, dialect, &mut tx, &part.finds).await?;
            if let Some(why) = self.strangers(shard_id, &moving).await? {
                tx.rollback().await.map_err(fail)?;
                return Ok(Some(why));
            }
            self.run(shard_id, dialect, &mut tx, &part.statements, &part.settings, Rows::Has).await?;
            // A move that began in between may have brought rows that were then found here too.
            if self.moving_on(shard_id, dialect, &mut tx, &part.finds).await? != moving {
                let message = format!("a move began on shard {shard_id} meanwhile");
                return Err(CatalogError::Unsettled(message).into());
            }
            tx.commit().await.map_err(fail)?;
            self.marks.store(true, Ordering::Relaxed);
            self.pass(&format!("complete:{shard_id}.after"))?;
            tracing::info!(write = %id, shard = %shard_id, "a write on several shards was completed");
        }
        self.catalog.complete_parts(id, std::slice::from_ref(shard_id)).await?;
        drop(ticket);
        Ok(None)
    }

    /// Keeps everybody else from doing a part on its shard; none if it has it.
    async fn hold_part(&self, id: Uuid, shard_id: &ShardId) -> Result<Option<Transaction>, JournalError> {
        let shard = self.shard(shard_id).await?;
        let mut tx = shard.patient_transaction().await.map_err(|error| JournalError::on(shard_id, error))?;
        let fail = |error: engine::Error| JournalError::on(shard_id, error);
        let fresh = tx.run(mark_unless_there(shard.dialect(), id)).await.map_err(fail)?;
        if !fresh.is_empty() {
            return Ok(Some(tx));
        }
        tx.rollback().await.map_err(fail)?;
        Ok(None)
    }

    async fn enter_shortly(&self, shard: &ShardId) -> Result<Ticket, JournalError> {
        let entering = self.router.enter_unmapped(shard, Access::Write);
        // A test may have it wait in vain.
        if self.pass(&format!("enter:{shard}.waits")).is_ok()
            && let Ok(ticket) = tokio::time::timeout(ENTER_WAIT, entering).await
        {
            return Ok(ticket?);
        }
        Err(CatalogError::Unsettled(format!("shard {shard} takes no writes just now; try again")).into())
    }

    /// The ranges of maps that arrive at a shard, or leave it, by its own word.
    async fn moving_on(
        &self,
        id: &ShardId,
        dialect: Dialect,
        tx: &mut Transaction,
        maps: &BTreeSet<MapName>,
    ) -> Result<Vec<(MapName, KeyRange)>, JournalError> {
        let mut moving: Vec<(MapName, KeyRange)> = Vec::new();
        if maps.is_empty() {
            return Ok(moving);
        }
        let fail = |error: engine::Error| JournalError::on(id, error);
        let damaged =
            || JournalError::Damaged { what: "list of moving ranges", detail: format!("shard {id}") };
        let captures = format!("SELECT map, ranges FROM {} ORDER BY map", dialect.own_table("capture"));
        for row in tx.run(Statement::new(captures)).await.map_err(fail)?.iter() {
            let map = MapName::new(row.text(0).map_err(fail)?).map_err(|_| damaged())?;
            let ranges: Vec<KeyRange> =
                serde_json::from_str(row.text(1).map_err(fail)?).map_err(|_| damaged())?;
            moving.extend(ranges.into_iter().map(|range| (map.clone(), range)));
        }
        let arriving = format!(
            "SELECT map, lo, hi FROM {} WHERE incoming IS NOT NULL",
            dialect.own_table("local_range")
        );
        for row in tx.run(Statement::new(arriving)).await.map_err(fail)?.iter() {
            let map = MapName::new(row.text(0).map_err(fail)?).map_err(|_| damaged())?;
            let lo = KeyBytes::new(row.blob(1).map_err(fail)?.to_vec());
            let hi = row.opt_blob(2).map_err(fail)?.map(|hi| KeyBytes::new(hi.to_vec()));
            moving.push((map, KeyRange::new(lo, hi).map_err(|_| damaged())?));
        }
        moving.retain(|(map, _)| maps.contains(map));
        moving.sort();
        Ok(moving)
    }

    /// While a shard has rows that are not its own, because they arrive or have left, a statement that finds its rows
    /// itself would meet them: says which.
    async fn strangers(
        &self,
        id: &ShardId,
        moving: &[(MapName, KeyRange)],
    ) -> Result<Option<String>, JournalError> {
        if moving.is_empty() {
            return Ok(None);
        }
        self.router.refresh().await?;
        let view = self.router.view();
        for (map, range) in moving {
            let Some(known) = view.maps.get(map) else { continue };
            if known.map.entries(range).any(|entry| entry.shard != *id) {
                let why = format!("rows of map {map} that are not its own are on the shard, by a move");
                return Ok(Some(why));
            }
        }
        Ok(None)
    }

    /// Finds out whether a write was decided.
    async fn settle_write(&self, id: Uuid, message: &str) -> Result<bool, JournalError> {
        for _ in 0..SETTLE_TRIES.0 {
            match self.catalog.settle_write(id).await {
                Ok(decided) => return Ok(decided),
                Err(error) => tracing::debug!(%error, "the catalog cannot say yet whether it has decided"),
            }
            tokio::time::sleep(SETTLE_TRIES.1).await;
        }
        Err(JournalError::Unknown(message.to_owned()))
    }

    /// Forgets the marks on a shard whose parts are struck off. A mark that can be seen was decided before, so that its
    /// part is in the catalog now, or was: one that is read before the catalog is asked, and is not there, is never
    /// needed again.
    async fn forget_marks(&self, id: &ShardId) -> Result<(), JournalError> {
        let shard = self.shard(id).await?;
        let table = shard.dialect().own_table("several_mark");
        let fail = |error: engine::Error| JournalError::on(id, error);
        let mut last = String::new();
        loop {
            let select = format!("SELECT id FROM {table} WHERE id > $1 ORDER BY id LIMIT {MARKS_PAGE}");
            let mut look = shard.control_snapshot().await.map_err(|error| JournalError::on(id, error))?;
            let rows = look.run(Statement::new(select).bind(last.as_str())).await.map_err(fail)?;
            look.rollback().await.map_err(fail)?;
            let marks: Vec<String> = rows
                .iter()
                .map(|row| row.text(0).map(str::to_owned))
                .collect::<Result<_, _>>()
                .map_err(fail)?;
            let Some(end) = marks.last() else { return Ok(()) };
            last.clone_from(end);
            let is_last = marks.len() < MARKS_PAGE as usize;
            let pending = self.catalog.pending_ids(id).await?;
            let (kept, gone): (Vec<String>, Vec<String>) =
                marks.into_iter().partition(|mark| pending.contains(mark));
            if !kept.is_empty() {
                self.marks.store(true, Ordering::Relaxed);
            }
            for some in gone.chunks(MARKS_AT_ONCE) {
                self.delete_marks(id, &table, some).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Few in one transaction: a file's only writer waits for it.
    async fn delete_marks(&self, id: &ShardId, table: &str, marks: &[String]) -> Result<(), JournalError> {
        let ticket = self.enter_shortly(id).await?;
        let shard = self.shard(id).await?;
        let fail = |error: engine::Error| JournalError::on(id, error);
        let mut tx = shard.patient_transaction().await.map_err(|error| JournalError::on(id, error))?;
        let places: Vec<String> = (1..=marks.len()).map(|place| format!("${place}")).collect();
        let delete = Statement::new(format!("DELETE FROM {table} WHERE id IN ({})", places.join(", ")));
        tx.run(marks.iter().fold(delete, |delete, mark| delete.bind(mark.as_str()))).await.map_err(fail)?;
        tx.commit().await.map_err(fail)?;
        drop(ticket);
        Ok(())
    }
}

/// Whether a shard could not be reached, or is not known any more.
fn is_away(error: &JournalError) -> bool {
    match error {
        JournalError::Shard { error: ShardError::Engine(error), .. } => {
            matches!(error, engine::Error::Unavailable { .. })
        }
        JournalError::Shard { .. } | JournalError::Catalog(CatalogError::NoSuchShard(_)) => true,
        _ => false,
    }
}

/// What a part leaves on its shard: it fails if the part was done before.
fn mark(dialect: Dialect, id: Uuid) -> Statement {
    let sql = format!("INSERT INTO {} (id) VALUES ($1)", dialect.own_table("several_mark"));
    Statement::new(sql).bind(id.to_string())
}

fn mark_unless_there(dialect: Dialect, id: Uuid) -> Statement {
    let sql = format!(
        "INSERT INTO {} (id) VALUES ($1) ON CONFLICT (id) DO NOTHING RETURNING id",
        dialect.own_table("several_mark")
    );
    Statement::new(sql).bind(id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(body: &str) -> PendingPart {
        let shard = ShardId::new("s1").unwrap();
        PendingPart { id: Uuid::nil(), shard, body: body.to_owned(), error: None }
    }

    #[test]
    fn a_part_of_format_1_is_read_for_ever() {
        let body = r#"{"format":1,"position":7,"statements":[{"sql":"DELETE FROM t"}],
            "settings":{"timezone":"UTC"},"finds":["tenants"]}"#;
        let part = Part::of(&pending(body)).unwrap();
        assert_eq!((part.position, part.statements.len(), part.finds.len()), (7, 1, 1));
    }

    #[test]
    fn a_newer_part_is_refused() {
        let error = Part::of(&pending(r#"{"format":2,"position":7,"statements":[]}"#)).unwrap_err();
        assert!(error.to_string().contains("upgrade"), "{error}");
    }
}
