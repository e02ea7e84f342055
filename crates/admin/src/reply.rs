//! Answers as HTTP: the only file that knows which status a code has.

use axum::Json;
use axum::http::header::{CONTENT_TYPE, ETAG, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::problem::{ErrorBody, ErrorCode, Problem};

/// When to try again after `unavailable` or `busy`: a server that restarts or fails over takes seconds.
pub const RETRY_AFTER_S: u32 = 1;

impl ErrorCode {
    /// The HTTP status of this code.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            ErrorCode::Invalid => StatusCode::BAD_REQUEST,
            ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
            ErrorCode::Forbidden => StatusCode::FORBIDDEN,
            ErrorCode::NotFound => StatusCode::NOT_FOUND,
            ErrorCode::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            ErrorCode::ChangedMeanwhile => StatusCode::PRECONDITION_FAILED,
            ErrorCode::Exists
            | ErrorCode::Conflict
            | ErrorCode::Locked
            | ErrorCode::Busy
            | ErrorCode::HoldsData => StatusCode::CONFLICT,
            ErrorCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::Unsupported => StatusCode::NOT_IMPLEMENTED,
            ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let code = self.code;
        if code == ErrorCode::Internal {
            tracing::error!(message = %self.message, "an admin request failed for no fault of its own");
        }
        let mut response = (code.status(), Json(ErrorBody { error: self })).into_response();
        match code {
            ErrorCode::Unavailable | ErrorCode::Busy => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
            }
            ErrorCode::Unauthorized => {
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

/// A plain answer.
pub(crate) fn ok<T: Serialize>(body: T) -> Response {
    Json(body).into_response()
}

/// An answer with the version of what it shows.
pub(crate) fn versioned<T: Serialize>(body: T, version: u64) -> Response {
    ([(ETAG, etag(version))], Json(body)).into_response()
}

/// An answer about something new, with its place.
pub(crate) fn created<T: Serialize>(body: T, version: u64, place: String) -> Response {
    (StatusCode::CREATED, [(ETAG, etag(version)), (LOCATION, place)], Json(body)).into_response()
}

/// An answer that is a JSON document already.
pub(crate) fn json_document(document: Vec<u8>, version: u64) -> Response {
    ([(CONTENT_TYPE, "application/json".to_owned()), (ETAG, etag(version))], document).into_response()
}

/// Done, and nothing to say.
pub(crate) fn nothing() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

fn etag(version: u64) -> String {
    format!("\"{version}\"")
}
