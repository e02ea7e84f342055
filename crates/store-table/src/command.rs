//! Requests as commands: each is parsed once, with its keys and what it needs of a signature.

use std::sync::Arc;

use polyshard_azure_storage::{
    Headers, Method, Need, PropertiesPatch, RawPath, Request, ResourceType, SasOperation, ServiceError,
    StoredPolicy, parse_policies,
};

use crate::continuation;
use crate::entity::{EntityKey, PartitionKey};
use crate::etag::IfMatch;
use crate::filter::Filter;
use crate::name::TableName;
use crate::odata::{self, Draft, Level, Select};
use crate::path::{Resource, parse_resource};
use crate::reply::{self, Prefer};
use crate::store::{Change, ChangeKind, PAGE_ROWS_MAX, Query};

/// What a client asks for.
#[derive(Debug)]
pub(crate) enum Command {
    ListTables { filter: Option<Filter>, from: Option<String>, top: usize, level: Level },
    GetTable { table: TableName, level: Level },
    CreateTable { table: TableName, level: Level, prefer: Prefer },
    DeleteTable { table: TableName },
    GetPolicies { table: TableName },
    SetPolicies { table: TableName, policies: Vec<StoredPolicy> },
    GetProperties,
    SetProperties(Box<PropertiesPatch>),
    GetStats,
    Preflight,
    Query { table: TableName, query: Query, select: Select, level: Level },
    Get { table: TableName, key: EntityKey, select: Select, level: Level },
    Change { table: TableName, key: EntityKey, kind: ChangeKind, level: Level, prefer: Prefer },
    Batch,
}

const LIST: SasOperation = SasOperation::container(Need::All("l"));
const CREATE: SasOperation = SasOperation::container(Need::Any("cw"));
const DELETE_TABLE: SasOperation = SasOperation::container(Need::All("d"));
const POLICIES: SasOperation = SasOperation::new(ResourceType::Container, Need::Never, Need::Never);
const READ_SERVICE: SasOperation = SasOperation::service(Need::All("r"));
const WRITE_SERVICE: SasOperation = SasOperation::service(Need::All("w"));
/// What reading entities needs.
pub(crate) const READ: SasOperation = SasOperation::object(Need::All("r"));
const ADD: SasOperation = SasOperation::object(Need::All("a"));
const UPDATE: SasOperation = SasOperation::object(Need::All("u"));
const UPSERT: SasOperation = SasOperation::object(Need::All("au"));
const DELETE: SasOperation = SasOperation::object(Need::All("d"));

impl Command {
    /// Parses a request on a resource of an account.
    pub fn parse(account: &str, resource: &RawPath, request: &Request) -> Result<Command, ServiceError> {
        if request.method == Method::Options {
            return Ok(Command::Preflight);
        }
        let path = resource.segments()?;
        let comp = request.query("comp");
        match parse_resource(&path)? {
            Resource::Account => match (request.method, request.query("restype"), comp) {
                (Method::Get, Some("service"), Some("properties")) => Ok(Command::GetProperties),
                (Method::Put, Some("service"), Some("properties")) => {
                    Ok(Command::SetProperties(Box::new(PropertiesPatch::parse(&request.body)?)))
                }
                (Method::Get, Some("service"), Some("stats")) => Ok(Command::GetStats),
                _ => Err(reply::no_such_operation()),
            },
            Resource::Batch if request.method == Method::Post => Ok(Command::Batch),
            Resource::Batch => Err(ServiceError::unsupported_verb()),
            Resource::Tables => tables(account, request),
            Resource::TableNamed(name) => table_named(account, &name, request),
            Resource::Table(name) => {
                let table = table_name(account, &name)?;
                match (request.method, comp) {
                    (Method::Get | Method::Head, Some("acl")) => Ok(Command::GetPolicies { table }),
                    (Method::Put, Some("acl")) => {
                        Ok(Command::SetPolicies { table, policies: parse_policies(&request.body)? })
                    }
                    (Method::Get, None) => query(table, request),
                    (Method::Post, None) => insert(table, request),
                    _ => Err(ServiceError::unsupported_verb()),
                }
            }
            Resource::Entity { table, partition, row } => {
                let table = table_name(account, &table)?;
                let key = EntityKey::new(partition, row).map_err(|error| reply::input_error(&error))?;
                entity(table, key, request)
            }
        }
    }

    /// The insert of the entity in a body.
    pub fn insert(
        table: TableName,
        body: &[u8],
        level: Level,
        prefer: Prefer,
    ) -> Result<Command, ServiceError> {
        let read = Draft::read(body).and_then(Draft::keyed);
        let (key, properties) = read.map_err(|error| reply::input_error(&error))?;
        Ok(Command::Change { table, key, kind: ChangeKind::Insert(properties), level, prefer })
    }

    /// What it needs of a shared access signature; nothing for what anybody may ask.
    pub fn operation(&self) -> Option<SasOperation> {
        Some(match self {
            Command::ListTables { .. } | Command::GetTable { .. } => LIST,
            Command::CreateTable { .. } => CREATE,
            Command::DeleteTable { .. } => DELETE_TABLE,
            Command::GetPolicies { .. } | Command::SetPolicies { .. } => POLICIES,
            Command::GetProperties | Command::GetStats => READ_SERVICE,
            Command::SetProperties(_) => WRITE_SERVICE,
            Command::Query { .. } | Command::Get { .. } => READ,
            Command::Change { kind, .. } => match kind {
                ChangeKind::Insert(_) => ADD,
                ChangeKind::Replace(..) | ChangeKind::Merge(..) => UPDATE,
                ChangeKind::UpsertReplace(_) | ChangeKind::UpsertMerge(_) => UPSERT,
                ChangeKind::Delete(_) => DELETE,
            },
            // The operations in a batch are asked about one by one.
            Command::Batch | Command::Preflight => return None,
        })
    }

    /// The change as the store takes it, with what is needed to answer it.
    pub fn into_change(self) -> Option<(TableName, PartitionKey, Change, Level, Prefer)> {
        match self {
            Command::Change { table, key: EntityKey { partition, row }, kind, level, prefer } => {
                Some((table, partition, Change { row, kind }, level, prefer))
            }
            _ => None,
        }
    }
}

fn table_name(account: &str, name: &str) -> Result<TableName, ServiceError> {
    TableName::new(account, name).map_err(reply::name_error)
}

fn tables(account: &str, request: &Request) -> Result<Command, ServiceError> {
    match request.method {
        Method::Get => {
            check_options(request)?;
            let from = match request.query("NextTableName") {
                None => None,
                Some(token) => Some(token_key("NextTableName", token)?),
            };
            let (filter, top) = (filter(request)?, top(request)?.unwrap_or(PAGE_ROWS_MAX));
            Ok(Command::ListTables { filter, from, top, level: level(request)? })
        }
        Method::Post => {
            check_content_type(&request.headers)?;
            let name = odata::read_table_name(&request.body).map_err(|error| reply::input_error(&error))?;
            let table = table_name(account, &name)?;
            Ok(Command::CreateTable { table, level: level(request)?, prefer: prefer(&request.headers) })
        }
        _ => Err(ServiceError::unsupported_verb()),
    }
}

fn table_named(account: &str, name: &str, request: &Request) -> Result<Command, ServiceError> {
    let table = table_name(account, name)?;
    match request.method {
        Method::Get => Ok(Command::GetTable { table, level: level(request)? }),
        Method::Delete => Ok(Command::DeleteTable { table }),
        _ => Err(ServiceError::unsupported_verb()),
    }
}

fn query(table: TableName, request: &Request) -> Result<Command, ServiceError> {
    check_options(request)?;
    let after = match (request.query("NextPartitionKey"), request.query("NextRowKey")) {
        (None, None) => None,
        (Some(partition), Some(row)) => {
            Some((token_key("NextPartitionKey", partition)?, token_key("NextRowKey", row)?))
        }
        _ => return Err(reply::invalid_input("NextPartitionKey and NextRowKey belong together")),
    };
    let query = Query { filter: filter(request)?.map(Arc::new), after, top: top(request)? };
    Ok(Command::Query { table, query, select: select(request)?, level: level(request)? })
}

fn insert(table: TableName, request: &Request) -> Result<Command, ServiceError> {
    check_content_type(&request.headers)?;
    Command::insert(table, &request.body, level(request)?, prefer(&request.headers))
}

fn entity(table: TableName, key: EntityKey, request: &Request) -> Result<Command, ServiceError> {
    let level = level(request)?;
    let method = match (request.method, request.headers.get("x-http-method")) {
        // Older clients send verbs that proxies do not know inside a POST.
        (Method::Post, Some(name)) => Method::parse(name).ok_or_else(ServiceError::unsupported_verb)?,
        (method, _) => method,
    };
    let if_match = match request.headers.get("if-match") {
        None => None,
        Some(text) => Some(
            IfMatch::parse(text).ok_or_else(|| reply::invalid_input("If-Match has no ETag of an entity"))?,
        ),
    };
    if method != Method::Get && request.headers.get("if-none-match").is_some() {
        return Err(reply::invalid_input("If-None-Match cannot be said of a change"));
    }
    let kind = match method {
        Method::Get => {
            check_options(request)?;
            return Ok(Command::Get { table, key, select: select(request)?, level });
        }
        Method::Put => {
            let properties = body_of(&key, request)?;
            match if_match {
                Some(if_match) => ChangeKind::Replace(properties, if_match),
                None => ChangeKind::UpsertReplace(properties),
            }
        }
        Method::Patch | Method::Merge => {
            let properties = body_of(&key, request)?;
            match if_match {
                Some(if_match) => ChangeKind::Merge(properties, if_match),
                None => ChangeKind::UpsertMerge(properties),
            }
        }
        Method::Delete => {
            ChangeKind::Delete(if_match.ok_or_else(|| ServiceError::missing_header("If-Match"))?)
        }
        _ => return Err(ServiceError::unsupported_verb()),
    };
    Ok(Command::Change { table, key, kind, level, prefer: prefer(&request.headers) })
}

/// The properties in the body of an update, whose keys, if it has any, must be those of the URL.
fn body_of(key: &EntityKey, request: &Request) -> Result<crate::entity::Properties, ServiceError> {
    check_content_type(&request.headers)?;
    let draft = Draft::read(&request.body).map_err(|error| reply::input_error(&error))?;
    let differs = |given: &Option<String>, own: &str| given.as_ref().is_some_and(|given| given != own);
    if differs(&draft.partition, key.partition.as_str()) || differs(&draft.row, key.row.as_str()) {
        return Err(reply::invalid_input("the keys in the body are not those in the URL"));
    }
    Ok(draft.properties)
}

fn check_content_type(headers: &Headers) -> Result<(), ServiceError> {
    match headers.get("content-type") {
        Some("application/json") => Ok(()),
        Some(given) if given.to_ascii_lowercase().contains("atom") => Err(reply::atom()),
        _ => Ok(()),
    }
}

/// Whoever asks for what is not done must not take the answer for it: a list is in the order of its keys, whatever
/// `$orderby` says.
fn check_options(request: &Request) -> Result<(), ServiceError> {
    let is_known = |name: &str| matches!(name, "$filter" | "$select" | "$top" | "$format");
    let names = request.query.iter().map(|(name, _)| name.as_str());
    match names.into_iter().find(|name| name.starts_with('$') && !is_known(name)) {
        None => Ok(()),
        Some(name) => Err(reply::no_such_option(name)),
    }
}

fn level(request: &Request) -> Result<Level, ServiceError> {
    let asked = request.query("$format").or_else(|| request.headers.get("accept")).unwrap_or_default();
    Level::parse(asked).ok_or_else(reply::atom)
}

fn prefer(headers: &Headers) -> Prefer {
    match headers.get("prefer").map(str::trim) {
        Some("return-no-content") => Prefer::NoContent,
        Some("return-content") => Prefer::Content,
        _ => Prefer::Unsaid,
    }
}

fn filter(request: &Request) -> Result<Option<Filter>, ServiceError> {
    match request.query("$filter").filter(|text| !text.trim().is_empty()) {
        None => Ok(None),
        Some(text) => Filter::parse(text).map(Some).map_err(|error| reply::filter_error(&error)),
    }
}

fn select(request: &Request) -> Result<Select, ServiceError> {
    let Some(text) = request.query("$select") else { return Ok(None) };
    odata::parse_select(text)
        .ok_or_else(|| reply::invalid_input("$select has more names than an entity has properties"))
}

fn top(request: &Request) -> Result<Option<usize>, ServiceError> {
    let Some(text) = request.query("$top") else { return Ok(None) };
    match text.parse() {
        Ok(top) if (1..=PAGE_ROWS_MAX).contains(&top) => Ok(Some(top)),
        _ => Err(ServiceError::invalid_query("$top", text, "it must be a number from 1 to 1000")),
    }
}

fn token_key(name: &str, token: &str) -> Result<String, ServiceError> {
    let invalid =
        || ServiceError::invalid_query(name, token, "it must be a continuation that this service gave");
    // PostgreSQL has no text with this character, and no key has it.
    continuation::read(token).filter(|key| !key.contains('\0')).ok_or_else(invalid)
}
