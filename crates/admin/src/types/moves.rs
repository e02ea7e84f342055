//! Moves: rows that change their shard while requests go on.

use polyshard_map::{MapName, ShardId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RangeView;

/// A move to be made, or only looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    /// What to move.
    pub range: RangeView,
    /// Where to.
    #[schema(value_type = String)]
    pub to: ShardId,
    /// How long the old shard keeps its rows after the switch, so that the move can be undone.
    #[serde(default)]
    pub keep_ms: u64,
    /// Only check whether it can be done, and say how much there is to carry.
    #[serde(default)]
    pub dry_run: bool,
    /// Whether requests are kept out meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meanwhile: Option<Meanwhile>,
}

/// What may be done with a range while it is moved offline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Meanwhile {
    /// It can be read.
    ReadOnly,
    /// Nothing.
    Offline,
}

/// Give keys a shard of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IsolateRequest {
    /// Which; a key of a hash map stands for its bucket.
    pub range: RangeView,
    /// The shard, which must be empty. Without it an empty one is taken, or an embedded one made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub to: Option<ShardId>,
    /// How long the old shard keeps its rows after the switch, so that the move can be undone.
    #[serde(default)]
    pub keep_ms: u64,
    /// Only check whether it can be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a move comes to: one part for each stretch that is on one shard now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Move)]
pub struct MoveAnswer {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// The parts; none if everything is there already.
    pub parts: Vec<MovePart>,
    /// What is done, step by step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
    /// The operation that does all of it, where there is more to do than to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procedure: Option<String>,
}

/// A part of a move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MovePart {
    /// What moves.
    pub range: RangeView,
    /// From where.
    #[schema(value_type = String)]
    pub from: ShardId,
    /// Where to.
    #[schema(value_type = String)]
    pub to: ShardId,
    /// What it holds.
    pub datasets: Vec<MoveLoad>,
    /// The operation that does it; none if it was only looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
}

/// What a move carries of one dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MoveLoad {
    /// The dataset.
    pub dataset: String,
    /// Its rows.
    pub rows: u64,
    /// About how many bytes they are.
    pub bytes: u64,
}

/// How far a move is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = MoveProgress)]
pub struct ProgressView {
    /// Rows that there were to copy when it began.
    pub total_rows: u64,
    /// Rows copied.
    pub copied_rows: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Rows compared.
    pub verified_rows: u64,
    /// Changed rows that are still to be carried.
    pub lag_rows: u64,
    /// Old rows removed.
    pub cleaned_rows: u64,
    /// How long requests for the range were held by the switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<u64>,
    /// An estimate of how long copying still takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ms: Option<u64>,
    /// For how many percent of the time it works, if it steps back for requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub works_percent: Option<u32>,
    /// Whether an operator has it wait.
    pub paused: bool,
}

/// What an operator wants of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MoveWish {
    /// Wait where it is.
    Pause,
    /// Go on, as fast as the configuration has it.
    Resume,
    /// Go on, and work for so many percent of the time, 1 to 100, while requests are served.
    Pace {
        /// How many percent.
        share_percent: u32,
    },
    /// Give up; possible until the range has left its shard.
    Cancel,
    /// Take it back with all that was written since; possible while the old rows are kept.
    Undo,
    /// Do not keep the old rows any longer.
    Clean,
}

/// A wish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WishRequest {
    /// What is wanted.
    pub wish: MoveWish,
}

/// How a map's load is spread, and what would even it out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Balance)]
pub struct BalanceAnswer {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// Rows on each shard.
    pub shards: Vec<ShardLoad>,
    /// The moves, in the order in which they are best made; none if it is even enough.
    pub moves: Vec<PlannedMove>,
    /// What an operator should know: what moving cannot help, what has no other place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Whether rows and bytes are estimates, because a table is too large to be counted for a plan. Moves count and
    /// compare exactly.
    #[serde(default)]
    pub estimated: bool,
    /// How load is evened out by itself, and what came of it when this process last looked; none if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_itself: Option<String>,
    /// The operation that makes the moves; none if they are only shown, or if there is none to make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procedure: Option<String>,
}

/// A shard's part of a map's rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardLoad {
    /// The shard.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// Rows now.
    pub rows: u64,
    /// Rows after the moves.
    pub rows_after: u64,
    /// About how many bytes they are now.
    #[serde(default)]
    pub bytes: u64,
    /// About how many after the moves.
    #[serde(default)]
    pub bytes_after: u64,
    /// Requests a second for this map, as all server processes have counted them.
    #[serde(default)]
    pub requests_per_s: f64,
    /// The same after the moves.
    #[serde(default)]
    pub requests_per_s_after: f64,
    /// Bytes that it may still take, of all maps, until only the headroom is left of its limit; null without a limit.
    #[serde(default)]
    pub room_bytes: Option<u64>,
}

/// A move that a plan suggests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedMove {
    /// What moves.
    pub range: RangeView,
    /// From where.
    #[schema(value_type = String)]
    pub from: ShardId,
    /// Where to.
    #[schema(value_type = String)]
    pub to: ShardId,
    /// Rows in it.
    pub rows: u64,
    /// About how many bytes they are.
    #[serde(default)]
    pub bytes: u64,
    /// About how many requests a second are for it.
    #[serde(default)]
    pub requests_per_s: f64,
    /// Why.
    #[serde(default)]
    pub why: String,
}

/// What is evened out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BalanceBy {
    /// Requests and bytes, one as much as the other.
    #[default]
    Load,
    /// Requests.
    Requests,
    /// Bytes.
    Bytes,
    /// Rows.
    Rows,
}

/// What a plan is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub struct BalanceRequest {
    /// Empty this shard, instead of evening out all.
    #[param(value_type = Option<String>)]
    pub drain: Option<ShardId>,
    /// How far a shard may be above the mean, in percent; 10 if nothing is said.
    pub slack: Option<u64>,
    /// What is evened out; the load if nothing is said.
    #[param(inline)]
    pub by: Option<BalanceBy>,
}

/// Rows on shards that do not own them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RowsCheck)]
pub struct RowsCheckAnswer {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// What was found.
    pub misplaced: Vec<MisplacedRows>,
    /// Shards that could not be asked, with the reason.
    pub unreachable: Vec<super::Unreachable>,
}

/// Rows of one dataset on a shard that does not own their keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MisplacedRows {
    /// The shard that has them.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// The dataset.
    pub dataset: String,
    /// How many.
    pub rows: u64,
}
