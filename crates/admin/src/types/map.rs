//! Maps: what they are, what they hold, where a key is.

use std::collections::BTreeMap;

use polyshard_map::{GroupName, MapName, ShardId, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::StateSchema;
use super::range::{KeyText, RangeView};

/// Entries in a page when the request names no limit: a screenful for people, a few kilobytes for programs.
pub const PAGE_ENTRIES_DEFAULT: u32 = 100;

/// Most entries in a page: about a megabyte of JSON, so that an answer never holds a whole large map.
pub const PAGE_ENTRIES_MAX: u32 = 10_000;

/// How keys are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MapKind {
    /// Single keys, each listed.
    List,
    /// Half-open ranges of keys.
    Range,
    /// Ranges of buckets that the key is hashed to.
    Hash,
    /// Ranges of the leading key parts, and buckets within each.
    RangeHash,
    /// Listed leading key parts, and buckets within each.
    ListHash,
}

impl MapKind {
    /// Whether keys are placed by bucket.
    pub fn hashes(self) -> bool {
        matches!(self, MapKind::Hash | MapKind::RangeHash | MapKind::ListHash)
    }

    /// Whether leading key parts choose a segment.
    pub fn is_composite(self) -> bool {
        matches!(self, MapKind::RangeHash | MapKind::ListHash)
    }
}

impl std::fmt::Display for MapKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MapKind::List => "list",
            MapKind::Range => "range",
            MapKind::Hash => "hash",
            MapKind::RangeHash => "range_hash",
            MapKind::ListHash => "list_hash",
        })
    }
}

/// The pinned hash of a hash map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Hash)]
pub struct HashView {
    /// The function, pinned by name for the life of the map.
    pub function: String,
    /// Its seed.
    pub seed: i64,
    /// How many buckets.
    pub buckets: u32,
}

/// One map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Map)]
pub struct MapView {
    /// Its name.
    #[schema(value_type = String)]
    pub name: MapName,
    /// How keys are placed.
    pub kind: MapKind,
    /// The key type: `bigint`, `uuid`, `(text, bigint)` …
    pub key: String,
    /// The hash, for maps that have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<HashView>,
    /// Grows with every change of any map.
    pub epoch: u64,
    /// Grows with every change of this map; the ETag, and what If-Match compares.
    pub version: u64,
    /// How many entries.
    pub entries: u64,
    /// How many entries on each shard.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub by_shard: BTreeMap<ShardId, u64>,
}

/// All maps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Maps)]
pub struct MapsAnswer {
    /// Sorted by name.
    pub maps: Vec<MapView>,
}

/// A map to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMap {
    /// Its name.
    #[schema(value_type = String)]
    pub name: MapName,
    /// How keys are placed.
    pub kind: MapKind,
    /// The key type.
    #[schema(example = "bigint")]
    pub key: String,
    /// Buckets of a map that hashes; 1024 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<u32>,
    /// Seed of a map that hashes; 0 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// How many leading key parts choose the segment of a composite map; 1 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<u32>,
    /// The shards a hash map is spread over; all shards when not given. A list or range map starts empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub shards: Option<Vec<ShardId>>,
}

/// Which page of a map's entries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct PageRequest {
    /// The `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// How many entries, at most 10000; 100 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// One page of a map's entries, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Entries)]
pub struct EntriesAnswer {
    /// The entries.
    pub entries: Vec<EntryView>,
    /// Give it as `after` to get the next page; null on the last one.
    pub next: Option<String>,
    /// The map's version that was read.
    pub version: u64,
}

/// One entry of a map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Entry)]
pub struct EntryView {
    /// The keys.
    pub range: RangeView,
    /// Their owner.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// Whether they may be read and written.
    #[schema(value_type = StateSchema)]
    pub state: State,
    /// When the entry last changed.
    pub epoch: u64,
    /// The group, for grouped list entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub group: Option<GroupName>,
    /// The lock, when somebody holds one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<LockView>,
}

/// A lock on an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Lock)]
pub struct LockView {
    /// Who holds it.
    pub owner: String,
    /// When it ends, in milliseconds since 1970.
    pub until_ms: i64,
}

/// Where a key is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Located {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// The key as the map reads it.
    pub key: KeyText,
    /// Its owner.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// The entry it falls in.
    pub range: RangeView,
    /// Whether it may be read and written.
    #[schema(value_type = StateSchema)]
    pub state: State,
    /// The epoch of the map that answered.
    pub epoch: u64,
}
