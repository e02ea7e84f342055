//! Loading a large catalog, and one change to it until routers follow it: for maps of several sizes.

use std::time::{Duration, Instant};

use polyshard_catalog::{ChangeRequest, MapRecord};
use polyshard_map::{
    Change, Entry, Epoch, Key, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme, ShardId,
};
use polyshard_router::{Access, Router, View};
use polyshard_testkit::postgres::{PgOptions, PgServer};
use tokio::runtime::Runtime;

use crate::cluster::{Cluster, Place};
use crate::measure::{Random, Spread, ms_since};
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// Entries of the maps that are compared.
const SIZES: [usize; 3] = [1_000, 100_000, 1_000_000];
/// Shards of each cluster.
const SHARDS: usize = 2;
/// A change that is not seen for so long is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// All tables of catalogs.
pub fn run(effort: Effort) -> Result<Vec<Table>, Failure> {
    let loads = effort.pick(5, 2);
    let changes = effort.pick(40, 10);
    let mut load = Table::new(
        "catalog_load",
        format!("Loading a catalog: snapshot read and view built, ms, {loads} times"),
        &["catalog", "entries", "min", "median", "of it reading, min", "create the map, ms", "goal"],
    );
    let mut change = Table::new(
        "catalog_change",
        format!("One change until it is applied and routers follow it, ms, {changes} times"),
        &["catalog", "entries", "change", "seen by", "min", "median", "max", "goal"],
    );
    let runtime = Runtime::new()?;
    for size in SIZES.into_iter().filter(|size| *size <= effort.pick(usize::MAX, 100_000)) {
        let settings = [("shared_buffers", "256MB"), ("max_wal_size", "8GB")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let server = PgServer::start_with(PgOptions { settings, ..PgOptions::default() });
        for place in [Place::Files(tempfile::tempdir()?), Place::Server(server)] {
            runtime.block_on(measure(&place, size, loads, changes, &mut load, &mut change))?;
        }
    }
    Ok(vec![load, change])
}

async fn measure(
    place: &Place,
    size: usize,
    loads: usize,
    changes: usize,
    load: &mut Table,
    change: &mut Table,
) -> Result<(), Failure> {
    let cluster = Cluster::start(place, "bench", SHARDS).await?;
    let definition = MapDefinition::new(MapName::new("tenants")?, KeyType::BigInt, Scheme::List)?;
    let start = Instant::now();
    create(&cluster, &definition, size).await?;
    let created = ms_since(start);

    let (mut whole, mut reading) = (Vec::new(), Vec::new());
    for _ in 0..loads {
        let start = Instant::now();
        let snapshot = cluster.catalog.snapshot().await?;
        reading.push(ms_since(start));
        let view = View::from_snapshot(snapshot)?;
        whole.push(ms_since(start));
        let entries: usize = view.maps.values().map(|known| known.map.len()).sum();
        if entries != size {
            return Err(format!("the catalog has {entries} entries, not {size}").into());
        }
    }
    let (whole, reading) = (Spread::of(whole), Spread::of(reading));
    let goal = if size == 1_000_000 { "3,000".into() } else { Cell::None };
    let entries = Cell::Number(size as f64, 0);
    let row = [whole.min.into(), whole.median.into(), reading.min.into(), created.into()];
    let [min, median, reading, created] = row;
    load.row([place.name().into(), entries, min, median, reading, created, goal]);

    cluster.router.refresh().await?;
    let (catalog, second) = cluster.second_router(place).await?;
    // Routers with sessions on the shards are asked to hold before a switch: both, unless the shards are files, which
    // belong to one of them.
    let with_sessions = match place {
        Place::Files(_) => vec![&cluster.router],
        Place::Server(_) => vec![&cluster.router, &second],
    };
    for router in with_sessions {
        router.enter_range(definition.name(), &KeyRange::all(), Access::Read).await?;
    }
    for kind in [Kind::Add, Kind::Switch] {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for number in 0..changes {
            let request = kind.request(&cluster, &definition, size, number)?;
            let start = Instant::now();
            let record = cluster.driver.change(&request).await?;
            let epoch = record.op.epoch;
            cluster.router.refresh().await?;
            here.push(ms_since(start));
            check(&cluster.router, &request.map, epoch)?;
            wait(&second, &request.map, epoch).await?;
            there.push(ms_since(start));
        }
        for (seen_by, times) in [("this router, asking", here), ("another router, told", there)] {
            let times = Spread::of(times);
            change.row([
                place.name().into(),
                Cell::Number(size as f64, 0),
                kind.name().into(),
                seen_by.into(),
                times.min.into(),
                times.median.into(),
                times.max.into(),
                "50".into(),
            ]);
        }
    }
    second.close().await;
    if let Place::Server(_) = place {
        catalog.close().await;
    }
    cluster.close().await;
    Ok(())
}

async fn create(cluster: &Cluster, definition: &MapDefinition, size: usize) -> Result<(), Failure> {
    let mut entries = Vec::with_capacity(size);
    for number in 0..size {
        let range = point(definition, number as i64 * 2)?;
        let shard = cluster.shards[number % SHARDS].clone();
        entries.push(NewEntry::new(range, shard).at(Epoch::ZERO));
    }
    create_map(cluster, definition, entries).await
}

/// Creates a map and waits until it is live: the driver goes on when its caller is told to wait no longer.
async fn create_map(
    cluster: &Cluster,
    definition: &MapDefinition,
    entries: Vec<Entry>,
) -> Result<(), Failure> {
    match cluster.driver.create_map(definition, entries).await {
        Ok(_) => return Ok(()),
        Err(error) => eprintln!("still creating the map: {error}"),
    }
    let live = |records: Vec<MapRecord>| records.iter().any(|record| record.live);
    for _ in 0..600 {
        if live(cluster.catalog.maps().await?) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Err("the map is not created after 5 minutes".into())
}

/// What is changed.
#[derive(Clone, Copy)]
enum Kind {
    /// A key that was not mapped is mapped.
    Add,
    /// A key goes to another shard: routers hold it, drain and say so first.
    Switch,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Add => "map one key",
            Kind::Switch => "switch one key to another shard",
        }
    }

    fn request(
        self,
        cluster: &Cluster,
        definition: &MapDefinition,
        size: usize,
        number: usize,
    ) -> Result<ChangeRequest, Failure> {
        let chosen = Random::new(number as u64).below(size as u64) as i64 * 2;
        let change = match self {
            Kind::Add => {
                let range = point(definition, chosen + 1)?;
                Change::Add { entries: vec![NewEntry::new(range, cluster.shards[0].clone())] }
            }
            Kind::Switch => {
                let range = point(definition, chosen)?;
                Change::Assign { to: other(cluster, definition, chosen)?, range }
            }
        };
        Ok(ChangeRequest { map: definition.name().clone(), change, if_version: None, by: None })
    }
}

/// A shard that does not have the key.
fn other(cluster: &Cluster, definition: &MapDefinition, key: i64) -> Result<ShardId, Failure> {
    let view = cluster.router.view();
    let known = view.maps.get(definition.name()).ok_or("the map is gone")?;
    let owner = known.map.locate(&Key::BigInt(key))?.shard();
    Ok(cluster.shards.iter().find(|shard| *shard != owner).ok_or("there is one shard only")?.clone())
}

fn point(definition: &MapDefinition, key: i64) -> Result<KeyRange, Failure> {
    Ok(KeyRange::point(definition.placement(&Key::BigInt(key))?))
}

fn check(router: &Router, map: &MapName, epoch: Epoch) -> Result<(), Failure> {
    match router.view().maps.get(map) {
        Some(known) if known.map.epoch() >= epoch => Ok(()),
        _ => Err("a router that has asked the catalog does not know the change".into()),
    }
}

/// Waits until a router knows the change without having been asked to look.
async fn wait(router: &Router, map: &MapName, epoch: Epoch) -> Result<(), Failure> {
    let start = Instant::now();
    while check(router, map, epoch).is_err() {
        if start.elapsed() > PATIENCE {
            return Err("another router does not hear of a change".into());
        }
        // The shortest that the timer knows.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
