//! Why a backup was not taken or not restored, named by what the operator must do.

use std::path::Path;

use polyshard_catalog::CatalogError;
use polyshard_engine as engine;
use polyshard_map::ShardId;

/// Why a backup was not taken or not restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// Try again later.
    #[error("{0}")]
    Busy(String),
    /// Ask for something else, or prepare the place first.
    #[error("{0}")]
    Refused(String),
    /// Use another backup.
    #[error("{0}")]
    Damaged(String),
    /// Look after the machine: a disk or database failed.
    #[error("{0}")]
    Failed(String),
}

impl BackupError {
    pub(crate) fn of_file(path: &Path, error: &std::io::Error) -> BackupError {
        BackupError::Failed(format!("{}: {error}", path.display()))
    }

    pub(crate) fn of_shard(shard: &ShardId, error: impl std::fmt::Display) -> BackupError {
        BackupError::Failed(format!("shard {shard}: {error}"))
    }
}

impl From<CatalogError> for BackupError {
    fn from(error: CatalogError) -> BackupError {
        BackupError::Failed(format!("the catalog: {error}"))
    }
}

impl From<engine::Error> for BackupError {
    fn from(error: engine::Error) -> BackupError {
        BackupError::Failed(error.to_string())
    }
}
