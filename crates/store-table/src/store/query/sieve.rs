//! Rows of a file that the filter does not let through are passed over where they lie, and not copied.

use std::cell::Cell;

use polyshard_engine::{Glimpse, Seen};
use polyshard_map::KeyRange;

use super::super::timestamp;
use super::{Found, LONG_BYTES, Plan, Text, is_in};

/// Looks at the rows of one chunk.
pub(super) struct Sieve<'p> {
    plan: &'p Plan,
    /// The partition that all rows are of, if they are of one.
    partition: Option<&'p str>,
    /// What the shard has by right.
    ranges: &'p [KeyRange],
    /// The partition and row key of the row that was passed over last, and how many in a row.
    passed: (String, String),
    passed_rows: usize,
    /// Bytes of all rows, as far as they are known.
    pub bytes: usize,
    /// Bytes of the values that were read of rows that were passed over.
    pub passed_bytes: usize,
    /// What is known of each row that is wanted.
    pub wanted: Vec<Wanted>,
}

/// A row that is wanted.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// How many rows were looked at to find it.
    pub looked: usize,
    /// Whether the filter has let it through.
    pub is_sure: bool,
}

impl<'p> Sieve<'p> {
    pub fn new(plan: &'p Plan, partition: Option<&'p str>, ranges: &'p [KeyRange]) -> Sieve<'p> {
        let passed = Default::default();
        Sieve {
            plan,
            partition,
            ranges,
            passed,
            passed_rows: 0,
            bytes: 0,
            passed_bytes: 0,
            wanted: Vec::new(),
        }
    }

    /// Whether the row is wanted.
    pub fn look(&mut self, row: &Seen<'_>) -> bool {
        let (partition, key) = (self.partition.or_else(|| row.text(3)), row.text(0));
        let (is_sure, bytes) = match (partition, key, row.get(2)) {
            (Some(_), Some(_), Glimpse::Null) => (None, 0),
            (Some(partition), Some(key), Glimpse::Text(text)) => {
                let bytes = if text.is_empty() { LONG_BYTES } else { text.len() };
                (self.lets_through(row, (partition, key), text), bytes)
            }
            // Something is wrong with it: so it is taken, and that is told.
            _ => (Some(false), 0),
        };
        self.bytes += bytes;
        let Some(is_sure) = is_sure else {
            self.passed_bytes += passed_bytes(row);
            self.passed_rows += 1;
            self.passed.1.clear();
            self.passed.1.push_str(key.unwrap_or_default());
            if self.partition.is_none() {
                self.passed.0.clear();
                self.passed.0.push_str(partition.unwrap_or_default());
            }
            return false;
        };
        self.wanted.push(Wanted { looked: self.passed_rows + 1, is_sure });
        self.passed_rows = 0;
        true
    }

    /// Whether it is sure that the row is asked for; none if it is not. One that is too long, or damaged, is looked at
    /// again.
    fn lets_through(&self, row: &Seen<'_>, key: (&str, &str), text: &str) -> Option<bool> {
        if self.partition.is_none() {
            match row.get(4) {
                Glimpse::Blob(placement) if is_in(self.ranges, placement) => {}
                Glimpse::Blob(_) => return None,
                _ => return Some(false),
            }
        }
        if text.is_empty() {
            return Some(false);
        }
        let is_damaged = Cell::new(false);
        let time = || {
            let time = match row.get(1) {
                Glimpse::Int(ticks) => timestamp(ticks).ok(),
                _ => None,
            };
            is_damaged.set(time.is_none());
            time
        };
        match self.plan.lets_through(key, &time, text) {
            Ok(true) => Some(true),
            Ok(false) if !is_damaged.get() => None,
            _ => Some(false),
        }
    }

    /// The last of the rows that were passed over since the last one that is wanted.
    pub fn last_passed(self) -> Option<Found> {
        let (partition, row) = self.passed;
        let partition = self.partition.map_or_else(|| partition.into(), Into::into);
        let (properties, looked) = (Text::Unasked, self.passed_rows);
        let is_passed = looked > 0;
        is_passed.then_some(Found {
            partition,
            row,
            ticks: 0,
            properties,
            is_owned: false,
            is_sure: false,
            looked,
        })
    }
}

/// Bytes of what was read of a row, as those of a row that is sent are counted.
fn passed_bytes(row: &Seen<'_>) -> usize {
    /// Key, time, properties, partition and placement: the first three if the partition is known.
    const COLUMNS: usize = 5;
    let bytes = |column| match row.get(column) {
        Glimpse::Text(text) => text.len(),
        Glimpse::Blob(bytes) => bytes.len(),
        Glimpse::Int(_) => size_of::<i64>(),
        Glimpse::Null | Glimpse::Other => 0,
    };
    (0..COLUMNS).map(bytes).sum()
}
