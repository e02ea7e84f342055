//! Requests to stop a session's statement, which come on connections of their own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use polyshard_engine::RawCancel;
use subtle::ConstantTimeEq;

use crate::session::About;

/// The sessions that can be asked to stop, by number.
#[derive(Default)]
pub(crate) struct Cancels {
    next: AtomicI32,
    sessions: Mutex<HashMap<i32, (i32, Arc<Running>)>>,
}

/// What runs for one session. While a shard is asked to stop, its session is not given back, so that the word does not
/// reach somebody else's statement.
#[derive(Default)]
pub(crate) struct Running {
    on: Mutex<On>,
    /// Told when nobody asks shards to stop any more.
    asked: tokio::sync::Notify,
    /// Wakes whoever works for the session in this process.
    here: Arc<tokio::sync::Notify>,
    about: Mutex<About>,
}

#[derive(Default)]
struct On {
    sessions: Vec<RawCancel>,
    /// How many are asking them to stop.
    asking: usize,
}

/// Somebody who asks shards to stop, until it is dropped.
struct Asking<'a>(&'a Running);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.lock().asking -= 1;
        self.0.asked.notify_waiters();
    }
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

    /// All sessions, by number, and what is known of them.
    pub fn all(&self) -> Vec<(i32, About)> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions
            .iter()
            .map(|(process, (_, running))| (*process, running.about(|about| about.clone())))
            .collect()
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
        let (asking, sessions) = running.ask();
        // All at once: one that does not answer is no reason for the others to go on.
        for sent in futures_util::future::join_all(sessions.iter().map(RawCancel::send)).await {
            if let Err(error) = sent {
                tracing::debug!(%error, "a statement could not be cancelled");
            }
        }
        drop(asking);
    }
}

impl Running {
    /// Looks at what is known of the session, or notes something.
    pub fn about<T>(&self, look: impl FnOnce(&mut About) -> T) -> T {
        look(&mut self.about.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is notified when the session is asked to stop.
    pub fn here(&self) -> Arc<tokio::sync::Notify> {
        self.here.clone()
    }

    /// Ready once the session is asked to stop, from when this is first polled or enabled on.
    pub fn stopped(&self) -> tokio::sync::futures::Notified<'_> {
        self.here.notified()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, On> {
        self.on.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be asked to stop, and is not given back meanwhile.
    fn ask(&self) -> (Asking<'_>, Vec<RawCancel>) {
        let mut on = self.lock();
        on.asking += 1;
        (Asking(self), on.sessions.clone())
    }

    /// Notes a session that works for this one.
    pub fn add(&self, cancel: RawCancel) {
        self.lock().sessions.push(cancel);
    }

    /// Nothing works for it any more.
    pub async fn clear(&self) {
        if !self.clear_now() {
            Box::pin(self.clear_later()).await;
        }
    }

    fn clear_now(&self) -> bool {
        let mut on = self.lock();
        if on.asking == 0 {
            on.sessions.clear();
        }
        on.asking == 0
    }

    async fn clear_later(&self) {
        loop {
            // Made before it is looked: then no word of it is missed.
            let asked = self.asked.notified();
            if self.clear_now() {
                return;
            }
            asked.await;
        }
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        self.cancels.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.process);
    }
}
