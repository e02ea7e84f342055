//! Is it alive, is it ready, what state is it in.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::Shared;
use crate::openapi::document_text;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::Status;

/// Whether the process lives. Needs no token.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses(
    (status = 200, description = "It lives"),
))]
pub(crate) async fn healthz() -> Response {
    "ok\n".into_response()
}

/// Whether requests can be served. Needs no token.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()), responses(
    (status = 200, description = "Requests can be served"),
    (status = 503, description = "Not now", body = ErrorBody),
))]
pub(crate) async fn readyz(State(operator): Shared) -> Result<Response, Problem> {
    operator.ready().await?;
    Ok("ready\n".into_response())
}

/// The state of the whole.
#[utoipa::path(get, path = "/v1/status", tag = "health", responses(
    (status = 200, description = "The state of the whole", body = Status),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn status(State(operator): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(operator.status().await?))
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", tag = "health", responses(
    (status = 200, description = "This document"),
))]
pub(crate) async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], document_text()).into_response()
}
