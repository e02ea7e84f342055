//! Why a server did not start, or did not end well.

use std::path::PathBuf;

use polyshard_admin::{AuthError, ErrorCode, Problem};
use polyshard_backup::BackupError;
use polyshard_catalog::CatalogError;
use polyshard_router::RouterError;
use polyshard_store::StartError;
use polyshard_wire::BindError;

use crate::config::SecretError;
use crate::problem;

/// A server that cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The data directory cannot be used.
    #[error("the data directory {} cannot be used: {reason}", .path.display())]
    Data {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Another server runs on it.
    #[error("another server is running on the data directory {} ({holder})", .path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
        /// Who has it.
        holder: String,
    },
    /// A password or token cannot be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The admin door's token will not do.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// A front door cannot be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The catalog, as configured.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The router.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// A backup cannot be used, or a place for one.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// A store cannot start as it is configured.
    #[error(transparent)]
    Store(#[from] StartError),
    /// The configuration does not fit what is there.
    #[error("{0}")]
    Config(String),
    /// The system refuses something basic.
    #[error("{0}")]
    System(String),
}

impl ServerError {
    /// The same in the words of the command line.
    pub fn into_problem(self) -> Problem {
        match self {
            ServerError::InUse { .. } => Problem::new(ErrorCode::Busy, self.to_string())
                .with_remedy("stop that server first, or give this one another directory with --data"),
            ServerError::Data { .. } => Problem::new(ErrorCode::Invalid, self.to_string()).with_remedy(
                "check that the directory exists, has room and may be written, or name another with --data",
            ),
            ServerError::Bind(_) => Problem::new(ErrorCode::Conflict, self.to_string())
                .with_remedy("stop what listens there, or set another address in the configuration"),
            ServerError::Catalog(error) => problem::of_catalog(&error),
            ServerError::Router(error) => problem::of_router(&error),
            ServerError::Backup(error) => {
                let code = match &error {
                    BackupError::Busy(_) => ErrorCode::Busy,
                    BackupError::Refused(_) => ErrorCode::Invalid,
                    // A difference that a check has found.
                    BackupError::Damaged(_) => ErrorCode::Conflict,
                    BackupError::Failed(_) => ErrorCode::Unavailable,
                };
                Problem::new(code, error.to_string())
            }
            other => Problem::new(ErrorCode::Invalid, other.to_string()),
        }
    }
}
