//! SQL tables: how each is placed, and whether the shards are alike.

use polyshard_map::{MapName, ShardId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Unreachable;

/// How the rows of a table are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TablePlacement {
    /// Each row on the shard that the map says for its key.
    Sharded,
    /// All rows on every shard.
    Reference,
    /// All rows on one shard.
    Local,
}

/// One SQL table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Table)]
pub struct TableView {
    /// Its schema and name: `public.orders`.
    pub table: String,
    /// How it is placed.
    pub placement: TablePlacement,
    /// Whether somebody said so: a table that nobody has declared is kept as a reference table.
    pub declared: bool,
    /// The map of a sharded table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub map: Option<MapName>,
    /// Its key column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The shard of a local table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub shard: Option<ShardId>,
}

/// All SQL tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Tables)]
pub struct TablesAnswer {
    /// Sorted by name.
    pub tables: Vec<TableView>,
}

/// Declare how a table is placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclareRequest {
    /// `orders`, or `schema.orders`.
    pub table: String,
    /// How.
    pub placement: TablePlacement,
    /// The map, for a sharded table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub map: Option<MapName>,
    /// The key column, for a sharded table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The shard, for a local table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub shard: Option<ShardId>,
}

/// Something that a shard has otherwise than the first one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SchemaDifference {
    /// The shard.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// The object: `table public.orders column note`, `rows of country`.
    pub object: String,
    /// What the shard has; missing if it lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// What the first shard has; missing if it lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

/// Whether the shards are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = SchemaCheck)]
pub struct SchemaCheckAnswer {
    /// The entry of the journal that they were compared at.
    pub position: u64,
    /// The shard that the others were compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub like: Option<ShardId>,
    /// How many shards were compared.
    pub shards: usize,
    /// How many objects of the schema and reference tables.
    pub objects: usize,
    /// What is not alike.
    pub differences: Vec<SchemaDifference>,
    /// Shards that could not be compared.
    pub unreachable: Vec<Unreachable>,
}
