//! The store of queues and messages over the router. It knows nothing of HTTP.

mod ask;
mod error;
mod messages;
mod queues;
mod rights;
mod service;
mod statements;
mod sweep;
pub(crate) mod transact;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use polyshard_catalog::{DatasetRecord, Driver, KeyPart, KeyRule};
use polyshard_map::{Key, Map, MapName};
use polyshard_router::Router;
use tokio::sync::Notify;

pub use error::StoreError;
pub use messages::Updated;
pub use queues::{Created, Listed, Metadata, Page, Policy};
pub(crate) use rights::Doing;

use crate::message::{MessageId, PopReceipt};
use crate::name::QueueName;

/// What the catalog calls this store.
pub const STORE: &str = "queue";
/// The map of queues that are not bound to another one.
pub const DEFAULT_MAP: &str = "queues";

/// Ticks of 100 ns in a millisecond.
const TICKS_PER_MS: i64 = 10_000;

/// Tells the time in ticks of 100 ns since 1970. Processes that share queues must agree on it to well within the
/// shortest visibility timeout: a message is visible again by the clock of the process that is asked for it.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Gives random numbers, for ids and pop receipts.
pub type Random = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How a queue that is not bound otherwise is placed: by its name.
pub fn default_rule() -> KeyRule {
    KeyRule { attribute: "name".to_owned(), part: KeyPart::Whole }
}

/// All queues of a cluster, as one process sees them.
pub struct QueueStore {
    router: Arc<Router>,
    driver: Arc<Driver>,
    clock: Clock,
    random: Random,
    /// The tick of the last id: the next one is later, also when the clock is not.
    last_tick: AtomicI64,
    /// When the first message of each queue expires, as far as known. A queue without an entry is to be looked at.
    expiries: Mutex<HashMap<u64, i64>>,
    /// Queues that had nothing to get when they were last asked.
    empty: Mutex<HashSet<u64>>,
    /// Told when a queue was deleted, so that its messages need not wait for the next round.
    deleted: Arc<Notify>,
}

/// Where a queue's messages are.
struct Home {
    record: Arc<DatasetRecord>,
    /// The number of its rows.
    dataset: u64,
    key: [Key; 1],
    placement: Vec<u8>,
}

impl Home {
    /// The number of its rows, for statements.
    fn dataset(&self) -> i64 {
        i64::try_from(self.dataset).expect("the catalog counts datasets within 63 bits")
    }
}

impl QueueStore {
    /// A store over a router, whose driver makes and deletes queues.
    pub fn new(router: Arc<Router>, driver: Arc<Driver>, clock: Clock, random: Random) -> QueueStore {
        let last_tick = AtomicI64::new(0);
        QueueStore {
            router,
            driver,
            clock,
            random,
            last_tick,
            expiries: Mutex::default(),
            empty: Mutex::default(),
            deleted: Arc::default(),
        }
    }

    fn now_ms(&self) -> i64 {
        (self.clock)().div_euclid(TICKS_PER_MS)
    }

    fn next_id(&self) -> MessageId {
        let now = (self.clock)();
        let next = |last: i64| now.max(last.saturating_add(1));
        let last = self.last_tick.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        MessageId::new(last.map_or(now, next), (self.random)())
    }

    fn next_receipt(&self) -> PopReceipt {
        PopReceipt::new((self.random)() as i64)
    }

    async fn record(&self, queue: &QueueName) -> Result<Arc<DatasetRecord>, StoreError> {
        let found = self.router.dataset(STORE, queue.dataset()).await?;
        found.ok_or_else(|| StoreError::NoSuchQueue(queue.to_string()))
    }

    async fn home(&self, queue: &QueueName) -> Result<Home, StoreError> {
        self.home_of(self.record(queue).await?, queue.name())
    }

    /// The same for a request, which its quotas let in.
    async fn home_for_request(&self, queue: &QueueName) -> Result<Home, StoreError> {
        let home = self.home(queue).await?;
        self.router.admit_to(&home.record, home.key.first(), 1)?;
        Ok(home)
    }

    /// Where the messages of a queue of this name, with this record, are.
    fn home_of(&self, record: Arc<DatasetRecord>, name: &str) -> Result<Home, StoreError> {
        let view = self.router.view();
        let known = view.maps.get(&record.map).ok_or_else(|| StoreError::NoMap(record.map.to_string()))?;
        let (key, placement) = key_and_placement(&record.rule, &known.map, name)?;
        let dataset = record.id;
        Ok(Home { record, dataset, key: [key], placement })
    }
}

/// The key and the placement of a queue's messages.
fn key_and_placement(rule: &KeyRule, map: &Map, name: &str) -> Result<(Key, Vec<u8>), StoreError> {
    let misfit = |error: String| StoreError::Misplaced { queue: name.to_owned(), error };
    let key = rule.key(map.definition().key_type(), name);
    let key = key.map_err(|error| misfit(error.to_string()))?;
    let placement = map.placement(&key).map_err(|error| misfit(error.to_string()))?;
    Ok((key, placement.into_vec()))
}

/// The default map's name.
fn default_map() -> MapName {
    MapName::new(DEFAULT_MAP).expect("a good name")
}
