//! Answers and errors as the queue clients read them: the only file that knows the codes of the wire.

use polyshard_azure_storage::xml::Writer;
use polyshard_azure_storage::{
    Response, ServiceError, ServiceProperties, StoredPolicy, Timestamp, write_policies,
};
use polyshard_store::Error;

use crate::command::Include;
use crate::message::{MESSAGE_BYTES_MAX, Message};
use crate::name::NameError;
use crate::store::{Created, Metadata, Page, Policy, StoreError, Updated};

const XML: &str = "application/xml";

/// Which parts of messages are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Who put it needs no text.
    Put,
    /// Who got it may change it.
    Get,
    /// Who peeks may not.
    Peek,
}

pub(crate) fn messages(status: u16, messages: &[Message], show: Show) -> Response {
    let mut xml = Writer::document();
    xml.open("QueueMessagesList");
    for message in messages {
        xml.open("QueueMessage");
        xml.element("MessageId", &message.id.to_string());
        xml.element("InsertionTime", &rfc1123(message.inserted_ms));
        xml.element("ExpirationTime", &rfc1123(message.expires_ms));
        if show != Show::Peek {
            xml.element("PopReceipt", &message.receipt.to_text(&message.id));
            xml.element("TimeNextVisible", &rfc1123(message.visible_ms));
        }
        if show != Show::Put {
            xml.element("DequeueCount", &message.dequeue_count.to_string());
            xml.element("MessageText", &message.body);
        }
        xml.close("QueueMessage");
    }
    xml.close("QueueMessagesList");
    document(status, xml.finish())
}

pub(crate) fn updated(updated: &Updated, id: &crate::MessageId) -> Response {
    Response::new(204)
        .header("x-ms-popreceipt", updated.receipt.to_text(id))
        .header("x-ms-time-next-visible", rfc1123(updated.visible_ms))
}

pub(crate) fn created(created: Created) -> Response {
    Response::new(match created {
        Created::New => 201,
        Created::Already => 204,
    })
}

pub(crate) fn done() -> Response {
    Response::new(204)
}

pub(crate) fn metadata(metadata: &Metadata, count: i64) -> Response {
    let response = Response::new(200).header("x-ms-approximate-messages-count", count.to_string());
    metadata
        .iter()
        .fold(response, |response, (name, value)| response.header(format!("x-ms-meta-{name}"), value.clone()))
}

/// What a list was asked for, which it repeats.
pub(crate) struct Asked<'a> {
    pub base_url: &'a str,
    pub prefix: &'a str,
    pub marker: Option<&'a str>,
    pub max: Option<usize>,
    pub include: Include,
}

pub(crate) fn list(asked: &Asked<'_>, page: &Page) -> Response {
    let mut xml = Writer::document();
    xml.open_with("EnumerationResults", &[("ServiceEndpoint", &format!("{}/", asked.base_url))]);
    if !asked.prefix.is_empty() {
        xml.element("Prefix", asked.prefix);
    }
    if let Some(marker) = asked.marker {
        xml.element("Marker", marker);
    }
    if let Some(max) = asked.max {
        xml.element("MaxResults", &max.to_string());
    }
    xml.open("Queues");
    for queue in &page.queues {
        xml.open("Queue");
        xml.element("Name", &queue.name);
        if asked.include == Include::Metadata && !queue.metadata.is_empty() {
            xml.open("Metadata");
            queue.metadata.iter().for_each(|(name, value)| xml.element(name, value));
            xml.close("Metadata");
        }
        xml.close("Queue");
    }
    xml.close("Queues");
    match &page.next {
        Some(next) => xml.element("NextMarker", next),
        None => xml.empty("NextMarker"),
    }
    xml.close("EnumerationResults");
    document(200, xml.finish())
}

pub(crate) fn policies(policies: &[Policy]) -> Result<Response, StoreError> {
    Ok(document(200, write_policies(&stored_policies(policies)?)))
}

/// Policies as signatures are checked against. A time that cannot be read is an error, and not "no limit".
pub(crate) fn stored_policies(policies: &[Policy]) -> Result<Vec<StoredPolicy>, StoreError> {
    let damaged = |id: &str, text: &str| {
        let detail = format!("policy {id:?} has the time {text:?}");
        StoreError::Kit(Error::damaged("access policy", detail))
    };
    let time = |id: &str, text: &Option<String>| match text.as_deref() {
        None => Ok(None),
        Some(text) => Timestamp::parse_iso(text).map(Some).ok_or_else(|| damaged(id, text)),
    };
    let stored = policies.iter().map(|policy| {
        Ok(StoredPolicy {
            id: policy.id.clone(),
            start: time(&policy.id, &policy.start)?,
            expiry: time(&policy.id, &policy.expiry)?,
            permission: policy.permission.clone(),
        })
    });
    stored.collect()
}

pub(crate) fn properties(properties: &ServiceProperties) -> Response {
    document(200, properties.to_xml())
}

pub(crate) fn properties_set() -> Response {
    Response::new(202)
}

/// There is one copy as far as clients can tell, so the replica is always up to date.
pub(crate) fn stats(now: Timestamp) -> Response {
    let mut xml = Writer::document();
    xml.open("StorageServiceStats");
    xml.open("GeoReplication");
    xml.element("Status", "live");
    xml.element("LastSyncTime", &now.rfc1123());
    xml.close("GeoReplication");
    xml.close("StorageServiceStats");
    document(200, xml.finish())
}

fn document(status: u16, xml: String) -> Response {
    Response::new(status).header("Content-Type", XML).header("Cache-Control", "no-cache").with_body(xml)
}

fn rfc1123(ms: i64) -> String {
    // Times are within the calendar when they are stored; a clock far outside of it shows as its beginning.
    Timestamp::from_unix_ms(ms).map_or_else(String::new, Timestamp::rfc1123)
}

/// The store's refusal or failure as the client is told.
pub(crate) fn failure(error: &StoreError) -> ServiceError {
    match error {
        StoreError::NoSuchQueue(queue) => {
            ServiceError::new(404, "QueueNotFound", "The specified queue does not exist.")
                .because(format!("the account has no queue '{queue}'; create it first"))
        }
        StoreError::Exists(queue) => {
            ServiceError::new(409, "QueueAlreadyExists", "The specified queue already exists.")
                .because(format!("queue '{queue}' has other metadata"))
        }
        StoreError::NoSuchMessage => no_such_message(),
        StoreError::ReceiptMismatch => ServiceError::new(
            400,
            "PopReceiptMismatch",
            "The specified pop receipt did not match the pop receipt for a dequeued message.",
        )
        .because("the message was got or updated again since"),
        StoreError::TooLarge => message_too_large(),
        // The door's own readers refuse both before.
        StoreError::Unwritable | StoreError::InvisibleMax => ServiceError::invalid_input(error.to_string()),
        StoreError::InvisibleTooLong => ServiceError::new(
            400,
            "OutOfRangeQueryParameterValue",
            "One of the query parameters specified in the request URI is outside the permissible range.",
        )
        .detail("QueryParameterName", "visibilitytimeout")
        .because("the message would become visible only after it has expired; choose a shorter time"),
        StoreError::Misplaced { queue, error } => ServiceError::new(
            400,
            "InvalidResourceName",
            format!("The specified resource name {queue} does not fit the map it is bound to: {error}"),
        ),
        StoreError::Unfinished => ServiceError::timed_out("There is more to delete; send the request again."),
        StoreError::Kit(error) => polyshard_azure_storage::failure(error),
    }
}

pub(crate) fn no_such_message() -> ServiceError {
    ServiceError::new(404, "MessageNotFound", "The specified message does not exist.")
        .because("it was deleted or has expired")
}

pub(crate) fn bad_name(error: NameError) -> ServiceError {
    match error {
        NameError::Length => ServiceError::name_length(error.to_string()),
        NameError::Characters => ServiceError::name_characters(error.to_string()),
    }
}

pub(crate) fn out_of_range(name: &'static str, value: &str, min: &str, max: &str) -> ServiceError {
    let message =
        "One of the query parameters specified in the request URI is outside the permissible range.";
    ServiceError::new(400, "OutOfRangeQueryParameterValue", message)
        .detail("QueryParameterName", name)
        .detail("QueryParameterValue", value)
        .detail("MinimumAllowed", min)
        .detail("MaximumAllowed", max)
}

pub(crate) fn missing_parameter(name: &'static str) -> ServiceError {
    let message = "A query parameter that's mandatory for this request is not specified.";
    ServiceError::new(400, "MissingRequiredQueryParameter", message).detail("QueryParameterName", name)
}

pub(crate) fn no_text() -> ServiceError {
    let message = "A required XML node was not specified in the request body.";
    ServiceError::new(400, "MissingRequiredXmlNode", message).detail("XmlNodeName", "MessageText")
}

pub(crate) fn message_too_large() -> ServiceError {
    ServiceError::body_too_large(MESSAGE_BYTES_MAX as u64)
        .because("put the content into a blob, and its address into the message")
}

pub(crate) fn empty_metadata_name() -> ServiceError {
    ServiceError::new(400, "EmptyMetadataKey", "The key for one of the metadata key-value pairs is empty.")
}

pub(crate) fn invalid_metadata(name: &str) -> ServiceError {
    let message = "The metadata specified is invalid. It has characters that are not permitted.";
    ServiceError::new(400, "InvalidMetadata", message).because(format!(
        "'{name}' is there twice, or is not a name of letters, digits and underscores without a digit first, or its \
         value is not ASCII: encode any other"
    ))
}

pub(crate) fn metadata_too_large(bytes_max: usize) -> ServiceError {
    let message = "The metadata specified exceeds the maximum permissible limit.";
    ServiceError::new(400, "MetadataTooLarge", message).detail("MaxLimit", bytes_max.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_a_policy_that_cannot_be_read_is_no_missing_limit() {
        let policy = |start: Option<&str>, expiry: Option<&str>| Policy {
            id: "p".to_owned(),
            start: start.map(str::to_owned),
            expiry: expiry.map(str::to_owned),
            permission: None,
        };
        let day = Some("2026-11-15");
        let stored = stored_policies(&[policy(None, day)]).unwrap();
        assert!(stored[0].start.is_none() && stored[0].expiry.is_some());
        for damaged in [policy(None, Some("soon")), policy(Some(""), day)] {
            let error = stored_policies(&[damaged]).unwrap_err();
            assert_eq!(failure(&error).status(), 500, "{error}");
        }
    }
}
