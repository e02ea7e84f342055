//! The store of queues over real shards of both engines.

mod behaviour;
mod clock;
mod cluster;
mod crowd;
mod place;
