//! The journal of one process: what it knows, the schema it has read, and the ways in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use polyshard_catalog::{Catalog, Driver, Failpoint};
use polyshard_map::{ShardId, State};
use polyshard_router::{Router, View};
use polyshard_shard::Shard;
use polyshard_sql::{Schema, TableName};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::JournalError;
use crate::blocks::Ids;
use crate::embedded::{Embedded, Lite};
use crate::introspect::Details;
use crate::read::Teller;

/// How a journal is set up.
#[derive(Clone)]
pub struct JournalOptions {
    /// Speaks with SQLite shards.
    pub embedded: Arc<dyn Embedded>,
    /// How long a caller waits for others who change all shards: longer than a dead one keeps its turn.
    pub turn_wait: Duration,
    /// After how many rounds of the background, a second each, a table that is changing counts as left behind by a
    /// process that has died.
    pub abandoned_after_rounds: u32,
    /// Stops it at named places, for tests.
    pub failpoint: Option<Failpoint>,
}

impl Default for JournalOptions {
    fn default() -> JournalOptions {
        JournalOptions {
            embedded: Arc::new(Lite),
            turn_wait: Duration::from_secs(15),
            abandoned_after_rounds: 30,
            failpoint: None,
        }
    }
}

/// What every shard must have alike. Clones share it.
#[derive(Clone)]
pub struct Journal {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub catalog: Arc<Catalog>,
    pub router: Arc<Router>,
    pub driver: Arc<Driver>,
    pub options: JournalOptions,
    /// The last schema read, with what the checks of declarations need.
    pub known: ArcSwapOption<Known>,
    /// The same as SQLite files tell it, where there are PostgreSQL shards too.
    pub known_of_files: ArcSwapOption<Known>,
    /// One reads it at a time.
    pub reading: tokio::sync::Mutex<()>,
    /// Likewise of files, which is not to wait for a PostgreSQL shard that is being brought up.
    pub reading_of_files: tokio::sync::Mutex<()>,
    /// The last position that this process knows to be decided, beside what the router has heard.
    pub decided: AtomicU64,
    /// Whether there is a PostgreSQL shard, by the view's number: twice that, and one if there is.
    pub engines: AtomicU64,
    /// How far shards are, as far as this process knows.
    pub applied: RwLock<BTreeMap<ShardId, Applied>>,
    /// How often some shard has missed its part of a write; changes under the lock of `applied`.
    pub missed: AtomicU64,
    /// One brings a shard up at a time.
    pub shards: Mutex<BTreeMap<ShardId, Arc<tokio::sync::Mutex<()>>>>,
    /// Sharded tables recorded on shards (by incarnation) by this process.
    pub bound: Mutex<BTreeSet<(Uuid, String)>>,
    /// The position that this process has said it goes by; none before the first.
    pub said: Mutex<Option<u64>>,
    /// What is remembered of ids.
    pub ids: Ids,
    /// Tasks that keep turns alive; each ends with its turn.
    pub turns: Mutex<JoinSet<()>>,
    /// Whether shards may have marks of writes on several shards that nobody needs any more.
    pub marks: AtomicBool,
}

/// A schema and what belongs to it.
pub(crate) struct Known {
    pub schema: Arc<Schema>,
    pub details: BTreeMap<TableName, Details>,
    /// Whether the rows of a table are being put elsewhere: nobody may go by this schema now.
    pub changing: bool,
    /// Whether a PostgreSQL shard has told it: of functions, triggers and types an SQLite file knows less.
    pub of_postgres: bool,
    /// Whether no shard was there to tell: there are only declarations.
    pub of_nobody: bool,
}

/// How far a shard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Applied {
    pub incarnation: Uuid,
    pub position: u64,
}

impl Journal {
    /// A journal on a router and its catalog. Nothing is read yet.
    pub fn new(router: Arc<Router>, driver: Arc<Driver>, options: JournalOptions) -> Journal {
        let inner = Inner {
            catalog: driver.catalog().clone(),
            router,
            driver,
            options,
            known: ArcSwapOption::empty(),
            known_of_files: ArcSwapOption::empty(),
            reading: tokio::sync::Mutex::default(),
            reading_of_files: tokio::sync::Mutex::default(),
            decided: AtomicU64::new(0),
            engines: AtomicU64::new(u64::MAX),
            applied: RwLock::default(),
            missed: AtomicU64::new(0),
            shards: Mutex::default(),
            bound: Mutex::default(),
            said: Mutex::default(),
            ids: Ids::default(),
            turns: Mutex::default(),
            marks: AtomicBool::new(true),
        };
        Journal { inner: Arc::new(inner) }
    }

    /// All tables, views and functions as of the last position that this process has heard of. Cheap when nothing has
    /// changed. Hold it while a statement that was looked at under it is being sent.
    pub async fn schema(&self) -> Result<Arc<Schema>, JournalError> {
        let want = self.inner.position();
        if let Some(known) = self.inner.known.load().as_ref()
            && known.schema.position >= want
            && !known.changing
            && known.of_postgres == self.inner.has_postgres()
        {
            return Ok(known.schema.clone());
        }
        // Boxed, here and below: the usual answer needs no room for how the others are found.
        Ok(Box::pin(self.inner.settled(Teller::Any)).await?.schema.clone())
    }

    /// The position of what [`Journal::schema`] would answer by this view, if it could answer at once.
    pub fn known_position(&self, view: &View) -> Option<u64> {
        let known = self.inner.known.load();
        let known = known.as_ref().filter(|known| {
            known.schema.position >= self.inner.position_in(view)
                && !known.changing
                && known.of_postgres == self.inner.has_postgres_in(view)
        })?;
        Some(known.schema.position)
    }

    /// The tables as SQLite shards describe them, beside PostgreSQL ones: for whoever translates for one. Nothing if
    /// there is none. Whoever holds something that a change of a table could wait for has them though one is changing.
    pub async fn schema_of_files(&self, though_changing: bool) -> Result<Option<Arc<Schema>>, JournalError> {
        let want = self.inner.position();
        if let Some(known) = self.inner.known_of_files.load().as_ref()
            && known.schema.position >= want
            && (though_changing || !known.changing)
        {
            return Ok(Some(known.schema.clone()));
        }
        let known = match though_changing {
            true => Box::pin(self.inner.read_schema_of_files(want)).await?,
            false => Box::pin(self.inner.settled(Teller::File)).await?,
        };
        Ok((!known.of_nobody).then(|| known.schema.clone()))
    }

    /// Whether some shard that serves is a PostgreSQL database: then it is one of those that says what tables are like,
    /// and SQLite files beside it are only a part of the rows. Cheap.
    pub fn has_postgres(&self) -> bool {
        self.inner.has_postgres()
    }

    /// The last position that this process has heard of.
    pub fn position(&self) -> u64 {
        self.inner.position()
    }

    /// Whether a shard is known to have everything that was decided, by this view.
    pub fn is_ready(&self, view: &View, shard: &ShardId) -> bool {
        self.inner.is_ready_in(view, shard)
    }

    /// Sees that a shard has everything that was decided, and brings it there if not. Cheap when it is known to. Not to
    /// be called while a transaction of the caller's own turn is open on that shard: it would wait for itself.
    pub async fn ready(&self, shard: &ShardId) -> Result<(), JournalError> {
        if self.inner.is_ready(shard) {
            return Ok(());
        }
        Box::pin(self.inner.catch_up(shard)).await
    }

    /// Waits until turns given up are given back. The caller closes router and catalog.
    pub async fn close(&self) {
        let mut turns = std::mem::take(&mut *self.inner.turns.lock().expect("no panic while held"));
        while let Some(ended) = turns.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a task that keeps a turn failed");
            }
        }
    }
}

impl Inner {
    pub(crate) fn position(&self) -> u64 {
        self.position_in(&self.router.view())
    }

    fn position_in(&self, view: &View) -> u64 {
        view.journal.max(self.decided.load(Ordering::SeqCst))
    }

    /// Takes in that a position is decided.
    pub(crate) fn learn_position(&self, position: u64) {
        self.decided.fetch_max(position, Ordering::SeqCst);
    }

    pub(crate) fn is_ready(&self, shard: &ShardId) -> bool {
        self.is_ready_in(&self.router.view(), shard)
    }

    fn is_ready_in(&self, view: &View, shard: &ShardId) -> bool {
        let want = self.position_in(view);
        let Some(record) = view.shards.get(shard) else { return false };
        let applied = self.applied.read().expect("no panic while held");
        let Some(known) = applied.get(shard) else { return false };
        known.incarnation == record.incarnation && known.position >= want
    }

    /// Takes in how far a shard is that was known to have everything before: not one that has missed something since.
    pub(crate) fn learn_applied(&self, shard: &ShardId, position: u64) {
        let mut applied = self.applied.write().expect("no panic while held");
        if let Some(known) = applied.get_mut(shard) {
            known.position = position;
        }
    }

    /// Takes in how far a shard is that was brought there. False if it has missed something since it was looked at.
    pub(crate) fn learn_brought(&self, shard: &ShardId, position: u64, missed: u64) -> bool {
        let view = self.router.view();
        let Some(record) = view.shards.get(shard) else { return true };
        let mut applied = self.applied.write().expect("no panic while held");
        if self.missed.load(Ordering::SeqCst) != missed {
            return false;
        }
        applied.insert(shard.clone(), Applied { incarnation: record.incarnation, position });
        true
    }

    /// Takes in that a shard may lack something: whoever uses it next looks.
    pub(crate) fn miss(&self, shard: &ShardId) {
        let mut applied = self.applied.write().expect("no panic while held");
        self.missed.fetch_add(1, Ordering::SeqCst);
        applied.remove(shard);
    }

    /// The shards that must have everything: all but those that an operator has put offline, which catch up when they
    /// are back. PostgreSQL databases come first: they know more of a schema than SQLite files do.
    pub(crate) fn serving(&self) -> Vec<ShardId> {
        let view = self.router.view();
        let serving = view.shards.values().filter(|record| record.state != State::Offline);
        let (files, servers): (Vec<_>, Vec<_>) = serving.partition(|record| is_file(record));
        servers.into_iter().chain(files).map(|record| record.id.clone()).collect()
    }

    pub(crate) fn is_file(&self, id: &ShardId) -> bool {
        self.router.view().shards.get(id).is_some_and(|record| is_file(record))
    }

    pub(crate) fn has_postgres(&self) -> bool {
        self.has_postgres_in(&self.router.view())
    }

    fn has_postgres_in(&self, view: &View) -> bool {
        let known = self.engines.load(Ordering::Relaxed);
        if known >> 1 == view.seq {
            return known & 1 == 1;
        }
        let found = view.shards.values().any(|record| record.state != State::Offline && !is_file(record));
        // Shards come, go and change by events, each of which has a number.
        self.engines.store(view.seq << 1 | u64::from(found), Ordering::Relaxed);
        found
    }

    pub(crate) async fn shard(&self, id: &ShardId) -> Result<Arc<Shard>, JournalError> {
        self.router.administer(id).await.map_err(|error| JournalError::on(id, error))
    }

    /// A place where a test may stop the process.
    pub(crate) fn pass(&self, place: &str) -> Result<(), JournalError> {
        match &self.options.failpoint {
            Some(failpoint) if failpoint(place) => Err(JournalError::Failpoint(place.to_owned())),
            _ => Ok(()),
        }
    }
}

/// Whether a shard is an SQLite file.
fn is_file(record: &polyshard_catalog::ShardRecord) -> bool {
    record.url.starts_with("sqlite:")
}
