//! What can go wrong on a shard, named by what the caller must do.

use polyshard_engine as engine;
use polyshard_map::{MapName, ShardId};

use crate::{FenceEpoch, OpId};

/// A shard's refusal or failure.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ShardError {
    /// The database said no; its own error says whether to retry.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// Another driver has taken the operation over: stop, it is theirs now.
    #[error("operation {0} was taken over by another process; nothing more to do here")]
    Superseded(OpId),
    /// The operation is past its point of no return on this shard: only forward.
    #[error("operation {0} has passed its point of no return on this shard; it can only be finished")]
    PastReturn(OpId),
    /// The fence was withdrawn or replaced: fence again.
    #[error("the fence of operation {0} is no longer intact; it must be raised again")]
    FenceBroken(OpId),
    /// The local map differs from what the operation expects: compare and repair.
    #[error(
        "the local map of {map} on this shard differs from the catalog: {detail}; run 'polyshard map check {map}'"
    )]
    LocalMapDiffers {
        /// The map concerned.
        map: MapName,
        /// What was found.
        detail: String,
    },
    /// A range that should be empty holds rows: move it instead.
    #[error("the range holds data of dataset {dataset}; move it instead of assigning it")]
    HoldsData {
        /// The dataset that has rows there.
        dataset: String,
    },
    /// Rows changed that the move has not carried yet: carry them, then fence again.
    #[error("rows of operation {0} changed that are not carried yet; it goes on by itself")]
    TailLeft(OpId),
    /// The dataset cannot be moved as it is: change it.
    #[error("{dataset} cannot be moved: {why}")]
    CannotMove {
        /// The dataset.
        dataset: String,
        /// What is in the way, and what to do.
        why: String,
    },
    /// The placement of a row cannot be computed in SQL: bind the table to another map.
    #[error("rows of map {map} cannot be placed by the columns of a table: {why}; bind it to another map")]
    Uncomputable {
        /// The map concerned.
        map: MapName,
        /// What is in the way.
        why: String,
    },
    /// The database belongs to another shard or cluster: fix the address, or attach it.
    #[error("this database is {found}, not {wanted}; check the address, or attach the shard")]
    WrongDatabase {
        /// What was asked for.
        wanted: String,
        /// What is there.
        found: String,
    },
    /// The database holds no shard: add it first.
    #[error("this database holds no shard yet; add it with 'polyshard shard add'")]
    NotAShard,
    /// The database of a shard that has been used is empty or gone: put it back, or give the shard up.
    #[error(
        "shard {shard} is lost: {why}; put its database back, or restore it from a backup ('polyshard shard detach \
         {shard}' takes it out of the cluster)"
    )]
    Lost {
        /// The shard.
        shard: ShardId,
        /// What was found in its place.
        why: String,
    },
    /// The database has ranges from an earlier life: attach it, so that they are compared with the map.
    #[error(
        "this database was shard {shard} before and still has its ranges; attach it with 'polyshard shard attach'"
    )]
    WasAShard {
        /// The shard it was.
        shard: ShardId,
    },
    /// The shard knows less than it has told: it was restored or failed over to an older copy.
    #[error(
        "shard {shard} has gone back in time: it was restored, or failed over to a copy that lagged; compare with \
         'polyshard map check', then detach and attach it"
    )]
    WentBack {
        /// The shard concerned.
        shard: ShardId,
    },
    /// Written by a newer version of the program: upgrade this process.
    #[error("shard format {found} is newer than this program's {known}; upgrade this process")]
    FormatTooNew {
        /// The stored format.
        found: i64,
        /// The newest one this program knows.
        known: i64,
    },
    /// The shard was restored or attached anew: reload the catalog before using it.
    #[error("shard {shard} has a new incarnation; the map must be read again before it is used")]
    IncarnationChanged {
        /// The shard concerned.
        shard: ShardId,
    },
    /// The fence or departure is of a map whose segments the router may not know yet: read the catalog first.
    #[error(
        "shard {shard} speaks of a map whose segments may have changed; the map must be read again first"
    )]
    OldMap {
        /// The shard concerned.
        shard: ShardId,
        /// Up to which number of the shard's the map must be read for.
        upto: FenceEpoch,
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

impl ShardError {
    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            ShardError::Engine(error) => {
                error.is_retryable() || matches!(error, engine::Error::OutcomeUnknown { .. })
            }
            ShardError::FenceBroken(_) | ShardError::TailLeft(_) => true,
            _ => false,
        }
    }
}
