//! Sessions lent one at a time, for transactions and scans.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connect::{Connector, Purpose};
use super::session::Session;
use crate::Error;

pub(crate) struct Pool {
    connector: Arc<Connector>,
    idle: Mutex<Vec<Session>>,
    permits: Arc<Semaphore>,
}

/// A session on loan. It is given back with [`Lent::finish`]; dropped, it is closed, which rolls back
/// whatever was open on it.
pub(crate) struct Lent {
    pool: Arc<Pool>,
    pub session: Session,
    permit: OwnedSemaphorePermit,
}

impl Pool {
    pub fn new(connector: Arc<Connector>) -> Pool {
        let permits = Arc::new(Semaphore::new(connector.options.postgres_pool_max.max(1)));
        Pool { connector, idle: Mutex::new(Vec::new()), permits }
    }

    pub async fn lend(self: &Arc<Pool>) -> Result<Lent, Error> {
        let wait = self.connector.options.acquire_timeout;
        let permit = match tokio::time::timeout(wait, self.permits.clone().acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Err(Error::Closed),
            Err(_) => {
                return Err(Error::Busy {
                    message: format!("all sessions of the pool were in use for {wait:?}"),
                });
            }
        };
        let session = match self.idle_session() {
            Some(session) => session,
            None => self.connector.connect(Purpose::Writing).await?,
        };
        Ok(Lent { pool: self.clone(), session, permit })
    }

    /// Puts a session in that is not on loan, if there is room.
    pub fn add(&self, session: Session) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.connector.options.postgres_pool_max {
            idle.push(session);
        }
    }

    fn idle_session(&self) -> Option<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(session) = idle.pop() {
            if self.connector.is_current(&session) {
                return Some(session);
            }
        }
        None
    }

    pub fn drop_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Waits for loans to end; there are no new ones.
    pub async fn close(&self) {
        let all = u32::try_from(self.connector.options.postgres_pool_max.max(1)).unwrap_or(u32::MAX);
        let wait = self.connector.options.transaction_idle_max;
        if tokio::time::timeout(wait, self.permits.acquire_many(all)).await.is_err() {
            tracing::warn!("transactions were still open when the database was closed");
        }
        self.permits.close();
        self.drop_idle();
    }
}

impl Lent {
    /// Gives the session back: nothing is open on it.
    pub fn finish(self) {
        if self.pool.connector.is_current(&self.session) {
            self.pool.add(self.session);
        }
        drop(self.permit);
    }
}
