//! A whole map in memory: immutable, in copy-on-write chunks, so that a change costs the touched chunks only.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::change::{Change, Delta};
use crate::chunk::{CHUNK_ENTRIES, CHUNK_ENTRIES_MIN, Chunk};
use crate::definition::MapDefinition;
use crate::encode::{KeyBytes, Scratch};
use crate::entry::{Entry, Lock, State};
use crate::error::{BuildError, LocateError};
use crate::ids::{Epoch, GroupName, ShardId};
use crate::key::Key;
use crate::range::KeyRange;
use crate::sorted::SortedKeys;

/// A definition and its sorted, non-overlapping entries as of one epoch. Cloning shares all chunks.
#[derive(Clone, Debug)]
pub struct Map {
    definition: Arc<MapDefinition>,
    epoch: Epoch,
    /// The lower bound of the first entry of each chunk.
    firsts: Arc<SortedKeys>,
    chunks: Arc<[Arc<Chunk>]>,
    len: usize,
}

/// The entry that has a key. Its parts are read when asked for; none but the range and the entry costs an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Located<'a> {
    chunk: &'a Chunk,
    index: usize,
}

impl<'a> Located<'a> {
    /// Where the key is.
    pub fn shard(&self) -> &'a ShardId {
        self.chunk.shard(self.index)
    }

    /// What may be done there.
    pub fn state(&self) -> State {
        self.chunk.state(self.index)
    }

    /// The epoch of the change that last touched the entry.
    pub fn epoch(&self) -> Epoch {
        self.chunk.epoch(self.index)
    }

    /// The range of the entry.
    pub fn range(&self) -> KeyRange {
        self.chunk.range(self.index)
    }

    /// The set it lives and moves with.
    pub fn group(&self) -> Option<&'a GroupName> {
        self.chunk.group(self.index)
    }

    /// Who holds it; may have expired.
    pub fn lock(&self) -> Option<&'a Lock> {
        self.chunk.lock(self.index)
    }

    /// All of it.
    pub fn entry(&self) -> Entry {
        self.chunk.entry(self.index)
    }
}

impl Map {
    /// Builds a map of entries sorted by lower bound.
    pub fn build(
        definition: MapDefinition,
        entries: impl Iterator<Item = Entry>,
        epoch: Epoch,
    ) -> Result<Map, BuildError> {
        let mut builder = Builder { definition: &definition, chunks: Vec::new(), last_hi: None };
        let mut homes: HashMap<GroupName, ShardId> = HashMap::new();
        let mut pending: Vec<Entry> = Vec::with_capacity(CHUNK_ENTRIES);
        for entry in entries {
            check_entry(&definition, &entry)?;
            if let Some(group) = &entry.group {
                let home = homes.entry(group.clone()).or_insert_with(|| entry.shard.clone());
                if *home != entry.shard {
                    let reason =
                        format!("its group {group} is also on shard {home}, and a group is on one shard");
                    return Err(BuildError::BadEntry {
                        entry: definition.describe_range(&entry.range),
                        reason,
                    });
                }
            }
            pending.push(entry);
            if pending.len() == CHUNK_ENTRIES {
                builder.push_entries(&pending)?;
                pending.clear();
            }
        }
        builder.push_entries(&pending)?;
        let chunks = builder.chunks;
        Ok(Map::of_chunks(Arc::new(definition), chunks, epoch))
    }

    /// Name, key type and scheme.
    pub fn definition(&self) -> &MapDefinition {
        &self.definition
    }

    /// The epoch as of which it is.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the key lies in the space the entries are over.
    pub fn placement(&self, key: &Key) -> Result<KeyBytes, LocateError> {
        self.definition.placement(key)
    }

    /// The entry that has the key. Allocates only for keys of more than 64 encoded bytes.
    pub fn locate(&self, key: &Key) -> Result<Located<'_>, LocateError> {
        let mut scratch = Scratch::new();
        self.definition.place(key, &mut scratch)?;
        self.locate_placement(scratch.as_slice()).ok_or_else(|| self.definition.gap(key))
    }

    /// The entry that has the placement.
    pub fn locate_placement(&self, placement: &[u8]) -> Option<Located<'_>> {
        let chunk = match self.chunks.len() {
            0 => return None,
            1 => 0,
            _ => self.firsts.at_or_below(placement).checked_sub(1)?,
        };
        let chunk = self.chunks[chunk].as_ref();
        chunk.find(placement).map(|index| Located { chunk, index })
    }

    /// The entries that overlap the range, in order.
    pub fn entries<'m>(&'m self, range: &'m KeyRange) -> impl Iterator<Item = Entry> + 'm {
        self.located(range).map(|located| located.entry())
    }

    /// Like [`Map::entries`], without building each entry.
    pub fn located<'m>(&'m self, range: &'m KeyRange) -> impl Iterator<Item = Located<'m>> + 'm {
        let from = self.position(range.lo());
        let skip_first = from.get(self).is_some_and(|first| !first.range().overlaps(range));
        self.walk(if skip_first { from.after() } else { from }).take_while(|located| match range.hi() {
            Some(hi) => located.chunk.lo(located.index) < *hi,
            None => true,
        })
    }

    /// Every shard that has an entry.
    pub fn shards(&self) -> impl Iterator<Item = &ShardId> {
        let counts = self.chunks.iter().flat_map(|chunk| chunk.counts());
        let shards: BTreeSet<&ShardId> = counts.map(|(shard, _)| shard).collect();
        shards.into_iter()
    }

    /// The shards that have an entry in the range, each once.
    pub fn shards_for(&self, range: &KeyRange) -> Vec<ShardId> {
        let shards: BTreeSet<&ShardId> = self.located(range).map(|located| located.shard()).collect();
        shards.into_iter().cloned().collect()
    }

    /// How many entries each shard has.
    pub fn count_by_shard(&self) -> BTreeMap<ShardId, usize> {
        let mut counts = BTreeMap::new();
        for chunk in self.chunks.iter() {
            for (shard, count) in chunk.counts() {
                *counts.entry(shard.clone()).or_default() += count;
            }
        }
        counts
    }

    /// The entries that [`crate::apply`] must be given for this change.
    pub fn window(&self, change: &Change) -> Vec<Entry> {
        let mut found: BTreeMap<KeyBytes, Entry> = BTreeMap::new();
        for range in change.window() {
            // One step back: the entry before may end where the range begins.
            let from = self.position(range.lo()).before(self);
            let touching = self.walk(from).take_while(|located| match range.hi() {
                Some(hi) => located.chunk.lo(located.index) <= *hi,
                None => true,
            });
            for entry in touching.map(|located| located.entry()).filter(|entry| entry.range.touches(&range)) {
                found.insert(entry.range.lo().clone(), entry);
            }
        }
        let window: Vec<Entry> = found.values().cloned().collect();
        for group in change.groups(&window) {
            for entry in self.group(&group) {
                found.insert(entry.range.lo().clone(), entry);
            }
        }
        found.into_values().collect()
    }

    /// All entries of a group.
    pub fn group<'m>(&'m self, group: &'m GroupName) -> impl Iterator<Item = Entry> + 'm {
        self.chunks.iter().flat_map(move |chunk| {
            chunk.grouped().filter(move |(_, name)| *name == group).map(|(index, _)| chunk.entry(index))
        })
    }

    /// The map after a change, at its epoch. Chunks that the change does not touch are shared with this map.
    pub fn with(&self, delta: &Delta, epoch: Epoch) -> Result<Map, BuildError> {
        let definition =
            match &delta.segments {
                None => self.definition.clone(),
                Some(segments) => Arc::new(self.definition.with_segments(segments.clone()).map_err(|e| {
                    BuildError::BadEntry { entry: "segments".to_owned(), reason: e.to_string() }
                })?),
            };
        let mut edits: BTreeMap<usize, Edit<'_>> = BTreeMap::new();
        let chunk_of = |lo: &KeyBytes| self.firsts.at_or_below(lo.as_slice()).saturating_sub(1);
        for range in &delta.remove {
            edits.entry(chunk_of(range.lo())).or_default().remove.push(range);
        }
        for entry in &delta.put {
            check_entry(&definition, entry)?;
            edits.entry(chunk_of(entry.range.lo())).or_default().put.push(entry);
        }
        let mut builder = Builder { definition: &definition, chunks: Vec::new(), last_hi: None };
        for index in 0..self.chunks.len().max(1) {
            let chunk = self.chunks.get(index);
            match (chunk, edits.get(&index)) {
                (Some(chunk), None) => builder.push_chunk(chunk.clone())?,
                (chunk, Some(edit)) => {
                    builder.push_entries(&edit.apply(&definition, chunk.map(Arc::as_ref))?)?
                }
                (None, None) => {}
            }
        }
        let chunks = builder.chunks;
        Ok(Map::of_chunks(definition, chunks, epoch))
    }

    /// The same map at another epoch: after a change that touched other maps only.
    pub fn at_epoch(&self, epoch: Epoch) -> Map {
        Map { epoch, ..self.clone() }
    }

    /// What the entries take in memory.
    pub fn heap_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.heap_bytes()).sum()
    }

    fn of_chunks(definition: Arc<MapDefinition>, chunks: Vec<Arc<Chunk>>, epoch: Epoch) -> Map {
        let firsts: Vec<KeyBytes> = chunks.iter().map(|chunk| chunk.lo(0)).collect();
        let len = chunks.iter().map(|chunk| chunk.len()).sum();
        let firsts = Arc::new(SortedKeys::new(firsts.iter().map(KeyBytes::as_slice)));
        Map { definition, epoch, firsts, chunks: chunks.into(), len }
    }

    /// The last entry that begins at or below the bound, or the first entry.
    fn position(&self, bound: &KeyBytes) -> Position {
        let chunk = self.firsts.at_or_below(bound.as_slice()).saturating_sub(1);
        let index =
            self.chunks.get(chunk).map_or(0, |found| found.at_or_below(bound.as_slice()).saturating_sub(1));
        Position { chunk, index }
    }

    fn walk(&self, from: Position) -> impl Iterator<Item = Located<'_>> {
        let first = self.chunks.get(from.chunk..).unwrap_or_default();
        first.iter().enumerate().flat_map(move |(number, chunk)| {
            let start = if number == 0 { from.index } else { 0 };
            (start..chunk.len()).map(move |index| Located { chunk, index })
        })
    }
}

/// Equal if they say the same, however they are cut into chunks.
impl PartialEq for Map {
    fn eq(&self, other: &Map) -> bool {
        let all = KeyRange::all();
        self.epoch == other.epoch
            && self.len == other.len
            && self.definition == other.definition
            && self.entries(&all).eq(other.entries(&all))
    }
}

impl Eq for Map {}

/// Where an entry is; may be just past the end.
#[derive(Clone, Copy)]
struct Position {
    chunk: usize,
    index: usize,
}

impl Position {
    fn get(self, map: &Map) -> Option<Located<'_>> {
        let chunk = map.chunks.get(self.chunk)?.as_ref();
        (self.index < chunk.len()).then_some(Located { chunk, index: self.index })
    }

    /// The next entry; past the last of a chunk is the first of the next, which a walk takes by itself.
    fn after(self) -> Position {
        Position { chunk: self.chunk, index: self.index + 1 }
    }

    fn before(self, map: &Map) -> Position {
        match (self.chunk, self.index) {
            (0, 0) => self,
            (chunk, 0) => Position { chunk: chunk - 1, index: map.chunks[chunk - 1].len() - 1 },
            (chunk, index) => Position { chunk, index: index - 1 },
        }
    }
}

/// What a delta does to one chunk.
#[derive(Default)]
struct Edit<'d> {
    remove: Vec<&'d KeyRange>,
    put: Vec<&'d Entry>,
}

impl Edit<'_> {
    fn apply(&self, definition: &MapDefinition, chunk: Option<&Chunk>) -> Result<Vec<Entry>, BuildError> {
        let count = chunk.map_or(0, Chunk::len);
        let mut gone = vec![false; count];
        for range in &self.remove {
            let index = chunk.and_then(|chunk| {
                let index = chunk.at_or_below(range.lo().as_slice()).checked_sub(1)?;
                (chunk.range(index) == **range && !gone[index]).then_some(index)
            });
            let index = index.ok_or_else(|| BuildError::Stale {
                reason: format!("{} is to be removed, and is no entry", definition.describe_range(range)),
            })?;
            gone[index] = true;
        }
        let kept = chunk
            .into_iter()
            .flat_map(|chunk| (0..count).filter(|index| !gone[*index]).map(|index| chunk.entry(index)));
        let mut entries: Vec<Entry> = kept.chain(self.put.iter().map(|entry| (*entry).clone())).collect();
        entries.sort_by(|a, b| a.range.lo().cmp(b.range.lo()));
        Ok(entries)
    }
}

/// Puts chunks one after the other, and sees that none overlaps the one before.
struct Builder<'d> {
    definition: &'d MapDefinition,
    chunks: Vec<Arc<Chunk>>,
    last_hi: Option<Option<KeyBytes>>,
}

impl Builder<'_> {
    fn push_chunk(&mut self, chunk: Arc<Chunk>) -> Result<(), BuildError> {
        let first = chunk.range(0);
        self.check_follows(&first)?;
        self.last_hi = Some(chunk.range(chunk.len() - 1).hi().cloned());
        self.chunks.push(chunk);
        Ok(())
    }

    fn push_entries(&mut self, entries: &[Entry]) -> Result<(), BuildError> {
        let Some(first) = entries.first() else { return Ok(()) };
        self.check_follows(&first.range)?;
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].range.ends_after(pair[1].range.lo())) {
            return Err(self.unsorted(&pair[0].range, &pair[1].range));
        }
        let joined = self.join_small(entries);
        let entries = joined.as_deref().unwrap_or(entries);
        self.last_hi = entries.last().map(|last| last.range.hi().cloned());
        // Up to twice the usual size is left whole, so that a chunk at the edge does not split at every change.
        let size = if entries.len() <= 2 * CHUNK_ENTRIES { entries.len() } else { CHUNK_ENTRIES };
        for part in entries.chunks(size) {
            let chunk = Chunk::new(part, self.chunks.last().map(Arc::as_ref));
            self.chunks.push(Arc::new(chunk));
        }
        Ok(())
    }

    /// Takes the chunk before back if the new one is so small that it should not stand alone.
    fn join_small(&mut self, entries: &[Entry]) -> Option<Vec<Entry>> {
        if entries.len() >= CHUNK_ENTRIES_MIN {
            return None;
        }
        let before = self.chunks.pop()?;
        let before = (0..before.len()).map(|index| before.entry(index));
        Some(before.chain(entries.iter().cloned()).collect())
    }

    fn check_follows(&self, next: &KeyRange) -> Result<(), BuildError> {
        let follows = match &self.last_hi {
            None => true,
            Some(None) => false,
            Some(Some(hi)) => hi <= next.lo(),
        };
        if follows {
            return Ok(());
        }
        let last = self.chunks.last().map_or_else(KeyRange::all, |chunk| chunk.range(chunk.len() - 1));
        Err(self.unsorted(&last, next))
    }

    fn unsorted(&self, first: &KeyRange, second: &KeyRange) -> BuildError {
        let (first, second) = (self.definition.describe_range(first), self.definition.describe_range(second));
        BuildError::Unsorted { first, second }
    }
}

fn check_entry(definition: &MapDefinition, entry: &Entry) -> Result<(), BuildError> {
    definition.check_entry_range(&entry.range).map_err(|e| BuildError::BadEntry {
        entry: definition.describe_range(&entry.range),
        reason: e.to_string(),
    })
}
