//! Read connections: taken for one call, given back, a few kept.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
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
    slots: Box<[Slot]>,
}

/// A cache line of its own, so that two threads at two slots do not wait for each other.
#[repr(align(64))]
#[derive(Default)]
struct Slot {
    /// Boxed, since it is handed about for every read.
    idle: Mutex<Option<Box<Connection>>>,
    reads: AtomicU64,
}

/// Numbers threads in the order in which they first read.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

impl Readers {
    pub fn new(path: PathBuf, options: Arc<Options>, counters: Arc<Counters>) -> Readers {
        let slots = (0..options.sqlite_readers).map(|_| Slot::default()).collect();
        Readers { path, options, counters, slots }
    }

    /// The file they read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An idle connection, or a new one: at most as many as there are threads reading and long reads
    /// permitted.
    pub fn take(&self) -> Result<Box<Connection>, Error> {
        match self.idle().find_map(|mut idle| idle.take()) {
            Some(connection) => Ok(connection),
            None => {
                Counters::add(&self.counters.sessions_opened, 1);
                Ok(Box::new(Connection::open(&self.path, Role::Reader, &self.options)?))
            }
        }
    }

    pub fn give_back(&self, connection: Box<Connection>) {
        if let Some(mut idle) = self.idle().find(|idle| idle.is_none()) {
            *idle = Some(connection);
        }
    }

    pub fn close(&self) {
        self.idle().for_each(|mut idle| drop(idle.take()));
    }

    /// Counts a read where no other thread counts.
    pub fn count(&self) {
        let counter = self.slots.get(self.own()).map_or(&self.counters.reads, |slot| &slot.reads);
        Counters::add(counter, 1);
    }

    /// The reads counted so far in the slots.
    pub fn counted(&self) -> u64 {
        self.slots.iter().map(|slot| slot.reads.load(Ordering::Relaxed)).sum()
    }

    /// What lies in the slots, this thread's own first.
    fn idle(&self) -> impl Iterator<Item = MutexGuard<'_, Option<Box<Connection>>>> {
        let (others, mine) = self.slots.split_at(self.own());
        mine.iter().chain(others).map(|slot| slot.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn own(&self) -> usize {
        THREAD.with(|number| *number).checked_rem(self.slots.len()).unwrap_or(0)
    }
}
