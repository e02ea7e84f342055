//! Quotas: how many requests a second a shardlet, every shardlet of a map, or a dataset may have.

use std::fmt;

use polyshard_map::MapName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::KeyText;

/// Whose requests a quota counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum QuotaTarget {
    /// One key of a map, in all stores.
    Key {
        /// The map.
        #[schema(value_type = String)]
        map: MapName,
        /// The key.
        key: KeyText,
    },
    /// Every key of a map that has no quota of its own, each by itself.
    Each {
        /// The map.
        #[schema(value_type = String)]
        map: MapName,
    },
    /// A table, queue or container.
    Dataset {
        /// `table:orders`, `queue:jobs`; of another account than the first configured one, `table:account/orders`.
        dataset: String,
    },
}

impl fmt::Display for QuotaTarget {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuotaTarget::Key { map, key } => write!(to, "key {key} of map {map}"),
            QuotaTarget::Each { map } => write!(to, "each key of map {map}"),
            QuotaTarget::Dataset { dataset } => to.write_str(dataset),
        }
    }
}

/// A quota, as it is set and shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Quota)]
#[serde(deny_unknown_fields)]
pub struct QuotaView {
    /// Whose.
    pub of: QuotaTarget,
    /// Requests a second, of all server processes together.
    pub requests: u64,
}

/// A quota to forget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveQuota {
    /// Whose.
    pub of: QuotaTarget,
}

/// All quotas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Quotas)]
pub struct QuotasAnswer {
    /// Datasets first, then by map and key.
    pub quotas: Vec<QuotaView>,
}
