//! What is going on, in numbers by shard and door, and what an operator should look at.

use std::sync::Arc;
use std::time::Instant;

use polyshard_admin::types::{DoorTraffic, HotBy, ShardTraffic, TrafficAnswer};
use polyshard_catalog::ShardRecord;
use polyshard_map::State;
use polyshard_shard::Gauge;
use serde_json::json;

use super::samples::Rates;
use super::{ASK_WAIT, Watcher};
use crate::operator::{now_ms, shard_engine};

/// A limit is near when so many parts of a hundred are used: time enough to act.
const NEAR_LIMIT_PERCENT: u64 = 80;
/// Hot shardlets told with every tick.
const HOT_TOLD: usize = 20;

impl Watcher {
    /// Looks at all counters.
    pub(super) fn sample(&self) {
        let ids: Vec<_> = self.router.view().shards.keys().cloned().collect();
        let counts = ids.into_iter().map(|id| (id.clone(), self.router.shard_counts(&id))).collect();
        let cool = self.samples.lock().expect("no panic while held").look(Instant::now(), counts);
        if cool {
            self.router.meter().cool();
        }
    }

    pub(super) fn traffic_now(&self) -> TrafficAnswer {
        let (view, ranges) = (self.router.view(), self.operations.ranges_by_shard());
        let samples = self.samples.lock().expect("no panic while held");
        let gauges = self.gauges.lock().expect("no panic while held");
        let shards = view.shards.values().map(|record| {
            let gauge = gauges.get(&record.id).copied();
            let ranges = ranges.get(&record.id).copied().unwrap_or(0);
            let mut shown = shard(record, samples.rates(&record.id), gauge, ranges);
            if let (Some(bytes), Some(limit)) = (shown.bytes, shown.bytes_max) {
                shown.warnings.extend(self.full_soon(&record.id, bytes, limit));
            }
            shown.warnings.extend(self.operations.found().warning(&record.id));
            shown
        });
        let shards = shards.collect();
        drop((samples, gauges));
        let doors = self.doors.iter().map(|(door, counters)| {
            let counts = counters.counts();
            DoorTraffic {
                door: door.clone(),
                connections: counts.open,
                accepted: counts.accepted,
                refused: counts.refused,
                requests: counters.requests().tallies().iter().map(|tally| tally.count).sum(),
            }
        });
        TrafficAnswer {
            at_ms: now_ms(),
            up_s: self.started.elapsed().as_secs(),
            waits: self.router.meter().waits.get(),
            retries: self.router.meter().retries.get(),
            shards,
            doors: doors.collect(),
        }
    }

    /// What is told with every tick: small also with hundreds of shards.
    pub(super) async fn tick_text(&self) -> Arc<str> {
        let view = self.router.view();
        let shards: Vec<_> = {
            let samples = self.samples.lock().expect("no panic while held");
            let told = |id| {
                let rates = samples.rates(id);
                json!({
                    "shard": id, "requests_per_s": rates.requests_per_s, "errors_per_s": rates.errors_per_s,
                    "p50_us": rates.p50_us, "p99_us": rates.p99_us, "inside": rates.inside,
                })
            };
            view.shards.keys().map(told).collect()
        };
        // While the catalog is away there is nothing to tell of operations.
        let operations = tokio::time::timeout(ASK_WAIT, self.operations.operation_views()).await;
        let operations = operations.ok().and_then(Result::ok);
        let tick = json!({
            "at_ms": now_ms(),
            "seq": view.seq,
            "shards": shards,
            "operations": operations,
            "hot": self.hottest(HotBy::Requests, None, HOT_TOLD).shardlets,
        });
        Arc::from(tick.to_string())
    }
}

/// `gauge` is none before the first measurement, and holds none if the shard did not answer.
fn shard(record: &ShardRecord, rates: Rates, gauge: Option<Option<Gauge>>, ranges: u64) -> ShardTraffic {
    let warnings = warnings(record, &rates, gauge, ranges);
    let measured = gauge.flatten();
    ShardTraffic {
        shard: record.id.clone(),
        engine: shard_engine(record),
        state: record.state,
        reachable: gauge.map(|gauge| gauge.is_some()),
        requests_per_s: rates.requests_per_s,
        errors_per_s: rates.errors_per_s,
        p50_us: rates.p50_us,
        p99_us: rates.p99_us,
        inside: rates.inside,
        ranges,
        bytes: measured.map(|gauge| gauge.bytes),
        bytes_max: record.limits.bytes_max,
        connections: measured.and_then(|gauge| gauge.connections),
        connections_max: record.limits.connections_max,
        region: record.region.clone(),
        tier: record.tier.clone(),
        minutes: rates.minutes,
        warnings,
    }
}

fn warnings(record: &ShardRecord, rates: &Rates, gauge: Option<Option<Gauge>>, ranges: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if gauge == Some(None) {
        warnings.push("does not answer; requests for its keys fail".to_owned());
    }
    match record.state {
        State::Online => {}
        State::ReadOnly => warnings.push("is read-only".to_owned()),
        State::Offline => warnings.push("is offline".to_owned()),
    }
    let measured = gauge.flatten();
    let limits = [
        ("its size", measured.map(|gauge| gauge.bytes), record.limits.bytes_max),
        ("its connections", measured.and_then(|gauge| gauge.connections), record.limits.connections_max),
        ("its entries", Some(ranges), record.limits.shardlets_max),
    ];
    for (what, used, most) in limits {
        if let (Some(used), Some(most)) = (used, most)
            && used.saturating_mul(100) >= most.saturating_mul(NEAR_LIMIT_PERCENT)
        {
            warnings.push(format!("{what} is at {}% of the limit", used.saturating_mul(100) / most.max(1)));
        }
    }
    if rates.errors_per_s > 0.0 {
        warnings.push(format!("{} requests a second fail", rates.errors_per_s));
    }
    warnings
}
