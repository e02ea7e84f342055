//! What one front door was asked, by operation and outcome, and how long its answers took.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::stripes::Stripes;
use crate::{Histogram, Times};

/// Different operations that one door may count; more are counted together. A protocol has a few dozen.
pub const OPERATIONS_MAX: usize = 128;
/// Places for them: twice as many, so that each is found after a look or two. A power of two.
const PLACES: usize = 2 * OPERATIONS_MAX;

/// Where operations beyond the limit are counted.
const OTHER: &str = "other";

/// An operation, and how it ended.
type Words = (&'static str, &'static str);

/// Counts of one door's requests. Nobody waits for anybody: it is told of every request.
#[derive(Debug)]
pub struct Requests {
    /// Which words are counted at which place. A place that is taken stays so.
    words: [OnceLock<Words>; PLACES],
    taken: AtomicUsize,
    counts: Stripes<Counts>,
    times: Histogram,
}

#[derive(Debug)]
struct Counts([AtomicU64; PLACES]);

impl Default for Counts {
    fn default() -> Counts {
        Counts(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Default for Requests {
    fn default() -> Requests {
        Requests {
            words: std::array::from_fn(|_| OnceLock::new()),
            taken: AtomicUsize::new(0),
            counts: Stripes::default(),
            times: Histogram::default(),
        }
    }
}

/// How many requests of one operation ended one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// What was asked: a word of the protocol.
    pub operation: &'static str,
    /// How it ended: `2xx`, `4xx`, `ok`, `error` …
    pub outcome: &'static str,
    /// How often.
    pub count: u64,
}

impl Requests {
    /// A request was answered.
    pub fn record(&self, operation: &'static str, outcome: &'static str, took: Duration) {
        if !crate::is_counting() {
            return;
        }
        self.times.record(took);
        let place = self.place((operation, outcome)).or_else(|| self.place((OTHER, outcome)));
        // None if there were more different outcomes than places: no protocol has so many.
        let Some(place) = place else { return };
        self.counts.mine().0[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Where these words are counted; none if there is no place left for them.
    fn place(&self, words: Words) -> Option<usize> {
        let first = hash(words);
        for look in 0..PLACES {
            let place = (first + look) % PLACES;
            let known = match self.words[place].get() {
                Some(known) => known,
                None if words.0 != OTHER && self.taken.load(Ordering::Relaxed) >= OPERATIONS_MAX => {
                    return None;
                }
                // Somebody else may take it just now, for other words.
                None => self.words[place].get_or_init(|| {
                    self.taken.fetch_add(1, Ordering::Relaxed);
                    words
                }),
            };
            if *known == words {
                return Some(place);
            }
        }
        None
    }

    /// The word for an HTTP status.
    pub fn class(status: u16) -> &'static str {
        match status {
            100..=199 => "1xx",
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        }
    }

    /// What was counted so far.
    pub fn tallies(&self) -> Vec<Tally> {
        let mut tallies = Vec::new();
        for (place, words) in self.words.iter().enumerate() {
            let Some(&(operation, outcome)) = words.get() else { continue };
            let count = self.counts.all().map(|counts| counts.0[place].load(Ordering::Relaxed)).sum();
            tallies.push(Tally { operation, outcome, count });
        }
        tallies.sort_unstable_by_key(|tally| (tally.operation, tally.outcome));
        tallies
    }

    /// How long answers took so far.
    pub fn times(&self) -> Times {
        self.times.times()
    }
}

/// Where to look first: FNV-1a, which is good enough for a few short words and takes no time.
fn hash((operation, outcome): Words) -> usize {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = operation.bytes().chain(outcome.bytes());
    let hash = bytes.fold(START, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    // The high bits know of all bytes.
    (hash >> 32) as usize % PLACES
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{OPERATIONS_MAX, Requests};

    #[test]
    fn the_number_of_operations_has_a_limit() {
        let requests = Requests::default();
        for number in 0..2 * OPERATIONS_MAX {
            let name: &'static str = Box::leak(format!("operation{number}").into_boxed_str());
            requests.record(name, Requests::class(200), Duration::ZERO);
        }
        let tallies = requests.tallies();
        assert!(tallies.len() <= OPERATIONS_MAX + 1, "{}", tallies.len());
        assert_eq!(tallies.iter().map(|tally| tally.count).sum::<u64>(), 2 * OPERATIONS_MAX as u64);
    }

    #[test]
    fn each_operation_and_outcome_is_counted_by_itself_from_all_threads() {
        let requests = Requests::default();
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    for number in 0..900 {
                        let operation = ["select", "insert", "update"][number % 3];
                        let outcome = if number % 9 == 0 { "error" } else { "ok" };
                        requests.record(operation, outcome, Duration::from_micros(5));
                    }
                });
            }
        });
        let tallies: Vec<_> =
            requests.tallies().iter().map(|tally| (tally.operation, tally.outcome, tally.count)).collect();
        let expected = [
            ("insert", "ok", 3_000),
            ("select", "error", 1_000),
            ("select", "ok", 2_000),
            ("update", "ok", 3_000),
        ];
        assert_eq!(tallies, expected);
        assert_eq!((requests.times().count(), requests.times().sum_s()), (9_000, 0.045));
    }
}
