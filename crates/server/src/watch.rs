//! What onlookers can ask for: traffic, heat, windows onto maps, live events, metrics.

mod archives;
mod heat;
mod keys;
mod large;
mod metrics;
mod process;
mod query;
mod samples;
mod shardlet;
mod traffic;
mod window;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use polyshard_admin::types::{
    HotAnswer, HotRequest, LargeAnswer, QueryAnswer, Role, ShardletAnswer, TrafficAnswer, WindowAnswer,
};
use polyshard_admin::{Answer, Events, Problem, Watch};
use polyshard_map::{MapName, ShardId};
use polyshard_planner::Heat;
use polyshard_router::Router;
use polyshard_shard::Gauge;
use polyshard_wire::{Counters, Shutdown};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::operator::{Operations, now_ms};
use crate::traces::SpanCounts;
use crate::watch::large::Counted;
pub(crate) use crate::watch::query::SqlClient;
use crate::watch::samples::Samples;
use crate::watch::window::Index;

/// How often rates are measured and told.
const TICK: Duration = Duration::from_secs(2);
/// How often shards are asked for their size.
const GAUGE_EVERY: Duration = Duration::from_secs(30);
/// How long a shard, or the catalog, may take to answer before it counts as away.
const ASK_WAIT: Duration = Duration::from_secs(2);
/// Shards asked at once: more would be felt by requests.
const ASKED_AT_ONCE: usize = 8;
/// How often the counts of hot keys are halved.
const COOL_EVERY: Duration = Duration::from_secs(60);

/// One front door's counters.
pub(crate) type DoorCounters = (String, Arc<Counters>);

/// What the watcher reads, beside router and catalog.
pub(crate) struct Sources {
    /// The front doors.
    pub(crate) doors: Vec<DoorCounters>,
    /// The way to the SQL door, if that is open.
    pub(crate) sql: Option<SqlClient>,
    /// What became of spans, if requests are traced.
    pub(crate) spans: Option<Arc<SpanCounts>>,
}

/// The onlooker's side of one server process.
pub(crate) struct Watcher {
    operations: Arc<Operations>,
    router: Arc<Router>,
    doors: Vec<DoorCounters>,
    sql: Option<SqlClient>,
    spans: Option<Arc<SpanCounts>>,
    started: Instant,
    samples: Mutex<Samples>,
    /// Each shard's size when last measured; none if it did not answer.
    gauges: Mutex<BTreeMap<ShardId, Option<Gauge>>>,
    windows: Mutex<BTreeMap<MapName, Arc<Index>>>,
    /// What other processes have told of load, as last heard.
    peers: Mutex<Vec<Heat>>,
    /// When shards will be full, as last foretold.
    forecasts: Mutex<heat::Forecasts>,
    /// The largest shardlets, as last counted; held while they are counted.
    large: tokio::sync::Mutex<Option<Counted>>,
    ticks: watch::Sender<Arc<str>>,
    shutdown: Shutdown,
}

impl Watcher {
    /// Starts measuring; the tasks end when the shutdown starts.
    pub(crate) fn start(
        operations: Arc<Operations>,
        router: Arc<Router>,
        sources: Sources,
        shutdown: Shutdown,
    ) -> (Arc<Watcher>, Vec<JoinHandle<()>>) {
        let started = Instant::now();
        let Sources { doors, sql, spans } = sources;
        let watcher = Arc::new(Watcher {
            operations,
            router,
            doors,
            sql,
            spans,
            started,
            samples: Mutex::new(Samples::new(started)),
            gauges: Mutex::default(),
            windows: Mutex::default(),
            peers: Mutex::default(),
            forecasts: Mutex::default(),
            large: tokio::sync::Mutex::default(),
            ticks: watch::Sender::new(Arc::from("")),
            shutdown,
        });
        let tasks = vec![
            tokio::spawn(Arc::clone(&watcher).keep(TICK, Watcher::tick)),
            tokio::spawn(Arc::clone(&watcher).keep(GAUGE_EVERY, Watcher::gauge)),
            tokio::spawn(Arc::clone(&watcher).tell_heat()),
        ];
        (watcher, tasks)
    }

    /// Does it at even intervals until the shutdown.
    async fn keep(self: Arc<Self>, every: Duration, work: impl AsyncFn(&Watcher)) {
        let mut intervals = tokio::time::interval(every);
        intervals.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let shutdown = self.shutdown.clone();
        loop {
            tokio::select! {
                () = shutdown.started() => return,
                _ = intervals.tick() => {}
            }
            tokio::select! {
                () = shutdown.started() => return,
                () = work(&self) => {}
            }
        }
    }

    async fn tick(&self) {
        self.sample();
        if self.ticks.receiver_count() > 0 {
            let text = self.tick_text().await;
            self.ticks.send_replace(text);
        }
    }

    async fn gauge(&self) {
        let ask = |id: ShardId| async move {
            let ask = async { self.router.administer(&id).await.ok()?.gauge().await.ok() };
            let gauge = tokio::time::timeout(ASK_WAIT, ask).await.ok().flatten();
            (id, gauge)
        };
        let ids: Vec<ShardId> = self.router.view().shards.keys().cloned().collect();
        let measured: BTreeMap<ShardId, Option<Gauge>> =
            futures_util::stream::iter(ids).map(ask).buffer_unordered(ASKED_AT_ONCE).collect().await;
        *self.gauges.lock().expect("no panic while held") = measured;
        self.foretell().await;
    }
}

impl Watch for Watcher {
    fn traffic(&self) -> Answer<'_, TrafficAnswer> {
        Box::pin(async move { Ok(self.traffic_now()) })
    }

    fn hot(&self, request: HotRequest, limit: u32) -> Answer<'_, HotAnswer> {
        Box::pin(self.busy(request, limit as usize))
    }

    fn large(&self, limit: u32, map: Option<MapName>) -> Answer<'_, LargeAnswer> {
        Box::pin(self.largest(limit as usize, map))
    }

    fn window(&self, map: MapName, first: u64, count: Option<u64>, pieces: u32) -> Answer<'_, WindowAnswer> {
        Box::pin(async move {
            let index = self.index(&map).await?;
            Ok(index.window(map, first, count, pieces as usize, now_ms()))
        })
    }

    fn shardlet(&self, map: MapName, key: String) -> Answer<'_, ShardletAnswer> {
        Box::pin(self.shardlet_page(map, key))
    }

    fn query(&self, sql: String, role: Role) -> Answer<'_, QueryAnswer> {
        Box::pin(async move {
            query::check_role(&sql, role)?;
            let Some(client) = &self.sql else {
                return Err(Problem::new(
                    polyshard_admin::ErrorCode::Unsupported,
                    "this server has no SQL door open",
                )
                .with_remedy("set sql.open and start it again"));
            };
            client.run(&sql).await
        })
    }

    fn metrics(&self) -> Answer<'_, (String, &'static str)> {
        Box::pin(async move { Ok((self.metrics_text().await, polyshard_meter::Text::CONTENT_TYPE)) })
    }

    fn events(&self) -> Events {
        let (ticks, shutdown) = (self.ticks.subscribe(), self.shutdown.clone());
        Box::pin(futures_util::stream::unfold((ticks, shutdown), |(mut ticks, shutdown)| async move {
            tokio::select! {
                () = shutdown.started() => None,
                told = ticks.changed() => {
                    told.ok()?;
                    let text = ticks.borrow_and_update().to_string();
                    Some((text, (ticks, shutdown)))
                }
            }
        }))
    }
}

impl Watcher {
    /// The index of a map as it is now; made anew when the map has changed.
    async fn index(&self, map: &MapName) -> Result<Arc<Index>, Problem> {
        let known = self.operations.known(map).await?;
        if let Some(index) = self.windows.lock().expect("no panic while held").get(map)
            && index.is_of(&known)
        {
            return Ok(index.clone());
        }
        // A million entries take tens of milliseconds, which requests must not wait for.
        let made = tokio::task::spawn_blocking(move || Arc::new(Index::new(known))).await;
        let index = made.map_err(|error| {
            Problem::new(polyshard_admin::ErrorCode::Internal, format!("map {map} cannot be shown: {error}"))
        })?;
        let mut windows = self.windows.lock().expect("no panic while held");
        windows.retain(|name, _| self.router.view().maps.contains_key(name));
        windows.insert(map.clone(), index.clone());
        Ok(index)
    }
}
