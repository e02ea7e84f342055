//! The boundary: everything an operator can ask for, free of HTTP; `server` implements it.

use std::pin::Pin;

use polyshard_map::{MapName, ShardId};

use crate::problem::Problem;
use crate::types::{
    BalanceAnswer, BalanceRequest, BindRequest, ChangeAnswer, ChangeRequest, CheckAnswer, DatasetView,
    DeclareRequest, EntriesAnswer, Located, MapView, MoveAnswer, MoveRequest, MoveWish, NewMap, NewShard,
    OperationView, RepairAnswer, RepairRequest, RowsCheckAnswer, SchemaCheckAnswer, ShardPatch, ShardView,
    Status, StoreView, TableView, UnbindRequest,
};

/// A boxed future, so that the trait can be used as `Arc<dyn Operator>`.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Problem>> + Send + 'a>>;

/// The version a change is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Whatever is there now.
    Current,
    /// Only this version; otherwise `changed_meanwhile`.
    Version(u64),
}

/// Whether data may go with the thing that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Refuse with `holds_data` when there is some.
    Keep,
    /// The operator said the explicit word.
    Destroy,
}

/// One page of entries, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The `next` of the page before, as the operator's own earlier answer gave it.
    pub after: Option<String>,
    /// At most this many entries.
    pub limit: u32,
}

/// Everything an operator can ask for.
pub trait Operator: Send + Sync + 'static {
    /// Whether requests can be served; the problem says why not.
    fn ready(&self) -> Answer<'_, ()>;
    /// The state of the whole.
    fn status(&self) -> Answer<'_, Status>;

    /// All shards, sorted by id.
    fn shards(&self) -> Answer<'_, Vec<ShardView>>;
    /// One shard.
    fn shard(&self, id: ShardId) -> Answer<'_, ShardView>;
    /// Add an empty shard.
    fn add_shard(&self, shard: NewShard) -> Answer<'_, ShardView>;
    /// Change what is known about a shard, its address included.
    fn set_shard(&self, id: ShardId, patch: ShardPatch, basis: Basis) -> Answer<'_, ShardView>;
    /// Take a shard out.
    fn remove_shard(&self, id: ShardId, data: Data) -> Answer<'_, ()>;
    /// Bring in a database that was a shard before, with the ranges its local map holds.
    fn attach_shard(&self, shard: NewShard) -> Answer<'_, ShardView>;
    /// Let a shard go with its data, reachable or not; its ranges leave the maps, its own local map stays.
    fn detach_shard(&self, id: ShardId) -> Answer<'_, ()>;

    /// All maps, sorted by name.
    fn maps(&self) -> Answer<'_, Vec<MapView>>;
    /// One map.
    fn map(&self, name: MapName) -> Answer<'_, MapView>;
    /// Make a map.
    fn create_map(&self, map: NewMap) -> Answer<'_, MapView>;
    /// Drop a map.
    fn drop_map(&self, name: MapName, data: Data, basis: Basis) -> Answer<'_, ()>;
    /// One page of a map's entries.
    fn entries(&self, name: MapName, page: Page) -> Answer<'_, EntriesAnswer>;
    /// Where a key, given in its text form, is.
    fn locate(&self, name: MapName, key: String) -> Answer<'_, Located>;
    /// One change of a map; `owner` is whose locks the change may pass.
    fn change(
        &self,
        name: MapName,
        change: ChangeRequest,
        owner: Option<String>,
        basis: Basis,
    ) -> Answer<'_, ChangeAnswer>;
    /// The map as a JSON document of `polyshard_map`'s export format, with the map's version.
    fn export_map(&self, name: MapName) -> Answer<'_, Exported>;
    /// Make a map from an exported document.
    fn import_map(&self, document: Vec<u8>) -> Answer<'_, MapView>;
    /// Compare the catalog with the shards' local maps.
    fn check_map(&self, name: MapName) -> Answer<'_, CheckAnswer>;
    /// Rebuild one side from the other.
    fn repair_map(&self, name: MapName, repair: RepairRequest) -> Answer<'_, RepairAnswer>;

    /// All stores of the program.
    fn stores(&self) -> Answer<'_, Vec<StoreView>>;
    /// All datasets, and the names that are bound.
    fn datasets(&self) -> Answer<'_, Vec<DatasetView>>;
    /// Have a dataset placed by a map.
    fn bind_dataset(&self, bind: BindRequest) -> Answer<'_, DatasetView>;
    /// Forget what a name is bound to.
    fn unbind_dataset(&self, unbind: UnbindRequest) -> Answer<'_, ()>;

    /// All SQL tables, sorted by name.
    fn tables(&self) -> Answer<'_, Vec<TableView>>;
    /// Declare how a table is placed.
    fn declare_table(&self, declare: DeclareRequest) -> Answer<'_, TableView>;
    /// Compare the shards' schemas and reference tables.
    fn check_schema(&self) -> Answer<'_, SchemaCheckAnswer>;

    /// Move a part of a map to another shard, or look at what that would be.
    fn move_range(&self, name: MapName, request: MoveRequest, basis: Basis) -> Answer<'_, MoveAnswer>;
    /// How a map's rows are spread, and which moves would even them out or empty a shard.
    fn balance(&self, name: MapName, request: BalanceRequest) -> Answer<'_, BalanceAnswer>;
    /// Look for rows on shards that do not own them.
    fn check_rows(&self, name: MapName) -> Answer<'_, RowsCheckAnswer>;
    /// Pause, resume, cancel, undo or clean up a move.
    fn wish(&self, id: String, wish: MoveWish) -> Answer<'_, OperationView>;

    /// The unfinished operations and the latest finished ones, the latest first.
    fn operations(&self) -> Answer<'_, Vec<OperationView>>;
    /// One operation.
    fn operation(&self, id: String) -> Answer<'_, OperationView>;
}

/// An exported map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The JSON document.
    pub document: Vec<u8>,
    /// The map's version that was exported.
    pub version: u64,
}
