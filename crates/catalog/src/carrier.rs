//! What a move adds to an operation: which rows it carries, the tasks of carrying, and how far they are.

use std::future::Future;
use std::pin::Pin;

use polyshard_map::{KeyRange, ShardId};
use polyshard_shard::OpId;
use serde::{Deserialize, Serialize};

use crate::saga::Outcome;
use crate::types::OpRecord;

/// The rows that an operation takes with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Carry {
    /// Where they are.
    pub from: ShardId,
    /// Where they go.
    pub to: ShardId,
    /// Which: all ranges that leave.
    pub ranges: Vec<KeyRange>,
    /// The capture on the source.
    pub forward: OpId,
    /// The capture on the target, by which the move can be undone without losing what was written since.
    pub reverse: OpId,
    /// How long the source keeps its rows after the switch, so that the move can be undone.
    pub keep_ms: u64,
    /// The target has all rows but those in the capture: this undoes a move.
    #[serde(default)]
    pub filled: bool,
    /// The move that this one undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<OpId>,
    /// The capture that the undone move has left on the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<OpId>,
}

/// One task of carrying. Each is done in bounded steps, and may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarryTask {
    /// Check everything that can fail, and begin the capture on the source.
    Begin,
    /// Copy what is there, chunk by chunk.
    Copy,
    /// Carry what was captured, until little is left.
    CatchUp,
    /// Compare source and target.
    Verify,
    /// Begin the capture on the target, if the move is to be undoable.
    Reverse,
    /// Carry the rest while requests are held, and compare it.
    Settle,
    /// Keep the source's rows for a while.
    Keep,
    /// Remove them, and the captures.
    Clean,
    /// Remove what was copied, and the captures: the move is given up.
    Clear,
}

impl CarryTask {
    /// The word in logs and failpoints.
    pub fn as_str(self) -> &'static str {
        match self {
            CarryTask::Begin => "begin",
            CarryTask::Copy => "copy",
            CarryTask::CatchUp => "catch_up",
            CarryTask::Verify => "verify",
            CarryTask::Reverse => "reverse",
            CarryTask::Settle => "settle",
            CarryTask::Keep => "keep",
            CarryTask::Clean => "clean",
            CarryTask::Clear => "clear",
        }
    }

    /// Whether it takes away what the move has left behind, and so can do without a shard that is no more.
    pub fn ends(self) -> bool {
        matches!(self, CarryTask::Keep | CarryTask::Clean | CarryTask::Clear)
    }

    /// Whether it is done beside requests, and so may step back for them.
    pub fn is_paced(self) -> bool {
        matches!(self, CarryTask::Copy | CarryTask::Verify | CarryTask::Clean | CarryTask::Clear)
    }

    /// Whether an operator can have it wait: not while requests are held.
    pub fn can_pause(self) -> bool {
        matches!(self, CarryTask::Copy | CarryTask::CatchUp | CarryTask::Verify | CarryTask::Clean)
    }
}

/// Who does the tasks: the mover, which knows rows. The driver knows steps, leases and fences.
pub trait Carrier: Send + Sync {
    /// Does a part of a task; [`Outcome::Waiting`] asks to be called again.
    fn carry<'a>(
        &'a self,
        record: &'a OpRecord,
        task: CarryTask,
    ) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

    /// The same for a task that [ends](CarryTask::ends) a move, where shards have left the cluster for good: what was
    /// to be done there counts as done.
    fn carry_without<'a>(
        &'a self,
        record: &'a OpRecord,
        task: CarryTask,
        lost: &'a [ShardId],
    ) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

    /// How far an operation is.
    fn progress(&self, op: OpId) -> Progress;

    /// For how many percent of the time an operator wants a move to work while requests are served; as is usual, if he
    /// wants nothing.
    fn set_pace(&self, record: &OpRecord, share: Option<u32>);

    /// The operation has ended, or is somebody else's: what was remembered of it can be forgotten.
    fn forget(&self, op: OpId);
}

/// How far a move is, for people.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Rows that there were to copy, when it was counted.
    pub total_rows: u64,
    /// Rows copied.
    pub copied_rows: u64,
    /// Bytes copied.
    pub copied_bytes: u64,
    /// Rows compared.
    pub verified_rows: u64,
    /// Changed rows that are still to be carried.
    pub lag_rows: u64,
    /// Rows cleaned away.
    pub cleaned_rows: u64,
    /// How long requests were held by the switch, once it is done.
    pub pause_ms: Option<u64>,
    /// An estimate of the time that copying still takes.
    pub left_ms: Option<u64>,
    /// For how many percent of the time it works, if it steps back for requests.
    pub works_percent: Option<u32>,
}

/// What an operator wants of an operation under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// Go on.
    Run,
    /// Go on, and work for so many percent of the time while requests are served, whatever is usual.
    Pace(u32),
    /// Wait.
    Pause,
    /// Give up.
    Cancel,
    /// Do not keep the source's rows any longer.
    Clean,
}
