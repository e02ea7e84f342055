//! From a request to one call of the store and to its answer.

use std::sync::Arc;

use polyshard_azure_storage::{
    AccountName, Answer, Context, Method, Policies, Request, Response, Service, ServiceError, StoreKind,
    StoredPolicy, failure,
};

use crate::command::{Command, list_max};
use crate::name::QueueName;
use crate::reply::{self, Show};
use crate::store::{QueueStore, StoreError};

/// The queue door's service.
pub struct QueueService {
    store: Arc<QueueStore>,
}

impl QueueService {
    /// A service over a store.
    pub fn new(store: Arc<QueueStore>) -> QueueService {
        QueueService { store }
    }

    async fn answer(&self, context: &Context, request: &Request) -> Result<Response, ServiceError> {
        let command = Command::parse(context, request)?;
        context.identity.require(command.needs())?;
        let account = context.account.as_str();
        let kit = self.store.kit();
        if kit.is_limited(account) {
            let permitted = Box::pin(kit.permit(account, command.target())).await;
            permitted.map_err(|error| failure(&error))?;
        }
        self.handle(context, command).await.map_err(|error| reply::failure(&error))
    }

    async fn handle(&self, context: &Context, command: Command) -> Result<Response, StoreError> {
        let store = &self.store;
        let account = context.account.as_str();
        Ok(match command {
            Command::Put { queue, message } => {
                reply::messages(201, &[store.put(&queue, message).await?], Show::Put)
            }
            Command::Get { queue, count, invisible_ms } => {
                reply::messages(200, &store.get(&queue, count, invisible_ms).await?, Show::Get)
            }
            Command::Peek { queue, count } => {
                reply::messages(200, &store.peek(&queue, count).await?, Show::Peek)
            }
            Command::Update { queue, id, receipt, invisible_ms, body } => {
                reply::updated(&store.update(&queue, &id, receipt, invisible_ms, body).await?, &id)
            }
            Command::DeleteMessage { queue, id, receipt } => {
                store.delete_message(&queue, &id, receipt).await?;
                reply::done()
            }
            Command::Clear { queue } => {
                store.clear(&queue).await?;
                reply::done()
            }
            Command::CreateQueue { queue, metadata } => reply::created(store.create(&queue, metadata).await?),
            Command::DeleteQueue { queue } => {
                store.delete(&queue).await?;
                reply::done()
            }
            Command::GetMetadata { queue } => {
                reply::metadata(&store.metadata(&queue).await?, store.count(&queue).await?)
            }
            Command::SetMetadata { queue, metadata } => {
                store.set_metadata(&queue, metadata).await?;
                reply::done()
            }
            Command::GetPolicies { queue } => reply::policies(&store.policies(&queue).await?)?,
            Command::SetPolicies { queue, policies } => {
                store.set_policies(&queue, policies).await?;
                reply::done()
            }
            Command::ListQueues { prefix, marker, max, include } => {
                let page = store.list(account, &prefix, marker.as_deref(), list_max(max)).await?;
                let base_url = &context.base_url;
                let asked =
                    reply::Asked { base_url, prefix: &prefix, marker: marker.as_deref(), max, include };
                reply::list(&asked, &page)
            }
            Command::GetProperties => reply::properties(&store.properties(account)?),
            Command::SetProperties(patch) => {
                store.set_properties(account, *patch).await?;
                reply::properties_set()
            }
            Command::GetStats => reply::stats(context.now),
        })
    }
}

impl Policies for QueueService {
    fn policies<'a>(&'a self, account: &'a AccountName, resource: &'a str) -> Answer<'a, Vec<StoredPolicy>> {
        Box::pin(async move {
            let Ok(queue) = QueueName::new(account.as_str(), resource) else { return Ok(Vec::new()) };
            match self.store.policies(&queue).await {
                Ok(policies) => reply::stored_policies(&policies).map_err(|error| reply::failure(&error)),
                Err(StoreError::NoSuchQueue(_)) => Ok(Vec::new()),
                Err(error) => Err(reply::failure(&error)),
            }
        })
    }
}

impl Service for QueueService {
    fn kind(&self) -> StoreKind {
        StoreKind::Queue
    }

    fn call(&self, context: Context, request: Request) -> Answer<'_> {
        Box::pin(async move {
            let account = context.account.as_str();
            let failed = |error: StoreError| -> ServiceError { reply::failure(&error) };
            if request.method == Method::Options {
                return self.store.properties(account).map_err(failed)?.preflight(&request);
            }
            let answer = self.answer(&context, &request).await;
            if request.headers.get("Origin").is_none() {
                return answer;
            }
            match self.store.properties(account) {
                Ok(properties) => properties.open_to_origin(&request, answer),
                // The request succeeded; an error now would make the client repeat it.
                Err(error) => {
                    tracing::warn!(%error, "CORS rules unavailable; response sent without CORS headers");
                    answer
                }
            }
        })
    }
}
