//! Raw sessions lent one at a time.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::DuplexStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::connect::Connector;
use super::raw::RawSession;
use crate::Error;

pub(crate) struct RawPool {
    connector: Arc<Connector>,
    idle: Mutex<Vec<RawSession>>,
    permits: Arc<Semaphore>,
    /// Sessions that are being ended.
    ending: Mutex<JoinSet<()>>,
}

/// A raw session on loan. It is given back with [`RawLent::finish`], when nothing is open on it; dropped, it is
/// ended, and so is what runs on it.
pub struct RawLent {
    /// Where it goes back to, if it goes back.
    pool: Option<Arc<RawPool>>,
    session: Option<RawSession>,
    permit: Option<OwnedSemaphorePermit>,
}

impl RawPool {
    pub fn new(connector: Arc<Connector>) -> RawPool {
        let permits = Arc::new(Semaphore::new(connector.options.postgres_raw_max.max(1)));
        RawPool { connector, idle: Mutex::default(), permits, ending: Mutex::default() }
    }

    pub async fn lend(self: &Arc<RawPool>) -> Result<RawLent, Error> {
        let permit = match self.permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let wait = self.connector.options.acquire_timeout;
                // Boxed, as what follows: the usual case needs no room for it.
                let acquired = Box::pin(tokio::time::timeout(wait, self.permits.clone().acquire_owned()));
                match acquired.await {
                    Ok(Ok(permit)) => permit,
                    Ok(Err(_)) => return Err(Error::Closed),
                    Err(_) => {
                        return Err(Error::Busy {
                            message: format!("all sessions to the shard were in use for {wait:?}"),
                        });
                    }
                }
            }
        };
        let session = match self.idle_session() {
            Some(session) => session,
            None => Box::pin(self.connector.connect_raw()).await?,
        };
        Ok(RawLent { pool: Some(self.clone()), session: Some(session), permit: Some(permit) })
    }

    fn idle_session(&self) -> Option<RawSession> {
        loop {
            // One at a time, so that the lock is not held while a socket is looked at.
            let mut session = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if self.is_current(&session) && session.is_alive() {
                return Some(session);
            }
        }
    }

    fn is_current(&self, session: &RawSession) -> bool {
        session.generation == self.connector.generation()
    }

    pub fn drop_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn end(&self, session: RawSession, permit: Option<OwnedSemaphorePermit>) {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        while ending.try_join_next().is_some() {}
        ending.spawn(async move {
            session.abandon().await;
            drop(permit);
        });
    }

    /// Waits for loans to end; there are no new ones.
    pub async fn close(&self) {
        let all = u32::try_from(self.connector.options.postgres_raw_max.max(1)).unwrap_or(u32::MAX);
        let wait = self.connector.options.transaction_idle_max;
        if tokio::time::timeout(wait, self.permits.acquire_many(all)).await.is_err() {
            tracing::warn!("client sessions were still open when the database was closed");
        }
        self.permits.close();
        self.drop_idle();
        let mut ending = std::mem::take(&mut *self.ending.lock().unwrap_or_else(PoisonError::into_inner));
        while ending.join_next().await.is_some() {}
    }
}

impl RawLent {
    /// A session with whoever answers at the other end of a pipe in this process, in the same protocol: it ends when it
    /// is given back. Whoever wants its statement stopped has `stop` notified.
    pub fn piped(stream: DuplexStream, target: &str, stop: Arc<Notify>) -> RawLent {
        RawLent { pool: None, session: Some(RawSession::piped(stream, target.into(), stop)), permit: None }
    }

    /// Gives the session back: nothing is open or under way on it.
    pub fn finish(mut self) {
        if let Some(session) = self.session.take()
            && let Some(pool) = &self.pool
            && pool.is_current(&session)
            && session.outgoing.is_empty()
            && session.incoming.is_empty()
        {
            let mut idle = pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(session);
        }
        self.permit = None;
    }

    /// Ends the session, and waits until nothing that ran on it can come later.
    pub async fn abandon(mut self) {
        if let Some(session) = self.session.take() {
            session.abandon().await;
        }
    }
}

impl Deref for RawLent {
    type Target = RawSession;

    fn deref(&self) -> &RawSession {
        self.session.as_ref().expect("it is there until it is given back")
    }
}

impl DerefMut for RawLent {
    fn deref_mut(&mut self) -> &mut RawSession {
        self.session.as_mut().expect("it is there until it is given back")
    }
}

impl Drop for RawLent {
    fn drop(&mut self) {
        let (Some(session), Some(pool)) = (self.session.take(), &self.pool) else { return };
        // Outside a runtime the process is ending, and its connections with it.
        if tokio::runtime::Handle::try_current().is_ok() {
            pool.end(session, self.permit.take());
        }
    }
}
