//! About a thousand entries in columns: small in memory, and quick to search.
//!
//! Lower bounds are [`SortedKeys`]. Upper bounds are mostly implied (one key, or where the next entry begins); groups
//! and locks are rare and sit in side tables.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

use crate::encode::KeyBytes;
use crate::entry::{Entry, Lock, State};
use crate::ids::{Epoch, GroupName, ShardId};
use crate::range::KeyRange;
use crate::sorted::{STRIDE, SortedKeys};

/// Entries a chunk is built with: a change rewrites one chunk, a locate searches one.
pub(crate) const CHUNK_ENTRIES: usize = 1000;
/// A chunk that a change leaves with fewer is joined with its neighbour.
pub(crate) const CHUNK_ENTRIES_MIN: usize = 250;

/// Where an entry ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// After its one key.
    Point,
    /// Where the next entry of the chunk begins.
    Next,
    /// Nowhere.
    Infinity,
    /// As written in the side table.
    Stored,
}

/// Where an entry ends, where it is, and what may be done there.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Index into the shards of the chunk.
    shard: u16,
    end: End,
    state: State,
}

/// Columns of about a thousand entries; never empty.
#[derive(Debug)]
pub(crate) struct Chunk {
    los: SortedKeys,
    /// Read together by every locate, so kept together.
    places: Box<[Place]>,
    epochs: Box<[Epoch]>,
    /// The shards of this chunk, each once, and perhaps others: shared with the chunk before where that has them all,
    /// so that in a large map they stay in the near caches.
    shards: Arc<[ShardId]>,
    his: Side<KeyBytes>,
    groups: Side<GroupName>,
    locks: Side<Lock>,
}

/// Values that few entries have, by entry.
type Side<T> = Box<[(u32, T)]>;

impl Chunk {
    /// Builds a chunk of entries that are sorted and do not overlap, after another chunk.
    pub(crate) fn new(entries: &[Entry], before: Option<&Chunk>) -> Chunk {
        let shards = shards_of(entries, before);
        let mut places = Vec::with_capacity(entries.len());
        let (mut his, mut groups, mut locks) = (Vec::new(), Vec::<(u32, GroupName)>::new(), Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            let number = index as u32;
            let shard = shards.iter().position(|shard| *shard == entry.shard);
            let shard = shard.expect("the shards are those of the entries");
            let shard = u16::try_from(shard).expect("a chunk has fewer entries than 65536");
            let next = entries.get(index + 1).map(|next| next.range.lo());
            let end = match entry.range.hi() {
                None => End::Infinity,
                _ if entry.range.is_point() => End::Point,
                hi if hi == next => End::Next,
                Some(hi) => {
                    his.push((number, hi.clone()));
                    End::Stored
                }
            };
            places.push(Place { shard, end, state: entry.state });
            if let Some(group) = &entry.group {
                // One allocation for all members of a group in this chunk.
                let known = groups.iter().rev().take(16).find(|(_, known)| known == group);
                let group = known.map_or_else(|| group.clone(), |(_, known)| known.clone());
                groups.push((number, group));
            }
            if let Some(lock) = &entry.lock {
                locks.push((number, lock.clone()));
            }
        }
        Chunk {
            los: SortedKeys::new(entries.iter().map(|entry| entry.range.lo().as_slice())),
            places: places.into(),
            epochs: entries.iter().map(|entry| entry.epoch).collect(),
            shards,
            his: his.into(),
            groups: groups.into(),
            locks: locks.into(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.los.len()
    }

    /// The entry that has this placement.
    pub(crate) fn find(&self, placement: &[u8]) -> Option<usize> {
        // The places around the entry are read from memory while its key is still being looked for: they lie in at
        // most three cache lines.
        let begin_to_load = |near: usize| {
            for ahead in [near, near + STRIDE / 2, near + STRIDE - 1] {
                black_box(self.places[ahead.min(self.places.len() - 1)].shard);
            }
        };
        let found = self.los.search(placement, begin_to_load);
        let index = found.count.checked_sub(1)?;
        let inside = match self.places[index].end {
            // Nothing lies between a key and its successor.
            End::Point => found.exact,
            End::Next | End::Infinity => true,
            End::Stored => side(&self.his, index).is_some_and(|hi| placement < hi.as_slice()),
        };
        inside.then_some(index)
    }

    /// How many entries begin at or below this bound.
    pub(crate) fn at_or_below(&self, bound: &[u8]) -> usize {
        self.los.at_or_below(bound)
    }

    pub(crate) fn lo(&self, index: usize) -> KeyBytes {
        self.los.get(index)
    }

    pub(crate) fn range(&self, index: usize) -> KeyRange {
        let lo = self.lo(index);
        let hi = match self.places[index].end {
            End::Point => return KeyRange::point(lo),
            End::Next => Some(self.lo(index + 1)),
            End::Infinity => None,
            End::Stored => side(&self.his, index).cloned(),
        };
        KeyRange::new(lo, hi).expect("entries were ranges when the chunk was built")
    }

    pub(crate) fn shard(&self, index: usize) -> &ShardId {
        &self.shards[usize::from(self.places[index].shard)]
    }

    pub(crate) fn state(&self, index: usize) -> State {
        self.places[index].state
    }

    pub(crate) fn epoch(&self, index: usize) -> Epoch {
        self.epochs[index]
    }

    pub(crate) fn group(&self, index: usize) -> Option<&GroupName> {
        side(&self.groups, index)
    }

    pub(crate) fn lock(&self, index: usize) -> Option<&Lock> {
        side(&self.locks, index)
    }

    pub(crate) fn entry(&self, index: usize) -> Entry {
        Entry {
            range: self.range(index),
            shard: self.shard(index).clone(),
            state: self.state(index),
            epoch: self.epoch(index),
            group: self.group(index).cloned(),
            lock: self.lock(index).cloned(),
        }
    }

    /// The entries that carry a group.
    pub(crate) fn grouped(&self) -> impl Iterator<Item = (usize, &GroupName)> {
        self.groups.iter().map(|(index, group)| (*index as usize, group))
    }

    /// How many entries each shard has.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&ShardId, usize)> {
        let mut counts = vec![0; self.shards.len()];
        self.places.iter().for_each(|place| counts[usize::from(place.shard)] += 1);
        self.shards.iter().zip(counts).filter(|(_, count)| *count > 0)
    }

    /// What the columns take in memory, to the byte for fixed-size keys.
    pub(crate) fn heap_bytes(&self) -> usize {
        let columns = self.len() * (size_of::<Place>() + size_of::<Epoch>());
        let sides = self
            .his
            .iter()
            .map(|(_, hi)| size_of::<(u32, KeyBytes)>() + hi.as_slice().len())
            .sum::<usize>()
            + self.groups.len() * size_of::<(u32, GroupName)>()
            + self.locks.iter().map(|(_, lock)| size_of::<(u32, Lock)>() + lock.owner().len()).sum::<usize>();
        size_of::<Chunk>() + self.los.heap_bytes() + columns + size_of_val(&*self.shards) + sides
    }
}

/// More than this many shards are not shared between chunks: looking for one in a long list costs too much.
const SHARED_SHARDS_MAX: usize = 64;

fn shards_of(entries: &[Entry], before: Option<&Chunk>) -> Arc<[ShardId]> {
    let shared = before.map(|chunk| &chunk.shards).filter(|shards| shards.len() <= SHARED_SHARDS_MAX);
    if let Some(shards) = shared.filter(|shards| entries.iter().all(|entry| shards.contains(&entry.shard))) {
        return shards.clone();
    }
    let shards: BTreeSet<&ShardId> = entries.iter().map(|entry| &entry.shard).collect();
    shards.into_iter().cloned().collect()
}

fn side<T>(side: &Side<T>, index: usize) -> Option<&T> {
    if side.is_empty() {
        return None;
    }
    let found = side.binary_search_by_key(&(index as u32), |(entry, _)| *entry).ok()?;
    Some(&side[found].1)
}
