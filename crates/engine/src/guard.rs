//! Leave to run that can be taken back until the very moment a statement is sent.
//!
//! A session hook may learn something that voids what callers are about to do. The callers' statements may be
//! waiting for exactly that session. So the guard is looked at after the session is there and before anything
//! is sent on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Access, Batch, Database, Error, Look, RawLent, Rows, Scan, Statement, Transaction};

/// Counts up when everything guarded so far becomes void. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Generation(Arc<AtomicU64>);

impl Generation {
    /// Voids every guard given so far.
    pub fn advance(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// A guard that holds until the next [`Generation::advance`].
    pub fn guard(&self) -> Guard {
        Guard { generation: self.clone(), seen: self.0.load(Ordering::SeqCst) }
    }
}

/// Leave to run.
#[derive(Clone, Debug)]
pub struct Guard {
    generation: Generation,
    seen: u64,
}

impl Guard {
    /// Refuses once it is void: nothing has been sent.
    pub fn check(&self) -> Result<(), Error> {
        if self.generation.0.load(Ordering::SeqCst) == self.seen {
            return Ok(());
        }
        Err(Error::Conflict { message: "what the caller relied on has changed meanwhile".to_owned() })
    }
}

/// Looks at a guard, if there is one.
pub(crate) fn check(guard: Option<&Guard>) -> Result<(), Error> {
    guard.map_or(Ok(()), Guard::check)
}

/// A database under a guard: the same calls, each refused with [`Error::Conflict`] once the guard is void.
pub struct Guarded<'a> {
    pub(crate) db: &'a Database,
    pub(crate) guard: &'a Guard,
}

impl Guarded<'_> {
    /// See [`Database::write`].
    pub async fn write(&self, mut batch: Batch) -> Result<Vec<Rows>, Error> {
        batch.guard = Some(self.guard.clone());
        self.db.write(batch).await
    }

    /// See [`Database::read`].
    pub async fn read(&self, statement: Statement) -> Result<Rows, Error> {
        self.db.read_under(statement, None, Some(self.guard)).await
    }

    /// See [`Database::read_wanted`].
    pub async fn read_wanted(&self, statement: Statement, look: &mut Look<'_>) -> Result<Rows, Error> {
        self.db.read_under(statement, Some(look), Some(self.guard)).await
    }

    /// See [`Database::scan`].
    pub async fn scan(&self, statement: Statement, page_rows: usize) -> Result<Scan, Error> {
        self.db.scan_under(statement, page_rows, Some(self.guard)).await
    }

    /// See [`Database::raw`].
    pub async fn raw(&self) -> Result<RawLent, Error> {
        self.db.raw_under(Some(self.guard)).await
    }

    /// See [`Database::begin`].
    pub async fn begin(&self, access: Access) -> Result<Transaction, Error> {
        self.db.begin_under(access, Some(self.guard)).await
    }
}
