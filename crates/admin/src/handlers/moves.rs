//! Moves: begin, look at first, even out; what is wanted of one under way; rows that are where they should not be.

use axum::extract::State;
use axum::response::Response;
use polyshard_map::MapName;

use super::Shared;
use crate::extract::{Body, IfMatch, Named, Params};
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{
    BalanceAnswer, BalanceRequest, MoveAnswer, MoveRequest, OperationView, RowsCheckAnswer, WishRequest,
};

/// Move a part of a map to another shard while requests go on, or look at what that would be.
#[utoipa::path(post, path = "/v1/maps/{name}/moves", tag = "moves", operation_id = "move_range",
    params(
        ("name" = String, Path, description = "The map"),
        ("If-Match" = Option<String>, Header, description = "The version the move is based on, in quotes"),
    ),
    request_body = MoveRequest,
    responses(
        (status = 200, description = "What moves, each part by an operation of its own", body = MoveAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn begin(
    State(operator): Shared,
    Named(name): Named<MapName>,
    IfMatch(basis): IfMatch,
    Body(request): Body<MoveRequest>,
) -> Result<Response, Problem> {
    Ok(reply::ok(operator.move_range(name, request, basis).await?))
}

/// How a map's rows are spread, and which moves would even them out or empty a shard.
#[utoipa::path(get, path = "/v1/maps/{name}/balance", tag = "moves", operation_id = "plan_balance",
    params(("name" = String, Path, description = "The map"), BalanceRequest),
    responses(
        (status = 200, description = "The plan", body = BalanceAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn balance(
    State(operator): Shared,
    Named(name): Named<MapName>,
    Params(request): Params<BalanceRequest>,
) -> Result<Response, Problem> {
    Ok(reply::ok(operator.balance(name, request).await?))
}

/// Look for rows on shards that do not own them.
#[utoipa::path(get, path = "/v1/maps/{name}/rows", tag = "moves", operation_id = "check_rows",
    params(("name" = String, Path, description = "The map")),
    responses(
        (status = 200, description = "What was found", body = RowsCheckAnswer),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn rows(State(operator): Shared, Named(name): Named<MapName>) -> Result<Response, Problem> {
    Ok(reply::ok(operator.check_rows(name).await?))
}

/// Pause, resume, cancel, undo or clean up a move.
#[utoipa::path(post, path = "/v1/operations/{id}/wish", tag = "moves", operation_id = "wish_for_move",
    params(("id" = String, Path, description = "The operation")),
    request_body = WishRequest,
    responses(
        (status = 200, description = "The operation; of undo the one that undoes it", body = OperationView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn wish(
    State(operator): Shared,
    Named(id): Named<String>,
    Body(request): Body<WishRequest>,
) -> Result<Response, Problem> {
    Ok(reply::ok(operator.wish(id, request.wish).await?))
}
