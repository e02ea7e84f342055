//! Writes on several shards that are completed whatever happens (C3): the boundary, free of HTTP, and routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};

use crate::auth::Auth;
use crate::extract::{Body, Named};
use crate::handlers::guarded;
use crate::operator::Answer;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{SkipWrite, WriteView, WritesAnswer};

/// Everything about writes on several shards that an operator can ask for.
pub trait Writes: Send + Sync + 'static {
    /// Those that are remembered.
    fn writes(&self) -> Answer<'_, Vec<WriteView>>;
    /// One of them.
    fn write(&self, id: String) -> Answer<'_, WriteView>;
    /// Tries now to complete one.
    fn retry_write(&self, id: String) -> Answer<'_, WriteView>;
    /// Gives one up on a shard.
    fn skip_write(&self, id: String, skip: SkipWrite) -> Answer<'_, WriteView>;
}

/// The routes, to be merged with those of the operator.
pub fn write_router(writes: Arc<dyn Writes>, auth: Auth) -> Router {
    let routes = Router::new()
        .route("/v1/writes", get(list))
        .route("/v1/writes/{id}", get(show))
        .route("/v1/writes/{id}/retry", post(retry))
        .route("/v1/writes/{id}/skip", post(skip));
    guarded(routes, auth).with_state(writes)
}

type Shared = State<Arc<dyn Writes>>;

/// Writes on several shards: those that are still to be completed, and the latest others.
#[utoipa::path(get, path = "/v1/writes", tag = "writes", operation_id = "list_writes", responses(
    (status = 200, description = "The writes", body = WritesAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn list(State(writes): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(WritesAnswer { writes: writes.writes().await? }))
}

/// One write on several shards.
#[utoipa::path(get, path = "/v1/writes/{id}", tag = "writes", operation_id = "show_write",
    params(("id" = String, Path, description = "The write")),
    responses(
        (status = 200, description = "The write", body = WriteView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn show(State(writes): Shared, Named(id): Named<String>) -> Result<Response, Problem> {
    Ok(reply::ok(writes.write(id).await?))
}

/// Try now to complete a write on the shards that are still to get it.
#[utoipa::path(post, path = "/v1/writes/{id}/retry", tag = "writes", operation_id = "retry_write",
    params(("id" = String, Path, description = "The write")),
    responses(
        (status = 200, description = "The write, as it is then", body = WriteView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn retry(State(writes): Shared, Named(id): Named<String>) -> Result<Response, Problem> {
    Ok(reply::ok(writes.retry_write(id).await?))
}

/// Give a write up on a shard: it is not to get it any more.
#[utoipa::path(post, path = "/v1/writes/{id}/skip", tag = "writes", operation_id = "skip_write",
    params(("id" = String, Path, description = "The write")),
    request_body = SkipWrite,
    responses(
        (status = 200, description = "The write, as it is then", body = WriteView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn skip(
    State(writes): Shared,
    Named(id): Named<String>,
    Body(asked): Body<SkipWrite>,
) -> Result<Response, Problem> {
    Ok(reply::ok(writes.skip_write(id, asked).await?))
}
