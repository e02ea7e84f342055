//! Reads a request once into what it asks for.

mod metadata;
mod parameters;

use polyshard_azure_storage::{
    Context, Endpoint, Method, Need, PropertiesPatch, Request, ResourceType, SasOperation, ServiceError,
    parse_policies, xml,
};
use polyshard_store::Target;
use polyshard_store::rights::Right;

use crate::message::{
    MESSAGE_BYTES_MAX, MESSAGES_PER_GET_MAX, MessageId, NewMessage, PopReceipt, TTL_DEFAULT_MS, Ttl,
    VISIBILITY_MS_MAX,
};
use crate::name::QueueName;
use crate::reply;
use crate::store::{Metadata, Policy};
use metadata::read_metadata;
use parameters::{Range, required, whole_number};

/// Queues in one part of a list, also if more are asked for: the service's limit.
const LIST_MAX: i64 = 5000;
/// How long a message that was got is invisible if its consumer does not say: the service's default.
const GET_SECONDS_DEFAULT: i64 = 30;

const VISIBILITY_SECONDS_MAX: i64 = VISIBILITY_MS_MAX / 1000;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    ListQueues { prefix: String, marker: Option<String>, max: Option<usize>, include: Include },
    GetProperties,
    SetProperties(Box<PropertiesPatch>),
    GetStats,
    CreateQueue { queue: QueueName, metadata: Metadata },
    DeleteQueue { queue: QueueName },
    GetMetadata { queue: QueueName },
    SetMetadata { queue: QueueName, metadata: Metadata },
    GetPolicies { queue: QueueName },
    SetPolicies { queue: QueueName, policies: Vec<Policy> },
    Put { queue: QueueName, message: NewMessage },
    Get { queue: QueueName, count: u32, invisible_ms: i64 },
    Peek { queue: QueueName, count: u32 },
    Clear { queue: QueueName },
    Update { queue: QueueName, id: MessageId, receipt: PopReceipt, invisible_ms: i64, body: Option<String> },
    DeleteMessage { queue: QueueName, id: MessageId, receipt: PopReceipt },
}

/// Whether a list tells of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Names,
    Metadata,
}

/// Most queues of one part of a list.
pub(crate) fn list_max(asked: Option<usize>) -> usize {
    asked.unwrap_or(usize::MAX).min(LIST_MAX as usize)
}

/// Something with the messages of one queue.
fn of_queue(right: Right, queue: &QueueName) -> Target<'_> {
    Target::Dataset(right, queue.id(), Some(queue.name()))
}

impl Command {
    /// Reads a request.
    pub fn parse(context: &Context, request: &Request) -> Result<Command, ServiceError> {
        request.check_content_md5()?;
        let segments = context.resource.segments()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let queue = |name: &str| QueueName::new(context.account.as_str(), name).map_err(reply::bad_name);
        match segments.as_slice() {
            [] | [""] => service_command(context, request),
            [name] | [name, ""] => queue_command(request, queue(name)?),
            [name, "messages"] | [name, "messages", ""] => messages_command(request, queue(name)?),
            [name, "messages", id] => message_command(request, queue(name)?, id),
            _ => Err(ServiceError::invalid_uri("expected /queue, /queue/messages or /queue/messages/id")),
        }
    }

    /// What it needs of the account itself.
    pub fn target(&self) -> Target<'_> {
        match self {
            Command::ListQueues { .. } | Command::GetProperties | Command::GetStats => Target::Any,
            Command::CreateQueue { .. }
            | Command::DeleteQueue { .. }
            | Command::SetMetadata { .. }
            | Command::GetPolicies { .. }
            | Command::SetPolicies { .. }
            | Command::SetProperties(_) => Target::Store(Right::Schema),
            Command::GetMetadata { queue } | Command::Peek { queue, .. } => of_queue(Right::Read, queue),
            Command::Put { queue, .. }
            | Command::Get { queue, .. }
            | Command::Clear { queue }
            | Command::Update { queue, .. }
            | Command::DeleteMessage { queue, .. } => of_queue(Right::Write, queue),
        }
    }

    /// What it needs of a shared access signature.
    pub fn needs(&self) -> SasOperation {
        let object = |account, service| SasOperation::new(ResourceType::Object, account, service);
        match self {
            Command::ListQueues { .. } => SasOperation::service(Need::All("l")),
            Command::GetProperties | Command::GetStats => SasOperation::service(Need::All("r")),
            Command::SetProperties(_) => SasOperation::service(Need::All("w")),
            Command::CreateQueue { .. } => SasOperation::container(Need::Any("cw")),
            Command::DeleteQueue { .. } => SasOperation::container(Need::All("d")),
            Command::GetMetadata { .. } => {
                SasOperation::new(ResourceType::Container, Need::All("r"), Need::All("r"))
            }
            Command::SetMetadata { .. } => SasOperation::container(Need::All("w")),
            Command::GetPolicies { .. } | Command::SetPolicies { .. } => SasOperation::container(Need::Never),
            Command::Put { .. } => SasOperation::object(Need::All("a")),
            Command::Get { .. } => SasOperation::object(Need::All("p")),
            Command::Peek { .. } => SasOperation::object(Need::All("r")),
            Command::Clear { .. } => object(Need::All("d"), Need::All("p")),
            Command::Update { .. } => SasOperation::object(Need::All("u")),
            Command::DeleteMessage { .. } => object(Need::Any("dp"), Need::All("p")),
        }
    }
}

fn service_command(context: &Context, request: &Request) -> Result<Command, ServiceError> {
    match (request.method, request.query("restype"), request.query("comp")) {
        (Method::Get, None, Some("list")) => list(request),
        (Method::Get, Some("service"), Some("properties")) => Ok(Command::GetProperties),
        (Method::Put, Some("service"), Some("properties")) => {
            Ok(Command::SetProperties(Box::new(PropertiesPatch::parse(&request.body)?)))
        }
        (Method::Get, Some("service"), Some("stats")) if context.endpoint == Endpoint::Secondary => {
            Ok(Command::GetStats)
        }
        (Method::Get, Some("service"), Some("stats")) => {
            Err(ServiceError::invalid_query("comp", "stats", "statistics are at the secondary endpoint"))
        }
        (Method::Get | Method::Put, _, comp) => Err(unknown_comp(comp)),
        _ => Err(ServiceError::unsupported_verb()),
    }
}

fn list(request: &Request) -> Result<Command, ServiceError> {
    let include = request.query("include").unwrap_or_default();
    let include = if include.split(',').any(|part| part.eq_ignore_ascii_case("metadata")) {
        Include::Metadata
    } else {
        Include::Names
    };
    let max = whole_number(request, "maxresults", Range { min: 1, max: i64::from(i32::MAX) })?;
    Ok(Command::ListQueues {
        prefix: request.query("prefix").unwrap_or_default().to_owned(),
        marker: request.query("marker").filter(|marker| !marker.is_empty()).map(str::to_owned),
        max: max.map(|max| max as usize),
        include,
    })
}

fn queue_command(request: &Request, queue: QueueName) -> Result<Command, ServiceError> {
    match (request.method, request.query("comp")) {
        (Method::Put, None) => Ok(Command::CreateQueue { queue, metadata: read_metadata(&request.headers)? }),
        (Method::Delete, None) => Ok(Command::DeleteQueue { queue }),
        (Method::Get | Method::Head, Some("metadata")) => Ok(Command::GetMetadata { queue }),
        (Method::Put, Some("metadata")) => {
            Ok(Command::SetMetadata { queue, metadata: read_metadata(&request.headers)? })
        }
        (Method::Get | Method::Head, Some("acl")) => Ok(Command::GetPolicies { queue }),
        (Method::Put, Some("acl")) => {
            let policies = parse_policies(&request.body)?.into_iter().map(|policy| Policy {
                id: policy.id,
                start: policy.start.map(|time| time.iso()),
                expiry: policy.expiry.map(|time| time.iso()),
                permission: policy.permission,
            });
            Ok(Command::SetPolicies { queue, policies: policies.collect() })
        }
        (Method::Get | Method::Head | Method::Put | Method::Delete, comp) => Err(unknown_comp(comp)),
        _ => Err(ServiceError::unsupported_verb()),
    }
}

fn messages_command(request: &Request, queue: QueueName) -> Result<Command, ServiceError> {
    let count = || {
        let max = i64::from(MESSAGES_PER_GET_MAX);
        let count = whole_number(request, "numofmessages", Range { min: 1, max })?.unwrap_or(1);
        Ok::<u32, ServiceError>(u32::try_from(count).unwrap_or(1))
    };
    match request.method {
        Method::Post => Ok(Command::Put { queue, message: new_message(request)? }),
        Method::Get => match request.query("peekonly") {
            Some(peek) if peek.eq_ignore_ascii_case("true") => Ok(Command::Peek { queue, count: count()? }),
            _ => {
                let range = Range { min: 1, max: VISIBILITY_SECONDS_MAX };
                let seconds = whole_number(request, "visibilitytimeout", range)?;
                let invisible_ms = seconds.unwrap_or(GET_SECONDS_DEFAULT) * 1000;
                Ok(Command::Get { queue, count: count()?, invisible_ms })
            }
        },
        Method::Delete => Ok(Command::Clear { queue }),
        _ => Err(ServiceError::unsupported_verb()),
    }
}

fn new_message(request: &Request) -> Result<NewMessage, ServiceError> {
    let invisible = visibility(request)?.unwrap_or(0);
    // Clients mean "for ever" by whatever is large; the calendar is the end of it.
    let range = Range { min: -1, max: i64::MAX };
    let ttl = match whole_number(request, "messagettl", range)? {
        None => Ttl::Ms(TTL_DEFAULT_MS),
        Some(-1) => Ttl::Never,
        Some(0) => return Err(reply::out_of_range("messagettl", "0", "1", &range.max.to_string())),
        Some(seconds) => Ttl::Ms(seconds.saturating_mul(1000)),
    };
    if let Ttl::Ms(ttl_ms) = ttl
        && invisible * 1000 >= ttl_ms
    {
        let max = (ttl_ms / 1000 - 1).to_string();
        return Err(reply::out_of_range("visibilitytimeout", &invisible.to_string(), "0", &max));
    }
    Ok(NewMessage { body: message_text(&request.body)?, invisible_ms: invisible * 1000, ttl })
}

fn message_command(request: &Request, queue: QueueName, id: &str) -> Result<Command, ServiceError> {
    if !matches!(request.method, Method::Put | Method::Delete) {
        return Err(ServiceError::unsupported_verb());
    }
    let receipt = required(request, "popreceipt")?;
    // What is no id at all is the id of no message.
    let id = MessageId::parse(id).ok_or_else(reply::no_such_message)?;
    let malformed =
        || ServiceError::invalid_query("popreceipt", receipt, "it is not one that this service gave");
    let receipt = PopReceipt::parse(receipt, &id).ok_or_else(malformed)?;
    if request.method == Method::Delete {
        return Ok(Command::DeleteMessage { queue, id, receipt });
    }
    required(request, "visibilitytimeout")?;
    let invisible_ms = visibility(request)?.unwrap_or(0) * 1000;
    let body = if request.body.is_empty() { None } else { Some(message_text(&request.body)?) };
    Ok(Command::Update { queue, id, receipt, invisible_ms, body })
}

fn visibility(request: &Request) -> Result<Option<i64>, ServiceError> {
    whole_number(request, "visibilitytimeout", Range { min: 0, max: VISIBILITY_SECONDS_MAX })
}

/// The text in `<QueueMessage><MessageText>`.
fn message_text(body: &[u8]) -> Result<String, ServiceError> {
    let root = xml::parse(body)?;
    if root.name != "QueueMessage" {
        return Err(ServiceError::invalid_xml("the root element must be QueueMessage"));
    }
    let mut texts = root.children.iter().filter(|child| child.name == "MessageText");
    let text = texts.next().ok_or_else(reply::no_text)?;
    // Nobody would get back what is left out.
    if !text.children.is_empty() {
        let reason = "MessageText has elements in it: escape the text (&lt;), or encode it in base64";
        return Err(ServiceError::invalid_xml(reason));
    }
    if texts.next().is_some() {
        return Err(ServiceError::invalid_xml("there is more than one MessageText"));
    }
    let text = &text.text;
    if text.len() > MESSAGE_BYTES_MAX {
        return Err(reply::message_too_large());
    }
    Ok(text.clone())
}

fn unknown_comp(comp: Option<&str>) -> ServiceError {
    ServiceError::invalid_query("comp", comp.unwrap_or_default(), "this resource has no such component")
}

#[cfg(test)]
mod tests;
