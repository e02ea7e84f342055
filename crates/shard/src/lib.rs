//! One shard on an engine: local map, session hello, fence, dataset descriptors. Knows nothing of the catalog.
//!
//! The protocol is written once, in [`protocol`], as transactions over the small storage interface
//! [`LocalTx`]; `SqlLocal` runs them on a database, [`memory::MemoryLocal`] in the seeded simulation.

mod capture;
mod carrier;
mod carry;
mod dataset;
mod demand;
mod error;
mod filed;
mod functions;
mod gauge;
mod hello;
mod keys;
pub mod memory;
mod notation;
mod offline;
pub mod protocol;
mod registered;
mod schema;
mod shape;
mod shard;
mod sql_local;
mod strays;
mod taken;
mod tx;
mod types;
mod within;

pub use carrier::{Carrier, CarrierError, NamedIn, Pieces, Unnamed};
pub use carry::Captured;
pub use dataset::{Dataset, Placement, TableRows, part_name, whole_name};
pub use error::ShardError;
pub use filed::Native;
pub use gauge::Gauge;
pub use hello::{HelloState, Session};
pub use keys::RowKey;
pub use notation::{default_notation, one_notation};
pub use offline::OfflineClaim;
pub use schema::{SharedTable, StoreSchema, create_own_index, own_table_exists};
pub use shape::{Column, Shape, Travel};
pub use shard::{FENCE_CHANNEL, Shard, ShardOptions};
pub use strays::{StrayKind, StrayRow};
pub use taken::Taken;
pub use tx::LocalTx;
pub use types::{
    Ack, AckPhase, Demand, Departure, Edit, FenceAccess, FenceEpoch, FenceRow, FenceState, HelloReply,
    Learnt, LocalEntry, Meta, OpId, OpRef, OpRow, Phase, Role, RouterId,
};
pub use within::bind_within;
