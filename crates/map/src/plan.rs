//! Pure planning: how buckets are spread over shards, and what moves when a shard comes or goes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use serde::{Deserialize, Serialize};

use crate::definition::{MapDefinition, Scheme, Segment};
use crate::encode::KeyBytes;
use crate::entry::NewEntry;
use crate::error::PlanError;
use crate::hash::HashSpec;
use crate::ids::{GroupName, ShardId};
use crate::map::Map;
use crate::range::KeyRange;

/// One move of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What moves.
    pub range: KeyRange,
    /// Where it is.
    pub from: ShardId,
    /// Where it goes.
    pub to: ShardId,
}

/// Entries that spread all buckets of a hash map evenly over the shards, one run each, in the order given.
pub fn spread_buckets(spec: &HashSpec, shards: &[ShardId]) -> Result<Vec<NewEntry>, PlanError> {
    spread(spec, &[], shards)
}

/// Entries that spread all buckets of a segment evenly over the shards, one run each, in the order given.
pub fn spread_segment(
    spec: &HashSpec,
    segment: &Segment,
    shards: &[ShardId],
) -> Result<Vec<NewEntry>, PlanError> {
    let space = MapDefinition::segment_space(spec, segment.lo());
    let lo = space.lo().as_slice();
    spread(spec, &lo[..lo.len() - 4], shards)
}

/// Moves that give a new shard its part of a map: about 1/n of the buckets (or of the entries of a list), taken evenly
/// from the fullest, all to the new shard. A shard that has a part already gets what is missing.
pub fn plan_add_shard(map: &Map, new: &ShardId) -> Result<Vec<Step>, PlanError> {
    plan_add_shard_within(map, &KeyRange::all(), new)
}

/// Like [`plan_add_shard`], for one stretch of the space: a segment, so that a region keeps its own shards.
pub fn plan_add_shard_within(map: &Map, within: &KeyRange, new: &ShardId) -> Result<Vec<Step>, PlanError> {
    match map.definition().scheme() {
        Scheme::Range => Err(PlanError::Ordered { map: map.definition().name().to_string() }),
        Scheme::List => Ok(add_to_list(map, within, new)),
        Scheme::Hash(_) | Scheme::RangeHash { .. } | Scheme::ListHash { .. } => {
            Ok(spaces(map, within).flat_map(|space| add_to_buckets(map, &space, new)).collect())
        }
    }
}

/// Moves that empty a shard of a map, to the emptiest of the others. Buckets stay among the shards of their segment.
pub fn plan_remove_shard(map: &Map, shard: &ShardId) -> Result<Vec<Step>, PlanError> {
    if map.definition().scheme().hash().is_none() {
        return remove_from_units(map, shard);
    }
    let mut steps = Vec::new();
    for space in spaces(map, &KeyRange::all()) {
        steps.extend(remove_from_buckets(map, &space, shard)?);
    }
    Ok(steps)
}

fn spread(spec: &HashSpec, before: &[u8], shards: &[ShardId]) -> Result<Vec<NewEntry>, PlanError> {
    if shards.is_empty() {
        return Err(PlanError::NoShards);
    }
    let (buckets, count) = (u64::from(spec.buckets()), shards.len() as u64);
    // With more shards than buckets, some get none.
    let cuts = |index: usize| index as u64 * buckets / count;
    let runs = shards.iter().enumerate().map(|(index, shard)| (cuts(index), cuts(index + 1), shard));
    let bound = |bucket: u64| KeyBytes::new([before, &(bucket as u32).to_be_bytes()].concat());
    let ranges = runs.filter_map(|(from, to, shard)| {
        KeyRange::new(bound(from), Some(bound(to))).ok().map(|range| NewEntry::new(range, shard.clone()))
    });
    Ok(ranges.collect())
}

/// The stretches of a hashed map in which buckets are counted: all of it, or each segment.
fn spaces<'m>(map: &'m Map, within: &'m KeyRange) -> impl Iterator<Item = KeyRange> + 'm {
    let scheme = map.definition().scheme();
    let segments = scheme.hash().into_iter().flat_map(move |hash| {
        scheme.segments().iter().map(|segment| MapDefinition::segment_space(hash, segment.lo()))
    });
    let whole = scheme.prefix().is_none().then(KeyRange::all);
    whole.into_iter().chain(segments).filter_map(|space| space.intersect(within))
}

/// A run of buckets on one shard.
#[derive(Clone, Debug)]
struct Run {
    /// What comes before the bucket in the space.
    before: Vec<u8>,
    from: u32,
    to: u32,
}

impl Run {
    fn len(&self) -> u32 {
        self.to - self.from
    }

    fn range(&self) -> KeyRange {
        let bound = |bucket: u32| KeyBytes::new([&self.before[..], &bucket.to_be_bytes()].concat());
        KeyRange::new(bound(self.from), Some(bound(self.to))).expect("runs are not empty")
    }
}

/// The runs of each shard in a space, neighbours joined.
fn runs(map: &Map, space: &KeyRange) -> BTreeMap<ShardId, Vec<Run>> {
    let mut runs: BTreeMap<ShardId, Vec<Run>> = BTreeMap::new();
    for located in map.located(space) {
        let Some(range) = located.range().intersect(space) else { continue };
        let bucket =
            |bound: &KeyBytes| map.definition().bucket_of(bound.as_slice()).map(|(_, bucket)| bucket);
        let (Some(from), Some(to)) = (bucket(range.lo()), range.hi().and_then(bucket)) else { continue };
        let lo = range.lo().as_slice();
        let before = lo[..lo.len() - 4].to_vec();
        let of_shard = runs.entry(located.shard().clone()).or_default();
        match of_shard.last_mut() {
            Some(last) if last.to == from && last.before == before => last.to = to,
            _ => of_shard.push(Run { before, from, to }),
        }
    }
    runs
}

fn load(runs: &[Run]) -> u32 {
    runs.iter().map(Run::len).sum()
}

fn add_to_buckets(map: &Map, space: &KeyRange, new: &ShardId) -> Vec<Step> {
    let mut runs = runs(map, space);
    let has = runs.remove(new).map_or(0, |own| load(&own));
    let total = has + runs.values().map(|runs| load(runs)).sum::<u32>();
    let target = total / (runs.len() as u32 + 1);
    let mut steps = Vec::new();
    for (shard, count) in take_from_fullest(&runs, target.saturating_sub(has)) {
        let pieces = cut(runs.remove(&shard).unwrap_or_default(), count);
        steps.extend(pieces.iter().map(|piece| Step {
            range: piece.range(),
            from: shard.clone(),
            to: new.clone(),
        }));
    }
    steps
}

/// How many buckets each shard gives: one at a time from the fullest, so that they end up even.
fn take_from_fullest(runs: &BTreeMap<ShardId, Vec<Run>>, wanted: u32) -> BTreeMap<ShardId, u32> {
    let mut fullest: BinaryHeap<(u32, Reverse<&ShardId>)> =
        runs.iter().map(|(shard, runs)| (load(runs), Reverse(shard))).collect();
    let mut taken: BTreeMap<ShardId, u32> = BTreeMap::new();
    for _ in 0..wanted {
        let Some((count @ 1.., shard)) = fullest.pop() else { break };
        *taken.entry(shard.0.clone()).or_default() += 1;
        fullest.push((count - 1, shard));
    }
    taken
}

/// Takes that many buckets in few pieces: the end of the smallest run that has them, else the largest run and more.
fn cut(mut runs: Vec<Run>, mut wanted: u32) -> Vec<Run> {
    let mut pieces = Vec::new();
    runs.sort_by_key(|run| (run.len(), run.from));
    while wanted > 0 {
        if let Some(run) = runs.iter().find(|run| run.len() >= wanted) {
            pieces.push(Run { from: run.to - wanted, ..run.clone() });
            break;
        }
        let Some(largest) = runs.pop() else { break };
        wanted -= largest.len();
        pieces.push(largest);
    }
    pieces
}

fn remove_from_buckets(map: &Map, space: &KeyRange, shard: &ShardId) -> Result<Vec<Step>, PlanError> {
    let mut runs = runs(map, space);
    let Some(leaving) = runs.remove(shard) else { return Ok(Vec::new()) };
    if runs.is_empty() {
        return Err(PlanError::LastShard { shard: shard.clone(), map: map.definition().name().to_string() });
    }
    let mut given: BTreeMap<ShardId, u32> = BTreeMap::new();
    let mut emptiest: BinaryHeap<Reverse<(u32, &ShardId)>> =
        runs.iter().map(|(other, runs)| Reverse((load(runs), other))).collect();
    for _ in 0..load(&leaving) {
        let Some(Reverse((count, other))) = emptiest.pop() else { break };
        *given.entry(other.clone()).or_default() += 1;
        emptiest.push(Reverse((count + 1, other)));
    }
    let mut steps = Vec::new();
    let mut left = leaving.into_iter();
    let mut rest = left.next();
    for (to, mut count) in given {
        while let Some(run) = rest.take().filter(|_| count > 0) {
            let part = Run { to: run.from + run.len().min(count), ..run.clone() };
            count -= part.len();
            let after = Run { from: part.to, ..run };
            rest = if after.len() > 0 { Some(after) } else { left.next() };
            steps.push(Step { range: part.range(), from: shard.clone(), to: to.clone() });
            if count == 0 {
                break;
            }
        }
    }
    Ok(steps)
}

/// What moves as one in a map of keys: an entry, or all entries of a group.
type Unit = Vec<KeyRange>;

fn units(map: &Map, within: &KeyRange) -> BTreeMap<ShardId, Vec<Unit>> {
    let mut units: BTreeMap<ShardId, Vec<Unit>> = BTreeMap::new();
    let mut grouped: BTreeMap<&GroupName, (ShardId, Unit)> = BTreeMap::new();
    for located in map.located(within) {
        match located.group() {
            None => units.entry(located.shard().clone()).or_default().push(vec![located.range()]),
            Some(group) => {
                grouped
                    .entry(group)
                    .or_insert_with(|| (located.shard().clone(), Unit::new()))
                    .1
                    .push(located.range());
            }
        }
    }
    for (shard, unit) in grouped.into_values() {
        units.entry(shard).or_default().push(unit);
    }
    // The largest last, where it is taken from; of equals the highest keys.
    units.values_mut().for_each(|of_shard| of_shard.sort_by_key(Vec::len));
    units
}

fn entries_of(units: &[Unit]) -> usize {
    units.iter().map(Vec::len).sum()
}

fn add_to_list(map: &Map, within: &KeyRange, new: &ShardId) -> Vec<Step> {
    let mut units = units(map, within);
    let has = units.remove(new).map_or(0, |own| entries_of(&own));
    let total = has + units.values().map(|units| entries_of(units)).sum::<usize>();
    let mut wanted = (total / (units.len() + 1)).saturating_sub(has);
    let mut fullest: BinaryHeap<(usize, Reverse<ShardId>)> =
        units.iter().map(|(shard, units)| (entries_of(units), Reverse(shard.clone()))).collect();
    let mut steps = Vec::new();
    while wanted > 0 {
        let Some((count, shard)) = fullest.pop() else { break };
        let Some(of_shard) = units.get_mut(&shard.0) else { continue };
        // The largest that is not more than wanted; a shard that has none gives nothing more.
        let fits = of_shard.partition_point(|unit| unit.len() <= wanted);
        let Some(index) = fits.checked_sub(1) else { continue };
        let unit = of_shard.remove(index);
        wanted -= unit.len();
        fullest.push((count - unit.len(), shard.clone()));
        steps.extend(unit.into_iter().map(|range| Step { range, from: shard.0.clone(), to: new.clone() }));
    }
    steps
}

fn remove_from_units(map: &Map, shard: &ShardId) -> Result<Vec<Step>, PlanError> {
    let mut units = units(map, &KeyRange::all());
    let Some(leaving) = units.remove(shard) else { return Ok(Vec::new()) };
    if units.is_empty() {
        return Err(PlanError::LastShard { shard: shard.clone(), map: map.definition().name().to_string() });
    }
    let mut emptiest: BinaryHeap<Reverse<(usize, &ShardId)>> =
        units.iter().map(|(other, units)| Reverse((entries_of(units), other))).collect();
    let mut steps = Vec::new();
    for unit in leaving.into_iter().rev() {
        let Some(Reverse((count, to))) = emptiest.pop() else { break };
        emptiest.push(Reverse((count + unit.len(), to)));
        steps.extend(unit.into_iter().map(|range| Step { range, from: shard.clone(), to: to.clone() }));
    }
    Ok(steps)
}
