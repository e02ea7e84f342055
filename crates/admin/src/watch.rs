//! Looking on: traffic, heat, windows onto maps, live events, metrics. The boundary, free of HTTP, and its routes.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::{Stream, StreamExt};
use polyshard_map::MapName;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::auth::{Auth, Bearer};
use crate::extract::{Body, Named, Params};
use crate::handlers::guarded;
use crate::operator::Answer;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{
    HOT_DEFAULT, HOT_MAX, HotAnswer, HotRequest, LargeAnswer, LargeRequest, PIECES_DEFAULT, PIECES_MAX,
    QueryAnswer, QueryRequest, Role, ShardletAnswer, TrafficAnswer, WindowAnswer, WindowRequest,
};

/// A word on a quiet stream, so that proxies do not take it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Events as JSON texts, until the server stops.
pub type Events = Pin<Box<dyn Stream<Item = String> + Send>>;

/// Everything an onlooker can ask for; `server` implements it.
pub trait Watch: Send + Sync + 'static {
    /// What is going on.
    fn traffic(&self) -> Answer<'_, TrafficAnswer>;
    /// The busiest shardlets, or the least busy, at most so many.
    fn hot(&self, request: HotRequest, limit: u32) -> Answer<'_, HotAnswer>;
    /// The largest shardlets, of one map or of all.
    fn large(&self, limit: u32, map: Option<MapName>) -> Answer<'_, LargeAnswer>;
    /// A part of a map in at most so many pieces.
    fn window(&self, map: MapName, first: u64, count: Option<u64>, pieces: u32) -> Answer<'_, WindowAnswer>;
    /// One shardlet by its key's text form.
    fn shardlet(&self, map: MapName, key: String) -> Answer<'_, ShardletAnswer>;
    /// Runs SQL through the SQL door, for the bearer of a token of this role.
    fn query(&self, sql: String, role: Role) -> Answer<'_, QueryAnswer>;
    /// All metrics in Prometheus' text form, and its content type.
    fn metrics(&self) -> Answer<'_, (String, &'static str)>;
    /// What is going on, again and again.
    fn events(&self) -> Events;
}

/// The routes of an onlooker, to be merged with those of the operator.
pub fn watch_router(watch: Arc<dyn Watch>, auth: Auth) -> Router {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/traffic", get(traffic))
        .route("/v1/hot", get(hot))
        .route("/v1/large", get(large))
        .route("/v1/events", get(events))
        .route("/v1/query", post(query))
        .route("/v1/maps/{name}/window", get(window))
        .route("/v1/maps/{name}/shardlet", get(shardlet));
    guarded(routes, auth).with_state(watch)
}

type Shared = State<Arc<dyn Watch>>;

/// All metrics in Prometheus' text form.
#[utoipa::path(get, path = "/metrics", tag = "watch", responses(
    (status = 200, description = "All metrics", content_type = "text/plain"),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn metrics(State(watch): Shared) -> Result<Response, Problem> {
    let (text, content_type) = watch.metrics().await?;
    Ok(([(CONTENT_TYPE, content_type)], text).into_response())
}

/// What is going on: requests, times, sizes and warnings by shard.
#[utoipa::path(get, path = "/v1/traffic", tag = "watch", operation_id = "show_traffic", responses(
    (status = 200, description = "As this server process sees it", body = TrafficAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn traffic(State(watch): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(watch.traffic().await?))
}

/// The shardlets that are busiest, by requests or bytes, or least busy.
#[utoipa::path(get, path = "/v1/hot", tag = "watch", operation_id = "list_hot", params(HotRequest), responses(
    (status = 200, description = "The hottest first", body = HotAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn hot(
    State(watch): Shared,
    Params(request): Params<HotRequest>,
) -> Result<Response, Problem> {
    let limit = within("limit", request.limit.unwrap_or(HOT_DEFAULT), HOT_MAX)?;
    Ok(reply::ok(watch.hot(request, limit).await?))
}

/// The shardlets that have the most data. It is counted within bounds, and not again for every request.
#[utoipa::path(get, path = "/v1/large", tag = "watch", operation_id = "list_large", params(LargeRequest), responses(
    (status = 200, description = "The largest first", body = LargeAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn large(
    State(watch): Shared,
    Params(request): Params<LargeRequest>,
) -> Result<Response, Problem> {
    let limit = within("limit", request.limit.unwrap_or(HOT_DEFAULT), HOT_MAX)?;
    Ok(reply::ok(watch.large(limit, request.map).await?))
}

/// What is going on, as server-sent events: `tick` every two seconds, with rates by shard, unfinished and latest
/// operations, and `seq`, which grows when a map, shard or dataset changes.
#[utoipa::path(get, path = "/v1/events", tag = "watch", operation_id = "watch_events", responses(
    (status = 200, description = "Events until the server stops", content_type = "text/event-stream"),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn events(State(watch): Shared) -> Response {
    let events =
        watch.events().map(|text| Ok::<Event, Infallible>(Event::default().event("tick").data(text)));
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    ([(CACHE_CONTROL, "no-store")], stream).into_response()
}

/// Run SQL through the SQL door, as its configured user. Rows beyond the first 1000 of a result are left out.
#[utoipa::path(post, path = "/v1/query", tag = "watch", operation_id = "run_query", request_body = QueryRequest,
    responses(
        (status = 200, description = "What the statements answered", body = QueryAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn query(
    State(watch): Shared,
    Extension(bearer): Extension<Bearer>,
    Body(request): Body<QueryRequest>,
) -> Result<Response, Problem> {
    Ok(reply::ok(watch.query(request.sql, bearer.role).await?))
}

/// A part of a map in a bounded number of pieces.
#[utoipa::path(get, path = "/v1/maps/{name}/window", tag = "watch", operation_id = "show_window",
    params(("name" = String, Path, description = "The map"), WindowRequest),
    responses(
        (status = 200, description = "The pieces", body = WindowAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn window(
    State(watch): Shared,
    Named(name): Named<MapName>,
    Params(request): Params<WindowRequest>,
) -> Result<Response, Problem> {
    let pieces = within("pieces", request.pieces.unwrap_or(PIECES_DEFAULT), PIECES_MAX)?;
    if request.count == Some(0) {
        return Err(Problem::invalid("count", "a window has at least one position"));
    }
    let answer = watch.window(name, request.first.unwrap_or(0), request.count, pieces).await?;
    let version = answer.version;
    Ok(reply::versioned(answer, version))
}

/// The key of the shardlet.
#[derive(Debug, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShardletParams {
    /// The key in its text form.
    key: String,
}

/// One shardlet: where it is, why, and what belongs to it in all stores.
#[utoipa::path(get, path = "/v1/maps/{name}/shardlet", tag = "watch", operation_id = "show_shardlet",
    params(("name" = String, Path, description = "The map"), ShardletParams),
    responses(
        (status = 200, description = "The shardlet", body = ShardletAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn shardlet(
    State(watch): Shared,
    Named(name): Named<MapName>,
    Params(params): Params<ShardletParams>,
) -> Result<Response, Problem> {
    Ok(reply::ok(watch.shardlet(name, params.key).await?))
}

fn within(field: &str, number: u32, most: u32) -> Result<u32, Problem> {
    match (1..=most).contains(&number) {
        true => Ok(number),
        false => Err(Problem::invalid(field, format!("{field} is {number}, but may be 1 to {most}"))),
    }
}
