//! How busy shards and keys are, as all server processes have counted it; and when shards will be full.
//!
//! With a catalog that several processes share, each tells the others what it sees, and hears what they see.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyshard_admin::Problem;
use polyshard_admin::convert::range_view;
use polyshard_admin::types::{ColdRange, HOT_MAX, HotAnswer, HotBy, HotRequest, HotShardlet, KeyText};
use polyshard_map::{Key, MapName, ShardId};
use polyshard_meter::Heavy;
use polyshard_planner::{Heat, KeyHeat, forecast, measure};

use super::Watcher;
use super::samples::round;
use crate::operator::now_ms;

/// How often a process tells of load, and hears of others.
const TELL_EVERY: Duration = Duration::from_secs(3);
/// A process that has said nothing for so long does not count any more.
const SILENT_AFTER: Duration = Duration::from_secs(30);
/// How often the size of a shard is noted for the forecast: 124 rows a shard in the month that they are kept.
const SIZE_EVERY: Duration = Duration::from_secs(6 * 3_600);
/// The forecast goes by the sizes of so long.
const TREND_OF: Duration = Duration::from_secs(14 * 24 * 3_600);
/// Whoever is full later than this need not act yet.
const WARN_AHEAD_MS: i64 = 30 * 24 * 3_600 * 1000;
/// How often it is worked out when shards will be full.
const FORETELL_EVERY: Duration = Duration::from_secs(600);

/// When shards will be full, as last foretold.
#[derive(Default)]
pub(super) struct Forecasts {
    at: Option<Instant>,
    of: BTreeMap<ShardId, forecast::Forecast>,
}

impl Watcher {
    /// Tells other processes of load and hears of theirs, until the shutdown; then it takes its word back.
    pub(super) async fn tell_heat(self: Arc<Self>) {
        if !self.operations.has_peers() {
            return;
        }
        Arc::clone(&self).keep(TELL_EVERY, Watcher::tell_once).await;
        let forgotten = self.operations.catalog().forget_heat(self.router.status().router).await;
        if let Err(error) = forgotten {
            tracing::debug!(%error, "others go by what this process said last for a while yet");
        }
    }

    async fn tell_once(&self) {
        let (catalog, own) = (self.operations.catalog(), self.router.status().router);
        let told = match catalog.publish_heat(own, &self.own_heat().write()).await {
            Ok(()) => catalog.heats(SILENT_AFTER).await,
            Err(error) => Err(error),
        };
        let told = match told {
            Ok(told) => told,
            Err(error) => {
                tracing::debug!(%error, "publishing load figures failed; retrying");
                // How many there are is as last heard: whoever is cut off must not let in everything.
                return self.peers.lock().expect("no panic while held").clear();
            }
        };
        self.operations.host().quotas().share(told.len());
        let view = self.router.view();
        let key_type = |map: &MapName| Some(view.maps.get(map)?.map.definition().key_type().clone());
        let others = told.iter().filter(|(router, _)| *router != own);
        let read = |(router, body): &(_, serde_json::Value)| {
            let read = Heat::read(body, key_type);
            read.inspect_err(|why| tracing::debug!(router = ?router, why, "not heard")).ok()
        };
        *self.peers.lock().expect("no panic while held") = others.filter_map(read).collect();
    }

    /// What this process has counted.
    fn own_heat(&self) -> Heat {
        let view = self.router.view();
        let samples = self.samples.lock().expect("no panic while held");
        let window_s = samples.heat_window_s().max(1.0);
        let rate = |id: &ShardId| (id.clone(), samples.rates(id).requests_per_s);
        let shards = view.shards.keys().map(rate).collect();
        drop(samples);
        let rate = |heavy: &Heavy<(MapName, Key)>| (heavy.count - heavy.error) as f64 / window_s;
        let (meter, most) = (self.router.meter(), HOT_MAX as usize);
        let mut keys: HashMap<(MapName, Key), (f64, f64)> = HashMap::new();
        for heavy in meter.hottest(most) {
            keys.entry(heavy.key.clone()).or_default().0 = rate(&heavy);
        }
        for heavy in meter.heaviest(most) {
            keys.entry(heavy.key.clone()).or_default().1 = rate(&heavy);
        }
        let heat = |((map, key), (requests, bytes))| KeyHeat { map, key, requests, bytes };
        let keys: Vec<KeyHeat> = keys.into_iter().map(heat).collect();
        let (counted, named) = (meter.counted(), keys.iter().map(|one| one.requests).sum::<f64>());
        let rest = (counted as f64 / window_s - named).max(0.0);
        Heat { shards, keys, rest, counted, processes: 1 }
    }

    /// How busy shards and keys are, as plans go by it.
    pub(crate) fn heat(&self) -> Heat {
        let mut all = self.peers.lock().expect("no panic while held").clone();
        all.push(self.own_heat());
        Heat::sum(all)
    }

    pub(super) fn hottest(&self, by: HotBy, map: Option<&MapName>, limit: usize) -> HotAnswer {
        let mut heat = self.heat();
        if by == HotBy::Bytes {
            heat.keys.sort_by(|a, b| b.bytes.total_cmp(&a.bytes).then(b.requests.total_cmp(&a.requests)));
        }
        let view = self.router.view();
        let shown = |one: KeyHeat| {
            let known = view.maps.get(&one.map)?;
            Some(HotShardlet {
                shard: known.map.locate(&one.key).ok().map(|located| located.shard().clone()),
                key: KeyText::of(&one.key),
                map: one.map,
                requests_per_s: round(one.requests),
                bytes_per_s: round(one.bytes),
            })
        };
        let asked = heat.keys.into_iter().filter(|one| map.is_none_or(|map| one.map == *map));
        let shardlets = asked.filter_map(shown).take(limit).collect();
        HotAnswer { shardlets, cold: Vec::new(), processes: heat.processes }
    }

    /// The busiest shardlets, or the least busy.
    pub(super) async fn busy(&self, request: HotRequest, limit: usize) -> Result<HotAnswer, Problem> {
        if let Some(map) = &request.map {
            self.operations.known(map).await?;
        }
        if !request.cold {
            return Ok(self.hottest(request.by.unwrap_or_default(), request.map.as_ref(), limit));
        }
        let (heat, view) = (self.heat(), self.router.view());
        let mut cold: Vec<ColdRange> = Vec::new();
        for known in view.maps.values() {
            let definition = known.map.definition();
            if request.map.as_ref().is_some_and(|map| map != definition.name()) {
                continue;
            }
            let measured = measure::pieces(&self.router, &known.map, &heat, &[]).await;
            let measured = measured.map_err(|error| {
                Problem::unavailable(error.to_string()).with_remedy("bring the shard back, then ask again")
            })?;
            cold.extend(measured.pieces.into_iter().filter(|piece| piece.rows > 0).map(|piece| ColdRange {
                map: definition.name().clone(),
                range: range_view(definition, &piece.range),
                shard: piece.shard,
                rows: piece.rows,
                bytes: piece.bytes,
                requests_per_s: round(piece.requests),
                estimated: measured.estimated,
            }));
        }
        cold.sort_by(|a, b| a.requests_per_s.total_cmp(&b.requests_per_s).then(b.bytes.cmp(&a.bytes)));
        cold.truncate(limit);
        Ok(HotAnswer { shardlets: Vec::new(), cold, processes: heat.processes })
    }

    /// Notes how large shards are now and then, and works out when those with a limit will be full.
    pub(super) async fn foretell(&self) {
        let last = self.forecasts.lock().expect("no panic while held").at;
        if last.is_some_and(|at| at.elapsed() < FORETELL_EVERY) {
            return;
        }
        let gauges = self.gauges.lock().expect("no panic while held").clone();
        let sizes: Vec<(ShardId, u64)> =
            gauges.iter().filter_map(|(id, gauge)| Some((id.clone(), gauge.as_ref()?.bytes))).collect();
        let catalog = self.operations.catalog();
        let noted = async {
            catalog.note_sizes(&sizes, SIZE_EVERY).await?;
            catalog.sizes(TREND_OF).await
        };
        let noted = match noted.await {
            Ok(noted) => noted,
            Err(error) => return tracing::debug!(%error, "sizes of shards cannot be noted just now"),
        };
        let mut looks: BTreeMap<ShardId, Vec<(i64, u64)>> = BTreeMap::new();
        for then in noted {
            looks.entry(then.shard).or_default().push((then.at_ms, then.bytes));
        }
        let view = self.router.view();
        let now = now_ms();
        let foretold = sizes.into_iter().filter_map(|(id, bytes)| {
            let limit = view.shards.get(&id)?.limits.bytes_max?;
            let mut looks = looks.remove(&id)?;
            looks.push((now, bytes));
            Some((id, forecast::forecast(&looks, limit)?))
        });
        let forecasts = Forecasts { at: Some(Instant::now()), of: foretold.collect() };
        *self.forecasts.lock().expect("no panic while held") = forecasts;
    }

    /// A warning that a shard will be full soon, with the day.
    pub(super) fn full_soon(&self, id: &ShardId, bytes: u64, limit: u64) -> Option<String> {
        let forecast = *self.forecasts.lock().expect("no panic while held").of.get(id)?;
        (bytes < limit && forecast.full_ms - now_ms() <= WARN_AHEAD_MS).then(|| {
            format!(
                "its size reaches the limit about {}, growing by {} MiB a day",
                forecast::day(forecast.full_ms),
                (forecast.grows_per_day / 1_048_576.0).ceil()
            )
        })
    }
}
