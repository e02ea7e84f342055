//! Why a request was not carried out, named by what the caller must do.

use polyshard_catalog::CatalogError;
use polyshard_engine as engine;
use polyshard_map::{LocateError, MapName, ShardId};
use polyshard_shard::ShardError;

/// A router's refusal or failure.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RouterError {
    /// Fix the request: the key does not fit the map, or is not mapped.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// Fix the request: no such map.
    #[error("there is no map {0}; create it with 'polyshard map create {0}'")]
    NoSuchMap(MapName),
    /// Split the request: its keys are on several shards.
    #[error("the keys are on {} shards ({}); a request that names keys must stay on one", .0.len(), join(.0))]
    CrossShard(Vec<ShardId>),
    /// Come back later, or ask the operator: no writes there now.
    #[error("{0} is read-only at the moment")]
    ReadOnly(String),
    /// Come back later, or ask the operator: nothing goes there now.
    #[error("{0} is offline at the moment")]
    Offline(String),
    /// Try again: the range is being switched to another shard, and this transaction cannot wait for it.
    #[error("the range of map {0} is being moved; try the transaction again")]
    Moving(MapName),
    /// Try again later: the shard cannot be used at the moment.
    #[error("shard {shard} cannot be used at the moment: {error}")]
    Shard {
        /// Which.
        shard: ShardId,
        /// Why.
        error: ShardError,
    },
    /// Try again later: the map may have the key, but the catalog cannot be asked.
    #[error("the key is not in the map as last seen, and the catalog cannot be asked ({0}); try again later")]
    CatalogAway(String),
    /// The database's own answer.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// Some shards of a fan-out failed and all were needed.
    #[error("{} of {asked} shards failed: {}", .failed.len(), first_failure(.failed))]
    FanOut {
        /// How many were asked.
        asked: usize,
        /// Which failed, and how.
        failed: Vec<(ShardId, String)>,
    },
    /// Do not repeat it: the change is made, but some process may not know of it yet.
    #[error(
        "the change is made, but not all processes have confirmed that they know of it: {0}; do not repeat it"
    )]
    Unconfirmed(String),
    /// The saved snapshot cannot be used.
    #[error("saved map snapshot: {0}")]
    Saved(String),
    /// The catalog's answer.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

impl RouterError {
    /// Whether the same call may succeed later without anybody changing anything; nothing was applied.
    pub fn is_retryable(&self) -> bool {
        match self {
            RouterError::Moving(_) | RouterError::CatalogAway(_) => true,
            RouterError::Engine(error) => error.is_retryable(),
            RouterError::Shard { error, .. } => error.is_retryable(),
            RouterError::Catalog(error) => error.is_retryable(),
            _ => false,
        }
    }
}

fn join(shards: &[ShardId]) -> String {
    shards.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn first_failure(failed: &[(ShardId, String)]) -> String {
    failed.first().map(|(shard, why)| format!("shard {shard}: {why}")).unwrap_or_default()
}
