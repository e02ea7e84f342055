//! The store of tables and entities over the router. It knows nothing of HTTP.

mod changes;
mod entities;
mod error;
mod query;
mod rights;
mod rows;
mod statements;
mod sweep;
mod tables;
pub(crate) mod transact;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use polyshard_azure_storage::Timestamp;
use polyshard_catalog::{DatasetRecord, Driver, KeyPart, KeyRule};
use polyshard_engine as engine;
use polyshard_map::{Key, Map, MapName};
use polyshard_router::{Router, RouterError};
use tokio::sync::{Mutex, Notify};

pub use changes::{CHANGES_MAX, Change, ChangeKind};
pub use error::StoreError;
pub use query::{PAGE_ROWS_MAX, Page, Query};
pub(crate) use rights::Doing;
pub use tables::{Listed, Policy};

use crate::entity::PartitionKey;
use crate::name::TableName;

/// What the catalog calls this store.
pub const STORE: &str = "table";
/// The map of tables that are not bound to another one.
pub const DEFAULT_MAP: &str = "tables";

/// Ticks of 100 ns in a millisecond.
const TICKS_PER_MS: i64 = 10_000;

/// Locks that changes of contended entities take in turn: enough that few unrelated ones share one.
const TURNS: usize = 64;

/// Tells the time in ticks of 100 ns since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// How a table that is not bound otherwise is placed: by partition key.
pub fn default_rule() -> KeyRule {
    KeyRule { attribute: "PartitionKey".to_owned(), part: KeyPart::Whole }
}

/// All tables of a cluster, as one process sees them.
pub struct TableStore {
    router: Arc<Router>,
    driver: Arc<Driver>,
    clock: Clock,
    /// The last tick given out: the next one is later, also when the clock is not.
    last_tick: AtomicI64,
    /// Changes that lost to another one wait for their turn here.
    turns: [Mutex<()>; TURNS],
    /// Told when a table was deleted, so that its entities need not wait for the next round.
    deleted: Arc<Notify>,
}

/// Where a partition is.
struct Home {
    record: Arc<DatasetRecord>,
    key: [Key; 1],
    placement: Vec<u8>,
}

impl TableStore {
    /// A store over a router, whose driver makes and deletes tables.
    pub fn new(router: Arc<Router>, driver: Arc<Driver>, clock: Clock) -> TableStore {
        TableStore {
            router,
            driver,
            clock,
            last_tick: AtomicI64::new(0),
            turns: std::array::from_fn(|_| Mutex::new(())),
            deleted: Arc::default(),
        }
    }

    /// A time that this process has not given out before.
    fn next_tick(&self) -> i64 {
        let now = (self.clock)();
        let next = |last: i64| now.max(last.saturating_add(1));
        let last = self.last_tick.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        last.map_or(now, next)
    }

    async fn record(&self, table: &TableName) -> Result<Arc<DatasetRecord>, StoreError> {
        let found = self.router.dataset(STORE, table.dataset()).await?;
        found.ok_or_else(|| StoreError::NoSuchTable(table.to_string()))
    }

    async fn home(&self, table: &TableName, partition: &PartitionKey) -> Result<Home, StoreError> {
        let record = self.record(table).await?;
        let view = self.router.view();
        let known = view.maps.get(&record.map).ok_or_else(|| StoreError::NoMap(record.map.to_string()))?;
        let (key, placement) = place(&record, &known.map, partition)?;
        Ok(Home { record, key: [key], placement })
    }
}

/// The key and the placement of a partition.
fn place(record: &DatasetRecord, map: &Map, partition: &PartitionKey) -> Result<(Key, Vec<u8>), StoreError> {
    let misplaced = |error: String| StoreError::Misplaced { key: partition.as_str().to_owned(), error };
    let key = record.rule.key(map.definition().key_type(), partition.as_str());
    let key = key.map_err(|error| misplaced(error.to_string()))?;
    let placement = map.placement(&key).map_err(|error| misplaced(error.to_string()))?;
    Ok((key, placement.into_vec()))
}

/// The default map's name.
fn default_map() -> MapName {
    MapName::new(DEFAULT_MAP).expect("a good name")
}

/// The number of a dataset's rows.
fn number(dataset: u64) -> i64 {
    i64::try_from(dataset).expect("the catalog counts datasets within 63 bits")
}

/// A stored tick as a time.
fn timestamp(ticks: i64) -> Result<Timestamp, StoreError> {
    let damaged = || StoreError::Damaged { what: "timestamp", detail: format!("{ticks} is no time") };
    Timestamp::from_ticks(ticks).ok_or_else(damaged)
}

/// Answers of another shape than the statement asks for are a mistake of ours or damage.
fn broken(error: engine::Error) -> StoreError {
    StoreError::Router(RouterError::Engine(error))
}
