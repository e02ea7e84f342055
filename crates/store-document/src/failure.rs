//! Why a request was refused, as the service says it: a status, a code, sometimes a substatus, and a message.

use std::time::Duration;

use polyshard_document_query::{JsonError, QueryError};
use polyshard_engine as engine;
use polyshard_store::{Error, ErrorKind};

use crate::name::NameError;

/// A refusal or failure.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub status: u16,
    pub substatus: Option<u32>,
    pub code: &'static str,
    pub message: String,
    pub retry_after: Option<Duration>,
}

/// The partition key of the header is not that of the document.
const KEY_MISMATCH: u32 = 1001;
/// What the resource belongs to does not exist.
const OWNER_NOT_FOUND: u32 = 1003;
/// More requests than are allowed.
const TOO_MANY_REQUESTS: u32 = 3200;

/// So many units of what is not a client's affair to wait for.
const RETRY_AFTER: Duration = Duration::from_millis(100);

impl Failure {
    fn new(status: u16, code: &'static str, message: impl Into<String>) -> Failure {
        Failure { status, substatus: None, code, message: message.into(), retry_after: None }
    }

    /// Fix the request.
    pub fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(400, "BadRequest", message)
    }

    /// The partition key that was given is not that of the document.
    pub fn key_mismatch() -> Failure {
        let message = "PartitionKey extracted from document doesn't match the one specified in the header";
        Failure { substatus: Some(KEY_MISMATCH), ..Failure::bad_request(message) }
    }

    /// Sign it with the account's key.
    pub fn unauthorized(message: impl Into<String>) -> Failure {
        Failure::new(401, "Unauthorized", message)
    }

    /// Ask an administrator.
    pub fn forbidden(message: impl Into<String>) -> Failure {
        Failure::new(403, "Forbidden", message)
    }

    /// There is no such thing.
    pub fn not_found(what: impl std::fmt::Display) -> Failure {
        Failure::new(404, "NotFound", format!("Resource Not Found: {what} does not exist."))
    }

    /// There is no container, so nothing can be in it.
    pub fn no_owner(what: impl std::fmt::Display) -> Failure {
        Failure { substatus: Some(OWNER_NOT_FOUND), ..Failure::not_found(what) }
    }

    /// The path cannot be used with this method.
    pub fn method_not_allowed() -> Failure {
        Failure::new(405, "MethodNotAllowed", "The requested verb is not supported for this resource.")
    }

    /// The id is taken.
    pub fn conflict(what: impl std::fmt::Display) -> Failure {
        Failure::new(409, "Conflict", format!("{what} with the specified id already exists."))
    }

    /// It is not as the client thinks it is.
    pub fn precondition(message: impl Into<String>) -> Failure {
        Failure::new(412, "PreconditionFailed", message)
    }

    /// The ETag of a condition is another one.
    pub fn etag() -> Failure {
        Failure::precondition("One of the specified pre-condition is not met: the resource has another ETag.")
    }

    /// Send less.
    pub fn too_large(message: impl Into<String>) -> Failure {
        Failure::new(413, "RequestEntityTooLarge", message)
    }

    /// Others were always quicker.
    pub fn contended() -> Failure {
        let message =
            "the document is changed by so many at once that this change did not come through; retry";
        Failure::new(449, "RetryWith", message)
    }

    /// Another operation of the batch failed.
    pub fn dependency() -> Failure {
        Failure::new(424, "FailedDependency", "another operation of the batch failed")
    }

    /// This is not there yet.
    pub fn not_built(what: &str) -> Failure {
        Failure::new(501, "NotImplemented", format!("{what} are not built; see docs/stores/document.md"))
    }

    /// Stored rows that are not as this program writes them.
    pub fn damaged(what: &str, detail: impl std::fmt::Display) -> Failure {
        Error::damaged(what, detail).into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let message = match &error.hint {
            Some(hint) => format!("{}. {hint}", error.message),
            None => error.message.clone(),
        };
        match error.kind {
            ErrorKind::Invalid | ErrorKind::WrongState => Failure::bad_request(message),
            ErrorKind::NoDataset | ErrorKind::NoItem => Failure::new(404, "NotFound", message),
            ErrorKind::Exists => Failure::new(409, "Conflict", message),
            ErrorKind::Changed => Failure::precondition(message),
            ErrorKind::TooMany | ErrorKind::NotPermitted => Failure::forbidden(message),
            ErrorKind::OverQuota(after) => Failure {
                substatus: Some(TOO_MANY_REQUESTS),
                retry_after: Some(after),
                ..Failure::new(429, "TooManyRequests", message)
            },
            ErrorKind::Busy => {
                Failure { retry_after: Some(RETRY_AFTER), ..Failure::new(503, "ServiceUnavailable", message) }
            }
            ErrorKind::OutOfService(_) => Failure::new(503, "ServiceUnavailable", message),
            // It may have been done: clients do not send a write again by themselves after this one.
            ErrorKind::OutcomeUnknown => Failure::new(408, "RequestTimeout", message),
            ErrorKind::Fault => {
                tracing::error!(%error, "request failed");
                Failure::new(500, "InternalServerError", message)
            }
        }
    }
}

impl From<engine::Error> for Failure {
    fn from(error: engine::Error) -> Failure {
        Error::from(error).into()
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Failure {
        Failure::bad_request(error.to_service_json())
    }
}

impl From<JsonError> for Failure {
    fn from(error: JsonError) -> Failure {
        Failure::bad_request(format!("The request body is no JSON: {error}"))
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Failure {
        Failure::bad_request(error.to_string())
    }
}
