//! Append blobs: each append is a row of the blob's content. A snapshot has the same content and reads as far as it was
//! long then.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use polyshard_map::ShardId;
use polyshard_router::View;
use tokio::sync::OwnedMutexGuard;

use super::extents::{self, Entry, EntryPlace, Extent, Holds, object_number};
use super::home::{Change, Home, Read, TRIES_MAX};
use super::items::{check_write, fresh, there};
use super::upload::{Received, Stored};
use super::{BlobStore, StoreError};
use crate::checksum::Wanted;
use crate::conditions::Conditions;
use crate::model::{Appended, Blob, BlobKind, NewBlob, Props, Upload, Written};
use crate::name::BlobName;

/// Bytes of an append at most, as with the service.
pub const APPEND_BYTES_MAX: u64 = 100 * 1024 * 1024;
/// Appends to a blob at most.
pub const APPENDS_MAX: i64 = 50_000;
/// Locks for the blobs of one shard, which writers of one blob take in turn: enough that few other blobs share one.
const TURNS: u64 = 64;

/// What one writer has at a time.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// Writers of the same blob in this process wait for each other here: all but one of those that read its row at the
/// same time would write in vain. Blobs of different shards never share a lock: it is held while the shard is waited
/// for, which may be away.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<(Option<ShardId>, u64), Turn>>);

impl Turns {
    /// Waits for the turn of a blob's writer.
    pub async fn wait(&self, view: &View, home: &Home) -> OwnedMutexGuard<()> {
        self.of(shard_of(view, home), home.dataset_id(), home.name.name()).lock_owned().await
    }

    fn of(&self, shard: Option<ShardId>, dataset: u64, name: &str) -> Turn {
        let mut hasher = DefaultHasher::new();
        (dataset, name).hash(&mut hasher);
        let mut locks = self.0.lock().expect("no panic while held");
        locks.entry((shard, hasher.finish() % TURNS)).or_default().clone()
    }
}

/// The shard that has a blob, as far as is known. Around a move, two writers of one blob may not wait for each other:
/// then one of them tries again.
fn shard_of(view: &View, home: &Home) -> Option<ShardId> {
    let map = view.maps.get(&home.placed.record.map)?;
    Some(map.map.locate_placement(&home.placed.placement)?.shard().clone())
}

impl BlobStore {
    /// Makes an append blob without bytes.
    pub async fn create_append(
        &self,
        name: &BlobName,
        new: &NewBlob,
        conditions: &Conditions,
    ) -> Result<Written, StoreError> {
        let home = self.home_of_request(name).await?;
        let decide = |found: Option<&Blob>| {
            let now = self.next_time(found);
            let content = self.new_number();
            let blob = fresh(name, BlobKind::Append, found, now);
            let blob = Blob { content, props: Props::of_new(new, now), ..blob };
            self.replace(&home, found, blob, conditions)
        };
        Ok(Written { blob: self.change(&home, decide).await?, digests: None })
    }

    /// Appends bytes to a blob.
    pub async fn append(
        &self,
        name: &BlobName,
        upload: Upload,
        conditions: &Conditions,
    ) -> Result<Appended, StoreError> {
        let home = self.home_of_request(name).await?;
        if upload.length > APPEND_BYTES_MAX {
            return Err(StoreError::TooLarge { max: APPEND_BYTES_MAX });
        }
        // What is refused now need not be sent; it is decided when the bytes are there.
        let found = self.row(&home, 0, Read::Head).await?;
        check_append(name, found.as_ref(), upload.length, conditions)?;
        let received = self.receive(&home, upload, Wanted::default()).await?;
        match self.add_append(&home, &received, conditions).await {
            Ok((offset, blob)) => {
                let digests = Some(received.digests);
                Ok(Appended { written: Written { blob, digests }, offset })
            }
            Err(error) => {
                self.forget_unless_named(&home, &received, &error).await;
                Err(error)
            }
        }
    }

    /// Waits until no other writer of this process has its turn with a blob.
    pub(super) async fn turn(&self, home: &Home) -> OwnedMutexGuard<()> {
        let view = self.kit().router().view();
        self.turns.wait(&view, home).await
    }

    async fn add_append(
        &self,
        home: &Home,
        received: &Received,
        conditions: &Conditions,
    ) -> Result<(u64, Blob), StoreError> {
        let _turn = self.turn(home).await;
        for _ in 0..TRIES_MAX {
            let found = self.row(home, 0, Read::Head).await?;
            let found = check_append(&home.name, found.as_ref(), received.length, conditions)?;
            let extent = extent(found, received);
            let mut blob = found.clone();
            blob.size += received.length;
            blob.props.blocks += 1;
            self.touch(&mut blob);
            let change = Change::new(blob)
                .after([extents::insert(home, found.content, &extent)])
                .after(self.take_received(home, received));
            if let Some(blob) = self.put_row(home, Some(found), change).await? {
                return Ok((extent.start, blob));
            }
        }
        Err(StoreError::Contended(home.name.to_string()))
    }

    /// Lets nothing be appended any more.
    pub async fn seal(&self, name: &BlobName, conditions: &Conditions) -> Result<Blob, StoreError> {
        let home = self.home_of_request(name).await?;
        let decide = |found: Option<&Blob>| {
            let found = appendable(name, found, conditions)?;
            conditions.check_append(found.size, 0)?;
            let mut blob = found.clone();
            if !blob.props.is_sealed {
                blob.props.is_sealed = true;
                self.touch(&mut blob);
            }
            Ok(Change::new(blob))
        };
        self.change(&home, decide).await
    }
}

/// The row of an append.
fn extent(found: &Blob, received: &Received) -> Extent {
    let holds = match &received.stored {
        Stored::Inline(body) => Holds::Body(body.clone()),
        Stored::Object(object) => {
            let place = EntryPlace::Object { object: object_number(object), offset: 0 };
            Holds::Blocks(vec![Entry { id: Box::default(), size: received.length, place }])
        }
    };
    Extent { start: found.size, seq: found.props.blocks, length: received.length, holds }
}

/// The blob, if so many bytes may be appended to it.
fn check_append<'a>(
    name: &BlobName,
    found: Option<&'a Blob>,
    length: u64,
    conditions: &Conditions,
) -> Result<&'a Blob, StoreError> {
    let found = appendable(name, found, conditions)?;
    if found.props.is_sealed {
        return Err(StoreError::Sealed);
    }
    conditions.check_append(found.size, length)?;
    match found.props.blocks < APPENDS_MAX {
        true => Ok(found),
        false => Err(StoreError::TooManyBlocks(APPENDS_MAX as usize)),
    }
}

fn appendable<'a>(
    name: &BlobName,
    found: Option<&'a Blob>,
    conditions: &Conditions,
) -> Result<&'a Blob, StoreError> {
    let found = there(found).ok_or_else(|| StoreError::no_blob(name))?;
    check_write(conditions, found)?;
    match found.kind {
        BlobKind::Append => Ok(found),
        BlobKind::Block | BlobKind::Page => Err(StoreError::WrongKind(name.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shard that is away holds up the writers of its own blobs alone.
    #[test]
    fn blobs_of_different_shards_never_share_a_turn() {
        let turns = Turns::default();
        let shard = |name| Some(ShardId::new(name).unwrap());
        let all =
            |name| (0..1000).map(|at| turns.of(shard(name), 7, &format!("blob {at}"))).collect::<Vec<_>>();
        let (here, there) = (all("s1"), all("s2"));
        assert!(here.iter().all(|lock| there.iter().all(|other| !Arc::ptr_eq(lock, other))));
        assert!(Arc::ptr_eq(&here[5], &turns.of(shard("s1"), 7, "blob 5")));
        assert!(turns.0.lock().unwrap().len() <= 2 * TURNS as usize);
    }
}
