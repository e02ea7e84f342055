//! Where the writer waits for those who are about to join a group; the last of them wakes it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Instant;

/// How many the writer waits for. To look every now and then cost it more than the commits that it saved.
#[derive(Default)]
pub(crate) struct Gathering {
    /// How many shall be in the queue; 0 while nobody waits.
    wanted: AtomicUsize,
    writer: OnceLock<Thread>,
}

impl Gathering {
    /// This is the thread that waits.
    pub fn begin(&self) {
        // It is set once: there is one writer's thread.
        let _first = self.writer.set(std::thread::current());
    }

    /// Waits until so many are queued, or until `end`.
    pub fn wait(&self, wanted: usize, queued: impl Fn() -> usize, end: Instant) {
        self.wanted.store(wanted, Ordering::SeqCst);
        while queued() < wanted {
            let now = Instant::now();
            if now >= end {
                break;
            }
            // Whoever woke it too early, or before it slept, does no harm.
            std::thread::park_timeout(end - now);
        }
        self.wanted.store(0, Ordering::SeqCst);
    }

    /// Tells that so many are queued. Without this the writer would wait until its time is over, and no longer.
    pub fn joined(&self, queued: impl FnOnce() -> usize) {
        let wanted = self.wanted.load(Ordering::SeqCst);
        if wanted > 0
            && queued() >= wanted
            && let Some(writer) = self.writer.get()
        {
            writer.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_who_joins_wakes_the_writer() {
        let (gathering, queued) = (Arc::new(Gathering::default()), Arc::new(AtomicUsize::new(0)));
        let waits = {
            let (gathering, queued) = (gathering.clone(), queued.clone());
            std::thread::spawn(move || {
                gathering.begin();
                // The test would take an hour if nobody woke it.
                let end = Instant::now() + Duration::from_secs(3600);
                gathering.wait(3, || queued.load(Ordering::SeqCst), end);
                queued.load(Ordering::SeqCst)
            })
        };
        for _ in 0..3 {
            queued.fetch_add(1, Ordering::SeqCst);
            gathering.joined(|| queued.load(Ordering::SeqCst));
        }
        assert_eq!(waits.join().unwrap(), 3);
        // Nobody waits now: this wakes nobody.
        gathering.joined(|| 3);
    }

    #[test]
    fn it_waits_no_longer_than_it_may() {
        let gathering = Gathering::default();
        gathering.begin();
        gathering.wait(1, || 0, Instant::now());
        gathering.wait(1, || 0, Instant::now() + Duration::from_millis(1));
    }
}
