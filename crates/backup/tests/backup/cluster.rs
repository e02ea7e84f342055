//! A small cluster in this process on either engine, and a writer whose writes tell whether a copy is of one moment.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use polyshard_backup::{
    BackupError, Carriers, Clock, Extent, Location, Manifest, Present, Probe, Progress, Request,
    RestoreShardlet, RunName, Variables, What, take,
};
use polyshard_catalog::{Catalog, Driver, FenceLimits, NewShard, PasswordSource, ShardLimits, ShardRecord};
use polyshard_engine::{Batch, Options, Secret, Statement, Target};
use polyshard_map::{
    Entry, Epoch, Key, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme, ShardId,
};
use polyshard_router::{Access, Router, RouterOptions};
use polyshard_shard::{Dataset, Placement, RouterId, ShardOptions};
use polyshard_testkit::postgres::PgServer;
use tempfile::TempDir;
use uuid::Uuid;

pub const SHARDS: [&str; 3] = ["s1", "s2", "s3"];

/// Where the databases of a cluster are.
pub struct Place {
    pub folder: TempDir,
    pub server: Option<PgServer>,
}

impl Place {
    pub fn sqlite() -> Arc<Place> {
        Arc::new(Place { folder: TempDir::new().unwrap(), server: None })
    }

    pub fn postgres() -> Arc<Place> {
        let server = PgServer::start();
        for name in SHARDS.iter().chain(&["catalog"]) {
            server.create_database(name);
        }
        Arc::new(Place { folder: TempDir::new().unwrap(), server: Some(server) })
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The address of a database as the catalog keeps it.
    pub fn url(&self, name: &str) -> String {
        match &self.server {
            None => format!("sqlite:{name}.db"),
            Some(server) => {
                format!("postgres://{}@{}:{}/{name}", server.user(), server.host(), server.port())
            }
        }
    }

    /// The same, to be opened.
    pub fn target(&self, data: &Path, url: &str) -> Target {
        match Target::parse(url).unwrap() {
            Target::Sqlite(sqlite) => {
                std::fs::create_dir_all(data).unwrap();
                Target::sqlite(data.join(sqlite.path))
            }
            target => target.with_password(Secret::new(self.server.as_ref().unwrap().password().to_owned())),
        }
    }
}

/// One process of a cluster.
pub struct Cluster {
    pub catalog: Arc<Catalog>,
    pub router: Arc<Router>,
    pub driver: Arc<Driver>,
    /// What its stores keep outside the databases.
    pub carriers: Carriers,
    place: Arc<Place>,
}

pub fn clock() -> Clock {
    Arc::new(|| 1_794_744_000_000)
}

pub fn variables() -> Variables {
    Arc::new(|_| None)
}

pub fn location(path: &Path) -> Location {
    Location::open(path.to_str().unwrap(), &variables()).unwrap()
}

pub fn map() -> MapName {
    MapName::new("tenants").unwrap()
}

/// A cluster whose stores keep nothing outside.
pub fn no_carriers(_: &Path) -> Result<Carriers, BackupError> {
    Ok(Carriers::default())
}

pub fn definition() -> MapDefinition {
    MapDefinition::new(map(), KeyType::BigInt, Scheme::List).unwrap()
}

impl Cluster {
    /// A process on the databases of a place, under a data folder.
    pub async fn open(place: &Arc<Place>, data: &Path, router: u32) -> Cluster {
        let (owner, ids) = (format!("process-{}", Uuid::new_v4()), Arc::new(Uuid::new_v4));
        let target = place.target(data, &place.url("catalog"));
        let catalog = Arc::new(Catalog::new(target, Options::default(), owner, ids));
        let options = RouterOptions {
            router: RouterId::new(router),
            shard: ShardOptions::default(),
            hold_max: Duration::from_secs(2),
            wait_max: Duration::from_secs(20),
            poll: Duration::from_millis(500),
            saved: None,
        };
        let (known, data) = (place.clone(), data.to_owned());
        let connect = Arc::new(move |record: &ShardRecord| Ok(known.target(&data, &record.url)));
        let router = Arc::new(Router::start(catalog.clone(), connect, options).await.unwrap());
        let limits = FenceLimits::default();
        let driver = Arc::new(Driver::new(catalog.clone(), router.shard_source(), limits, None));
        Cluster { catalog, router, driver, carriers: Carriers::default(), place: place.clone() }
    }

    /// A new cluster: tenant 1 on `s1`, 2 on `s2`, 3 on `s3`, each with a table.
    pub async fn new(place: &Arc<Place>) -> Cluster {
        let cluster = Cluster::open(place, &place.data(), 1).await;
        for name in SHARDS {
            let new = NewShard {
                id: ShardId::new(name).unwrap(),
                url: place.url(name),
                password: PasswordSource::Config,
                server: None,
                region: None,
                tier: None,
                limits: ShardLimits::default(),
            };
            let opened = cluster.router.open_candidate(&new.candidate()).await.unwrap();
            let record = cluster.driver.add_shard(new, &opened).await.unwrap();
            cluster.router.adopt(record, opened).await;
        }
        let entry = |(at, name): (usize, &&str)| -> Entry {
            let point = definition().placement(&Key::BigInt(at as i64 + 1)).unwrap();
            NewEntry::new(KeyRange::point(point), ShardId::new(name).unwrap()).at(Epoch::ZERO)
        };
        let entries = SHARDS.iter().enumerate().map(entry).collect();
        cluster.router.refresh().await.unwrap();
        cluster.driver.create_map(&definition(), entries).await.unwrap();
        cluster.router.refresh().await.unwrap();
        for tenant in 1..=3 {
            let make = Statement::new("CREATE TABLE notes (number BIGINT NOT NULL)");
            cluster.write(tenant, make).await;
        }
        cluster
    }

    pub async fn write(&self, tenant: i64, statement: Statement) {
        let ticket = self.router.enter(&map(), &[Key::BigInt(tenant)], Access::Write).await.unwrap();
        ticket.write(Batch::from(statement)).await.unwrap();
    }

    pub async fn note(&self, tenant: i64, number: i64) {
        self.write(tenant, Statement::new("INSERT INTO notes (number) VALUES ($1)").bind(number)).await;
    }

    /// The highest number noted of a tenant.
    pub async fn last(&self, tenant: i64) -> i64 {
        let ticket = self.router.enter(&map(), &[Key::BigInt(tenant)], Access::Read).await.unwrap();
        let rows = ticket.read(Statement::new("SELECT coalesce(max(number), 0) FROM notes")).await.unwrap();
        rows.one().unwrap().int(0).unwrap()
    }

    pub fn request(&self, to: &Path, what: What) -> Request {
        Request {
            to: location(to),
            what,
            class: None,
            program: "0.0.0".to_owned(),
            catalog_url: self.place.url("catalog"),
            scratch: self.place.folder.path().join("scratch"),
            memory: Arc::default(),
            carriers: self.carriers.clone(),
            probe: None,
        }
    }

    pub async fn take(&self, request: &Request) -> Result<Manifest, BackupError> {
        take(&self.router, &self.catalog, request, &clock(), &Progress::default()).await
    }

    pub async fn back_up(&self, to: &Path) -> Result<Manifest, BackupError> {
        self.take(&self.request(to, What::Everything)).await
    }

    /// The same, with a pause after each shard that is held in which writers have all the time they need.
    pub async fn back_up_slowly(&self, to: &Path) -> Result<Manifest, BackupError> {
        let probe: Probe = Arc::new(|_| Box::pin(tokio::time::sleep(Duration::from_millis(60))));
        self.take(&Request { probe: Some(probe), ..self.request(to, What::Everything) }).await
    }

    pub async fn restore_tenant(
        &self,
        from: &Path,
        tenant: i64,
        present: Present,
    ) -> Result<u64, BackupError> {
        self.restore_shardlet(from, (&map(), tenant, Extent::Key), present).await
    }

    pub async fn restore_shardlet(
        &self,
        from: &Path,
        (map, key, extent): (&MapName, i64, Extent),
        present: Present,
    ) -> Result<u64, BackupError> {
        let restore = RestoreShardlet {
            router: &self.router,
            backup: &location(from),
            map: map.clone(),
            key: key.to_string(),
            extent,
            present,
            scratch: self.place.folder.path().join("scratch"),
            run: RunName::new(self.catalog.cluster().await.unwrap(), 1),
            options: ShardOptions::default(),
            carriers: self.carriers.clone(),
        };
        restore.run(&Progress::default()).await
    }

    /// Makes the table of rows by tenant on every shard, and lets the shards know of it.
    pub async fn with_orders(&self) {
        for tenant in 1..=3 {
            let make = "CREATE TABLE orders (tenant BIGINT NOT NULL, id BIGINT NOT NULL, what TEXT, \
                        price DOUBLE PRECISION, PRIMARY KEY (tenant, id))";
            self.write(tenant, Statement::new(make)).await;
            let ticket = self.router.enter(&map(), &[Key::BigInt(tenant)], Access::Write).await.unwrap();
            let dataset = Dataset {
                name: "orders".to_owned(),
                map: map(),
                table: "orders".to_owned(),
                placement: Placement::Key(vec!["tenant".to_owned()]),
                rows: polyshard_shard::TableRows::All,
            };
            self.router.bind(&ticket, &dataset).await.unwrap();
        }
    }

    pub async fn order(&self, tenant: i64, id: i64, what: &str) {
        let sql = "INSERT INTO orders (tenant, id, what, price) VALUES ($1, $2, $3, $4)";
        let statement = Statement::new(sql).bind(tenant).bind(id).bind(what.to_owned()).bind(id as f64 / 4.0);
        self.write(tenant, statement).await;
    }

    /// The orders of a tenant, in the order of their numbers.
    pub async fn orders(&self, tenant: i64) -> Vec<(i64, String)> {
        let ticket = self.router.enter(&map(), &[Key::BigInt(tenant)], Access::Read).await.unwrap();
        let sql = "SELECT id, what FROM orders WHERE tenant = $1 AND price = id / 4.0 ORDER BY id";
        let rows = ticket.read(Statement::new(sql).bind(tenant)).await.unwrap();
        rows.rows().iter().map(|row| (row.int(0).unwrap(), row.text(1).unwrap().to_owned())).collect()
    }

    pub async fn close(self) {
        self.driver.close().await;
        self.router.close().await;
        self.catalog.close().await;
    }
}

/// Notes each number first on `s1`, then on `s2`, then on `s3`, one after the other, as fast as it can.
pub struct Writer {
    stop: Arc<AtomicBool>,
    pub written: Arc<AtomicI64>,
    task: tokio::task::JoinHandle<()>,
}

impl Writer {
    pub fn start(cluster: &Arc<Cluster>) -> Writer {
        let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let (cluster, stopped, counted) = (cluster.clone(), stop.clone(), written.clone());
        let task = tokio::spawn(async move {
            let mut number = 0;
            while !stopped.load(Ordering::SeqCst) {
                number += 1;
                for tenant in 1..=3 {
                    cluster.note(tenant, number).await;
                }
                counted.store(number, Ordering::SeqCst);
            }
        });
        Writer { stop, written, task }
    }

    pub async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.unwrap();
    }
}

/// Whether the last numbers of the three shards can have been there at one moment.
pub fn of_one_moment([first, second, third]: [i64; 3]) -> bool {
    first >= second && second >= third && first - third <= 1
}
