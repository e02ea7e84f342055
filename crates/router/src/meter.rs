//! What a router counts: requests by shard, their times, waits, retries, and which keys are asked for most.

use std::time::Duration;

use polyshard_engine as engine;
use polyshard_map::{Key, MapName};
use polyshard_meter::{Counter, Heavy, Histogram, Times, Top};

use crate::gate::Access;

/// Of so many requests one is looked at closer, so that the others pay a single addition for it.
const SAMPLE_ONE_OF: u64 = 8;
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
}

impl Default for RouterMeter {
    fn default() -> RouterMeter {
        RouterMeter {
            waits: Counter::default(),
            retries: Counter::default(),
            entered: Counter::default(),
            hot: Top::new(HOT_KEYS_MAX),
        }
    }
}

impl RouterMeter {
    /// A request for these keys came.
    pub(crate) fn enter(&self, map: &MapName, keys: &[Key]) {
        if self.entered.add(1).is_multiple_of(SAMPLE_ONE_OF) {
            for key in keys {
                self.hot.add(&(map.clone(), key.clone()), SAMPLE_ONE_OF);
            }
        }
    }

    /// Requests by key so far.
    pub fn entered(&self) -> u64 {
        self.entered.get()
    }

    /// The keys that were asked for most lately, about how often since the counts were last halved and before.
    pub fn hottest(&self, limit: usize) -> Vec<Heavy<(MapName, Key)>> {
        self.hot.heaviest(limit)
    }

    /// Halves the counts of keys: whoever reports heat does it at even intervals.
    pub fn cool(&self) {
        self.hot.halve();
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
        let before = match access {
            Access::Read => self.reads.add(1),
            Access::Write => self.writes.add(1),
        };
        before.is_multiple_of(TIME_ONE_OF)
    }

    pub(crate) fn leave(&self, stayed: Option<Duration>) {
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
