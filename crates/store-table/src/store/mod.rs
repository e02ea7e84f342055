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

use polyshard_azure_storage::Timestamp;
use polyshard_catalog::{DatasetRecord, KeyPart, KeyRule};
use polyshard_engine as engine;
use polyshard_map::{Key, Map, MapName};
use polyshard_router::RouterError;
use polyshard_store::{Kit, Store};
use tokio::sync::{Mutex, Notify};

pub use changes::{CHANGES_MAX, Change, ChangeKind};
pub use error::StoreError;
pub use query::{PAGE_ROWS_MAX, Page, Query};
pub(crate) use rights::Doing;
pub use tables::{Listed, Policy};

use crate::entity::PartitionKey;
use crate::name::TableName;

/// The store, as it describes itself.
pub static STORE: Store = Store {
    formerly: &["tables"],
    ignores_case: true,
    family: Some(polyshard_azure_storage::FAMILY),
    schema: Some(crate::schema),
    ..Store::new("table", "tables of entities")
};
/// The map of tables that are not bound to another one.
pub const DEFAULT_MAP: &str = "tables";

/// Locks that changes of contended entities take in turn: enough that few unrelated ones share one.
const TURNS: usize = 64;

/// How a table that is not bound otherwise is placed: by partition key.
pub fn default_rule() -> KeyRule {
    KeyRule { attribute: "PartitionKey".to_owned(), part: KeyPart::Whole }
}

/// All tables of a cluster, as one process sees them.
pub struct TableStore {
    kit: Kit,
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
    /// The store over its kit.
    pub fn new(kit: Kit) -> TableStore {
        TableStore { kit, turns: std::array::from_fn(|_| Mutex::new(())), deleted: Arc::default() }
    }

    async fn record(&self, table: &TableName) -> Result<Arc<DatasetRecord>, StoreError> {
        let found = self.kit.router().dataset(STORE.id, table.dataset()).await?;
        found.ok_or_else(|| StoreError::NoSuchTable(table.to_string()))
    }

    async fn home(&self, table: &TableName, partition: &PartitionKey) -> Result<Home, StoreError> {
        let record = self.record(table).await?;
        let view = self.kit.router().view();
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
