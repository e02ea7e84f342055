//! An index of a map's entries by position, so that any part of it is shown in pieces without a walk over the rest.

use std::collections::HashMap;
use std::sync::Arc;

use polyshard_admin::convert::{entry_view, range_view};
use polyshard_admin::types::{Part, Piece, Unit, WindowAnswer};
use polyshard_map::{Entry, KeyBytes, KeyRange, MapName, Scheme, ShardId, State};
use polyshard_router::view::KnownMap;

/// Every so many entries the place in the map is remembered.
const STEP: usize = 1024;
/// Shards named in one piece: more cannot be told apart in it.
const PARTS_MAX: usize = 4;

/// One map's entries by position.
pub(super) struct Index {
    known: Arc<KnownMap>,
    unit: Unit,
    total: u64,
    shards: Vec<ShardId>,
    entries: Vec<Slot>,
    /// The lower bound of every [`STEP`]th entry.
    steps: Vec<KeyBytes>,
}

/// What is kept of each entry: a dozen bytes.
#[derive(Clone, Copy)]
struct Slot {
    first: u32,
    end: u32,
    shard: u16,
    state: State,
}

impl Index {
    pub(super) fn new(known: Arc<KnownMap>) -> Index {
        let definition = known.map.definition();
        let hash = match definition.scheme() {
            Scheme::Hash(hash) => Some(hash),
            _ => None,
        };
        let (mut shards, mut numbers) = (Vec::new(), HashMap::<ShardId, u16>::new());
        let (mut entries, mut steps) = (Vec::with_capacity(known.map.len()), Vec::new());
        let everything = KeyRange::all();
        for (index, located) in known.map.located(&everything).enumerate() {
            // Whole entries are only built where they are needed; shards are few and follow each other.
            let shard = match numbers.get(located.shard()) {
                Some(number) => *number,
                None => {
                    // A cluster has thousands of shards at most; beyond the type they share the last colour.
                    let number = u16::try_from(shards.len()).unwrap_or(u16::MAX);
                    shards.push(located.shard().clone());
                    numbers.insert(located.shard().clone(), number);
                    number
                }
            };
            let position = |bound: Option<&KeyBytes>| {
                bound.and_then(|bound| definition.bucket_of(bound.as_slice())).map(|(_, bucket)| bucket)
            };
            let (first, end) = match hash {
                Some(hash) => {
                    let range = located.range();
                    let end = position(range.hi()).unwrap_or(hash.buckets());
                    (position(Some(range.lo())).unwrap_or(0), end)
                }
                None => (index as u32, index as u32 + 1),
            };
            if index.is_multiple_of(STEP) {
                steps.push(located.range().lo().clone());
            }
            entries.push(Slot { first, end, shard, state: located.state() });
        }
        let total = hash.map_or(entries.len() as u64, |hash| hash.buckets().into());
        let unit = if hash.is_some() { Unit::Bucket } else { Unit::Entry };
        Index { known, unit, total, shards, entries, steps }
    }

    /// Whether it is of this very state of the map.
    pub(super) fn is_of(&self, known: &Arc<KnownMap>) -> bool {
        Arc::ptr_eq(&self.known, known)
    }

    /// The position of the entry that has a placement.
    pub(super) fn position(&self, placement: &KeyBytes) -> Option<u64> {
        let step = self.steps.partition_point(|lo| lo <= placement).checked_sub(1)?;
        let from = KeyRange::new(self.steps[step].clone(), None).ok()?;
        let within = self.known.map.located(&from).take(STEP);
        let at = within.into_iter().position(|located| located.range().contains(placement.as_slice()))?;
        self.entries.get(step * STEP + at).map(|slot| slot.first.into())
    }

    pub(super) fn window(
        &self,
        map: MapName,
        first: u64,
        count: Option<u64>,
        pieces_max: usize,
        now_ms: i64,
    ) -> WindowAnswer {
        let first = first.min(self.total.saturating_sub(1));
        let count = count.unwrap_or(u64::MAX).min(self.total - first);
        let end = first + count;
        let from = self.entries.partition_point(|slot| u64::from(slot.end) <= first);
        let to = self.entries.partition_point(|slot| u64::from(slot.first) < end);
        let definition = self.known.map.definition();
        let shown =
            |index: usize| self.walk(index, 1).first().map(|entry| range_view(definition, &entry.range));
        let pieces = if to - from <= pieces_max {
            self.single(from, to, now_ms)
        } else {
            self.joined(from, to, first, count, pieces_max)
        };
        WindowAnswer {
            map,
            version: self.known.version,
            epoch: self.known.map.epoch().get(),
            unit: self.unit,
            total: self.total,
            first,
            count,
            from: if from < to { shown(from) } else { None },
            to: if from < to { shown(to - 1) } else { None },
            pieces,
        }
    }

    /// So many entries from a number on, in order.
    fn walk(&self, index: usize, count: usize) -> Vec<Entry> {
        let Some(lo) = self.steps.get(index / STEP) else { return Vec::new() };
        let Ok(range) = KeyRange::new(lo.clone(), None) else { return Vec::new() };
        let located = self.known.map.located(&range).skip(index % STEP).take(count);
        located.map(|located| located.entry()).collect()
    }

    /// One piece for each entry.
    fn single(&self, from: usize, to: usize, now_ms: i64) -> Vec<Piece> {
        let definition = self.known.map.definition();
        let slots = self.entries[from..to].iter().zip(self.walk(from, to - from));
        let piece = |(slot, entry): (&Slot, Entry)| Piece {
            first: slot.first.into(),
            count: (slot.end - slot.first).into(),
            entries: 1,
            shards: vec![Part { shard: entry.shard.clone(), count: (slot.end - slot.first).into() }],
            state: entry.state,
            entry: Some(entry_view(definition, &entry, now_ms)),
        };
        slots.map(piece).collect()
    }

    /// Many entries in equal pieces.
    fn joined(&self, from: usize, to: usize, first: u64, count: u64, pieces: usize) -> Vec<Piece> {
        let bound = |piece: usize| first + count * piece as u64 / pieces as u64;
        let mut joined = Vec::with_capacity(pieces);
        let mut next = from;
        for piece in 0..pieces {
            let (lo, hi) = (bound(piece), bound(piece + 1));
            let mut parts: Vec<(u16, u64)> = Vec::new();
            let (mut state, mut entries) = (State::Online, 0);
            let mut index = next;
            while index < to && u64::from(self.entries[index].first) < hi {
                let slot = self.entries[index];
                let (slot_end, slot_first) = (u64::from(slot.end), u64::from(slot.first));
                let inside = slot_end.min(hi).saturating_sub(slot_first.max(lo));
                if inside > 0 {
                    match parts.iter_mut().find(|(shard, _)| *shard == slot.shard) {
                        Some((_, count)) => *count += inside,
                        None => parts.push((slot.shard, inside)),
                    }
                    entries += 1;
                    state = worse(state, slot.state);
                }
                if slot_end > hi {
                    break;
                }
                index += 1;
            }
            next = index;
            if parts.is_empty() {
                continue;
            }
            parts.sort_by_key(|(shard, count)| (std::cmp::Reverse(*count), *shard));
            parts.truncate(PARTS_MAX);
            let part = |(shard, count): (u16, u64)| {
                Some(Part { shard: self.shards.get(usize::from(shard))?.clone(), count })
            };
            let shards = parts.into_iter().filter_map(part).collect();
            joined.push(Piece { first: lo, count: hi - lo, entries, shards, state, entry: None });
        }
        joined
    }
}

fn worse(one: State, other: State) -> State {
    match (one, other) {
        (State::Offline, _) | (_, State::Offline) => State::Offline,
        (State::ReadOnly, _) | (_, State::ReadOnly) => State::ReadOnly,
        _ => State::Online,
    }
}

#[cfg(test)]
mod tests;
