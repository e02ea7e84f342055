//! The store of queues over real shards of both engines.

#[macro_use]
mod place;
mod behaviour;
mod bindings;
mod clock;
mod cluster;
mod crowd;
mod transact;

use std::sync::Arc;

use polyshard_catalog::Driver;
use polyshard_router::Router;
use polyshard_shard::StoreSchema;
use polyshard_store_queue::{DEFAULT_MAP, QueueStore, schema};

type Cluster = cluster::Cluster<QueueStore>;

impl cluster::Store for QueueStore {
    const MAP: &'static str = DEFAULT_MAP;

    fn schema() -> StoreSchema {
        schema()
    }

    fn open(router: Arc<Router>, driver: Arc<Driver>, clock: cluster::Clock) -> QueueStore {
        QueueStore::new(router, driver, clock, Arc::new(rand::random))
    }
}
