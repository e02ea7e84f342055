//! Taking backups and restoring from them: the boundary, free of HTTP, and its routes.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};

use crate::auth::Auth;
use crate::extract::{Body, Named};
use crate::handlers::guarded;
use crate::operator::Answer;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{BackupView, BackupsAnswer, NewBackup, NewRestore};

/// Everything about backups that an operator can ask a running server for.
pub trait Backups: Send + Sync + 'static {
    /// Begins to take one.
    fn begin(&self, backup: NewBackup) -> Answer<'_, BackupView>;
    /// Begins to restore a shardlet.
    fn restore(&self, restore: NewRestore) -> Answer<'_, BackupView>;
    /// Those of the cluster, the latest first, and the schedules.
    fn list(&self) -> Answer<'_, BackupsAnswer>;
    /// One of them.
    fn show(&self, id: u64) -> Answer<'_, BackupView>;
    /// Asks for one to be given up.
    fn cancel(&self, id: u64) -> Answer<'_, BackupView>;
}

/// The routes of backups, to be merged with those of the operator.
pub fn backup_router(backups: Arc<dyn Backups>, auth: Auth) -> Router {
    let routes = Router::new()
        .route("/v1/backups", get(list).post(begin))
        .route("/v1/backups/{id}", get(show))
        .route("/v1/backups/{id}/cancel", post(cancel))
        .route("/v1/restores", post(restore));
    guarded(routes, auth).with_state(backups)
}

type Shared = State<Arc<dyn Backups>>;

/// Begin to take a backup of everything at one moment, of some shards, or of one shardlet.
#[utoipa::path(post, path = "/v1/backups", tag = "backups", operation_id = "begin_backup",
    request_body = NewBackup,
    responses(
        (status = 202, description = "It is being taken", body = BackupView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn begin(
    State(backups): Shared,
    Body(backup): Body<NewBackup>,
) -> Result<Response, Problem> {
    let begun = backups.begin(backup).await?;
    tracing::info!(backup = begun.id, to = begun.to, "a backup was begun");
    Ok((StatusCode::ACCEPTED, Json(begun)).into_response())
}

/// Begin to restore one shardlet from a backup, beside the running rest.
#[utoipa::path(post, path = "/v1/restores", tag = "backups", operation_id = "begin_restore",
    request_body = NewRestore,
    responses(
        (status = 202, description = "It is being restored", body = BackupView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn restore(
    State(backups): Shared,
    Body(restore): Body<NewRestore>,
) -> Result<Response, Problem> {
    let begun = backups.restore(restore).await?;
    tracing::info!(restore = begun.id, from = begun.to, "a restoration was begun");
    Ok((StatusCode::ACCEPTED, Json(begun)).into_response())
}

/// The backups and restorations of the cluster, and the schedules.
#[utoipa::path(get, path = "/v1/backups", tag = "backups", operation_id = "list_backups", responses(
    (status = 200, description = "The latest first", body = BackupsAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn list(State(backups): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(backups.list().await?))
}

/// One backup or restoration.
#[utoipa::path(get, path = "/v1/backups/{id}", tag = "backups", operation_id = "show_backup",
    params(("id" = u64, Path, description = "Its number")),
    responses(
        (status = 200, description = "How far it is", body = BackupView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn show(State(backups): Shared, Named(id): Named<u64>) -> Result<Response, Problem> {
    Ok(reply::ok(backups.show(id).await?))
}

/// Ask for a backup or restoration to be given up.
#[utoipa::path(post, path = "/v1/backups/{id}/cancel", tag = "backups", operation_id = "cancel_backup",
    params(("id" = u64, Path, description = "Its number")),
    responses(
        (status = 200, description = "It was asked for; it fails soon", body = BackupView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn cancel(State(backups): Shared, Named(id): Named<u64>) -> Result<Response, Problem> {
    Ok(reply::ok(backups.cancel(id).await?))
}
