//! A whole process: catalog, router, driver, mover and resolver; and what must be true of the cluster at rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{
    Catalog, CatalogError, Driver, Failpoint, FenceLimits, LEASE, MoveRequest, NewShard, OpRecord, OpState,
    PasswordSource, Resolver, ShardLimits, ShardRecord,
};
use polyshard_engine::{Dialect, Options, Statement};
use polyshard_map::{
    Entry, Epoch, HashSpec, Key, KeyBytes, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme,
    ShardId,
};
use polyshard_mover::{Mover, Traffic};
use polyshard_router::{Router, RouterOptions};
use polyshard_shard::{
    Dataset, FenceEpoch, OpId, Placement, RouterId, ShardOptions, SharedTable, StoreSchema, TableRows,
};
use uuid::Uuid;

use crate::place::Place;

/// Longer than anything here takes on a busy machine; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const BUCKETS: u32 = 12;

/// How a process is set up.
#[derive(Clone)]
pub struct Setup {
    pub router: u32,
    pub lease: Duration,
    pub failpoint: Option<Failpoint>,
    pub resolving: bool,
    pub limits: FenceLimits,
    /// Whether moves step back, for how many percent of the time.
    pub paced: Option<(Traffic, u32)>,
}

impl Default for Setup {
    fn default() -> Setup {
        let limits = FenceLimits::default();
        Setup { router: 1, lease: LEASE, failpoint: None, resolving: true, limits, paced: None }
    }
}

/// One process of a cluster.
pub struct Cluster {
    pub catalog: Arc<Catalog>,
    pub router: Arc<Router>,
    pub driver: Arc<Driver>,
    resolver: Option<Resolver>,
}

pub fn map(name: &str) -> MapName {
    MapName::new(name).unwrap()
}

pub fn shard(name: &str) -> ShardId {
    ShardId::new(name).unwrap()
}

/// A hash map of tenants.
pub fn tenants() -> MapDefinition {
    let scheme = Scheme::Hash(HashSpec::new(7, BUCKETS).unwrap());
    MapDefinition::new(map("tenants"), KeyType::BigInt, scheme).unwrap()
}

/// A range map of customers.
pub fn customers() -> MapDefinition {
    MapDefinition::new(map("customers"), KeyType::BigInt, Scheme::Range).unwrap()
}

pub fn buckets(from: u32, to: u32) -> KeyRange {
    tenants().buckets(from, to).unwrap()
}

pub fn keys(from: i64, to: i64) -> KeyRange {
    KeyRange::new(bound(from), Some(bound(to))).unwrap()
}

pub fn bound(number: i64) -> KeyBytes {
    KeyType::BigInt.encode_bound(&Key::BigInt(number)).unwrap()
}

/// A store's table with the placement in a column, shared by datasets; and two tables of a user's, one referring to the
/// other, whose placement is computed from the key.
pub fn schema() -> StoreSchema {
    StoreSchema {
        shared: &[SharedTable { name: "thing", by_placement: |_| "placement, dataset, tenant, id" }],
        statements: |dialect| {
            let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
            let strict = if dialect == Dialect::Sqlite { " WITHOUT ROWID, STRICT" } else { "" };
            vec![
                format!(
                    "CREATE TABLE IF NOT EXISTS {} (dataset {int} NOT NULL, tenant {int} NOT NULL, id {int} NOT NULL, \
                     placement {blob} NOT NULL, n {int} NOT NULL, body {text}, \
                     PRIMARY KEY (dataset, tenant, id)){strict}",
                    dialect.own_table("thing")
                ),
                format!(
                    "CREATE INDEX IF NOT EXISTS {} ON {} (dataset, placement)",
                    if dialect == Dialect::Sqlite { "polyshard_thing_placement" } else { "thing_placement" },
                    dialect.own_table("thing")
                ),
                format!(
                    "CREATE TABLE IF NOT EXISTS account (customer {int} NOT NULL, id {int} NOT NULL, note {text}, \
                     PRIMARY KEY (customer, id))"
                ),
                format!(
                    "CREATE TABLE IF NOT EXISTS entry (customer {int} NOT NULL, account {int} NOT NULL, \
                     id {int} NOT NULL, amount {}, at {}, PRIMARY KEY (customer, account, id), \
                     FOREIGN KEY (customer, account) REFERENCES account (customer, id) ON DELETE CASCADE)",
                    if dialect == Dialect::Sqlite { "TEXT" } else { "numeric" },
                    if dialect == Dialect::Sqlite { "TEXT" } else { "timestamptz" },
                ),
            ]
        },
    }
}

/// The datasets of the tables above.
pub fn dataset(dialect: Dialect, name: &str) -> Dataset {
    match name {
        "thing" | "other" => Dataset {
            name: name.to_owned(),
            map: map("tenants"),
            table: dialect.own_table("thing"),
            placement: Placement::Column("placement".to_owned()),
            rows: TableRows::Numbered {
                column: "dataset".to_owned(),
                number: if name == "thing" { 1 } else { 2 },
            },
        },
        _ => Dataset {
            name: name.to_owned(),
            map: map("customers"),
            table: name.to_owned(),
            placement: Placement::Key(vec!["customer".to_owned()]),
            rows: TableRows::All,
        },
    }
}

fn engine_options() -> Options {
    Options {
        unavailable_wait: Duration::from_millis(300),
        outcome_wait: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(2),
        postgres_readers: 2,
        ..Options::default()
    }
}

impl Cluster {
    /// Starts a process on the databases of a place.
    pub async fn open(place: &Arc<Place>, setup: Setup) -> Cluster {
        let owner = format!("process-{}", Uuid::new_v4());
        let catalog = Catalog::new(place.target("catalog"), engine_options(), owner, Arc::new(Uuid::new_v4));
        let catalog = Arc::new(catalog.with_lease(setup.lease));
        let limits = setup.limits;
        let options = RouterOptions {
            router: RouterId::new(setup.router),
            shard: ShardOptions { data: engine_options(), stores: vec![schema()], ..ShardOptions::default() },
            hold_max: limits.hold,
            wait_max: Duration::from_secs(20),
            poll: Duration::from_millis(500),
            saved: None,
        };
        let known = place.clone();
        let connect = Arc::new(move |record: &ShardRecord| Ok(known.target(&record.url)));
        let router = Arc::new(Router::start(catalog.clone(), connect, options).await.unwrap());
        let driver = Arc::new(Driver::new(catalog.clone(), router.shard_source(), limits, setup.failpoint));
        let mover = Mover::new(router.shard_source());
        driver.set_carrier(Arc::new(match setup.paced {
            Some((traffic, share)) => mover.paced(traffic, share),
            None => mover,
        }));
        let resolver = setup.resolving.then(|| Resolver::start(driver.clone()));
        Cluster { catalog, router, driver, resolver }
    }

    /// A process with three new shards, and both maps on them.
    pub async fn with_maps(place: &Arc<Place>, setup: Setup) -> Cluster {
        let cluster = Cluster::open(place, setup).await;
        for name in ["s1", "s2", "s3"] {
            cluster.add_shard(name).await;
        }
        let spread = [(buckets(0, 4), "s1"), (buckets(4, 8), "s2"), (buckets(8, 12), "s3")];
        cluster.driver.create_map(&tenants(), entries(&spread)).await.unwrap();
        let ranges = [(keys(0, 100), "s1"), (keys(100, 200), "s2"), (keys(200, 300), "s3")];
        cluster.driver.create_map(&customers(), entries(&ranges)).await.unwrap();
        cluster.router.refresh().await.unwrap();
        cluster
    }

    pub async fn close(self) {
        self.driver.close().await;
        if let Some(resolver) = self.resolver {
            resolver.stop().await;
        }
        self.driver.close().await;
        self.router.close().await;
        self.catalog.close().await;
    }

    async fn add_shard(&self, name: &str) {
        let new = new_shard(name);
        let opened = self.router.open_candidate(&new.candidate()).await.unwrap();
        let record = self.driver.add_shard(new, &opened).await.unwrap();
        self.router.adopt(record, opened).await;
        self.router.refresh().await.unwrap();
    }

    /// Takes a shard in again that was detached.
    pub async fn attach(&self, name: &str) {
        let new = new_shard(name);
        let opened = self.router.open_candidate(&new.candidate()).await.unwrap();
        let record = self.driver.attach_shard(new, &opened).await.unwrap();
        self.router.adopt(record, opened).await;
        self.router.refresh().await.unwrap();
    }

    /// Begins a move of a range.
    pub async fn start(&self, request: MoveRequest) -> Result<OpRecord, CatalogError> {
        self.driver.start_move(&request).await
    }

    /// Moves a range, and waits until it is done.
    pub async fn moves(&self, name: &str, range: KeyRange, to: &str) -> Result<(), String> {
        let record = self.start(request(name, range, to)).await.map_err(|error| error.to_string())?;
        self.end_of(record.op.id).await
    }

    /// Waits for the end of an operation; says why, if it was rolled back.
    pub async fn end_of(&self, id: OpId) -> Result<(), String> {
        let ended = async {
            loop {
                let record = self.catalog.operation(id).await.unwrap();
                match record.state {
                    OpState::Running => tokio::time::sleep(Duration::from_millis(5)).await,
                    OpState::Done => return Ok(()),
                    OpState::RolledBack => return Err(record.message.unwrap_or_default()),
                }
            }
        };
        match tokio::time::timeout(PATIENCE, ended).await {
            Ok(ended) => ended,
            Err(_) => panic!("the move does not end: {:#?}", self.catalog.operation(id).await),
        }
    }

    /// Waits until an operation is at a step.
    pub async fn until_step(&self, id: OpId, step: polyshard_catalog::Step) {
        let there = async {
            loop {
                let record = self.catalog.operation(id).await.unwrap();
                if record.step == step {
                    return;
                }
                assert_ne!(record.state, OpState::RolledBack, "before {step:?}: {:?}", record.message);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, there).await.is_err() {
            let record = self.catalog.operation(id).await.unwrap();
            let status = self.catalog.move_status(id).await.unwrap();
            panic!("it does not come to {step:?}: {:?} {:?} {status:?}", record.step, record.message);
        }
    }

    /// Waits until no operation is under way.
    pub async fn settle(&self) {
        let quiet = async {
            while !self.catalog.running().await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, quiet).await.is_err() {
            panic!("operations do not end: {:#?}", self.catalog.running().await);
        }
    }

    /// Runs a query on a shard beside the requests.
    pub async fn rows(&self, on: &str, sql: impl Fn(Dialect) -> String) -> Vec<polyshard_engine::Row> {
        let opened = self.router.administer(&shard(on)).await.unwrap();
        let mut tx = opened.control_transaction().await.unwrap();
        let rows = tx.run(Statement::new(sql(opened.dialect()))).await.unwrap().into_rows();
        tx.commit().await.unwrap();
        rows
    }

    /// What is true of a cluster at rest: the maps agree, no fence stands, and moves have left nothing behind.
    pub async fn assert_healthy(&self) {
        assert_eq!(self.catalog.running().await.unwrap(), []);
        for record in self.catalog.maps().await.unwrap() {
            let (differences, away) = self.driver.check(record.definition.name()).await.unwrap();
            assert_eq!(differences, [], "map {}", record.definition.name());
            assert_eq!(away, []);
        }
        for record in self.catalog.shards().await.unwrap() {
            let opened = self.router.administer(&record.id).await.unwrap();
            assert_eq!(opened.hello(FenceEpoch::ZERO).await.unwrap().fences, [], "fences on {}", record.id);
            for table in ["capture", "capture_log", "carried", "taken"] {
                // Which repair was the last is a note of no table, and stays.
                let notes = if table == "taken" { " WHERE tab <> ''" } else { "" };
                let left = self
                    .rows(record.id.as_str(), |d| {
                        format!("SELECT count(*) FROM {}{notes}", d.own_table(table))
                    })
                    .await;
                assert_eq!(left[0].int(0).unwrap(), 0, "{table} on {}", record.id);
            }
            let triggers = self
                .rows(record.id.as_str(), |dialect| match dialect {
                    Dialect::Sqlite => "SELECT name FROM sqlite_schema WHERE type = 'trigger'".to_owned(),
                    Dialect::Postgres => {
                        "SELECT tgname::text FROM pg_trigger WHERE tgname LIKE 'polyshard%'".to_owned()
                    }
                })
                .await;
            assert!(triggers.is_empty(), "triggers on {}: {triggers:?}", record.id);
        }
    }

    /// All shards that there are.
    pub async fn shards(&self) -> Vec<ShardId> {
        self.catalog.shards().await.unwrap().into_iter().map(|record| record.id).collect()
    }

    /// Who owns what, by the catalog.
    pub async fn owners(&self, name: &str) -> BTreeMap<KeyRange, ShardId> {
        let entries = self.catalog.entries(&map(name)).await.unwrap();
        entries.into_iter().map(|entry| (entry.range, entry.shard)).collect()
    }
}

fn new_shard(name: &str) -> NewShard {
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

pub fn request(name: &str, range: KeyRange, to: &str) -> MoveRequest {
    MoveRequest { map: map(name), range, to: shard(to), keep_ms: 0, if_version: None, by: None }
}

fn entries(parts: &[(KeyRange, &str)]) -> Vec<Entry> {
    parts.iter().map(|(range, on)| NewEntry::new(range.clone(), shard(on)).at(Epoch::ZERO)).collect()
}
