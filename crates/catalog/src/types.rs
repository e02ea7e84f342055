//! The catalog's records. Values only.

use polyshard_map::{Change, Delta, Entry, Epoch, KeyRange, MapDefinition, MapName, ShardId, State};
use polyshard_shard::{Edit, OpId, OpRef, Role};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::carrier::Carry;
use crate::datasets::DatasetRecord;

/// How the server finds the password of a shard. The password itself is never stored in the catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PasswordSource {
    /// None, or in this server's config.
    #[default]
    Config,
    /// An environment variable of the server.
    Env(String),
    /// A file that the server can read.
    File(String),
}

/// Limits of a shard; none means no limit known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardLimits {
    /// Bytes it may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// Connections it may be asked for, by one server process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_max: Option<u64>,
    /// Shardlets that may be placed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shardlets_max: Option<u64>,
}

/// A shard as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardRecord {
    /// Its name.
    pub id: ShardId,
    /// Its address, without a password.
    pub url: String,
    /// Where its password comes from.
    pub password: PasswordSource,
    /// The server that hosts it.
    pub server: Option<String>,
    /// Where it is.
    pub region: Option<String>,
    /// What class of storage it is.
    pub tier: Option<String>,
    /// What it can take.
    pub limits: ShardLimits,
    /// Whether it serves.
    pub state: State,
    /// The incarnation that routers must find there.
    pub incarnation: Uuid,
    /// Grows with every change of this record.
    pub version: u64,
}

/// A map as the catalog knows it, without its entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MapRecord {
    /// Name, key type, scheme.
    pub definition: MapDefinition,
    /// The epoch of its last change in force.
    pub epoch: Epoch,
    /// Grows with every change that is begun or given up; what operators compare.
    pub version: u64,
    /// Whether routers may see it: not while it is being created.
    pub live: bool,
}

/// What an operator asks of a map.
#[derive(Debug, Clone)]
pub struct ChangeRequest {
    /// The map.
    pub map: MapName,
    /// The change.
    pub change: Change,
    /// The version that the operator saw, if he insists on it.
    pub if_version: Option<u64>,
    /// The lock owner he acts as.
    pub by: Option<String>,
}

/// What an operation makes of the catalog when it is published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Publish {
    /// Entries change.
    Delta(Delta),
    /// A new map, whose entries were staged, is in force.
    Live,
    /// The map is gone.
    Gone,
}

/// How far an operation is, as recorded before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A new map's entries are being written; only here can the data still be missing.
    Staging,
    /// Shards record the change; can be rolled back.
    Preparing,
    /// Rows are copied to their new shard; can be rolled back.
    Copying,
    /// What changed meanwhile is carried after, and compared; can be rolled back.
    CatchingUp,
    /// Routers are asked to hold; can be rolled back.
    Fencing,
    /// Ranges leave: only forward from here.
    Departing,
    /// What was prepared comes into force.
    Activating,
    /// The rows have moved; the old ones are kept for a while.
    Keeping,
    /// The old rows are removed.
    Cleaning,
    /// Everything prepared is undone.
    RollingBack,
}

impl Step {
    /// The stored word.
    pub fn as_str(self) -> &'static str {
        match self {
            Step::Staging => "staging",
            Step::Preparing => "preparing",
            Step::Copying => "copying",
            Step::CatchingUp => "catching_up",
            Step::Fencing => "fencing",
            Step::Departing => "departing",
            Step::Activating => "activating",
            Step::Keeping => "keeping",
            Step::Cleaning => "cleaning",
            Step::RollingBack => "rolling_back",
        }
    }
}

/// How an operation ended, or that it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpState {
    /// Under way.
    Running,
    /// In force.
    Done,
    /// Undone.
    RolledBack,
}

/// A journalled operation on one map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Its name.
    pub id: OpId,
    /// What the operator would call it.
    pub kind: String,
    /// The map.
    pub map: MapName,
    /// Its epoch, never given twice.
    pub epoch: Epoch,
    /// The ranges it touches: no second operation may, until it has ended.
    pub touches: Vec<KeyRange>,
    /// What it does to each shard.
    pub edits: Vec<(ShardId, Edit)>,
    /// What it does to the catalog.
    pub publish: Publish,
    /// The rows that move with it, if any do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carry: Option<Carry>,
}

impl Operation {
    /// The edits that need the fence.
    pub fn losers(&self) -> Vec<usize> {
        self.with_role(Role::needs_fence)
    }
    /// The edits by which ranges arrive.
    pub fn gainers(&self) -> Vec<usize> {
        self.with_role(|role| role == Role::Gain)
    }
    /// Whether its entries come from the catalog's staged rows rather than from the edits.
    pub fn is_staged(&self) -> bool {
        self.publish == Publish::Live
    }
    fn with_role(&self, wanted: impl Fn(Role) -> bool) -> Vec<usize> {
        (0..self.edits.len()).filter(|index| wanted(self.edits[*index].1.role)).collect()
    }
}

/// An operation with its progress, as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct OpRecord {
    /// What it is.
    pub op: Operation,
    /// How far it is.
    pub step: Step,
    /// Whether it has ended.
    pub state: OpState,
    /// Counts the drivers it has had.
    pub token: u64,
    /// Who drives it.
    pub owner: String,
    /// Until when the driver may be silent, by the catalog's clock.
    pub lease_until_ms: i64,
    /// When it began.
    pub started_ms: i64,
    /// Why it is being rolled back, or what it is waiting for.
    pub message: Option<String>,
}

impl OpRecord {
    /// How a driver names the operation to a shard.
    pub fn op_ref(&self) -> OpRef {
        OpRef { id: self.op.id, epoch: self.op.epoch, token: self.token }
    }
}

/// One published change, in the order of publication.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// Entries of a map changed.
    Changed {
        /// The map.
        map: MapName,
        /// Its new epoch.
        epoch: Epoch,
        /// Its new version.
        version: u64,
        /// The change.
        delta: Delta,
    },
    /// A map must be read anew: created or rebuilt.
    Reload {
        /// The map.
        map: MapName,
    },
    /// A map is gone.
    Dropped {
        /// The map.
        map: MapName,
    },
    /// The list of shards must be read anew.
    Shards,
    /// A dataset is new or has changed.
    Dataset {
        /// As it is now.
        record: DatasetRecord,
    },
    /// A dataset is gone.
    DatasetGone {
        /// Its store.
        store: String,
        /// Its name.
        name: String,
    },
    /// The journal of what all shards have alike has grown.
    Journal {
        /// Its last position now.
        position: u64,
    },
}

/// A map's entries together with its record.
#[derive(Debug, Clone)]
pub struct MapContents {
    /// The record.
    pub record: MapRecord,
    /// All entries, in key order.
    pub entries: Vec<Entry>,
}
