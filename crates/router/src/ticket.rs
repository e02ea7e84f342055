//! Leave to touch a shard for given keys: counted while it exists.

use std::sync::Arc;

use polyshard_engine::{
    self as engine, Batch, Database, Guard, Look, RawLent, Rows, Scan, Statement, Transaction,
};
use polyshard_map::{Epoch, KeyRange, MapName, ShardId};
use tokio::time::Instant;

use crate::gate::{Access, Place};
use crate::meter::{Sample, rows_bytes, value_bytes};
use crate::state::{ShardState, State};

/// A counted way to one shard. Drop it when the request (or transaction) is over.
pub struct Ticket {
    pub(crate) state: Arc<State>,
    pub(crate) place: Place,
    pub(crate) map: MapName,
    pub(crate) shard: ShardId,
    pub(crate) ranges: Arc<[KeyRange]>,
    pub(crate) epoch: Epoch,
    pub(crate) access: Access,
    pub(crate) data: Database,
    pub(crate) guard: Guard,
    pub(crate) known: Arc<ShardState>,
    /// If it is timed.
    pub(crate) since: Option<Instant>,
    /// If its bytes are counted.
    pub(crate) sample: Option<Box<Sample>>,
    /// Its part of a traced request; ends with it.
    pub(crate) _span: tracing::Span,
}

impl Ticket {
    /// The shard it leads to.
    pub fn shard(&self) -> &ShardId {
        &self.shard
    }
    /// The map whose keys it is for.
    pub fn map(&self) -> &MapName {
        &self.map
    }
    /// The placements it is for.
    pub fn ranges(&self) -> &[KeyRange] {
        &self.ranges
    }
    /// The epoch of the map it was given under.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
    /// Which SQL the shard speaks.
    pub fn dialect(&self) -> engine::Dialect {
        self.data.dialect()
    }

    /// Reads a few rows.
    pub async fn read(&self, statement: Statement) -> Result<Rows, engine::Error> {
        self.asks(&statement);
        self.answered(self.data.guarded(&self.guard).read(statement).await)
    }
    /// Reads a few rows of many: see [`Database::read_wanted`].
    pub async fn read_wanted(
        &self,
        statement: Statement,
        look: &mut Look<'_>,
    ) -> Result<Rows, engine::Error> {
        self.asks(&statement);
        self.answered(self.data.guarded(&self.guard).read_wanted(statement, look).await)
    }
    fn asks(&self, statement: &Statement) {
        if let Some(sample) = &self.sample {
            sample.carried(value_bytes(statement.params()));
        }
    }
    fn answered(&self, rows: Result<Rows, engine::Error>) -> Result<Rows, engine::Error> {
        if let (Some(sample), Ok(rows)) = (&self.sample, &rows) {
            sample.carried(rows_bytes(rows));
        }
        self.noted(rows)
    }
    /// Reads many rows, page by page.
    pub async fn scan(&self, statement: Statement, page_rows: usize) -> Result<Scan, engine::Error> {
        self.noted(self.data.guarded(&self.guard).scan(statement, page_rows).await)
    }
    /// Writes atomically and durably.
    pub async fn write(&self, batch: Batch) -> Result<Vec<Rows>, engine::Error> {
        if self.access == Access::Read {
            return Err(engine::Error::invalid(
                "this ticket is for reading: enter with Access::Write to write",
            ));
        }
        let Some(sample) = &self.sample else {
            return self.noted(self.data.guarded(&self.guard).write(batch).await);
        };
        sample.carried(batch.statements().iter().map(|statement| value_bytes(statement.params())).sum());
        let answers = self.noted(self.data.guarded(&self.guard).write(batch).await);
        answers.inspect(|answers| sample.carried(answers.iter().map(rows_bytes).sum()))
    }
    /// Lends a session in protocol messages, on PostgreSQL. Keep the ticket until it is given back.
    pub async fn raw(&self) -> Result<RawLent, engine::Error> {
        self.noted(self.data.guarded(&self.guard).raw().await)
    }
    /// What it may be used for.
    pub fn access(&self) -> Access {
        self.access
    }
    /// Begins a transaction. Keep the ticket until it has ended.
    pub async fn begin(&self) -> Result<Transaction, engine::Error> {
        let access = match self.access {
            Access::Read => engine::Access::Read,
            Access::Write => engine::Access::Write,
        };
        self.noted(self.data.guarded(&self.guard).begin(access).await)
    }

    /// The request and its answer had so many bytes that did not go through this ticket. Counted of a few, which
    /// stand for all.
    pub fn carried(&self, bytes: u64) {
        if let Some(sample) = &self.sample {
            sample.carried(bytes);
        }
    }
    /// The same for who has a count of bytes that only grows: it was so high before the request.
    pub fn begin_at(&self, count: u64) {
        if let Some(sample) = &self.sample {
            sample.begin_at(count);
        }
    }
    /// And it is so high after the answer.
    pub fn end_at(&self, count: u64) {
        if let Some(sample) = &self.sample {
            sample.end_at(count);
        }
    }

    /// Counts a failure.
    fn noted<T>(&self, answer: Result<T, engine::Error>) -> Result<T, engine::Error> {
        answer.inspect_err(|error| self.known.meter.fail(error))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.state.gate.leave(self.place);
        self.known.meter.leave(self.since.map(|since| since.elapsed()));
        if let Some(sample) = self.sample.take() {
            self.state.meter.leave(&self.map, *sample);
        }
    }
}
