//! One change of a map, as an operator asks for it: `{"split": {"at": 500}}`.

use polyshard_map::{GroupName, ShardId, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::range::{KeyText, RangeView};
use super::{MapView, StateSchema};

/// One change of a map; the single field names the change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Change)]
pub enum ChangeRequest {
    /// Map ranges that are not mapped yet.
    Add(AddChange),
    /// Take a range out of the map.
    Remove(RemoveChange),
    /// Point a range that holds no data, or a whole group, at another shard.
    Assign(AssignChange),
    /// Cut an entry in two; both keep the shard.
    Split(SplitChange),
    /// Join the two entries that meet at a boundary and are on one shard.
    Merge(MergeChange),
    /// Take a range offline, make it read-only, or bring it back.
    SetState(SetStateChange),
    /// Keep others from changing a range until the lease ends.
    Lock(LockChange),
    /// Give a lock back, or break it.
    Unlock(UnlockChange),
    /// Add a segment of leading key parts to a composite map, its buckets spread over shards.
    AddSegment(AddSegmentChange),
    /// Cut a segment of a composite map in two; no data moves.
    SplitSegment(SplitSegmentChange),
    /// Take a segment and its buckets out of a composite map.
    RemoveSegment(RemoveSegmentChange),
}

/// Map ranges that are not mapped yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddChange {
    /// What to add.
    pub entries: Vec<NewEntry>,
}

/// One entry to add.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewEntry {
    /// The keys.
    pub range: RangeView,
    /// The shard that will own them; without it, the one that has rows of them, or the emptiest
    /// that has room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub shard: Option<ShardId>,
    /// `online` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<StateSchema>)]
    pub state: Option<State>,
    /// A list entry may belong to a group, which stays on one shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub group: Option<GroupName>,
}

/// Take a range out of the map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveChange {
    /// The keys.
    pub range: RangeView,
}

/// Point a range that holds no data, or a whole group, at another shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AssignChange {
    /// The keys; or give `group`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<RangeView>,
    /// The group; or give `range`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub group: Option<GroupName>,
    /// The new owner.
    #[schema(value_type = String)]
    pub to: ShardId,
}

/// Cut an entry in two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitChange {
    /// First key of the upper part; on a hash map the bucket number.
    pub at: KeyText,
    /// On a composite map, the leading key that the segment begins with; null is the one without a beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<KeyText>,
}

/// Join two entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MergeChange {
    /// First key of the upper entry; on a hash map the bucket number.
    pub at: KeyText,
    /// On a composite map, the leading key that the segment begins with; null is the one without a beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<KeyText>,
}

/// Take a range offline, make it read-only, or bring it back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetStateChange {
    /// The keys.
    pub range: RangeView,
    /// The new state.
    #[schema(value_type = StateSchema)]
    pub state: State,
}

/// Keep others from changing a range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LockChange {
    /// The keys.
    pub range: RangeView,
    /// Who holds the lock.
    pub owner: String,
    /// How long the lock holds, in milliseconds from now.
    pub lease_ms: u64,
}

/// Give a lock back, or break it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnlockChange {
    /// The keys.
    pub range: RangeView,
    /// The owner who gives it back; without one the lock is broken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// Add a segment of leading key parts to a composite map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddSegmentChange {
    /// The leading key parts: `key`, or `from` and `to`.
    pub segment: RangeView,
    /// The shards its buckets are spread over.
    #[schema(value_type = Vec<String>)]
    pub shards: Vec<ShardId>,
}

/// Cut a segment of a composite map in two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitSegmentChange {
    /// The leading key that the segment begins with; null is the one without a beginning.
    #[serde(default)]
    pub segment: Option<KeyText>,
    /// First leading key of the upper part.
    pub at: KeyText,
}

/// Take a segment and its buckets out of a composite map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveSegmentChange {
    /// The leading key that the segment begins with; null is the one without a beginning.
    #[serde(default)]
    pub segment: Option<KeyText>,
}

/// What a change did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeAnswer {
    /// The operation that made it.
    pub operation: String,
    /// The map after it.
    pub map: MapView,
    /// Where new entries went that named no shard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placed: Vec<PlacedEntry>,
}

/// Where a new entry went that named no shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlacedEntry {
    /// The keys.
    pub range: RangeView,
    /// The shard that was chosen.
    #[schema(value_type = String)]
    pub shard: ShardId,
}
