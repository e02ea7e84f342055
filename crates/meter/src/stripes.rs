//! Places to count in, each for few threads: threads that write to one line of memory wait for each other.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many places. Threads beyond that share them; a place more costs a kilobyte for each shard.
const STRIPES: usize = 8;

/// The same thing once for each place.
#[derive(Debug)]
pub(crate) struct Stripes<T>([Stripe<T>; STRIPES]);

/// Processors fetch lines of 64 bytes in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe<T>(T);

impl<T: Default> Default for Stripes<T> {
    fn default() -> Stripes<T> {
        Stripes(std::array::from_fn(|_| Stripe(T::default())))
    }
}

impl<T> Stripes<T> {
    /// The place of this thread.
    #[inline]
    pub(crate) fn mine(&self) -> &T {
        &self.0[thread_number() % STRIPES].0
    }

    /// All places.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|stripe| &stripe.0)
    }
}

/// Which of the threads that count this one is.
#[inline]
pub(crate) fn thread_number() -> usize {
    const NONE_YET: usize = usize::MAX;
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(NONE_YET) };
    }
    match NUMBER.get() {
        NONE_YET => {
            let number = THREADS.fetch_add(1, Ordering::Relaxed);
            NUMBER.set(number);
            number
        }
        number => number,
    }
}
