//! A process with everything that procedures need, on SQLite files, and what tests ask it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyshard_catalog::{
    Catalog, Driver, Failpoint, FenceLimits, MoveStatus, NewShard, OpState, PasswordSource, ProcedureRecord,
    Resolver, ShardLimits, ShardRecord,
};
use polyshard_engine::{Options, Statement, Target, Value};
use polyshard_map::{Epoch, Key, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme, ShardId};
use polyshard_mover::Mover;
use polyshard_router::{Router, RouterOptions};
use polyshard_schema::{Declaration, Journal, JournalOptions};
use polyshard_shard::{OpId, RouterId, ShardOptions};
use polyshard_sql::TableName;
use polyshard_workflow::{Procedure, Procedures, RunnerOptions, Task};
use tempfile::TempDir;
use uuid::Uuid;

/// Longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn shard(name: &str) -> ShardId {
    ShardId::new(name).unwrap()
}

pub fn map(name: &str) -> MapName {
    MapName::new(name).unwrap()
}

pub fn range_map(name: &str) -> MapDefinition {
    MapDefinition::new(map(name), KeyType::BigInt, Scheme::Range).unwrap()
}

pub fn keys(from: i64, to: i64) -> KeyRange {
    let bound = |number| KeyType::BigInt.encode_bound(&Key::BigInt(number)).unwrap();
    KeyRange::new(bound(from), Some(bound(to))).unwrap()
}

pub fn new_shard(name: &str, url: &str) -> NewShard {
    NewShard {
        id: shard(name),
        url: url.to_owned(),
        password: PasswordSource::Config,
        server: None,
        region: None,
        tier: None,
        limits: ShardLimits::default(),
    }
}

/// A task that moves keys of `tenants`.
pub fn carry(range: KeyRange, to: &str) -> Task {
    Task::Move {
        map: map("tenants"),
        range,
        to: shard(to),
        keep_ms: 0,
        arrives: None,
        operation: None,
        why: None,
    }
}

fn engine_options() -> Options {
    Options {
        functions: polyshard_sql_on_sqlite::functions(),
        aggregates: polyshard_sql_on_sqlite::aggregates(),
        collations: polyshard_sql_on_sqlite::collations(),
        ..Options::default()
    }
}

/// Where a driver's moves wait, until a test lets them go.
#[derive(Default)]
pub struct Gate(Mutex<Option<&'static str>>);

impl Gate {
    pub fn close(&self, place: &'static str) {
        *self.0.lock().unwrap() = Some(place);
    }

    pub fn open(&self) {
        *self.0.lock().unwrap() = None;
    }
}

/// One process.
pub struct Bed {
    _folder: TempDir,
    pub catalog: Arc<Catalog>,
    pub router: Arc<Router>,
    pub driver: Arc<Driver>,
    pub journal: Arc<Journal>,
    pub procedures: Arc<Procedures>,
    resolver: Resolver,
    pub gate: Arc<Gate>,
    /// How often the runner was about to do something for a task.
    pub rounds: Arc<AtomicUsize>,
}

impl Bed {
    /// A process with shards s1 and s2, the map `tenants` (up to 100 on s1, from there on s2), the tables `orders` and
    /// `lines` that it places, and the reference table `country`.
    pub async fn start() -> Bed {
        let folder = polyshard_testkit::scratch::folder("polyshard-bed-");
        let root = folder.path().to_owned();
        let target = move |name: &str| Target::sqlite(root.join(format!("{name}.db")));
        let catalog = Catalog::new(target("catalog"), engine_options(), "one".into(), Arc::new(Uuid::new_v4));
        let catalog = Arc::new(catalog.with_lease(Duration::from_secs(5)));
        let options = RouterOptions {
            router: RouterId::new(1),
            shard: ShardOptions {
                data: engine_options(),
                stores: vec![polyshard_schema::schema()],
                ..ShardOptions::default()
            },
            hold_max: Duration::from_secs(2),
            wait_max: Duration::from_secs(20),
            poll: Duration::from_millis(200),
            saved: None,
        };
        let connect = Arc::new(move |record: &ShardRecord| Ok(target(&record.url)));
        let router = Arc::new(Router::start(catalog.clone(), connect, options).await.unwrap());
        let gate = Arc::new(Gate::default());
        let held = gate.clone();
        let failpoint: Failpoint = Arc::new(move |here| {
            tokio::task::block_in_place(|| {
                while held.0.lock().unwrap().is_some_and(|place| place == here) {
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            false
        });
        let limits = FenceLimits::default();
        let driver = Arc::new(Driver::new(catalog.clone(), router.shard_source(), limits, Some(failpoint)));
        driver.set_carrier(Arc::new(Mover::new(router.shard_source())));
        let journal = Arc::new(Journal::new(router.clone(), driver.clone(), JournalOptions::default()));
        let rounds = Arc::new(AtomicUsize::new(0));
        let counted = rounds.clone();
        let counting: Failpoint = Arc::new(move |place| {
            if place.ends_with(".before") {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            false
        });
        let procedures = Procedures::start(RunnerOptions {
            driver: driver.clone(),
            router: router.clone(),
            journal: journal.clone(),
            failpoint: Some(counting),
        });
        let resolver = Resolver::start(driver.clone());
        let bed =
            Bed { _folder: folder, catalog, router, driver, journal, procedures, resolver, gate, rounds };
        bed.fill().await;
        bed
    }

    async fn fill(&self) {
        for name in ["s1", "s2"] {
            self.add_shard(name, name).await;
        }
        let entries = [(keys(i64::MIN, 100), "s1"), (keys(100, i64::MAX), "s2")];
        self.create_map("tenants", &entries).await;
        let tables = [
            "CREATE TABLE orders (tenant bigint, id bigint, note text, PRIMARY KEY (tenant, id))",
            "CREATE TABLE lines (tenant bigint, id bigint, product text, PRIMARY KEY (tenant, id))",
            "CREATE TABLE country (code text PRIMARY KEY, name text)",
        ];
        for sql in tables {
            self.journal.apply(&[sql.to_owned()]).await.unwrap();
        }
        for table in ["orders", "lines"] {
            let (table, map) = (TableName::public(table), map("tenants"));
            let sharded = Declaration::Sharded { table, map, column: "tenant".to_owned() };
            self.journal.declare(sharded).await.unwrap();
        }
        self.journal.declare(Declaration::Reference { table: TableName::public("country") }).await.unwrap();
        self.journal.finish().await.unwrap();
    }

    pub async fn create_map(&self, name: &str, entries: &[(KeyRange, &str)]) {
        let entry = |(range, on): &(KeyRange, &str)| NewEntry::new(range.clone(), shard(on)).at(Epoch::ZERO);
        self.driver.create_map(&range_map(name), entries.iter().map(entry).collect()).await.unwrap();
        self.router.refresh().await.unwrap();
    }

    pub async fn add_shard(&self, name: &str, url: &str) {
        let new = new_shard(name, url);
        let opened = self.router.open_candidate(&new.candidate()).await.unwrap();
        let record = self.driver.add_shard(new, &opened).await.unwrap();
        self.router.adopt(record, opened).await;
        self.router.refresh().await.unwrap();
        self.journal.ready(&shard(name)).await.unwrap();
    }

    pub async fn close(self) {
        self.procedures.stop().await;
        self.resolver.stop().await;
        self.journal.close().await;
        self.driver.close().await;
        self.router.close().await;
        self.catalog.close().await;
    }

    /// Runs SQL on a shard past everything; answers the rows.
    pub async fn on(&self, name: &str, sql: &str) -> Vec<Vec<Value>> {
        let opened = self.router.administer(&shard(name)).await.unwrap();
        let mut tx = opened.control_transaction().await.unwrap();
        let rows = tx.run(Statement::new(sql)).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let rows = rows.iter().map(|row| row.values().to_vec()).collect();
        tx.commit().await.unwrap();
        rows
    }

    pub async fn count(&self, name: &str, table: &str) -> usize {
        self.on(name, &format!("SELECT 1 FROM {table}")).await.len()
    }

    /// Begins a procedure.
    pub async fn begin(&self, procedure: Procedure) -> OpId {
        self.procedures.begin("test", None, procedure).await.unwrap().id
    }

    /// Waits for its end.
    pub async fn end_of(&self, id: OpId) -> ProcedureRecord {
        self.until(id, |record| record.state != OpState::Running).await
    }

    /// Waits until a procedure is as wanted.
    pub async fn until(&self, id: OpId, is: impl Fn(&ProcedureRecord) -> bool) -> ProcedureRecord {
        let come = async {
            loop {
                let record = self.catalog.procedure(id).await.unwrap().unwrap();
                if is(&record) {
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, come).await {
            Ok(record) => record,
            Err(_) => panic!("it does not come to that: {:#?}", self.catalog.procedure(id).await),
        }
    }

    /// Waits until the move that a procedure is at has begun.
    pub async fn move_of(&self, id: OpId) -> OpId {
        let begun = async {
            loop {
                let record = self.catalog.procedure(id).await.unwrap().unwrap();
                let at = Procedure::read(&record.body).unwrap().operation();
                if let Some(at) = at
                    && self.catalog.operation(at).await.is_ok()
                {
                    return at;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, begun).await.expect("the move begins")
    }

    /// Waits until the runner has been about to do something so many times more.
    pub async fn rounds(&self, more: usize) {
        let upto = self.rounds.load(Ordering::SeqCst) + more;
        let come = async {
            while self.rounds.load(Ordering::SeqCst) < upto {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, come).await.expect("the runner goes on");
    }

    /// Holds a move at a gate for so long that it asks what is wanted of it as soon as it goes on: it does so at most
    /// every fifth of a second.
    pub async fn hold_until_heard(&self) {
        tokio::time::sleep(Duration::from_millis(600)).await;
    }

    pub async fn status(&self, id: OpId) -> Option<MoveStatus> {
        self.catalog.move_status(id).await.unwrap()
    }
}
