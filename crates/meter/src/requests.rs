//! What one front door was asked, by operation and outcome, and how long its answers took.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::{Histogram, Times};

/// Different operations that one door may count; more are counted together. A protocol has a few dozen.
pub const OPERATIONS_MAX: usize = 128;

/// Where operations beyond the limit are counted.
const OTHER: &str = "other";

/// Counts of one door's requests.
#[derive(Debug, Default)]
pub struct Requests {
    /// By operation and outcome. Held for one look-up.
    counts: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    times: Histogram,
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
        let mut counts = self.counts.lock().expect("no panic while held");
        let known = counts.len() < OPERATIONS_MAX || counts.contains_key(&(operation, outcome));
        let operation = if known { operation } else { OTHER };
        *counts.entry((operation, outcome)).or_insert(0) += 1;
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
        let counts = self.counts.lock().expect("no panic while held");
        let tally = |(&(operation, outcome), &count)| Tally { operation, outcome, count };
        counts.iter().map(tally).collect()
    }

    /// How long answers took so far.
    pub fn times(&self) -> Times {
        self.times.times()
    }
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
}
