//! The SQL door: what all its sessions share.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polyshard_catalog::{Catalog, Failpoint};
use polyshard_map::{Map, MapName, ShardId};
use polyshard_router::{Access, Router, View};
use polyshard_schema::Journal;
use polyshard_sql::{Maps, Schema, SqlError, SqlState};
use polyshard_store::{AllCalls, Host};
use polyshard_wire::{Connection, Listener, Served, Shutdown};
use tokio::sync::{OnceCell, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::cache::Cache;
use crate::cancel::Cancels;
use crate::reply;
use crate::scram::{SALT_BYTES, Verifier};
use crate::settings;
use crate::type_ids::TypeIds;

/// How long a client may take to say who it is.
const LOGIN_WAIT: Duration = Duration::from_secs(30);

/// Who may come in, and how.
#[derive(Clone)]
pub struct Login {
    /// The user's name.
    pub user: String,
    /// What is kept of the password.
    pub verifier: Verifier,
    /// The database's name.
    pub database: String,
    /// Encrypts connections of clients that ask for it.
    pub tls: Option<TlsAcceptor>,
    /// Whether a client that does not ask for encryption is sent away.
    pub tls_only: bool,
}

/// One in so many sessions of each shard may wait for clients that take an answer in parts: the others are for
/// everybody, also for those very clients, who may write what they have read.
const HELD_SHARE: usize = 4;

/// What one session may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a transaction may wait for its client's next statement.
    pub idle_in_transaction: Duration,
    /// Prepared statements and portals that one session may have.
    pub names_max: usize,
    /// How long a prepared transaction may wait for its outcome before it is rolled back.
    pub prepared_patience: Duration,
    /// What happens to tables that nobody has declared.
    pub undeclared: Undeclared,
    /// Sessions that there may be with each PostgreSQL shard, for all clients together.
    pub sessions_max: usize,
}

/// What happens to tables that nobody has declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undeclared {
    /// Their rows are on every shard.
    Reference,
    /// They cannot be used before they are declared.
    Refuse,
    /// A new one is declared to be on the first shard alone.
    Local,
}

impl Default for Limits {
    fn default() -> Limits {
        // A minute is long for a program, and short for those who wait for its locks.
        Limits {
            idle_in_transaction: Duration::from_secs(60),
            names_max: 10_000,
            prepared_patience: Duration::from_secs(30),
            undeclared: Undeclared::Reference,
            sessions_max: 20,
        }
    }
}

/// A door at work.
pub type Serving = Pin<Box<dyn Future<Output = Served> + Send>>;

/// Fills bytes with randomness.
pub type Random = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Tells the time: microseconds since 1970 UTC.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// From 1970 to 2000, where PostgreSQL's time begins.
const MICROS_TO_2000: i64 = 946_684_800_000_000;

/// The door's parts.
pub struct Door {
    pub(crate) host: Arc<Host>,
    pub(crate) router: Arc<Router>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) login: Login,
    pub(crate) limits: Limits,
    pub(crate) cache: Cache,
    pub(crate) type_ids: Arc<TypeIds>,
    pub(crate) cancels: Arc<Cancels>,
    /// Leave for answers that keep a session of every shard while their clients take them in parts.
    pub(crate) held_merges: Arc<Semaphore>,
    random: Random,
    clock: Clock,
    failpoint: Option<Failpoint>,
    pub(crate) calls: AllCalls,
    /// As PostgreSQL shards have them.
    defaults: OnceCell<Arc<Defaults>>,
    /// Sessions that answer for SQLite shards beside PostgreSQL ones; each ends with the one that it works for.
    inside: Mutex<JoinSet<()>>,
}

/// What a session has before its client sets anything, as the shards have it.
#[derive(Debug)]
pub(crate) struct Defaults {
    /// Reported when a session begins.
    pub parameters: Vec<(String, String)>,
    pub search_path: Arc<[String]>,
    /// Whether the shards are SQLite files.
    pub embedded: bool,
    /// Whether transactions have one snapshot unless they say otherwise.
    pub one_snapshot: bool,
    /// Whether texts come in the order of their bytes, as they do on SQLite shards.
    pub by_bytes: bool,
}

/// What a door is made of.
pub struct Parts {
    /// What it shares with other stores.
    pub host: Arc<Host>,
    /// What every shard must have alike.
    pub journal: Arc<Journal>,
    /// Where outcomes of transactions over several shards are decided.
    pub catalog: Arc<Catalog>,
    /// Who may come in.
    pub login: Login,
    /// What sessions may use.
    pub limits: Limits,
    /// Randomness.
    pub random: Random,
    /// The time.
    pub clock: Clock,
    /// Stops it at named places, for tests.
    pub failpoint: Option<Failpoint>,
    /// The stores that take part in transactions, if any do.
    pub calls: AllCalls,
}

impl Door {
    /// A door to the shards behind a router.
    pub fn new(parts: Parts) -> Door {
        let Parts { host, journal, catalog, login, limits, random, clock, failpoint, calls } = parts;
        let router = host.router().clone();
        let type_ids = Arc::new(TypeIds::new(router.clone(), journal.clone(), clock.clone()));
        Door {
            host,
            router,
            journal,
            type_ids,
            catalog,
            login,
            limits,
            cache: Cache::new(),
            cancels: Arc::default(),
            held_merges: Arc::new(Semaphore::new(limits.sessions_max / HELD_SHARE)),
            random,
            clock,
            failpoint,
            calls,
            defaults: OnceCell::new(),
            inside: Mutex::default(),
        }
    }

    /// Whether a test may stop it somewhere.
    pub(crate) fn has_failpoint(&self) -> bool {
        self.failpoint.is_some()
    }

    /// A named place, where a test may stop it.
    pub(crate) fn pass(&self, place: &str) -> Result<(), SqlError> {
        match &self.failpoint {
            Some(failpoint) if failpoint(place) => {
                Err(SqlError::new(SqlState::INTERNAL_ERROR, format!("stopped at {place}")))
            }
            _ => Ok(()),
        }
    }

    /// What is kept of a password, with a new salt.
    pub fn verifier(password: &str, random: &Random) -> Verifier {
        let mut salt = [0; SALT_BYTES];
        random(&mut salt);
        Verifier::new(password, salt)
    }

    /// The time in microseconds since 2000.
    pub(crate) fn now_micros(&self) -> i64 {
        (self.clock)() - MICROS_TO_2000
    }

    /// The time in milliseconds since 1970.
    pub(crate) fn now_unix_ms(&self) -> i64 {
        (self.clock)() / 1000
    }

    /// Fills bytes with randomness.
    pub(crate) fn fill(&self, bytes: &mut [u8]) {
        (self.random)(bytes);
    }

    /// Random bytes.
    pub(crate) fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.random)(&mut bytes);
        bytes
    }

    /// Serves clients until `shutdown` starts.
    ///
    /// Boxed, so that its users need not compile all that a session can be waiting for.
    pub fn serve(self: Arc<Door>, listener: Listener, shutdown: Shutdown) -> Serving {
        Box::pin(async move {
            let door = self.clone();
            let handler = move |connection| -> Pin<Box<dyn Future<Output = ()> + Send>> {
                Box::pin(handle(connection, door.clone()))
            };
            let served = listener.serve(shutdown, handler).await;
            let mut inside = std::mem::take(&mut *self.inside.lock().unwrap_or_else(PoisonError::into_inner));
            while inside.join_next().await.is_some() {}
            served
        })
    }

    /// The tables as they are now.
    pub(crate) async fn schema(&self) -> Result<Arc<Schema>, SqlError> {
        self.journal.schema().await.map_err(|error| error.to_sql())
    }

    /// Whether what could be asked anywhere is asked of another shard than this by now: it may have been taken out of
    /// the cluster a moment ago.
    pub(crate) async fn has_moved_home(&self, from: Option<ShardId>) -> bool {
        if let Err(error) = self.router.refresh().await {
            tracing::debug!(%error, "the catalog cannot say whether a shard is still there");
        }
        self.home().ok() != from
    }

    /// Owns a session that answers for a shard.
    pub(crate) fn keep_inside(&self, session: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        while inside.try_join_next().is_some() {}
        inside.spawn(session);
    }

    /// Whether a shard is an SQLite file.
    pub(crate) fn is_file(&self, shard: &ShardId) -> bool {
        self.router.view().shards.get(shard).is_some_and(|record| record.url.starts_with("sqlite:"))
    }

    /// Where statements go that could go anywhere: the first shard that is there, and then always the same.
    pub(crate) fn home(&self) -> Result<ShardId, SqlError> {
        self.type_ids.home().map(|home| (*home).clone()).ok_or_else(|| {
            SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "there is no shard yet")
                .hint("Add one with 'polyshard shard add'.")
        })
    }

    /// What a session has before its client sets anything; asked of a shard once.
    pub(crate) async fn defaults(&self) -> Result<Arc<Defaults>, SqlError> {
        if !self.journal.has_postgres() {
            return self.home().map(|_| Arc::new(Defaults::of_sqlite()));
        }
        let ask = || async {
            let of_router = |error| reply::of_router(&error);
            let ticket = self.router.enter_unmapped(&self.home()?, Access::Read).await.map_err(of_router)?;
            let mut lent = ticket.raw().await.map_err(|error| reply::of_engine(&error))?;
            let shown =
                lent.run_simple("SHOW search_path").await.map_err(|error| reply::of_engine(&error))?;
            let shown = shown.into_iter().next().and_then(|row| row.into_iter().next()).flatten();
            let isolation = lent.run_simple("SHOW default_transaction_isolation").await;
            let isolation = isolation.map_err(|error| reply::of_engine(&error))?;
            let isolation = isolation.into_iter().next().and_then(|row| row.into_iter().next()).flatten();
            let one_snapshot = isolation.is_some_and(|isolation| settings::is_one_snapshot(&isolation));
            let order = "SELECT datcollate FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database() \
                         AND datlocprovider = 'c'";
            let order = lent.run_simple(order).await.map_err(|error| reply::of_engine(&error))?;
            let order = order.into_iter().next().and_then(|row| row.into_iter().next()).flatten();
            let by_bytes = order.is_some_and(|name| ["C", "POSIX", "C.UTF-8", "C.utf8"].contains(&&*name));
            let parameters = lent.parameters().to_vec();
            lent.finish();
            let search_path = settings::search_path(&shown.unwrap_or_default());
            Ok(Arc::new(Defaults { parameters, search_path, embedded: false, one_snapshot, by_bytes }))
        };
        self.defaults.get_or_try_init(ask).await.cloned()
    }

    /// What PostgreSQL shards have, if one was asked.
    pub(crate) fn known_defaults(&self) -> Option<&Arc<Defaults>> {
        self.defaults.get()
    }
}

impl Defaults {
    /// Whether a letter is what it is on SQLite shards: elsewhere it may be a byte.
    pub fn is_utf8(&self) -> bool {
        self.parameters.iter().any(|(name, value)| name == "server_encoding" && value == "UTF8")
    }

    fn of_sqlite() -> Defaults {
        let parameters = [
            ("server_version", "15.0 (Polyshard)"),
            ("server_encoding", "UTF8"),
            ("client_encoding", "UTF8"),
            ("application_name", ""),
            ("is_superuser", "off"),
            ("session_authorization", "polyshard"),
            ("DateStyle", "ISO, MDY"),
            ("IntervalStyle", "postgres"),
            ("TimeZone", "UTC"),
            ("integer_datetimes", "on"),
            ("standard_conforming_strings", "on"),
        ];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let search_path = ["public".to_owned()].into();
        Defaults { parameters, search_path, embedded: true, one_snapshot: false, by_bytes: true }
    }
}

/// The maps of one view.
pub(crate) struct ViewMaps<'a>(pub &'a View);

impl Maps for ViewMaps<'_> {
    fn map(&self, name: &MapName) -> Option<&Map> {
        self.0.maps.get(name).map(|known| &known.map)
    }
}

async fn handle(connection: Connection, door: Arc<Door>) {
    let Connection { stream, peer: _, shutdown, guard } = connection;
    let login = crate::startup::login(stream, &door);
    match tokio::time::timeout(LOGIN_WAIT, login).await {
        Ok(Ok(Some(session))) => session.run(shutdown, guard.requests()).await,
        Ok(Ok(None)) => {}
        Ok(Err(gone)) => tracing::debug!(%gone, "a client did not get in"),
        Err(_) => tracing::debug!("a client took too long to say who it is"),
    }
    drop(guard);
}
