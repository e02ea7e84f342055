//! A clock for tests that is moved by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use polyshard_store::Clock;

/// A clock that stands still until it is told to move on.
pub struct HandClock(AtomicI64);

impl HandClock {
    pub fn new() -> Arc<HandClock> {
        Arc::new(HandClock(AtomicI64::new(17_947_275_160_000_000)))
    }

    pub fn pass(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_nanos() / 100).unwrap(), Ordering::SeqCst);
    }

    pub fn clock(self: &Arc<HandClock>) -> Clock {
        let hand = self.clone();
        Arc::new(move || hand.0.load(Ordering::SeqCst))
    }
}
