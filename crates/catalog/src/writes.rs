//! Writes on several shards that are completed whatever happens: decided here, with each shard's part, before the first
//! shard commits. A part is kept until its shard has it; while a shard has one to come, no range that the write is
//! about leaves it or comes to it, since the part is about the rows that were its own when it was decided.

use std::collections::{BTreeMap, BTreeSet};

use polyshard_engine::{Batch, Dialect, Row, Statement};
use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_shard::create_own_index;
use uuid::Uuid;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::sql_catalog::{SqlCatalog, from_json, parse, to_json};
use crate::tx::{CatalogTx, Reply};
use crate::types::{Event, OpRecord, Step};

/// Writes that are complete and still kept, for those who ask whether they are.
const WRITES_KEPT: u32 = 10_000;
/// Parts read at once: whoever completes them comes again for the rest.
pub const PARTS_PAGE: u32 = 256;
/// Ranges of a map that are remembered of a write one by one: beyond that it counts as being about all of it.
const RANGES_MAX: usize = 64;
/// How old a part is before a move to its shard is given up for it: it may wait for the move to end.
const GIVE_WAY_MS: i64 = 5_000;

/// The tables.
pub(crate) fn statements(dialect: Dialect) -> Vec<String> {
    let (int, text) = (dialect.bigint(), dialect.text());
    let own = |name| dialect.own_table(name);
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {text} PRIMARY KEY, about {text} NOT NULL, decided {int} NOT NULL, \
             ranges {text} NOT NULL, void {int} NOT NULL, done {int}, skipped {text} NOT NULL)",
            own("several_write")
        ),
        create_own_index(dialect, "several_write_done", &format!("{} (done)", own("several_write"))),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {text} NOT NULL, shard {text} NOT NULL, decided {int} NOT NULL, \
             body {text} NOT NULL, error {text}, PRIMARY KEY (id, shard))",
            own("several_part")
        ),
        create_own_index(dialect, "several_part_shard", &format!("{} (shard)", own("several_part"))),
    ]
}

/// A write to be decided.
#[derive(Debug, Clone)]
pub struct NewWrite {
    /// Its name.
    pub id: Uuid,
    /// What it does, for people.
    pub about: String,
    /// What each shard is to do; what it says is the journal's own affair.
    pub parts: Vec<(ShardId, String)>,
    /// The ranges that it is about, by map: they must be where they were when it was run.
    pub ranges: Vec<(MapName, Vec<KeyRange>)>,
    /// The last event of the view that they were found in.
    pub since: u64,
}

/// A part whose shard may not have it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingPart {
    /// The write's name.
    pub id: Uuid,
    /// The shard.
    pub shard: ShardId,
    /// What is to be done there.
    pub body: String,
    /// Why it could not be done so far, if somebody has tried.
    pub error: Option<String>,
}

/// A write as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRecord {
    /// Its name.
    pub id: Uuid,
    /// What it does.
    pub about: String,
    /// When it was decided: milliseconds since 1970 on the catalog's clock.
    pub decided_ms: i64,
    /// When the last shard had it; none while one does not.
    pub done_ms: Option<i64>,
    /// Whether it was never decided, and cannot be any more.
    pub void: bool,
    /// The shards that are still to come, each with why.
    pub waiting: Vec<(ShardId, Option<String>)>,
    /// The shards on which somebody has given it up.
    pub skipped: Vec<ShardId>,
}

impl WriteRecord {
    /// Whether every shard has it; never again once it was given up on one.
    pub fn is_complete(&self) -> bool {
        self.done_ms.is_some() && self.skipped.is_empty()
    }
}

impl Catalog {
    /// Decides a write. False if somebody has found out before that it was not decided: then it never is.
    ///
    /// Refused as [`CatalogError::Unsettled`] if a range that it is about has moved, or is about to leave.
    pub async fn decide_write(&self, write: &NewWrite) -> Reply<bool> {
        let mut tx = self.begin().await?;
        tx.share_lock().await?;
        tx.refuse_moved(write).await?;
        let (writes, parts, now) = (tx.own("several_write"), tx.own("several_part"), tx.dialect().now_ms());
        let sql = format!(
            "INSERT INTO {writes} (id, about, decided, ranges, void, skipped) VALUES ($1, $2, {now}, $3, 0, '') \
             ON CONFLICT (id) DO NOTHING RETURNING decided"
        );
        let insert = Statement::new(sql).bind(write.id.to_string()).bind(write.about.clone());
        let rows = tx.rows(insert.bind(to_json(&remembered(&write.ranges)))).await?;
        let Some(decided) = rows.first().map(|row| row.int(0)).transpose()? else { return Ok(false) };
        for (shard, body) in &write.parts {
            let sql = format!("INSERT INTO {parts} (id, shard, decided, body) VALUES ($1, $2, $3, $4)");
            let insert = Statement::new(sql).bind(write.id.to_string()).bind(shard.to_string());
            tx.done(insert.bind(decided).bind(body.clone())).await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Finds out whether a write was decided whose answer was lost. If not, it never is.
    pub async fn settle_write(&self, id: Uuid) -> Reply<bool> {
        let db = self.db().await?;
        let (table, now) = (db.dialect().own_table("several_write"), db.dialect().now_ms());
        let insert = format!(
            "INSERT INTO {table} (id, about, decided, ranges, void, done, skipped) \
             VALUES ($1, '', {now}, '[]', 1, {now}, '') ON CONFLICT (id) DO NOTHING"
        );
        let insert = Statement::new(insert).bind(id.to_string());
        let select = Statement::new(format!("SELECT void FROM {table} WHERE id = $1")).bind(id.to_string());
        let answers = db.write(Batch::new().push(insert).push(select)).await?;
        let row = answers.last().and_then(|rows| rows.first());
        Ok(row.map(|row| row.int(0)).transpose()? == Some(0))
    }

    /// Notes that shards have their parts. Repeating it is fine.
    pub async fn complete_parts(&self, id: Uuid, shards: &[ShardId]) -> Reply<()> {
        let db = self.db().await?;
        let own = |name| db.dialect().own_table(name);
        let delete = format!("DELETE FROM {} WHERE id = $1 AND shard = $2", own("several_part"));
        let deletes = shards
            .iter()
            .map(|shard| Statement::new(delete.as_str()).bind(id.to_string()).bind(shard.to_string()));
        let batch = deletes.fold(Batch::new(), Batch::push).push(end_write(db.dialect(), id));
        db.write(batch).await?;
        Ok(())
    }

    /// Parts that may be still to come, the oldest first: of one shard, or of all that were decided so many
    /// milliseconds ago.
    pub async fn pending_parts(&self, of: Pending<'_>) -> Reply<Vec<PendingPart>> {
        let db = self.db().await?;
        let table = db.dialect().own_table("several_part");
        let select = format!("SELECT id, shard, body, error FROM {table}");
        let order = format!("ORDER BY decided, id LIMIT {PARTS_PAGE}");
        let statement = match of {
            Pending::On(shard) => {
                Statement::new(format!("{select} WHERE shard = $1 {order}")).bind(shard.to_string())
            }
            Pending::Of(id) => Statement::new(format!("{select} WHERE id = $1 {order}")).bind(id.to_string()),
            Pending::OlderThan(ms) => {
                Statement::new(format!("{select} WHERE decided <= {} - $1 {order}", db.dialect().now_ms()))
                    .bind(ms)
            }
        };
        let rows = db.read(statement).await?;
        rows.rows().iter().map(read_part).collect()
    }

    /// The names of all writes that a shard may still be to get.
    pub async fn pending_ids(&self, shard: &ShardId) -> Reply<BTreeSet<String>> {
        let db = self.db().await?;
        let table = db.dialect().own_table("several_part");
        let select = Statement::new(format!("SELECT id FROM {table} WHERE shard = $1"));
        let rows = db.read(select.bind(shard.to_string())).await?;
        rows.rows().iter().map(|row| Ok(row.text(0)?.to_owned())).collect()
    }

    /// Whether a shard may still be to get its part.
    pub async fn is_part_pending(&self, id: Uuid, shard: &ShardId) -> Reply<bool> {
        let db = self.db().await?;
        let table = db.dialect().own_table("several_part");
        let select = Statement::new(format!("SELECT 1 FROM {table} WHERE id = $1 AND shard = $2"));
        Ok(!db.read(select.bind(id.to_string()).bind(shard.to_string())).await?.is_empty())
    }

    /// Notes why a part could not be done.
    pub async fn note_part(&self, id: Uuid, shard: &ShardId, error: &str) -> Reply<()> {
        let db = self.db().await?;
        let sql = format!(
            "UPDATE {} SET error = $3 WHERE id = $1 AND shard = $2",
            db.dialect().own_table("several_part")
        );
        let update = Statement::new(sql).bind(id.to_string()).bind(shard.to_string()).bind(error);
        db.write(Batch::from(update)).await?;
        Ok(())
    }

    /// Gives a part up: the shard is not to get it any more. False if it is not one to come.
    pub async fn skip_part(&self, id: Uuid, shard: &ShardId) -> Reply<bool> {
        let mut tx = self.begin().await?;
        let parts = tx.own("several_part");
        let delete = format!("DELETE FROM {parts} WHERE id = $1 AND shard = $2 RETURNING shard");
        let delete = Statement::new(delete).bind(id.to_string()).bind(shard.to_string());
        if tx.rows(delete).await?.is_empty() {
            return Ok(false);
        }
        tx.note_given_up(id, shard).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// A write, if it is remembered.
    pub async fn write(&self, id: Uuid) -> Reply<Option<WriteRecord>> {
        let db = self.db().await?;
        let sql = format!("{} WHERE id = $1", select_write(db.dialect()));
        let rows = db.read(Statement::new(sql).bind(id.to_string())).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let mut record = read_write(row)?;
        let parts = self.pending_parts(Pending::Of(id)).await?;
        record.waiting = parts.into_iter().map(|part| (part.shard, part.error)).collect();
        Ok(Some(record))
    }

    /// The writes that are remembered, those that are still to be completed first, then the newest.
    pub async fn writes(&self, limit: u32) -> Reply<Vec<WriteRecord>> {
        let db = self.db().await?;
        let sql = format!(
            "{} WHERE void = 0 ORDER BY CASE WHEN done IS NULL THEN 0 ELSE 1 END, decided DESC, id LIMIT {limit}",
            select_write(db.dialect())
        );
        let rows = db.read(Statement::new(sql)).await?;
        let mut records: Vec<WriteRecord> = rows.rows().iter().map(read_write).collect::<Reply<_>>()?;
        for record in records.iter_mut().filter(|record| record.done_ms.is_none()) {
            let parts = self.pending_parts(Pending::Of(record.id)).await?;
            record.waiting = parts.into_iter().map(|part| (part.shard, part.error)).collect();
        }
        Ok(records)
    }

    /// Forgets the oldest of those that are complete.
    pub async fn forget_writes(&self) -> Reply<()> {
        let db = self.db().await?;
        let table = db.dialect().own_table("several_write");
        let sql = format!(
            "DELETE FROM {table} WHERE done < (SELECT done FROM {table} WHERE done IS NOT NULL \
             ORDER BY done DESC LIMIT 1 OFFSET {WRITES_KEPT})"
        );
        db.write(Batch::from(Statement::new(sql))).await?;
        Ok(())
    }
}

/// Which parts are asked for.
#[derive(Debug, Clone, Copy)]
pub enum Pending<'a> {
    /// Those of one shard.
    On(&'a ShardId),
    /// Those of one write.
    Of(Uuid),
    /// Those decided so many milliseconds ago, or more.
    OlderThan(i64),
}

impl SqlCatalog {
    /// Gives up all parts of a shard that goes for good: a database that is added under its name is another.
    pub(crate) async fn give_up_parts(&mut self, shard: &ShardId) -> Reply<()> {
        let delete = format!("DELETE FROM {} WHERE shard = $1 RETURNING id", self.own("several_part"));
        let gone = self.rows(Statement::new(delete).bind(shard.to_string())).await?;
        for row in &gone {
            let id: Uuid = parse("name of a write", row.text(0)?)?;
            self.note_given_up(id, shard).await?;
        }
        Ok(())
    }

    async fn note_given_up(&mut self, id: Uuid, shard: &ShardId) -> Reply<()> {
        let writes = self.own("several_write");
        let note = format!("UPDATE {writes} SET skipped = skipped || ' ' || $2 WHERE id = $1");
        self.done(Statement::new(note).bind(id.to_string()).bind(shard.to_string())).await?;
        self.done(end_write(self.dialect(), id)).await
    }

    /// Keeps operations from being recorded until the transaction ends; others who do so do not wait for each other.
    async fn share_lock(&mut self) -> Reply<()> {
        let share = match self.dialect() {
            Dialect::Postgres => " FOR SHARE",
            Dialect::Sqlite => "",
        };
        self.done(Statement::new(format!("SELECT seq FROM {}{share}", self.own("cluster")))).await
    }

    /// A write is about rows where they were when it was run: a range that has left, or is about to, refuses it.
    async fn refuse_moved(&mut self, write: &NewWrite) -> Reply<()> {
        let unsettled = |map: &MapName| {
            CatalogError::Unsettled(format!(
                "a range of map {map} is being moved, or was just now; try again"
            ))
        };
        let ranges = remembered(&write.ranges);
        for (map, ranges) in &ranges {
            for running in self.running(Some(map)).await? {
                let leaves = matches!(running.step, Step::Departing | Step::Activating);
                let touches = |range: &KeyRange| running.op.touches.iter().any(|one| one.overlaps(range));
                if leaves && ranges.iter().any(touches) {
                    return Err(unsettled(map));
                }
            }
        }
        let sql = format!("SELECT seq, event FROM {} WHERE seq > $1 ORDER BY seq", self.own("event"));
        let events = self.rows(Statement::new(sql).bind(write.since as i64)).await?;
        let sql = format!("SELECT seq FROM {}", self.own("cluster"));
        let last = self.rows(Statement::new(sql)).await?;
        let last = last.first().map(|row| row.int(0)).transpose()?.unwrap_or(0);
        if last - events.len() as i64 > write.since as i64 {
            let message = "more has changed than is remembered while the write was run; try again";
            return Err(CatalogError::Unsettled(message.to_owned()));
        }
        for row in &events {
            let event: Event = from_json("event", row.text(1)?)?;
            if let Some((map, _)) = ranges.iter().find(|(map, ranges)| concerns(&event, map, ranges)) {
                return Err(unsettled(map));
            }
        }
        Ok(())
    }

    /// What is in the way of an operation's ranges leaving a shard or coming to one: a write about them that a shard is
    /// still to get.
    pub(crate) async fn write_in_the_way(&mut self, record: &OpRecord) -> Reply<Option<InTheWay>> {
        self.lock().await?;
        // Rows of a map that is dropped are gone whatever was to be written; a shard that is lost never gets its parts.
        if ["drop", "destroy", "repair"].contains(&record.op.kind.as_str()) {
            return Ok(None);
        }
        let gainers = record.op.gainers();
        for (at, (shard, _)) in record.op.edits.iter().enumerate() {
            let sql = format!(
                "SELECT w.id, w.ranges, CASE WHEN p.decided <= {} - {GIVE_WAY_MS} THEN 1 ELSE 0 END FROM {} p \
                 JOIN {} w ON w.id = p.id WHERE p.shard = $1",
                self.dialect().now_ms(),
                self.own("several_part"),
                self.own("several_write")
            );
            for row in self.rows(Statement::new(sql).bind(shard.to_string())).await? {
                let ranges: Vec<(MapName, Vec<KeyRange>)> = from_json("ranges of a write", row.text(1)?)?;
                let about = |(map, ranges): &(MapName, Vec<KeyRange>)| {
                    let touches = |range: &KeyRange| record.op.touches.iter().any(|one| one.overlaps(range));
                    *map == record.op.map && ranges.iter().any(touches)
                };
                if ranges.iter().any(about) {
                    let why = format!(
                        "shard {shard} is still to get its part of a write on several shards; see 'polyshard \
                         writes show {}'",
                        row.text(0)?
                    );
                    return Ok(Some(InTheWay { why, lasting: gainers.contains(&at) && row.int(2)? == 1 }));
                }
            }
        }
        Ok(None)
    }
}

/// A write that keeps ranges where they are.
pub(crate) struct InTheWay {
    pub why: String,
    /// Whether it may stay so for as long as the operation does: rows that arrive keep a shard from running its part.
    pub lasting: bool,
}

/// The ranges of a write, as they are remembered.
fn remembered(ranges: &[(MapName, Vec<KeyRange>)]) -> Vec<(MapName, Vec<KeyRange>)> {
    let mut by_map: BTreeMap<MapName, Vec<KeyRange>> = BTreeMap::new();
    for (map, ranges) in ranges {
        let known = by_map.entry(map.clone()).or_default();
        known.extend(ranges.iter().cloned());
        if known.len() > RANGES_MAX {
            *known = vec![KeyRange::all()];
        }
    }
    by_map.into_iter().collect()
}

/// Whether an event is about ranges of a map.
fn concerns(event: &Event, map: &MapName, ranges: &[KeyRange]) -> bool {
    match event {
        Event::Changed { map: of, delta, .. } if of == map => {
            let mut changed = delta.remove.iter().chain(delta.put.iter().map(|entry| &entry.range));
            changed.any(|changed| ranges.iter().any(|range| range.overlaps(changed)))
        }
        Event::Reload { map: of } | Event::Dropped { map: of } => of == map,
        _ => false,
    }
}

/// A write ends with its last part.
fn end_write(dialect: Dialect, id: Uuid) -> Statement {
    let own = |name| dialect.own_table(name);
    let sql = format!(
        "UPDATE {} SET done = {} WHERE id = $1 AND done IS NULL AND NOT EXISTS (SELECT 1 FROM {} WHERE id = $1)",
        own("several_write"),
        dialect.now_ms(),
        own("several_part")
    );
    Statement::new(sql).bind(id.to_string())
}

fn select_write(dialect: Dialect) -> String {
    format!("SELECT id, about, decided, done, void, skipped FROM {}", dialect.own_table("several_write"))
}

fn read_write(row: &Row) -> Reply<WriteRecord> {
    let skipped = row.text(5)?.split_whitespace().map(|shard| parse("shard", shard)).collect::<Reply<_>>()?;
    Ok(WriteRecord {
        id: parse("name of a write", row.text(0)?)?,
        about: row.text(1)?.to_owned(),
        decided_ms: row.int(2)?,
        done_ms: row.opt_int(3)?,
        void: row.int(4)? == 1,
        waiting: Vec::new(),
        skipped,
    })
}

fn read_part(row: &Row) -> Reply<PendingPart> {
    Ok(PendingPart {
        id: parse("name of a write", row.text(0)?)?,
        shard: parse("shard", row.text(1)?)?,
        body: row.text(2)?.to_owned(),
        error: row.opt_text(3)?.map(str::to_owned),
    })
}
