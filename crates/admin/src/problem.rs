//! What went wrong, in words for the operator and a code for programs; knows nothing of HTTP.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the caller can do about a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// Fix the request.
    Invalid,
    /// Give the right token.
    Unauthorized,
    /// Use a token of a higher role.
    Forbidden,
    /// Name something that exists.
    NotFound,
    /// Use another HTTP method.
    MethodNotAllowed,
    /// Choose another name.
    Exists,
    /// Read the thing again and decide again.
    ChangedMeanwhile,
    /// The change does not fit the state of things.
    Conflict,
    /// Somebody else holds a lock.
    Locked,
    /// Slow down, or wait for what is under way.
    Busy,
    /// Say explicitly that data may be destroyed, or move it first.
    HoldsData,
    /// Send less.
    TooLarge,
    /// Try again later.
    Unavailable,
    /// Not built.
    Unsupported,
    /// Call a human.
    Internal,
}

impl ErrorCode {
    /// Every code, for documents and tests.
    pub const ALL: [ErrorCode; 15] = [
        ErrorCode::Invalid,
        ErrorCode::Unauthorized,
        ErrorCode::Forbidden,
        ErrorCode::NotFound,
        ErrorCode::MethodNotAllowed,
        ErrorCode::Exists,
        ErrorCode::ChangedMeanwhile,
        ErrorCode::Conflict,
        ErrorCode::Locked,
        ErrorCode::Busy,
        ErrorCode::HoldsData,
        ErrorCode::TooLarge,
        ErrorCode::Unavailable,
        ErrorCode::Unsupported,
        ErrorCode::Internal,
    ];
}

/// What went wrong. The message names the thing; the remedy is the next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{message}")]
#[schema(as = Error)]
pub struct Problem {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
    /// The field of the request that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// With `changed_meanwhile`: the version there is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_version: Option<u64>,
}

/// The body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: Problem,
}

impl Problem {
    /// A problem with a code and a message that names the thing.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Problem {
        Problem { code, message: message.into(), field: None, remedy: None, current_version: None }
    }

    /// A field of the request is wrong.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { field: Some(field.into()), ..Problem::new(ErrorCode::Invalid, message) }
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Problem {
        Problem::new(ErrorCode::NotFound, message)
    }

    /// Somebody else changed it first.
    pub fn changed_meanwhile(what: impl std::fmt::Display, current_version: u64) -> Problem {
        let message = format!("{what} changed meanwhile, its version is now {current_version}");
        Problem {
            current_version: Some(current_version),
            ..Problem::new(ErrorCode::ChangedMeanwhile, message)
        }
        .with_remedy("read it again and repeat the change with the current version")
    }

    /// Try again later.
    pub fn unavailable(message: impl Into<String>) -> Problem {
        Problem::new(ErrorCode::Unavailable, message)
    }

    /// The same, with the next step for the operator.
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Problem {
        self.remedy = Some(remedy.into());
        self
    }

    /// The same, naming the field of the request.
    pub fn with_field(mut self, field: impl Into<String>) -> Problem {
        self.field = Some(field.into());
        self
    }
}
