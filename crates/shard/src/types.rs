//! The records of the protocol between catalog, shards and routers. Values only.

use std::fmt;

use polyshard_map::{Entry, Epoch, KeyRange, MapDefinition, MapName, ShardId, State};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Names one operation on maps, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpId(Uuid);

impl OpId {
    /// Wraps a fresh random id made by the caller.
    pub fn new(id: Uuid) -> OpId {
        OpId(id)
    }

    /// A second id of the one who made this one: for what comes in two parts.
    pub(crate) fn beside(self) -> OpId {
        OpId(Uuid::from_u128(self.0.as_u128() ^ 1))
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl std::str::FromStr for OpId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<OpId, uuid::Error> {
        Uuid::parse_str(text).map(OpId)
    }
}

/// Names one router (one server process) in the sessions it opens. Positive, so that it fits the
/// second half of a PostgreSQL advisory lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RouterId(u32);

impl RouterId {
    /// Keeps the lower 31 bits of a random number.
    pub fn new(random: u32) -> RouterId {
        RouterId(random & 0x7fff_ffff)
    }
    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "router-{:08x}", self.0)
    }
}

/// Counts, on one shard, the fences raised and the departures made. A router that knows this number knows all
/// of them. It is the shard's own count, not a map's epoch: operations on one shard may finish in another
/// order than they began, and a proof must not skip one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FenceEpoch(u64);

impl FenceEpoch {
    /// Before the first.
    pub const ZERO: FenceEpoch = FenceEpoch(0);
    /// Wraps a stored number.
    pub fn new(number: u64) -> FenceEpoch {
        FenceEpoch(number)
    }
    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
    /// The one after.
    pub fn next(self) -> FenceEpoch {
        FenceEpoch(self.0 + 1)
    }
}

impl fmt::Display for FenceEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who a shard is, and what it demands of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Version of the stored format.
    pub format: i64,
    /// The cluster it belongs to.
    pub cluster: Uuid,
    /// Its name.
    pub shard: ShardId,
    /// Changes on restore or attach, so that a router never takes an old copy for the shard.
    pub incarnation: Uuid,
    /// The last fence raised or departure made here; a session must know it before it is used.
    pub fence_epoch: FenceEpoch,
    /// Operations up to this epoch have had their records pruned: none of them may act any more.
    pub pruned_epoch: Epoch,
}

/// An operation as a driver names it: the token proves that the driver still owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpRef {
    /// Which operation.
    pub id: OpId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Grows each time another driver takes it over.
    pub token: u64,
}

/// What an operation does to one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Ranges arrive here.
    Gain,
    /// Ranges are cut or joined or get more rights; nothing arrives or leaves.
    Keep,
    /// Ranges leave, or lose rights: needs the fence.
    Lose,
    /// The whole map leaves: needs the fence.
    Drop,
}

impl Role {
    /// Whether the fence must be raised before this role's change.
    pub fn needs_fence(self) -> bool {
        matches!(self, Role::Lose | Role::Drop)
    }
}

/// The change of one shard's local map that an operation makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Edit {
    /// The map's definition, kept on the shard so that the catalog can be rebuilt.
    pub definition: MapDefinition,
    /// What kind of change.
    pub role: Role,
    /// The entries of this shard that the change replaces.
    pub before: Vec<Entry>,
    /// What they become.
    pub after: Vec<Entry>,
    /// Where lost ranges go, for the departure records: range, new owner if any, state there.
    pub lost: Vec<(KeyRange, Option<ShardId>, State)>,
    /// Whether ranges may leave with what they hold: the operator has said so.
    #[serde(default)]
    pub destroy: bool,
    /// The capture by which a move carries what the ranges hold; none for a change that moves no rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<OpId>,
}

impl Edit {
    /// The map concerned.
    pub fn map(&self) -> &MapName {
        self.definition.name()
    }
}

/// How far an operation has come on one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Recorded; can still be undone.
    Prepared,
    /// Undone; can never act here again.
    Undone,
    /// The ranges have left: the point of no return.
    Departed,
    /// In force.
    Active,
}

/// A shard's own record of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct OpRow {
    /// Which operation.
    pub id: OpId,
    /// Its epoch.
    pub epoch: Epoch,
    /// The highest token seen.
    pub token: u64,
    /// How far it is.
    pub phase: Phase,
    /// What it does here; absent in the tombstone of an operation undone before it arrived.
    pub edit: Option<Edit>,
}

/// Which requests a fence holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FenceAccess {
    /// Reads and writes.
    All,
    /// Only writes: the range becomes read-only.
    Writes,
}

/// Where a fence stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FenceState {
    /// Routers hold and acknowledge.
    Holding,
    /// A router withdrew: this attempt cannot depart any more.
    Broken,
    /// The ranges have departed; routers go to the new owner once the fence is released.
    Departed,
}

/// A raised fence: the ranges that routers must stop using.
#[derive(Debug, Clone, PartialEq)]
pub struct FenceRow {
    /// The operation that raised it.
    pub op: OpId,
    /// Counts the raisings; an acknowledgement is for one of them.
    pub attempt: u64,
    /// Where it stands.
    pub state: FenceState,
    /// The map.
    pub map: MapName,
    /// The ranges, in placement bytes.
    pub ranges: Vec<KeyRange>,
    /// Which requests.
    pub access: FenceAccess,
}

impl FenceRow {
    /// Whether this raising of the fence can still lead to a departure.
    pub fn stands(&self, attempt: u64) -> bool {
        self.attempt == attempt && self.state == FenceState::Holding
    }
}

/// How far a router is with a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckPhase {
    /// It has heard and holds new requests: it is alive.
    Held,
    /// Nothing of it is under way in the ranges any more.
    Drained,
}

/// A router's acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// The router.
    pub router: RouterId,
    /// How far it is.
    pub phase: AckPhase,
}

/// A row of the local map.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalEntry {
    /// Range, state, epoch; its shard is this one.
    pub entry: Entry,
    /// Set while the range is arriving by that operation and not yet served here.
    pub incoming: Option<OpId>,
}

/// A range that left this shard, or lost rights on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Departure {
    /// The map.
    pub map: MapName,
    /// What left.
    pub range: KeyRange,
    /// Where to; none if it is no longer mapped.
    pub to: Option<ShardId>,
    /// Its state there.
    pub state: State,
    /// Since which epoch.
    pub epoch: Epoch,
    /// By which operation.
    pub op: OpId,
    /// Its place in the shard's own order of fences and departures.
    pub number: FenceEpoch,
}

/// What a router makes of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Learnt {
    /// It is known now.
    Known,
    /// The router has forgotten meanwhile what it had told the shard that it knew: ask again.
    AskAgain,
}

/// What a shard demands of routers: to have read the catalog up to an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// The shard's own number of the demand.
    pub number: FenceEpoch,
    /// The number of the event in the catalog.
    pub seq: u64,
    /// The number of the last demand that was raised against the router that asks; zero for none.
    pub cut: FenceEpoch,
}

/// What a shard tells a session that introduces itself.
#[derive(Debug, Clone, PartialEq)]
pub struct HelloReply {
    /// What the session said that it knew: departures up to there are not listed.
    pub since: FenceEpoch,
    /// Its incarnation now.
    pub incarnation: Uuid,
    /// What the session knows from now on.
    pub fence_epoch: FenceEpoch,
    /// Departures of operations up to this epoch are no longer listed: a router whose map is older must
    /// read the catalog.
    pub pruned_epoch: Epoch,
    /// What has left since the number that the session knew, oldest first.
    pub departures: Vec<Departure>,
    /// Fences standing now.
    pub fences: Vec<FenceRow>,
    /// What the router must have read of the catalog.
    pub demand: Demand,
}
