//! Requests to stop a session's statement, which come on connections of their own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use polyshard_engine::RawCancel;
use subtle::ConstantTimeEq;

/// The sessions that can be asked to stop, by number.
#[derive(Default)]
pub(crate) struct Cancels {
    next: AtomicI32,
    sessions: Mutex<HashMap<i32, (i32, Arc<Running>)>>,
}

/// What runs for one session. The lock is held while a shard is asked to stop: a session is not given back
/// meanwhile, so that the word does not reach somebody else's statement.
#[derive(Default)]
pub(crate) struct Running {
    on: tokio::sync::Mutex<Vec<RawCancel>>,
    /// Wakes whoever works for the session in this process.
    here: Arc<tokio::sync::Notify>,
}

/// A session's place in the list, until it is dropped.
pub(crate) struct Cancellable {
    cancels: Arc<Cancels>,
    pub process: i32,
    pub secret: i32,
    pub running: Arc<Running>,
}

impl Cancels {
    /// Enters a session with its secret.
    pub fn enter(self: &Arc<Cancels>, secret: i32) -> Cancellable {
        let running = Arc::new(Running::default());
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let process = loop {
            // Numbers start over one day; those in use are left out.
            let process = self.next.fetch_add(1, Ordering::Relaxed) & i32::MAX;
            if process != 0 && !sessions.contains_key(&process) {
                break process;
            }
        };
        sessions.insert(process, (secret, running.clone()));
        Cancellable { cancels: self.clone(), process, secret, running }
    }

    /// Stops what runs for a session, if the secret is right. Nobody is told whether it was.
    pub async fn cancel(&self, process: i32, secret: i32) {
        let found = {
            let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let right = |known: &i32| bool::from(known.to_be_bytes().ct_eq(&secret.to_be_bytes()));
            sessions.get(&process).filter(|(known, _)| right(known)).map(|(_, running)| running.clone())
        };
        let Some(running) = found else { return };
        running.here.notify_waiters();
        let on = running.on.lock().await;
        for session in on.iter() {
            if let Err(error) = session.send().await {
                tracing::debug!(%error, "a statement could not be cancelled");
            }
        }
    }
}

impl Running {
    /// What is notified when the session is asked to stop.
    pub fn here(&self) -> Arc<tokio::sync::Notify> {
        self.here.clone()
    }

    /// Ready once the session is asked to stop, from when this is first polled or enabled on.
    pub fn stopped(&self) -> tokio::sync::futures::Notified<'_> {
        self.here.notified()
    }

    /// Notes a session that works for this one.
    pub async fn add(&self, cancel: RawCancel) {
        self.on.lock().await.push(cancel);
    }

    /// Nothing works for it any more.
    pub async fn clear(&self) {
        self.on.lock().await.clear();
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        self.cancels.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.process);
    }
}
