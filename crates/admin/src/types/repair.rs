//! Comparing the catalog with the shards' local maps, and rebuilding either from the other.

use polyshard_map::{GroupName, MapName, ShardId, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::StateSchema;
use super::range::RangeView;

/// What the catalog and the shards say differently about one map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Check)]
pub struct CheckAnswer {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// Its version in the catalog.
    pub version: u64,
    /// Empty when all agree.
    pub differences: Vec<Difference>,
    /// Shards that could not be asked; what they would say is not in `differences`.
    pub unreachable: Vec<Unreachable>,
}

/// A shard that could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unreachable {
    /// The shard.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// Why not.
    pub reason: String,
}

/// One range the catalog and one shard's local map disagree about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// The shard.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// The keys.
    pub range: RangeView,
    /// In what way they disagree.
    pub found: Found,
    /// What the catalog says about the range on this shard; null when it gives it to another one or to none.
    pub catalog: Option<Side>,
    /// What the shard's local map says; null when it does not have the range.
    pub local: Option<Side>,
}

/// What one side says about a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Side {
    /// Whether it may be read and written.
    #[schema(value_type = StateSchema)]
    pub state: State,
    /// The entry's epoch.
    pub epoch: u64,
    /// The group, for grouped list entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub group: Option<GroupName>,
}

/// In what way catalog and shard disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// The catalog says the shard has the range; the shard does not.
    CatalogOnly,
    /// The shard says it has the range; the catalog does not.
    ShardOnly,
    /// Both say so, with another state, epoch or group.
    Differs,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Found::CatalogOnly => "catalog_only",
            Found::ShardOnly => "shard_only",
            Found::Differs => "differs",
        })
    }
}

/// Which side is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepairSource {
    /// Write the shards' local maps from the catalog.
    Catalog,
    /// Write the catalog from the shards' local maps; the highest epoch wins.
    Shards,
}

/// Whether to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepairMode {
    /// Only show what would be changed.
    Plan,
    /// Change it.
    Apply,
}

/// Rebuild one side from the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RepairRequest {
    /// The side that is believed.
    pub from: RepairSource,
    /// Only this shard; all when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub shard: Option<ShardId>,
    /// Whether to act.
    pub mode: RepairMode,
}

/// What a repair changed or would change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Repair)]
pub struct RepairAnswer {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// As asked.
    pub mode: RepairMode,
    /// The differences that were, or would be, settled.
    pub differences: Vec<Difference>,
    /// The map's version afterwards.
    pub version: u64,
}
