//! Operations: look at them.

use axum::extract::State;
use axum::response::Response;

use super::Shared;
use crate::extract::Named;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{OperationView, OperationsAnswer};

/// The unfinished operations and the latest finished ones.
#[utoipa::path(get, path = "/v1/operations", tag = "operations", operation_id = "list_operations", responses(
    (status = 200, description = "The latest first", body = OperationsAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn list(State(operator): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(OperationsAnswer { operations: operator.operations().await? }))
}

/// One operation.
#[utoipa::path(get, path = "/v1/operations/{id}", tag = "operations", operation_id = "show_operation",
    params(("id" = String, Path, description = "The operation")),
    responses(
        (status = 200, description = "The operation", body = OperationView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn show(State(operator): Shared, Named(id): Named<String>) -> Result<Response, Problem> {
    Ok(reply::ok(operator.operation(id).await?))
}
