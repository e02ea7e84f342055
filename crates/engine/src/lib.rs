//! A database to run batches and transactions on: SQLite and PostgreSQL behind one interface. It knows
//! nothing of maps.

mod database;
mod dialect;
mod error;
mod functions;
mod group;
mod guard;
mod listener;
mod options;
mod postgres;
mod rows;
mod scan;
mod secret;
mod session;
mod snapshot;
mod sqlite;
mod statement;
mod target;
mod transaction;
mod value;

pub use database::{ATTACHED_MAX, Database, Durable, Stats};
pub use dialect::Dialect;
pub use error::{ConstraintKind, Error};
pub use functions::{Accumulator, AccumulatorMaker, Aggregate, Collation, ScalarBody, ScalarFunction};
pub use guard::{Generation, Guard, Guarded};
pub use listener::{Event, Listener};
pub use options::Options;
pub use postgres::{RawCancel, RawFrame, RawLent, RawSession};
pub use rows::{Row, Rows};
pub use scan::{SCAN_PAGE_ROWS_MAX, Scan};
pub use secret::Secret;
pub use session::{HookFuture, SessionHandle, SessionHook};
pub use snapshot::{CopyProgress, Snapshot, Version};
pub use sqlite::{Glimpse, Look, Seen};
pub use statement::{Batch, Expect, NOTIFY_CHANNEL_BYTES_MAX, NOTIFY_PAYLOAD_BYTES_MAX, Statement};
pub use target::{PostgresTarget, SqliteTarget, SslMode, Target};
pub use transaction::{Access, Stopper, Transaction, TransactionScan};
pub use value::Value;

/// The result of asking a database something.
pub type Result<T, E = Error> = std::result::Result<T, E>;
