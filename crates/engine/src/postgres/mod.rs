//! The PostgreSQL engine: one group writer, pipelined readers, a pool for transactions and scans.

mod connect;
mod engine;
mod error;
mod listen;
mod outcome;
mod pool;
mod pooler;
mod raw;
mod raw_connect;
mod raw_pool;
mod raw_run;
mod readers;
mod scan;
mod session;
mod tls;
mod transaction;
mod types;
mod writer;

pub(crate) use engine::Engine;
pub use raw::{RawFrame, RawSession};
pub use raw_connect::RawCancel;
pub use raw_pool::RawLent;
pub(crate) use scan::PostgresScan;
pub(crate) use session::Session;
pub(crate) use transaction::PostgresTransaction;
