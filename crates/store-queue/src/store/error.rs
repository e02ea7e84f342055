//! Why the store did not do what was asked, named by what the client must do.

use polyshard_catalog::CatalogError;
use polyshard_engine as engine;
use polyshard_router::RouterError;
use polyshard_store::OverQuota;

use crate::message::{MESSAGE_BYTES_MAX, VISIBILITY_MS_MAX};

/// A refusal or failure of the store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Create it first.
    #[error("queue {0} does not exist")]
    NoSuchQueue(String),
    /// Choose another name, or the same metadata.
    #[error("queue {0} exists already with other metadata")]
    Exists(String),
    /// It was deleted or has expired.
    #[error("the message does not exist: it was deleted or has expired")]
    NoSuchMessage,
    /// Somebody else got or updated the message since.
    #[error("the pop receipt is not the message's last one: it was got or updated again since")]
    ReceiptMismatch,
    /// Choose a shorter time.
    #[error(
        "the message would become visible only after it has expired; choose a shorter visibility timeout"
    )]
    InvisibleTooLong,
    /// Choose a shorter time.
    #[error("a message can be invisible for 0 to {} seconds", VISIBILITY_MS_MAX / 1000)]
    InvisibleMax,
    /// Encode it.
    #[error(
        "the text has a character that a message cannot have, since XML has not; encode the text in base64"
    )]
    Unwritable,
    /// Send less.
    #[error("a message has at most {MESSAGE_BYTES_MAX} bytes in UTF-8")]
    TooLarge,
    /// Too many queues.
    #[error("{0}")]
    TooMany(String),
    /// The operator must create the map.
    #[error(
        "there is no map {0} for queues; create it with 'polyshard map create {0} --kind hash --key text'"
    )]
    NoMap(String),
    /// The queue's name does not fit the map it is bound to.
    #[error("queue {queue} cannot be placed: {error}")]
    Misplaced {
        /// Which.
        queue: String,
        /// Why.
        error: String,
    },
    /// Go on with the same request: it did a part.
    #[error("there was more to do than fits into one request; send it again")]
    Unfinished,
    /// What is stored is not what this program writes: call a human.
    #[error("stored {0} is damaged")]
    Damaged(&'static str),
    /// Slow down.
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    /// The router's answer.
    #[error(transparent)]
    Router(#[from] RouterError),
    /// The catalog's answer.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

impl StoreError {
    /// Whether the change may have been made all the same.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(
            self,
            StoreError::Router(RouterError::Engine(engine::Error::OutcomeUnknown { .. }))
                | StoreError::Catalog(CatalogError::Engine(engine::Error::OutcomeUnknown { .. }))
        )
    }
}
