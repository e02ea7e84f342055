//! SQL tables: list, declare, compare the shards.

use axum::extract::State;
use axum::response::Response;

use super::Shared;
use crate::extract::Body;
use crate::problem::{ErrorBody, Problem};
use crate::reply;
use crate::types::{DeclareRequest, SchemaCheckAnswer, TableView, TablesAnswer};

/// All SQL tables, and how each is placed.
#[utoipa::path(get, path = "/v1/tables", tag = "sql", operation_id = "list_tables", responses(
    (status = 200, description = "All tables", body = TablesAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn list(State(operator): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(TablesAnswer { tables: operator.tables().await? }))
}

/// Declare how a table is placed; rows that are there already are put where they belong.
#[utoipa::path(post, path = "/v1/tables/declare", tag = "sql", operation_id = "declare_table",
    request_body = DeclareRequest,
    responses(
        (status = 200, description = "The table after it", body = TableView),
        (status = "default", description = "What went wrong", body = ErrorBody),
    ))]
pub(crate) async fn declare(
    State(operator): Shared,
    Body(declare): Body<DeclareRequest>,
) -> Result<Response, Problem> {
    Ok(reply::ok(operator.declare_table(declare).await?))
}

/// Compare the shards: schemas object by object, reference tables by checksum.
#[utoipa::path(get, path = "/v1/schema/check", tag = "sql", operation_id = "check_schema", responses(
    (status = 200, description = "What is not alike", body = SchemaCheckAnswer),
    (status = "default", description = "What went wrong", body = ErrorBody),
))]
pub(crate) async fn check(State(operator): Shared) -> Result<Response, Problem> {
    Ok(reply::ok(operator.check_schema().await?))
}
