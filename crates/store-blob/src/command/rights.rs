//! What each operation needs: of the rights of a user, and of a shared access signature.

use polyshard_azure_storage::{Need, ResourceType, SasOperation};
use polyshard_store::rights::Right;

use super::{BlobCommand, Command, ContainerCommand, ServiceCommand};
use crate::model::CopyTags;
use crate::name::{BlobName, ContainerName};

/// What a request is about, to be held against the rights of its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target<'c> {
    /// Nothing in particular: any right in the store is enough.
    Any,
    /// The store as a whole.
    Store(Right),
    /// A container: all that is in it.
    Container(Right, &'c ContainerName),
    /// One blob.
    Blob(Right, &'c BlobName),
}

/// What any signature may have: for what is open to whoever has a valid one.
const ANYTHING: &str = "rwdlacupxtfiy";

/// An object that needs the same of both sorts of signature.
const fn object(need: Need) -> SasOperation {
    SasOperation::object(need)
}

impl Command {
    /// What it needs of the account itself.
    pub fn target(&self) -> Target<'_> {
        match self {
            Command::Service(ServiceCommand::SetProperties(_)) => Target::Store(Right::Schema),
            Command::Service(ServiceCommand::Find(_)) => Target::Store(Right::Read),
            // The parts of a batch ask for themselves.
            Command::Service(_) => Target::Any,
            Command::Container(container, command) => match command.as_ref() {
                ContainerCommand::Batch => Target::Any,
                ContainerCommand::GetProperties { .. }
                | ContainerCommand::List(_)
                | ContainerCommand::Find(_)
                | ContainerCommand::GetAccountInfo => Target::Container(Right::Read, container),
                ContainerCommand::Lease { .. } => Target::Container(Right::Write, container),
                _ => Target::Store(Right::Schema),
            },
            Command::Blob(blob, command) => {
                let right = if command.is_read() { Right::Read } else { Right::Write };
                Target::Blob(right, blob)
            }
        }
    }

    /// What it needs of a shared access signature.
    pub fn needs(&self) -> SasOperation {
        match self {
            Command::Service(command) => match command {
                ServiceCommand::List { .. } => SasOperation::service(Need::All("l")),
                ServiceCommand::GetProperties | ServiceCommand::GetStats => {
                    SasOperation::service(Need::All("r"))
                }
                ServiceCommand::SetProperties(_) => SasOperation::service(Need::All("w")),
                ServiceCommand::GetAccountInfo => SasOperation::service(Need::Any(ANYTHING)),
                ServiceCommand::Find(_) => SasOperation::service(Need::All("f")),
                ServiceCommand::Batch => SasOperation::service(Need::Any(ANYTHING)),
            },
            Command::Container(_, command) => command.needs(),
            Command::Blob(_, command) => command.needs(),
        }
    }

    /// Whether it also sets tags, for which a signature must have `t` beside all else.
    pub fn sets_tags(&self) -> bool {
        let Command::Blob(_, command) = self else { return false };
        match &**command {
            BlobCommand::Put { new, .. } | BlobCommand::PutBlockList { new, .. } => !new.tags.is_empty(),
            BlobCommand::PutFromUrl(copy) | BlobCommand::Copy { copy, .. } => {
                copy.options.tags != CopyTags::None
            }
            _ => false,
        }
    }
}

impl ContainerCommand {
    fn needs(&self) -> SasOperation {
        let container = |need| SasOperation::new(ResourceType::Container, need, need);
        match self {
            ContainerCommand::Create { .. } => SasOperation::container(Need::Any("cw")),
            ContainerCommand::Delete { .. } => SasOperation::container(Need::All("d")),
            ContainerCommand::GetProperties { .. } => SasOperation::container(Need::All("r")),
            ContainerCommand::SetMetadata { .. } => SasOperation::container(Need::All("w")),
            ContainerCommand::GetPolicies { .. } | ContainerCommand::SetPolicies { .. } => {
                SasOperation::container(Need::Never)
            }
            ContainerCommand::Lease { .. } => SasOperation::container(Need::Any("wd")),
            ContainerCommand::List(list) if list.asked.has_tags => container(Need::All("lt")),
            ContainerCommand::List(_) => container(Need::All("l")),
            ContainerCommand::Find(_) => container(Need::All("f")),
            ContainerCommand::GetAccountInfo | ContainerCommand::Batch => container(Need::Any(ANYTHING)),
        }
    }
}

impl BlobCommand {
    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            BlobCommand::Get(_)
                | BlobCommand::GetProperties { .. }
                | BlobCommand::GetTags { .. }
                | BlobCommand::GetBlockList { .. }
                | BlobCommand::GetPages { .. }
                | BlobCommand::GetAccountInfo
        )
    }

    /// Whether it makes a blob, or overwrites one: for the latter a signature must have `w`.
    pub fn creates(&self) -> bool {
        matches!(self, BlobCommand::Put { .. } | BlobCommand::PutFromUrl(_) | BlobCommand::Copy { .. })
    }

    fn needs(&self) -> SasOperation {
        match self {
            BlobCommand::Get(_)
            | BlobCommand::GetProperties { .. }
            | BlobCommand::GetBlockList { .. }
            | BlobCommand::GetPages { .. } => object(Need::All("r")),
            BlobCommand::GetAccountInfo => object(Need::Any(ANYTHING)),
            BlobCommand::GetTags { .. } | BlobCommand::SetTags { .. } => object(Need::All("t")),
            BlobCommand::Put { .. }
            | BlobCommand::PutFromUrl(_)
            | BlobCommand::Copy { .. }
            | BlobCommand::Snapshot { .. } => object(Need::Any("cw")),
            BlobCommand::Append { .. } | BlobCommand::AppendFromUrl { .. } => object(Need::Any("aw")),
            BlobCommand::Delete { .. } => object(Need::All("d")),
            BlobCommand::Lease { .. } => object(Need::Any("wd")),
            BlobCommand::AbortCopy { .. }
            | BlobCommand::Undelete
            | BlobCommand::SetProperties { .. }
            | BlobCommand::SetMetadata { .. }
            | BlobCommand::SetTier { .. }
            | BlobCommand::PutBlock { .. }
            | BlobCommand::PutBlockFromUrl { .. }
            | BlobCommand::PutBlockList { .. }
            | BlobCommand::Seal { .. }
            | BlobCommand::PutPages { .. }
            | BlobCommand::PutPagesFromUrl { .. }
            | BlobCommand::ClearPages { .. } => object(Need::All("w")),
        }
    }

    /// The conditions under which it may only make a new blob.
    pub fn only_new(&mut self) {
        match self {
            BlobCommand::Put { conditions, .. } => {
                conditions.if_none_match = Some(crate::conditions::Etags::Any)
            }
            BlobCommand::PutFromUrl(copy) | BlobCommand::Copy { copy, .. } => {
                copy.conditions.if_none_match = Some(crate::conditions::Etags::Any);
            }
            _ => {}
        }
    }
}
