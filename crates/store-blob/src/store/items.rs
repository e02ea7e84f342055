//! Blobs that are put whole, read, deleted, brought back, and what is kept with them.

use futures_util::StreamExt;
use futures_util::stream;
use polyshard_engine::Expect;
use polyshard_store::{Error, ErrorKind, Reason};

use super::home::{Change, Home, Read};
use super::rows::{Body, Step, read_blob, stored_snapshot, write_props};
use super::statements::texts;
use super::upload::{Received, Stored};
use super::{BlobStore, StoreError};
use crate::checksum::Wanted;
use crate::conditions::{ConditionError, Conditions};
use crate::model::{
    Blob, BlobKind, ByteRange, DeleteSnapshots, Deleted, Download, Etag, Lease, Metadata, NewBlob, Props,
    PropsChange, SnapshotId, Tags, Tier, Upload, Written,
};
use crate::name::BlobName;
use crate::objects::{ObjectError, ObjectId};

/// Snapshots that are deleted in one transaction with their blob; more are deleted before it.
const SNAPSHOTS_AT_ONCE: i64 = 500;
/// How often a blob is read anew that was replaced before its bytes were found.
const READS_MAX: u32 = 5;

/// What a blob is judged by when it is to be written.
pub(super) fn check_write(conditions: &Conditions, blob: &Blob) -> Result<(), StoreError> {
    conditions.check_write(Some(blob.subject()))?;
    check_lease(conditions, blob)
}

/// Whether the lease of a blob lets a request write.
pub(super) fn check_lease(conditions: &Conditions, blob: &Blob) -> Result<(), StoreError> {
    conditions.check_write_lease(&blob.lease, blob.now_ms).map_err(of_blob_lease)
}

/// What a blob is judged by when it is read.
pub(super) fn check_read(conditions: &Conditions, blob: &Blob) -> Result<(), StoreError> {
    conditions.check_read(Some(blob.subject()))?;
    conditions.check_read_lease(&blob.lease, blob.now_ms).map_err(of_blob_lease)
}

fn of_blob_lease(error: ConditionError) -> StoreError {
    match error {
        ConditionError::Lease(error) => StoreError::BlobLease(error),
        other => StoreError::Condition(other),
    }
}

/// The row of a blob, if ordinary requests see it.
pub(super) fn there(found: Option<&Blob>) -> Option<&Blob> {
    found.filter(|blob| blob.is_there())
}

/// A row of a new blob, in place of what is there.
pub(super) fn fresh(name: &BlobName, kind: BlobKind, found: Option<&Blob>, now: i64) -> Blob {
    let live = there(found);
    // Uncommitted blocks alone may have a lease too.
    let lease = found.filter(|blob| blob.deleted == 0).map(|blob| blob.lease.after_write(blob.now_ms));
    Blob {
        name: name.name().to_owned(),
        snapshot: 0,
        version: 0,
        etag: Etag(now),
        kind,
        size: 0,
        created: live.map_or(now, |blob| blob.created),
        modified: now,
        content: 0,
        generation: 0,
        stage: 0,
        is_committed: true,
        lease: lease.unwrap_or_default(),
        deleted: 0,
        object: None,
        props: Props::default(),
        body: None,
        now_ms: found.map_or(0, |blob| blob.now_ms),
    }
}

impl Props {
    /// Those of a new blob.
    pub(super) fn of_new(new: &NewBlob, now: i64) -> Props {
        Props {
            headers: new.headers.clone(),
            metadata: new.metadata.clone(),
            tags: new.tags.clone(),
            tier: new.tier,
            tier_changed: new.tier.map(|_| now),
            ..Props::default()
        }
    }
}

impl BlobStore {
    /// Puts a block blob whole.
    pub async fn put_blob(
        &self,
        name: &BlobName,
        new: &NewBlob,
        upload: Upload,
        conditions: &Conditions,
    ) -> Result<Written, StoreError> {
        let home = self.home_of_request(name).await?;
        let found = self.row(&home, 0, Read::Head).await?;
        // Refused before its bytes are taken; decided again when they are there.
        self.check_replace(&home, found.as_ref(), conditions)?;
        let received = self.receive(&home, upload, Wanted { md5: true, ..Wanted::default() }).await?;
        match self.name_received(&home, found, new, &received, conditions).await {
            Ok(blob) => Ok(Written { blob, digests: Some(received.digests) }),
            Err(error) => {
                self.forget_unless_named(&home, &received, &error).await;
                Err(error)
            }
        }
    }

    async fn name_received(
        &self,
        home: &Home,
        found: Option<Blob>,
        new: &NewBlob,
        received: &Received,
        conditions: &Conditions,
    ) -> Result<Blob, StoreError> {
        let decide = |found: Option<&Blob>| {
            let now = self.next_time(found);
            let mut blob = fresh(&home.name, BlobKind::Block, found, now);
            blob.size = received.length;
            blob.props = Props::of_new(new, now);
            blob.props.headers.content_md5 = new.headers.content_md5.or(received.digests.md5);
            blob.object = received.object().cloned();
            let body = match &received.stored {
                Stored::Inline(bytes) => Some(bytes.clone()),
                Stored::Object(_) => None,
            };
            let change = self.replace(home, found, blob, conditions)?;
            Ok(change.body(body).after(self.take_received(home, received)))
        };
        // What was read before the bytes came is still so, as a rule.
        if let Some(blob) = self.put_row(home, found.as_ref(), decide(found.as_ref())?).await? {
            return Ok(blob);
        }
        // Somebody was quicker, or the upload took too long: then its object is being deleted.
        if let Some(id) = received.object()
            && !self.is_announced(home, id).await?
        {
            let longest = self.options.upload_max.as_secs();
            let message = format!("the upload took longer than the {longest} s it may take; send it again");
            return Err(StoreError::Kit(Error::new(ErrorKind::Busy, message)));
        }
        self.change(home, decide).await
    }

    /// Whether an object may still be named.
    async fn is_announced(&self, home: &Home, id: &ObjectId) -> Result<bool, StoreError> {
        let step = Step::new(home, |dialect| texts(dialect).is_announced.clone()).bind(id.as_str());
        Ok(!self.read(home, step).await?.is_empty())
    }

    /// Whether what is there may be replaced by a new blob.
    pub(super) fn check_replace(
        &self,
        home: &Home,
        found: Option<&Blob>,
        conditions: &Conditions,
    ) -> Result<(), StoreError> {
        let live = there(found);
        conditions.check_create(live.map(Blob::subject))?;
        let lease = found.filter(|blob| blob.deleted == 0).map_or(Lease::default(), |blob| blob.lease);
        let now_ms = found.map_or(0, |blob| blob.now_ms);
        conditions.check_write_lease(&lease, now_ms).map_err(of_blob_lease)?;
        match live {
            Some(blob) if blob.props.tier == Some(Tier::Archive) => {
                Err(StoreError::Archived(home.name.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Puts a new row where there may be one: what that named is kept as a deleted snapshot or noted for the sweep.
    pub(super) fn replace(
        &self,
        home: &Home,
        found: Option<&Blob>,
        mut blob: Blob,
        conditions: &Conditions,
    ) -> Result<Change, StoreError> {
        self.check_replace(home, found, conditions)?;
        // A block blob has the tier of the one that it replaces, unless the client says another.
        let both_blocks = |live: &&Blob| live.kind == BlobKind::Block && blob.kind == BlobKind::Block;
        if let (None, Some(live)) = (blob.props.tier, there(found).filter(both_blocks)) {
            (blob.props.tier, blob.props.tier_changed) = (live.props.tier, live.props.tier_changed);
        }
        let mut change = Change { body: Body::Set(None), ..Change::new(blob) };
        let Some(found) = found else { return Ok(change) };
        let days = self.retention_days(home.name.container().account())?;
        if found.deleted != 0 {
            change.before.extend(self.keep_deleted(home, found, found.deleted, found.props.kept_until_ms)?);
        } else if let (true, Some(days)) = (found.is_committed, days) {
            let until = found.now_ms + days_ms(days);
            change.before.extend(self.keep_deleted(home, found, self.next_time(Some(found)), until)?);
        } else {
            change.after.extend(self.pend_content(home, found));
        }
        Ok(change)
    }

    /// Keeps the blob as it is as a deleted snapshot.
    fn keep_deleted(
        &self,
        home: &Home,
        found: &Blob,
        deleted: i64,
        until_ms: i64,
    ) -> Result<Vec<Step>, StoreError> {
        let id = self.next_time(Some(found));
        let props = Props { kept_until_ms: until_ms, ..found.props.clone() };
        let kept = self.keep(home, found, id, deleted, &props, found.etag, found.modified)?;
        let mut steps = vec![kept, self.pend_deleted(home, id, until_ms - found.now_ms)];
        if found.stage != 0 {
            steps.push(self.pend(home, &super::pending::Unneeded::Stage(found.stage)));
        }
        Ok(steps)
    }

    /// Adds a row with the content of a blob as it was read.
    #[expect(clippy::too_many_arguments, reason = "these are the columns in which it differs")]
    fn keep(
        &self,
        home: &Home,
        found: &Blob,
        id: i64,
        deleted: i64,
        props: &Props,
        etag: Etag,
        modified: i64,
    ) -> Result<Step, StoreError> {
        let step = Step::new(home, |dialect| texts(dialect).keep.clone())
            .bind(id)
            .bind(self.kit.next_ticks())
            .bind(etag.0)
            .bind(modified)
            .bind(deleted)
            .bind(write_props(props)?)
            .bind(found.version);
        Ok(step.expect(Expect::Rows(1)))
    }

    /// A blob or snapshot, without its bytes.
    pub async fn head_blob(
        &self,
        name: &BlobName,
        snapshot: Option<SnapshotId>,
        conditions: &Conditions,
    ) -> Result<Blob, StoreError> {
        let home = self.home_of_request(name).await?;
        let found = self.row(&home, number(snapshot), Read::Head).await?;
        let Some(blob) = found.filter(Blob::is_there) else { return Err(StoreError::no_blob(name)) };
        check_read(conditions, &blob)?;
        Ok(blob)
    }

    /// A blob or snapshot with some of its bytes.
    pub async fn get_blob(
        &self,
        name: &BlobName,
        snapshot: Option<SnapshotId>,
        range: Option<ByteRange>,
        conditions: &Conditions,
    ) -> Result<Download, StoreError> {
        let home = self.home_of_request(name).await?;
        for _ in 0..READS_MAX {
            let found = self.row(&home, number(snapshot), Read::Body).await?;
            let Some(blob) = found.filter(Blob::is_there) else { return Err(StoreError::no_blob(name)) };
            check_read(conditions, &blob)?;
            if blob.props.tier == Some(Tier::Archive) {
                return Err(StoreError::Archived(name.to_string()));
            }
            let range = within(range, blob.size)?;
            let (first, length) = (range.start, range.end.saturating_sub(range.start));
            let mut bytes = self.bytes(&home, &blob, range);
            // What cannot be read at all is told instead of an answer.
            let bytes = match bytes.next().await {
                None => bytes,
                Some(Ok(piece)) => stream::once(std::future::ready(Ok(piece))).chain(bytes).boxed(),
                Some(Err(ObjectError::Gone(object))) => {
                    self.check_changed(&home, &blob, &object).await?;
                    continue;
                }
                Some(Err(error)) => return Err(error.into()),
            };
            self.charge(&home, length);
            return Ok(Download { blob: Blob { body: None, ..blob }, first, length, bytes });
        }
        Err(StoreError::Contended(name.to_string()))
    }

    /// Bytes that were not found have been replaced, or are lost.
    async fn check_changed(&self, home: &Home, blob: &Blob, object: &str) -> Result<(), StoreError> {
        let now = self.row(home, blob.snapshot, Read::Head).await?;
        let same = |now: &Blob| (&now.object, now.content) == (&blob.object, blob.content);
        if !now.as_ref().is_some_and(same) {
            return Ok(());
        }
        let (place, blob) = (self.options.objects.url(), &home.name);
        tracing::error!(%blob, object, place, "bytes of a blob are missing; see that blob.objects is the right place");
        let message =
            format!("the bytes of blob {blob} are missing: the server's place of objects does not have them");
        Err(StoreError::Kit(Error::new(ErrorKind::OutOfService(Reason::Offline), message)))
    }

    /// Changes what is kept with a blob. Tiers can be set of snapshots too.
    pub async fn set_props(
        &self,
        name: &BlobName,
        snapshot: Option<SnapshotId>,
        change: &PropsChange,
        conditions: &Conditions,
    ) -> Result<Blob, StoreError> {
        let home = self.home_of_request(name).await?;
        let decide = |found: Option<&Blob>| {
            let Some(found) = there(found) else { return Err(StoreError::no_blob(name)) };
            conditions.check_write(Some(found.subject()))?;
            let mut blob = found.clone();
            match change {
                PropsChange::Tier(tier) => {
                    conditions.check_read_lease(&found.lease, found.now_ms).map_err(of_blob_lease)?;
                    self.set_tier(&mut blob, *tier)?;
                }
                PropsChange::Tags(tags) => {
                    check_lease(conditions, found)?;
                    blob.props.tags.clone_from(tags);
                }
                PropsChange::Headers(headers) => {
                    check_lease(conditions, found)?;
                    blob.props.headers.clone_from(headers);
                    self.touch(&mut blob);
                }
                PropsChange::Metadata(metadata) => {
                    check_lease(conditions, found)?;
                    blob.props.metadata.clone_from(metadata);
                    self.touch(&mut blob);
                }
            }
            Ok(Change::new(blob))
        };
        self.change_row(&home, number(snapshot), decide).await
    }

    fn set_tier(&self, blob: &mut Blob, tier: Tier) -> Result<(), StoreError> {
        let fits = match blob.kind {
            BlobKind::Block => !matches!(tier, Tier::Premium(_)),
            BlobKind::Page => matches!(tier, Tier::Premium(_)),
            BlobKind::Append => false,
        };
        if !fits {
            return Err(StoreError::WrongKind(blob.name.clone()));
        }
        blob.props.tier = Some(tier);
        blob.props.tier_changed = Some(self.kit.next_ticks());
        Ok(())
    }

    /// The tags of a blob or snapshot.
    pub async fn tags(
        &self,
        name: &BlobName,
        snapshot: Option<SnapshotId>,
        conditions: &Conditions,
    ) -> Result<Tags, StoreError> {
        Ok(self.head_blob(name, snapshot, conditions).await?.props.tags)
    }

    /// Takes a snapshot; its metadata is the blob's unless some is given.
    pub async fn snapshot(
        &self,
        name: &BlobName,
        metadata: Option<&Metadata>,
        conditions: &Conditions,
    ) -> Result<(SnapshotId, Blob), StoreError> {
        let home = self.home_of_request(name).await?;
        let mut taken = SnapshotId(0);
        let decide = |found: Option<&Blob>| {
            let Some(found) = there(found) else { return Err(StoreError::no_blob(name)) };
            conditions.check_write(Some(found.subject()))?;
            conditions.check_read_lease(&found.lease, found.now_ms).map_err(of_blob_lease)?;
            taken = SnapshotId(self.next_time(Some(found)));
            let mut props = found.props.clone();
            if let Some(metadata) = metadata {
                props.metadata.clone_from(metadata);
            }
            let kept = self.keep(&home, found, taken.0, 0, &props, found.etag, found.modified)?;
            // The row itself is written too: it cannot be deleted meanwhile. Pages written from now on are of another
            // generation, which the snapshot does not see.
            let mut blob = found.clone();
            blob.generation += i64::from(blob.kind == BlobKind::Page);
            Ok(Change { before: vec![kept], ..Change::new(blob) })
        };
        let blob = self.change(&home, decide).await?;
        Ok((taken, blob))
    }

    /// Deletes a blob, or one of its snapshots.
    pub async fn delete_blob(
        &self,
        name: &BlobName,
        snapshot: Option<SnapshotId>,
        snapshots: DeleteSnapshots,
        conditions: &Conditions,
    ) -> Result<Deleted, StoreError> {
        let home = self.home_of_request(name).await?;
        let days = self.retention_days(name.container().account())?;
        for _ in 0..super::home::TRIES_MAX {
            let found = self.row(&home, number(snapshot), Read::Head).await?;
            let Some(found) = found.filter(Blob::is_there) else { return Err(StoreError::no_blob(name)) };
            conditions.check_write(Some(found.subject()))?;
            let own = match snapshot {
                Some(_) => Vec::new(),
                None => {
                    check_lease(conditions, &found)?;
                    self.live_snapshots(&home).await?
                }
            };
            if snapshots == DeleteSnapshots::Refuse && !own.is_empty() {
                return Err(StoreError::SnapshotsPresent);
            }
            let is_all = (own.len() as i64) < SNAPSHOTS_AT_ONCE;
            let rows = own.iter().chain((snapshots != DeleteSnapshots::Only && is_all).then_some(&found));
            let mut steps = Vec::new();
            for row in rows {
                steps.extend(self.delete_row(&home, row, days)?);
            }
            let is_written = steps.is_empty() || self.write(&home, steps).await?.is_some();
            if is_written && is_all {
                return Ok(if days.is_some() { Deleted::Kept } else { Deleted::Gone });
            }
        }
        Err(StoreError::Contended(name.to_string()))
    }

    /// Snapshots that are not deleted; not all if they are many.
    async fn live_snapshots(&self, home: &Home) -> Result<Vec<Blob>, StoreError> {
        let (mut live, mut after) = (Vec::new(), 0);
        loop {
            let step = Step::new(home, |dialect| texts(dialect).snapshots.clone());
            let rows = self.read(home, step.bind(after).bind(SNAPSHOTS_AT_ONCE)).await?;
            for row in &rows {
                let blob = read_blob(row)?;
                after = blob.snapshot;
                live.extend((blob.deleted == 0).then_some(blob));
            }
            if (rows.len() as i64) < SNAPSHOTS_AT_ONCE || !live.is_empty() {
                live.truncate(SNAPSHOTS_AT_ONCE as usize);
                return Ok(live);
            }
        }
    }

    /// Deletes a row for good, or marks it as deleted.
    fn delete_row(&self, home: &Home, row: &Blob, days: Option<u32>) -> Result<Vec<Step>, StoreError> {
        let Some(days) = days else {
            let step = Step::new(home, |dialect| texts(dialect).delete.clone());
            let step = step.bind(stored_snapshot(row.snapshot)).bind(row.version).expect(Expect::Rows(1));
            return Ok(std::iter::once(step).chain(self.pend_content(home, row)).collect());
        };
        let mut blob = row.clone();
        blob.deleted = self.kit.next_ticks();
        blob.version = blob.deleted.max(row.version + 1);
        blob.lease = Lease::default();
        blob.props.kept_until_ms = row.now_ms + days_ms(days);
        let update = super::rows::update(home, &blob, &Body::Keep, row.version)?;
        Ok(vec![update, self.pend_deleted(home, stored_snapshot(row.snapshot), days_ms(days))])
    }

    /// Brings a deleted blob back, and its deleted snapshots. One that was not deleted stays as it is.
    pub async fn undelete_blob(&self, name: &BlobName) -> Result<(), StoreError> {
        let home = self.home_of_request(name).await?;
        let step = Step::new(&home, |dialect| texts(dialect).restore.clone());
        let step = step.bind(self.kit.next_ticks());
        let restored = self.write(&home, vec![step]).await?;
        let some = restored.is_some_and(|rows| rows.iter().any(|rows| rows.affected() > 0));
        if some || self.row(&home, 0, Read::Head).await?.is_some_and(|blob| blob.is_there()) {
            return Ok(());
        }
        Err(StoreError::no_blob(name))
    }
}

/// The bytes of a range that a blob of this size has.
fn within(range: Option<ByteRange>, size: u64) -> Result<std::ops::Range<u64>, StoreError> {
    match range {
        None => Ok(0..size),
        Some(range) if range.first >= size => Err(StoreError::InvalidRange { size }),
        Some(range) => Ok(range.first..range.last.map_or(size, |last| last.saturating_add(1).min(size))),
    }
}

/// The number of a snapshot; 0 for the blob itself.
pub(super) fn number(snapshot: Option<SnapshotId>) -> i64 {
    snapshot.map_or(0, |snapshot| snapshot.0)
}

fn days_ms(days: u32) -> i64 {
    i64::from(days) * 24 * 3600 * 1000
}
