//! Quotas (E6): the boundary, free of HTTP, and routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};

use crate::auth::Auth;
use crate::extract::Body;
use crate::handlers::guarded;
use crate::operator::Answer;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{QuotaTarget, QuotaView, QuotasAnswer, RemoveQuota};

/// Everything about quotas that an operator can ask for.
pub trait Quotas: Send + Sync + 'static {
    /// All of them.
    fn quotas(&self) -> Answer<'_, Vec<QuotaView>>;
    /// Sets one; the same again with another number is changed.
    fn set_quota(&self, quota: QuotaView) -> Answer<'_, QuotaView>;
    /// Forgets one.
    fn remove_quota(&self, of: QuotaTarget) -> Answer<'_, ()>;
}

/// The routes, to be merged with those of the operator.
pub fn quota_router(quotas: Arc<dyn Quotas>, auth: Auth) -> Router {
    let routes =
        Router::new().route("/v1/quotas", get(list).post(set)).route("/v1/quotas/remove", post(remove));
    guarded(routes, auth).with_state(quotas)
}

type Shared = State<Arc<dyn Quotas>>;

/// All quotas.
#[utoipa::path(get, path = "/v1/quotas", tag = "quotas", operation_id = "list_quotas", responses(
    (status = 200, description = "The quotas", body = QuotasAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn list(State(quotas): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(QuotasAnswer { quotas: quotas.quotas().await? }))
}

/// Limit how many requests a second a key, each key of a map, or a table, queue or container may have.
#[utoipa::path(post, path = "/v1/quotas", tag = "quotas", operation_id = "set_quota",
    request_body = QuotaView,
    responses(
        (status = 200, description = "The quota", body = QuotaView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn set(State(quotas): Shared, Body(quota): Body<QuotaView>) -> Result<Response, Problem> {
    Ok(reply::ok(quotas.set_quota(quota).await?))
}

/// Forget a quota.
#[utoipa::path(post, path = "/v1/quotas/remove", tag = "quotas", operation_id = "remove_quota",
    request_body = RemoveQuota,
    responses(
        (status = 204, description = "It is gone"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn remove(
    State(quotas): Shared,
    Body(quota): Body<RemoveQuota>,
) -> Result<Response, Problem> {
    quotas.remove_quota(quota.of).await?;
    Ok(reply::nothing())
}
