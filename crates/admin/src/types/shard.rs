//! Shards: what they are and what may be changed about them.

use std::num::NonZeroU64;

use polyshard_map::{ShardId, State};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::StateSchema;

/// What a shard or catalog is kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// A file of this server.
    Sqlite,
    /// A PostgreSQL database.
    Postgres,
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Engine::Sqlite => "sqlite",
            Engine::Postgres => "postgres",
        })
    }
}

/// How much a shard may take; what is not given is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShardLimits {
    /// Bytes of data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub bytes_max: Option<NonZeroU64>,
    /// Database connections of one server process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub connections_max: Option<NonZeroU64>,
    /// Shardlets that may be placed here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub shardlets_max: Option<NonZeroU64>,
}

/// One shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Shard)]
pub struct ShardView {
    /// Its id.
    #[schema(value_type = String)]
    pub id: ShardId,
    /// What it is kept in.
    pub engine: Engine,
    /// Its address, never with a password.
    pub url: String,
    /// The machine it is on, when told.
    pub server: Option<String>,
    /// The region it is in, when told.
    pub region: Option<String>,
    /// The tier it belongs to, when told.
    pub tier: Option<String>,
    /// How much it may take.
    pub limits: ShardLimits,
    /// Whether it may be read and written.
    #[schema(value_type = StateSchema)]
    pub state: State,
    /// Whether this server reaches it now.
    pub reachable: bool,
    /// Changes when the shard is restored or attached; null until it was first reached.
    pub incarnation: Option<String>,
    /// How many entries of all maps are on it.
    pub ranges: u64,
    /// The epoch of the last departure from it; null while it is not reachable.
    pub fence_epoch: Option<u64>,
    /// Grows with every change of this shard; the ETag, and what If-Match compares.
    pub version: u64,
}

/// All shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Shards)]
pub struct ShardsAnswer {
    /// Sorted by id.
    pub shards: Vec<ShardView>,
}

/// A shard to add, or to attach with what it already holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewShard {
    /// Its id.
    #[schema(value_type = String)]
    pub id: ShardId,
    /// `sqlite:path` (relative to the data directory) or `postgres://user@host:port/database`, without a password.
    pub url: String,
    /// The server's environment variable that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_env: Option<String>,
    /// The file on the server that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// The region it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The tier it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The machine it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// How much it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ShardLimits>,
}

/// What to change about a shard; a field that is not given stays, null clears it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShardPatch {
    /// A new address of the same database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The server's environment variable that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub password_env: Option<Option<String>>,
    /// The file on the server that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub password_file: Option<Option<String>>,
    /// The region it is in.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub region: Option<Option<String>>,
    /// The tier it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub tier: Option<Option<String>>,
    /// The machine it is on.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub server: Option<Option<String>>,
    /// All limits, replacing those before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ShardLimits>,
    /// Whether it may be read and written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<StateSchema>)]
    pub state: Option<State>,
}

impl ShardPatch {
    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        *self == ShardPatch::default()
    }
}

/// The explicit word for removing something that holds data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    /// The name of what is removed, once more: without it, anything that holds data is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destroy: Option<String>,
}

/// Keeps 'given as null' (clear it) apart from 'not given' (keep it).
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}
