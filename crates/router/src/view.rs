//! What a router believes: maps and shards as of some event. Immutable; a change makes a new one that shares the
//! rest. For each range the highest epoch wins, so events and departures may come twice or in any order.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_catalog::{DatasetRecord, Event, MapContents, MapRecord, ShardRecord, Snapshot};
use polyshard_map::{BuildError, Delta, Entry, Epoch, KeyRange, Map, MapName, Segment, ShardId};
use polyshard_shard::Departure;
use uuid::Uuid;

/// A map as a router knows it.
#[derive(Debug, Clone)]
pub struct KnownMap {
    /// Its entries.
    pub map: Map,
    /// The catalog's version of it.
    pub version: u64,
}

/// Everything a router believes.
#[derive(Debug, Clone)]
pub struct View {
    /// The cluster.
    pub cluster: Uuid,
    /// The last event applied.
    pub seq: u64,
    /// The highest epoch known when the whole was last read from the catalog.
    pub epoch: Epoch,
    /// Maps by name.
    pub maps: BTreeMap<MapName, Arc<KnownMap>>,
    /// Shards by name.
    pub shards: BTreeMap<ShardId, Arc<ShardRecord>>,
    /// Datasets by store and name.
    pub datasets: BTreeMap<(String, String), Arc<DatasetRecord>>,
}

impl View {
    /// Nothing yet.
    pub fn empty() -> View {
        View {
            cluster: Uuid::nil(),
            seq: 0,
            epoch: Epoch::ZERO,
            maps: BTreeMap::new(),
            shards: BTreeMap::new(),
            datasets: BTreeMap::new(),
        }
    }

    /// As read from the catalog.
    pub fn from_snapshot(snapshot: Snapshot) -> Result<View, BuildError> {
        let mut view =
            View { cluster: snapshot.cluster, seq: snapshot.seq, epoch: snapshot.epoch, ..View::empty() };
        view.set_shards(snapshot.shards);
        for contents in snapshot.maps {
            view.set_map(contents)?;
        }
        for record in snapshot.datasets {
            view.set_dataset(record);
        }
        Ok(view)
    }

    /// Adds or replaces a dataset, unless a newer version is there.
    pub fn set_dataset(&mut self, record: DatasetRecord) {
        let key = (record.store.clone(), record.name.clone());
        let newer = |known: &Arc<DatasetRecord>| {
            known.id > record.id || known.version > record.version && known.id == record.id
        };
        if !self.datasets.get(&key).is_some_and(newer) {
            self.datasets.insert(key, Arc::new(record));
        }
    }

    /// Replaces the list of shards.
    pub fn set_shards(&mut self, shards: Vec<ShardRecord>) {
        self.shards = shards.into_iter().map(|record| (record.id.clone(), Arc::new(record))).collect();
    }

    /// Replaces one map.
    pub fn set_map(&mut self, contents: MapContents) -> Result<(), BuildError> {
        let MapRecord { definition, epoch, version, .. } = contents.record;
        let name = definition.name().clone();
        let map = Map::build(definition, contents.entries.into_iter(), epoch)?;
        self.maps.insert(name, Arc::new(KnownMap { map, version }));
        Ok(())
    }

    /// Applies a published change of a map's entries. The other events need the catalog: see the follower.
    pub fn apply(&mut self, event: &Event) -> Result<(), BuildError> {
        match event {
            Event::Changed { map, epoch, version, delta } => {
                let Some(known) = self.maps.get(map) else { return Ok(()) };
                // An event that is applied once more must not bring old segments back.
                let segments = delta.segments.clone().filter(|_| *epoch >= known.map.epoch());
                let next = overlay(&known.map, &delta.remove, &delta.put, segments, *epoch)?;
                let version = known.version.max(*version);
                self.maps.insert(map.clone(), Arc::new(KnownMap { map: next, version }));
            }
            Event::Dropped { map } => drop(self.maps.remove(map)),
            Event::Dataset { record } => self.set_dataset(record.clone()),
            Event::DatasetGone { store, name } => drop(self.datasets.remove(&(store.clone(), name.clone()))),
            Event::Reload { .. } | Event::Shards => {}
        }
        Ok(())
    }

    /// Takes in that a range has left a shard, told by that shard itself, maybe before the catalog says so.
    /// It speaks for itself only: what the view has on another shard is not its to give away.
    pub fn depart(&mut self, from: &ShardId, departure: &Departure) -> Result<(), BuildError> {
        let Some(known) = self.maps.get(&departure.map) else { return Ok(()) };
        let mine = known.map.entries(&departure.range).filter(|entry| entry.shard == *from);
        let pieces: Vec<KeyRange> =
            mine.filter_map(|entry| entry.range.intersect(&departure.range)).collect();
        let arrives = |range: &KeyRange| {
            Some(Entry {
                range: range.clone(),
                shard: departure.to.clone()?,
                state: departure.state,
                epoch: departure.epoch,
                group: None,
                lock: None,
            })
        };
        let put: Vec<Entry> = pieces.iter().filter_map(arrives).collect();
        let next = overlay(&known.map, &pieces, &put, None, departure.epoch)?;
        let version = known.version;
        self.maps.insert(departure.map.clone(), Arc::new(KnownMap { map: next, version }));
        Ok(())
    }
}

/// Puts entries of an epoch over a map, and clears the given area: but never what is of that epoch or newer.
fn overlay(
    map: &Map,
    clear: &[KeyRange],
    put: &[Entry],
    segments: Option<Vec<Segment>>,
    epoch: Epoch,
) -> Result<Map, BuildError> {
    let area: Vec<KeyRange> =
        clear.iter().cloned().chain(put.iter().map(|entry| entry.range.clone())).collect();
    let mut old: Vec<Entry> = area.iter().flat_map(|range| map.entries(range).collect::<Vec<_>>()).collect();
    old.sort_by(|a, b| a.range.cmp(&b.range));
    old.dedup_by(|a, b| a.range == b.range);
    let (newer, older): (Vec<Entry>, Vec<Entry>) = old.into_iter().partition(|entry| entry.epoch >= epoch);
    let without = |range: &KeyRange, cut: &[KeyRange]| {
        cut.iter().fold(vec![range.clone()], |pieces, piece| {
            pieces.iter().flat_map(|range| range.subtract(piece)).collect()
        })
    };
    let newer_ranges: Vec<KeyRange> = newer.into_iter().map(|entry| entry.range).collect();
    let pieces_of = |entry: &Entry, cut: &[KeyRange]| -> Vec<Entry> {
        without(&entry.range, cut).into_iter().map(|range| Entry { range, ..entry.clone() }).collect()
    };
    let mut next: Vec<Entry> = older.iter().flat_map(|entry| pieces_of(entry, &area)).collect();
    next.extend(put.iter().flat_map(|entry| pieces_of(entry, &newer_ranges)));
    next.sort_by(|a, b| a.range.cmp(&b.range));
    let delta = Delta { remove: older.into_iter().map(|entry| entry.range).collect(), put: next, segments };
    map.with(&delta, map.epoch().max(epoch))
}
