//! Removes rows that are not of a shard any more: they are found first, beside everybody's work, and then deleted by
//! their keys in small batches that each prove that the shard does not own them.
//!
//! Rows that were deleted do not come back, though only the last batch of those that were found waits for the disk:
//! - A database recovers what it has committed in that order and without gaps: what waits for the disk has all batches
//!   before it there, too.
//! - A table is done when nothing is found in it, which is looked at anew after each last batch; so rows that came back
//!   with a server that was killed are found, and deleted again.
//! - Who takes over may find nothing, because of deletes that are not on the disk yet. Before the move is said to be
//!   clean it takes the capture away (`Shard::remove_capture`), which locks the local map's record in that database:
//!   that is a write, and its commit waits for the disk. On an embedded shard a lock is none, but he has written his
//!   token there before he looked (`Shard::claim`), and one sync is for all of the log.
//!
//! And nothing is deleted of which the owner's copy could still be lost: the ranges have left by then, after all of
//! theirs was on the other shard's disk (see `copy`).

use std::collections::VecDeque;
use std::time::Duration;

use polyshard_catalog::Carry;
use polyshard_engine::Durable;
use polyshard_map::MapDefinition;
use polyshard_shard::{Dataset, OpId, OpRef, RowKey, Shape, Shard};
use tokio::time::Instant;

use crate::error::{MoveError, Result};
use crate::pace::{Bite, Pace};
use crate::table::{Side, rows_of};

/// Rows removed by one transaction at most: others' protocol waits meanwhile.
const BATCH_ROWS: usize = 256;
/// Keys found by one scan, which may have to read the whole table: so many are kept in memory.
const FOUND_MAX: usize = 65_536;
/// Keys that come from a scan at once: while requests are served, and alone.
const PAGE_ROWS_FEW: usize = 256;
const PAGE_ROWS: usize = 1024;
/// After how long a scan that has found some rows ends: as long as it is open, nothing that others change can be
/// forgotten by the database.
const SCAN_MAX: Duration = Duration::from_secs(1);
/// How long one part of cleaning may take.
const PART: Duration = Duration::from_millis(300);

/// How far the cleaning of one shard is.
pub(crate) struct Cleaning {
    /// Tables still to be looked at, those that refer to others first; none before they are read.
    tables: Option<VecDeque<(Side, Option<i64>)>>,
    /// Rows of the first one that were found.
    found: VecDeque<RowKey>,
    /// How many of the last scan's rows were there to be removed.
    removed: u64,
    bite: Bite,
}

impl Default for Cleaning {
    fn default() -> Cleaning {
        Cleaning { tables: None, found: VecDeque::new(), removed: 0, bite: Bite::new(BATCH_ROWS) }
    }
}

/// What is cleaned, and for whom.
pub(crate) struct Dirt<'a> {
    pub op: OpRef,
    pub carry: &'a Carry,
    pub definition: &'a MapDefinition,
    /// The capture on this shard, which does not note or refuse these deletes.
    pub capture: OpId,
    pub pace: &'a Pace,
}

impl Cleaning {
    /// Removes rows for a while; adds how many to the count. True when there are no more. Only this shard is asked, so
    /// that it works whatever has become of the tables on the other.
    pub(crate) async fn go_on(&mut self, on: &Shard, dirt: &Dirt<'_>, cleaned: &mut u64) -> Result<bool> {
        let until = Instant::now() + PART;
        let mut tables = match self.tables.take() {
            Some(tables) => tables,
            None => sides(on, dirt).await?,
        };
        let done = self.remove(on, dirt, &mut tables, until, cleaned).await;
        self.tables = Some(tables);
        done
    }

    async fn remove(
        &mut self,
        on: &Shard,
        dirt: &Dirt<'_>,
        tables: &mut VecDeque<(Side, Option<i64>)>,
        until: Instant,
        cleaned: &mut u64,
    ) -> Result<bool> {
        let ranges = (dirt.definition.name(), dirt.carry.ranges.as_slice());
        while let Some((table, number)) = tables.front() {
            if self.found.is_empty() {
                self.removed = 0;
                self.found = find(on, table, *number, dirt.pace).await?;
                if self.found.is_empty() {
                    tables.pop_front();
                    continue;
                }
            }
            while !self.found.is_empty() {
                let began = Instant::now();
                let count = self.found.len().min(self.bite.rows(dirt.pace));
                let keys: Vec<&RowKey> = self.found.iter().take(count).collect();
                let batch = table.deletes(&keys);
                // The last of those that were found makes all of them safe, before it is looked whether any is left.
                let is_last = count == self.found.len();
                let durable = if is_last { Durable::Now } else { Durable::WithTheNext };
                let removed = on.clean(dirt.op, dirt.capture, ranges, batch, durable).await;
                let removed = match removed.map_err(MoveError::on(on.id())) {
                    // Rows of a table may refer to each other: those that others refer to are found again later.
                    Err(error) if error.is_rule() => {
                        let mut sum = 0;
                        for key in self.found.iter().take(count).rev() {
                            let one = vec![table.delete(key)];
                            let one = on.clean(dirt.op, dirt.capture, ranges, one, Durable::Now).await;
                            match one.map_err(MoveError::on(on.id())) {
                                Err(error) if error.is_rule() => {}
                                other => sum += other?,
                            }
                        }
                        sum
                    }
                    other => other?,
                };
                self.found.drain(..count);
                self.removed += removed;
                *cleaned += removed;
                self.bite.learn(count, began.elapsed());
                dirt.pace.rest(began).await;
                if Instant::now() >= until && !self.found.is_empty() {
                    return Ok(false);
                }
            }
            if self.removed == 0 {
                return Err(MoveError::Later(format!(
                    "rows of {} on shard {} that are to be cleaned away come back",
                    table.table,
                    on.id()
                )));
            }
        }
        Ok(true)
    }
}

/// Keys of rows in the ranges; not all of them where that takes long, but some if there are any. A scan holds up
/// nobody.
async fn find(on: &Shard, table: &Side, number: Option<i64>, pace: &Pace) -> Result<VecDeque<RowKey>> {
    let wrong = MoveError::engine(on.id());
    let db = on.carrier().await.map_err(MoveError::on(on.id()))?;
    let page = if pace.is_busy() { PAGE_ROWS_FEW } else { PAGE_ROWS };
    let mut scan = db.scan(table.keys(number, FOUND_MAX), page).await.map_err(&wrong)?;
    let (mut found, until) = (VecDeque::new(), Instant::now() + SCAN_MAX);
    loop {
        let began = Instant::now();
        let Some(page) = scan.next().await.map_err(&wrong)? else { return Ok(found) };
        found.extend(rows_of(page).into_iter().map(RowKey));
        if !found.is_empty() && began >= until {
            return Ok(found);
        }
        pace.rest(began).await;
    }
}

/// The tables of the map's datasets on a shard. One without a primary key was never moved.
async fn sides(on: &Shard, dirt: &Dirt<'_>) -> Result<VecDeque<(Side, Option<i64>)>> {
    let wrong = MoveError::on(on.id());
    let mut tables = Vec::new();
    for dataset in on.tables(dirt.definition.name()).await.map_err(&wrong)? {
        let shape = on.shape(&dataset.table).await.map_err(&wrong)?;
        tables.extend(shape.filter(|shape| !shape.primary_key.is_empty()).map(|shape| (dataset, shape)));
    }
    let side = |(dataset, shape): (Dataset, Shape)| {
        let side = Side::new(on.dialect(), &dataset, &shape, &shape, dirt.definition, &dirt.carry.ranges)?;
        Ok((side, dataset.number()))
    };
    children_first(tables).into_iter().map(side).collect()
}

/// Tables in an order in which each comes before those that it refers to, as far as there is one.
fn children_first(mut left: Vec<(Dataset, Shape)>) -> Vec<(Dataset, Shape)> {
    let mut sorted = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_referred_to = |place: usize| {
            let identity = &left[place].1.identity;
            left.iter().any(|(_, other)| other.identity != *identity && other.references.contains(identity))
        };
        let next = (0..left.len()).find(|place| !is_referred_to(*place)).unwrap_or(0);
        sorted.push(left.remove(next));
    }
    sorted
}
