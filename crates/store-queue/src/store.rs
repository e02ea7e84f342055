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
use std::sync::{Arc, Mutex};

use polyshard_catalog::{DatasetRecord, KeyPart, KeyRule};
use polyshard_map::{Key, Map, MapName};
use polyshard_store::{Kit, Store};
use tokio::sync::Notify;

pub use error::StoreError;
pub use messages::Updated;
pub use queues::{Created, Listed, Metadata, Page, Policy};
pub(crate) use rights::Doing;

use crate::message::{MessageId, PopReceipt};
use crate::name::QueueName;

/// The store, as it describes itself.
pub static STORE: Store = Store { id: "queue", title: "queues", formerly: &["queues"], ignores_case: true };
/// The map of queues that are not bound to another one.
pub const DEFAULT_MAP: &str = "queues";

/// How a queue that is not bound otherwise is placed: by its name.
pub fn default_rule() -> KeyRule {
    KeyRule { attribute: "name".to_owned(), part: KeyPart::Whole }
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
    /// The store over its kit.
    pub fn new(kit: Kit) -> QueueStore {
        QueueStore { kit, expiries: Mutex::default(), empty: Mutex::default(), deleted: Arc::default() }
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

    async fn record(&self, queue: &QueueName) -> Result<Arc<DatasetRecord>, StoreError> {
        let found = self.kit.router().dataset(STORE.id, queue.dataset()).await?;
        found.ok_or_else(|| StoreError::NoSuchQueue(queue.to_string()))
    }

    async fn home(&self, queue: &QueueName) -> Result<Home, StoreError> {
        self.home_of(self.record(queue).await?, queue.name())
    }

    /// The same for a request, which its quotas let in.
    async fn home_for_request(&self, queue: &QueueName) -> Result<Home, StoreError> {
        let home = self.home(queue).await?;
        self.kit.host().quotas().admit_to(&home.record, home.key.first(), 1)?;
        Ok(home)
    }

    /// Where the messages of a queue of this name, with this record, are.
    fn home_of(&self, record: Arc<DatasetRecord>, name: &str) -> Result<Home, StoreError> {
        let view = self.kit.router().view();
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
