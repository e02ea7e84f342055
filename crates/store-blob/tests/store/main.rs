//! The store of blobs over real shards of both engines.

#![recursion_limit = "256"]

#[path = "../../../store-queue/tests/store/cluster.rs"]
mod cluster;
#[macro_use]
#[path = "../../../store-queue/tests/store/place.rs"]
mod place;
mod blobs;
mod breaks;
mod containers;
mod deleted;
mod depots;
mod listing;
mod protocol;
mod races;
mod rights;
mod tools;

use polyshard_shard::StoreSchema;
use polyshard_store::{Kit, Store, Stores};
use polyshard_store_blob::{DEFAULT_MAP, STORE, schema};

type Cluster = cluster::Cluster<Process>;

/// What a store is opened with: every test says where its objects are.
struct Process {
    kit: Kit,
}

impl cluster::Store for Process {
    const MAP: &'static str = DEFAULT_MAP;
    const DECLARATION: &'static Store = &STORE;
    const STORES: Stores = Stores(&[&STORE]);

    fn schema() -> StoreSchema {
        schema()
    }

    fn open(kit: Kit) -> Process {
        Process { kit }
    }

    /// Every shard has a part of the container that tests use.
    fn bounds() -> Option<&'static [&'static str]> {
        Some(&["acct/box/h", "acct/box/p"])
    }
}
