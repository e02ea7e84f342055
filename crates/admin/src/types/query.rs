//! SQL through the admin API, for the console.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Rows shown of one result: a screen or ten; who wants more uses an SQL client.
pub const QUERY_ROWS_MAX: usize = 1_000;

/// One or several statements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueryRequest {
    /// The statements.
    pub sql: String,
}

/// What they answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = QueryAnswer)]
pub struct QueryAnswer {
    /// How long they took, in microseconds.
    pub took_us: u64,
    /// Which shards are asked, and how, as EXPLAIN tells it; empty where it tells nothing.
    pub route: Vec<String>,
    /// One for each statement.
    pub results: Vec<QueryResult>,
    /// What was said beside the answers, such as which shard a plan is of or which was left out.
    #[serde(default)]
    pub notices: Vec<String>,
}

/// What one statement answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueryResult {
    /// The names of the columns; empty if it has no rows to give.
    pub columns: Vec<String>,
    /// The rows, each value in its text form; null is NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// What was done: `3 rows`.
    pub tag: String,
    /// Whether there were more rows than are shown.
    pub cut: bool,
}
