//! The store of tables over real shards of both engines.

#![recursion_limit = "256"]

#[path = "../../../store-queue/tests/store/cluster.rs"]
mod cluster;
#[macro_use]
#[path = "../../../store-queue/tests/store/place.rs"]
mod place;
mod entities;
mod filters;
mod memory;
mod protocol;
mod queries;
mod tables;
mod tools;
mod transact;

use std::sync::Arc;

use polyshard_shard::StoreSchema;
use polyshard_store::{Kit, Store, Stores};
use polyshard_store_table::{DEFAULT_MAP, STORE, TableStore, schema};

type Cluster = cluster::Cluster<TableStore>;

impl cluster::Store for TableStore {
    const MAP: &'static str = DEFAULT_MAP;
    const DECLARATION: &'static Store = &STORE;
    const STORES: Stores = Stores(&[&STORE]);

    fn schema() -> StoreSchema {
        schema()
    }

    fn open(kit: Kit) -> TableStore {
        TableStore::new(kit)
    }
}

impl place::Place {
    /// A process on the databases, with three shards; its clock stands still.
    async fn open(&self) -> Cluster {
        self.open_at(Arc::new(|| 17_947_275_160_000_000)).await
    }
}
