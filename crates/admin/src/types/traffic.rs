//! What is going on: requests by shard and door, the hottest shardlets.

use polyshard_map::{MapName, ShardId, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::range::{KeyText, RangeView};
use super::{Engine, StateSchema};

/// Most shardlets in a list of the hottest: the server keeps no more.
pub const HOT_MAX: u32 = 256;

/// Shardlets in such a list when the request names no limit.
pub const HOT_DEFAULT: u32 = 20;

/// What is going on, as one server process sees it. Rates and times are of the last seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Traffic)]
pub struct TrafficAnswer {
    /// When it was measured, in milliseconds since 1970.
    pub at_ms: i64,
    /// How long the process runs, in seconds.
    pub up_s: u64,
    /// Requests that wait for a range that is being switched have been so many since the start.
    pub waits: u64,
    /// Calls that were tried again since the start.
    pub retries: u64,
    /// All shards, sorted by id.
    pub shards: Vec<ShardTraffic>,
    /// All front doors, sorted by name.
    pub doors: Vec<DoorTraffic>,
}

/// One shard: how large, how busy, how quick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ShardTraffic {
    /// The shard.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// What it is kept in.
    pub engine: Engine,
    /// Whether it may be read and written.
    #[schema(value_type = StateSchema)]
    pub state: State,
    /// Whether it answered when it was last measured; null before the first time.
    pub reachable: Option<bool>,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Failures a second that were not the requests' own fault.
    pub errors_per_s: f64,
    /// The time that half of the requests took at most, in microseconds; null without requests.
    pub p50_us: Option<u64>,
    /// The same for 99 of 100.
    pub p99_us: Option<u64>,
    /// Requests that are on it now.
    pub inside: u64,
    /// Entries of maps that point to it.
    pub ranges: u64,
    /// Its size in bytes.
    pub bytes: Option<u64>,
    /// The limit of its size.
    pub bytes_max: Option<u64>,
    /// Sessions of its database, of whatever process; null on embedded shards.
    pub connections: Option<u64>,
    /// The limit of sessions of one process.
    pub connections_max: Option<u64>,
    /// The region it is in.
    pub region: Option<String>,
    /// The tier it belongs to.
    pub tier: Option<String>,
    /// Requests a second in each of the last minutes, the oldest first, at most 60.
    pub minutes: Vec<f64>,
    /// What an operator should look at.
    pub warnings: Vec<String>,
}

/// One front door since the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DoorTraffic {
    /// Its name.
    pub door: String,
    /// Connections now.
    pub connections: u64,
    /// Connections so far.
    pub accepted: u64,
    /// Connections refused because the limit was reached.
    pub refused: u64,
    /// Requests so far, where the door counts them.
    pub requests: u64,
}

/// Which of the busiest, or of the least busy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct HotRequest {
    /// At most 256; 20 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// What they are sorted by; requests when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub by: Option<HotBy>,
    /// Those of this map only; of all when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub map: Option<MapName>,
    /// The least busy instead, the largest of them first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cold: bool,
}

/// What makes a shardlet hot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HotBy {
    /// Requests.
    #[default]
    Requests,
    /// Bytes of requests and answers.
    Bytes,
}

/// The shardlets that were busiest lately, through all server processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Hot)]
pub struct HotAnswer {
    /// The hottest first; none if the cold were asked for.
    pub shardlets: Vec<HotShardlet>,
    /// The parts of maps that are least busy, if they were asked for: those without requests first, of these the
    /// largest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cold: Vec<ColdRange>,
    /// How many server processes have counted it; one that has been silent for half a minute is left out.
    #[serde(default)]
    pub processes: u32,
}

/// A part of a map that is hardly used: on a list map one shardlet, on others what can be moved by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ColdRange {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// Which keys.
    pub range: RangeView,
    /// Where it is.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// Its rows.
    pub rows: u64,
    /// About how many bytes they are.
    pub bytes: u64,
    /// About how many requests a second it gets.
    pub requests_per_s: f64,
    /// Whether rows and bytes are estimated from a sample.
    pub estimated: bool,
}

/// One hot shardlet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotShardlet {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// The key.
    pub key: KeyText,
    /// Where it is now.
    #[schema(value_type = Option<String>)]
    pub shard: Option<ShardId>,
    /// About how many requests a second it gets: every eighth request is looked at, and older ones weigh less.
    pub requests_per_s: f64,
    /// About how many bytes a second its requests and answers have; 0 if others have far more.
    #[serde(default)]
    pub bytes_per_s: f64,
}

/// How many of the largest, and of which map.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LargeRequest {
    /// At most 256; 20 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Those of this map only; of all when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>)]
    pub map: Option<MapName>,
}

/// The shardlets that have the most data, as it was counted lately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Large)]
pub struct LargeAnswer {
    /// When it was counted, in milliseconds since 1970: it is not counted again for every request.
    pub at_ms: i64,
    /// The largest first, by their bytes.
    pub shardlets: Vec<LargeShardlet>,
    /// What is not in it, and why.
    pub left_out: Vec<LeftOut>,
    /// How many more are not in it, beyond those that are named.
    #[serde(default)]
    pub left_out_more: u64,
}

/// One large shardlet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LargeShardlet {
    /// The map.
    #[schema(value_type = String)]
    pub map: MapName,
    /// The key; null where rows tell only their bucket.
    pub key: Option<KeyText>,
    /// The bucket of a map that hashes. Without a key, the rows are of all keys in it.
    pub bucket: Option<u64>,
    /// Where it is.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// Its rows: counted, or estimated from a sample.
    pub rows: u64,
    /// About how many bytes they take: rows times the mean length of some of them, indexes not included.
    pub bytes: u64,
    /// Whether the rows are estimated from a sample, because there are too many to count.
    pub sampled: bool,
}

/// Data whose size is not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LeftOut {
    /// The shard.
    #[schema(value_type = String)]
    pub shard: ShardId,
    /// The dataset, as it is called on the shard; null for all of them.
    pub dataset: Option<String>,
    /// Why.
    pub why: String,
}
