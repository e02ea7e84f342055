//! The table service behind its door: a request becomes a command, one call of the store, and a reply.

use std::sync::Arc;

use polyshard_azure_storage::xml::Writer;
use polyshard_azure_storage::{
    AccountName, Answer, BodyFormat, Context, Endpoint, Identity, Policies, Request, Response, Service,
    ServiceError, ServiceProperties, StoreKind, StoredPolicy, TableKeyRange, Timestamp, write_policies,
};
use polyshard_store::rights::Right;

use crate::batch::{self, Answers, Batch, BatchError, Part, PartHead};
use crate::changeset::{self, ChangeSet};
use crate::command::{Command, READ};
use crate::entity::{Entity, EntityKey, PartitionKey, Properties};
use crate::filter::Filter;
use crate::name::TableName;
use crate::odata::Level;
use crate::reply::{self, Prefer, store_error};
use crate::store::{Change, ChangeKind, Doing, Policy, Query, StoreError, TableStore};

/// The table service of a cluster, to be put behind a door.
pub struct TableService {
    store: Arc<TableStore>,
}

impl TableService {
    /// A service over a store.
    pub fn new(store: Arc<TableStore>) -> TableService {
        TableService { store }
    }

    async fn answer(&self, context: &Context, request: &Request) -> Result<Response, ServiceError> {
        let answer = match Command::parse(context.account.as_str(), &context.resource, request) {
            Ok(Command::Preflight) => {
                return self.properties(context)?.preflight(request);
            }
            Ok(Command::Batch) => {
                let batch: Answer<'_> = Box::pin(self.batch(context, request));
                batch.await
            }
            Ok(command) => self.carry_out(context, command).await,
            Err(error) => Err(error),
        };
        if request.headers.get("Origin").is_none() {
            return answer;
        }
        match self.properties(context) {
            Ok(properties) => properties.open_to_origin(request, answer),
            // The request succeeded; an error now would make the client repeat it.
            Err(error) => {
                tracing::warn!(
                    code = error.code(),
                    "CORS rules unavailable; response sent without CORS headers"
                );
                answer
            }
        }
    }

    /// What is asked most is done here; the rest is put elsewhere, since the room that a request takes in memory is
    /// that of the largest.
    async fn carry_out(&self, context: &Context, command: Command) -> Result<Response, ServiceError> {
        authorize(context, &command)?;
        if self.store.is_limited(context.account.as_str()) {
            Box::pin(self.permit(context, &command)).await?;
        }
        let failed = |error: StoreError| store_error(&error);
        match command {
            Command::Get { table, key, select, level } => {
                let entity = self.store.get(&table, &key).await.map_err(failed)?;
                Ok(reply::entity(context, table.name(), &entity, level, &select))
            }
            command @ Command::Change { .. } => {
                let (table, partition, change, level, prefer) =
                    command.into_change().expect("it is a change");
                let changes: Arc<[Change]> = [change].into();
                let changed = self.store.change(&table, &partition, changes.clone()).await;
                let times = changed.map_err(|(_, error)| store_error(&error))?;
                Ok(changed_reply(context, &table, partition, &changes[0], times[0], level, prefer))
            }
            other => {
                let other: Answer<'_> = Box::pin(self.carry_out_other(context, other));
                other.await
            }
        }
    }

    async fn carry_out_other(&self, context: &Context, command: Command) -> Result<Response, ServiceError> {
        let failed = |error: StoreError| store_error(&error);
        match command {
            Command::ListTables { filter, from, top, level } => {
                let account = context.account.as_str();
                let listed = self.store.list_tables(account, filter.as_ref(), from.as_deref(), top).await;
                Ok(reply::tables(context, &listed.map_err(failed)?, level))
            }
            Command::GetTable { table, level } => {
                let name = self.store.table(&table).await.map_err(|error| match error {
                    StoreError::NoSuchTable(_) => store_error(&StoreError::NoSuchEntity),
                    other => store_error(&other),
                })?;
                Ok(reply::table(context, &name, level))
            }
            Command::CreateTable { table, level, prefer } => {
                self.store.create_table(&table).await.map_err(failed)?;
                Ok(reply::table_created(context, table.name(), level, prefer))
            }
            Command::DeleteTable { table } => {
                self.store.delete_table(&table).await.map_err(|error| match error {
                    // The service's own answer here, which SDKs take as "it is gone".
                    StoreError::NoSuchTable(_) => store_error(&StoreError::NoSuchEntity),
                    other => store_error(&other),
                })?;
                Ok(reply::done(204))
            }
            Command::GetPolicies { table } => {
                let policies = self.store.policies(&table).await.map_err(failed)?;
                Ok(reply::xml(write_policies(&to_stored(policies))))
            }
            Command::SetPolicies { table, policies } => {
                self.store.set_policies(&table, from_stored(policies)).await.map_err(failed)?;
                Ok(reply::done(204))
            }
            Command::GetProperties => Ok(reply::xml(self.properties(context)?.to_xml())),
            Command::SetProperties(given) => {
                self.store.set_properties(context.account.as_str(), *given).await.map_err(failed)?;
                Ok(reply::done(202))
            }
            Command::GetStats => stats(context),
            Command::Query { table, query, select, level } => {
                let query = Query { filter: limited(context, query.filter.clone()), ..query };
                let page = self.store.query(&table, &query).await.map_err(failed)?;
                Ok(reply::page(context, table.name(), &page, level, &select))
            }
            // They have answers of their own.
            Command::Batch | Command::Preflight | Command::Get { .. } | Command::Change { .. } => {
                Err(reply::no_such_operation())
            }
        }
    }

    /// A change set is answered with 202 whatever becomes of it; one error stands for all.
    async fn batch(&self, context: &Context, request: &Request) -> Result<Response, ServiceError> {
        // What a signature allows is asked for each part; without any there is no need to look at them.
        if context.identity == Identity::Anonymous {
            context.identity.require(READ)?;
        }
        let parsed = batch::parse(request, base_path(&context.base_url));
        // Far too many changes are refused as a few too many are.
        if parsed.as_ref().is_err_and(|error| *error == BatchError::TooManyParts) {
            return Ok(refused_changes(context, &reply::too_many_changes()).finish());
        }
        match parsed.map_err(|error| reply::invalid_input(&error.to_string()))? {
            Batch::Changes(parts) => {
                let answers = self.changes(context, parts).await;
                Ok(answers.unwrap_or_else(|error| refused_changes(context, &error)).finish())
            }
            Batch::Query(mut part) => {
                let PartHead { resource, mut request } = *part.head.take().expect("the first part has one");
                request.body = part.body.to_vec();
                let command = Command::parse(context.account.as_str(), &resource, &request);
                let command = command.and_then(|command| match command {
                    Command::Query { .. } | Command::Get { .. } => Ok(command),
                    _ => Err(reply::invalid_input("changes must be in a change set")),
                });
                let answered = match command {
                    Ok(command) => self.carry_out(context, command).await,
                    Err(error) => Err(error),
                };
                let response = answered.unwrap_or_else(|error| {
                    error.to_response(BodyFormat::Json, context.request_id, context.now)
                });
                Ok(batch::query_response(context.request_id, part.content_id.as_deref(), &response))
            }
        }
    }

    async fn changes(&self, context: &Context, parts: Vec<Part<'_>>) -> Result<Answers, ServiceError> {
        let ChangeSet { table, partition, changes, asked } = ChangeSet::parse(context, parts)?;
        let doing = Doing::Table(Right::Write, &table, Some(partition.as_str()));
        Box::pin(self.permit_doing(context, doing)).await?;
        let changes: Arc<[Change]> = changes.into();
        let changed = self.store.change(&table, &partition, changes.clone()).await;
        let times = changed.map_err(|(at, error)| reply::numbered(at, store_error(&error)))?;
        Ok(changeset::answer(context, &table, &partition, &changes, &asked, &times))
    }

    /// Whether the account itself may do this, however the request was signed.
    async fn permit(&self, context: &Context, command: &Command) -> Result<(), ServiceError> {
        let partition;
        let doing = match command {
            Command::ListTables { .. } | Command::GetProperties | Command::GetStats => Doing::Anything,
            Command::GetTable { table, .. } => Doing::Looking(table),
            Command::CreateTable { .. }
            | Command::DeleteTable { .. }
            | Command::GetPolicies { .. }
            | Command::SetPolicies { .. }
            | Command::SetProperties(_) => Doing::Whole(Right::Schema),
            Command::Query { table, query, .. } => {
                partition = query.filter.as_ref().map(|filter| filter.bounds().partition);
                let only = partition.as_ref().and_then(|partition| partition.only());
                Doing::Table(Right::Read, table, only)
            }
            Command::Get { table, key, .. } => Doing::Table(Right::Read, table, Some(key.partition.as_str())),
            Command::Change { table, key, .. } => {
                Doing::Table(Right::Write, table, Some(key.partition.as_str()))
            }
            // The operations in a batch are asked about one by one.
            Command::Batch | Command::Preflight => return Ok(()),
        };
        self.permit_doing(context, doing).await
    }

    async fn permit_doing(&self, context: &Context, doing: Doing<'_>) -> Result<(), ServiceError> {
        let permitted = self.store.permit(context.account.as_str(), doing).await;
        permitted.map_err(|error| store_error(&error))?.map_err(|missing| reply::not_permitted(&missing))
    }

    fn properties(&self, context: &Context) -> Result<ServiceProperties, ServiceError> {
        self.store.properties(context.account.as_str()).map_err(|error| store_error(&error))
    }
}

impl Service for TableService {
    fn kind(&self) -> StoreKind {
        StoreKind::Table
    }

    fn call(&self, context: Context, request: Request) -> Answer<'_> {
        Box::pin(async move { self.answer(&context, &request).await })
    }
}

impl Policies for TableService {
    fn policies<'a>(&'a self, account: &'a AccountName, resource: &'a str) -> Answer<'a, Vec<StoredPolicy>> {
        Box::pin(async move {
            let Ok(table) = TableName::new(account.as_str(), resource) else { return Ok(Vec::new()) };
            match self.store.policies(&table).await {
                Ok(policies) => Ok(to_stored(policies)),
                Err(StoreError::NoSuchTable(_)) => Ok(Vec::new()),
                Err(error) => Err(store_error(&error)),
            }
        })
    }
}

/// The answer to changes of which none was made.
fn refused_changes(context: &Context, error: &ServiceError) -> Answers {
    let response = error.to_response(BodyFormat::Json, context.request_id, context.now);
    let mut answers = Answers::new(context.request_id, 1);
    answers.push(None, &response);
    answers
}

/// Whether a signature allows a command.
pub(crate) fn authorize(context: &Context, command: &Command) -> Result<(), ServiceError> {
    if let Some(operation) = command.operation() {
        context.identity.require(operation)?;
    }
    let (table, key) = match command {
        Command::Get { table, key, .. } | Command::Change { table, key, .. } => (table, key),
        Command::Query { table, .. } => return context.identity.require_table(table.name()),
        _ => return Ok(()),
    };
    context.identity.require_table(table.name())?;
    match context.identity.table_keys() {
        Some(keys) if !keys.contains(key.partition.as_str(), key.row.as_str()) => {
            Err(reply::outside_signature())
        }
        _ => Ok(()),
    }
}

/// A query's filter, with the keys that a signature is limited to.
fn limited(context: &Context, filter: Option<Arc<Filter>>) -> Option<Arc<Filter>> {
    let Some(TableKeyRange { start_partition, start_row, end_partition, end_row }) =
        context.identity.table_keys()
    else {
        return filter;
    };
    let start = (start_partition.as_deref(), start_row.as_deref());
    let range = Filter::between(start, (end_partition.as_deref(), end_row.as_deref()));
    match (filter, range) {
        (Some(filter), Some(range)) => Some(Arc::new(Filter::clone(&filter).and(range))),
        (filter, range) => filter.or(range.map(Arc::new)),
    }
}

/// The answer to a change that was made then.
pub(crate) fn changed_reply(
    context: &Context,
    table: &TableName,
    partition: PartitionKey,
    change: &Change,
    timestamp: Timestamp,
    level: Level,
    prefer: Prefer,
) -> Response {
    match &change.kind {
        ChangeKind::Insert(properties) => {
            // Most clients do not want it back: no need to copy it then.
            let properties = if prefer.wants_content() { properties.clone() } else { Properties::default() };
            let key = EntityKey { partition, row: change.row.clone() };
            let entity = Entity { key, timestamp, properties };
            reply::inserted(context, table.name(), &entity, level, prefer)
        }
        ChangeKind::Delete(_) => reply::done(204),
        _ => reply::updated(timestamp),
    }
}

/// Statistics are those of the replica, so only its endpoint has them.
fn stats(context: &Context) -> Result<Response, ServiceError> {
    if context.endpoint == Endpoint::Primary {
        return Err(reply::invalid_input("statistics are asked of the secondary endpoint"));
    }
    let mut xml = Writer::document();
    xml.open("StorageServiceStats");
    xml.open("GeoReplication");
    xml.element("Status", "live");
    xml.element("LastSyncTime", &context.now.rfc1123());
    xml.close("GeoReplication");
    xml.close("StorageServiceStats");
    Ok(reply::xml(xml.finish()))
}

/// The path of an account's URL: nothing where the host names the account.
fn base_path(base_url: &str) -> &str {
    let host = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
    host.find('/').map_or("", |at| &host[at..])
}

fn to_stored(policies: Vec<Policy>) -> Vec<StoredPolicy> {
    let time = |ticks: Option<i64>| ticks.and_then(Timestamp::from_ticks);
    let policies = policies.into_iter().map(|policy| StoredPolicy {
        id: policy.id,
        start: time(policy.start),
        expiry: time(policy.expiry),
        permission: policy.permission,
    });
    policies.collect()
}

fn from_stored(policies: Vec<StoredPolicy>) -> Vec<Policy> {
    let policies = policies.into_iter().map(|policy| Policy {
        id: policy.id,
        start: policy.start.map(Timestamp::ticks),
        expiry: policy.expiry.map(Timestamp::ticks),
        permission: policy.permission,
    });
    policies.collect()
}
