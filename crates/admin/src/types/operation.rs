//! Operations: the journalled changes of catalog and shards.

use polyshard_map::{MapName, ShardId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ProgressView, RangeView};

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// Not finished; the resolver finishes it or rolls it back by itself.
    Running,
    /// Finished.
    Done,
    /// Undone; nothing of it remains.
    RolledBack,
}

impl std::fmt::Display for OperationState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OperationState::Running => "running",
            OperationState::Done => "done",
            OperationState::RolledBack => "rolled_back",
        })
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Operation)]
pub struct OperationView {
    /// Its id.
    pub id: String,
    /// What it does: `create_map`, `split`, `add_shard` …
    pub kind: String,
    /// The map it changes, if one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub map: Option<MapName>,
    /// How far it is.
    pub state: OperationState,
    /// The last step that was recorded.
    pub step: String,
    /// What it is about: the ranges that it moves or changes, the first twenty of them; none if it is a whole map.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<RangeView>,
    /// The shard that rows leave, if it moves rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub from: Option<ShardId>,
    /// The shard that they go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub to: Option<ShardId>,
    /// How far the move is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressView>,
    /// Whether somebody has asked it to wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// When it was asked for, in milliseconds since 1970.
    pub started_ms: i64,
    /// Why it waits or was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The unfinished operations and the latest finished ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Operations)]
pub struct OperationsAnswer {
    /// The latest first.
    pub operations: Vec<OperationView>,
}
