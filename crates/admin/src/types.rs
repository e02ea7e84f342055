//! What the operator API says and hears: the JSON bodies, one file per noun.

mod adopt;
mod archive;
mod backup;
mod change;
mod checker;
mod dataset;
mod map;
mod moves;
mod operation;
mod query;
mod quota;
mod range;
mod repair;
mod rule;
mod schema;
mod shard;
mod status;
mod store;
mod traffic;
mod user;
mod window;
mod write;

pub use adopt::{AdoptAnswer, AdoptRequest, AdoptedTable};
pub use archive::{
    ArchiveAnswer, ArchivePart, ArchiveRuleView, ArchiveRulesAnswer, ArchiveThen, ArchiveView,
    ArchivesAnswer, ForgetArchive, NewArchive, NewArchiveRule, RestoreArchive, RunArchiveRule, SpillAnswer,
    SpillRequest,
};
pub use backup::{
    BackupFailure, BackupState, BackupView, BackupsAnswer, NewBackup, NewRestore, ScheduleView,
};
pub use change::{
    AddChange, AddSegmentChange, AssignChange, ChangeAnswer, ChangeRequest, LockChange, MergeChange,
    NewEntry, PlacedEntry, RemoveChange, RemoveSegmentChange, SetStateChange, SplitChange,
    SplitSegmentChange, UnlockChange,
};
pub use checker::{
    BrokenLink, LastCheckAnswer, LinkView, LinksAnswer, LinksCheckAnswer, NewLink, OldRowsWish,
    RepairRowsAnswer, RepairRowsRequest, RepairedRows, RepairedTable, UncheckedLink,
};
pub use dataset::{BindRequest, DatasetView, DatasetsAnswer, KeyRuleText, UnbindRequest};
pub use map::{
    EntriesAnswer, EntryView, HashView, Located, LockView, MapKind, MapView, MapsAnswer, NewMap,
    PAGE_ENTRIES_DEFAULT, PAGE_ENTRIES_MAX, PageRequest,
};
pub use moves::{
    BalanceAnswer, BalanceBy, BalanceRequest, IsolateRequest, Meanwhile, MisplacedRows, MoveAnswer, MoveLoad,
    MovePart, MoveRequest, MoveWish, PlannedMove, ProgressView, RowsCheckAnswer, ShardLoad, WishRequest,
};
pub use operation::{OperationState, OperationView, OperationsAnswer};
pub use query::{QUERY_ROWS_MAX, QueryAnswer, QueryRequest, QueryResult};
pub use quota::{QuotaTarget, QuotaView, QuotasAnswer, RemoveQuota};
pub use range::{KeyText, RangeView};
pub use repair::{
    CheckAnswer, Difference, Found, RepairAnswer, RepairMode, RepairRequest, RepairSource, Side, Unreachable,
};
pub use rule::{NewRule, RuleView, RulesAnswer};
pub use schema::{
    DeclareRequest, SchemaCheckAnswer, SchemaDifference, TablePlacement, TableView, TablesAnswer,
};
pub use shard::{Engine, NewShard, Removal, ShardLimits, ShardPatch, ShardView, ShardsAnswer};
pub use status::{CatalogView, RouterView, Status};
pub use store::{EndpointView, StoreView, StoresAnswer};
pub use traffic::{
    ColdRange, DoorTraffic, HOT_DEFAULT, HOT_MAX, HotAnswer, HotBy, HotRequest, HotShardlet, LargeAnswer,
    LargeRequest, LargeShardlet, LeftOut, ShardTraffic, TrafficAnswer,
};
pub use user::{
    GrantRange, GrantView, MadeToken, NewPassword, NewToken, NewUser, Right, Role, StoreId, TokenView,
    TokensAnswer, UserName, UserView, UsersAnswer,
};
pub use window::{
    PIECES_DEFAULT, PIECES_MAX, Part, Piece, ShardletAnswer, ShardletData, Unit, WindowAnswer, WindowRequest,
};
pub use write::{SkipWrite, WaitingView, WriteView, WritesAnswer};

use utoipa::ToSchema;

/// How a state reads in the OpenAPI document; the value itself is `polyshard_map::State`.
#[derive(ToSchema)]
#[schema(as = State)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) enum StateSchema {
    /// Reads and writes.
    Online,
    /// Reads only.
    ReadOnly,
    /// Neither.
    Offline,
}
