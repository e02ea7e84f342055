//! A number that only grows.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows, counted from any thread.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn add_one(&self) {
        // Nothing else is read by it, so the order among threads does not matter.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// So many more; what it was before.
    pub fn add(&self, more: u64) -> u64 {
        self.0.fetch_add(more, Ordering::Relaxed)
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
