//! The storage that the catalog's side of the protocol is written on: one transaction's reads and writes.

use std::future::Future;
use std::time::Duration;

use polyshard_map::{Delta, Entry, Epoch, GroupName, KeyRange, MapName, ShardId};
use polyshard_shard::OpId;

use crate::CatalogError;
use crate::carrier::Wish;
use crate::types::{Event, MapRecord, OpRecord};

/// Shorthand for what each call gives.
pub type Reply<T> = Result<T, CatalogError>;

/// One transaction on the catalog. Reads see the transaction's own writes; a transaction that changes
/// anything locks the cluster row first, so that epochs and events are in the order of commits.
pub trait CatalogTx: Send {
    /// Locks the cluster row.
    fn lock(&mut self) -> impl Future<Output = Reply<()>> + Send;
    /// How long a driver may be silent before another takes its operation over.
    fn lease(&self) -> Duration {
        crate::LEASE
    }
    /// The catalog's clock.
    fn now_ms(&mut self) -> impl Future<Output = Reply<i64>> + Send;
    /// The next epoch, never given twice.
    fn next_epoch(&mut self) -> impl Future<Output = Reply<Epoch>> + Send;

    /// Whether there is such a shard.
    fn has_shard(&mut self, id: &ShardId) -> impl Future<Output = Reply<bool>> + Send;
    /// The position of the journal that the shards must all have come to before a map may be changed.
    fn depended_on(&mut self, _map: &MapName) -> impl Future<Output = Reply<Option<u64>>> + Send {
        async { Ok(None) }
    }
    /// A dataset that a map places, if there is one.
    fn placed_by(&mut self, map: &MapName) -> impl Future<Output = Reply<Option<String>>> + Send;

    /// Reads a map's record.
    fn map(&mut self, map: &MapName) -> impl Future<Output = Reply<Option<MapRecord>>> + Send;
    /// Writes a map's record.
    fn put_map(&mut self, record: &MapRecord) -> impl Future<Output = Reply<()>> + Send;
    /// Removes a map with all its entries.
    fn delete_map(&mut self, map: &MapName) -> impl Future<Output = Reply<()>> + Send;
    /// The entries that overlap or touch a range, in key order.
    fn entries(&mut self, map: &MapName, range: &KeyRange) -> impl Future<Output = Reply<Vec<Entry>>> + Send;
    /// The entries of a group.
    fn group(&mut self, map: &MapName, group: &GroupName) -> impl Future<Output = Reply<Vec<Entry>>> + Send;
    /// Carries a delta out on the entries.
    fn apply(&mut self, map: &MapName, delta: &Delta) -> impl Future<Output = Reply<()>> + Send;

    /// Reads an operation.
    fn operation(&mut self, id: OpId) -> impl Future<Output = Reply<Option<OpRecord>>> + Send;
    /// The operations under way on a map, or on all.
    fn running(&mut self, map: Option<&MapName>) -> impl Future<Output = Reply<Vec<OpRecord>>> + Send;
    /// Writes an operation whole.
    fn put_operation(&mut self, record: &OpRecord) -> impl Future<Output = Reply<()>> + Send;
    /// What an operator wants of an operation: to go on, unless he said otherwise.
    fn wish(&mut self, id: OpId) -> impl Future<Output = Reply<Wish>> + Send;
    /// Writes what an operator wants of an operation.
    fn put_wish(&mut self, id: OpId, wish: Wish) -> impl Future<Output = Reply<()>> + Send;
    /// Appends to the list of published events, and tells the routers.
    fn publish(&mut self, event: &Event) -> impl Future<Output = Reply<()>> + Send;
}
