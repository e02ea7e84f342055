//! The store of queues and messages over the router. It knows nothing of HTTP.

mod ask;
mod error;
mod messages;
mod queues;
mod service;
mod statements;
mod sweep;
pub(crate) mod transact;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use polyshard_catalog::KeyRule;
use polyshard_store::{
    DatasetName, Datasets, DefaultMap, Endpoint, FormerSettings, Kit, NameError, Placed, StartError, Started,
    Store,
};
use tokio::sync::Notify;

pub use error::StoreError;
pub use messages::Updated;
pub use queues::{Created, Listed, Metadata, Page, Policy};

use crate::handler::QueueService;
use crate::message::{MessageId, PopReceipt};
use crate::name::QueueName;

/// The store, as it describes itself.
pub static STORE: Store = Store {
    formerly: &["queues"],
    ignores_case: true,
    family: Some(&polyshard_azure_storage::FAMILY),
    schema: Some(crate::schema),
    tables: &[crate::schema::MESSAGES],
    datasets: Some(DATASETS),
    former_settings: Some(FormerSettings { store: "queue-service", name: str::to_owned }),
    endpoints: &[Endpoint { name: "queue", about: "Azure Queue Storage", scheme: "http", port: 10001 }],
    functions: crate::calls::FUNCTIONS,
    start: Some(start),
    ..Store::new("queue", "queues")
};

fn start(kit: Kit) -> Result<Started, StartError> {
    let store = Arc::new(QueueStore::new(kit.clone()));
    let service = Arc::new(QueueService::new(store.clone()));
    let handler = polyshard_azure_storage::handler(&kit, "queue", service)?;
    Ok(Started { handlers: vec![handler], jobs: vec![store.keep_tidy()], calls: Some(store) })
}

const DATASETS: Datasets = Datasets {
    noun: "queue",
    attribute: "name",
    attributes: &["name"],
    name_attribute: Some("name"),
    key_columns: &[],
    parse: |account, name| QueueName::new(account, name).map(DatasetName::from).map_err(NameError::of),
    map: DefaultMap::hash_of_text(DEFAULT_MAP),
};

/// The map of queues that are not bound to another one.
pub const DEFAULT_MAP: &str = "queues";

/// How a queue that is not bound otherwise is placed: by its name.
pub fn default_rule() -> KeyRule {
    DATASETS.rule()
}

/// All queues of a cluster, as one process sees them. Processes that share queues must agree on the time to well within
/// the shortest visibility timeout: a message is visible again by the clock of the process that is asked for it.
pub struct QueueStore {
    kit: Kit,
    /// When the first message of each queue expires, as far as known. A queue without an entry is to be looked at.
    expiries: Mutex<HashMap<u64, i64>>,
    /// Queues that had nothing to get when they were last asked.
    empty: Mutex<HashSet<u64>>,
    /// Told when a queue was deleted, so that its messages need not wait for the next round.
    deleted: Arc<Notify>,
}

impl QueueStore {
    /// The store over its kit.
    pub fn new(kit: Kit) -> QueueStore {
        QueueStore { kit, expiries: Mutex::default(), empty: Mutex::default(), deleted: Arc::default() }
    }

    /// What it works with.
    pub(crate) fn kit(&self) -> &Kit {
        &self.kit
    }

    fn now_ms(&self) -> i64 {
        self.kit.now_ms()
    }

    fn next_id(&self) -> MessageId {
        MessageId::new(self.kit.next_ticks(), self.kit.random())
    }

    fn next_receipt(&self) -> PopReceipt {
        PopReceipt::new(self.kit.random() as i64)
    }

    async fn place(&self, queue: &QueueName) -> Result<Placed, StoreError> {
        self.kit.place(queue.id(), queue.name()).await.map_err(|error| StoreError::of_kit(queue, error))
    }

    /// The same for a request, which its quotas let in.
    async fn place_request(&self, queue: &QueueName) -> Result<Placed, StoreError> {
        let placed = self.place(queue).await?;
        self.kit.admit(&placed, 1)?;
        Ok(placed)
    }
}
