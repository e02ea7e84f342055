//! The store of databases, containers and documents over the kit. It knows nothing of HTTP.

mod batch;
mod containers;
mod home;
mod items;
mod offers;
mod patches;
mod query;
mod reader;
mod records;
mod statements;
mod sweep;

use std::sync::Arc;

use polyshard_store::{
    DatasetName, Datasets, DefaultMap, Endpoint, Family, KeyColumn, Kit, NameError, OptionValues, Store,
};
use tokio::sync::Notify;

pub(crate) use batch::{BATCH_OPERATIONS_MAX, Operation, OperationKind, Outcome};
pub(crate) use containers::{Container, Database};
pub(crate) use home::Key;
pub(crate) use items::{Condition, Item};
pub(crate) use query::{Page, PageOf};
pub(crate) use reader::Scope;
pub(crate) use records::{ContainerBody, Offered, Throughput};

use crate::name::dataset_name;
use crate::options::{OPTIONS, account, check};
use crate::schema::{ITEMS, KEY_COLUMN};

/// The store, as it describes itself.
pub static STORE: Store = Store {
    family: Some(&FAMILY),
    schema: Some(crate::schema),
    tables: &[ITEMS],
    datasets: Some(DATASETS),
    endpoints: &[Endpoint { name: "document", about: "Cosmos DB", scheme: "http", port: 8081 }],
    options: OPTIONS,
    start: Some(crate::options::start),
    ..Store::new("document", "containers of documents")
};

/// It has one account, which owns all databases.
static FAMILY: Family = Family {
    id: "cosmos",
    options: &[],
    lists: &[],
    owners: |values: &OptionValues| vec![account(values)],
    check,
};

const DATASETS: Datasets = Datasets {
    noun: "container",
    attribute: "partitionKey",
    attributes: &["partitionKey"],
    name_attribute: None,
    key_columns: &[KeyColumn { table: ITEMS, attribute: "partitionKey", column: KEY_COLUMN }],
    parse: |account, name| dataset_name(account, name).map_err(NameError::of),
    map: DefaultMap::hash_of_text(DEFAULT_MAP),
};

/// The map of containers that are not bound to another one.
pub const DEFAULT_MAP: &str = "documents";

/// All databases of a cluster, as one process sees them.
pub struct DocumentStore {
    kit: Kit,
    account: String,
    /// Told when something was deleted.
    deleted: Arc<Notify>,
}

impl DocumentStore {
    /// The store over its kit, for the databases of an account.
    pub fn new(kit: Kit, account: &str) -> DocumentStore {
        DocumentStore { kit, account: account.to_owned(), deleted: Arc::default() }
    }

    /// What it works with.
    pub(crate) fn kit(&self) -> &Kit {
        &self.kit
    }

    /// Whose databases these are.
    pub(crate) fn account(&self) -> &str {
        &self.account
    }

    fn dataset(&self, name: &str) -> Result<DatasetName, crate::name::NameError> {
        dataset_name(&self.account, name)
    }

    /// An ETag that nothing else has. Not 0, which is no condition.
    fn new_etag(&self) -> i64 {
        ((self.kit.random() >> 1) as i64).max(1)
    }
}
