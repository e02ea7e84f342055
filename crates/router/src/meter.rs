//! What a router counts: requests by shard, their times, waits, retries, and which keys are asked for most.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polyshard_engine::{self as engine, Rows, Value};
use polyshard_map::{Key, MapName};
use polyshard_meter::{Counter, Heavy, Histogram, Times, Top, is_counting};

use crate::gate::Access;

/// Of so many requests one is looked at closer, so that the others pay an addition and a product for it.
const SAMPLE_ONE_OF: u64 = 8;
/// Spreads the requests that are looked at, so that keys that come in turn are looked at alike: 2⁶⁴ by the golden
/// ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Of so many requests to a shard one is timed and stands for all: the clock costs more than all counting.
const TIME_ONE_OF: u64 = 4;
/// Keys whose requests are counted. One that gets more than one in this many of all requests is surely among them.
const HOT_KEYS_MAX: usize = 256;

/// Counts of one router.
#[derive(Debug)]
pub struct RouterMeter {
    /// Requests that waited for a range that was held.
    pub waits: Counter,
    /// Calls that were tried again.
    pub retries: Counter,
    entered: Counter,
    hot: Top<(MapName, Key)>,
    heavy: Top<(MapName, Key)>,
    /// Requests until counts were last halved, halved with them; and how many there were in all then.
    cooled: Mutex<(u64, u64)>,
}

/// A request that is looked at closer: what it carries is counted, and stands for that of others.
#[derive(Debug)]
pub(crate) struct Sample {
    keys: Vec<Key>,
    bytes: AtomicU64,
    began_at: AtomicU64,
}

impl Sample {
    pub(crate) fn carried(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn begin_at(&self, count: u64) {
        self.began_at.store(count, Ordering::Relaxed);
    }

    pub(crate) fn end_at(&self, count: u64) {
        self.carried(count.saturating_sub(self.began_at.swap(count, Ordering::Relaxed)));
    }
}

/// The bytes of some values.
pub fn value_bytes(values: &[Value]) -> u64 {
    let bytes = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Int(_) | Value::Real(_) => 8,
        Value::Text(text) => text.len() as u64,
        Value::Blob(bytes) => bytes.len() as u64,
    };
    values.iter().map(bytes).sum()
}

/// The bytes of an answer.
pub(crate) fn rows_bytes(rows: &Rows) -> u64 {
    rows.iter().map(|row| value_bytes(row.values())).sum()
}

impl Default for RouterMeter {
    fn default() -> RouterMeter {
        RouterMeter {
            waits: Counter::default(),
            retries: Counter::default(),
            entered: Counter::default(),
            hot: Top::new(HOT_KEYS_MAX),
            heavy: Top::new(HOT_KEYS_MAX),
            cooled: Mutex::default(),
        }
    }
}

impl RouterMeter {
    /// A request for these keys came. If it is one to be looked at closer, its ticket takes the sample along.
    pub(crate) fn enter(&self, map: &MapName, keys: &[Key]) -> Option<Box<Sample>> {
        if !is_counting() || self.entered.add(1).wrapping_mul(SPREAD) >= u64::MAX / SAMPLE_ONE_OF {
            return None;
        }
        for key in keys {
            self.hot.add(&(map.clone(), key.clone()), SAMPLE_ONE_OF);
        }
        let (bytes, began_at) = (AtomicU64::new(0), AtomicU64::new(0));
        Some(Box::new(Sample { keys: keys.to_vec(), bytes, began_at }))
    }

    /// Such a request is over.
    pub(crate) fn leave(&self, map: &MapName, sample: Sample) {
        let bytes = sample.bytes.into_inner();
        // Which of several keys the bytes were for is not known.
        let each = bytes / (sample.keys.len() as u64).max(1);
        for key in sample.keys.into_iter().filter(|_| each > 0) {
            self.heavy.add(&(map.clone(), key), each.saturating_mul(SAMPLE_ONE_OF));
        }
    }

    /// Requests by key that the counts of keys stand for: those since they were last halved, and less of those before.
    pub fn counted(&self) -> u64 {
        let (halved, until) = *self.cooled.lock().expect("no panic while held");
        halved + self.entered().saturating_sub(until)
    }

    /// Requests by key so far.
    pub fn entered(&self) -> u64 {
        self.entered.get()
    }

    /// The keys that were asked for most lately, about how often since the counts were last halved and before.
    pub fn hottest(&self, limit: usize) -> Vec<Heavy<(MapName, Key)>> {
        self.hot.heaviest(limit)
    }

    /// The keys whose requests and answers had most bytes lately, about how many in the same time.
    pub fn heaviest(&self, limit: usize) -> Vec<Heavy<(MapName, Key)>> {
        self.heavy.heaviest(limit)
    }

    /// Halves the counts of keys: whoever reports heat does it at even intervals.
    pub fn cool(&self) {
        self.hot.halve();
        self.heavy.halve();
        let now = (self.counted() / 2, self.entered());
        *self.cooled.lock().expect("no panic while held") = now;
    }
}

/// Counts of one shard, as this router uses it.
#[derive(Debug, Default)]
pub struct ShardMeter {
    reads: Counter,
    writes: Counter,
    errors: Counter,
    ended: Counter,
    times: Histogram,
}

/// What was counted of one shard so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardCounts {
    /// Requests to read.
    pub reads: u64,
    /// Requests to write, or to read and write.
    pub writes: u64,
    /// Failures that were not the request's own fault.
    pub errors: u64,
    /// Requests that are on the shard now.
    pub inside: u64,
    /// How long requests were on the shard.
    pub times: Times,
}

impl ShardMeter {
    /// Whether it is to be timed.
    pub(crate) fn enter(&self, access: Access) -> bool {
        if !is_counting() {
            return false;
        }
        let before = match access {
            Access::Read => self.reads.add(1),
            Access::Write => self.writes.add(1),
        };
        before.is_multiple_of(TIME_ONE_OF)
    }

    pub(crate) fn leave(&self, stayed: Option<Duration>) {
        if !is_counting() {
            return;
        }
        self.ended.add_one();
        if let Some(stayed) = stayed {
            self.times.record_for(stayed, TIME_ONE_OF);
        }
    }

    /// Counts a failure, unless the request itself was at fault.
    pub(crate) fn fail(&self, error: &engine::Error) {
        let own_fault = matches!(
            error,
            engine::Error::Expectation { .. }
                | engine::Error::Constraint { .. }
                | engine::Error::Conflict { .. }
                | engine::Error::Invalid { .. }
        );
        if !own_fault {
            self.errors.add_one();
        }
    }

    /// Requests so far.
    pub(crate) fn entered(&self) -> u64 {
        self.reads.get() + self.writes.get()
    }

    /// What was counted so far.
    pub fn counts(&self) -> ShardCounts {
        // Read first: a request enters before it ends, so the difference is never negative.
        let ended = self.ended.get();
        let (reads, writes) = (self.reads.get(), self.writes.get());
        ShardCounts {
            reads,
            writes,
            errors: self.errors.get(),
            inside: (reads + writes).saturating_sub(ended),
            times: self.times.times(),
        }
    }
}

#[cfg(test)]
mod tests {
    use polyshard_map::{Key, MapName};

    use super::{RouterMeter, SAMPLE_ONE_OF};

    #[test]
    fn bytes_of_sampled_requests_stand_for_all_and_are_shared_by_their_keys() {
        let (meter, map) = (RouterMeter::default(), MapName::new("tenants").unwrap());
        let mut sampled = 0;
        for _ in 0..800 {
            if let Some(sample) = meter.enter(&map, &[Key::BigInt(1)]) {
                sample.begin_at(1_000);
                sample.end_at(1_300);
                sample.carried(200);
                meter.leave(&map, *sample);
                sampled += 1;
            }
        }
        assert!((99..=101).contains(&sampled), "{sampled}");
        let heaviest = meter.heaviest(2);
        assert_eq!((heaviest.len(), heaviest[0].count), (1, sampled * SAMPLE_ONE_OF * 500));
        let mut pairs = 0;
        for _ in 0..800 {
            if let Some(sample) = meter.enter(&map, &[Key::BigInt(2), Key::BigInt(3)]) {
                sample.carried(10);
                meter.leave(&map, *sample);
                pairs += 1;
            }
        }
        let of = |key| meter.heaviest(9).iter().find(|heavy| heavy.key.1 == Key::BigInt(key)).unwrap().count;
        assert_eq!((of(2), of(3)), (5 * pairs * SAMPLE_ONE_OF, 5 * pairs * SAMPLE_ONE_OF));
    }

    #[test]
    fn keys_that_come_in_turn_are_counted_alike() {
        let (meter, map) = (RouterMeter::default(), MapName::new("tenants").unwrap());
        for number in 0..8_000 {
            drop(meter.enter(&map, &[Key::BigInt(number % 8)]));
        }
        let counts: Vec<u64> = meter.hottest(9).iter().map(|heavy| heavy.count).collect();
        assert_eq!((counts.len(), meter.counted()), (8, 8_000));
        meter.cool();
        meter.cool();
        assert_eq!((meter.counted(), meter.entered()), (2_000, 8_000));
        assert!(counts.iter().all(|count| (900..=1_100).contains(count)), "{counts:?}");
    }
}
