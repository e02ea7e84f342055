//! The checker: what is put right, soft references, what it found by itself. The boundary, free of HTTP, and routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{delete, get, post};

use crate::auth::Auth;
use crate::extract::{Body, Named};
use crate::handlers::guarded;
use crate::operator::Answer;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{
    LastCheckAnswer, LinkView, LinksAnswer, LinksCheckAnswer, NewLink, RepairRowsAnswer, RepairRowsRequest,
};

/// Everything about the checker that an operator can ask for.
pub trait Checker: Send + Sync + 'static {
    /// Puts rows and reference tables right, or looks at what that would be.
    fn repair_rows(&self, request: RepairRowsRequest) -> Answer<'_, RepairRowsAnswer>;
    /// All soft references.
    fn links(&self) -> Answer<'_, Vec<LinkView>>;
    /// Records a soft reference.
    fn add_link(&self, link: NewLink) -> Answer<'_, LinkView>;
    /// Forgets a soft reference.
    fn remove_link(&self, id: String) -> Answer<'_, ()>;
    /// Looks for rows that name nothing.
    fn check_links(&self) -> Answer<'_, LinksCheckAnswer>;
    /// What was found when it last ran by itself.
    fn last_check(&self) -> Answer<'_, LastCheckAnswer>;
}

/// The routes, to be merged with those of the operator.
pub fn checker_router(checker: Arc<dyn Checker>, auth: Auth) -> Router {
    let routes = Router::new()
        .route("/v1/check", get(last))
        .route("/v1/check/repair", post(repair))
        .route("/v1/links", get(links).post(add_link))
        .route("/v1/links/check", get(check_links))
        .route("/v1/links/{id}", delete(remove_link));
    guarded(routes, auth).with_state(checker)
}

type Shared = State<Arc<dyn Checker>>;

/// What the checker found when it last ran by itself.
#[utoipa::path(get, path = "/v1/check", tag = "check", operation_id = "last_check", responses(
    (status = 200, description = "What was found", body = LastCheckAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn last(State(checker): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(checker.last_check().await?))
}

/// Put rows right that are on shards which do not own them, and reference tables that differ; or look at what that
/// would be.
#[utoipa::path(post, path = "/v1/check/repair", tag = "check", operation_id = "repair_rows",
    request_body = RepairRowsRequest,
    responses(
        (status = 200, description = "What would be done, and the operation that does it", body = RepairRowsAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn repair(
    State(checker): Shared,
    Body(request): Body<RepairRowsRequest>,
) -> Result<Response, Problem> {
    Ok(reply::ok(checker.repair_rows(request).await?))
}

/// All soft references between tables.
#[utoipa::path(get, path = "/v1/links", tag = "check", operation_id = "list_links", responses(
    (status = 200, description = "The links", body = LinksAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn links(State(checker): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(LinksAnswer { links: checker.links().await? }))
}

/// Record a soft reference, which the checker looks into.
#[utoipa::path(post, path = "/v1/links", tag = "check", operation_id = "add_link",
    request_body = NewLink,
    responses(
        (status = 200, description = "The link", body = LinkView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn add_link(State(checker): Shared, Body(link): Body<NewLink>) -> Result<Response, Problem> {
    Ok(reply::ok(checker.add_link(link).await?))
}

/// Look for rows that name nothing.
#[utoipa::path(get, path = "/v1/links/check", tag = "check", operation_id = "check_links", responses(
    (status = 200, description = "What was found", body = LinksCheckAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn check_links(State(checker): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(checker.check_links().await?))
}

/// Forget a soft reference.
#[utoipa::path(delete, path = "/v1/links/{id}", tag = "check", operation_id = "remove_link",
    params(("id" = String, Path, description = "The link")),
    responses(
        (status = 204, description = "It is gone"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn remove_link(
    State(checker): Shared,
    Named(id): Named<String>,
) -> Result<Response, Problem> {
    checker.remove_link(id).await?;
    Ok(reply::nothing())
}
