//! How far a backup or restoration is, and whether it shall go on.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tokio::sync::watch;

use crate::BackupError;

/// How far it is, and whether it shall go on.
#[derive(Debug)]
pub struct Progress {
    databases: AtomicU64,
    done: AtomicU64,
    bytes: AtomicU64,
    new_bytes: AtomicU64,
    rows: AtomicU64,
    pause_ms: AtomicU64,
    moment_ms: AtomicI64,
    wish: watch::Sender<Wish>,
}

/// Whether it shall go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Open,
    Cancelled,
    /// Its last step is being done, whose outcome must be known: nobody can cancel it any more.
    Sealed,
}

impl Default for Progress {
    fn default() -> Progress {
        let number = AtomicU64::default;
        Progress {
            databases: number(),
            done: number(),
            bytes: number(),
            new_bytes: number(),
            rows: number(),
            pause_ms: number(),
            moment_ms: AtomicI64::default(),
            wish: watch::Sender::new(Wish::Open),
        }
    }
}

impl Progress {
    /// Databases to copy.
    pub fn databases(&self) -> u64 {
        self.databases.load(Ordering::Relaxed)
    }
    /// Databases copied.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
    /// Bytes of the copies so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
    /// Bytes that were new in the depot.
    pub fn new_bytes(&self) -> u64 {
        self.new_bytes.load(Ordering::Relaxed)
    }
    /// Rows restored.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
    /// How long writes waited.
    pub fn pause_ms(&self) -> u64 {
        self.pause_ms.load(Ordering::Relaxed)
    }
    /// The moment it is of; 0 before it is held.
    pub fn moment_ms(&self) -> i64 {
        self.moment_ms.load(Ordering::Relaxed)
    }
    /// Asks for it to be given up. If its last step is being done already, it ends as if nobody had asked.
    pub fn cancel(&self) {
        self.wish.send_if_modified(|wish| {
            let open = *wish == Wish::Open;
            if open {
                *wish = Wish::Cancelled;
            }
            open
        });
    }
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    pub(crate) fn set_new_bytes(&self, bytes: u64) {
        self.new_bytes.store(bytes, Ordering::Relaxed);
    }
    pub(crate) fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }
    pub(crate) fn set_databases(&self, databases: u64) {
        self.databases.store(databases, Ordering::Relaxed);
    }
    pub(crate) fn add_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn set_pause_ms(&self, pause_ms: u64) {
        self.pause_ms.store(pause_ms, Ordering::Relaxed);
    }
    pub(crate) fn set_moment_ms(&self, moment_ms: i64) {
        self.moment_ms.store(moment_ms, Ordering::Relaxed);
    }

    /// Says that the last step begins, unless it was cancelled before.
    pub(crate) fn seal(&self) -> Result<(), BackupError> {
        self.wish.send_if_modified(|wish| {
            if *wish == Wish::Open {
                *wish = Wish::Sealed;
            }
            false
        });
        if *self.wish.borrow() == Wish::Sealed { Ok(()) } else { Err(cancelled()) }
    }

    /// Does something unless it is cancelled before it is done.
    pub(crate) async fn unless_cancelled<T>(
        &self,
        work: impl Future<Output = Result<T, BackupError>>,
    ) -> Result<T, BackupError> {
        let mut wish = self.wish.subscribe();
        tokio::select! {
            done = work => done,
            // The sender is in `self`, so it cannot be gone.
            _ = wish.wait_for(|wish| *wish == Wish::Cancelled) => Err(cancelled()),
        }
    }
}

/// What is told of one that was cancelled.
pub const CANCELLED: &str = "it was cancelled, and nothing was changed";

fn cancelled() -> BackupError {
    BackupError::Refused(CANCELLED.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_cancelled_in_its_last_step_is_done_and_what_is_cancelled_before_has_none() {
        let progress = Progress::default();
        let late = async {
            progress.seal()?;
            progress.cancel();
            tokio::task::yield_now().await;
            Ok("done")
        };
        assert_eq!(progress.unless_cancelled(late).await, Ok("done"));
        let progress = Progress::default();
        progress.cancel();
        assert!(progress.seal().is_err());
        let never = progress.unless_cancelled(std::future::pending::<Result<(), BackupError>>()).await;
        assert!(matches!(never, Err(BackupError::Refused(_))));
    }
}
