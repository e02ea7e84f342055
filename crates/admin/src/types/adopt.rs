//! Adoption: an existing database becomes a shard, with its rows.

use polyshard_map::{MapName, ShardId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{MapKind, TablePlacement};

/// A database to take in, in place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptRequest {
    /// The name that it gets as a shard.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// `postgres://user@host:port/database`, without a password.
    pub url: String,
    /// The server's environment variable that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_env: Option<String>,
    /// The file on the server that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// The region it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The tier it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The map that is made for its rows.
    #[schema(value_type = String)]
    pub map: MapName,
    /// What kind of map: `range`, `hash` or `list`.
    pub kind: MapKind,
    /// The type of its keys.
    pub key: String,
    /// The key columns: `tenant_id` for every table that has one, `tenants=id` for a single table.
    pub key_columns: Vec<String>,
    /// Only look, and say what would be done and what must change first.
    #[serde(default)]
    pub dry_run: bool,
}

/// What taking a database in comes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Adopt)]
pub struct AdoptAnswer {
    /// Its tables, and how each is placed.
    pub tables: Vec<AdoptedTable>,
    /// What must be changed there first, each with what to do; nothing is begun while there is any.
    pub must_change: Vec<String>,
    /// What is done, step by step.
    pub steps: Vec<String>,
    /// The operation that does it; none if it was only looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procedure: Option<String>,
}

/// A table of a database that is taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdoptedTable {
    /// Its schema and name.
    pub table: String,
    /// How it is placed.
    pub placement: TablePlacement,
    /// Its key column, if it is sharded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its rows.
    pub rows: u64,
}
