//! A whole cluster in this process: catalog, driver, resolver and router, and what must be true of it at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{
    Catalog, CatalogError, ChangeRequest, Driver, Failpoint, FenceLimits, LEASE, NewShard, OpRecord,
    PasswordSource, Resolver, ShardLimits, ShardRecord,
};
use polyshard_engine::{Batch, Options, Statement};
use polyshard_map::{
    Change, Entry, Epoch, HashSpec, Key, KeyBytes, KeyRange, KeyType, MapDefinition, MapName, NewEntry,
    Scheme, ShardId, State,
};
use polyshard_router::{Access, Router, RouterError, RouterOptions, View};
use polyshard_shard::{FenceEpoch, OpId, RouterId, ShardOptions};
use uuid::Uuid;

use crate::place::Place;

/// Longer than anything here takes on a busy machine; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Buckets of the hash map `tenants`.
pub const BUCKETS: u32 = 12;

/// How a process of the cluster is set up.
#[derive(Clone)]
pub struct Setup {
    pub router: u32,
    pub lease: Duration,
    pub failpoint: Option<Failpoint>,
    pub limits: FenceLimits,
    pub resolver: Resolving,
    pub saved: Option<PathBuf>,
    pub poll: Duration,
    pub wait_max: Duration,
}

/// Whether the process looks for operations whose driver is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Resolving {
    Yes,
    No,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            router: 1,
            lease: LEASE,
            failpoint: None,
            limits: FenceLimits::default(),
            resolver: Resolving::Yes,
            saved: None,
            poll: Duration::from_millis(500),
            wait_max: Duration::from_secs(10),
        }
    }
}

/// One process of a cluster.
pub struct Cluster {
    pub catalog: Arc<Catalog>,
    pub router: Arc<Router>,
    pub driver: Arc<Driver>,
    resolver: Option<Resolver>,
}

/// What people see of an entry: its range, shard, state, and who holds it.
pub type Shown = (KeyRange, ShardId, State, Option<String>);

/// What people see of a cluster: its shards, and its maps without the epochs.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    pub shards: Vec<ShardId>,
    pub maps: BTreeMap<MapName, Vec<Shown>>,
}

pub fn engine_options() -> Options {
    Options {
        unavailable_wait: Duration::from_millis(300),
        outcome_wait: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(2),
        postgres_readers: 2,
        ..Options::default()
    }
}

pub fn map(name: &str) -> MapName {
    MapName::new(name).unwrap()
}

pub fn shard(name: &str) -> ShardId {
    ShardId::new(name).unwrap()
}

pub fn key(number: i64) -> Key {
    Key::BigInt(number)
}

/// A range of keys of the range map `orders`.
pub fn keys(from: i64, to: i64) -> KeyRange {
    KeyRange::new(bound(from), Some(bound(to))).unwrap()
}

pub fn bound(number: i64) -> KeyBytes {
    KeyType::BigInt.encode_bound(&key(number)).unwrap()
}

/// A range of buckets of the hash map `tenants`.
pub fn buckets(from: u32, to: u32) -> KeyRange {
    tenants().buckets(from, to).unwrap()
}

pub fn tenants() -> MapDefinition {
    let scheme = Scheme::Hash(HashSpec::new(7, BUCKETS).unwrap());
    MapDefinition::new(map("tenants"), KeyType::BigInt, scheme).unwrap()
}

pub fn orders() -> MapDefinition {
    MapDefinition::new(map("orders"), KeyType::BigInt, Scheme::Range).unwrap()
}

/// Entries of a map to be created.
pub fn entries(parts: &[(KeyRange, &str)]) -> Vec<Entry> {
    parts.iter().map(|(range, on)| NewEntry::new(range.clone(), shard(on)).at(Epoch::ZERO)).collect()
}

pub fn assign(range: KeyRange, to: &str) -> Change {
    Change::Assign { range, to: shard(to) }
}

impl Cluster {
    /// Starts a process on the databases of a place.
    pub async fn open(place: &Arc<Place>, setup: Setup) -> Cluster {
        Cluster::try_open(place, setup).await.unwrap()
    }

    pub async fn try_open(place: &Arc<Place>, setup: Setup) -> Result<Cluster, RouterError> {
        let owner = format!("process-{}", Uuid::new_v4());
        let target = place.target("catalog");
        let catalog = Catalog::new(target, engine_options(), owner, Arc::new(Uuid::new_v4));
        let catalog = Arc::new(catalog.with_lease(setup.lease));
        let options = RouterOptions {
            router: RouterId::new(setup.router),
            shard: ShardOptions { data: engine_options(), ..ShardOptions::default() },
            hold_max: setup.limits.hold,
            wait_max: setup.wait_max,
            poll: setup.poll,
            saved: setup.saved,
        };
        let known = place.clone();
        let connect = Arc::new(move |record: &ShardRecord| Ok(known.target(&record.url)));
        let router = match Router::start(catalog.clone(), connect, options).await {
            Ok(router) => Arc::new(router),
            Err(error) => {
                catalog.close().await;
                return Err(error);
            }
        };
        let driver = Driver::new(catalog.clone(), router.shard_source(), setup.limits, setup.failpoint);
        let driver = Arc::new(driver);
        let resolver = (setup.resolver == Resolving::Yes).then(|| Resolver::start(driver.clone()));
        Ok(Cluster { catalog, router, driver, resolver })
    }

    /// A process with three new shards and the maps `tenants` (hash) and `orders` (range).
    pub async fn with_maps(place: &Arc<Place>, setup: Setup) -> Cluster {
        let cluster = Cluster::open(place, setup).await;
        for name in ["s1", "s2", "s3"] {
            cluster.add_shard(name).await.unwrap();
        }
        let spread = [(buckets(0, 4), "s1"), (buckets(4, 8), "s2"), (buckets(8, 12), "s3")];
        cluster.driver.create_map(&tenants(), entries(&spread)).await.unwrap();
        let ranges = [(keys(0, 100), "s1"), (keys(100, 200), "s2"), (keys(200, 300), "s3")];
        cluster.driver.create_map(&orders(), entries(&ranges)).await.unwrap();
        cluster.router.refresh().await.unwrap();
        cluster
    }

    /// Stops the process in an orderly way.
    pub async fn close(self) {
        self.driver.close().await;
        if let Some(resolver) = self.resolver {
            resolver.stop().await;
        }
        self.driver.close().await;
        self.router.close().await;
        self.catalog.close().await;
    }

    /// A shard to be added or attached, whose database has its name.
    pub fn new_shard(name: &str) -> NewShard {
        NewShard {
            id: shard(name),
            url: name.to_owned(),
            password: PasswordSource::Config,
            server: None,
            region: None,
            tier: None,
            limits: ShardLimits::default(),
        }
    }

    /// A record as one would have for a database that is in no catalog yet.
    pub fn candidate(name: &str, url: &str) -> ShardRecord {
        ShardRecord {
            id: shard(name),
            url: url.to_owned(),
            password: PasswordSource::Config,
            server: None,
            region: None,
            tier: None,
            limits: ShardLimits::default(),
            state: State::Online,
            incarnation: Uuid::nil(),
            version: 0,
        }
    }

    pub async fn add_shard(&self, name: &str) -> Result<ShardRecord, CatalogError> {
        let opened = self.router.open_candidate(&Cluster::candidate(name, name)).await.unwrap();
        match self.driver.add_shard(Cluster::new_shard(name), &opened).await {
            Ok(record) => {
                self.router.adopt(record.clone(), opened).await;
                self.router.refresh().await.unwrap();
                Ok(record)
            }
            Err(error) => {
                opened.close().await;
                Err(error)
            }
        }
    }

    pub async fn attach_shard(&self, name: &str) -> Result<ShardRecord, CatalogError> {
        let opened = self.router.open_candidate(&Cluster::candidate(name, name)).await.unwrap();
        match self.driver.attach_shard(Cluster::new_shard(name), &opened).await {
            Ok(record) => {
                self.router.adopt(record.clone(), opened).await;
                self.router.refresh().await.unwrap();
                Ok(record)
            }
            Err(error) => {
                opened.close().await;
                Err(error)
            }
        }
    }

    pub async fn change(&self, name: &str, change: Change) -> Result<OpRecord, CatalogError> {
        self.change_if(name, change, None).await
    }

    pub async fn change_if(
        &self,
        name: &str,
        change: Change,
        if_version: Option<u64>,
    ) -> Result<OpRecord, CatalogError> {
        let request = ChangeRequest { map: map(name), change, if_version, by: None };
        self.driver.change(&request).await
    }

    /// Opens sessions for data on every shard, as requests do, so that fences must wait for this router.
    pub async fn touch_all_shards(&self) {
        for id in self.router.view().shards.keys() {
            let all = KeyRange::all();
            self.router.enter_shard(&map("tenants"), &all, id, Access::Read).await.unwrap();
        }
    }

    /// Waits until no operation is under way.
    pub async fn settle(&self) {
        let quiet = async {
            while !self.catalog.running().await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let running = || async { self.catalog.running().await };
        if tokio::time::timeout(PATIENCE, quiet).await.is_err() {
            panic!("operations do not end: {:#?}", running().await);
        }
    }

    /// Waits until an operation is under way; answers which.
    pub async fn until_running(&self) -> OpId {
        let first = async {
            loop {
                if let Some(record) = self.catalog.running().await.unwrap().first() {
                    return record.op.id;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, first).await.expect("an operation begins")
    }

    /// Waits until the router's view is so.
    pub async fn until_seen(&self, seen: impl Fn(&View) -> bool) {
        let come = async {
            while !seen(&self.router.view()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, come).await.expect("the router hears of it");
    }

    pub async fn picture(&self) -> Picture {
        let shards = self.catalog.shards().await.unwrap().into_iter().map(|record| record.id).collect();
        let mut maps = BTreeMap::new();
        for record in self.catalog.maps().await.unwrap() {
            let name = record.definition.name().clone();
            assert!(record.live, "map {name} is neither there nor gone");
            maps.insert(name.clone(), shown(self.catalog.entries(&name).await.unwrap()));
        }
        Picture { shards, maps }
    }

    /// What is true of a cluster at rest: nothing under way, no difference, one owner for every key, no fence
    /// standing, and the router sees what the catalog says.
    pub async fn assert_healthy(&self) {
        assert_eq!(self.catalog.running().await.unwrap(), []);
        let picture = self.picture().await;
        for (name, entries) in &picture.maps {
            let (differences, away) = self.driver.check(name).await.unwrap();
            assert_eq!(differences, [], "map {name}");
            assert_eq!(away, [], "map {name}");
            let mut owned: Vec<(KeyRange, ShardId)> = Vec::new();
            for id in &picture.shards {
                let opened = self.router.administer(id).await.unwrap();
                for local in opened.local_entries(name).await.unwrap() {
                    assert_eq!(local.incoming, None, "{name} on {id}: {:?}", local.entry.range);
                    owned.push((local.entry.range, id.clone()));
                }
            }
            owned.sort_by(|a, b| a.0.cmp(&b.0));
            assert!(!owned.windows(2).any(|pair| pair[0].0.overlaps(&pair[1].0)), "two owners: {owned:?}");
            let expected: Vec<_> =
                entries.iter().map(|(range, on, ..)| (range.clone(), on.clone())).collect();
            assert_eq!(owned, expected, "the local maps of {name}");
        }
        for id in &picture.shards {
            let opened = self.router.administer(id).await.unwrap();
            assert_eq!(opened.hello(FenceEpoch::ZERO).await.unwrap().fences, [], "fences on {id}");
            let local: BTreeSet<MapName> = opened
                .definitions()
                .await
                .unwrap()
                .into_iter()
                .map(|definition| definition.name().clone())
                .collect();
            let known = picture.maps.keys().cloned().collect();
            assert!(local.is_subset(&known), "{id} keeps maps that are gone: {local:?}");
        }
        self.router.refresh().await.unwrap();
        assert_eq!(self.view_picture(), picture, "the router's view");
    }

    /// The same picture as the router sees it.
    pub fn view_picture(&self) -> Picture {
        let view = self.router.view();
        let all = KeyRange::all();
        let maps = view.maps.iter();
        Picture {
            shards: view.shards.keys().cloned().collect(),
            maps: maps
                .map(|(name, known)| (name.clone(), shown(known.map.entries(&all).collect())))
                .collect(),
        }
    }

    /// Runs SQL on every shard, beside the requests.
    pub async fn on_all_shards(&self, sql: impl Fn(polyshard_engine::Dialect) -> String) {
        for record in self.catalog.shards().await.unwrap() {
            let opened = self.router.administer(&record.id).await.unwrap();
            let mut tx = opened.control_transaction().await.unwrap();
            tx.run(Statement::new(sql(opened.dialect()))).await.unwrap();
            tx.commit().await.unwrap();
        }
    }

    /// A table `item` on every shard, whose rows are placed by their first column.
    pub async fn items(&self) {
        self.on_all_shards(|dialect| {
            let (blob, int) = (dialect.blob(), dialect.bigint());
            format!("CREATE TABLE item (placement {blob} NOT NULL, value {int} NOT NULL)")
        })
        .await;
    }

    /// How many rows of a range a shard has, whoever owns it.
    pub async fn rows_on(&self, on: &str, range: &KeyRange) -> i64 {
        let opened = self.router.administer(&shard(on)).await.unwrap();
        let mut tx = opened.control_transaction().await.unwrap();
        let sql = "SELECT count(*) FROM item WHERE placement >= $1 AND placement < $2";
        let hi = range.hi().expect("ranges here end somewhere").as_slice().to_vec();
        let statement = Statement::new(sql).bind(range.lo().as_slice()).bind(hi);
        let count = tx.run(statement).await.unwrap().one().unwrap().int(0).unwrap();
        tx.rollback().await.unwrap();
        count
    }

    /// Writes a row for a key, as a store would; answers the shard it went to.
    pub async fn write(&self, name: &str, number: i64, value: i64) -> Result<ShardId, RouterError> {
        let place = self.router.view().maps[&map(name)].map.placement(&key(number)).unwrap();
        let statement = Statement::new("INSERT INTO item (placement, value) VALUES ($1, $2)")
            .bind(place.as_slice().to_vec())
            .bind(value);
        let write = async move |ticket: &polyshard_router::Ticket| {
            ticket.write(Batch::from(statement.clone())).await.map(|_| ticket.shard().clone())
        };
        self.router.call(&map(name), &[key(number)], Access::Write, write).await
    }

    /// Reads the values of a key; answers the shard they came from.
    pub async fn read(&self, name: &str, number: i64) -> Result<(ShardId, Vec<i64>), RouterError> {
        let place = self.router.view().maps[&map(name)].map.placement(&key(number)).unwrap();
        let statement = Statement::new("SELECT value FROM item WHERE placement = $1 ORDER BY value")
            .bind(place.as_slice().to_vec());
        let read = async move |ticket: &polyshard_router::Ticket| {
            let rows = ticket.read(statement.clone()).await?;
            let values = rows.iter().map(|row| row.int(0)).collect::<Result<_, _>>()?;
            Ok((ticket.shard().clone(), values))
        };
        self.router.call(&map(name), &[key(number)], Access::Read, read).await
    }
}

fn shown(entries: Vec<Entry>) -> Vec<Shown> {
    let owner = |entry: &Entry| entry.lock.as_ref().map(|lock| lock.owner().to_owned());
    entries
        .into_iter()
        .map(|entry| {
            let lock = owner(&entry);
            (entry.range, entry.shard, entry.state, lock)
        })
        .collect()
}
