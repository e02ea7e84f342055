//! One id for each of the user's types and tables, whichever shard a row comes from: that of the home shard.
//!
//! PostgreSQL gives a type made by CREATE TYPE or CREATE EXTENSION the next number that is free, so that each shard has
//! another for the same type; drivers look a type up once, and take its number for good. Asked for only where such a
//! number appears: all of PostgreSQL's own are the same everywhere.

mod learn;
mod patch;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use polyshard_map::{ShardId, State};
use polyshard_router::Router;
use polyshard_schema::Journal;
use polyshard_sql::SqlError;
use uuid::Uuid;

use crate::door::Clock;

pub(crate) use patch::{
    ColumnIds, RowPatch, are_own, has_user_id, is_record, is_user_id, patch_bind, patch_value,
};

/// How long home is left alone once it could not be asked, in microseconds: whoever can do without it is not to wait
/// for it again and again.
const HOME_PAUSE_MICROS: i64 = 1_000_000;

/// Where statements go that could go anywhere, and whose ids clients see.
pub(crate) struct TypeIds {
    router: Arc<Router>,
    journal: Arc<Journal>,
    clock: Clock,
    /// Stays the same as long as it is there, also if a shard comes that is before it in order.
    home: ArcSwapOption<Home>,
    /// When home could not be asked, by the clock; 0 if the last answer was one.
    home_lost: AtomicI64,
    known: Mutex<HashMap<ShardId, Arc<ShardIds>>>,
    /// One at a time asks for what all others wait for.
    learning: tokio::sync::Mutex<()>,
}

/// The home as it was found.
struct Home {
    shard: Arc<ShardId>,
    incarnation: Uuid,
    /// The number of the event after which it was so: shards change by events only.
    seq: u64,
}

/// What a shard calls the user's types and tables, beside what clients know them by.
pub(crate) struct ShardIds {
    /// The shard and the home as they were: another database under the same name has other ids.
    incarnations: (Uuid, Uuid),
    /// The journal's position before the types were read; nothing if nobody has needed them yet.
    position: Option<u64>,
    /// By the shard's own id.
    outward: HashMap<u32, TypeId>,
    /// By the id that clients know.
    inward: HashMap<u32, TypeId>,
    /// Ids of the shard that home has not, with the journal's position then: made in a transaction that is not
    /// committed, or temporary.
    missing: Mutex<HashMap<u32, u64>>,
    tables: Mutex<HashMap<u32, Arc<TableIds>>>,
}

/// A type under the other number, and what its values are made of, in the numbers of this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TypeId {
    pub other: u32,
    pub made: Made,
}

/// What the values of a type are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// Nothing that has an id.
    Plain,
    Array,
    Composite,
    Domain(u32),
}

/// A table under home's number, with its columns' places there.
pub(crate) struct TableIds {
    /// 0 if home has none of that name.
    other: u32,
    columns: HashMap<i16, i16>,
    /// The journal's position when it was asked for.
    position: u64,
}

/// Which way ids go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the shard to the client.
    Out,
    /// From the client to the shard.
    In,
}

impl ShardIds {
    /// Of which only tables are known so far.
    fn without_types(incarnations: (Uuid, Uuid)) -> ShardIds {
        ShardIds {
            incarnations,
            position: None,
            outward: HashMap::new(),
            inward: HashMap::new(),
            missing: Mutex::default(),
            tables: Mutex::default(),
        }
    }

    fn types(&self, way: Way) -> &HashMap<u32, TypeId> {
        match way {
            Way::Out => &self.outward,
            Way::In => &self.inward,
        }
    }

    /// The id on the other side.
    pub fn other(&self, way: Way, id: u32) -> u32 {
        if !is_user_id(id) {
            return id;
        }
        match (self.types(way).get(&id), way) {
            (Some(known), _) => known.other,
            // A type of the shard's own, whose number clients know as another one's.
            (None, Way::Out) if self.inward.contains_key(&id) => UNKNOWN,
            (None, _) => id,
        }
    }

    fn made(&self, way: Way, id: u32) -> Made {
        match id {
            RECORD => Made::Composite,
            RECORD_ARRAY => Made::Array,
            id => self.types(way).get(&id).map_or(Made::Plain, |known| known.made),
        }
    }

    fn has(&self, way: Way, ids: &[u32], position: u64) -> bool {
        let missing = |id: &u32| {
            let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
            missing.get(id) == Some(&position)
        };
        ids.iter().all(|id| match self.made(way, *id) {
            Made::Plain => !is_user_id(*id) || self.types(way).contains_key(id) || missing(id),
            // There may be newer types within than were known then.
            Made::Array | Made::Composite | Made::Domain(_) => self.position == Some(position),
        })
    }

    fn table(&self, id: u32) -> Option<Arc<TableIds>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

/// `record`, whose values name the types of their fields.
const RECORD: u32 = 2249;
/// Arrays of it.
const RECORD_ARRAY: u32 = 2287;
/// `unknown`: what a client reads as a text.
const UNKNOWN: u32 = 705;

impl TypeIds {
    pub fn new(router: Arc<Router>, journal: Arc<Journal>, clock: Clock) -> TypeIds {
        TypeIds {
            router,
            journal,
            clock,
            home: ArcSwapOption::empty(),
            home_lost: AtomicI64::new(0),
            known: Mutex::default(),
            learning: tokio::sync::Mutex::default(),
        }
    }

    /// The shard whose ids clients see, and that is asked what could be asked anywhere: the first that is there, and
    /// then the same as long as it is.
    pub fn home(&self) -> Option<Arc<ShardId>> {
        self.current_home().map(|home| home.shard.clone())
    }

    /// Tells ids of one home from those of another: what was told of types and tables holds as long as it is the same.
    pub fn home_incarnation(&self) -> Option<Uuid> {
        self.current_home().map(|home| home.incarnation)
    }

    fn current_home(&self) -> Option<Arc<Home>> {
        let view = self.router.view();
        let before = self.home.load_full();
        if let Some(home) = before.as_ref().filter(|home| home.seq == view.seq) {
            return Some(home.clone());
        }
        // PostgreSQL knows more than a file does: where both serve, home is one of its shards.
        let files = !self.journal.has_postgres();
        let fits = |id: &ShardId| {
            let record = view.shards.get(id)?;
            let fits = record.state != State::Offline && record.url.starts_with("sqlite:") == files;
            fits.then_some(record.incarnation)
        };
        let found = |shard: Arc<ShardId>| {
            let incarnation = fits(&shard)?;
            Some(Arc::new(Home { shard, incarnation, seq: view.seq }))
        };
        let kept = before.and_then(|home| found(home.shard.clone()));
        let first = || view.shards.keys().find(|id| fits(id).is_some()).cloned();
        let home = kept.or_else(|| found(Arc::new(first()?)));
        self.home.store(home.clone());
        home
    }

    /// Whether a shard's ids are those that clients see.
    pub fn is_home(&self, shard: &ShardId) -> bool {
        self.home().is_none_or(|home| *home == *shard)
    }

    /// The ids of a shard's types, with these if they can be known; nothing if they are those that clients see. Home is
    /// asked only if some of these need it.
    pub async fn of_shard(
        &self,
        shard: &ShardId,
        way: Way,
        wanted: &[u32],
    ) -> Result<Option<Arc<ShardIds>>, SqlError> {
        let Some(home) = self.home().filter(|home| **home != *shard) else { return Ok(None) };
        let position = self.journal.position();
        let known = || {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(shard).cloned();
            known.filter(|known| {
                Some(known.incarnations) == self.incarnations(shard, &home)
                    && known.has(way, wanted, position)
            })
        };
        if let Some(known) = known() {
            return Ok(Some(known));
        }
        if !has_user_id(wanted.iter().copied()) {
            let incarnations = self.incarnations(shard, &home).unwrap_or_default();
            let none = Arc::new(ShardIds::without_types(incarnations));
            let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let known = all.entry(shard.clone()).or_insert_with(|| none.clone());
            if known.incarnations != incarnations {
                *known = none;
            }
            return Ok(Some(known.clone()));
        }
        let _one = self.learning.lock().await;
        if let Some(known) = known() {
            return Ok(Some(known));
        }
        let learnt = Arc::new(self.learn(shard, &home, position).await?);
        {
            let mut missing = learnt.missing.lock().unwrap_or_else(PoisonError::into_inner);
            missing.extend(wanted.iter().filter(|id| is_user_id(**id)).map(|id| (*id, position)));
        }
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(shard.clone(), learnt.clone());
        Ok(Some(learnt))
    }

    /// Whether home could not be asked a moment ago.
    fn is_home_lost(&self) -> bool {
        let since = (self.clock)() - self.home_lost.load(Ordering::Relaxed);
        (0..HOME_PAUSE_MICROS).contains(&since)
    }

    /// Notes whether home answered.
    fn note_home<T>(&self, asked: Result<T, SqlError>) -> Result<T, SqlError> {
        let lost = if asked.is_ok() { 0 } else { (self.clock)() };
        self.home_lost.store(lost, Ordering::Relaxed);
        asked
    }

    /// Whether there are several shards that have ids of their own for the user's types.
    pub fn differ(&self) -> bool {
        let view = self.router.view();
        let servers = view.shards.values().filter(|record| !record.url.starts_with("sqlite:"));
        servers.filter(|record| record.state != State::Offline).count() > 1
    }

    fn is_file(&self, shard: &ShardId) -> bool {
        self.router.view().shards.get(shard).is_some_and(|record| record.url.starts_with("sqlite:"))
    }

    fn incarnations(&self, shard: &ShardId, home: &ShardId) -> Option<(Uuid, Uuid)> {
        let view = self.router.view();
        Some((view.shards.get(shard)?.incarnation, view.shards.get(home)?.incarnation))
    }
}
