//! Reads a request once into what it asks for.

mod blob;
mod blocks;
mod conditions;
mod container;
mod copy;
mod headers;
mod metadata;
mod parameters;
mod properties;
mod rights;
mod service;
mod tags;
mod write;

use polyshard_azure_storage::{Context, Request, ServiceError};
use uuid::Uuid;

pub(crate) use copy::{OwnSource, SourceUrl};
#[cfg(test)]
pub(crate) use properties::parse_properties;
pub(crate) use rights::Target;

use crate::conditions::Conditions;
use crate::model::{
    BlobQuery, BlockId, BlockListKind, BlockSource, ByteRange, ContainerQuery, ContentHeaders, CopyOptions,
    DeleteSnapshots, Expected, LeaseAction, Metadata, NewBlob, PageQuery, Policy, PublicAccess,
    SequenceAction, SnapshotId, Tags, Tier,
};
use crate::name::{BlobName, ContainerName, ROOT_CONTAINER};
use crate::reply::errors;
use crate::store::BlobPropertiesPatch;
use crate::tag_filter::TagFilter;

/// What a request asks for.
#[derive(Debug)]
pub(crate) enum Command {
    /// Something with the account's service.
    Service(ServiceCommand),
    /// Something with a container.
    Container(ContainerName, Box<ContainerCommand>),
    /// Something with a blob.
    Blob(BlobName, Box<BlobCommand>),
}

/// What can be asked of an account's service.
#[derive(Debug)]
pub(crate) enum ServiceCommand {
    List { query: ContainerQuery, asked: AskedContainers },
    GetProperties,
    SetProperties(Box<BlobPropertiesPatch>),
    GetStats,
    GetAccountInfo,
    Find(Box<Find>),
    Batch,
}

/// What can be asked of a container.
#[derive(Debug)]
pub(crate) enum ContainerCommand {
    Create { metadata: Metadata, access: PublicAccess },
    Delete { conditions: Conditions },
    GetProperties { conditions: Conditions },
    SetMetadata { metadata: Metadata, conditions: Conditions },
    GetPolicies { conditions: Conditions },
    SetPolicies { access: PublicAccess, policies: Vec<Policy>, conditions: Conditions },
    Lease { action: LeaseAction, conditions: Conditions },
    List(Box<List>),
    Find(Box<Find>),
    GetAccountInfo,
    Batch,
}

/// A list of blobs that is asked for.
#[derive(Debug)]
pub(crate) struct List {
    pub query: BlobQuery,
    pub asked: AskedBlobs,
}

/// A search by tags.
#[derive(Debug)]
pub(crate) struct Find {
    pub filter: TagFilter,
    /// As the client wrote it: it is repeated in the answer.
    pub text: String,
    pub marker: Option<String>,
    pub max: usize,
}

/// What a list of containers repeats and shows.
#[derive(Debug, Default)]
pub(crate) struct AskedContainers {
    pub max: Option<usize>,
    pub has_metadata: bool,
}

/// What a list of blobs repeats and shows.
#[derive(Debug, Default)]
pub(crate) struct AskedBlobs {
    pub max: Option<usize>,
    pub has_metadata: bool,
    pub has_tags: bool,
    pub has_copy: bool,
}

/// What can be asked of a blob.
#[derive(Debug)]
pub(crate) enum BlobCommand {
    Get(Read),
    GetProperties { snapshot: Option<SnapshotId>, conditions: Conditions, overrides: ContentHeaders },
    Put { kind: Put, new: NewBlob, conditions: Conditions, expected: Expected },
    PutFromUrl(Copy),
    Copy { copy: Copy, is_sync: bool },
    AbortCopy { id: Uuid, lease: Option<Uuid> },
    Delete { snapshot: Option<SnapshotId>, snapshots: DeleteSnapshots, conditions: Conditions },
    Undelete,
    SetProperties { change: PropertiesChange, conditions: Conditions },
    SetMetadata { metadata: Metadata, conditions: Conditions },
    GetTags { snapshot: Option<SnapshotId>, conditions: Conditions },
    SetTags { snapshot: Option<SnapshotId>, tags: Tags, conditions: Conditions },
    SetTier { snapshot: Option<SnapshotId>, tier: Tier, conditions: Conditions },
    Snapshot { metadata: Option<Metadata>, conditions: Conditions },
    Lease { action: LeaseAction, conditions: Conditions },
    PutBlock { id: BlockId, expected: Expected, lease: Option<Uuid> },
    PutBlockFromUrl { id: BlockId, part: Part, lease: Option<Uuid> },
    PutBlockList { blocks: Vec<(BlockSource, BlockId)>, new: NewBlob, conditions: Conditions },
    GetBlockList { snapshot: Option<SnapshotId>, kind: BlockListKind, conditions: Conditions },
    Append { expected: Expected, conditions: Conditions },
    AppendFromUrl { part: Part, conditions: Conditions },
    Seal { conditions: Conditions },
    PutPages { first: u64, expected: Expected, conditions: Conditions },
    PutPagesFromUrl { first: u64, last: u64, part: Part, conditions: Conditions },
    ClearPages { first: u64, last: u64, conditions: Conditions },
    GetPages { snapshot: Option<SnapshotId>, query: PageQuery, conditions: Conditions },
    GetAccountInfo,
}

/// A read of a blob's bytes.
#[derive(Debug)]
pub(crate) struct Read {
    pub snapshot: Option<SnapshotId>,
    pub range: Option<ByteRange>,
    /// Sums of the range that the client asks for.
    pub has_md5: bool,
    pub has_crc64: bool,
    pub conditions: Conditions,
    /// Content headers that a shared access signature sets for the answer.
    pub overrides: ContentHeaders,
}

/// What kind of blob is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Block,
    Append,
    Page { size: u64, sequence: i64 },
}

/// A whole blob that is copied from a URL.
#[derive(Debug)]
pub(crate) struct Copy {
    pub source: SourceUrl,
    pub source_conditions: Conditions,
    pub options: CopyOptions,
    pub conditions: Conditions,
}

/// Bytes that are read from a URL.
#[derive(Debug)]
pub(crate) struct Part {
    pub source: SourceUrl,
    pub source_conditions: Conditions,
    pub range: Option<ByteRange>,
    pub expected: Expected,
}

/// What `comp=properties` changes: one of these.
#[derive(Debug)]
pub(crate) enum PropertiesChange {
    Headers(ContentHeaders),
    Size(u64),
    Sequence(SequenceAction),
}

impl Command {
    /// Reads a request. Its body, if the operation reads one as a document, must be in memory.
    pub fn parse(context: &Context, request: &Request) -> Result<Command, ServiceError> {
        let account = context.account.as_str();
        let path = context.resource.as_str();
        let (container, blob) = match path[1..].split_once('/') {
            _ if path == "/" => return service::parse(context, request).map(Command::Service),
            Some((container, "")) => (container, None),
            Some((container, blob)) => (container, Some(blob)),
            None => (&path[1..], None),
        };
        let container = polyshard_azure_storage::percent_decode(container)?;
        match blob {
            Some(blob) => {
                // Decoded once, and never normalised.
                let blob = polyshard_azure_storage::percent_decode(blob)?;
                let container = ContainerName::new(account, &container).map_err(errors::bad_name)?;
                Command::blob(context, request, BlobName::new(container, blob).map_err(errors::bad_name)?)
            }
            // What is alone in the path is a blob of the root container, unless `restype` says that it is a container.
            // Signatures are read by the same rule.
            None if is_blob_of_root(request, &container) => {
                let root = ContainerName::new(account, ROOT_CONTAINER).map_err(errors::bad_name)?;
                Command::blob(context, request, BlobName::new(root, container).map_err(errors::bad_name)?)
            }
            None => {
                let container = ContainerName::new(account, &container).map_err(errors::bad_name)?;
                let command = container::parse(request)?;
                Ok(Command::Container(container, Box::new(command)))
            }
        }
    }

    fn blob(context: &Context, request: &Request, name: BlobName) -> Result<Command, ServiceError> {
        let command = blob::parse(context, request)?;
        Ok(Command::Blob(name, Box::new(command)))
    }
}

fn is_blob_of_root(request: &Request, name: &str) -> bool {
    request.query("restype").is_none() && !name.starts_with('$')
}

/// A component that a resource does not have.
fn unknown_comp(comp: Option<&str>) -> ServiceError {
    ServiceError::invalid_query("comp", comp.unwrap_or_default(), "this resource has no such component")
}

#[cfg(test)]
mod tests;
