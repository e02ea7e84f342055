//! Requests on a blob.

use futures_util::{StreamExt, TryStreamExt};
use polyshard_azure_storage::{Context, Request, Response, ServiceError};

use super::BlobService;
use crate::body::upload;
use crate::checksum::{Digests, Wanted};
use crate::command::{BlobCommand, PropertiesChange, Put, Read};
use crate::conditions::Conditions;
use crate::model::{Blob, BlockListKind, Expected, NewBlob, PropsChange, SnapshotId, Tier, Upload};
use crate::name::BlobName;
use crate::objects::ObjectError;
use crate::reply::errors::{self, Thing};
use crate::reply::{self};
use crate::store::StoreError;

/// Pieces of an answer that are put together for a sum: the service's limit of such a range.
const SUMMED_BYTES_MAX: u64 = 4 * 1024 * 1024;

impl BlobCommand {
    /// Whether an open container lets everybody do this.
    pub fn is_public_read(&self) -> bool {
        matches!(
            self,
            BlobCommand::Get(_)
                | BlobCommand::GetProperties { .. }
                | BlobCommand::GetBlockList { kind: BlockListKind::Committed, .. }
                | BlobCommand::GetPages { .. }
        )
    }

    /// Whether it can be a part of a batch.
    pub fn is_for_batch(&self) -> bool {
        matches!(self, BlobCommand::Delete { .. } | BlobCommand::SetTier { .. })
    }
}

/// What the client is told of the sums of what it sent: of the one it gave, or of the CRC.
fn wanted(expected: Expected) -> Wanted {
    Wanted { md5: expected.md5.is_some(), crc64: expected.md5.is_none() }
}

fn failed(error: StoreError) -> ServiceError {
    errors::failure(&error, Thing::Blob)
}

impl BlobService {
    pub(super) async fn of_blob(
        &self,
        context: &Context,
        mut request: Request,
        name: &BlobName,
        command: BlobCommand,
    ) -> Result<Response, ServiceError> {
        match command {
            BlobCommand::Get(read) => self.get(name, read).await.map_err(failed),
            BlobCommand::Put { kind, new, conditions, expected } => {
                let sums = Wanted { md5: true, crc64: expected.crc64.is_some() };
                let upload = upload(&mut request, expected, sums)?;
                self.put(name, kind, &new, upload, &conditions).await.map_err(failed)
            }
            BlobCommand::PutBlock { id, expected, lease } => {
                let upload = upload(&mut request, expected, wanted(expected))?;
                let conditions = Conditions::of_lease(lease);
                let digests = self.store.put_block(name, &id, upload, &conditions).await.map_err(failed)?;
                Ok(reply::blob::block(Some(&digests)))
            }
            BlobCommand::PutBlockList { blocks, new, conditions } => {
                let mut written =
                    self.store.put_block_list(name, &blocks, &new, &conditions).await.map_err(failed)?;
                // The sum is that of the list, and not of the blob.
                let has_md5 = request.headers.get("Content-MD5").is_some();
                let sums = Wanted { md5: has_md5, crc64: !has_md5 };
                written.digests = Some(Digests::of(&request.body, sums));
                Ok(reply::blob::written(&written))
            }
            BlobCommand::Append { expected, conditions } => {
                let upload = upload(&mut request, expected, wanted(expected))?;
                let appended = self.store.append(name, upload, &conditions).await.map_err(failed)?;
                Ok(reply::blob::appended(&appended))
            }
            BlobCommand::PutPages { first, expected, conditions } => {
                let upload = upload(&mut request, expected, wanted(expected))?;
                let written = self.store.put_pages(name, first, upload, &conditions).await.map_err(failed)?;
                Ok(reply::blob::pages(&written))
            }
            BlobCommand::ClearPages { first, last, conditions } => {
                let range = first..last + 1;
                let written = self.store.clear_pages(name, range, &conditions).await.map_err(failed)?;
                Ok(reply::blob::pages(&written))
            }
            BlobCommand::PutFromUrl(_)
            | BlobCommand::Copy { .. }
            | BlobCommand::AbortCopy { .. }
            | BlobCommand::PutBlockFromUrl { .. }
            | BlobCommand::AppendFromUrl { .. }
            | BlobCommand::PutPagesFromUrl { .. } => self.copy_part(context, &request, name, command).await,
            other => self.with_blob(name, other).await.map_err(failed),
        }
    }

    async fn put(
        &self,
        name: &BlobName,
        kind: Put,
        new: &NewBlob,
        upload: Upload,
        conditions: &Conditions,
    ) -> Result<Response, StoreError> {
        let store = &self.store;
        let written = match kind {
            Put::Block => store.put_blob(name, new, upload, conditions).await?,
            Put::Append => store.create_append(name, new, conditions).await?,
            Put::Page { size, sequence } => store.create_pages(name, size, sequence, new, conditions).await?,
        };
        Ok(reply::blob::written(&written))
    }

    async fn get(&self, name: &BlobName, read: Read) -> Result<Response, StoreError> {
        let download = self.store.get_blob(name, read.snapshot, read.range, &read.conditions).await?;
        let mut head = reply::blob::Bytes {
            blob: &download.blob,
            range: read.range.map(|_| (download.first, download.length)),
            digests: Digests::default(),
            overrides: &read.overrides,
        };
        if !read.has_md5 && !read.has_crc64 {
            let bytes = download.bytes.map_err(|error| failed(StoreError::from(error)));
            return Ok(head.head().with_stream(download.length, bytes.boxed()));
        }
        if download.length > SUMMED_BYTES_MAX {
            return Err(StoreError::Client(
                "the sum of a range of more than 4 MiB is not computed".to_owned(),
            ));
        }
        let whole = collect(download.bytes, download.length).await?;
        head.digests = Digests::of(&whole, Wanted { md5: read.has_md5, crc64: read.has_crc64 });
        Ok(head.head().with_body(whole))
    }

    async fn with_blob(&self, name: &BlobName, command: BlobCommand) -> Result<Response, StoreError> {
        let store = &self.store;
        Ok(match command {
            BlobCommand::GetProperties { snapshot, conditions, overrides } => {
                let blob = store.head_blob(name, snapshot, &conditions).await?;
                reply::blob::properties(&blob, &overrides)
            }
            BlobCommand::Delete { snapshot, snapshots, conditions } => {
                reply::blob::deleted(store.delete_blob(name, snapshot, snapshots, &conditions).await?)
            }
            BlobCommand::Undelete => {
                store.undelete_blob(name).await?;
                reply::blob::undeleted()
            }
            BlobCommand::SetProperties { change, conditions } => {
                reply::blob::set(&self.change_properties(name, change, &conditions).await?)
            }
            BlobCommand::SetMetadata { metadata, conditions } => {
                reply::blob::set(&self.set(name, None, PropsChange::Metadata(metadata), &conditions).await?)
            }
            BlobCommand::GetTags { snapshot, conditions } => {
                reply::blob::tags(&store.tags(name, snapshot, &conditions).await?)
            }
            BlobCommand::SetTags { snapshot, tags, conditions } => {
                self.set(name, snapshot, PropsChange::Tags(tags), &conditions).await?;
                reply::blob::tags_set()
            }
            BlobCommand::SetTier { snapshot, tier, conditions } => {
                let tier: Tier = tier;
                self.set(name, snapshot, PropsChange::Tier(tier), &conditions).await?;
                reply::blob::tier_set()
            }
            BlobCommand::Snapshot { metadata, conditions } => {
                let (id, blob) = store.snapshot(name, metadata.as_ref(), &conditions).await?;
                reply::blob::snapshot(id, &blob)
            }
            BlobCommand::Lease { action, conditions } => {
                reply::leased(action, &store.lease_blob(name, action, &conditions).await?)
            }
            BlobCommand::GetBlockList { snapshot, kind, conditions } => {
                let list = store.block_list(name, snapshot, kind, &conditions).await?;
                reply::parts::block_list(&list, kind)
            }
            BlobCommand::Seal { conditions } => reply::blob::sealed(&store.seal(name, &conditions).await?),
            BlobCommand::GetPages { snapshot, query, conditions } => {
                reply::parts::page_list(&store.page_ranges(name, snapshot, &query, &conditions).await?)
            }
            BlobCommand::GetAccountInfo => reply::service::account_info(),
            // All others have a body, and were carried out before this.
            _ => return Err(StoreError::NotBuilt("this operation without a body")),
        })
    }

    async fn change_properties(
        &self,
        name: &BlobName,
        change: PropertiesChange,
        conditions: &Conditions,
    ) -> Result<Blob, StoreError> {
        match change {
            PropertiesChange::Headers(headers) => {
                self.set(name, None, PropsChange::Headers(headers), conditions).await
            }
            PropertiesChange::Size(size) => self.store.resize(name, size, conditions).await,
            PropertiesChange::Sequence(action) => self.store.set_sequence(name, action, conditions).await,
        }
    }

    async fn set(
        &self,
        name: &BlobName,
        snapshot: Option<SnapshotId>,
        change: PropsChange,
        conditions: &Conditions,
    ) -> Result<Blob, StoreError> {
        self.store.set_props(name, snapshot, &change, conditions).await
    }
}

/// Puts the pieces of a short answer together.
async fn collect(mut bytes: crate::objects::ByteStream, length: u64) -> Result<Vec<u8>, StoreError> {
    let mut whole = Vec::with_capacity(length as usize);
    while let Some(piece) = bytes.next().await {
        whole.extend_from_slice(&piece?);
    }
    if whole.len() as u64 != length {
        let what = "the stored content has another length than its row says";
        return Err(StoreError::from(ObjectError::Failed(what.to_owned())));
    }
    Ok(whole)
}
