//! Pipelined read sessions: many callers' queries on few connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::connect::{Connector, Purpose};
use super::error::{Failure, Fitness};
use super::session::Session;
use crate::group::Counters;
use crate::guard::{self, Guard};
use crate::{Error, Rows, Statement};

pub(crate) struct Readers {
    connector: Arc<Connector>,
    slots: Vec<Slot>,
    under_way: AtomicUsize,
}

#[derive(Default)]
struct Slot {
    session: Mutex<Option<Arc<Session>>>,
    /// One caller connects, the others of this slot wait for it.
    connecting: tokio::sync::Mutex<()>,
    under_way: AtomicUsize,
}

impl Readers {
    pub fn new(connector: Arc<Connector>) -> Readers {
        let count = connector.options.postgres_readers.max(1);
        let slots = (0..count).map(|_| Slot::default()).collect();
        Readers { connector, slots, under_way: AtomicUsize::new(0) }
    }

    pub async fn read(&self, statement: &Statement, guard: Option<&Guard>) -> Result<Rows, Error> {
        Counters::add(&self.connector.counters.reads, 1);
        let reads_max = self.connector.options.reads_max;
        let _all = Count::up(&self.under_way);
        if self.under_way.load(Ordering::Relaxed) > reads_max {
            return Err(Error::Busy { message: format!("{reads_max} reads are under way already") });
        }
        let Some(slot) = self.slots.iter().min_by_key(|slot| slot.under_way.load(Ordering::Relaxed)) else {
            return Err(Error::Closed);
        };
        let _slot = Count::up(&slot.under_way);
        let session = self.session(slot).await?;
        guard::check(guard)?;
        match self.run(&session, statement).await {
            // A read may be repeated: the session was old, the server may be there again.
            Err(failure) if failure.session == Fitness::Lost => {
                drop(session);
                let session = self.session(slot).await?;
                guard::check(guard)?;
                Ok(self.run(&session, statement).await?)
            }
            result => Ok(result?),
        }
    }

    async fn run(&self, session: &Session, statement: &Statement) -> Result<Rows, Failure> {
        let mut result = session.run(0, statement).await;
        if matches!(&result, Err(failure) if failure.session == Fitness::Stale) {
            session.forget_prepared();
            result = session.run(0, statement).await;
        }
        result.map_err(|failure| match failure.error {
            Error::ReadOnly { .. } => {
                Failure::fit(Error::invalid("a read may not write: use Database::write"))
            }
            // The statement was stopped by our own connection's end, not by its nature.
            _ => failure,
        })
    }

    async fn session(&self, slot: &Slot) -> Result<Arc<Session>, Error> {
        if let Some(session) = self.current(slot) {
            return Ok(session);
        }
        let _connecting = slot.connecting.lock().await;
        if let Some(session) = self.current(slot) {
            return Ok(session);
        }
        let session = Arc::new(self.connector.connect(Purpose::Reading).await?);
        *slot.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        Ok(session)
    }

    fn current(&self, slot: &Slot) -> Option<Arc<Session>> {
        let session = slot.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.as_ref().filter(|session| self.connector.is_current(session)).cloned()
    }

    /// Drops the sessions; reads under way end on them.
    pub fn close(&self) {
        for slot in &self.slots {
            slot.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }
}

/// Counts one call for as long as it lives.
struct Count<'a>(&'a AtomicUsize);

impl Count<'_> {
    fn up(counter: &AtomicUsize) -> Count<'_> {
        counter.fetch_add(1, Ordering::Relaxed);
        Count(counter)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
