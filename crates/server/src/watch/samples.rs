//! Counts that only grow, looked at again and again: rates of the last seconds and minutes. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use polyshard_map::ShardId;
use polyshard_router::meter::ShardCounts;

use super::COOL_EVERY;

/// Rates are of the time since the oldest of so many looks: about ten seconds.
const LOOKS_KEPT: usize = 6;
/// Minutes kept: the last hour.
const MINUTES_KEPT: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// Everything that was looked at lately.
pub(super) struct Samples {
    shards: BTreeMap<ShardId, Looks>,
    cooled: Instant,
    /// How much time the counts of hot keys stand for, in seconds, at the time they were last halved.
    heat_s: f64,
    now: Instant,
}

/// One shard's.
struct Looks {
    recent: VecDeque<(Instant, ShardCounts)>,
    minutes: VecDeque<f64>,
    minute: (Instant, u64),
}

/// How busy and quick a shard is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) requests_per_s: f64,
    pub(super) errors_per_s: f64,
    pub(super) p50_us: Option<u64>,
    pub(super) p99_us: Option<u64>,
    pub(super) inside: u64,
    pub(super) minutes: Vec<f64>,
}

impl Samples {
    pub(super) fn new(now: Instant) -> Samples {
        Samples { shards: BTreeMap::new(), cooled: now, heat_s: 0.0, now }
    }

    /// Takes in what was counted until now; shards that are not named are forgotten. True if it is time to halve the
    /// counts of hot keys.
    pub(super) fn look(&mut self, now: Instant, counts: Vec<(ShardId, ShardCounts)>) -> bool {
        self.now = now;
        let mut before = std::mem::take(&mut self.shards);
        for (id, counts) in counts {
            let total = total(&counts);
            let mut looks = before.remove(&id).unwrap_or_else(|| Looks {
                recent: VecDeque::new(),
                minutes: VecDeque::new(),
                minute: (now, total),
            });
            looks.look(now, counts);
            self.shards.insert(id, looks);
        }
        let cool = now.duration_since(self.cooled) >= COOL_EVERY;
        if cool {
            self.heat_s = (self.heat_s + now.duration_since(self.cooled).as_secs_f64()) / 2.0;
            self.cooled = now;
        }
        cool
    }

    /// How much time the counts of hot keys stand for, older time counted less like they are.
    pub(super) fn heat_window_s(&self) -> f64 {
        self.heat_s + self.now.duration_since(self.cooled).as_secs_f64()
    }

    pub(super) fn rates(&self, id: &ShardId) -> Rates {
        self.shards.get(id).map(Looks::rates).unwrap_or_default()
    }
}

impl Looks {
    fn look(&mut self, now: Instant, counts: ShardCounts) {
        let (began, then) = self.minute;
        let passed = now.duration_since(began);
        if passed >= MINUTE {
            let rate = (total(&counts).saturating_sub(then)) as f64 / passed.as_secs_f64();
            self.minutes.push_back(round(rate));
            self.minute = (now, total(&counts));
        }
        self.recent.push_back((now, counts));
        while self.recent.len() > LOOKS_KEPT {
            self.recent.pop_front();
        }
        while self.minutes.len() > MINUTES_KEPT {
            self.minutes.pop_front();
        }
    }

    fn rates(&self) -> Rates {
        let (Some((then, old)), Some((now, new))) = (self.recent.front(), self.recent.back()) else {
            return Rates::default();
        };
        let minutes = self.minutes.iter().copied().collect();
        let seconds = now.duration_since(*then).as_secs_f64();
        if seconds <= 0.0 {
            return Rates { inside: new.inside, minutes, ..Rates::default() };
        }
        let rate = |new: u64, old: u64| round(new.saturating_sub(old) as f64 / seconds);
        let times = new.times.since(&old.times);
        Rates {
            requests_per_s: rate(total(new), total(old)),
            errors_per_s: rate(new.errors, old.errors),
            p50_us: times.quantile_us(0.5),
            p99_us: times.quantile_us(0.99),
            inside: new.inside,
            minutes,
        }
    }
}

fn total(counts: &ShardCounts) -> u64 {
    counts.reads + counts.writes
}

/// Two digits after the point are more than anybody reads.
pub(super) fn round(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use polyshard_map::ShardId;
    use polyshard_router::meter::ShardCounts;

    use super::{MINUTES_KEPT, Samples};

    #[test]
    fn rates_are_of_the_last_seconds_and_minutes() {
        let (start, id) = (Instant::now(), ShardId::new("s1").unwrap());
        let mut samples = Samples::new(start);
        let mut cooled = 0;
        for second in (0..=4000).step_by(2) {
            // Ten a second, and a hundred in the last half minute.
            let reads = if second <= 3970 { 10 * second } else { 39_700 + 100 * (second - 3970) };
            let counts = ShardCounts { reads, writes: 0, ..ShardCounts::default() };
            let now = start + Duration::from_secs(second);
            cooled += u32::from(samples.look(now, vec![(id.clone(), counts)]));
        }
        let rates = samples.rates(&id);
        assert_eq!(rates.requests_per_s, 100.0);
        assert_eq!(rates.minutes.len(), MINUTES_KEPT);
        assert!(rates.minutes.iter().all(|rate| *rate == 10.0), "{:?}", rates.minutes);
        assert_eq!(cooled, 66);
        assert!((60.0..=120.0).contains(&samples.heat_window_s()), "{}", samples.heat_window_s());
        samples.look(start + Duration::from_secs(4002), vec![]);
        assert_eq!(samples.rates(&id).requests_per_s, 0.0);
    }
}
