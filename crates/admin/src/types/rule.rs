//! Rules: what placement must heed.

use polyshard_map::MapName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RangeView;

/// One rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Rule)]
pub struct RuleView {
    /// Its id.
    pub id: String,
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// What it says, in words.
    pub says: String,
    /// The rule itself.
    pub rule: NewRule,
}

/// A rule to record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum NewRule {
    /// Keys stay on shards of a region.
    Region {
        /// Which keys; a key of a hash map stands for its bucket.
        range: RangeView,
        /// The region.
        region: String,
    },
    /// Keys stay on shards of a tier.
    Tier {
        /// Which keys.
        range: RangeView,
        /// The tier.
        tier: String,
    },
    /// No two of these are on one shard.
    Apart {
        /// What is kept apart.
        ranges: Vec<RangeView>,
    },
    /// Keys have their shard to themselves.
    Alone {
        /// Which keys.
        range: RangeView,
    },
}

/// All rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Rules)]
pub struct RulesAnswer {
    /// By map.
    pub rules: Vec<RuleView>,
}
