//! What clients are told: responses, and the only place with the service's error codes.

use polyshard_azure_storage::{Context, Response, ServiceError, failure};
use polyshard_store::rights::Missing;
use polyshard_store::{Error, ErrorKind, Reason};

use crate::continuation;
use crate::entity::{Entity, InputError, PartitionKey, RowKey};
use crate::etag::etag;
use crate::filter::FilterError;
use crate::name::NameError;
use crate::odata::{self, Level, Place, Select};
use crate::store::{CHANGES_MAX, Listed, Page, StoreError};

/// Whether a client wants to see what it has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefer {
    /// Nothing was said: the body is sent.
    Unsaid,
    /// `return-content`.
    Content,
    /// `return-no-content`.
    NoContent,
}

impl Prefer {
    /// Whether a new entity is sent back.
    pub fn wants_content(self) -> bool {
        self != Prefer::NoContent
    }

    fn applied(self) -> Option<&'static str> {
        match self {
            Prefer::Unsaid => None,
            Prefer::Content => Some("return-content"),
            Prefer::NoContent => Some("return-no-content"),
        }
    }
}

fn respond(status: u16) -> Response {
    // Tables are never cached, and never guessed at.
    Response::new(status)
        .header("Cache-Control", "no-cache")
        .header("X-Content-Type-Options", "nosniff")
        .header("DataServiceVersion", "3.0;")
}

fn json(status: u16, level: Level, body: String) -> Response {
    respond(status).header("Content-Type", level.content_type()).with_body(body)
}

fn place<'a>(context: &'a Context, table: &'a str) -> Place<'a> {
    Place { base_url: &context.base_url, account: context.account.as_str(), table }
}

/// An entity that was asked for by its key.
pub(crate) fn entity(
    context: &Context,
    table: &str,
    entity: &Entity,
    level: Level,
    select: &Select,
) -> Response {
    let body = odata::one(entity, &place(context, table), level, select);
    json(200, level, body).header("ETag", etag(entity.timestamp))
}

/// A page of entities.
pub(crate) fn page(context: &Context, table: &str, page: &Page, level: Level, select: &Select) -> Response {
    let body = odata::many(&page.entities, &place(context, table), level, select);
    let mut response = json(200, level, body);
    if let Some((partition, row)) = &page.next {
        response = response
            .header("x-ms-continuation-NextPartitionKey", continuation::write(partition))
            .header("x-ms-continuation-NextRowKey", continuation::write(row));
    }
    response
}

/// An entity was inserted.
pub(crate) fn inserted(
    context: &Context,
    table: &str,
    entity: &Entity,
    level: Level,
    prefer: Prefer,
) -> Response {
    let place = place(context, table);
    let url = place.entity_url(&entity.key);
    let mut response = match prefer {
        Prefer::NoContent => respond(204).header("DataServiceId", url.clone()),
        Prefer::Unsaid | Prefer::Content => json(201, level, odata::one(entity, &place, level, &None)),
    };
    if let Some(applied) = prefer.applied() {
        response = response.header("Preference-Applied", applied);
    }
    response.header("Location", url).header("ETag", etag(entity.timestamp))
}

/// An entity was updated, merged or replaced.
pub(crate) fn updated(time: polyshard_azure_storage::Timestamp) -> Response {
    respond(204).header("ETag", etag(time))
}

/// An entity, a table's access policies or the service's properties are as asked for.
pub(crate) fn done(status: u16) -> Response {
    respond(status)
}

/// The headers that name the entity of a part of a batch, which the JavaScript SDK looks for.
pub(crate) fn with_location(response: Response, url: &str) -> Response {
    if response.get("Location").is_some() {
        return response;
    }
    response.header("DataServiceId", url.to_owned())
}

/// The URLs of entities of one partition, one at a time.
pub(crate) struct UrlOf {
    text: String,
    /// How much of the text they share.
    shared: usize,
}

impl UrlOf {
    pub fn new(context: &Context, table: &str, partition: &PartitionKey) -> UrlOf {
        let text = place(context, table).partition_url(partition);
        UrlOf { shared: text.len(), text }
    }

    /// The URL of that row's entity.
    pub fn of(&mut self, row: &RowKey) -> &str {
        self.text.truncate(self.shared);
        odata::finish_entity_url(row, &mut self.text);
        &self.text
    }
}

/// A table was created.
pub(crate) fn table_created(context: &Context, name: &str, level: Level, prefer: Prefer) -> Response {
    let mut response = match prefer {
        Prefer::NoContent => respond(204),
        Prefer::Unsaid | Prefer::Content => {
            json(201, level, odata::one_table(name, &place(context, name), level))
        }
    };
    if let Some(applied) = prefer.applied() {
        response = response.header("Preference-Applied", applied);
    }
    let url = format!("{}/Tables('{name}')", context.base_url);
    response.header("Location", url.clone()).header("DataServiceId", url)
}

/// A table that was asked for by name.
pub(crate) fn table(context: &Context, name: &str, level: Level) -> Response {
    json(200, level, odata::one_table(name, &place(context, name), level))
}

/// A list of tables.
pub(crate) fn tables(context: &Context, listed: &Listed, level: Level) -> Response {
    let body = odata::many_tables(&listed.names, &place(context, ""), level);
    let response = json(200, level, body);
    match &listed.next {
        Some(next) => response.header("x-ms-continuation-NextTableName", continuation::write(next)),
        None => response,
    }
}

/// A body in XML, as access policies, properties and statistics have it even for tables.
pub(crate) fn xml(body: String) -> Response {
    Response::new(200).header("Content-Type", "application/xml").with_body(body)
}

/// What the store could not do.
pub(crate) fn store_error(error: &StoreError) -> ServiceError {
    let new = |status, code, message: &str| ServiceError::new(status, code, message);
    match error {
        StoreError::NoSuchTable(_) => new(404, "TableNotFound", "The table specified does not exist."),
        StoreError::TableExists(_) => new(409, "TableAlreadyExists", "The table specified already exists."),
        StoreError::NoSuchEntity => new(404, "ResourceNotFound", "The specified resource does not exist."),
        StoreError::EntityExists => new(409, "EntityAlreadyExists", "The specified entity already exists."),
        StoreError::Changed => new(
            412,
            "UpdateConditionNotSatisfied",
            "The update condition specified in the request was not satisfied.",
        )
        .because("the entity was changed since"),
        StoreError::Input(error) => input_error(error),
        StoreError::Contended => ServiceError::server_busy(&error.to_string()),
        StoreError::Misplaced { .. } => ServiceError::invalid_input(error.to_string()),
        StoreError::Damaged { .. } => {
            tracing::error!(%error, "stored data cannot be read");
            ServiceError::internal()
        }
        StoreError::NoMap(_) => {
            failure(&Error::new(ErrorKind::OutOfService(Reason::NoMap), error.to_string()))
        }
        StoreError::OverQuota(over) => failure(&over.clone().into()),
        StoreError::Router(error) => failure(&Error::of_router(error)),
        StoreError::Kit(error) => failure(error),
    }
}

/// What no entity can be.
pub(crate) fn input_error(error: &InputError) -> ServiceError {
    let code = match error {
        InputError::Unreadable(_) => "InvalidInput",
        InputError::KeyMissing(_) => "PropertiesNeedValue",
        InputError::KeyTooLong(_) => "PropertyValueTooLarge",
        InputError::KeyOutOfRange(_) => "OutOfRangeInput",
        InputError::PropertyNameInvalid(_) => "PropertyNameInvalid",
        InputError::PropertyNameTooLong => "PropertyNameTooLong",
        InputError::PropertyTwice(_) => "DuplicatePropertiesSpecified",
        InputError::TooManyProperties => "TooManyProperties",
        InputError::PropertyTooLarge(_) => "PropertyValueTooLarge",
        InputError::ValueType { .. } => "InvalidInput",
        InputError::EntityTooLarge => "EntityTooLarge",
    };
    ServiceError::new(400, code, error.to_string())
}

/// What no table can be called.
pub(crate) fn name_error(error: NameError) -> ServiceError {
    match error {
        NameError::Length => ServiceError::name_length(error.to_string()),
        NameError::Characters | NameError::Reserved => ServiceError::name_characters(error.to_string()),
    }
}

/// What is no filter.
pub(crate) fn filter_error(error: &FilterError) -> ServiceError {
    match error {
        FilterError::Function(_) => ServiceError::new(501, "NotImplemented", error.to_string()),
        FilterError::Syntax { .. } | FilterError::TooLong => ServiceError::invalid_input(error.to_string()),
    }
}

/// Something in the request is not what it must be.
pub(crate) fn invalid_input(reason: &str) -> ServiceError {
    ServiceError::invalid_input(reason)
}

/// Only JSON is spoken here.
pub(crate) fn atom() -> ServiceError {
    let message = "Atom format is not supported: send and accept application/json.";
    ServiceError::new(415, "AtomFormatNotSupported", message)
}

/// The URL names an operation there is not.
pub(crate) fn no_such_operation() -> ServiceError {
    let message = "The requested operation is not implemented on the specified resource.";
    ServiceError::new(501, "NotImplemented", message)
}

/// The URL has an option that the service does not know either: `$orderby`, `$skip` and others of OData.
pub(crate) fn no_such_option(name: &str) -> ServiceError {
    /// Longer than any option there is.
    const SHOWN_CHARS_MAX: usize = 40;
    let name: String = name.chars().take(SHOWN_CHARS_MAX).collect();
    let message = format!(
        "The requested operation is not implemented on the specified resource: tables have $filter, $select, $top and \
         $format, and not {name}."
    );
    ServiceError::new(501, "NotImplemented", message)
}

/// An account whose rights are not enough.
pub(crate) fn not_permitted(missing: &Missing) -> ServiceError {
    let message =
        format!("This request is not authorized to perform this operation: {missing}. {}", missing.hint);
    ServiceError::new(403, "AuthorizationFailure", message)
}

/// A shared access signature that is for other keys.
pub(crate) fn outside_signature() -> ServiceError {
    let message = "This request is not authorized to perform this operation: the entity is outside of the keys that \
                   the signature is for.";
    ServiceError::new(403, "AuthorizationFailure", message)
}

/// Changes of a batch in different tables or partitions.
pub(crate) fn other_partition() -> ServiceError {
    let message =
        "All commands in a batch must operate on same entity group: the same table and PartitionKey.";
    ServiceError::new(400, "CommandsInBatchActOnDifferentPartitions", message)
}

/// One entity twice in a batch.
pub(crate) fn row_twice() -> ServiceError {
    let message = "The batch request contains multiple changes with same row key. An entity can appear only once in a \
                   batch request.";
    ServiceError::new(400, "InvalidDuplicateRow", message)
}

/// More changes than a batch may have.
pub(crate) fn too_many_changes() -> ServiceError {
    let message = "The batch request operation exceeds the maximum 100 changes per change set.";
    // The service counts it to the last one that fits.
    numbered(CHANGES_MAX - 1, ServiceError::new(400, "InvalidInput", message))
}

/// The error of one operation of a batch, by its number.
pub(crate) fn numbered(index: usize, error: ServiceError) -> ServiceError {
    let message = format!("{index}:{}", error.message());
    error.with_message(message)
}
