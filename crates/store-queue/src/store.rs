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
use polyshard_store::{Datasets, FormerSettings, Kit, Placed, Store};
use tokio::sync::Notify;

pub use error::StoreError;
pub use messages::Updated;
pub use queues::{Created, Listed, Metadata, Page, Policy};

use crate::message::{MessageId, PopReceipt};
use crate::name::QueueName;

/// The store, as it describes itself.
pub static STORE: Store = Store {
    formerly: &["queues"],
    ignores_case: true,
    family: Some(polyshard_azure_storage::FAMILY),
    schema: Some(crate::schema),
    datasets: Some(DATASETS),
    former_settings: Some(FormerSettings { store: "queue-service", name: str::to_owned }),
    ..Store::new("queue", "queues")
};

const DATASETS: Datasets =
    Datasets { noun: "queue", attribute: "name", is_key_of_name: true, map: DEFAULT_MAP };

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
