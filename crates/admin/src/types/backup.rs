//! Backups: copies of everything at one moment.

use polyshard_map::ShardId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A backup to be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBackup {
    /// The folder on the server's machine, from its root, that will be the backup; it may not exist yet.
    pub to: String,
    /// Only these shards, without the catalog; everything if none are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub shards: Option<Vec<ShardId>>,
}

/// How far a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackupState {
    /// It is being taken.
    Running,
    /// It is whole.
    Done,
    /// There is none; `message` says why.
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

/// One backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Backup)]
pub struct BackupView {
    /// Its number in this server process.
    pub id: u64,
    /// The folder.
    pub to: String,
    /// How far it is.
    pub state: BackupState,
    /// Databases to copy, the catalog included; 0 before the moment is held.
    pub databases: u64,
    /// Databases copied.
    pub copied: u64,
    /// Bytes of the copies.
    pub bytes: u64,
    /// How long writes waited when the moment was held.
    pub pause_ms: u64,
    /// When it was asked for, in milliseconds since 1970.
    pub began_ms: i64,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The backups that this server process has taken since its start, the latest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Backups)]
pub struct BackupsAnswer {
    /// The latest first, at most 100.
    pub backups: Vec<BackupView>,
}
