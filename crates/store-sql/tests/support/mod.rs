//! A door in this process, before shards of a PostgreSQL server of its own; and the clients that knock.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{
    Catalog, Driver, FenceLimits, MoveRequest, NewShard, OpRecord, OpState, PasswordSource, Resolver,
    ShardLimits, ShardRecord, Step, Wish,
};
use polyshard_engine::{Options, Target};
use polyshard_map::{MapName, Scheme, ShardId};
use polyshard_mover::Mover;
use polyshard_router::{Router, RouterOptions};
use polyshard_schema::{Journal, JournalOptions};
use polyshard_shard::{OpId, RouterId, ShardOptions};
use polyshard_store::{AllCalls, Function, Host, HostParts, Parameter, Store, Stores};
use polyshard_store_sql::{Door, Limits, Login, Parts, Random, STORE};
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use polyshard_wire::{Limits as ListenerLimits, Listener, Served, Shutdown, ShutdownTrigger};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_postgres::{CancelToken, Client, NoTls, SimpleQueryMessage};
use uuid::Uuid;

pub const PASSWORD: &str = "a password";

/// A store beside this one.
pub static OTHER: Store = Store { functions: &[KEEP], ..Store::new("other", "things") };
const KEEP: Function = Function {
    name: "keep",
    parameters: &[Parameter::text("tenant"), Parameter::text("thing")],
    about: "keeps a thing",
};
pub const STORES: Stores = Stores(&[&STORE, &OTHER]);

/// A process with an SQL door.
pub struct Cluster {
    pub place: Place,
    pub port: u16,
    pub host: Arc<Host>,
    pub router: Arc<Router>,
    pub driver: Arc<Driver>,
    pub journal: Arc<Journal>,
    pub door: Arc<Door>,
    catalog: Arc<Catalog>,
    resolver: Resolver,
    trigger: ShutdownTrigger,
    served: JoinHandle<Served>,
}

/// Where the databases are.
#[derive(Clone)]
pub enum Place {
    Postgres(Arc<PgServer>),
    Files(Arc<TempDir>),
    /// The second shard is a file, everything else is on the server.
    Mixed(Arc<PgServer>, Arc<TempDir>),
    /// Shards whose names begin with `p` are on the server, everything else is files.
    Growing(Arc<PgServer>, Arc<TempDir>),
    /// Shards are reached by this port.
    Through(Arc<PgServer>, u16),
}

impl Place {
    fn target(&self, name: &str) -> Target {
        match self {
            Place::Postgres(server) => Target::parse(&server.url(name)).unwrap(),
            Place::Files(folder) => Target::sqlite(folder.path().join(format!("{name}.db"))),
            Place::Mixed(_, folder) if name == "s2" => Target::sqlite(folder.path().join("s2.db")),
            Place::Growing(_, folder) if !name.starts_with('p') => {
                Target::sqlite(folder.path().join(format!("{name}.db")))
            }
            Place::Growing(server, _) => Target::parse(&server.url(name)).unwrap(),
            Place::Through(server, port) if name != "catalog" => {
                let direct = format!(":{}/", server.port());
                Target::parse(&server.url(name).replace(&direct, &format!(":{port}/"))).unwrap()
            }
            Place::Mixed(server, _) | Place::Through(server, _) => Target::parse(&server.url(name)).unwrap(),
        }
    }
}

/// How a cluster differs from the usual.
pub struct Setup {
    pub shards: usize,
    pub limits: Limits,
    pub settings: Vec<(String, String)>,
    pub raw_max: usize,
    /// How long the databases wait for a session or a writer, and let a transaction be idle at least.
    pub patience: Duration,
    pub failpoint: Option<polyshard_catalog::Failpoint>,
    /// Another store, whose functions can be called.
    pub calls: AllCalls,
    /// What it keeps on every shard.
    pub schema: Option<polyshard_shard::StoreSchema>,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            shards: 2,
            limits: Limits::default(),
            settings: Vec::new(),
            raw_max: 20,
            patience: Options::default().acquire_timeout,
            failpoint: None,
            calls: AllCalls::default(),
            schema: None,
        }
    }
}

impl Cluster {
    /// Two shards, nothing on them.
    pub async fn start() -> Cluster {
        Cluster::start_with(Setup::default()).await
    }

    pub async fn start_with(setup: Setup) -> Cluster {
        let mut settings = setup.settings.clone();
        settings.push(("max_prepared_transactions".to_owned(), "20".to_owned()));
        let options = PgOptions { durability: Durability::NoFsync, settings };
        let server = PgServer::start_with(options);
        server.create_database("catalog");
        for number in 1..=setup.shards {
            server.create_database(&format!("s{number}"));
        }
        Cluster::on_place(Place::Postgres(Arc::new(server)), &setup).await
    }

    /// Two SQLite shards, nothing on them.
    pub async fn start_embedded() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        Cluster::on_place(Place::Files(Arc::new(folder)), &Setup::default()).await
    }

    pub async fn on_place(place: Place, setup: &Setup) -> Cluster {
        let cluster = Cluster::on(place, setup).await;
        for number in 1..=setup.shards {
            cluster.add_shard(&format!("s{number}")).await;
        }
        cluster
    }

    /// A process on the databases of a server.
    pub async fn on(place: Place, setup: &Setup) -> Cluster {
        let engine = polyshard_store_sql::with_functions(Options {
            unavailable_wait: Duration::from_millis(300),
            connect_timeout: Duration::from_secs(5),
            acquire_timeout: setup.patience,
            transaction_idle_max: setup.patience.max(Options::default().transaction_idle_max),
            postgres_readers: 1,
            postgres_raw_max: setup.raw_max,
            ..Options::default()
        });
        let mut schemas = vec![polyshard_schema::schema(), polyshard_store_sql::schema()];
        schemas.extend(setup.schema);
        let located = place.clone();
        let target = move |name: &str| located.target(name);
        let owner = format!("process {}", Uuid::new_v4());
        let catalog =
            Arc::new(Catalog::new(target("catalog"), engine.clone(), owner, Arc::new(Uuid::new_v4)));
        let router_options = RouterOptions {
            router: RouterId::new(rand::random()),
            shard: ShardOptions { data: engine, stores: schemas, ..ShardOptions::default() },
            hold_max: Duration::from_secs(2),
            wait_max: Duration::from_secs(20),
            poll: Duration::from_millis(500),
            saved: None,
        };
        let connect = Arc::new(move |record: &ShardRecord| Ok(target(record.id.as_str())));
        let router = Arc::new(Router::start(catalog.clone(), connect, router_options).await.unwrap());
        let driver =
            Arc::new(Driver::new(catalog.clone(), router.shard_source(), FenceLimits::default(), None));
        driver.set_carrier(Arc::new(Mover::new(router.shard_source())));
        let resolver = Resolver::start(driver.clone());
        let options = JournalOptions { failpoint: setup.failpoint.clone(), ..JournalOptions::default() };
        let host = Arc::new(Host::new(HostParts {
            stores: STORES,
            router: router.clone(),
            driver: driver.clone(),
            clock: Arc::new(|| micros() * 10),
            random: Arc::new(rand::random::<u64>),
        }));
        let journal = Arc::new(Journal::new(router.clone(), driver.clone(), options));
        let random: Random = Arc::new(|bytes: &mut [u8]| rand::fill(bytes));
        let login = Login {
            user: "polyshard".to_owned(),
            verifier: Door::verifier(PASSWORD, &random),
            database: "polyshard".to_owned(),
            tls: None,
            tls_only: false,
        };
        let parts = Parts {
            host: host.clone(),
            journal: journal.clone(),
            catalog: catalog.clone(),
            login,
            limits: Limits { sessions_max: setup.raw_max, ..setup.limits },
            random,
            clock: Arc::new(micros),
            failpoint: setup.failpoint.clone(),
            calls: setup.calls.clone(),
        };
        let door = Arc::new(Door::new(parts));
        let prepared = door.clone();
        let listener =
            Listener::bind("sql", "127.0.0.1:0".parse().unwrap(), ListenerLimits::default()).await.unwrap();
        let port = listener.address().port();
        let (trigger, shutdown) = Shutdown::new();
        let served = tokio::spawn(door.serve(listener, shutdown));
        Cluster {
            place,
            port,
            host,
            router,
            driver,
            journal,
            door: prepared,
            catalog,
            resolver,
            trigger,
            served,
        }
    }

    pub async fn add_shard(&self, name: &str) {
        let new = NewShard {
            id: ShardId::new(name).unwrap(),
            // As an operator would write it: the address tells the engine.
            url: self.place.target(name).to_string(),
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

    /// The table `notes`, sharded by tenant, and the reference table `countries`.
    pub async fn with_tables() -> Cluster {
        let cluster = Cluster::start().await;
        cluster.make_tables().await;
        cluster
    }

    pub async fn make_tables(&self) {
        self.journal.create_map("tenants", "hash", "bigint").await.unwrap();
        let statements = [
            "CREATE TABLE notes (tenant bigint, id bigint, body text, PRIMARY KEY (tenant, id))".to_owned(),
            "CREATE TABLE countries (code text PRIMARY KEY, name text)".to_owned(),
            "INSERT INTO countries VALUES ('ch', 'Switzerland'), ('is', 'Iceland')".to_owned(),
        ];
        self.journal.apply(&statements).await.unwrap();
        self.journal
            .declare(polyshard_schema::Declaration::Sharded {
                table: polyshard_sql::TableName::public("notes"),
                map: polyshard_map::MapName::new("tenants").unwrap(),
                column: "tenant".to_owned(),
            })
            .await
            .unwrap();
    }

    /// Moves all of a map that is on one shard to another, and waits until it is done.
    pub async fn move_all(&self, map: &str, from: &str, to: &str) {
        let map = MapName::new(map).unwrap();
        let (from, to) = (ShardId::new(from).unwrap(), ShardId::new(to).unwrap());
        // As the server does from time to time: a table that was changed moves when all shards have the change.
        self.journal.finish().await.unwrap();
        let ranges: Vec<_> = {
            let (view, all) = (self.router.view(), polyshard_map::KeyRange::all());
            let entries = view.maps[&map].map.entries(&all);
            entries.filter(|entry| entry.shard == from).map(|entry| entry.range.clone()).collect()
        };
        for range in ranges {
            let request = MoveRequest {
                map: map.clone(),
                range,
                to: to.clone(),
                keep_ms: 0,
                if_version: None,
                by: None,
            };
            let id = self.driver.start_move(&request).await.unwrap().op.id;
            self.until(id, |record| record.state == OpState::Done).await;
        }
        self.router.refresh().await.unwrap();
    }

    /// Tries to move all of a map that is on one shard to another, and says why that was given up.
    pub async fn refused_move(&self, map: &str, to: &str) -> String {
        let request = MoveRequest {
            map: MapName::new(map).unwrap(),
            range: polyshard_map::KeyRange::all(),
            to: ShardId::new(to).unwrap(),
            keep_ms: 0,
            if_version: None,
            by: None,
        };
        let id = self.driver.start_move(&request).await.unwrap().op.id;
        self.until(id, |record| record.state == OpState::RolledBack).await;
        self.catalog.operation(id).await.unwrap().message.unwrap_or_default()
    }

    /// Takes a shard out that has nothing any more.
    pub async fn remove_shard(&self, name: &str) {
        let id = ShardId::new(name).unwrap();
        self.driver.remove_shard(&id, false).await.unwrap();
        self.router.refresh().await.unwrap();
    }

    /// Moves the first quarter of a hash map's buckets to the second shard and the last one to the first, where there
    /// are two; the old rows are kept until [`Cluster::clean_up`].
    pub async fn swap_and_keep(&self, map: &str) -> Vec<OpId> {
        let map = MapName::new(map).unwrap();
        let definition = self.router.view().maps[&map].map.definition().clone();
        let Scheme::Hash(hash) = definition.scheme() else { panic!("{map} has no buckets") };
        let all = hash.buckets();
        let mut moves = Vec::new();
        for (from, to, shard) in [(0, all / 4, "s2"), (all / 4 * 3, all, "s1")] {
            let range = definition.buckets(from, to).unwrap();
            let (map, to, keep_ms) = (map.clone(), ShardId::new(shard).unwrap(), 600_000);
            let request = MoveRequest { map, range, to, keep_ms, if_version: None, by: None };
            let id = self.driver.start_move(&request).await.unwrap().op.id;
            self.until(id, |record| record.step == Step::Keeping).await;
            moves.push(id);
        }
        self.router.refresh().await.unwrap();
        moves
    }

    /// Lets the old rows go.
    pub async fn clean_up(&self, moves: Vec<OpId>) {
        for id in moves {
            self.driver.wish_for(id, Wish::Clean).await.unwrap();
            self.until(id, |record| record.state == OpState::Done).await;
        }
    }

    async fn until(&self, id: OpId, is_there: impl Fn(&OpRecord) -> bool) {
        let there = async {
            while !is_there(&self.catalog.operation(id).await.unwrap()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(40), there).await.is_err() {
            panic!("the move does not get there: {:#?}", self.catalog.operation(id).await);
        }
    }

    pub fn connect_string(&self) -> String {
        format!("host=127.0.0.1 port={} user=polyshard password='{PASSWORD}' dbname=polyshard", self.port)
    }

    pub async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.connect_string(), NoTls).await.unwrap();
        tokio::spawn(async move {
            // Its end is seen by the client.
            let _ended = connection.await;
        });
        client
    }

    /// Asks to stop, and waits until that was heard: what comes next is not stopped by it.
    pub async fn stop(&self, token: &CancelToken) {
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        token.cancel_query_raw(&mut stream, NoTls).await.unwrap();
        // The door closes it after that; how does not matter. One that is not heard soon is said again by the caller.
        let mut rest = Vec::new();
        let closed = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest);
        let _closed = tokio::time::timeout(Duration::from_secs(2), closed).await;
    }

    /// Runs a program of PostgreSQL's against the door.
    pub async fn program(&self, name: &str, arguments: &[&str]) -> (bool, String) {
        let output = tokio::process::Command::new(name)
            .args(arguments)
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", "polyshard")
            .env("PGDATABASE", "polyshard")
            .env("PGPASSWORD", PASSWORD)
            .env("PSQLRC", "/dev/null")
            .output()
            .await
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// The PostgreSQL server that the databases are on.
    pub fn server(&self) -> &PgServer {
        match &self.place {
            Place::Postgres(server)
            | Place::Mixed(server, _)
            | Place::Growing(server, _)
            | Place::Through(server, _) => server,
            Place::Files(_) => panic!("SQLite files have no server"),
        }
    }

    /// What a query says on a shard itself, beside the door.
    pub fn on_shard(&self, shard: &str, sql: &str) -> String {
        self.server().execute(shard, sql).trim().to_owned()
    }

    pub async fn close(self) {
        self.trigger.start();
        self.served.await.unwrap();
        self.journal.close().await;
        self.resolver.stop().await;
        self.driver.close().await;
        self.router.close().await;
        self.catalog.close().await;
    }
}

/// The time in microseconds since 1970.
fn micros() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}

/// The rows of a simple query as text.
pub async fn rows(client: &Client, sql: &str) -> Vec<Vec<String>> {
    let messages = client.simple_query(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let mut rows = Vec::new();
    for message in messages {
        if let SimpleQueryMessage::Row(row) = message {
            let field = |at| row.get(at).unwrap_or("NULL").to_owned();
            rows.push((0..row.len()).map(field).collect());
        }
    }
    rows
}

/// The state and message of a refusal.
pub async fn refusal(client: &Client, sql: &str) -> (String, String) {
    let error = match client.simple_query(sql).await {
        Ok(_) => panic!("{sql} was not refused"),
        Err(error) => error,
    };
    let db = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error:?}"));
    (db.code().code().to_owned(), db.message().to_owned())
}
