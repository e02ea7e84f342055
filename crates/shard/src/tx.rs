//! The storage that the shard's side of the protocol is written on: one transaction's reads and writes.

use std::future::Future;

use polyshard_map::{Entry, KeyRange, MapDefinition, MapName};

use crate::{Ack, Departure, FenceEpoch, FenceRow, LocalEntry, Meta, OpId, OpRow, RouterId, ShardError};

/// Shorthand for what each call gives.
pub type Reply<T> = Result<T, ShardError>;

/// One transaction on a shard's own tables. Reads see the transaction's own writes; `lock_meta` comes
/// first, so that all protocol transactions of a shard happen one after another.
pub trait LocalTx: Send {
    /// Locks and reads the shard's identity.
    fn lock_meta(&mut self) -> impl Future<Output = Reply<Meta>> + Send;
    /// Sets the fence epoch.
    fn set_fence_epoch(&mut self, epoch: FenceEpoch) -> impl Future<Output = Reply<()>> + Send;

    /// Reads an operation's record.
    fn op(&mut self, id: OpId) -> impl Future<Output = Reply<Option<OpRow>>> + Send;
    /// Writes an operation's record.
    fn put_op(&mut self, row: &OpRow) -> impl Future<Output = Reply<()>> + Send;

    /// Reads an operation's fence.
    fn fence(&mut self, id: OpId) -> impl Future<Output = Reply<Option<FenceRow>>> + Send;
    /// All fences standing.
    fn fences(&mut self) -> impl Future<Output = Reply<Vec<FenceRow>>> + Send;
    /// Writes a fence and tells the routers.
    fn put_fence(&mut self, row: &FenceRow) -> impl Future<Output = Reply<()>> + Send;
    /// Takes a fence down, with its acknowledgements, and tells the routers.
    fn delete_fence(&mut self, id: OpId) -> impl Future<Output = Reply<()>> + Send;

    /// The acknowledgements of a fence.
    fn acks(&mut self, id: OpId) -> impl Future<Output = Reply<Vec<Ack>>> + Send;
    /// Writes an acknowledgement.
    fn put_ack(&mut self, id: OpId, ack: Ack) -> impl Future<Output = Reply<()>> + Send;
    /// Removes the acknowledgements of one router, or of all.
    fn delete_acks(&mut self, id: OpId, router: Option<RouterId>) -> impl Future<Output = Reply<()>> + Send;

    /// The local map's rows that overlap a range, in key order.
    fn ranges(
        &mut self,
        map: &MapName,
        range: &KeyRange,
    ) -> impl Future<Output = Reply<Vec<LocalEntry>>> + Send;
    /// Adds rows.
    fn put_ranges(
        &mut self,
        map: &MapName,
        entries: &[Entry],
        incoming: Option<OpId>,
    ) -> impl Future<Output = Reply<()>> + Send;
    /// Removes rows, named by their exact ranges.
    fn delete_ranges(&mut self, map: &MapName, entries: &[Entry]) -> impl Future<Output = Reply<()>> + Send;
    /// Removes all rows of a map and its definition.
    fn delete_map(&mut self, map: &MapName) -> impl Future<Output = Reply<()>> + Send;
    /// Puts arriving rows in force, all or those inside the ranges; tells how many are still arriving.
    fn activate_incoming(
        &mut self,
        id: OpId,
        inside: Option<&[KeyRange]>,
    ) -> impl Future<Output = Reply<u64>> + Send;
    /// Removes arriving rows.
    fn delete_incoming(&mut self, id: OpId) -> impl Future<Output = Reply<()>> + Send;
    /// Keeps the definition of a map.
    fn put_definition(&mut self, definition: &MapDefinition) -> impl Future<Output = Reply<()>> + Send;

    /// Records departures.
    fn put_departures(&mut self, rows: &[Departure]) -> impl Future<Output = Reply<()>> + Send;
    /// Departures after a number, oldest first.
    fn departures_after(&mut self, known: FenceEpoch) -> impl Future<Output = Reply<Vec<Departure>>> + Send;
    /// The name of a dataset that has rows in one of the ranges, if any.
    fn holds_data(
        &mut self,
        map: &MapName,
        ranges: &[KeyRange],
    ) -> impl Future<Output = Reply<Option<String>>> + Send;
    /// Closes a capture for good, so that nothing in its ranges can be changed here any more. False if something is
    /// left to carry, or somebody is still writing: then nothing is closed.
    fn seal(&mut self, capture: OpId) -> impl Future<Output = Reply<bool>> + Send;
}
