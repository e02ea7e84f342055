//! What the checker finds and puts right: rows in the wrong place, tables that differ, links that name nothing.

use polyshard_map::{MapName, ShardId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Unreachable;

/// What is to be put right.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RepairRowsRequest {
    /// The map alone; all maps, and reference tables, if none is named.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub map: Option<MapName>,
    /// Only look, and count.
    #[serde(default)]
    pub dry_run: bool,
    /// Where it cannot be decided, the shard that owns the key is right: other versions of its rows are removed.
    #[serde(default)]
    pub owner_wins: bool,
    /// The shard whose reference tables are right; what most shards have, if none is named.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub like: Option<ShardId>,
    /// Rows of reference tables that the other shards lack are removed. Otherwise such a table stays as it is: somebody
    /// may have been told that they are there.
    #[serde(default)]
    pub confirm: bool,
    /// What becomes of rows from before their range went elsewhere, where the owner has none; they stay, hidden, if
    /// nothing is said.
    #[serde(default)]
    pub old_rows: Option<OldRowsWish>,
}

/// What becomes of rows from before their range went elsewhere, if the owner has no row of their key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OldRows)]
pub enum OldRowsWish {
    /// They are carried to the owner.
    Carry,
    /// They are removed.
    Remove,
}

/// What would be put right, and the operation that does it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RepairRows)]
pub struct RepairRowsAnswer {
    /// Rows on shards that do not own them.
    pub rows: Vec<RepairedRows>,
    /// Reference tables that differ.
    pub tables: Vec<RepairedTable>,
    /// Shards that could not be asked, with the reason.
    pub unreachable: Vec<Unreachable>,
    /// The operation that does it; none for a look, or if there is nothing to do.
    pub procedure: Option<String>,
}

/// What becomes of a dataset's rows on a shard that does not own them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RepairedRows {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// The shard that has them.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// The dataset.
    pub dataset: String,
    /// Carried to the owner, which lacks them.
    pub moved: u64,
    /// Removed: the owner has the same.
    pub removed: u64,
    /// Removed because the owner is right.
    pub discarded: u64,
    /// Left: the owner has another row of that key.
    pub differs: u64,
    /// Left: they are old, and the owner has no row of that key any more.
    pub old: u64,
    /// Left: no shard owns their key.
    pub homeless: u64,
    /// Left: the owner refuses them, or rows that stay refer to them.
    pub stuck: u64,
    /// Left to an operation under way.
    pub moving: u64,
    /// The keys of some of the old rows that are left.
    #[serde(default)]
    pub examples: Vec<String>,
}

/// What becomes of a reference table that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RepairedTable {
    /// The shard.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// The table.
    pub table: String,
    /// The shard that it is made like; none if nobody can say which is right.
    #[schema(value_type = Option<String>)]
    pub like: Option<ShardId>,
    /// Rows that are missing there.
    pub inserted: u64,
    /// Rows that are otherwise there.
    pub updated: u64,
    /// Rows that are there and should not be.
    pub deleted: u64,
    /// Why it stays as it is.
    pub refused: Option<String>,
}

/// A soft reference to record: columns of one table that name rows of another, whose shard may be another too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewLink {
    /// The table that refers, `schema.table` or a name in `public`.
    pub table: String,
    /// Its columns.
    pub columns: Vec<String>,
    /// The table that is referred to.
    pub to: String,
    /// Its columns, in the same order.
    pub to_columns: Vec<String>,
}

/// A soft reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Link)]
pub struct LinkView {
    /// Its id.
    pub id: String,
    /// What it says, in words.
    pub says: String,
}

/// All soft references.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Links)]
pub struct LinksAnswer {
    /// In the order of their ids.
    pub links: Vec<LinkView>,
}

/// What is wrong with soft references.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = LinksCheck)]
pub struct LinksCheckAnswer {
    /// Links that were looked into.
    pub links: u64,
    /// Those with rows that name nothing.
    pub broken: Vec<BrokenLink>,
    /// Those that could not be looked into, with the reason.
    pub unchecked: Vec<UncheckedLink>,
}

/// A soft reference with rows that name nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BrokenLink {
    /// Its id.
    pub id: String,
    /// What it says, in words.
    pub says: String,
    /// Rows that name nothing.
    pub rows: u64,
    /// Different keys that they have.
    pub keys: u64,
    /// Some of those keys.
    pub examples: Vec<String>,
}

/// A soft reference that could not be looked into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UncheckedLink {
    /// Its id.
    pub id: String,
    /// Why.
    pub reason: String,
}

/// What the checker found when it last ran by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = LastCheck)]
pub struct LastCheckAnswer {
    /// When it began, in milliseconds since 1970; null if it has not run.
    pub at_ms: Option<i64>,
    /// Rows on shards that do not own them, by shard.
    #[schema(value_type = std::collections::BTreeMap<String, u64>)]
    pub misplaced: std::collections::BTreeMap<ShardId, u64>,
    /// Differences of schemas and reference tables.
    pub differences: u64,
    /// Rows that name nothing.
    pub broken: u64,
    /// What could not be looked into, with the reason.
    pub unchecked: Vec<String>,
}
