//! From a request to one call of the store and to its answer.

mod blob;
mod container;
mod source;

use std::sync::Arc;

use polyshard_azure_storage::{
    AccountName, Accounts, Admission, Answer, Context, Identity, Method, Need, Policies, Request, Response,
    SasOperation, Service, ServiceError, StoreKind, StoredPolicy, failure,
};

use crate::batch;
use crate::body;
use crate::command::{Command, ServiceCommand, Target};
use crate::conditions::Conditions;
use crate::model::{FindIn, PublicAccess};
use crate::name::ContainerName;
use crate::reply::errors::{self, Thing};
use crate::reply::{self};
use crate::store::{BlobStore, StoreError};

/// The blob door's service.
pub struct BlobService {
    store: Arc<BlobStore>,
    admission: Admission,
    is_public_allowed: bool,
}

impl BlobService {
    /// A service over a store, for the accounts of its door.
    pub fn new(store: Arc<BlobStore>, accounts: Arc<Accounts>) -> BlobService {
        let admission = Admission::new(StoreKind::Blob, accounts);
        BlobService { store, admission, is_public_allowed: false }
    }

    /// Whether containers can be opened to everybody.
    pub fn with_public_access(mut self, is_allowed: bool) -> BlobService {
        self.is_public_allowed = is_allowed;
        self
    }

    /// Answers one request: a whole one, or a part of a batch.
    async fn answer(&self, context: &Context, mut request: Request) -> Result<Response, ServiceError> {
        if request.query("comp") == Some("blocklist") {
            body::read_document(&mut request).await?;
        }
        let mut command = Command::parse(context, &request)?;
        let is_new_only = self.authorise(context, &mut command).await?;
        let answer = match command {
            Command::Service(command) => self.of_service(context, request, command).await,
            Command::Container(name, command) => self.of_container(context, request, &name, *command).await,
            Command::Blob(name, command) => self.of_blob(context, request, &name, *command).await,
        };
        match answer {
            // The signature allows to make blobs, and not to overwrite them.
            Err(error) if is_new_only && error.code() == "BlobAlreadyExists" => {
                let message = "This request is not authorized to perform blob overwrites.";
                Err(ServiceError::new(403, "UnauthorizedBlobOverwrite", message))
            }
            answer => answer,
        }
    }

    /// Whether who asks may do this. True if a blob may only be made where there is none.
    async fn authorise(&self, context: &Context, command: &mut Command) -> Result<bool, ServiceError> {
        let mut is_new_only = false;
        match &context.identity {
            Identity::SharedKey => {}
            Identity::Anonymous => {
                if !self.is_public(command).await? {
                    context.identity.require(command.needs())?;
                }
            }
            Identity::Sas(sas) => {
                context.identity.require(command.needs())?;
                if sas.encryption_scope().is_some() {
                    return Err(errors::not_built("encryption scopes (ses)"));
                }
                if command.sets_tags() {
                    context.identity.require(SasOperation::object(Need::All("t")))?;
                }
                if let Command::Blob(_, command) = command
                    && command.creates()
                    && !sas.permissions().contains('w')
                {
                    is_new_only = true;
                    command.only_new();
                }
            }
        }
        let account = context.account.as_str();
        if self.store.kit().is_limited(account) {
            let permitted = Box::pin(self.permit(account, command.target())).await;
            permitted.map_err(|error| failure(&error))?;
        }
        Ok(is_new_only)
    }

    /// Whether the rights of an account allow this.
    async fn permit(&self, account: &str, target: Target<'_>) -> Result<(), polyshard_store::Error> {
        let kit = self.store.kit();
        match target {
            Target::Any => kit.permit(account, polyshard_store::Target::Any).await,
            Target::Store(right) => kit.permit(account, polyshard_store::Target::Store(right)).await,
            Target::Container(right, container) => {
                self.store.permit_container(account, right, container).await
            }
            Target::Blob(right, blob) => self.store.permit_blob(account, right, blob).await,
        }
    }

    /// Whether everybody may do this, because its container is open.
    async fn is_public(&self, command: &Command) -> Result<bool, ServiceError> {
        let (container, needed) = match command {
            Command::Container(container, command) if command.is_public_read() => {
                (container, PublicAccess::Container)
            }
            Command::Blob(blob, command) if command.is_public_read() => {
                (blob.container(), PublicAccess::Blob)
            }
            _ => return Ok(false),
        };
        if !self.is_public_allowed {
            return Ok(false);
        }
        match self.store.container(container, &Conditions::default()).await {
            Ok(found) => Ok(match found.access {
                PublicAccess::None => false,
                PublicAccess::Blob => needed == PublicAccess::Blob,
                PublicAccess::Container => true,
            }),
            // Strangers learn nothing about which containers there are.
            Err(StoreError::NoSuchContainer(_)) => Ok(false),
            Err(error) => Err(errors::failure(&error, Thing::Container)),
        }
    }

    async fn of_service(
        &self,
        context: &Context,
        request: Request,
        command: ServiceCommand,
    ) -> Result<Response, ServiceError> {
        let store = &self.store;
        let account = context.account.as_str();
        let failed = |error: StoreError| errors::failure(&error, Thing::Container);
        match command {
            ServiceCommand::List { query, asked } => {
                let page = store.list_containers(account, &query).await.map_err(failed)?;
                Ok(reply::list::containers(&context.base_url, &query, &asked, &page))
            }
            ServiceCommand::GetProperties => {
                Ok(reply::service::properties(&store.properties(account).map_err(failed)?))
            }
            ServiceCommand::SetProperties(patch) => {
                store.set_properties(account, *patch).await.map_err(failed)?;
                Ok(reply::service::properties_set())
            }
            ServiceCommand::GetStats => Ok(reply::service::stats(context.now)),
            ServiceCommand::GetAccountInfo => Ok(reply::service::account_info()),
            ServiceCommand::Find(find) => {
                let within = FindIn::Account(account.to_owned());
                let found = store.find_blobs(&within, &find.filter, find.marker.as_deref(), find.max).await;
                Ok(reply::list::found(&context.base_url, &find, &found.map_err(failed)?))
            }
            ServiceCommand::Batch => self.batch(context, &request, None).await,
        }
    }

    /// Carries out the parts of a batch, one after the other, and answers each by itself.
    async fn batch(
        &self,
        context: &Context,
        request: &Request,
        container: Option<&ContainerName>,
    ) -> Result<Response, ServiceError> {
        let parts = batch::parse(request)?;
        let mut answers = batch::Answers::new(context.request_id);
        for part in parts {
            let (id, answer) = match part {
                Ok(part) => (part.content_id, self.part(context, part.request, container).await),
                Err(refused) => (refused.content_id, Err(refused.error)),
            };
            answers.push(id.as_deref(), answer, context);
        }
        Ok(answers.finish())
    }

    async fn part(
        &self,
        outer: &Context,
        request: Request,
        container: Option<&ContainerName>,
    ) -> Result<Response, ServiceError> {
        let context = self.admission.part(outer, &request, self).await?;
        let command = Command::parse(&context, &request)?;
        let Command::Blob(name, command) = &command else { return Err(batch::not_allowed()) };
        if !command.is_for_batch() {
            return Err(batch::not_allowed());
        }
        if container.is_some_and(|container| container != name.container()) {
            return Err(errors::invalid_input("a part of a container's batch names another container"));
        }
        // A batch is not in a batch, so that this goes no deeper.
        Box::pin(self.answer(&context, request)).await
    }
}

impl Policies for BlobService {
    fn policies<'a>(&'a self, account: &'a AccountName, resource: &'a str) -> Answer<'a, Vec<StoredPolicy>> {
        Box::pin(async move {
            let Ok(container) = ContainerName::new(account.as_str(), resource) else { return Ok(Vec::new()) };
            match self.store.container(&container, &Conditions::default()).await {
                Ok(container) => {
                    let stored = reply::container::stored_policies(&container.policies);
                    stored.map_err(|error| errors::failure(&error, Thing::Container))
                }
                Err(StoreError::NoSuchContainer(_)) => Ok(Vec::new()),
                Err(error) => Err(errors::failure(&error, Thing::Container)),
            }
        })
    }
}

impl Service for BlobService {
    fn kind(&self) -> StoreKind {
        StoreKind::Blob
    }

    fn streams(&self, head: &Request) -> bool {
        body::comes_in_pieces(head)
    }

    fn call(&self, context: Context, request: Request) -> Answer<'_> {
        Box::pin(async move {
            let account = context.account.as_str();
            if request.method == Method::Options {
                let properties = self.store.properties(account);
                let properties = properties.map_err(|error| errors::failure(&error, Thing::Container))?;
                return properties.common.preflight(&request);
            }
            if request.headers.get("Origin").is_none() {
                return self.answer(&context, request).await;
            }
            let origin = body::head_of(&request);
            let answer = self.answer(&context, request).await;
            match self.store.properties(account) {
                Ok(properties) => properties.common.open_to_origin(&origin, answer),
                // The request succeeded; an error now would make the client repeat it.
                Err(error) => {
                    tracing::warn!(%error, "CORS rules unavailable; response sent without CORS headers");
                    answer
                }
            }
        })
    }
}
