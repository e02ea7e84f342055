//! The SQLite engine: one file, one writer thread, readers on the caller's thread.

mod checkpoint;
mod connection;
mod engine;
mod error;
mod gather;
mod lock;
mod moment;
mod readers;
mod register;
mod room;
mod scan;
mod seen;
mod transaction;
mod version;
mod writer;

pub(crate) use connection::StatementStopper;
pub(crate) use engine::Engine;
pub(crate) use moment::Moment;
pub(crate) use scan::SqliteScan;
pub use seen::{Glimpse, Look, Seen};
pub(crate) use transaction::{ReadTransaction, WriteTransaction};
