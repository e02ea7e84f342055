//! What a router believes: maps and shards as of some event. Immutable; a change makes a new one that shares the
//! rest. For each range the highest epoch wins, so events and departures may come twice or in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polyshard_catalog::{DatasetRecord, Event, MapContents, MapRecord, ShardRecord, Snapshot};
use polyshard_map::{BuildError, Delta, Entry, Epoch, KeyRange, Map, MapName, Segment, ShardId};
use polyshard_shard::Departure;
use uuid::Uuid;

/// A map as a router knows it.
#[derive(Debug, Clone)]
pub struct KnownMap {
    /// Its entries, with what shards have told of departures.
    pub map: Map,
    /// Its entries as the catalog has published them.
    pub published: Map,
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
    /// The highest epoch known of the catalog.
    pub epoch: Epoch,
    /// Epochs up to there of operations that were not published when last heard of.
    pub unsettled: BTreeSet<Epoch>,
    /// Maps by name.
    pub maps: BTreeMap<MapName, Arc<KnownMap>>,
    /// Shards by name.
    pub shards: BTreeMap<ShardId, Arc<ShardRecord>>,
    /// Datasets by store and name.
    pub datasets: BTreeMap<(String, String), Arc<DatasetRecord>>,
    /// The last position heard of the journal of what all shards have alike.
    pub journal: u64,
    /// What shards have told of departures by operations that are not settled, by epoch. Kept until they are: a
    /// shard tells only once, and the entries that a departure is about may come later than it.
    departures: Vec<Departure>,
}

impl View {
    /// Nothing yet.
    pub fn empty() -> View {
        View {
            cluster: Uuid::nil(),
            seq: 0,
            epoch: Epoch::ZERO,
            unsettled: BTreeSet::new(),
            maps: BTreeMap::new(),
            shards: BTreeMap::new(),
            datasets: BTreeMap::new(),
            journal: 0,
            departures: Vec::new(),
        }
    }

    /// As read from the catalog.
    pub fn from_snapshot(snapshot: Snapshot) -> Result<View, BuildError> {
        let mut view = View {
            cluster: snapshot.cluster,
            seq: snapshot.seq,
            epoch: snapshot.epoch,
            unsettled: snapshot.running.into_iter().collect(),
            journal: snapshot.journal,
            ..View::empty()
        };
        view.set_shards(snapshot.shards);
        for contents in snapshot.maps {
            view.set_map(contents)?;
        }
        for record in snapshot.datasets {
            view.set_dataset(record);
        }
        Ok(view)
    }

    /// The datasets of a store, in the order of their names.
    pub fn datasets_of<'a>(&'a self, store: &'a str) -> impl Iterator<Item = &'a Arc<DatasetRecord>> {
        let from = self.datasets.range((store.to_owned(), String::new())..);
        from.take_while(move |((own, _), _)| own == store).map(|(_, record)| record)
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
        let published = Map::build(definition, contents.entries.into_iter(), epoch)?;
        self.publish(name, published, version)
    }

    /// Applies a published change of a map's entries. The other events need the catalog: see the follower.
    pub fn apply(&mut self, event: &Event) -> Result<(), BuildError> {
        match event {
            Event::Changed { map, epoch, version, delta } => {
                self.settle(*epoch);
                let Some(known) = self.maps.get(map) else { return Ok(()) };
                // An event that is applied once more must not bring old segments back.
                let segments = delta.segments.clone().filter(|_| *epoch >= known.published.epoch());
                let next = overlay(&known.published, &delta.remove, &delta.put, segments, *epoch)?;
                let version = known.version.max(*version);
                self.publish(map.clone(), next, version)?;
            }
            Event::Dropped { map } => drop(self.maps.remove(map)),
            Event::Dataset { record } => self.set_dataset(record.clone()),
            Event::DatasetGone { store, name } => drop(self.datasets.remove(&(store.clone(), name.clone()))),
            Event::Journal { position } => self.journal = self.journal.max(*position),
            Event::Reload { .. } | Event::Shards => {}
        }
        Ok(())
    }

    /// Takes in that a range has left a shard, told by that shard itself, maybe before the catalog says so.
    /// Once the catalog has, its word is the newer one.
    pub fn depart(&mut self, departure: &Departure) -> Result<(), BuildError> {
        if self.is_settled(departure.epoch) || self.departures.contains(departure) {
            return Ok(());
        }
        let at = self.departures.partition_point(|known| known.epoch <= departure.epoch);
        self.departures.insert(at, departure.clone());
        let Some(known) = self.maps.get(&departure.map).cloned() else { return Ok(()) };
        self.publish(departure.map.clone(), known.published.clone(), known.version)
    }

    /// Keeps what shards have told an older view, where this one does not know better.
    pub fn keep_departures(&mut self, older: &View) -> Result<(), BuildError> {
        older.departures.iter().try_for_each(|departure| self.depart(departure))
    }

    /// Whether nothing that happened up to that epoch can be missing in the published entries.
    pub fn is_settled_up_to(&self, epoch: Epoch) -> bool {
        epoch <= self.epoch && self.unsettled.first().is_none_or(|first| *first > epoch)
    }

    /// Whether what the operation of that epoch did is in the published entries, if it did anything.
    fn is_settled(&self, epoch: Epoch) -> bool {
        epoch <= self.epoch && !self.unsettled.contains(&epoch)
    }

    fn settle(&mut self, epoch: Epoch) {
        while self.epoch < epoch {
            self.epoch = self.epoch.next();
            self.unsettled.insert(self.epoch);
        }
        self.unsettled.remove(&epoch);
        self.departures.retain(|departure| departure.epoch != epoch);
    }

    /// Puts a map in force, with the departures over it: in the order of epochs, since one range may have departed
    /// several times.
    fn publish(&mut self, name: MapName, published: Map, version: u64) -> Result<(), BuildError> {
        let mut map = published.clone();
        for departure in self.departures.iter().filter(|departure| departure.map == name) {
            let range = &departure.range;
            // A range that is none here yet cannot be put, only cleared; it comes with the map that has it.
            let fits = map.definition().check_entry_range(range).is_ok();
            let put = departure.to.iter().filter(|_| fits).map(|to| Entry {
                range: range.clone(),
                shard: to.clone(),
                state: departure.state,
                epoch: departure.epoch,
                group: None,
                lock: None,
            });
            let put: Vec<Entry> = put.collect();
            map = overlay(&map, std::slice::from_ref(range), &put, None, departure.epoch)?;
        }
        self.maps.insert(name, Arc::new(KnownMap { map, published, version }));
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
