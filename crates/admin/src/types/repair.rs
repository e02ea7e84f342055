//! Comparing the catalog with the shards' local maps, and rebuilding either from the other.

use polyshard_map::{MapName, ShardId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
    #[schema(value_type = Vec<String>)]
    pub unreachable: Vec<ShardId>,
}

/// One range the catalog and a shard disagree about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// The keys.
    pub range: RangeView,
    /// In what way they disagree.
    pub kind: DifferenceKind,
    /// What the catalog says; null when it knows no owner.
    pub catalog: Option<Owner>,
    /// What the shards say; more than one when two claim the range.
    pub shards: Vec<Owner>,
}

/// Who owns a range, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Owner {
    /// The shard.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// The entry's epoch.
    pub epoch: u64,
}

/// In what way catalog and shards disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// The catalog names an owner whose local map does not have the range.
    MissingOnShard,
    /// A shard's local map has a range the catalog does not give it.
    MissingInCatalog,
    /// Both know the range on that shard, with different epoch, state or bounds.
    Differs,
    /// Two shards claim the range; the highest epoch wins.
    TwoOwners,
}

impl std::fmt::Display for DifferenceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DifferenceKind::MissingOnShard => "missing_on_shard",
            DifferenceKind::MissingInCatalog => "missing_in_catalog",
            DifferenceKind::Differs => "differs",
            DifferenceKind::TwoOwners => "two_owners",
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
    /// The operation that did it; null when nothing was done.
    pub operation: Option<String>,
    /// The map's version afterwards.
    pub version: u64,
}
