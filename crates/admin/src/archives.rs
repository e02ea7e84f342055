//! Archives, the rules by which they are made, and new data that flows to other shards: the boundary, free of HTTP, and
//! its routes.

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
    ArchiveAnswer, ArchiveRuleView, ArchiveRulesAnswer, ArchiveView, ArchivesAnswer, ForgetArchive,
    NewArchive, NewArchiveRule, RestoreArchive, RunArchiveRule, SpillAnswer, SpillRequest,
};

/// Everything about archives that an operator can ask for.
pub trait Archives: Send + Sync + 'static {
    /// Begins to archive or drop a range, or looks at what that would be.
    fn archive(&self, map: MapName, archive: NewArchive) -> Answer<'_, ArchiveAnswer>;
    /// All archives.
    fn archives(&self) -> Answer<'_, Vec<ArchiveView>>;
    /// One of them.
    fn show_archive(&self, name: String) -> Answer<'_, ArchiveView>;
    /// Reads one back, and compares it with its checksums.
    fn verify_archive(&self, name: String) -> Answer<'_, ArchiveView>;
    /// Begins to put its rows back.
    fn restore_archive(&self, name: String, restore: RestoreArchive) -> Answer<'_, ArchiveAnswer>;
    /// Removes one.
    fn forget_archive(&self, name: String, forget: ForgetArchive) -> Answer<'_, ()>;
    /// All rules of archiving.
    fn archive_rules(&self) -> Answer<'_, Vec<ArchiveRuleView>>;
    /// Records a rule.
    fn add_archive_rule(&self, map: MapName, rule: NewArchiveRule) -> Answer<'_, ArchiveRuleView>;
    /// Carries a rule out now, or looks at what that would be.
    fn run_archive_rule(&self, id: String, run: RunArchiveRule) -> Answer<'_, ArchiveAnswer>;
    /// Forgets a rule.
    fn remove_archive_rule(&self, id: String) -> Answer<'_, ()>;
    /// Lets new data of a map flow to another shard.
    fn spill(&self, map: MapName, request: SpillRequest) -> Answer<'_, SpillAnswer>;
}

/// The routes, to be merged with those of the operator.
pub fn archive_router(archives: Arc<dyn Archives>, auth: Auth) -> Router {
    let routes = Router::new()
        .route("/v1/maps/{name}/archives", post(begin))
        .route("/v1/maps/{name}/archive-rules", post(add_rule))
        .route("/v1/maps/{name}/spill", post(spill))
        .route("/v1/archives", get(list))
        .route("/v1/archives/{name}", get(show).delete(forget))
        .route("/v1/archives/{name}/verify", post(verify))
        .route("/v1/archives/{name}/restore", post(restore))
        .route("/v1/archive-rules", get(rules))
        .route("/v1/archive-rules/{id}", delete(remove_rule))
        .route("/v1/archive-rules/{id}/run", post(run_rule));
    guarded(routes, auth).with_state(archives)
}

type Shared = State<Arc<dyn Archives>>;

/// Begin to archive a range, or to drop it with its rows.
#[utoipa::path(post, path = "/v1/maps/{name}/archives", tag = "archives", operation_id = "archive",
    params(("name" = String, Path, description = "The map")),
    request_body = NewArchive,
    responses(
        (status = 200, description = "What is archived, and the operation that does it", body = ArchiveAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn begin(
    State(archives): Shared,
    Named(name): Named<MapName>,
    Body(archive): Body<NewArchive>,
) -> Result<Response, Problem> {
    Ok(reply::ok(archives.archive(name, archive).await?))
}

/// All archives.
#[utoipa::path(get, path = "/v1/archives", tag = "archives", operation_id = "list_archives", responses(
    (status = 200, description = "By name", body = ArchivesAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn list(State(archives): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(ArchivesAnswer { archives: archives.archives().await? }))
}

/// One archive.
#[utoipa::path(get, path = "/v1/archives/{name}", tag = "archives", operation_id = "show_archive",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "What it holds", body = ArchiveView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn show(State(archives): Shared, Named(name): Named<String>) -> Result<Response, Problem> {
    Ok(reply::ok(archives.show_archive(name).await?))
}

/// Read an archive back, and compare it with its checksums.
#[utoipa::path(post, path = "/v1/archives/{name}/verify", tag = "archives", operation_id = "verify_archive",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "It is whole", body = ArchiveView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn verify(State(archives): Shared, Named(name): Named<String>) -> Result<Response, Problem> {
    Ok(reply::ok(archives.verify_archive(name).await?))
}

/// Begin to put the rows of an archive back.
#[utoipa::path(post, path = "/v1/archives/{name}/restore", tag = "archives", operation_id = "restore_archive",
    params(("name" = String, Path, description = "Its name")),
    request_body = RestoreArchive,
    responses(
        (status = 200, description = "The operation that does it", body = ArchiveAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn restore(
    State(archives): Shared,
    Named(name): Named<String>,
    Body(restore): Body<RestoreArchive>,
) -> Result<Response, Problem> {
    Ok(reply::ok(archives.restore_archive(name, restore).await?))
}

/// Remove an archive. If its rows are nowhere else, they are lost, and nothing is mapped there any more.
#[utoipa::path(delete, path = "/v1/archives/{name}", tag = "archives", operation_id = "forget_archive",
    params(("name" = String, Path, description = "Its name"), ForgetArchive),
    responses(
        (status = 204, description = "It is gone"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn forget(
    State(archives): Shared,
    Named(name): Named<String>,
    Params(forget): Params<ForgetArchive>,
) -> Result<Response, Problem> {
    archives.forget_archive(name, forget).await?;
    Ok(reply::nothing())
}

/// All rules by which old ranges are archived, dropped or moved.
#[utoipa::path(get, path = "/v1/archive-rules", tag = "archives", operation_id = "list_archive_rules", responses(
    (status = 200, description = "By map", body = ArchiveRulesAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn rules(State(archives): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(ArchiveRulesAnswer { rules: archives.archive_rules().await? }))
}

/// Record a rule by which old ranges are archived, dropped or moved.
#[utoipa::path(post, path = "/v1/maps/{name}/archive-rules", tag = "archives", operation_id = "add_archive_rule",
    params(("name" = String, Path, description = "The map")),
    request_body = NewArchiveRule,
    responses(
        (status = 200, description = "The rule, and what it would be carried out on now", body = ArchiveRuleView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn add_rule(
    State(archives): Shared,
    Named(name): Named<MapName>,
    Body(rule): Body<NewArchiveRule>,
) -> Result<Response, Problem> {
    Ok(reply::ok(archives.add_archive_rule(name, rule).await?))
}

/// Carry out a rule of archiving now, whether it is due or not; or look at what it would do.
#[utoipa::path(post, path = "/v1/archive-rules/{id}/run", tag = "archives", operation_id = "run_archive_rule",
    params(("id" = String, Path, description = "The rule, or the beginning of its id")),
    request_body = RunArchiveRule,
    responses(
        (status = 200, description = "What is taken and why, and the operation that does it", body = ArchiveAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn run_rule(
    State(archives): Shared,
    Named(id): Named<String>,
    Body(run): Body<RunArchiveRule>,
) -> Result<Response, Problem> {
    Ok(reply::ok(archives.run_archive_rule(id, run).await?))
}

/// Forget a rule of archiving.
#[utoipa::path(delete, path = "/v1/archive-rules/{id}", tag = "archives", operation_id = "remove_archive_rule",
    params(("id" = String, Path, description = "The rule")),
    responses(
        (status = 204, description = "It is gone"),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn remove_rule(
    State(archives): Shared,
    Named(id): Named<String>,
) -> Result<Response, Problem> {
    archives.remove_archive_rule(id).await?;
    Ok(reply::nothing())
}

/// Let new data of a range map flow to another shard, above the highest key in use; no data moves.
#[utoipa::path(post, path = "/v1/maps/{name}/spill", tag = "maps", operation_id = "spill",
    params(("name" = String, Path, description = "The map")),
    request_body = SpillRequest,
    responses(
        (status = 200, description = "The new range", body = SpillAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn spill(
    State(archives): Shared,
    Named(name): Named<MapName>,
    Body(request): Body<SpillRequest>,
) -> Result<Response, Problem> {
    Ok(reply::ok(archives.spill(name, request).await?))
}
