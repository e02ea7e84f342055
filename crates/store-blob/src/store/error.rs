//! Why the store did not do what was asked, named by what the client must do.

use polyshard_engine as engine;
use polyshard_store::{Error, ErrorKind, Reason};

use crate::checksum::ChecksumError;
use crate::conditions::ConditionError;
use crate::lease_rules::LeaseError;
use crate::name::{BlobName, ContainerName};
use crate::objects::ObjectError;

/// A refusal or failure of the store.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Create it first.
    #[error("container {0} does not exist")]
    NoSuchContainer(String),
    /// Choose another name.
    #[error("container {0} exists already")]
    ContainerExists(String),
    /// It was never put, or was deleted.
    #[error("blob {0} does not exist")]
    NoSuchBlob(String),
    /// It is of another kind, which cannot do this.
    #[error("blob {0} is of another kind")]
    WrongKind(String),
    /// A condition of the request is not met.
    #[error(transparent)]
    Condition(#[from] ConditionError),
    /// The container's lease is in the way.
    #[error("container: {0}")]
    ContainerLease(LeaseError),
    /// The blob's lease is in the way.
    #[error("blob: {0}")]
    BlobLease(LeaseError),
    /// The bytes are not those that the client meant to send.
    #[error("the bytes are not those that were sent: {0:?}")]
    Checksum(ChecksumError),
    /// Delete them too, or first.
    #[error("the blob has snapshots; delete them too, or first")]
    SnapshotsPresent,
    /// Ask for bytes that it has.
    #[error("the blob has {size} bytes, and none in the range")]
    InvalidRange {
        /// Bytes of the blob.
        size: u64,
    },
    /// A snapshot cannot be changed.
    #[error("a snapshot cannot be changed; name the blob itself")]
    SnapshotUnchangeable,
    /// It is in the archive: set another tier first.
    #[error("blob {0} is archived; set its tier to Hot, Cool or Cold first")]
    Archived(String),
    /// A block list names a block that there is not, or a block id of another length than the others was put.
    #[error("{0}")]
    InvalidBlockList(String),
    /// All block ids of a blob have the same length.
    #[error("the block id has another length than those of the other blocks")]
    InvalidBlockId,
    /// Commit the blocks first.
    #[error("the blob has {0} blocks, which is the most there can be")]
    TooManyBlocks(usize),
    /// Send less at a time.
    #[error("at most {max} bytes can be sent at a time")]
    TooLarge {
        /// Bytes.
        max: u64,
    },
    /// The append position is another one.
    #[error("the blob has another length than the append position given")]
    AppendPosition,
    /// It would be longer than the client wants it.
    #[error("the blob would be longer than the size given")]
    MaxSize,
    /// It takes no more.
    #[error("the blob is sealed")]
    Sealed,
    /// The sequence number does not meet the condition.
    #[error("the sequence number does not meet the condition")]
    SequenceNumber,
    /// The pages are not within the blob.
    #[error("the pages are not within the blob's {size} bytes")]
    InvalidPageRange {
        /// Bytes of the blob.
        size: u64,
    },
    /// The snapshot to compare with is none, or is newer.
    #[error("the snapshot to compare with does not exist or is newer than the blob")]
    InvalidSnapshot,
    /// There is no copy under way with this id.
    #[error("no copy with this id is under way")]
    NoPendingCopy,
    /// The source of a copy.
    #[error("copy source: {0}")]
    Source(Box<StoreError>),
    /// The client broke off, or sent other bytes than it said.
    #[error("{0}")]
    Client(String),
    /// The name does not fit the map that the container is bound to.
    #[error("{error}")]
    Misplaced {
        /// Which.
        name: String,
        /// Why.
        error: String,
    },
    /// Others were always quicker: try again.
    #[error("blob {0} is changed by so many at once that this change did not come through; try again")]
    Contended(String),
    /// The marker is none that a list has given.
    #[error("the marker is none that an earlier part of this list has given")]
    InvalidMarker,
    /// This is not there yet.
    #[error("{0} is not built")]
    NotBuilt(&'static str),
    /// What every store can be refused for.
    #[error(transparent)]
    Kit(#[from] Error),
}

impl StoreError {
    /// An error about where a container is.
    pub(super) fn of_container(container: &ContainerName, error: Error) -> StoreError {
        match error.kind {
            ErrorKind::NoDataset => StoreError::NoSuchContainer(container.to_string()),
            _ => StoreError::Kit(error),
        }
    }

    /// An error about where a blob is.
    pub(super) fn of_blob(name: &BlobName, error: Error) -> StoreError {
        match error.kind {
            ErrorKind::NoDataset => StoreError::NoSuchContainer(name.container().to_string()),
            ErrorKind::Invalid => {
                StoreError::Misplaced { name: name.name().to_owned(), error: error.message }
            }
            _ => StoreError::Kit(error),
        }
    }

    /// There is no such blob.
    pub(super) fn no_blob(name: &BlobName) -> StoreError {
        StoreError::NoSuchBlob(name.to_string())
    }

    /// Stored rows that are not as this program writes them.
    pub(super) fn damaged(what: &str, detail: impl std::fmt::Display) -> StoreError {
        StoreError::Kit(Error::damaged(what, detail))
    }

    /// Whether the change may have been made all the same.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self, StoreError::Kit(error) if error.is_outcome_unknown())
    }
}

impl From<engine::Error> for StoreError {
    fn from(error: engine::Error) -> StoreError {
        StoreError::Kit(Error::from(error))
    }
}

impl From<ObjectError> for StoreError {
    fn from(error: ObjectError) -> StoreError {
        let refuse = |kind: ErrorKind, text: String| StoreError::Kit(Error::new(kind, text));
        match error {
            ObjectError::Client(text) => StoreError::Client(text),
            ObjectError::NoSpace(_) => refuse(ErrorKind::OutOfService(Reason::NoSpace), error.to_string()),
            ObjectError::Failed(_) | ObjectError::Rows(_) => refuse(ErrorKind::Busy, error.to_string()),
            ObjectError::Gone(_) => {
                refuse(ErrorKind::Busy, "the blob was changed while it was read".to_owned())
            }
        }
    }
}

impl From<ChecksumError> for StoreError {
    fn from(error: ChecksumError) -> StoreError {
        StoreError::Checksum(error)
    }
}
