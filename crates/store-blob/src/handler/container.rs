//! Requests on a container.

use polyshard_azure_storage::{Context, Request, Response, ServiceError};

use super::BlobService;
use crate::command::ContainerCommand;
use crate::model::{FindIn, PublicAccess};
use crate::name::ContainerName;
use crate::reply::errors::{self, Thing};
use crate::reply::{self};
use crate::store::StoreError;

impl ContainerCommand {
    /// Whether an open container lets everybody do this.
    pub fn is_public_read(&self) -> bool {
        match self {
            ContainerCommand::List(list) => !list.asked.has_tags,
            ContainerCommand::GetProperties { .. } => true,
            _ => false,
        }
    }
}

impl BlobService {
    pub(super) async fn of_container(
        &self,
        context: &Context,
        request: Request,
        name: &ContainerName,
        command: ContainerCommand,
    ) -> Result<Response, ServiceError> {
        match command {
            ContainerCommand::Batch => return self.batch(context, &request, Some(name)).await,
            ContainerCommand::Create { access, .. } | ContainerCommand::SetPolicies { access, .. }
                if access != PublicAccess::None && !self.is_public_allowed =>
            {
                let message = "Public access is not permitted on this storage account.";
                return Err(ServiceError::new(409, "PublicAccessNotPermitted", message));
            }
            _ => {}
        }
        let done = self.with_container(context, name, command).await;
        done.map_err(|error| errors::failure(&error, Thing::Container))
    }

    async fn with_container(
        &self,
        context: &Context,
        name: &ContainerName,
        command: ContainerCommand,
    ) -> Result<Response, StoreError> {
        let store = &self.store;
        let base_url = &context.base_url;
        Ok(match command {
            ContainerCommand::Create { metadata, access } => {
                reply::container::created(&store.create_container(name, metadata, access).await?)
            }
            ContainerCommand::Delete { conditions } => {
                store.delete_container(name, &conditions).await?;
                reply::container::deleted()
            }
            ContainerCommand::GetProperties { conditions } => {
                reply::container::properties(&store.container(name, &conditions).await?)
            }
            ContainerCommand::SetMetadata { metadata, conditions } => {
                reply::container::set(&store.set_container_metadata(name, metadata, &conditions).await?)
            }
            ContainerCommand::GetPolicies { conditions } => {
                reply::container::policies(&store.container(name, &conditions).await?)?
            }
            ContainerCommand::SetPolicies { access, policies, conditions } => reply::container::set(
                &store.set_container_policies(name, access, policies, &conditions).await?,
            ),
            ContainerCommand::Lease { action, conditions } => {
                reply::leased(action, &store.lease_container(name, action, &conditions).await?)
            }
            ContainerCommand::List(list) => {
                let page = store.list_blobs(name, &list.query).await?;
                reply::list::blobs(base_url, name.name(), &list.query, &list.asked, &page)
            }
            ContainerCommand::Find(find) => {
                let within = FindIn::Container(name.clone());
                let page = store.find_blobs(&within, &find.filter, find.marker.as_deref(), find.max).await?;
                reply::list::found(base_url, &find, &page)
            }
            ContainerCommand::GetAccountInfo => reply::service::account_info(),
            // Answered by its parts, before this.
            ContainerCommand::Batch => return Err(StoreError::NotBuilt("a batch in a batch")),
        })
    }
}
