//! How long things took: counts in buckets whose width grows with the time, so that every quantile is within an eighth.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::stripes::Stripes;

/// Buckets in one doubling of the time: the middle of a quarter is within an eighth of what was measured.
const QUARTERS: usize = 4;
/// Doublings from 1 µs up: the last bucket begins at 67 s, longer than any request may take.
const DOUBLINGS: usize = 26;
/// How many buckets.
pub const BUCKETS: usize = QUARTERS * DOUBLINGS;

/// Counts of times, added to from any thread.
#[derive(Debug, Default)]
pub struct Histogram(Stripes<Cells>);

#[derive(Debug)]
struct Cells {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Default for Cells {
    fn default() -> Cells {
        Cells { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_us: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Something took so long.
    #[inline]
    pub fn record(&self, took: Duration) {
        self.record_for(took, 1);
    }

    /// Something took so long, and stands for so many of its kind.
    #[inline]
    pub fn record_for(&self, took: Duration, many: u64) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let cells = self.0.mine();
        cells.buckets[bucket(us)].fetch_add(many, Ordering::Relaxed);
        cells.sum_us.fetch_add(us.saturating_mul(many), Ordering::Relaxed);
    }

    /// What was recorded so far.
    pub fn times(&self) -> Times {
        let mut times = Times::default();
        for cells in self.0.all() {
            for (count, bucket) in times.counts.iter_mut().zip(&cells.buckets) {
                *count += bucket.load(Ordering::Relaxed);
            }
            times.sum_us = times.sum_us.saturating_add(cells.sum_us.load(Ordering::Relaxed));
        }
        times
    }
}

/// What a histogram had recorded at one moment, or between two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    counts: Vec<u64>,
    sum_us: u64,
}

impl Default for Times {
    fn default() -> Times {
        Times { counts: vec![0; BUCKETS], sum_us: 0 }
    }
}

impl Times {
    /// How many.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long all of them took together, in seconds.
    pub fn sum_s(&self) -> f64 {
        self.sum_us as f64 / 1e6
    }

    /// What was recorded since an earlier moment.
    pub fn since(&self, earlier: &Times) -> Times {
        let counts = self.counts.iter().zip(&earlier.counts).map(|(now, then)| now.saturating_sub(*then));
        Times { counts: counts.collect(), sum_us: self.sum_us.saturating_sub(earlier.sum_us) }
    }

    /// Both together.
    pub fn add(&mut self, other: &Times) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
    }

    /// The time that so large a part took at most, in microseconds; none if nothing was recorded.
    pub fn quantile_us(&self, part: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * part.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Some((floor(index) + floor(index + 1)) / 2);
            }
        }
        None
    }

    /// How many took less than each power of four from 64 µs up, for programs that want few buckets: limit in
    /// seconds, and count.
    pub fn cumulative(&self) -> Vec<(f64, u64)> {
        let mut seen = 0;
        let mut limits = Vec::new();
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            let limit = floor(index + 1);
            // Even powers of two, 64 µs to 17 s.
            if (index + 1) % (2 * QUARTERS) == 0 && (64..=16_777_216).contains(&limit) {
                limits.push((limit as f64 / 1e6, seen));
            }
        }
        limits
    }
}

/// The bucket of a time.
fn bucket(us: u64) -> usize {
    let us = us.max(1);
    let doubling = us.ilog2() as usize;
    // The two bits below the highest one.
    let quarter = if doubling >= 2 { (us >> (doubling - 2)) & 3 } else { (us << (2 - doubling)) & 3 };
    (doubling * QUARTERS + quarter as usize).min(BUCKETS - 1)
}

/// Where a bucket begins, in microseconds.
fn floor(index: usize) -> u64 {
    let (doubling, quarter) = (index / QUARTERS, (index % QUARTERS) as u64);
    (1 << doubling) + ((quarter << doubling) >> 2)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BUCKETS, Histogram, bucket, floor};

    #[test]
    fn every_time_is_in_the_bucket_that_begins_at_or_before_it() {
        // Below 4 µs a quarter of a doubling is less than one.
        for us in (4..5000).chain([10_000, 123_456, 66_000_000]) {
            let index = bucket(us);
            assert!(floor(index) <= us && us < floor(index + 1), "{us} is in bucket {index}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_an_eighth() {
        let histogram = Histogram::default();
        for us in 1..=10_000 {
            histogram.record(Duration::from_micros(us));
        }
        let times = histogram.times();
        assert_eq!(times.count(), 10_000);
        for (part, exact) in [(0.5, 5_000.0), (0.99, 9_900.0), (0.1, 1_000.0)] {
            let found = times.quantile_us(part).unwrap() as f64;
            assert!((found - exact).abs() / exact <= 0.14, "{part}: {found} instead of {exact}");
        }
        assert_eq!(times.cumulative().first(), Some(&(64e-6, 63)));
    }

    #[test]
    fn a_later_moment_tells_what_came_between() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_millis(1));
        let before = histogram.times();
        histogram.record(Duration::from_secs(2));
        let between = histogram.times().since(&before);
        assert_eq!((between.count(), between.sum_s()), (1, 2.0));
        assert_eq!(histogram.times().since(&histogram.times()).quantile_us(0.5), None);
    }
}
