//! A shard's local state in memory, for the seeded simulation: a transaction is a clone that is kept or dropped.

use std::collections::{BTreeMap, BTreeSet};

use polyshard_map::{Entry, KeyRange, MapDefinition, MapName};

use crate::tx::Reply;
use crate::{Ack, Departure, FenceEpoch, FenceRow, LocalEntry, LocalTx, Meta, OpId, OpRow, RouterId};

/// All that one shard keeps, in memory.
#[derive(Debug, Clone)]
pub struct MemoryLocal {
    /// Identity.
    pub meta: Meta,
    /// Operations.
    pub ops: BTreeMap<OpId, OpRow>,
    /// Fences.
    pub fences: BTreeMap<OpId, FenceRow>,
    /// Acknowledgements.
    pub acks: BTreeMap<(OpId, RouterId), Ack>,
    /// The local map, by map and lower bound.
    pub ranges: BTreeMap<(MapName, Vec<u8>), LocalEntry>,
    /// Definitions of maps.
    pub definitions: BTreeMap<MapName, MapDefinition>,
    /// Departures, in the order they happened.
    pub departures: Vec<Departure>,
    /// Captures: how many notes are left to carry, and whether it is closed.
    pub captures: BTreeMap<OpId, (u64, bool)>,
    /// Placements that have rows.
    pub held: BTreeSet<(MapName, Vec<u8>)>,
}

impl MemoryLocal {
    /// An empty shard.
    pub fn new(meta: Meta) -> MemoryLocal {
        MemoryLocal {
            meta,
            ops: BTreeMap::new(),
            fences: BTreeMap::new(),
            acks: BTreeMap::new(),
            ranges: BTreeMap::new(),
            definitions: BTreeMap::new(),
            departures: Vec::new(),
            captures: BTreeMap::new(),
            held: BTreeSet::new(),
        }
    }

    /// The row in force that owns a placement, if this shard owns it.
    pub fn owned(&self, map: &MapName, placement: &[u8]) -> Option<&Entry> {
        let owns = |local: &&LocalEntry| local.incoming.is_none() && local.entry.range.contains(placement);
        self.ranges
            .iter()
            .filter(|((name, _), _)| name == map)
            .map(|(_, local)| local)
            .find(owns)
            .map(|l| &l.entry)
    }
}

impl LocalTx for MemoryLocal {
    async fn lock_meta(&mut self) -> Reply<Meta> {
        Ok(self.meta.clone())
    }
    async fn set_fence_epoch(&mut self, epoch: FenceEpoch) -> Reply<()> {
        self.meta.fence_epoch = epoch;
        Ok(())
    }
    async fn op(&mut self, id: OpId) -> Reply<Option<OpRow>> {
        Ok(self.ops.get(&id).cloned())
    }
    async fn put_op(&mut self, row: &OpRow) -> Reply<()> {
        self.ops.insert(row.id, row.clone());
        Ok(())
    }
    async fn fence(&mut self, id: OpId) -> Reply<Option<FenceRow>> {
        Ok(self.fences.get(&id).cloned())
    }
    async fn fences(&mut self) -> Reply<Vec<FenceRow>> {
        Ok(self.fences.values().cloned().collect())
    }
    async fn put_fence(&mut self, row: &FenceRow) -> Reply<()> {
        self.fences.insert(row.op, row.clone());
        Ok(())
    }
    async fn delete_fence(&mut self, id: OpId) -> Reply<()> {
        self.fences.remove(&id);
        self.delete_acks(id, None).await
    }
    async fn acks(&mut self, id: OpId) -> Reply<Vec<Ack>> {
        Ok(self.acks.iter().filter(|((op, _), _)| *op == id).map(|(_, ack)| *ack).collect())
    }
    async fn put_ack(&mut self, id: OpId, ack: Ack) -> Reply<()> {
        self.acks.insert((id, ack.router), ack);
        Ok(())
    }
    async fn delete_acks(&mut self, id: OpId, router: Option<RouterId>) -> Reply<()> {
        self.acks.retain(|(op, from), _| *op != id || router.is_some_and(|router| router != *from));
        Ok(())
    }
    async fn ranges(&mut self, map: &MapName, range: &KeyRange) -> Reply<Vec<LocalEntry>> {
        let overlapping =
            self.ranges.iter().filter(|((name, _), local)| name == map && local.entry.range.overlaps(range));
        Ok(overlapping.map(|(_, local)| local.clone()).collect())
    }
    async fn put_ranges(&mut self, map: &MapName, entries: &[Entry], incoming: Option<OpId>) -> Reply<()> {
        for entry in entries {
            let key = (map.clone(), entry.range.lo().as_slice().to_vec());
            self.ranges.insert(key, LocalEntry { entry: entry.clone(), incoming });
        }
        Ok(())
    }
    async fn delete_ranges(&mut self, map: &MapName, entries: &[Entry]) -> Reply<()> {
        for entry in entries {
            self.ranges.remove(&(map.clone(), entry.range.lo().as_slice().to_vec()));
        }
        Ok(())
    }
    async fn delete_map(&mut self, map: &MapName) -> Reply<()> {
        self.ranges.retain(|(name, _), _| name != map);
        self.definitions.remove(map);
        Ok(())
    }
    async fn activate_incoming(&mut self, id: OpId, inside: Option<&[KeyRange]>) -> Reply<u64> {
        let mut left = 0;
        for local in self.ranges.values_mut().filter(|local| local.incoming == Some(id)) {
            if inside.is_none_or(|ranges| ranges.iter().any(|range| range.covers(&local.entry.range))) {
                local.incoming = None;
            } else {
                left += 1;
            }
        }
        Ok(left)
    }
    async fn delete_incoming(&mut self, id: OpId) -> Reply<()> {
        self.ranges.retain(|_, local| local.incoming != Some(id));
        Ok(())
    }
    async fn put_definition(&mut self, definition: &MapDefinition) -> Reply<()> {
        self.definitions.insert(definition.name().clone(), definition.clone());
        Ok(())
    }
    async fn put_departures(&mut self, rows: &[Departure]) -> Reply<()> {
        self.departures.extend_from_slice(rows);
        Ok(())
    }
    async fn departures_after(&mut self, known: FenceEpoch) -> Reply<Vec<Departure>> {
        Ok(self.departures.iter().filter(|row| row.number > known).cloned().collect())
    }
    async fn holds_data(&mut self, map: &MapName, ranges: &[KeyRange]) -> Reply<Option<String>> {
        let inside = |placement: &[u8]| ranges.iter().any(|range| range.contains(placement));
        let found = self.held.iter().any(|(of, placement)| of == map && inside(placement));
        Ok(found.then(|| "rows".to_owned()))
    }
    async fn seal(&mut self, capture: OpId) -> Reply<bool> {
        match self.captures.get_mut(&capture) {
            Some((0, sealed)) => {
                *sealed = true;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
