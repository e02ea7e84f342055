//! Config and wiring: the only crate that names all stores.

mod archives;
mod backups;
mod checking;
pub mod config;
mod connect;
mod data_dir;
mod doors;
mod error;
mod failpoint;
mod logging;
mod operator;
mod problem;
mod rebalancing;
mod run;
mod sql_door;
mod stores;
mod traces;
mod watch;

use std::sync::Arc;

pub use backups::{
    BACKUP_CANCELLED, DepotBackup, check_backup, list_backups, prune_backups, restore, restore_shard,
};
pub use error::ServerError;
pub use polyshard_azure_storage::{AccountKey, DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY, Timestamp};
pub use run::run;

/// Looks up an environment variable.
type Variables = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What a server is given beside its configuration.
#[derive(Clone)]
pub struct RunOptions {
    variables: Arc<Variables>,
}

impl RunOptions {
    /// `variables` looks up the environment for passwords and tokens that are kept there.
    pub fn new(variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> RunOptions {
        RunOptions { variables: Arc::new(variables) }
    }

    /// An environment variable of the process.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name)
    }
}
