//! The store of containers and blobs over the router. It knows nothing of HTTP.

mod appends;
mod blocks;
mod containers;
mod content;
mod copy;
mod depot;
mod error;
mod extents;
mod find;
mod gather;
mod home;
mod items;
mod leases;
mod limits;
mod list;
mod pages;
mod pending;
mod rows;
mod service;
mod statements;
mod sweep;
mod upload;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyshard_catalog::KeyRule;
use polyshard_store::{DatasetName, Datasets, DefaultMap, Endpoint, Error, KeyColumn, Kit, NameError, Store};
use tokio::sync::Notify;

pub use error::StoreError;
pub(crate) use extents::objects_of;
pub use limits::Rates;
pub use service::{BlobProperties, BlobPropertiesPatch, DeleteRetention, Website};

use crate::name::ContainerName;
use crate::objects::{ObjectId, Objects};
use crate::options::{OPTIONS, start};
use crate::schema::{ITEMS, PENDING, TABLES};

/// The store, as it describes itself.
pub static STORE: Store = Store {
    family: Some(&polyshard_azure_storage::FAMILY),
    schema: Some(crate::schema),
    tables: &TABLES,
    datasets: Some(DATASETS),
    endpoints: &[Endpoint { name: "blob", about: "Azure Blob Storage", scheme: "http", port: 10000 }],
    options: OPTIONS,
    carrier: Some(crate::carrier::open),
    start: Some(start),
    ..Store::new("blob", "containers of blobs")
};

const DATASETS: Datasets = Datasets {
    noun: "container",
    attribute: "path",
    attributes: &["path", "container", "name"],
    name_attribute: Some("container"),
    key_columns: &[
        KeyColumn { table: ITEMS, attribute: "name", column: "name" },
        KeyColumn { table: PENDING, attribute: "name", column: "name" },
    ],
    parse: |account, name| ContainerName::new(account, name).map(DatasetName::from).map_err(NameError::of),
    map: DefaultMap::range_of_text(DEFAULT_MAP),
};

/// The map of containers that are not bound to another one: in the order of paths, so that a list of a container or of
/// a prefix is of few shards.
pub const DEFAULT_MAP: &str = "blobs";

/// How a container that is not bound otherwise is placed: by account, container and name of each blob.
pub fn default_rule() -> KeyRule {
    DATASETS.rule()
}

/// What can be configured.
#[derive(Clone, Debug)]
pub struct BlobOptions {
    /// Where the bytes are that do not lie in rows.
    pub objects: Objects,
    /// Bytes of a blob, block or append that lie in a row at most.
    pub inline_bytes_max: u64,
    /// How long bytes that no row names any more are kept: backups that are being taken need them.
    pub keep_removed: Duration,
    /// How long an upload may take at most: then its object is removed.
    pub upload_max: Duration,
    /// How often to look for what can be removed.
    pub sweep_every: Duration,
    /// What an account or a blob may have of one process.
    pub rates: Rates,
}

impl BlobOptions {
    /// The usual ones.
    pub fn new(objects: Objects) -> BlobOptions {
        BlobOptions {
            objects,
            inline_bytes_max: 64 * 1024,
            keep_removed: Duration::from_secs(3600),
            upload_max: Duration::from_secs(24 * 3600),
            sweep_every: Duration::from_secs(30),
            rates: Rates::default(),
        }
    }
}

/// All containers of a cluster, as one process sees them.
pub struct BlobStore {
    kit: Kit,
    options: BlobOptions,
    /// Told when there is something to remove at once.
    tidy: Arc<Notify>,
    lost: Mutex<sweep::Lost>,
    depot: depot::Depot,
    limits: limits::Limits,
    /// Where writers of one blob wait for each other.
    turns: appends::Turns,
}

impl BlobStore {
    /// The store over its kit.
    pub fn new(kit: Kit, options: BlobOptions) -> BlobStore {
        let limits = limits::Limits::new(options.rates);
        let depot = depot::Depot::new(kit.now_ms());
        BlobStore {
            kit,
            limits,
            options,
            tidy: Arc::default(),
            lost: Mutex::default(),
            depot,
            turns: appends::Turns::default(),
        }
    }

    /// What it works with.
    pub(crate) fn kit(&self) -> &Kit {
        &self.kit
    }

    /// Counts a request against the quotas.
    fn admit(&self, home: &home::Home) -> Result<(), StoreError> {
        self.limits.admit(home.name.container().account(), &home.name.path()).map_err(Error::from)?;
        Ok(self.kit.admit(&home.placed, 1)?)
    }

    /// Counts bytes of a blob that are sent or taken.
    fn charge(&self, home: &home::Home, bytes: u64) {
        self.limits.charge(&home.name.path(), bytes);
    }

    /// A number that nothing else has: of a content, a stage, an object.
    fn new_number(&self) -> i64 {
        // Not 0, which is none.
        ((self.kit.random() >> 1) as i64).max(1)
    }

    fn new_object(&self) -> ObjectId {
        ObjectId::new(self.kit.random(), self.kit.random())
    }
}
