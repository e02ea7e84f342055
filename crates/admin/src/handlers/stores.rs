//! Stores: list.

use axum::extract::State;
use axum::response::Response;

use super::Shared;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::StoresAnswer;

/// All stores of the program: what each holds, and where it is spoken to.
#[utoipa::path(get, path = "/v1/stores", tag = "stores", operation_id = "list_stores", responses(
    (status = 200, description = "All stores", body = StoresAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn list(State(operator): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(StoresAnswer { stores: operator.stores().await? }))
}
