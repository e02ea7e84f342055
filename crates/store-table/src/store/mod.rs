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
use polyshard_catalog::{DatasetRecord, KeyRule};
use polyshard_engine as engine;
use polyshard_map::{Key, Map};
use polyshard_router::RouterError;
use polyshard_store::{
    DatasetName, Datasets, DefaultMap, Endpoint, KeyColumn, Kit, NameError, StartError, Started, Store,
};
use tokio::sync::{Mutex, Notify};

pub use changes::{CHANGES_MAX, Change, ChangeKind};
pub use error::StoreError;
pub use query::{PAGE_ROWS_MAX, Page, Query};
pub(crate) use rights::Doing;
pub use tables::{Listed, Policy};

use crate::entity::PartitionKey;
use crate::handler::TableService;
use crate::name::TableName;

/// The store, as it describes itself.
pub static STORE: Store = Store {
    formerly: &["tables"],
    ignores_case: true,
    family: Some(&polyshard_azure_storage::FAMILY),
    schema: Some(crate::schema),
    tables: &[crate::schema::ENTITIES],
    datasets: Some(DATASETS),
    former_settings: Some(tables::FORMER_SETTINGS),
    endpoints: &[Endpoint { name: "table", about: "Azure Table Storage", scheme: "http", port: 10002 }],
    functions: crate::calls::FUNCTIONS,
    start: Some(start),
    ..Store::new("table", "tables of entities")
};

fn start(kit: Kit) -> Result<Started, StartError> {
    let store = Arc::new(TableStore::new(kit.clone()));
    let service = Arc::new(TableService::new(store.clone()));
    let handler = polyshard_azure_storage::handler(&kit, "table", service)?;
    Ok(Started { handlers: vec![handler], jobs: vec![store.keep_tidy()], calls: Some(store) })
}
const DATASETS: Datasets = Datasets {
    noun: "table",
    attribute: "PartitionKey",
    attributes: &["PartitionKey"],
    name_attribute: None,
    key_columns: &[KeyColumn {
        table: crate::schema::ENTITIES,
        attribute: "PartitionKey",
        column: crate::schema::PARTITION_KEY_COLUMN,
    }],
    parse: |account, name| TableName::new(account, name).map(DatasetName::from).map_err(NameError::of),
    map: DefaultMap::hash_of_text(DEFAULT_MAP),
};

/// The map of tables that are not bound to another one.
pub const DEFAULT_MAP: &str = "tables";

/// Locks that changes of contended entities take in turn: enough that few unrelated ones share one.
const TURNS: usize = 64;

/// How a table that is not bound otherwise is placed: by partition key.
pub fn default_rule() -> KeyRule {
    DATASETS.rule()
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

    /// What it works with.
    pub(crate) fn kit(&self) -> &Kit {
        &self.kit
    }

    async fn record(&self, table: &TableName) -> Result<Arc<DatasetRecord>, StoreError> {
        self.kit.dataset(table.id()).await.map_err(|error| tables::missing(table, error))
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
