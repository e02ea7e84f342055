//! Read connections: taken for one call, given back, a few kept.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::connection::{Connection, Role};
use crate::group::Counters;
use crate::{Error, Options};

pub(crate) struct Readers {
    path: PathBuf,
    options: Arc<Options>,
    counters: Arc<Counters>,
    /// A thread looks into its own slot first: it finds the connection it used last, whose pages and statements its
    /// core still has, and does not meet other threads.
    idle: Box<[Mutex<Option<Connection>>]>,
}

/// Numbers threads in the order in which they first read.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

impl Readers {
    pub fn new(path: PathBuf, options: Arc<Options>, counters: Arc<Counters>) -> Readers {
        let idle = (0..options.sqlite_readers).map(|_| Mutex::new(None)).collect();
        Readers { path, options, counters, idle }
    }

    /// An idle connection, or a new one: at most as many as there are threads reading and long reads
    /// permitted.
    pub fn take(&self) -> Result<Connection, Error> {
        match self.slots().find_map(|mut slot| slot.take()) {
            Some(connection) => Ok(connection),
            None => {
                Counters::add(&self.counters.sessions_opened, 1);
                Connection::open(&self.path, Role::Reader, &self.options)
            }
        }
    }

    pub fn give_back(&self, connection: Connection) {
        if let Some(mut slot) = self.slots().find(|slot| slot.is_none()) {
            *slot = Some(connection);
        }
    }

    pub fn close(&self) {
        self.slots().for_each(|mut slot| drop(slot.take()));
    }

    /// All slots, this thread's own first.
    fn slots(&self) -> impl Iterator<Item = MutexGuard<'_, Option<Connection>>> {
        let own = THREAD.with(|number| *number).checked_rem(self.idle.len()).unwrap_or(0);
        let (others, mine) = self.idle.split_at(own);
        mine.iter().chain(others).map(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
