//! About a thousand entries in columns: small in memory, and quick to search.
//!
//! A column of 64-bit key pieces is searched first; full keys are compared only where those are equal. Upper bounds are
//! mostly implied (one key, or where the next entry begins); groups and locks are rare and sit in side tables.

use std::cmp::Ordering;

use crate::encode::KeyBytes;
use crate::entry::{Entry, Lock, State};
use crate::ids::{Epoch, GroupName, ShardId};
use crate::range::KeyRange;

/// Entries a chunk is built with: a change rewrites one chunk, a locate searches one.
pub(crate) const CHUNK_ENTRIES: usize = 1000;
/// A chunk that a change leaves with fewer is joined with its neighbour.
pub(crate) const CHUNK_ENTRIES_MIN: usize = 250;

/// Sorted keys, searchable without touching their bytes in most cases.
#[derive(Debug, Default)]
pub(crate) struct SortedKeys {
    /// What all keys begin with.
    shared: Box<[u8]>,
    /// The next 8 bytes of each key, big-endian, zeros beyond its end.
    pieces: Box<[u64]>,
    /// Where each key ends in `bytes`.
    ends: Box<[u32]>,
    /// All keys without what they share.
    bytes: Box<[u8]>,
}

impl SortedKeys {
    pub(crate) fn new<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone) -> SortedKeys {
        let shared = match (keys.clone().next(), keys.clone().last()) {
            (Some(first), Some(last)) => first.iter().zip(last).take_while(|(a, b)| a == b).count(),
            _ => 0,
        };
        let head = keys.clone().next().map_or(&[][..], |first| &first[..shared]);
        let mut pieces = Vec::with_capacity(keys.len());
        let mut ends = Vec::with_capacity(keys.len());
        let mut bytes = Vec::new();
        for key in keys {
            let rest = &key[shared..];
            pieces.push(piece(rest));
            bytes.extend_from_slice(rest);
            // A chunk has about a thousand keys of at most a few KB.
            ends.push(u32::try_from(bytes.len()).expect("keys of a chunk are below 4 GB"));
        }
        SortedKeys { shared: head.into(), pieces: pieces.into(), ends: ends.into(), bytes: bytes.into() }
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// How many keys are at or below this one.
    pub(crate) fn at_or_below(&self, key: &[u8]) -> usize {
        let head = &key[..key.len().min(self.shared.len())];
        match head.cmp(&self.shared) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.len(),
            Ordering::Equal => {}
        }
        let rest = &key[head.len()..];
        let wanted = piece(rest);
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let is_at_or_below = match self.pieces[middle].cmp(&wanted) {
                Ordering::Less => true,
                Ordering::Greater => false,
                Ordering::Equal => self.rest(middle) <= rest,
            };
            if is_at_or_below {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    pub(crate) fn get(&self, index: usize) -> KeyBytes {
        KeyBytes::new([&self.shared, self.rest(index)].concat())
    }

    fn rest(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    fn heap_bytes(&self) -> usize {
        self.shared.len() + self.pieces.len() * 8 + self.ends.len() * 4 + self.bytes.len()
    }
}

fn piece(rest: &[u8]) -> u64 {
    match rest.first_chunk::<8>() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(padded)
        }
    }
}

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

/// Columns of about a thousand entries; never empty.
#[derive(Debug)]
pub(crate) struct Chunk {
    los: SortedKeys,
    ends: Box<[End]>,
    states: Box<[State]>,
    shard_of: Box<[u16]>,
    epochs: Box<[Epoch]>,
    /// The shards of this chunk, each once.
    shards: Box<[ShardId]>,
    his: Side<KeyBytes>,
    groups: Side<GroupName>,
    locks: Side<Lock>,
}

/// Values that few entries have, by entry.
type Side<T> = Box<[(u32, T)]>;

impl Chunk {
    /// Builds a chunk of entries that are sorted and do not overlap.
    pub(crate) fn new(entries: &[Entry]) -> Chunk {
        let mut shards: Vec<ShardId> = Vec::new();
        let mut shard_of = Vec::with_capacity(entries.len());
        let mut ends = Vec::with_capacity(entries.len());
        let (mut his, mut groups, mut locks) = (Vec::new(), Vec::<(u32, GroupName)>::new(), Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            let number = index as u32;
            // Most neighbours are on the same shard: look at the last one first.
            let known = shards.iter().rposition(|shard| *shard == entry.shard);
            let shard = known.unwrap_or_else(|| {
                shards.push(entry.shard.clone());
                shards.len() - 1
            });
            shard_of.push(u16::try_from(shard).expect("a chunk has fewer entries than 65536"));
            let next = entries.get(index + 1).map(|next| next.range.lo());
            ends.push(match entry.range.hi() {
                None => End::Infinity,
                _ if entry.range.is_point() => End::Point,
                hi if hi == next => End::Next,
                Some(hi) => {
                    his.push((number, hi.clone()));
                    End::Stored
                }
            });
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
            ends: ends.into(),
            states: entries.iter().map(|entry| entry.state).collect(),
            shard_of: shard_of.into(),
            epochs: entries.iter().map(|entry| entry.epoch).collect(),
            shards: shards.into(),
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
        let index = self.los.at_or_below(placement).checked_sub(1)?;
        let inside = match self.ends[index] {
            // Nothing lies between a key and its successor.
            End::Point => self.lo_len(index) == placement.len() && self.lo_is(index, placement),
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
        let hi = match self.ends[index] {
            End::Point => return KeyRange::point(lo),
            End::Next => Some(self.lo(index + 1)),
            End::Infinity => None,
            End::Stored => side(&self.his, index).cloned(),
        };
        KeyRange::new(lo, hi).expect("entries were ranges when the chunk was built")
    }

    pub(crate) fn shard(&self, index: usize) -> &ShardId {
        &self.shards[usize::from(self.shard_of[index])]
    }

    pub(crate) fn state(&self, index: usize) -> State {
        self.states[index]
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

    /// The shards of this chunk, each once.
    pub(crate) fn shards(&self) -> &[ShardId] {
        &self.shards
    }

    /// The entries that carry a group.
    pub(crate) fn grouped(&self) -> impl Iterator<Item = (usize, &GroupName)> {
        self.groups.iter().map(|(index, group)| (*index as usize, group))
    }

    /// How many entries each of [`Chunk::shards`] has.
    pub(crate) fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.shards.len()];
        self.shard_of.iter().for_each(|shard| counts[usize::from(*shard)] += 1);
        counts
    }

    /// What the columns take in memory, to the byte for fixed-size keys.
    pub(crate) fn heap_bytes(&self) -> usize {
        let columns =
            self.len() * (size_of::<End>() + size_of::<State>() + size_of::<u16>() + size_of::<Epoch>());
        let sides = self
            .his
            .iter()
            .map(|(_, hi)| size_of::<(u32, KeyBytes)>() + hi.as_slice().len())
            .sum::<usize>()
            + self.groups.len() * size_of::<(u32, GroupName)>()
            + self.locks.iter().map(|(_, lock)| size_of::<(u32, Lock)>() + lock.owner().len()).sum::<usize>();
        size_of::<Chunk>() + self.los.heap_bytes() + columns + size_of_val(&*self.shards) + sides
    }

    fn lo_len(&self, index: usize) -> usize {
        self.los.shared.len() + self.los.rest(index).len()
    }

    /// Whether the placement, known to be at or above the lower bound and as long, is it.
    fn lo_is(&self, index: usize, placement: &[u8]) -> bool {
        placement[self.los.shared.len()..] == *self.los.rest(index) && placement.starts_with(&self.los.shared)
    }
}

fn side<T>(side: &Side<T>, index: usize) -> Option<&T> {
    if side.is_empty() {
        return None;
    }
    let found = side.binary_search_by_key(&(index as u32), |(entry, _)| *entry).ok()?;
    Some(&side[found].1)
}
