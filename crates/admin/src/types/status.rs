//! The state of the whole, on one page.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Engine, MapView, ShardView};

/// The state of the whole as this server process sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The version of the server.
    pub version: String,
    /// The id of the cluster, made with its catalog.
    pub cluster: String,
    /// The last epoch this server knows.
    pub epoch: u64,
    /// The catalog.
    pub catalog: CatalogView,
    /// All shards, sorted by id.
    pub shards: Vec<ShardView>,
    /// All maps, sorted by name.
    pub maps: Vec<MapView>,
    /// The front doors: name → address.
    pub doors: BTreeMap<String, String>,
    /// This process's router.
    pub router: RouterView,
}

/// The catalog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Catalog)]
pub struct CatalogView {
    /// What it is kept in.
    pub engine: Engine,
    /// Its address, never with a password.
    pub url: String,
    /// Whether this server reaches it now.
    pub reachable: bool,
}

/// One process's router.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Router)]
pub struct RouterView {
    /// Its id, new with every start.
    pub id: String,
    /// Ranges whose new work waits at a fence now.
    pub holds: u64,
    /// Requests that are on a shard now.
    pub tickets: u64,
}
