//! What the parts of this store tell each other: containers, blobs, and what is asked of them. No HTTP, no SQL.

mod copy;
mod list;

use std::fmt;

use bytes::Bytes;
use polyshard_azure_storage::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::checksum::{Digests, Wanted};
use crate::objects::{ByteStream, ObjectId};

pub use copy::{CopyKind, CopyOptions, CopySource, CopyTags};
pub use list::{
    BlobPage, BlobQuery, ContainerPage, ContainerQuery, FindIn, Found, FoundPage, Include, Listed,
};

/// Ticks of 100 ns from the year 1 to 1970: ETags count from there, as the service's do.
const TICKS_TO_1970: i64 = 621_355_968_000_000_000;
/// Bytes of a page.
pub const PAGE_BYTES: u64 = 512;

/// Names and values in the order and spelling they were given in.
pub type Metadata = Vec<(String, String)>;

/// Tags of a blob, in the order of their names; the names are distinct.
pub type Tags = Vec<(String, String)>;

/// The version of a container or blob that clients compare, in ticks of 100 ns since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Etag(pub i64);

impl fmt::Display for Etag {
    /// Without the quotes that it has in a header.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "0x{:X}", self.0.saturating_add(TICKS_TO_1970))
    }
}

/// A moment in ticks of 100 ns since 1970.
pub type Ticks = i64;

/// A snapshot of a blob: the time it was taken at, in ticks of 100 ns since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotId(pub Ticks);

impl SnapshotId {
    /// Reads `2026-11-15T07:25:16.2221997Z`.
    pub fn parse(text: &str) -> Option<SnapshotId> {
        let ticks = Timestamp::parse_iso(text)?.ticks();
        (ticks > 0).then_some(SnapshotId(ticks))
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only what was read or made is written: it is within the calendar.
        match Timestamp::from_ticks(self.0) {
            Some(time) => to.write_str(&time.iso()),
            None => Err(fmt::Error),
        }
    }
}

/// The three kinds of blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobKind {
    /// Made of blocks, or put whole.
    Block,
    /// Grows at its end.
    Append,
    /// Written in pages of 512 bytes.
    Page,
}

impl BlobKind {
    /// As in `x-ms-blob-type`.
    pub fn as_str(self) -> &'static str {
        match self {
            BlobKind::Block => "BlockBlob",
            BlobKind::Append => "AppendBlob",
            BlobKind::Page => "PageBlob",
        }
    }

    pub(crate) fn number(self) -> i64 {
        match self {
            BlobKind::Block => 1,
            BlobKind::Append => 2,
            BlobKind::Page => 3,
        }
    }

    pub(crate) fn of_number(number: i64) -> Option<BlobKind> {
        [BlobKind::Block, BlobKind::Append, BlobKind::Page].into_iter().find(|kind| kind.number() == number)
    }
}

/// What is stored with a blob for its readers, and answered as headers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContentHeaders {
    /// `Content-Type`.
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// `Content-Encoding`.
    #[serde(rename = "e", skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    /// `Content-Language`.
    #[serde(rename = "l", skip_serializing_if = "Option::is_none")]
    pub content_language: Option<String>,
    /// `Content-Disposition`.
    #[serde(rename = "d", skip_serializing_if = "Option::is_none")]
    pub content_disposition: Option<String>,
    /// `Cache-Control`.
    #[serde(rename = "c", skip_serializing_if = "Option::is_none")]
    pub cache_control: Option<String>,
    /// `Content-MD5`.
    #[serde(rename = "m", skip_serializing_if = "Option::is_none")]
    pub content_md5: Option<[u8; 16]>,
}

/// Where a blob is kept, by how often it is read. Only told again: all bytes are kept alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tier {
    /// Read often.
    Hot,
    /// Read seldom.
    Cool,
    /// Read more seldom.
    Cold,
    /// Not read before it is brought back.
    Archive,
    /// A page blob of a premium account: P4 to P80.
    Premium(u8),
}

impl fmt::Display for Tier {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tier::Hot => to.write_str("Hot"),
            Tier::Cool => to.write_str("Cool"),
            Tier::Cold => to.write_str("Cold"),
            Tier::Archive => to.write_str("Archive"),
            Tier::Premium(number) => write!(to, "P{number}"),
        }
    }
}

/// How a copy went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyStatus {
    /// Under way.
    Pending,
    /// Done.
    Success,
    /// Stopped by its owner.
    Aborted,
    /// It could not be done.
    Failed,
}

impl CopyStatus {
    /// As in `x-ms-copy-status`.
    pub fn as_str(self) -> &'static str {
        match self {
            CopyStatus::Pending => "pending",
            CopyStatus::Success => "success",
            CopyStatus::Aborted => "aborted",
            CopyStatus::Failed => "failed",
        }
    }
}

/// The last copy that this blob was the destination of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyState {
    /// Its id.
    pub id: Uuid,
    /// How it went.
    pub status: CopyStatus,
    /// The URL copied from, without a signature.
    pub source: String,
    /// Bytes copied, and bytes to copy.
    pub progress: (u64, u64),
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed: Option<Ticks>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// What a row keeps of a blob in one value that no statement looks into. The field names are short, since every blob
/// has them; fields that came later have a default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Props {
    /// What readers are told.
    #[serde(rename = "h")]
    pub headers: ContentHeaders,
    /// The client's own.
    #[serde(rename = "m", skip_serializing_if = "Vec::is_empty")]
    pub metadata: Metadata,
    /// By which it can be found.
    #[serde(rename = "g", skip_serializing_if = "Vec::is_empty")]
    pub tags: Tags,
    /// The tier, if one was set.
    #[serde(rename = "t", skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// When the tier was set.
    #[serde(rename = "tc", skip_serializing_if = "Option::is_none")]
    pub tier_changed: Option<Ticks>,
    /// The last copy to here.
    #[serde(rename = "c", skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyState>,
    /// An append blob that takes no more.
    #[serde(rename = "s", skip_serializing_if = "is_false")]
    pub is_sealed: bool,
    /// The sequence number of a page blob.
    #[serde(rename = "q", skip_serializing_if = "is_zero")]
    pub sequence: i64,
    /// Blocks committed to an append blob, or listed in a block blob.
    #[serde(rename = "b", skip_serializing_if = "is_zero")]
    pub blocks: i64,
    /// Where pages of earlier generations are not seen any more.
    #[serde(rename = "o", skip_serializing_if = "Vec::is_empty")]
    pub holes: Vec<Hole>,
    /// Of a deleted blob: until when it can be brought back, in milliseconds by the shard's clock.
    #[serde(rename = "u", skip_serializing_if = "is_zero")]
    pub kept_until_ms: i64,
}

/// Many pages that were cleared, or cut off by making a page blob shorter: of these, rows of generations before this
/// one are not seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hole {
    /// The first generation that does not see them.
    #[serde(rename = "g")]
    pub generation: i64,
    /// The first unit of 64 KiB.
    #[serde(rename = "f")]
    pub from: u64,
    /// The unit after the last one.
    #[serde(rename = "t")]
    pub to: u64,
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// The lease of a container or blob as it is stored. What it means at a time is in `lease_rules`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// Whose; none if it was never acquired, was released, or may be forgotten.
    pub id: Option<Uuid>,
    /// For how many seconds it was acquired; -1 without end.
    pub seconds: i64,
    /// When it expires, in milliseconds by the clock of the row; `i64::MAX` without end.
    pub until_ms: i64,
    /// When its break is over, in milliseconds by the clock of the row; 0 if it was not broken.
    pub broken_ms: i64,
}

/// What `x-ms-lease-action` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseAction {
    /// Take it, for 15 to 60 seconds, or -1 without end.
    Acquire {
        /// The id the client would like.
        proposed: Option<Uuid>,
        /// For how long.
        seconds: i64,
    },
    /// Begin its time anew.
    Renew {
        /// Its id.
        id: Uuid,
    },
    /// Give it another id.
    Change {
        /// Its id.
        id: Uuid,
        /// The new one.
        proposed: Uuid,
    },
    /// Give it back.
    Release {
        /// Its id.
        id: Uuid,
    },
    /// End it for whoever has it, after a time of 0 to 60 seconds.
    Break {
        /// The time, if the client says.
        seconds: Option<i64>,
    },
}

/// What a lease's client is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseAnswer {
    /// The lease's id, but for one that was broken or released.
    pub id: Option<Uuid>,
    /// Seconds until a broken lease is over.
    pub seconds_left: Option<i64>,
    /// The item's ETag.
    pub etag: Etag,
    /// When the item was changed last.
    pub modified: Ticks,
}

/// A row of a blob: the blob itself, or a snapshot of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Blob {
    /// Its name in the container.
    pub name: String,
    /// 0 for the blob itself.
    pub snapshot: Ticks,
    /// Changes with every change of the row; not told to clients.
    pub version: i64,
    /// What clients compare.
    pub etag: Etag,
    /// Its kind.
    pub kind: BlobKind,
    /// Bytes.
    pub size: u64,
    /// When it was first made.
    pub created: Ticks,
    /// When content or properties were changed last.
    pub modified: Ticks,
    /// The number of its extents or pages; 0 if its content is a body, an object or nothing.
    pub content: i64,
    /// Of its pages.
    pub generation: i64,
    /// The number of its uncommitted blocks; 0 if there are none.
    pub stage: i64,
    /// False if there are uncommitted blocks only.
    pub is_committed: bool,
    /// Its lease.
    pub lease: Lease,
    /// When it was deleted, in ticks; 0 if it was not.
    pub deleted: Ticks,
    /// The object that is its whole content.
    pub object: Option<ObjectId>,
    /// Everything that no statement looks at.
    pub props: Props,
    /// Its whole content, if it was asked for and is in the row. Lists do not read it.
    pub body: Option<Bytes>,
    /// The time it was read at by its shard's clock, in milliseconds: leases are judged by it.
    pub now_ms: i64,
}

impl Blob {
    /// Whether ordinary requests see it.
    pub fn is_there(&self) -> bool {
        self.is_committed && self.deleted == 0
    }

    /// Its snapshot id, if it is one.
    pub fn snapshot_id(&self) -> Option<SnapshotId> {
        (self.snapshot != 0).then_some(SnapshotId(self.snapshot))
    }

    /// What conditions look at.
    pub fn subject(&self) -> Subject<'_> {
        Subject { etag: self.etag, modified: self.modified, tags: &self.props.tags }
    }
}

/// What conditions are compared with.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The ETag.
    pub etag: Etag,
    /// When it was changed last.
    pub modified: Ticks,
    /// Its tags; a container has none.
    pub tags: &'a [(String, String)],
}

/// Who may read a container without a signature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PublicAccess {
    /// Nobody.
    #[default]
    None,
    /// Everybody may read its blobs.
    Blob,
    /// Everybody may also list them.
    Container,
}

/// A stored access policy, as its owner wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its name in signatures.
    pub id: String,
    /// From when it holds, in the client's own writing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<String>,
    /// What it allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<String>,
}

/// A container.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    /// Its name in the account.
    pub name: String,
    /// What clients compare.
    pub etag: Etag,
    /// When it was changed last.
    pub modified: Ticks,
    /// The client's own.
    pub metadata: Metadata,
    /// Who may read it without a signature.
    pub access: PublicAccess,
    /// Its stored access policies.
    pub policies: Vec<Policy>,
    /// Its lease.
    pub lease: Lease,
    /// The time it was read at in milliseconds: its lease is judged by it.
    pub now_ms: i64,
}

impl Container {
    /// What conditions look at.
    pub fn subject(&self) -> Subject<'_> {
        Subject { etag: self.etag, modified: self.modified, tags: &[] }
    }
}

/// Bytes that a client sends.
pub struct Upload {
    /// How many come.
    pub length: u64,
    /// The bytes; exactly `length` of them, or the request fails.
    pub bytes: ByteStream,
    /// What they must add up to.
    pub expected: Expected,
    /// Which sums the client wants to be told. The MD5 of a blob that is put whole is stored with it anyway.
    pub wanted: Wanted,
}

impl fmt::Debug for Upload {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Upload").field("length", &self.length).finish_non_exhaustive()
    }
}

/// Checksums that the client has given, of what it sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expected {
    /// `Content-MD5`.
    pub md5: Option<[u8; 16]>,
    /// `x-ms-content-crc64`.
    pub crc64: Option<u64>,
}

/// What a blob is made with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewBlob {
    /// What readers are told.
    pub headers: ContentHeaders,
    /// The client's own.
    pub metadata: Metadata,
    /// By which it can be found.
    pub tags: Tags,
    /// Its tier, if the client says.
    pub tier: Option<Tier>,
}

/// The answer to a write.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The blob as it is now, without its content.
    pub blob: Blob,
    /// Checksums of what was sent; none if nothing was.
    pub digests: Option<Digests>,
}

/// A range of bytes: the first, and the last if it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// The first.
    pub first: u64,
    /// The last; all that follow if there is none.
    pub last: Option<u64>,
}

/// A blob and some of its bytes.
pub struct Download {
    /// The blob.
    pub blob: Blob,
    /// The first byte that comes.
    pub first: u64,
    /// How many come.
    pub length: u64,
    /// The bytes.
    pub bytes: ByteStream,
}

impl fmt::Debug for Download {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = to.debug_struct("Download");
        out.field("blob", &self.blob).field("first", &self.first).field("length", &self.length);
        out.finish_non_exhaustive()
    }
}

/// Which snapshots a delete takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeleteSnapshots {
    /// None: a blob that has some is not deleted.
    #[default]
    Refuse,
    /// All, and the blob.
    Include,
    /// All, but not the blob.
    Only,
}

/// How a blob was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// For good.
    Gone,
    /// It can be brought back.
    Kept,
}

/// A change of what is kept with a blob.
#[derive(Debug, Clone, PartialEq)]
pub enum PropsChange {
    /// All content headers are replaced.
    Headers(ContentHeaders),
    /// All metadata is replaced.
    Metadata(Metadata),
    /// All tags are replaced; neither ETag nor time change.
    Tags(Tags),
    /// The tier is set; neither ETag nor time change.
    Tier(Tier),
}

/// Id of a block: the bytes that base64 stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub Vec<u8>);

/// Where a block of a block list is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockSource {
    /// Among the uncommitted ones, then among the committed ones.
    Latest,
    /// Among those of the blob as it is.
    Committed,
    /// Among those that were put since.
    Uncommitted,
}

/// A block in a list, with its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its id.
    pub id: BlockId,
    /// Its bytes.
    pub size: u64,
}

/// The blocks of a blob.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockList {
    /// The blob; none if there are uncommitted blocks only.
    pub blob: Option<Blob>,
    /// Those it consists of, in order.
    pub committed: Vec<Block>,
    /// Those that were put since, by id.
    pub uncommitted: Vec<Block>,
}

/// Which blocks are listed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BlockListKind {
    /// Those the blob consists of.
    #[default]
    Committed,
    /// Those that were put since.
    Uncommitted,
    /// Both.
    All,
}

/// The answer to an append.
#[derive(Debug, Clone, PartialEq)]
pub struct Appended {
    /// The blob as it is now.
    pub written: Written,
    /// Where the bytes begin.
    pub offset: u64,
}

/// A range of pages: the first byte, and the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRange {
    /// The first byte, a multiple of 512.
    pub first: u64,
    /// The last byte, one before a multiple of 512.
    pub last: u64,
    /// The pages were cleared: only in a comparison of snapshots.
    pub is_cleared: bool,
}

/// Ranges of pages that have been written.
#[derive(Debug, Clone, PartialEq)]
pub struct PageRanges {
    /// The blob.
    pub blob: Blob,
    /// The ranges, in order.
    pub ranges: Vec<PageRange>,
    /// Where the next part begins, if there is more.
    pub next: Option<String>,
}

/// Which page ranges are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageQuery {
    /// Within which bytes.
    pub range: Option<ByteRange>,
    /// Only what has changed since this snapshot.
    pub since: Option<SnapshotId>,
    /// Where the last part ended, as it said.
    pub marker: Option<String>,
    /// How many at most.
    pub max: usize,
}

/// What happens to the sequence number of a page blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SequenceAction {
    /// It grows to this, if that is more.
    Max(i64),
    /// It becomes this.
    Update(i64),
    /// It grows by one.
    Increment,
}
