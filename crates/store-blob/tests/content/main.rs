//! What blobs consist of, over real shards of both engines: blocks, appends, pages, snapshots and copies, against a
//! model that shares no code with the store.

#![recursion_limit = "256"]

#[path = "../../../store-queue/tests/store/cluster.rs"]
mod cluster;
#[macro_use]
#[path = "../../../store-queue/tests/store/place.rs"]
mod place;
mod appends;
mod backend;
mod blocks;
mod copies;
mod model;
mod pages;
mod pauses;
mod process;
mod random;

use polyshard_shard::StoreSchema;
use polyshard_store::{Kit, Store, Stores};
use polyshard_store_blob::{DEFAULT_MAP, STORE, schema};

/// What a cluster of these tests opens: each test makes its stores of it, with objects in a place of its own.
pub struct Opened(pub Kit);

impl cluster::Store for Opened {
    const MAP: &'static str = DEFAULT_MAP;
    const DECLARATION: &'static Store = &STORE;
    const STORES: Stores = Stores(&[&STORE]);

    fn schema() -> StoreSchema {
        schema()
    }

    fn open(kit: Kit) -> Opened {
        Opened(kit)
    }
}
