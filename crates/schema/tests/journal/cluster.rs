//! A process of a cluster with its journal, and what tests ask it.

use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{
    Catalog, Driver, Failpoint, FenceLimits, NewShard, PasswordSource, ShardLimits, ShardRecord,
};
use polyshard_engine::{Options, Statement, Value};
use polyshard_map::{MapName, ShardId};
use polyshard_router::{Router, RouterOptions};
use polyshard_schema::{Declaration, Journal, JournalError, JournalOptions};
use polyshard_shard::{RouterId, ShardOptions};
use polyshard_sql::{Placement, SqlError, TableName};
use uuid::Uuid;

use crate::place::Place;

/// One process.
pub struct Cluster {
    pub catalog: Arc<Catalog>,
    pub router: Arc<Router>,
    pub driver: Arc<Driver>,
    pub journal: Journal,
}

pub fn shard(name: &str) -> ShardId {
    ShardId::new(name).unwrap()
}

pub fn map(name: &str) -> MapName {
    MapName::new(name).unwrap()
}

pub fn table(name: &str) -> TableName {
    TableName::public(name)
}

pub fn sharded(name: &str, by: &str, column: &str) -> Declaration {
    Declaration::Sharded { table: table(name), map: map(by), column: column.to_owned() }
}

/// What a client would see of a refusal.
pub fn refusal(result: Result<(), JournalError>) -> SqlError {
    result.expect_err("a refusal").to_sql()
}

fn engine_options() -> Options {
    Options {
        unavailable_wait: Duration::from_millis(300),
        outcome_wait: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(2),
        postgres_readers: 2,
        functions: polyshard_sql_on_sqlite::functions(),
        aggregates: polyshard_sql_on_sqlite::aggregates(),
        collations: polyshard_sql_on_sqlite::collations(),
        ..Options::default()
    }
}

impl Cluster {
    /// A process on the databases of a place.
    pub async fn open(place: &Arc<Place>) -> Cluster {
        Cluster::open_with(place, 1, None).await
    }

    /// Likewise, one of several, which a test may stop at named places.
    pub async fn open_with(place: &Arc<Place>, router: u32, failpoint: Option<Failpoint>) -> Cluster {
        let owner = format!("process-{}", Uuid::new_v4());
        let target = place.target("catalog");
        let catalog = Arc::new(Catalog::new(target, engine_options(), owner, Arc::new(Uuid::new_v4)));
        let options = RouterOptions {
            router: RouterId::new(router),
            shard: ShardOptions {
                data: engine_options(),
                stores: vec![polyshard_schema::schema()],
                ..ShardOptions::default()
            },
            hold_max: Duration::from_secs(2),
            wait_max: Duration::from_secs(5),
            poll: Duration::from_millis(500),
            saved: None,
        };
        let known = place.clone();
        let connect = Arc::new(move |record: &ShardRecord| Ok(known.target(&record.url)));
        let router = Arc::new(Router::start(catalog.clone(), connect, options).await.unwrap());
        let limits = FenceLimits { silent: Duration::from_millis(250), hold: Duration::from_secs(1) };
        let driver = Arc::new(Driver::new(catalog.clone(), router.shard_source(), limits, None));
        let options = JournalOptions { failpoint, abandoned_after_rounds: 0, ..JournalOptions::default() };
        let journal = Journal::new(router.clone(), driver.clone(), options);
        Cluster { catalog, router, driver, journal }
    }

    /// A process with shards s1, s2, s3 and the hash map `tenants` over them.
    pub async fn with_shards(place: &Arc<Place>) -> Cluster {
        let cluster = Cluster::open(place).await;
        for name in ["s1", "s2", "s3"] {
            cluster.add_shard(name).await;
        }
        cluster.journal.create_map("tenants", "hash", "bigint").await.unwrap();
        cluster
    }

    pub async fn add_shard(&self, name: &str) {
        let new = NewShard {
            id: shard(name),
            url: name.to_owned(),
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

    pub async fn close(self) {
        self.journal.close().await;
        self.driver.close().await;
        self.router.close().await;
        self.catalog.close().await;
    }

    pub async fn apply(&self, statements: &[&str]) -> Result<u64, JournalError> {
        let statements: Vec<String> = statements.iter().map(|sql| (*sql).to_owned()).collect();
        self.journal.apply(&statements).await
    }

    /// Rows of a query on one shard, beside the journal.
    pub async fn on(&self, id: &str, sql: &str) -> Vec<Vec<Value>> {
        let opened = self.router.administer(&shard(id)).await.unwrap();
        let mut tx = opened.control_transaction().await.unwrap();
        let rows = tx.run(Statement::new(sql)).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let answer = rows.iter().map(|row| row.values().to_vec()).collect();
        tx.commit().await.unwrap();
        answer
    }

    /// The one number that a query answers.
    pub async fn number(&self, id: &str, sql: &str) -> i64 {
        match self.on(id, sql).await[0][0] {
            Value::Int(number) => number,
            ref other => panic!("{sql}: {other:?}"),
        }
    }

    /// The numbers that a query answers on each shard.
    pub async fn numbers(&self, sql: &str) -> Vec<i64> {
        let mut out = Vec::new();
        for record in self.catalog.shards().await.unwrap() {
            out.push(self.number(record.id.as_str(), sql).await);
        }
        out
    }

    /// How a table is placed.
    pub async fn placement(&self, name: &str) -> Placement {
        self.journal.schema().await.unwrap().tables[&table(name)].placement.clone()
    }

    /// The journal's position on each shard.
    pub async fn positions(&self, place: &Place) -> Vec<i64> {
        let name =
            if place.is_postgres() { "polyshard.journal_applied" } else { "polyshard_journal_applied" };
        self.numbers(&format!("SELECT position FROM {name}")).await
    }
}
