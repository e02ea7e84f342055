//! About a thousand entries in columns: small in memory, and quick to search.
//!
//! A column of 64-bit key pieces is searched first; full keys are compared only where those are equal. Upper bounds are
//! mostly implied (one key, or where the next entry begins); groups and locks are rare and sit in side tables.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;

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
    /// Every 32nd piece. Memory is the cost of a search in a large map: counting through two short stretches waits for
    /// it twice, a binary search about seven times.
    samples: Box<[u64]>,
    rests: Rests,
}

/// Pieces for one sample: the square root of a chunk, so that both stretches are short.
const SAMPLE_PIECES: usize = 32;

/// What the keys have beyond what they share.
#[derive(Debug)]
enum Rests {
    /// All have this many bytes, at most 8: their pieces say it all.
    Pieces(usize),
    /// Anything else.
    Bytes {
        /// Where each ends in `bytes`.
        ends: Box<[u32]>,
        bytes: Box<[u8]>,
    },
}

impl Default for Rests {
    fn default() -> Rests {
        Rests::Pieces(0)
    }
}

impl SortedKeys {
    pub(crate) fn new<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone) -> SortedKeys {
        let (Some(first), Some(last)) = (keys.clone().next(), keys.clone().last()) else {
            return SortedKeys::default();
        };
        let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let rests = keys.clone().map(|key| &key[shared..]);
        let length = first.len() - shared;
        let pieces: Box<[u64]> = rests.clone().map(piece).collect();
        SortedKeys {
            shared: first[..shared].into(),
            samples: pieces.iter().step_by(SAMPLE_PIECES).copied().collect(),
            pieces,
            rests: match length <= 8 && keys.clone().all(|key| key.len() == first.len()) {
                true => Rests::Pieces(length),
                false => Rests::of(rests),
            },
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// How many keys are at or below this one.
    pub(crate) fn at_or_below(&self, key: &[u8]) -> usize {
        self.search(key, |_| ())
    }

    /// Like [`SortedKeys::at_or_below`]; calls `begin` with an index close to the answer, ahead of it.
    #[inline]
    fn search(&self, key: &[u8], begin: impl Fn(usize)) -> usize {
        let head = &key[..key.len().min(self.shared.len())];
        match head.cmp(&self.shared) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.len(),
            Ordering::Equal => {}
        }
        let rest = &key[head.len()..];
        let wanted = piece(rest);
        let after = self.pieces_at_or_below(wanted, begin);
        if after == 0 || self.pieces[after - 1] != wanted {
            return after;
        }
        // Keys with equal pieces differ further on, or in length.
        let mut before = after - 1;
        if before > 0 && self.pieces[before - 1] == wanted {
            before = self.pieces.partition_point(|piece| *piece < wanted);
        }
        let (mut low, mut high) = (before, after);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.compare_rest(middle, rest) {
                Ordering::Greater => high = middle,
                Ordering::Less | Ordering::Equal => low = middle + 1,
            }
        }
        low
    }

    #[inline]
    fn pieces_at_or_below(&self, wanted: u64, begin: impl Fn(usize)) -> usize {
        let count = |pieces: &[u64]| pieces.iter().map(|piece| usize::from(*piece <= wanted)).sum::<usize>();
        // A map of very many chunks has more samples than one would count through.
        let samples = match self.samples.len() <= 4 * SAMPLE_PIECES {
            true => count(&self.samples),
            false => self.samples.partition_point(|piece| *piece <= wanted),
        };
        let Some(sample) = samples.checked_sub(1) else { return 0 };
        let start = sample * SAMPLE_PIECES;
        begin(start);
        let end = self.len().min(start + SAMPLE_PIECES);
        start + count(&self.pieces[start..end])
    }

    pub(crate) fn get(&self, index: usize) -> KeyBytes {
        let piece = self.pieces[index].to_be_bytes();
        let rest = match &self.rests {
            Rests::Pieces(length) => &piece[..*length],
            Rests::Bytes { .. } => self.rests.get(index),
        };
        KeyBytes::new([&self.shared, rest].concat())
    }

    /// Whether this key, known to be at or below the other, is it.
    fn is(&self, index: usize, key: &[u8]) -> bool {
        let Some(rest) = key.strip_prefix(&*self.shared) else { return false };
        self.pieces[index] == piece(rest) && self.compare_rest(index, rest).is_eq()
    }

    /// Compares what follows the shared bytes, given that the pieces are equal.
    fn compare_rest(&self, index: usize, rest: &[u8]) -> Ordering {
        match &self.rests {
            // With equal pieces the shorter one is continued by zeros in the longer.
            Rests::Pieces(length) => length.cmp(&rest.len()),
            Rests::Bytes { .. } => self.rests.get(index).cmp(rest),
        }
    }

    fn heap_bytes(&self) -> usize {
        let rests = match &self.rests {
            Rests::Pieces(_) => 0,
            Rests::Bytes { ends, bytes } => size_of_val(&**ends) + bytes.len(),
        };
        self.shared.len() + size_of_val(&*self.pieces) + size_of_val(&*self.samples) + rests
    }
}

impl Rests {
    fn of<'k>(rests: impl ExactSizeIterator<Item = &'k [u8]>) -> Rests {
        let mut ends = Vec::with_capacity(rests.len());
        let mut bytes = Vec::new();
        for rest in rests {
            bytes.extend_from_slice(rest);
            // A chunk has about a thousand keys of at most a few KB.
            ends.push(u32::try_from(bytes.len()).expect("keys of a chunk are below 4 GB"));
        }
        Rests::Bytes { ends: ends.into(), bytes: bytes.into() }
    }

    fn get(&self, index: usize) -> &[u8] {
        match self {
            Rests::Pieces(_) => &[],
            Rests::Bytes { ends, bytes } => {
                let start = if index == 0 { 0 } else { ends[index - 1] };
                &bytes[start as usize..ends[index] as usize]
            }
        }
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
        // The place of the entry is read from memory while its key is still being looked for.
        let begin_to_load = |near: usize| {
            black_box(self.places[near].shard);
        };
        let index = self.los.search(placement, begin_to_load).checked_sub(1)?;
        let inside = match self.places[index].end {
            // Nothing lies between a key and its successor.
            End::Point => self.los.is(index, placement),
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
