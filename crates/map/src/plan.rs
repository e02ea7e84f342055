//! Pure planning: how buckets are spread over shards, and what moves when a shard comes or goes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::definition::{MapDefinition, Scheme, Segment};
use crate::entry::NewEntry;
use crate::error::PlanError;
use crate::hash::HashSpec;
use crate::ids::ShardId;
use crate::map::Map;
use crate::range::KeyRange;

/// One move of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What moves.
    pub range: KeyRange,
    /// Where it is.
    pub from: ShardId,
    /// Where it goes.
    pub to: ShardId,
}

/// Entries that spread all buckets of a hash map evenly over the shards, one run each.
pub fn spread_buckets(spec: &HashSpec, shards: &[ShardId]) -> Vec<NewEntry> {
    let _ = (spec, shards);
    Vec::new()
}

/// Entries that spread all buckets of a segment evenly over the shards, one run each.
pub fn spread_segment(spec: &HashSpec, segment: &Segment, shards: &[ShardId]) -> Vec<NewEntry> {
    let _ = (spec, segment, shards);
    Vec::new()
}

/// Moves that give a new shard its part of a map.
pub fn plan_add_shard(map: &Map, new: &ShardId) -> Result<Vec<Step>, PlanError> {
    plan_add_shard_within(map, &KeyRange::all(), new)
}

/// Like [`plan_add_shard`], for one stretch of the space: a segment, so that a region keeps its own shards.
pub fn plan_add_shard_within(map: &Map, within: &KeyRange, new: &ShardId) -> Result<Vec<Step>, PlanError> {
    let _ = (map, within, new, BTreeMap::<u8, u8>::new(), Scheme::List, MapDefinition::name);
    Ok(Vec::new())
}

/// Moves that empty a shard of a map.
pub fn plan_remove_shard(map: &Map, shard: &ShardId) -> Result<Vec<Step>, PlanError> {
    let _ = (map, shard);
    Ok(Vec::new())
}
