//! Why the store did not do what was asked, named by what the client must do.

use polyshard_catalog::CatalogError;
use polyshard_engine as engine;
use polyshard_router::RouterError;
use polyshard_store::{Error, OverQuota};

use crate::entity::InputError;

/// A refusal or failure of the store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Create it first.
    #[error("table {0} does not exist")]
    NoSuchTable(String),
    /// Choose another name, or use the one that is there.
    #[error("table {0} exists already")]
    TableExists(String),
    /// It was never inserted, or was deleted.
    #[error("the entity does not exist")]
    NoSuchEntity,
    /// Update it instead, or choose another key.
    #[error("the entity exists already")]
    EntityExists,
    /// Read it again and decide anew.
    #[error("the entity was changed since it was read")]
    Changed,
    /// Send another entity.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Try again: others were always quicker.
    #[error("the entity is changed by so many at once that this change did not come through; try again")]
    Contended,
    /// The operator must create the map.
    #[error(
        "there is no map {0} for tables; create it with 'polyshard map create {0} --kind hash --key text'"
    )]
    NoMap(String),
    /// The partition key does not fit the map that the table is bound to.
    #[error("partition key {key:?} cannot be placed: {error}")]
    Misplaced {
        /// Which.
        key: String,
        /// Why.
        error: String,
    },
    /// What is stored is not what this program writes: call a human.
    #[error("stored {what} is damaged: {detail}")]
    Damaged {
        /// What.
        what: &'static str,
        /// How.
        detail: String,
    },
    /// What every store can be refused for.
    #[error(transparent)]
    Kit(#[from] Error),
    /// Slow down.
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    /// The router's answer.
    #[error(transparent)]
    Router(RouterError),
}

impl From<RouterError> for StoreError {
    fn from(error: RouterError) -> StoreError {
        match error {
            // Deleted since it was looked up.
            RouterError::Catalog(CatalogError::NoSuchDataset(name)) => StoreError::NoSuchTable(
                name.split_once(' ').map_or(name.clone(), |(_, name)| name.to_owned()),
            ),
            other => StoreError::Router(other),
        }
    }
}

impl StoreError {
    /// Whether the change may have been made all the same.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, StoreError::Router(RouterError::Engine(engine::Error::OutcomeUnknown { .. })))
            || matches!(self, StoreError::Kit(error) if error.is_outcome_unknown())
    }
}
