//! Blocks of ids: leased from the catalog before they are needed, and given to the shards or kept by this process.

use std::collections::BTreeMap;
use std::ops::Range;

use polyshard_engine::{self as engine, Dialect, Statement};
use polyshard_map::ShardId;
use polyshard_sql::{Column, Placement, Table, TableName, TypeOid};

use crate::JournalError;
use crate::counts::count_name;
use crate::ids::{COUNT_BITS, IDS_SINCE_MS, SHARD_BITS};
use crate::introspect::OwnedSequence;
use crate::journal::{Inner, Journal};
use crate::quote::text;

/// Ids in one block: large enough that a lease, one write in the catalog, is seldom; small enough that int4 ids last,
/// since what a shard or process has not used when it goes is lost.
pub(crate) const BLOCK_IDS: u64 = 1_000;
/// Blocks that are laid ready on each shard at least.
const BLOCKS_AHEAD: u64 = 2;
/// Ids are laid ready for so many rounds like the last one.
const ROUNDS_AHEAD: u64 = 8;
/// Blocks used up that are kept: whoever has counted looks his id up a moment later.
const BLOCKS_KEPT: u64 = 100;
/// How much time one lease of time-ordered ids is for, in milliseconds.
const CLOCK_LEASE_MS: i64 = 10_000;

/// What this process remembers of ids.
#[derive(Default)]
pub(crate) struct Ids {
    /// How far each shard's sequences had counted at the last round.
    counted: std::sync::Mutex<BTreeMap<(ShardId, String), i64>>,
    /// The rest of this process's own blocks.
    own: tokio::sync::Mutex<BTreeMap<String, Range<i64>>>,
    /// Held while ids are leased under several names: this process is not to be in its own way.
    pub leasing: tokio::sync::Mutex<()>,
    /// For each shard: the last moment given, the end of its lease, and the shard's number.
    clocks: tokio::sync::Mutex<BTreeMap<ShardId, Clock>>,
}

#[derive(Clone, Copy)]
struct Clock {
    last: i64,
    end: i64,
    number: i64,
}

impl Journal {
    /// Ids of a sequence for rows on shards that count nothing themselves (SQLite): unique in the cluster, and above
    /// `least`. Seldom asks the catalog.
    pub async fn allocate(&self, sequence: &str, count: u64, least: i64) -> Result<Range<i64>, JournalError> {
        let wanted = i64::try_from(count).unwrap_or(i64::MAX);
        let sequence = count_name(sequence);
        let mut own = self.inner.ids.own.lock().await;
        let left = own.entry(sequence.clone()).or_insert(0..0);
        if left.end - left.start < wanted || left.start < least {
            let size = count.max(BLOCK_IDS);
            let names = self.inner.names_of_count(sequence).await?;
            let start = self.inner.lease_of(&names, size, least).await?;
            *left = start..start + size as i64;
        }
        let given = left.start..left.start + wanted;
        left.start = given.end;
        Ok(given)
    }

    /// Time-ordered ids as `polyshard.next_id()` gives them on PostgreSQL, for an SQLite shard. They only grow, also
    /// when the clock goes back or the process is started again.
    pub async fn next_ids(
        &self,
        shard: &ShardId,
        count: usize,
        now_ms: i64,
    ) -> Result<Vec<i64>, JournalError> {
        let least = (now_ms - IDS_SINCE_MS).max(0) << COUNT_BITS;
        let mut clocks = self.inner.ids.clocks.lock().await;
        let mut clock = match clocks.get(shard) {
            Some(clock) => *clock,
            None => Clock { last: 0, end: 0, number: self.inner.catalog.shard_number(shard).await? },
        };
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            let mut next = (clock.last + 1).max(least);
            if next >= clock.end {
                let span = CLOCK_LEASE_MS << COUNT_BITS;
                let name = format!("clock of shard {shard}");
                next = self.inner.catalog.lease_ids(&name, span as u64, next).await?;
                clock.end = next + span;
            }
            clock.last = next;
            let moment = next >> COUNT_BITS;
            let within = next & ((1 << COUNT_BITS) - 1);
            ids.push(moment << (SHARD_BITS + COUNT_BITS) | clock.number << COUNT_BITS | within);
        }
        clocks.insert(shard.clone(), clock);
        Ok(ids)
    }
}

/// A sequence whose ids come from blocks.
struct Filled {
    table: TableName,
    owned: OwnedSequence,
    id_max: i64,
}

impl Inner {
    /// The sequences of sharded tables, as far as the schema is known.
    fn filled(&self) -> Vec<Filled> {
        let Some(known) = self.known.load_full() else { return Vec::new() };
        let sharded =
            known.schema.tables.values().filter(|table| matches!(table.placement, Placement::Sharded { .. }));
        let of = |table: &Table| -> Vec<Filled> {
            table.columns.iter().filter_map(|column| filled(table, column)).collect()
        };
        sharded.flat_map(|table| of(table)).collect()
    }

    /// Lays blocks ready on a shard for the sequences that have few left.
    pub(crate) async fn refill(&self, id: &ShardId) -> Result<(), JournalError> {
        let sequences = self.filled();
        if sequences.is_empty() || !self.is_ready(id) {
            return Ok(());
        }
        let shard = self.shard(id).await?;
        if shard.dialect() == Dialect::Sqlite {
            return Ok(());
        }
        let fail = |error: engine::Error| JournalError::on(id, error);
        let mut tx = shard.control_transaction().await.map_err(|error| JournalError::on(id, error))?;
        let lock = "SELECT pg_try_advisory_xact_lock(1886603852, 3)";
        let mine = tx.run(Statement::new(lock)).await.and_then(|rows| rows.one()?.bool(0)).map_err(fail)?;
        if !mine {
            return Ok(());
        }
        for Filled { table, owned, id_max } in sequences {
            let sequence = &owned.sequence;
            let name = text(sequence);
            let state = format!(
                "SELECT coalesce(pg_sequence_last_value({name}::regclass), 0), \
                 (SELECT max(local_from + size) FROM polyshard.id_block WHERE sequence = {name})"
            );
            let rows = tx.run(Statement::new(state)).await.map_err(fail)?;
            let row = rows.one().map_err(fail)?;
            let (counted, covered) = (row.int(0).map_err(fail)?, row.opt_int(1).map_err(fail)?);
            // Whoever has counted further than this waits for his id: no number may be left out.
            let covered = covered.unwrap_or(1);
            let size = self.wanted(id, sequence, counted, covered);
            if size == 0 {
                continue;
            }
            let names = self.names_of_column(&table, &owned).await?;
            let start = self.lease_of(&names, size, 1).await?;
            if start + size as i64 - 1 > id_max {
                tracing::error!(sequence, "its ids have come to an end; make the column bigint");
                continue;
            }
            let put = format!(
                "INSERT INTO polyshard.id_block (sequence, local_from, size, start) \
                 VALUES ({name}, {covered}, {size}, {start})"
            );
            let old = counted - (BLOCKS_KEPT * BLOCK_IDS) as i64;
            let prune = format!(
                "DELETE FROM polyshard.id_block WHERE sequence = {name} AND local_from + size < {old}"
            );
            tx.run_all(vec![Statement::new(put), Statement::new(prune)]).await.map_err(fail)?;
        }
        tx.commit().await.map_err(fail)
    }

    /// How many ids to lay ready: enough for some rounds like the last one.
    fn wanted(&self, id: &ShardId, sequence: &str, counted: i64, covered: i64) -> u64 {
        let key = (id.clone(), sequence.to_owned());
        let before = self.ids.counted.lock().expect("no panic while held").insert(key, counted);
        let used = u64::try_from(counted - before.unwrap_or(counted)).unwrap_or(0);
        let aim = (used * ROUNDS_AHEAD).max(BLOCKS_AHEAD * BLOCK_IDS);
        let ahead = covered - 1 - counted;
        // Topped up when half is gone, so that it is not done for every few rows.
        if ahead > 0 && ahead.unsigned_abs() * 2 > aim {
            return 0;
        }
        aim.saturating_add_signed(-ahead).next_multiple_of(BLOCK_IDS)
    }
}

/// Whether a column takes its ids from blocks.
pub(crate) fn is_filled(column: &Column) -> bool {
    block_sequence(column).is_some()
}

/// The sequence behind a column whose default is `polyshard.nextval('…'::regclass)`.
pub(crate) fn block_sequence(column: &Column) -> Option<String> {
    let call = column.default.as_ref()?.strip_prefix("polyshard.nextval('")?;
    Some(call.strip_suffix("'::regclass)")?.replace("''", "'"))
}

/// Forgets the blocks of a sequence, which is made anew or is none any more.
pub(crate) fn forget_blocks(sequence: &str) -> String {
    format!("DELETE FROM polyshard.id_block WHERE sequence = {}", text(sequence))
}

fn filled(table: &Table, column: &Column) -> Option<Filled> {
    let sequence = block_sequence(column)?;
    let id_max = match column.type_oid {
        TypeOid::INT2 => i16::MAX.into(),
        TypeOid::INT4 => i32::MAX.into(),
        _ => i64::MAX,
    };
    let owned = OwnedSequence { column: column.name.clone(), sequence, identity: false };
    Some(Filled { table: table.name.clone(), owned, id_max })
}
