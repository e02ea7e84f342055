//! What can go wrong while rows are carried, and what the saga makes of it.

use polyshard_catalog::saga::Outcome;
use polyshard_catalog::{CatalogError, ShardSource};
use polyshard_engine as engine;
use polyshard_map::ShardId;
use polyshard_shard::ShardError;

/// A failure while rows are carried.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MoveError {
    /// A shard said no; its own error says whether to retry.
    #[error("shard {shard}: {error}")]
    Shard {
        /// Which.
        shard: ShardId,
        /// Why.
        error: ShardError,
    },
    /// The catalog said no.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// It cannot be moved as it is: fix what is named, then move again.
    #[error("{0}")]
    Refused(String),
    /// Not possible just now: it is tried again.
    #[error("{0}")]
    Later(String),
    /// Writers change rows faster than they are carried: they have to be held for a while.
    #[error("writers change rows faster than they are carried")]
    Behind,
}

impl MoveError {
    pub(crate) fn on(shard: &ShardId) -> impl Fn(ShardError) -> MoveError + use<> {
        let shard = shard.clone();
        move |error| MoveError::Shard { shard: shard.clone(), error }
    }

    pub(crate) fn engine(shard: &ShardId) -> impl Fn(engine::Error) -> MoveError + use<> {
        let shard = shard.clone();
        move |error| MoveError::Shard { shard: shard.clone(), error: error.into() }
    }

    /// Whether rows stand in each other's way: one refers to another that is not there, or has a value that only one
    /// may have. In another order, or together with others, they may not.
    pub(crate) fn is_rule(&self) -> bool {
        use engine::ConstraintKind::{ForeignKey, Other, Unique};
        matches!(
            self,
            MoveError::Shard {
                error: ShardError::Engine(engine::Error::Constraint {
                    kind: ForeignKey | Other | Unique,
                    ..
                }),
                ..
            }
        )
    }

    /// What the saga is told.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            MoveError::Shard { error: ShardError::Superseded(_), .. }
            | MoveError::Catalog(CatalogError::Superseded(_)) => Outcome::Superseded,
            MoveError::Shard { error, .. } if is_passing(error) => Outcome::Retry(self.to_string()),
            MoveError::Catalog(error) if error.is_retryable() => Outcome::Retry(self.to_string()),
            MoveError::Later(_) => Outcome::Retry(self.to_string()),
            MoveError::Behind => Outcome::Behind(self.to_string()),
            MoveError::Shard { .. } | MoveError::Catalog(_) | MoveError::Refused(_) => {
                Outcome::Refused(self.to_string())
            }
        }
    }
}

/// Whether the same may work later. A statement that waited too long for a lock or took too long counts: what
/// the mover does is bounded, and others may have been in its way. So does a row that refers to one of a reference
/// table: that one may come to the target a moment later.
fn is_passing(error: &ShardError) -> bool {
    let passes = matches!(
        error,
        ShardError::Engine(
            engine::Error::Timeout { .. }
                | engine::Error::Constraint { kind: engine::ConstraintKind::ForeignKey, .. }
        )
    );
    passes || error.is_retryable()
}

/// Shorthand.
pub(crate) type Result<T, E = MoveError> = std::result::Result<T, E>;

/// An open shard.
pub(crate) async fn shard(
    shards: &dyn ShardSource,
    id: &ShardId,
) -> Result<std::sync::Arc<polyshard_shard::Shard>> {
    shards.shard(id).await.map_err(MoveError::on(id))
}
