//! The global map on an engine: journalled changes, resolver, leases, notification.
//!
//! An operation is a saga: intent in the catalog, changes in the shards' local maps, publication in the
//! catalog. [`protocol`] has the catalog's transactions, [`saga`] the order of the steps, [`fence`] the
//! judgement of acknowledgements, all without I/O; [`Catalog`] and [`Driver`] do them on real databases.

mod alike;
mod archives;
mod barrier;
mod bindings;
mod carrier;
mod catalog;
mod check;
pub mod classify;
mod datasets;
mod driver;
mod error;
pub mod fence;
mod gone;
mod heat;
mod journal;
mod known;
mod links;
pub mod memory;
mod moves;
pub mod moving;
mod outcome;
mod procedures;
pub mod protocol;
mod resolver;
mod runs;
pub mod saga;
mod schema;
mod shards;
mod sql_catalog;
mod tx;
mod types;
mod users;
mod writes;

use std::time::Duration;

pub use alike::{Likeness, Texts};
pub use archives::{ARCHIVES_MAX, ArchiveRecord, ArchiveState, POLICIES_MAX, Policy};
pub use barrier::{BARRIER_HOLD, RaisedBarrier};
pub use bindings::{BINDING_SUFFIX, Binding, FAMILY_MARK, is_account_record};
pub use carrier::{Carrier, Carry, CarryTask, Progress, Wish};
pub use catalog::{CHANGE_CHANNEL, Catalog, Changes, Snapshot};
pub use check::{Difference, Found, merge_by_epoch};
pub use datasets::{DATASETS_MAX, DatasetRecord, KeyPart, KeyRule, MapScheme, QUOTA_STORE};
pub use driver::{Driver, Failpoint, ShardSource};
pub use error::CatalogError;
pub use fence::FenceLimits;
pub use gone::Gone;
pub use heat::SizeThen;
pub use journal::{
    DatasetOfTable, Decision, JournalEntry, JournalState, SHARD_NUMBERS_MAX, TURN_LEASE, TurnLease,
};
pub use links::LINKS_MAX;
pub use moves::{MoveRequest, MoveStatus, OnBehalf};
pub use procedures::{ARCHIVE, PROCEDURES_KEPT, ProcedureRecord, REPAIR, RESTORE_ARCHIVE, RULES_MAX};
pub use resolver::Resolver;
pub use runs::{Begun, RUN_LEASE, Run, RunBody, RunState};
pub use shards::{NewShard, ShardPatch};
pub use tx::CatalogTx;
pub use types::{
    ChangeRequest, Event, MapContents, MapRecord, OpRecord, OpState, Operation, PasswordSource, Publish,
    ShardLimits, ShardRecord, Step,
};
pub use users::{SETTINGS_STORE, TOKEN_STORE, USER_STORE, USERS_MAX, places_nothing};
pub use writes::{NewWrite, PARTS_PAGE, Pending, PendingPart, WriteRecord};

/// How long a driver may be silent before another takes its operation over. Long enough for a pause of
/// garbage or disk, short enough that nobody waits for a dead process.
pub const LEASE: Duration = Duration::from_secs(5);
