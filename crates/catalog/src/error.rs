//! What can go wrong in the catalog, named by what the caller must do.

use polyshard_engine as engine;
use polyshard_map::{ChangeError, MapName, ShardId};
use polyshard_shard::{OpId, ShardError};

/// A refusal or failure of the catalog.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CatalogError {
    /// The catalog's database said no; its own error says whether to retry.
    #[error("catalog: {0}")]
    Engine(#[from] engine::Error),
    /// A shard said no.
    #[error("shard {shard}: {error}")]
    Shard {
        /// Which.
        shard: ShardId,
        /// Why.
        error: ShardError,
    },
    /// Fix the request.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// Somebody else changed it: look again, decide again.
    #[error("{what} changed meanwhile: it is now at version {current}; look at it and decide again")]
    ChangedMeanwhile {
        /// What changed.
        what: String,
        /// Its version now.
        current: u64,
    },
    /// Another operation holds the ranges: wait for it.
    #[error("operation {op} ({kind}) is still under way there; wait for it, see 'polyshard ops show {op}'")]
    Busy {
        /// The operation in the way.
        op: OpId,
        /// What it does.
        kind: String,
    },
    /// No such map.
    #[error("there is no map {0}; see 'polyshard map list'")]
    NoSuchMap(MapName),
    /// No such shard.
    #[error("there is no shard {0}; see 'polyshard shard list'")]
    NoSuchShard(ShardId),
    /// No such operation.
    #[error("there is no operation {0}; see 'polyshard ops list'")]
    NoSuchOperation(OpId),
    /// No such dataset.
    #[error("there is no {0}; create it first")]
    NoSuchDataset(String),
    /// The name is taken.
    #[error("{0} exists already")]
    Exists(String),
    /// It holds data or ranges: an explicit word is needed.
    #[error("{what}; {remedy}")]
    HoldsData {
        /// What holds what.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The operation was rolled back.
    #[error("the change was rolled back: {0}")]
    RolledBack(String),
    /// The operation goes on by itself.
    #[error("operation {op} is not finished yet and goes on by itself: {why}; see 'polyshard ops show {op}'")]
    Unfinished {
        /// Which.
        op: OpId,
        /// What it waits for.
        why: String,
    },
    /// Another driver owns the operation.
    #[error("operation {0} is driven by another process now")]
    Superseded(OpId),
    /// A change of tables is not on all shards yet: try again soon.
    #[error("{0}")]
    Unsettled(String),
    /// Fix the request, or the deployment.
    #[error("{0}")]
    Invalid(String),
    /// Delete some first.
    #[error("{0}")]
    TooMany(String),
    /// A store's own map cannot be made: bring a shard online.
    #[error("map {map} cannot be created: {why}; bring a shard online")]
    NoRoomForMap {
        /// Which.
        map: MapName,
        /// Why.
        why: String,
    },
    /// Written by a newer version of the program: upgrade this process.
    #[error("catalog format {found} is newer than this program's {known}; upgrade this process")]
    FormatTooNew {
        /// The stored format.
        found: i64,
        /// The newest one this program knows.
        known: i64,
    },
    /// Stored bytes that do not decode: call a human.
    #[error("stored {what} is damaged: {detail}")]
    Damaged {
        /// Which record.
        what: &'static str,
        /// How it failed to decode.
        detail: String,
    },
}

impl CatalogError {
    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            CatalogError::Engine(error) => {
                error.is_retryable() || matches!(error, engine::Error::OutcomeUnknown { .. })
            }
            CatalogError::Shard { error, .. } => error.is_retryable(),
            CatalogError::Busy { .. } | CatalogError::Unsettled(_) => true,
            _ => false,
        }
    }
}
