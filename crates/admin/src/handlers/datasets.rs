//! Datasets: list, bind, unbind.

use axum::extract::State;
use axum::response::Response;

use super::Shared;
use crate::extract::Body;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{BindRequest, DatasetView, DatasetsAnswer, UnbindRequest};

/// All datasets, and the names that are bound.
#[utoipa::path(get, path = "/v1/datasets", tag = "datasets", operation_id = "list_datasets", responses(
    (status = 200, description = "All datasets", body = DatasetsAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn list(State(operator): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(DatasetsAnswer { datasets: operator.datasets().await? }))
}

/// Have a dataset placed by a map: one that does not exist yet, or never had a row.
#[utoipa::path(post, path = "/v1/datasets/bind", tag = "datasets", operation_id = "bind_dataset",
    request_body = BindRequest,
    responses(
        (status = 200, description = "The dataset after it", body = DatasetView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn bind(
    State(operator): Shared,
    Body(bind): Body<BindRequest>,
) -> Result<Response, Problem> {
    Ok(reply::ok(operator.bind_dataset(bind).await?))
}

/// Forget what a name is bound to; a dataset that exists stays where it is.
#[utoipa::path(post, path = "/v1/datasets/unbind", tag = "datasets", operation_id = "unbind_dataset",
    request_body = UnbindRequest,
    responses(
        (status = 204, description = "It is forgotten"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn unbind(
    State(operator): Shared,
    Body(unbind): Body<UnbindRequest>,
) -> Result<Response, Problem> {
    operator.unbind_dataset(unbind).await?;
    Ok(reply::nothing())
}
