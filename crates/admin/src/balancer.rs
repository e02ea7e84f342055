//! What is made of several changes and moves, and the rules it heeds: the boundary, free of HTTP, and its routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{delete, get, post};
use polyshard_map::MapName;

use crate::auth::Auth;
use crate::extract::{Body, Named, Params};
use crate::handlers::guarded;
use crate::operator::Answer;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{
    AdoptAnswer, AdoptRequest, BalanceAnswer, BalanceRequest, IsolateRequest, MoveAnswer, NewRule, RuleView,
    RulesAnswer,
};

/// Everything about procedures and rules that an operator can ask for.
pub trait Balancer: Send + Sync + 'static {
    /// Gives keys a shard of their own.
    fn isolate(&self, map: MapName, request: IsolateRequest) -> Answer<'_, MoveAnswer>;
    /// Makes the moves that would even out a map or empty a shard, one after the other.
    fn apply(&self, map: MapName, request: BalanceRequest) -> Answer<'_, BalanceAnswer>;
    /// Takes a database in as a shard, with its rows, or looks at what that would be.
    fn adopt(&self, request: AdoptRequest) -> Answer<'_, AdoptAnswer>;
    /// All rules.
    fn rules(&self) -> Answer<'_, Vec<RuleView>>;
    /// Records a rule.
    fn add_rule(&self, map: MapName, rule: NewRule) -> Answer<'_, RuleView>;
    /// Forgets a rule.
    fn remove_rule(&self, id: String) -> Answer<'_, ()>;
}

/// The routes, to be merged with those of the operator.
pub fn balancer_router(balancer: Arc<dyn Balancer>, auth: Auth) -> Router {
    let routes = Router::new()
        .route("/v1/maps/{name}/isolate", post(isolate))
        .route("/v1/maps/{name}/rebalance", post(apply))
        .route("/v1/maps/{name}/rules", post(add_rule))
        .route("/v1/adopt", post(adopt))
        .route("/v1/rules", get(rules))
        .route("/v1/rules/{id}", delete(remove_rule));
    guarded(routes, auth).with_state(balancer)
}

type Shared = State<Arc<dyn Balancer>>;

/// Give keys a shard of their own, and keep it so.
#[utoipa::path(post, path = "/v1/maps/{name}/isolate", tag = "moves", operation_id = "isolate",
    params(("name" = String, Path, description = "The map")),
    request_body = IsolateRequest,
    responses(
        (status = 200, description = "What is done, and the operation that does it", body = MoveAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn isolate(
    State(balancer): Shared,
    Named(name): Named<MapName>,
    Body(request): Body<IsolateRequest>,
) -> Result<Response, Problem> {
    Ok(reply::ok(balancer.isolate(name, request).await?))
}

/// Make the moves that even out a map's load, or empty a shard.
#[utoipa::path(post, path = "/v1/maps/{name}/rebalance", tag = "moves", operation_id = "rebalance",
    params(("name" = String, Path, description = "The map"), BalanceRequest),
    responses(
        (status = 200, description = "The plan, and the operation that makes its moves", body = BalanceAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn apply(
    State(balancer): Shared,
    Named(name): Named<MapName>,
    Params(request): Params<BalanceRequest>,
) -> Result<Response, Problem> {
    Ok(reply::ok(balancer.apply(name, request).await?))
}

/// Take an existing PostgreSQL database in as a shard, with its rows, or look at what that would be.
#[utoipa::path(post, path = "/v1/adopt", tag = "shards", operation_id = "adopt",
    request_body = AdoptRequest,
    responses(
        (status = 200, description = "What is done, and what must change first", body = AdoptAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn adopt(
    State(balancer): Shared,
    Body(request): Body<AdoptRequest>,
) -> Result<Response, Problem> {
    Ok(reply::ok(balancer.adopt(request).await?))
}

/// All rules that placement heeds.
#[utoipa::path(get, path = "/v1/rules", tag = "moves", operation_id = "list_rules", responses(
    (status = 200, description = "By map", body = RulesAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn rules(State(balancer): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(RulesAnswer { rules: balancer.rules().await? }))
}

/// Record a rule.
#[utoipa::path(post, path = "/v1/maps/{name}/rules", tag = "moves", operation_id = "add_rule",
    params(("name" = String, Path, description = "The map")),
    request_body = NewRule,
    responses(
        (status = 200, description = "The rule", body = RuleView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn add_rule(
    State(balancer): Shared,
    Named(name): Named<MapName>,
    Body(rule): Body<NewRule>,
) -> Result<Response, Problem> {
    Ok(reply::ok(balancer.add_rule(name, rule).await?))
}

/// Forget a rule.
#[utoipa::path(delete, path = "/v1/rules/{id}", tag = "moves", operation_id = "remove_rule",
    params(("id" = String, Path, description = "The rule")),
    responses(
        (status = 204, description = "It is gone"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn remove_rule(
    State(balancer): Shared,
    Named(id): Named<String>,
) -> Result<Response, Problem> {
    balancer.remove_rule(id).await?;
    Ok(reply::nothing())
}
