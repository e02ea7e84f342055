//! From HTTP to one call of the operator and back; nothing is decided here.

pub(crate) mod datasets;
pub(crate) mod health;
pub(crate) mod maps;
pub(crate) mod moves;
pub(crate) mod operations;
pub(crate) mod schema;
pub(crate) mod shards;
pub(crate) mod stores;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Router, middleware};

use crate::auth::{self, Auth, Bearer};
use crate::extract::{BODY_BYTES_MAX, IMPORT_BYTES_MAX};
use crate::operator::Operator;
use crate::problem::{ErrorCode, Problem};

/// What handlers work on.
pub(crate) type Shared = axum::extract::State<Arc<dyn Operator>>;

/// The whole API over an operator.
pub fn router(operator: Arc<dyn Operator>, auth: Auth) -> Router {
    let routes = Router::new()
        .route("/v1/status", get(health::status))
        .route("/v1/openapi.json", get(health::openapi))
        .route("/v1/shards", get(shards::list).post(shards::add))
        .route("/v1/shards/{id}", get(shards::show).patch(shards::set).delete(shards::remove))
        .route("/v1/shards/{id}/attach", post(shards::attach))
        .route("/v1/shards/{id}/detach", post(shards::detach))
        .route("/v1/maps", get(maps::list).post(maps::create))
        .route("/v1/maps/import", post(maps::import).layer(DefaultBodyLimit::max(IMPORT_BYTES_MAX)))
        .route("/v1/maps/{name}", get(maps::show).delete(maps::remove))
        .route("/v1/maps/{name}/entries", get(maps::entries))
        .route("/v1/maps/{name}/locate", get(maps::locate))
        .route("/v1/maps/{name}/changes", post(maps::change))
        .route("/v1/maps/{name}/export", get(maps::export))
        .route("/v1/maps/{name}/check", get(maps::check))
        .route("/v1/maps/{name}/repair", post(maps::repair))
        .route("/v1/stores", get(stores::list))
        .route("/v1/datasets", get(datasets::list))
        .route("/v1/datasets/bind", post(datasets::bind))
        .route("/v1/datasets/unbind", post(datasets::unbind))
        .route("/v1/tables", get(schema::list))
        .route("/v1/tables/declare", post(schema::declare))
        .route("/v1/schema/check", get(schema::check))
        .route("/v1/maps/{name}/moves", post(moves::begin))
        .route("/v1/maps/{name}/balance", get(moves::balance))
        .route("/v1/maps/{name}/rows", get(moves::rows))
        .route("/v1/operations/{id}/wish", post(moves::wish))
        .route("/v1/operations", get(operations::list))
        .route("/v1/operations/{id}", get(operations::show))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method);
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .merge(guarded(routes, auth))
        .with_state(operator)
}

/// What all routes of the API have around them: the token, a limit of the body, a line in the log.
pub(crate) fn guarded<S: Clone + Send + Sync + 'static>(routes: Router<S>, auth: Auth) -> Router<S> {
    routes
        .layer(middleware::from_fn(note_changes))
        .layer(middleware::from_fn_with_state(auth, auth::require))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// Leaves a line in the log for everything that may have changed something: what, and how it went. The body and the
/// query stay out of it.
async fn note_changes(request: Request, next: Next) -> Response {
    if request.method() == Method::GET || request.method() == Method::HEAD {
        return next.run(request).await;
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let by = request.extensions().get::<Bearer>().map(|bearer| bearer.name.to_string()).unwrap_or_default();
    let response = next.run(request).await;
    tracing::info!(%method, path, by, status = response.status().as_u16(), "operator request");
    response
}

async fn no_such_path(uri: Uri) -> Problem {
    Problem::not_found(format!("there is no {}", uri.path()))
        .with_remedy("see /v1/openapi.json for what there is")
}

async fn no_such_method(method: Method, uri: Uri) -> Problem {
    Problem::new(ErrorCode::MethodNotAllowed, format!("{} cannot be asked with {method}", uri.path()))
        .with_remedy("see /v1/openapi.json for what there is")
}
