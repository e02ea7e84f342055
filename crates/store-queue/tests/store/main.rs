//! The store of queues over real shards of both engines.

#![recursion_limit = "256"]

#[macro_use]
mod place;
mod behaviour;
mod bindings;
mod clock;
mod cluster;
mod crowd;
mod settings;
mod transact;

use polyshard_shard::StoreSchema;
use polyshard_store::{Kit, Store, Stores};
use polyshard_store_queue::{DEFAULT_MAP, QueueStore, STORE, schema};

type Cluster = cluster::Cluster<QueueStore>;

impl cluster::Store for QueueStore {
    const MAP: &'static str = DEFAULT_MAP;
    const DECLARATION: &'static Store = &STORE;
    const STORES: Stores = Stores(&[&STORE]);

    fn schema() -> StoreSchema {
        schema()
    }

    fn open(kit: Kit) -> QueueStore {
        QueueStore::new(kit)
    }
}
