//! Read connections: taken for one call, given back, a few kept.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::connection::{Connection, Role};
use crate::group::Counters;
use crate::{Error, Options};

pub(crate) struct Readers {
    path: PathBuf,
    options: Arc<Options>,
    counters: Arc<Counters>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub fn new(path: PathBuf, options: Arc<Options>, counters: Arc<Counters>) -> Readers {
        Readers { path, options, counters, idle: Mutex::new(Vec::new()) }
    }

    /// An idle connection, or a new one: at most as many as there are threads reading and long reads
    /// permitted.
    pub fn take(&self) -> Result<Connection, Error> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match idle {
            Some(connection) => Ok(connection),
            None => {
                Counters::add(&self.counters.sessions_opened, 1);
                Connection::open(&self.path, Role::Reader, &self.options)
            }
        }
    }

    pub fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.options.sqlite_readers {
            idle.push(connection);
        }
    }

    pub fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
