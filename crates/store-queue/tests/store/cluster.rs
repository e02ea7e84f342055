//! A cluster in this process with the map of a store, on SQLite files or on databases of a PostgreSQL server. The tests
//! of all stores share it.

use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{
    Catalog, Driver, FenceLimits, NewShard, PasswordSource, Resolver, ShardLimits, ShardRecord,
};
use polyshard_engine::{Options, Target};
use polyshard_map::{
    Epoch, HashSpec, KeyBytes, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme, ShardId, State,
};
use polyshard_router::{Router, RouterOptions};
use polyshard_shard::{RouterId, ShardOptions, StoreSchema};
use polyshard_store::{Host, HostParts, Kit, Stores};
use uuid::Uuid;

const BUCKETS: u32 = 16;

/// Says where a database is by its name.
pub type Locate = Arc<dyn Fn(&str) -> Target + Send + Sync>;

pub use polyshard_store::Clock;

/// A store that a cluster can be opened with.
pub trait Store {
    /// The map of its datasets.
    const MAP: &'static str;
    /// What it declares.
    const DECLARATION: &'static polyshard_store::Store;
    /// The list of stores.
    const STORES: Stores;

    /// Its tables.
    fn schema() -> StoreSchema;

    /// The store of one process.
    fn open(kit: Kit) -> Self;

    /// The keys at which the shards' parts of the map begin but for the first, if it is a map of ranges.
    fn bounds() -> Option<&'static [&'static str]> {
        None
    }
}

/// One process of a cluster, and its store.
pub struct Cluster<S> {
    pub store: Arc<S>,
    pub router: Arc<Router>,
    pub driver: Arc<Driver>,
    catalog: Arc<Catalog>,
    resolver: Resolver,
}

impl<S: Store> Cluster<S> {
    /// Starts a process. The first one of a cluster makes its shards and the map.
    pub async fn open(locate: &Locate, shards: &[&str], clock: Clock, options: Options) -> Cluster<S> {
        let owner = format!("process {}", Uuid::new_v4());
        let catalog =
            Arc::new(Catalog::new(locate("catalog"), options.clone(), owner, Arc::new(Uuid::new_v4)));
        let find = locate.clone();
        let connect = Arc::new(move |record: &ShardRecord| Ok(find(&record.url)));
        let router_options = RouterOptions {
            router: RouterId::new(rand::random()),
            shard: ShardOptions { data: options, stores: vec![S::schema()], ..ShardOptions::default() },
            hold_max: Duration::from_secs(2),
            wait_max: Duration::from_secs(20),
            poll: Duration::from_millis(500),
            saved: None,
        };
        let router = Arc::new(Router::start(catalog.clone(), connect, router_options).await.unwrap());
        let driver =
            Arc::new(Driver::new(catalog.clone(), router.shard_source(), FenceLimits::default(), None));
        let resolver = Resolver::start(driver.clone());
        let parts = HostParts {
            stores: S::STORES,
            router: router.clone(),
            driver: driver.clone(),
            clock,
            random: Arc::new(rand::random::<u64>),
        };
        let store = Arc::new(S::open(Kit::new(&Arc::new(Host::new(parts)), S::DECLARATION)));
        let cluster = Cluster { store, router, driver, catalog, resolver };
        if cluster.router.view().shards.is_empty() {
            cluster.make(shards).await;
        }
        cluster
    }

    async fn make(&self, shards: &[&str]) {
        for name in shards {
            let id = ShardId::new(name).unwrap();
            let new = NewShard {
                id: id.clone(),
                url: (*name).to_owned(),
                password: PasswordSource::Config,
                server: None,
                region: None,
                tier: None,
                limits: ShardLimits::default(),
            };
            let opened = self.router.open_candidate(&new.candidate()).await.unwrap();
            let record = self.driver.add_shard(new, &opened).await.unwrap();
            self.router.adopt(record, opened).await;
            self.router.refresh().await.unwrap();
        }
        let name = MapName::new(S::MAP).unwrap();
        let scheme = match S::bounds() {
            Some(_) => Scheme::Range,
            None => Scheme::Hash(HashSpec::new(7, BUCKETS).unwrap()),
        };
        let map = MapDefinition::new(name, KeyType::Text, scheme).unwrap();
        let bucket = |part: usize| u32::try_from(part * BUCKETS as usize / shards.len()).unwrap();
        let key = |bounds: &[&str], part: usize| bounds.get(part).map(|key| KeyBytes::from(key.as_bytes()));
        let entries = shards.iter().enumerate().map(|(part, shard)| {
            let range: KeyRange = match S::bounds() {
                Some(bounds) => {
                    let lo = part.checked_sub(1).and_then(|before| key(bounds, before)).unwrap_or_default();
                    KeyRange::new(lo, key(bounds, part)).unwrap()
                }
                None => map.buckets(bucket(part), bucket(part + 1)).unwrap(),
            };
            NewEntry::new(range, ShardId::new(shard).unwrap()).at(Epoch::ZERO)
        });
        self.driver.create_map(&map, entries.collect()).await.unwrap();
        self.router.refresh().await.unwrap();
        assert!(self.router.view().shards.values().all(|record| record.state == State::Online));
    }

    /// Stops the process in an orderly way.
    pub async fn close(self) {
        self.resolver.stop().await;
        self.driver.close().await;
        self.router.close().await;
        self.catalog.close().await;
    }
}
