//! Copies of blobs: the bytes are copied, so that the copy lives where its own name places it and depends on nothing.
//!
//! A copy is done when the request is answered, whatever its size: there is never one under way that a client could
//! find, wait for or abort.

use uuid::Uuid;

use super::blocks::is_long;
use super::extents::{self, Entry, EntryPlace, Extent, Holds, object_number};
use super::home::{Change, Home, Read};
use super::items::{check_lease, fresh, number, there};
use super::pages::{View, find_units, put, read_units};
use super::rows::Step;
use super::upload::{Received, Stored};
use super::{BlobStore, StoreError};
use crate::checksum::Wanted;
use crate::conditions::{ConditionError, Conditions};
use crate::model::{
    Blob, BlobKind, CopyKind, CopyOptions, CopySource, CopyState, CopyStatus, CopyTags, NewBlob, Props,
    Upload, Written,
};
use crate::name::BlobName;

/// Rows of pages that are copied together: a megabyte if all pages are valid.
const PAGE_ROWS: usize = 16;
/// How often a page blob that is written meanwhile is copied anew.
const PAGE_TRIES_MAX: u32 = 4;

/// Content that has been copied, and that no row names yet.
#[derive(Default)]
struct Copied {
    /// What of the row says where the content is.
    content: i64,
    blocks: i64,
    received: Option<Received>,
    /// Whether the content was announced.
    is_announced: bool,
    /// What is written with the row.
    steps: Vec<Step>,
}

impl BlobStore {
    /// Makes a blob of another one's content, or of bytes from elsewhere.
    pub async fn copy_blob(
        &self,
        name: &BlobName,
        source: CopySource,
        kind: CopyKind,
        options: &CopyOptions,
        conditions: &Conditions,
    ) -> Result<Written, StoreError> {
        let home = self.home_of_request(name).await?;
        let found = self.row(&home, 0, Read::Head).await?;
        self.check_replace(&home, found.as_ref(), conditions)?;
        let (url, from, copied) = match source {
            CopySource::Own { name, snapshot, conditions, url } => {
                let of_source = |error: StoreError| StoreError::Source(Box::new(error));
                let from = self.home(&name).await.map_err(of_source)?;
                let row = self.source(&from, number(snapshot), &conditions).await.map_err(of_source)?;
                let is_same = kind == CopyKind::Whole;
                if kind == CopyKind::Sync && row.kind != BlobKind::Block {
                    return Err(of_source(StoreError::WrongKind(name.to_string())));
                }
                let copied = match row.kind {
                    BlobKind::Page if is_same => self.copy_pages(&from, &row, &home).await?,
                    _ => self.copy_bytes(&from, &row, &home, is_same, options).await?,
                };
                let kind = if is_same { row.kind } else { BlobKind::Block };
                (url, Blob { kind, body: None, ..row }, copied)
            }
            CopySource::Bytes { upload, url, headers } => {
                let size = upload.length;
                let received = self.receive(&home, upload, Wanted { md5: true, ..Wanted::default() }).await?;
                let mut from = fresh(name, BlobKind::Block, None, 0);
                from.size = size;
                from.props.headers = headers;
                let steps = self.take_received(&home, &received).into_iter().collect();
                (url, from, Copied { received: Some(received), steps, ..Copied::default() })
            }
        };
        let state = |now: i64| CopyState {
            id: self.new_uuid(),
            status: CopyStatus::Success,
            source: url.clone(),
            progress: (from.size, from.size),
            completed: Some(now),
            description: None,
        };
        let decide = |found: Option<&Blob>| {
            let now = self.next_time(found);
            let mut blob = fresh(name, from.kind, found, now);
            blob.size = from.size;
            blob.content = copied.content;
            blob.props = props_of_copy(&from, options, now);
            blob.props.blocks = copied.blocks;
            if kind != CopyKind::Put {
                blob.props.copy = Some(state(now));
            }
            let stored = copied.received.as_ref().filter(|_| copied.content == 0);
            blob.object = stored.and_then(Received::object).cloned();
            let body = stored.and_then(Received::inline).cloned();
            let change: Change = self.replace(&home, found, blob, conditions)?;
            Ok(change.body(body).after(copied.steps.clone()))
        };
        match self.change(&home, decide).await {
            Ok(blob) => Ok(Written { blob, digests: copied.received.map(|received| received.digests) }),
            Err(error) => {
                if let Some(received) = &copied.received {
                    self.forget_unless_named(&home, received, &error).await;
                }
                let announced = copied.is_announced.then_some(copied.content);
                self.forget_content_unless_named(&home, announced, &error).await;
                Err(error)
            }
        }
    }

    /// The row that is copied from.
    async fn source(&self, from: &Home, snapshot: i64, conditions: &Conditions) -> Result<Blob, StoreError> {
        let found = self.row(from, snapshot, Read::Body).await?;
        let found = found.filter(Blob::is_there).ok_or_else(|| StoreError::no_blob(&from.name))?;
        match conditions.check_read(Some(found.subject())) {
            // There is no answer without content to a copy.
            Err(ConditionError::NotModified) => Err(ConditionError::NotMet.into()),
            checked => Ok(checked.map(|()| found)?),
        }
    }

    /// Copies the bytes of a blob that has no pages. The list of its blocks is copied too, unless it is so short that
    /// it lies in the row.
    async fn copy_bytes(
        &self,
        from: &Home,
        row: &Blob,
        home: &Home,
        is_same: bool,
        options: &CopyOptions,
    ) -> Result<Copied, StoreError> {
        let length = row.size;
        let bytes = self.bytes(from, row, 0..length);
        let upload = Upload { length, bytes, expected: options.expected, wanted: Wanted::default() };
        let received = self.receive(home, upload, Wanted::default()).await?;
        match self.copy_lists(from, row, home, is_same, &received).await {
            Ok(copied) => Ok(Copied { received: Some(received), ..copied }),
            Err(error) => {
                if let Some(object) = received.object() {
                    self.forget(home, object).await;
                }
                Err(error)
            }
        }
    }

    /// What is written with the row besides the bytes, which have been received.
    async fn copy_lists(
        &self,
        from: &Home,
        row: &Blob,
        home: &Home,
        is_same: bool,
        received: &Received,
    ) -> Result<Copied, StoreError> {
        let length = received.length;
        let mut steps: Vec<Step> = self.take_received(home, received).into_iter().collect();
        let is_append = is_same && row.kind == BlobKind::Append;
        let mut copied = Copied::default();
        if is_append {
            copied.content = self.new_number();
            copied.blocks = row.props.blocks;
            if length > 0 {
                let extent = Extent { start: 0, seq: 0, length, holds: appended(received) };
                steps.push(extents::insert(home, copied.content, &extent));
            }
        } else if let (true, Stored::Object(object)) = (is_same && row.content != 0, &received.stored) {
            let mut offset = 0;
            let place = |entry: Entry| {
                let at = EntryPlace::Object { object: object_number(object), offset };
                offset += entry.size;
                Entry { place: at, ..entry }
            };
            let entries: Vec<Entry> = self.committed(from, row).await?.into_iter().map(place).collect();
            // The blocks were listed after the bytes were read: of the same content, or not at all.
            if offset == length {
                copied.content = self.new_number();
                copied.blocks = entries.len() as i64;
                copied.is_announced = is_long(&entries);
                steps.extend(self.write_lists(home, copied.content, &entries).await?);
            }
        }
        Ok(Copied { steps, ..copied })
    }

    /// Copies the pages of a blob or snapshot.
    async fn copy_pages(&self, from: &Home, row: &Blob, home: &Home) -> Result<Copied, StoreError> {
        let mut row = row.clone();
        for _ in 0..PAGE_TRIES_MAX {
            let content = self.new_number();
            let now = match self.copy_units(from, &row, home, content).await {
                Ok(()) => self.row(from, row.snapshot, Read::Head).await,
                Err(error) => Err(error),
            };
            // A blob that was written meanwhile has pages of several times in the copy.
            let is_whole = |now: &Blob| (now.content, now.etag) == (row.content, row.etag);
            match now.map(|now| now.filter(Blob::is_there)) {
                Ok(Some(now)) if is_whole(&now) => {
                    let steps = vec![self.take_content(home, content)];
                    return Ok(Copied { content, is_announced: true, steps, ..Copied::default() });
                }
                other => {
                    self.forget_content(home, content).await;
                    row = other?.ok_or_else(|| StoreError::no_blob(&from.name))?;
                }
            }
        }
        Err(StoreError::Source(Box::new(StoreError::Contended(from.name.to_string()))))
    }

    async fn copy_units(&self, from: &Home, row: &Blob, home: &Home, content: i64) -> Result<(), StoreError> {
        let lost = || StoreError::Contended(home.name.to_string());
        self.write(home, vec![self.announce_content(home, content)]).await?.ok_or_else(lost)?;
        let mut units = 0..row.size.div_ceil(super::pages::UNIT_BYTES);
        while !units.is_empty() {
            let rows = self.read(from, find_units(from, &View::of(row), &units, PAGE_ROWS)).await?;
            let found = read_units(&rows, &View::of(row), PAGE_ROWS)?;
            let copy =
                found.units.into_iter().map(|unit| put(home, content, 0, unit.unit, &unit.pages.inherited()));
            let steps: Vec<Step> = std::iter::once(self.hold_content(home, content)).chain(copy).collect();
            if steps.len() > 1 {
                self.write(home, steps).await?.ok_or_else(lost)?;
            }
            units.start = found.next.unwrap_or(units.end);
        }
        Ok(())
    }

    /// Ends a copy that is under way. Since copies are done when they are answered, there is none.
    pub async fn abort_copy(
        &self,
        name: &BlobName,
        _id: Uuid,
        lease: Option<Uuid>,
    ) -> Result<(), StoreError> {
        let home = self.home_of_request(name).await?;
        let found = self.row(&home, 0, Read::Head).await?;
        let found = there(found.as_ref()).ok_or_else(|| StoreError::no_blob(name))?;
        check_lease(&Conditions::of_lease(lease), found)?;
        Err(StoreError::NoPendingCopy)
    }

    fn new_uuid(&self) -> Uuid {
        let (high, low) = (self.kit().random().to_be_bytes(), self.kit().random().to_be_bytes());
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high);
        bytes[8..].copy_from_slice(&low);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

/// All bytes of an append blob as one append.
fn appended(received: &Received) -> Holds {
    match &received.stored {
        Stored::Inline(bytes) => Holds::Body(bytes.clone()),
        Stored::Object(object) => {
            let place = EntryPlace::Object { object: object_number(object), offset: 0 };
            Holds::Blocks(vec![Entry { id: Box::default(), size: received.length, place }])
        }
    }
}

fn props_of_copy(from: &Blob, options: &CopyOptions, now: i64) -> Props {
    let new = NewBlob {
        headers: options.headers.clone().unwrap_or_else(|| from.props.headers.clone()),
        metadata: options.metadata.clone().unwrap_or_else(|| from.props.metadata.clone()),
        tags: match &options.tags {
            CopyTags::None => Vec::new(),
            CopyTags::These(tags) => tags.clone(),
            CopyTags::OfSource => from.props.tags.clone(),
        },
        tier: options.tier.or(from.props.tier),
    };
    let is_sealed = options.seal && from.kind == BlobKind::Append;
    Props { is_sealed, sequence: from.props.sequence, ..Props::of_new(&new, now) }
}
