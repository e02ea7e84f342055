//! A map looked at from afar, or from near: a window onto its entries in a bounded number of pieces.

use polyshard_map::{MapName, ShardId, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::range::RangeView;
use super::{EntryView, Located, StateSchema};

/// Most pieces of one window: about one for every pixel of a screen.
pub const PIECES_MAX: u32 = 4_000;

/// Pieces when the request names no number.
pub const PIECES_DEFAULT: u32 = 400;

/// Which part of a map, and in how many pieces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct WindowRequest {
    /// The first position: a bucket of a hash map, of other maps the number of an entry in order. 0 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// How many positions; all that follow when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// At most so many pieces, up to 4000; 400 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pieces: Option<u32>,
}

/// What a position of a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A bucket of a hash map.
    Bucket,
    /// An entry, in the order of keys.
    Entry,
}

/// A part of a map in pieces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Window)]
pub struct WindowAnswer {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// Its version.
    pub version: u64,
    /// Its epoch.
    pub epoch: u64,
    /// What a position is.
    pub unit: Unit,
    /// Positions of the whole map.
    pub total: u64,
    /// The first position shown.
    pub first: u64,
    /// How many positions are shown.
    pub count: u64,
    /// The keys of the first entry shown.
    pub from: Option<RangeView>,
    /// The keys of the last entry shown.
    pub to: Option<RangeView>,
    /// The pieces in order. Between them nothing is mapped.
    pub pieces: Vec<Piece>,
}

/// One piece: an entry, or many beside each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Piece {
    /// Its first position.
    pub first: u64,
    /// How many positions.
    pub count: u64,
    /// How many entries it stands for.
    pub entries: u64,
    /// The shards that have a part, the largest first, at most four.
    pub shards: Vec<Part>,
    /// The least that may be done with one of its entries.
    #[schema(value_type = StateSchema)]
    pub state: State,
    /// The entry itself, if it is just one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryView>,
}

/// One shard's part of a piece.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Part {
    /// The shard.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// Positions of the piece that it has.
    pub count: u64,
}

/// One shardlet: where it is, why, and what belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Shardlet)]
pub struct ShardletAnswer {
    /// Where it is.
    pub located: Located,
    /// The position of its entry in a window.
    pub position: u64,
    /// The bucket that its key is hashed to, on a map that hashes.
    pub bucket: Option<u64>,
    /// Everything that its map places.
    pub datasets: Vec<ShardletData>,
    /// Why the rows could not be counted, if they could not.
    pub uncounted: Option<String>,
}

/// What one dataset holds of a shardlet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardletData {
    /// The dataset: `table:account/orders`.
    pub dataset: String,
    /// How many rows, counted up to 100000; null if it has none there yet or could not be asked.
    pub rows: Option<u64>,
    /// Whether the rows are of this key alone. Where only the bucket is known, they are of all keys in it.
    pub of_key: bool,
}
