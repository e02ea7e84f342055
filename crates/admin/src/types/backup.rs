//! Backups and restorations: copies of everything at one moment, of shards, or of one shardlet.

use polyshard_map::{MapName, ShardId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A backup to be taken.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBackup {
    /// Where: a folder on the server's machine from its root, `s3://bucket/prefix/name` or
    /// `az://container/prefix/name`. Without it a new name in the configured place (`backup.to`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Only these shards, without the catalog; everything if nothing is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub shards: Option<Vec<ShardId>>,
    /// Only one shardlet: its map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub map: Option<MapName>,
    /// Only one shardlet: its key, as people write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A shardlet to be restored beside the running rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRestore {
    /// The backup's address, as it was given when it was taken.
    pub from: String,
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// The key, as people write it.
    pub key: String,
    /// Whether the rows that it has now are replaced; otherwise it must have none.
    #[serde(default)]
    pub replace: bool,
    /// Whether all keys of its bucket are meant, where rows do not tell their key.
    #[serde(default)]
    pub bucket: bool,
}

/// How far a backup or restoration is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackupState {
    /// It is under way.
    Running,
    /// It is done.
    Done,
    /// It was not done; `message` says why.
    Failed,
}

impl std::fmt::Display for BackupState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            BackupState::Running => "running",
            BackupState::Done => "done",
            BackupState::Failed => "failed",
        })
    }
}

/// What must be done about one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackupFailure {
    /// Try again later.
    Busy,
    /// Ask for something else, or prepare the place first; also if it was cancelled.
    Refused,
    /// Use another backup.
    Damaged,
    /// Look after the machine: a disk, database or object store failed, or the process is gone.
    Failed,
}

/// One backup or restoration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Backup)]
pub struct BackupView {
    /// Its number in the cluster.
    pub id: u64,
    /// `backup` or `restore`.
    pub kind: String,
    /// The backup's address.
    pub to: String,
    /// What of the cluster: `everything`, names of shards, or a map and a key.
    pub what: String,
    /// The class of the schedule that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// How far it is.
    pub state: BackupState,
    /// The moment the backup is of, in milliseconds since 1970; 0 before it is held.
    pub moment_ms: i64,
    /// Databases to copy, the catalog included; 0 before the moment is held.
    pub databases: u64,
    /// Databases copied.
    pub copied: u64,
    /// Bytes of the copies.
    pub bytes: u64,
    /// Bytes that were new, as stored; the rest was there from earlier backups.
    pub new_bytes: u64,
    /// Rows of a shardlet.
    pub rows: u64,
    /// How long writes waited when the moment was held.
    pub pause_ms: u64,
    /// When it was asked for, in milliseconds since 1970.
    pub began_ms: i64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<i64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What must be done about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<BackupFailure>,
}

/// A schedule of backups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BackupSchedule)]
pub struct ScheduleView {
    /// The class of criticality.
    pub class: String,
    /// Seconds from one backup to the next.
    pub every_seconds: u64,
    /// How many are kept.
    pub keep: u64,
    /// What is backed up: `everything`, `tier …` or `map …`.
    pub what: String,
    /// When the last one that was done began; none if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<i64>,
}

/// The backups and restorations of the cluster, the latest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Backups)]
pub struct BackupsAnswer {
    /// The latest first, at most 100.
    pub backups: Vec<BackupView>,
    /// The schedules of this process's configuration.
    #[serde(default)]
    pub schedules: Vec<ScheduleView>,
}
