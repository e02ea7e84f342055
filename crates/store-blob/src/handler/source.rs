//! Requests that take content from a URL. Only blobs of the accounts that are served here are sources: nobody can have
//! this server ask another one.

use polyshard_azure_storage::{
    Context, Headers, Identity, Method, Need, RawPath, Request, Response, SasOperation, ServiceError, failure,
};
use polyshard_store::rights::Right;

use super::BlobService;
use crate::checksum::Wanted;
use crate::command::{BlobCommand, Copy, OwnSource, Part, SourceUrl};
use crate::conditions::Conditions;
use crate::model::{CopyKind, CopySource, CopyTags, PublicAccess, Upload, Written};
use crate::name::BlobName;
use crate::reply::errors::{self, Thing};
use crate::reply::{self};
use crate::store::StoreError;

/// What a signature for a source must allow: to read its content, and its tags if these are copied too.
const READ: SasOperation = SasOperation::object(Need::All("r"));
const READ_WITH_TAGS: SasOperation = SasOperation::object(Need::All("rt"));

fn failed(error: StoreError) -> ServiceError {
    errors::failure(&error, Thing::Blob)
}

impl BlobService {
    pub(super) async fn copy_part(
        &self,
        context: &Context,
        request: &Request,
        name: &BlobName,
        command: BlobCommand,
    ) -> Result<Response, ServiceError> {
        match command {
            BlobCommand::PutBlockFromUrl { id, part, lease } => {
                let upload = self.part_of_source(context, request, part).await?;
                let conditions = Conditions::of_lease(lease);
                let digests = self.store.put_block(name, &id, upload, &conditions).await.map_err(failed)?;
                Ok(reply::blob::block(Some(&digests)))
            }
            BlobCommand::AppendFromUrl { part, conditions } => {
                let upload = self.part_of_source(context, request, part).await?;
                let appended = self.store.append(name, upload, &conditions).await.map_err(failed)?;
                Ok(reply::blob::appended(&appended))
            }
            BlobCommand::PutPagesFromUrl { first, last, part, conditions } => {
                let upload = self.part_of_source(context, request, part).await?;
                if upload.length != last - first + 1 {
                    return Err(ServiceError::invalid_header("x-ms-source-range", ""));
                }
                let written = self.store.put_pages(name, first, upload, &conditions).await.map_err(failed)?;
                Ok(reply::blob::pages(&written))
            }
            BlobCommand::PutFromUrl(copy) => {
                let written = self.copy(context, request, name, copy, CopyKind::Put).await?;
                Ok(reply::blob::written(&written))
            }
            BlobCommand::Copy { copy, is_sync } => {
                let kind = if is_sync { CopyKind::Sync } else { CopyKind::Whole };
                let written = self.copy(context, request, name, copy, kind).await?;
                Ok(reply::blob::copied(&written))
            }
            BlobCommand::AbortCopy { id, lease } => {
                self.store.abort_copy(name, id, lease).await.map_err(failed)?;
                Ok(reply::blob::copy_aborted())
            }
            // All others name no URL, and were carried out before this.
            _ => Err(errors::invalid_input("the operation has no source")),
        }
    }

    async fn copy(
        &self,
        context: &Context,
        request: &Request,
        name: &BlobName,
        copy: Copy,
        kind: CopyKind,
    ) -> Result<Written, ServiceError> {
        let with_tags = copy.options.tags == CopyTags::OfSource;
        let needed = if with_tags { READ_WITH_TAGS } else { READ };
        let own = self.own_source(context, request, &copy.source, needed).await?;
        let source = CopySource::Own {
            name: own.name,
            snapshot: own.snapshot,
            conditions: Box::new(copy.source_conditions),
            url: copy.source.shown(),
        };
        let written = self.store.copy_blob(name, source, kind, &copy.options, &copy.conditions).await;
        written.map_err(failed)
    }

    /// The bytes of a part of a source.
    async fn part_of_source(
        &self,
        context: &Context,
        request: &Request,
        part: Part,
    ) -> Result<Upload, ServiceError> {
        let own = self.own_source(context, request, &part.source, READ).await?;
        let read = self.store.get_blob(&own.name, own.snapshot, part.range, &part.source_conditions).await;
        let download = read.map_err(|error| failed(StoreError::Source(Box::new(error))))?;
        let wanted = Wanted { md5: part.expected.md5.is_some(), crc64: part.expected.md5.is_none() };
        Ok(Upload { length: download.length, bytes: download.bytes, expected: part.expected, wanted })
    }

    /// The blob that a URL names, if it is of this server and may be read by the client and by its own account.
    async fn own_source(
        &self,
        context: &Context,
        request: &Request,
        source: &SourceUrl,
        needed: SasOperation,
    ) -> Result<OwnSource, ServiceError> {
        let Some(own) = source.own(context)? else {
            let why = "The copy source is not a blob of this server. Only blobs of the accounts served here can be \
                       copied from a URL; download it and upload it instead.";
            return Err(errors::cannot_verify_source(403, why));
        };
        self.check_source(context, request, source, (&own, needed)).await?;
        // Whichever way the request was signed: its account may be limited to other blobs.
        let account = own.name.container().account();
        if self.store.kit().is_limited(account) {
            let permitted = Box::pin(self.store.permit_blob(account, Right::Read, &own.name)).await;
            permitted.map_err(|error| {
                let error = failure(&error);
                match error.status() {
                    403 => errors::cannot_verify_source(403, error.message()),
                    _ => error,
                }
            })?;
        }
        Ok(own)
    }

    /// Whether who asks may read the source: with the account's key if it is of the same account, with a signature in
    /// its URL, or because it is open to everybody.
    async fn check_source(
        &self,
        context: &Context,
        request: &Request,
        source: &SourceUrl,
        (own, needed): (&OwnSource, SasOperation),
    ) -> Result<(), ServiceError> {
        let account = own.name.container().account();
        let query = source.query()?;
        // Whoever gives a part of a signature means to be judged by it.
        let is_signed =
            query.iter().any(|(name, _)| ["sig", "sv"].iter().any(|own| own.eq_ignore_ascii_case(name)));
        if context.identity == Identity::SharedKey && account == context.account.as_str() && !is_signed {
            return Ok(());
        }
        let bad = || ServiceError::invalid_header("x-ms-copy-source", &source.shown());
        let (_, resource) = source.own_path(context).ok_or_else(bad)?;
        let read = Request {
            method: Method::Get,
            target: source.target().to_owned(),
            path: RawPath::new(source.path()).ok_or_else(bad)?,
            query,
            headers: Headers::new(),
            body: Vec::new(),
            stream: None,
            peer: request.peer,
        };
        let admitted = self.admission.source(context, account, &read, resource, self).await;
        let admitted =
            admitted.map_err(|error| errors::cannot_verify_source(error.status(), error.message()))?;
        // An open container shows content to everybody, and no tags.
        if admitted.identity == Identity::Anonymous && needed == READ && self.is_open(&own.name).await? {
            return Ok(());
        }
        let required = admitted.identity.require(needed);
        required.map_err(|error| errors::cannot_verify_source(error.status(), error.message()))
    }

    async fn is_open(&self, name: &BlobName) -> Result<bool, ServiceError> {
        if !self.is_public_allowed {
            return Ok(false);
        }
        match self.store.container(name.container(), &Conditions::default()).await {
            Ok(container) => Ok(container.access != PublicAccess::None),
            Err(StoreError::NoSuchContainer(_)) => Ok(false),
            Err(error) => Err(errors::failure(&error, Thing::Container)),
        }
    }
}
