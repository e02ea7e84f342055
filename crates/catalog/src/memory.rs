//! The catalog in memory, for the seeded simulation: a transaction is a clone that is kept or dropped.

use std::collections::BTreeMap;

use polyshard_map::{Delta, Entry, Epoch, GroupName, KeyRange, MapName, ShardId};
use polyshard_shard::OpId;

use crate::carrier::Wish;
use crate::tx::{CatalogTx, Reply};
use crate::types::{Event, MapRecord, OpRecord, OpState};

/// All that the catalog keeps, in memory, with a clock that the simulation turns.
#[derive(Debug, Clone)]
pub struct MemoryCatalog {
    /// The clock.
    pub now_ms: i64,
    /// The last epoch given.
    pub epoch: Epoch,
    /// Maps.
    pub maps: BTreeMap<MapName, MapRecord>,
    /// Entries, by map and lower bound.
    pub entries: BTreeMap<(MapName, Vec<u8>), Entry>,
    /// Operations.
    pub operations: BTreeMap<OpId, OpRecord>,
    /// What operators want of operations.
    pub wishes: BTreeMap<OpId, Wish>,
    /// Published events, in order.
    pub events: Vec<Event>,
}

impl MemoryCatalog {
    /// An empty catalog.
    pub fn new() -> MemoryCatalog {
        MemoryCatalog {
            now_ms: 0,
            epoch: Epoch::ZERO,
            maps: BTreeMap::new(),
            entries: BTreeMap::new(),
            operations: BTreeMap::new(),
            wishes: BTreeMap::new(),
            events: Vec::new(),
        }
    }
}

impl Default for MemoryCatalog {
    fn default() -> MemoryCatalog {
        MemoryCatalog::new()
    }
}

impl CatalogTx for MemoryCatalog {
    async fn lock(&mut self) -> Reply<()> {
        Ok(())
    }
    async fn now_ms(&mut self) -> Reply<i64> {
        Ok(self.now_ms)
    }
    async fn next_epoch(&mut self) -> Reply<Epoch> {
        self.epoch = self.epoch.next();
        Ok(self.epoch)
    }
    async fn has_shard(&mut self, _id: &ShardId) -> Reply<bool> {
        Ok(true)
    }
    async fn placed_by(&mut self, _map: &MapName) -> Reply<Option<String>> {
        Ok(None)
    }
    async fn map(&mut self, map: &MapName) -> Reply<Option<MapRecord>> {
        Ok(self.maps.get(map).cloned())
    }
    async fn put_map(&mut self, record: &MapRecord) -> Reply<()> {
        self.maps.insert(record.definition.name().clone(), record.clone());
        Ok(())
    }
    async fn delete_map(&mut self, map: &MapName) -> Reply<()> {
        self.maps.remove(map);
        self.entries.retain(|(name, _), _| name != map);
        Ok(())
    }
    async fn entries(&mut self, map: &MapName, range: &KeyRange) -> Reply<Vec<Entry>> {
        let near = |(key, entry): &(&(MapName, Vec<u8>), &Entry)| key.0 == *map && entry.range.touches(range);
        Ok(self.entries.iter().filter(near).map(|(_, entry)| entry.clone()).collect())
    }
    async fn group(&mut self, map: &MapName, group: &GroupName) -> Reply<Vec<Entry>> {
        let member = |(key, entry): &(&(MapName, Vec<u8>), &Entry)| {
            key.0 == *map && entry.group.as_ref() == Some(group)
        };
        Ok(self.entries.iter().filter(member).map(|(_, entry)| entry.clone()).collect())
    }
    async fn apply(&mut self, map: &MapName, delta: &Delta) -> Reply<()> {
        for range in &delta.remove {
            self.entries.remove(&(map.clone(), range.lo().as_slice().to_vec()));
        }
        for entry in &delta.put {
            self.entries.insert((map.clone(), entry.range.lo().as_slice().to_vec()), entry.clone());
        }
        Ok(())
    }
    async fn operation(&mut self, id: OpId) -> Reply<Option<OpRecord>> {
        Ok(self.operations.get(&id).cloned())
    }
    async fn running(&mut self, map: Option<&MapName>) -> Reply<Vec<OpRecord>> {
        let running = self.operations.values().filter(|record| record.state == OpState::Running);
        Ok(running.filter(|record| map.is_none_or(|map| record.op.map == *map)).cloned().collect())
    }
    async fn put_operation(&mut self, record: &OpRecord) -> Reply<()> {
        self.operations.insert(record.op.id, record.clone());
        Ok(())
    }
    async fn wish(&mut self, id: OpId) -> Reply<Wish> {
        Ok(self.wishes.get(&id).copied().unwrap_or(Wish::Run))
    }
    async fn put_wish(&mut self, id: OpId, wish: Wish) -> Reply<()> {
        self.wishes.insert(id, wish);
        Ok(())
    }
    async fn publish(&mut self, event: &Event) -> Reply<()> {
        self.events.push(event.clone());
        Ok(())
    }
}
