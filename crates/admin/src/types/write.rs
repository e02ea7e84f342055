//! Writes on several shards that are completed whatever happens.

use polyshard_map::ShardId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A shard that is still to get its part of a write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = WaitingPart)]
pub struct WaitingView {
    /// The shard.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// Why it could not be done so far, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A write on several shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = SeveralWrite)]
pub struct WriteView {
    /// Its id.
    pub id: String,
    /// The beginning of its statement.
    pub about: String,
    /// Whether every shard has it.
    pub completed: bool,
    /// When it was decided, in milliseconds since 1970.
    pub decided_ms: i64,
    /// When the last shard had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_ms: Option<i64>,
    /// The shards that are still to get it.
    pub waiting: Vec<WaitingView>,
    /// The shards on which it was given up.
    #[schema(value_type = Vec<String>)]
    pub skipped: Vec<ShardId>,
}

/// Writes on several shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = SeveralWrites)]
pub struct WritesAnswer {
    /// Those that are still to be completed first, then the newest.
    pub writes: Vec<WriteView>,
}

/// A part of a write to give up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SkipWrite {
    /// The shard that is not to get it any more.
    #[schema(value_type = String)]
    pub shard: ShardId,
}
