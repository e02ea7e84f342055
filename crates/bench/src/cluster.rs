//! A cluster in this process: a catalog, its shards, a driver, and the router that stores would use.

use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{Catalog, Driver, FenceLimits, NewShard, PasswordSource, ShardLimits, ShardRecord};
use polyshard_engine::{Options, Target};
use polyshard_map::ShardId;
use polyshard_router::{Router, RouterOptions};
use polyshard_shard::{RouterId, ShardOptions};
use polyshard_testkit::postgres::PgServer;
use tempfile::TempDir;
use uuid::Uuid;

use crate::Failure;

/// Where the databases are.
pub enum Place {
    /// Files in a folder that goes away with this.
    Files(TempDir),
    /// Databases of a server.
    Server(PgServer),
}

impl Place {
    /// The engine's name.
    pub fn name(&self) -> &'static str {
        match self {
            Place::Files(_) => "sqlite",
            Place::Server(_) => "postgres",
        }
    }

    /// Makes a database on a server; a file makes itself.
    pub fn make(&self, name: &str) {
        if let Place::Server(server) = self {
            server.create_database(name);
        }
    }

    fn target(&self, name: &str) -> Result<Target, Failure> {
        Ok(match self {
            Place::Files(folder) => Target::sqlite(folder.path().join(format!("{name}.db"))),
            Place::Server(server) => Target::parse(&server.url(name))?,
        })
    }
}

/// A catalog with its shards.
pub struct Cluster {
    pub catalog: Arc<Catalog>,
    pub driver: Driver,
    pub router: Arc<Router>,
    pub shards: Vec<ShardId>,
}

impl Cluster {
    /// A new one; `name` is part of the names of its databases.
    pub async fn start(place: &Place, name: &str, shards: usize) -> Result<Cluster, Failure> {
        let catalog_name = format!("{name}_catalog");
        place.make(&catalog_name);
        let catalog = Arc::new(open_catalog(place.target(&catalog_name)?));
        let router = Arc::new(start_router(place, catalog.clone(), 1).await?);
        let driver = Driver::new(catalog.clone(), router.shard_source(), FenceLimits::default(), None);
        let mut ids = Vec::new();
        for number in 1..=shards {
            let database = format!("{name}_{number}");
            place.make(&database);
            let new = NewShard {
                id: ShardId::new(&format!("s{number}"))?,
                url: place.target(&database)?.to_string(),
                password: PasswordSource::Config,
                server: None,
                region: None,
                tier: None,
                limits: ShardLimits::default(),
            };
            ids.push(new.id.clone());
            let opened = router.open_candidate(&new.candidate()).await?;
            let record = driver.add_shard(new, &opened).await?;
            router.adopt(record, opened).await;
        }
        router.refresh().await?;
        Ok(Cluster { catalog, driver, router, shards: ids })
    }

    /// Another router on the same catalog, as another server process would have.
    pub async fn second_router(&self, place: &Place) -> Result<(Arc<Catalog>, Arc<Router>), Failure> {
        let catalog = match place {
            // An SQLite file belongs to one process, and to one handle in it.
            Place::Files(_) => self.catalog.clone(),
            Place::Server(_) => Arc::new(open_catalog(self.catalog.target().clone())),
        };
        let router = Arc::new(start_router(place, catalog.clone(), 2).await?);
        Ok((catalog, router))
    }

    /// Ends everything.
    pub async fn close(self) {
        self.driver.close().await;
        self.router.close().await;
        self.catalog.close().await;
    }
}

fn open_catalog(target: Target) -> Catalog {
    Catalog::new(target, Options::default(), "bench".to_owned(), Arc::new(Uuid::new_v4))
}

async fn start_router(place: &Place, catalog: Arc<Catalog>, number: u32) -> Result<Router, Failure> {
    let password = match place {
        Place::Files(_) => "",
        Place::Server(server) => server.password(),
    };
    let connect =
        Arc::new(move |record: &ShardRecord| Ok(Target::parse(&record.url)?.with_password(password.into())));
    let options = RouterOptions {
        router: RouterId::new(number),
        shard: ShardOptions::default(),
        hold_max: Duration::from_secs(2),
        wait_max: Duration::from_secs(20),
        poll: Duration::from_secs(1),
        saved: None,
    };
    Ok(Router::start(catalog, connect, options).await?)
}
