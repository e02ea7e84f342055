//! Why the store did not do what was asked, named by what the client must do.

use polyshard_store::{Error, ErrorKind};

use crate::message::{MESSAGE_BYTES_MAX, VISIBILITY_MS_MAX};
use crate::name::QueueName;

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
    /// The queue's name does not fit the map it is bound to.
    #[error("{error}")]
    Misplaced {
        /// Which.
        queue: String,
        /// Why.
        error: String,
    },
    /// Go on with the same request: it did a part.
    #[error("there was more to do than fits into one request; send it again")]
    Unfinished,
    /// What every store can be refused for.
    #[error(transparent)]
    Kit(#[from] Error),
}

impl StoreError {
    /// An error about where a queue is.
    pub(super) fn of_kit(queue: &QueueName, error: Error) -> StoreError {
        match error.kind {
            ErrorKind::NoDataset => StoreError::NoSuchQueue(queue.to_string()),
            ErrorKind::Invalid => {
                StoreError::Misplaced { queue: queue.name().to_owned(), error: error.message }
            }
            _ => StoreError::Kit(error),
        }
    }

    /// Whether the change may have been made all the same.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, StoreError::Kit(error) if error.is_outcome_unknown())
    }
}
