//! A number that only grows.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::stripes::Stripes;

/// A number that only grows, counted from any thread.
#[derive(Debug, Default)]
pub struct Counter(Stripes<AtomicU64>);

impl Counter {
    /// One more.
    #[inline]
    pub fn add_one(&self) {
        self.add(1);
    }

    /// So many more; what this thread, and those that count with it, had counted before.
    #[inline]
    pub fn add(&self, more: u64) -> u64 {
        // Nothing else is read by it, so the order among threads does not matter.
        self.0.mine().fetch_add(more, Ordering::Relaxed)
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.all().map(|part| part.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Counter;

    #[test]
    fn nothing_that_many_threads_count_is_lost() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..1_000).for_each(|_| counter.add_one()));
            }
        });
        assert_eq!(counter.get(), 20_000);
    }
}
