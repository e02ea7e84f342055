//! The PostgreSQL engine: placeholder signatures until the sessions land.

use std::sync::Arc;

use crate::group::Answer;
use crate::{Access, Batch, Error, Listener, Options, PostgresTarget, Rows, SessionHook, Statement, Stats};

pub(crate) struct Engine;
pub(crate) struct Session;
pub(crate) struct PostgresTransaction;
pub(crate) struct PostgresScan;

fn missing() -> Error {
    Error::invalid("the PostgreSQL engine is not there yet")
}

impl Engine {
    pub async fn open(
        _target: PostgresTarget,
        _options: Options,
        _hook: Option<Arc<dyn SessionHook>>,
    ) -> Result<Arc<Engine>, Error> {
        Err(missing())
    }
    pub async fn write(&self, _batch: Batch) -> Answer {
        Err(missing())
    }
    pub async fn read(&self, _statement: &Statement) -> Result<Rows, Error> {
        Err(missing())
    }
    pub async fn scan(&self, _statement: Statement, _page_rows: usize) -> Result<PostgresScan, Error> {
        Err(missing())
    }
    pub async fn begin(&self, _access: Access) -> Result<PostgresTransaction, Error> {
        Err(missing())
    }
    pub async fn listen(&self, _channel: &str) -> Result<Listener, Error> {
        Err(missing())
    }
    pub fn session_generation(&self) -> u64 {
        0
    }
    pub fn disconnect_all(&self) {}
    pub fn stats(&self) -> Stats {
        Stats::default()
    }
    pub async fn close(&self) {}
}

impl Session {
    pub async fn run_autocommit(&self, _statement: &Statement) -> Result<Rows, Error> {
        Err(missing())
    }
}

impl PostgresTransaction {
    pub async fn run_all(&mut self, _statements: &[Statement]) -> Answer {
        Err(missing())
    }
    pub async fn commit(self) -> Result<(), Error> {
        Err(missing())
    }
    pub async fn rollback(self) -> Result<(), Error> {
        Err(missing())
    }
}

impl PostgresScan {
    pub async fn next(&mut self) -> Result<Option<Rows>, Error> {
        Err(missing())
    }
}
