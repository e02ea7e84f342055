//! What is asked of a copy.

use super::{ContentHeaders, Expected, Metadata, SnapshotId, Tags, Tier, Upload};
use crate::name::BlobName;

/// Which copy is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyKind {
    /// Copy Blob: the destination becomes of the kind of the source.
    Whole,
    /// Copy Blob From URL: a block blob of a block blob.
    Sync,
    /// Put Blob From URL: a block blob, which is not told that it is a copy.
    Put,
}

/// What is copied.
pub enum CopySource {
    /// A blob of this server, with the conditions on it.
    Own {
        /// Its name.
        name: BlobName,
        /// The snapshot.
        snapshot: Option<SnapshotId>,
        /// Conditions on the source.
        conditions: Box<crate::Conditions>,
        /// The URL, without a signature.
        url: String,
    },
    /// Bytes from somewhere else.
    Bytes {
        /// The bytes.
        upload: Upload,
        /// The URL, without a signature.
        url: String,
        /// What came with them.
        headers: ContentHeaders,
    },
}

/// What a copy does with what belongs to the source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CopyOptions {
    /// Metadata of the destination; the source's if there is none.
    pub metadata: Option<Metadata>,
    /// Tags of the destination.
    pub tags: CopyTags,
    /// The tier of the destination; the source's if there is none.
    pub tier: Option<Tier>,
    /// Content headers of the destination; the source's if there are none.
    pub headers: Option<ContentHeaders>,
    /// Seals an append blob.
    pub seal: bool,
    /// What the bytes must add up to.
    pub expected: Expected,
}

/// Tags of the destination of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CopyTags {
    /// None.
    #[default]
    None,
    /// These.
    These(Tags),
    /// Those of the source.
    OfSource,
}
