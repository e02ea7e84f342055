//! The kit's errors in the terms of the Azure Storage services. A store maps only what its own protocol names.

use polyshard_store::{Error, ErrorKind, Reason};

use crate::ServiceError;

/// What a client is answered. The SDKs send a request again after a 503 and not after a 500: so 503 is what was not
/// carried out and may be later.
pub fn failure(error: &Error) -> ServiceError {
    let Error { kind, message, hint } = error;
    match kind {
        ErrorKind::Invalid => ServiceError::new(
            400,
            "InvalidInput",
            format!("One of the request inputs is not valid: {message}."),
        ),
        ErrorKind::NoDataset | ErrorKind::NoItem => ServiceError::new(
            404,
            "ResourceNotFound",
            format!("The specified resource does not exist: {message}."),
        ),
        ErrorKind::Exists => ServiceError::new(
            409,
            "ResourceAlreadyExists",
            format!("The specified resource already exists: {message}."),
        ),
        ErrorKind::WrongState => ServiceError::new(
            409,
            "Conflict",
            format!("The request conflicts with the state of the resource: {message}."),
        ),
        ErrorKind::Changed => ServiceError::new(
            412,
            "ConditionNotMet",
            format!("The condition specified was not met: {message}."),
        ),
        ErrorKind::TooMany => ServiceError::new(
            409,
            "AccountLimitExceeded",
            format!("The limit of the account was exceeded: {message}."),
        ),
        ErrorKind::NotPermitted => {
            let hint = hint.as_deref().unwrap_or_default();
            let message =
                format!("This request is not authorized to perform this operation: {message}. {hint}");
            ServiceError::new(403, "AuthorizationFailure", message)
        }
        ErrorKind::OverQuota(after) => ServiceError::too_many(message, *after),
        ErrorKind::Busy => {
            tracing::warn!(%error, "request rejected: shard or catalog unavailable");
            ServiceError::server_busy("a shard or the catalog cannot be used at the moment; try again")
        }
        ErrorKind::OutOfService(reason) => {
            tracing::debug!(%error, "request rejected: out of service");
            ServiceError::server_busy(&match reason {
                Reason::NoSpace | Reason::NoMap => format!("{message}; ask the operator"),
                Reason::ReadOnly | Reason::Offline | Reason::Unmapped => message.clone(),
            })
        }
        ErrorKind::OutcomeUnknown => {
            tracing::warn!(%error, "the outcome of a request is unknown");
            ServiceError::timed_out("It may or may not have been carried out: read before sending it again.")
        }
        ErrorKind::Fault => {
            tracing::error!(%error, "a request failed");
            ServiceError::internal()
        }
    }
}
