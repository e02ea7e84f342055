//! Measures what the pieces of a map weigh: rows and bytes about as they are on the shards, requests as routers have
//! counted them. Reads only, and of large tables only a sample.

mod count;
mod found;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use polyshard_catalog::ShardRecord;
use polyshard_map::{KeyBytes, KeyRange, KeyType, Map, MapDefinition, MapName, Scheme, ShardId, State};
use polyshard_router::Router;
use polyshard_shard::ShardError;

use crate::heat::Heat;
use crate::plan::{Piece, Place};
use crate::rule::{Rule, Seen};

/// Pieces that one entry is thought to be cut into: finer ones would make more moves and hardly a better balance.
const PIECES_MAX: u64 = 64;
/// Pieces of one shard of a list map; with more entries than that, neighbours that are not hot are taken together.
const SHARD_PIECES_MAX: usize = 4096;
/// Entries taken together, at most: as many as one move carries.
const JOINED_MAX: usize = 200;
/// Keys of one entry that are counted apart; beyond it, neighbours are counted together.
const BINS_MAX: usize = 4096;
/// A key is cut out of its entry if it has at least this part of what a shard would have if all were even: what is less
/// can go with its neighbours.
const HOT_ONE_OF: f64 = 16.0;
/// … and if so many requests for it were counted, which is one in eight: fewer may be chance.
const HOT_COUNT_MIN: f64 = 64.0;
/// If so few percent of the requests are for other keys than the busiest, that may be chance: they are a sample.
const REST_PERCENT_MIN: f64 = 10.0;
/// Shards measured at once: more would be felt by requests.
const MEASURED_AT_ONCE: usize = 8;
/// How long a shard may take to say how large it is.
const GAUGE_WAIT: Duration = Duration::from_secs(2);

/// What the pieces of a map weigh.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// The pieces, in the order of keys.
    pub pieces: Vec<Piece>,
    /// Whether rows and bytes are estimates, because a table is too large to be counted.
    pub estimated: bool,
}

/// A shard that could not be measured.
#[derive(Debug, thiserror::Error)]
#[error("shard {shard} cannot be measured: {error}")]
pub struct Unmeasured {
    /// Which.
    pub shard: ShardId,
    /// Why.
    pub error: ShardError,
}

/// Rows and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mass {
    rows: u64,
    bytes: u64,
}

impl Mass {
    fn add(&mut self, other: Mass) {
        self.rows += other.rows;
        self.bytes += other.bytes;
    }
}

/// An entry and what is in it, by key.
struct Bins {
    range: KeyRange,
    /// The entries that move with it: those of its group.
    whole: bool,
    bins: BTreeMap<KeyBytes, Mass>,
    coarse: bool,
}

/// How busy a placement is.
#[derive(Debug, Clone)]
struct Hot {
    placement: KeyBytes,
    requests: f64,
    bytes: f64,
    /// Whether it is worth a piece of its own.
    apart: bool,
}

/// All pieces of a map, where they are and what they weigh. Where a rule begins or ends, a piece does, too.
pub async fn pieces(router: &Router, map: &Map, heat: &Heat, rules: &[Rule]) -> Result<Measured, Unmeasured> {
    let definition = map.definition();
    let cuts = !matches!(definition.scheme(), Scheme::List);
    let mut of_shards: BTreeMap<ShardId, Vec<Bins>> = BTreeMap::new();
    let mut groups: BTreeMap<String, KeyRange> = BTreeMap::new();
    for located in map.located(&KeyRange::all()) {
        if let Some(group) = located.group() {
            // A group moves as one, under the name of its first entry.
            groups.entry(group.to_string()).or_insert_with(|| located.range());
        }
        let whole = !cuts || located.group().is_some();
        let bins = Bins { range: located.range(), whole, bins: BTreeMap::new(), coarse: false };
        of_shards.entry(located.shard().clone()).or_default().push(bins);
    }
    let mut hot = hot_placements(map, heat);
    let bounds: BTreeSet<KeyBytes> = rules.iter().flat_map(Rule::bounds).collect();
    let rest = rest_of(router, definition.name(), heat);
    let shards = router.view().shards.len().max(1) as f64;
    let least = least_apart(
        hot.iter().map(|one| one.requests).sum::<f64>() + rest.values().sum::<f64>(),
        shards,
        heat,
    );
    hot.iter_mut().for_each(|one| one.apart = one.requests >= least);
    let measure = |(shard, entries)| {
        let rest = rest.get(&shard).copied().unwrap_or(0.0);
        on_shard(router, map, (&hot, &bounds), rest, shard, entries)
    };
    let mut measured: Vec<Result<Measured, Unmeasured>> =
        futures_util::stream::iter(of_shards).map(measure).buffer_unordered(MEASURED_AT_ONCE).collect().await;
    let mut all = Measured::default();
    for one in measured.drain(..) {
        let one = one?;
        all.pieces.extend(one.pieces);
        all.estimated |= one.estimated;
    }
    all.pieces = join_groups(map, &groups, all.pieces);
    all.pieces.sort_by(|a, b| a.range.cmp(&b.range));
    if !cuts {
        note_adjoining(map, &mut all.pieces);
    }
    Ok(all)
}

/// What a range weighs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weight {
    /// Rows, counted.
    pub rows: u64,
    /// About how many bytes they are, by the mean length of some.
    pub bytes: u64,
}

/// What a shard has of a range.
pub async fn weigh(
    router: &Router,
    definition: &MapDefinition,
    range: &KeyRange,
    shard: &ShardId,
) -> Result<Weight, Unmeasured> {
    let failed = |error| Unmeasured { shard: shard.clone(), error };
    let opened = router.administer(shard).await.map_err(failed)?;
    let db = opened.carrier().await.map_err(failed)?;
    let mut all = Mass::default();
    for dataset in opened.tables(definition.name()).await.map_err(failed)? {
        all.add(count::within(db, &dataset, definition, range).await.map_err(failed)?);
    }
    Ok(Weight { rows: all.rows, bytes: all.bytes })
}

/// Which of these ranges a shard has rows of, whoever owns them: their places. What is found quickly by an index is.
pub async fn found(
    router: &Router,
    definition: &MapDefinition,
    ranges: &[KeyRange],
    shard: &ShardId,
) -> Result<BTreeSet<usize>, Unmeasured> {
    let failed = |error| Unmeasured { shard: shard.clone(), error };
    let opened = router.administer(shard).await.map_err(failed)?;
    let db = opened.carrier().await.map_err(failed)?;
    let mut all = BTreeSet::new();
    for dataset in opened.tables(definition.name()).await.map_err(failed)? {
        all.extend(found::in_dataset(db, &dataset, definition, ranges).await.map_err(failed)?);
    }
    Ok(all)
}

/// The busiest placements of a map in order; keys that share one are added up.
fn hot_placements(map: &Map, heat: &Heat) -> Vec<Hot> {
    let mut hot: BTreeMap<KeyBytes, (f64, f64)> = BTreeMap::new();
    for one in heat.keys.iter().filter(|one| one.map == *map.definition().name()) {
        if let Ok(placement) = map.placement(&one.key) {
            let of = hot.entry(placement).or_default();
            *of = (of.0 + one.requests, of.1 + one.bytes);
        }
    }
    let of = |(placement, (requests, bytes))| Hot { placement, requests, bytes, apart: true };
    hot.into_iter().map(of).collect()
}

/// Requests a second that a key must have to be worth a piece of its own, where a map has so many on so many shards.
fn least_apart(of_map: f64, shards: f64, heat: &Heat) -> f64 {
    let all = heat.keys.iter().map(|one| one.requests).sum::<f64>() + heat.rest;
    let chance = all * HOT_COUNT_MIN / (heat.counted as f64).max(1.0);
    (of_map / (shards * HOT_ONE_OF)).max(chance)
}

async fn on_shard(
    router: &Router,
    map: &Map,
    (hot, bounds): (&[Hot], &BTreeSet<KeyBytes>),
    rest: f64,
    shard: ShardId,
    mut entries: Vec<Bins>,
) -> Result<Measured, Unmeasured> {
    let failed = |error| Unmeasured { shard: shard.clone(), error };
    let definition = map.definition();
    let opened = router.administer(&shard).await.map_err(failed)?;
    let mut estimated = false;
    for dataset in opened.tables(definition.name()).await.map_err(failed)? {
        let db = opened.carrier().await.map_err(failed)?;
        // What is in none of the entries is not this shard's.
        let take = |placement: &[u8], mass| {
            if let Some(index) = holder(&entries, placement) {
                entries[index].add(KeyBytes::from(placement), mass);
            }
        };
        estimated |= count::count(db, &dataset, map, take).await.map_err(failed)?;
    }
    let here = |one: &&Hot| holder(&entries, one.placement.as_slice()).is_some();
    let hot: Vec<Hot> = hot.iter().filter(here).cloned().collect();
    for one in hot.iter().filter(|one| one.apart) {
        // A sample may have missed the rows of a key that is hot.
        if let Some(index) = holder(&entries, one.placement.as_slice()).filter(|index| !entries[*index].whole)
        {
            entries[index].bins.entry(one.placement.clone()).or_default();
        }
    }
    let mut pieces: Vec<Piece> =
        entries.iter().flat_map(|bins| cut(bins, &shard, (&hot, bounds), definition)).collect();
    spread(&mut pieces, &hot, rest);
    let pieces = match definition.scheme() {
        Scheme::List => join_neighbours(map, pieces, &hot),
        _ => pieces,
    };
    Ok(Measured { pieces, estimated })
}

/// The entry that a placement is in; entries are in order.
fn holder(entries: &[Bins], placement: &[u8]) -> Option<usize> {
    let after = entries.partition_point(|bins| bins.range.lo().as_slice() <= placement);
    after.checked_sub(1).filter(|index| entries[*index].range.contains(placement))
}

impl Bins {
    fn add(&mut self, key: KeyBytes, mass: Mass) {
        let key = if self.whole { self.range.lo().clone() } else { key };
        if self.coarse
            && let Some((_, bin)) = self.bins.range_mut(..=key.clone()).next_back()
        {
            return bin.add(mass);
        }
        self.bins.entry(key).or_default().add(mass);
        if self.bins.len() > BINS_MAX {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        self.coarse = true;
        let mut joined: BTreeMap<KeyBytes, Mass> = BTreeMap::new();
        for (index, (key, mass)) in std::mem::take(&mut self.bins).into_iter().enumerate() {
            match joined.last_entry() {
                Some(mut last) if index % 2 == 1 => last.get_mut().add(mass),
                _ => {
                    joined.insert(key, mass);
                }
            }
        }
        self.bins = joined;
    }
}

/// Cuts an entry into pieces of about the same number of rows, around its hot keys, and at these bounds.
fn cut(
    bins: &Bins,
    shard: &ShardId,
    (hot, bounds): (&[Hot], &BTreeSet<KeyBytes>),
    definition: &MapDefinition,
) -> Vec<Piece> {
    let inside =
        |bound: &&KeyBytes| !bins.whole && *bound > bins.range.lo() && bins.range.contains(bound.as_slice());
    let mut wanted = bounds.iter().filter(inside).peekable();
    let rows: u64 = bins.bins.values().map(|mass| mass.rows).sum();
    let enough = rows.div_ceil(PIECES_MAX).max(1);
    let is_hot = |key: &KeyBytes| {
        hot.binary_search_by(|one| one.placement.cmp(key)).is_ok_and(|found| hot[found].apart)
    };
    // Where pieces begin, and what is in them.
    let mut begins: Vec<(KeyBytes, Mass)> = vec![(bins.range.lo().clone(), Mass::default())];
    let mut is_begun = false;
    for (key, mass) in &bins.bins {
        while let Some(bound) = wanted.next_if(|bound| *bound <= key) {
            begins.push((bound.clone(), Mass::default()));
            is_begun = false;
        }
        let hot_now = !bins.whole && is_hot(key);
        let last = &mut begins.last_mut().expect("it begins with one").1;
        let full = is_begun && last.rows >= enough;
        // Between two keys of a range map there may be others later: the cut is where the next one begins.
        if !bins.whole && (full || hot_now) && key > bins.range.lo() {
            begins.push((key.clone(), *mass));
        } else {
            last.add(*mass);
        }
        is_begun = true;
        let behind = behind(definition, key);
        if hot_now && bins.range.contains(behind.as_slice()) {
            // What comes after a hot key, and may not be in the sample, is not hot with it.
            begins.push((behind, Mass::default()));
            is_begun = false;
        }
    }
    begins.extend(wanted.map(|bound| (bound.clone(), Mass::default())));
    let mut out = Vec::new();
    for (index, (lo, mass)) in begins.iter().enumerate() {
        let hi = begins.get(index + 1).map(|(next, _)| next.clone());
        let hi = hi.or_else(|| bins.range.hi().cloned());
        if let Ok(range) = KeyRange::new(lo.clone(), hi) {
            let (rows, bytes) = (mass.rows, mass.bytes);
            let (shard, requests, traffic) = (shard.clone(), 0.0, 0.0);
            out.push(Piece { range, shard, rows, bytes, requests, traffic, adjoins: false });
        }
    }
    out
}

/// Where what is behind a placement begins: the next bucket of a map that hashes, or the next key.
fn behind(definition: &MapDefinition, placement: &KeyBytes) -> KeyBytes {
    let bytes = placement.as_slice();
    // Where keys are numbers, the next one: nothing is between the two, and people know it.
    let next = match (definition.scheme(), definition.key_type()) {
        (Scheme::Range, KeyType::Int | KeyType::BigInt | KeyType::Date | KeyType::Timestamp) => {
            next_number(bytes)
        }
        _ => None,
    };
    if let Some(next) = next {
        return next;
    }
    let bucket = definition.scheme().hash().and_then(|_| bytes.split_last_chunk::<4>());
    match bucket {
        Some((before, bucket)) => {
            let next = u32::from_be_bytes(*bucket).saturating_add(1);
            KeyBytes::new([before, &next.to_be_bytes()].concat())
        }
        None => placement.successor(),
    }
}

/// The number after one, as keys are written; none if it is the last.
fn next_number(bytes: &[u8]) -> Option<KeyBytes> {
    let mut next = bytes.to_vec();
    for digit in next.iter_mut().rev() {
        *digit = digit.wrapping_add(1);
        if *digit != 0 {
            return Some(KeyBytes::new(next));
        }
    }
    None
}

/// Requests a second for keys of a map that are not among the busiest, by shard.
///
/// Nobody has counted them by shard. Their number is known, and how busy shards are in the last seconds: of that, what
/// the busiest keys do not explain. Keys are counted over a longer time than shards, so parts are compared and not
/// rates.
fn rest_of(router: &Router, map: &MapName, heat: &Heat) -> BTreeMap<ShardId, f64> {
    let named: f64 = heat.keys.iter().map(|one| one.requests).sum();
    let (all, busy) = (named + heat.rest, heat.shards.values().sum::<f64>());
    if heat.rest * 100.0 < all * REST_PERCENT_MIN || all <= 0.0 {
        return BTreeMap::new();
    }
    let view = router.view();
    let mut unexplained: BTreeMap<ShardId, f64> =
        heat.shards.iter().map(|(shard, rate)| (shard.clone(), rate / busy.max(f64::MIN_POSITIVE))).collect();
    let mut own = 0.0;
    for one in &heat.keys {
        own += if one.map == *map { one.requests } else { 0.0 };
        let at = view.maps.get(&one.map).and_then(|known| known.map.locate(&one.key).ok());
        if let Some(part) = at.and_then(|at| unexplained.get_mut(at.shard())) {
            *part -= one.requests / all;
        }
    }
    unexplained.values_mut().for_each(|part| *part = part.max(0.0));
    let whole: f64 = unexplained.values().sum();
    // Nor by map: as the busiest are, or all alike.
    let of_map = if named > 0.0 { own / named } else { 1.0 / view.maps.len().max(1) as f64 };
    let even = 1.0 / unexplained.len().max(1) as f64;
    let part = |part: f64| if whole > 0.0 { part / whole } else { even };
    unexplained.into_iter().map(|(shard, of)| (shard, heat.rest * of_map * part(of))).collect()
}

/// Gives pieces their requests: those of hot keys, and the rest by rows.
fn spread(pieces: &mut [Piece], hot: &[Hot], rest: f64) {
    for one in hot {
        let after = pieces.partition_point(|piece| *piece.range.lo() <= one.placement);
        if let Some(piece) = after.checked_sub(1).map(|index| &mut pieces[index]) {
            piece.requests += one.requests;
            piece.traffic += one.bytes;
        }
    }
    let rows: u64 = pieces.iter().map(|piece| piece.rows).sum();
    for piece in pieces.iter_mut().filter(|_| rows > 0) {
        piece.requests += rest * piece.rows as f64 / rows as f64;
    }
}

/// Takes neighbours of a list map together, if one shard has too many: those that are not hot, in no group, and have no
/// entry of another shard between them.
fn join_neighbours(map: &Map, pieces: Vec<Piece>, hot: &[Hot]) -> Vec<Piece> {
    let together = pieces.len().div_ceil(SHARD_PIECES_MAX).min(JOINED_MAX);
    if together < 2 {
        return pieces;
    }
    let stays = |piece: &Piece| {
        let grouped =
            map.locate_placement(piece.range.lo().as_slice()).is_some_and(|at| at.group().is_some());
        let next = hot.partition_point(|one| one.placement < *piece.range.lo());
        grouped || hot.get(next).is_some_and(|one| piece.range.contains(one.placement.as_slice()))
    };
    let mut out: Vec<(Piece, usize)> = Vec::with_capacity(pieces.len() / together + 1);
    for piece in pieces {
        let alone = stays(&piece);
        if let Some((last, count)) = out.last_mut()
            && !alone
            && *count < together
            && let Some(joined) = joined(map, last, &piece)
        {
            *last = joined;
            *count += 1;
            continue;
        }
        // A full count lets nothing be added to it.
        out.push((piece, if alone { together } else { 1 }));
    }
    out.into_iter().map(|(piece, _)| piece).collect()
}

/// Notes which pieces of a list map have nothing between them and the one before. Those of a group, which stand for
/// entries elsewhere, have no neighbours.
fn note_adjoining(map: &Map, pieces: &mut [Piece]) {
    let grouped = |piece: &Piece| {
        map.locate_placement(piece.range.lo().as_slice()).is_some_and(|at| at.group().is_some())
    };
    for at in 1..pieces.len() {
        let (first, second) = (&pieces[at - 1], &pieces[at]);
        pieces[at].adjoins = !grouped(first) && !grouped(second) && joined(map, first, second).is_some();
    }
}

/// Two pieces as one, if nothing of another shard is between them.
fn joined(map: &Map, first: &Piece, second: &Piece) -> Option<Piece> {
    let range = KeyRange::new(first.range.lo().clone(), second.range.hi().cloned()).ok()?;
    if let Some(between) = first.range.hi().filter(|hi| *hi < second.range.lo()) {
        let between = KeyRange::new(between.clone(), Some(second.range.lo().clone())).ok()?;
        if map.located(&between).next().is_some() {
            return None;
        }
    }
    Some(Piece {
        range,
        shard: first.shard.clone(),
        rows: first.rows + second.rows,
        bytes: first.bytes + second.bytes,
        requests: first.requests + second.requests,
        traffic: first.traffic + second.traffic,
        adjoins: false,
    })
}

/// The entries of a group are one piece: they move together.
fn join_groups(map: &Map, groups: &BTreeMap<String, KeyRange>, pieces: Vec<Piece>) -> Vec<Piece> {
    if groups.is_empty() {
        return pieces;
    }
    let mut out: Vec<Piece> = Vec::new();
    let mut of_groups: BTreeMap<String, Piece> = BTreeMap::new();
    for piece in pieces {
        let group = map.locate_placement(piece.range.lo().as_slice()).and_then(|at| at.group().cloned());
        let Some(group) = group.map(|group| group.to_string()) else {
            out.push(piece);
            continue;
        };
        let first = groups.get(&group).cloned().unwrap_or_else(|| piece.range.clone());
        let joined = of_groups.entry(group).or_insert_with(|| Piece {
            range: first,
            rows: 0,
            bytes: 0,
            requests: 0.0,
            traffic: 0.0,
            ..piece.clone()
        });
        joined.rows += piece.rows;
        joined.bytes += piece.bytes;
        joined.requests += piece.requests;
        joined.traffic += piece.traffic;
    }
    out.extend(of_groups.into_values());
    out
}

/// The shards, with what is on them now. One that does not answer takes nothing.
pub async fn places(router: &Router, shards: &[ShardRecord]) -> Vec<Place> {
    let view = router.view();
    let mut entries: BTreeMap<ShardId, u64> = BTreeMap::new();
    for known in view.maps.values() {
        for (shard, count) in known.map.count_by_shard() {
            *entries.entry(shard).or_default() += count as u64;
        }
    }
    let place = async |record: ShardRecord| {
        let ask = async { router.administer(&record.id).await.ok()?.gauge().await.ok() };
        let gauge = tokio::time::timeout(GAUGE_WAIT, ask).await.ok().flatten();
        Place {
            takes: record.state == State::Online && gauge.is_some(),
            kept: None,
            bytes: gauge.map_or(0, |gauge| gauge.bytes),
            bytes_max: record.limits.bytes_max,
            entries: entries.get(&record.id).copied().unwrap_or(0),
            entries_max: record.limits.shardlets_max,
            seen: Seen { region: record.region, tier: record.tier },
            shard: record.id,
        }
    };
    // Those that are away are waited for together.
    futures_util::stream::iter(shards.to_vec()).map(place).buffered(MEASURED_AT_ONCE).collect().await
}

#[cfg(test)]
mod tests {
    use polyshard_map::Key;

    use super::*;

    fn definition(scheme: Scheme) -> MapDefinition {
        MapDefinition::new(MapName::new("days").unwrap(), KeyType::BigInt, scheme).unwrap()
    }

    fn key(number: i64) -> KeyBytes {
        KeyType::BigInt.encode(&Key::BigInt(number)).unwrap()
    }

    fn hot(number: i64, requests: f64, apart: bool) -> Hot {
        Hot { placement: key(number), requests, bytes: 0.0, apart }
    }

    fn pieces(rows: i64, hot: &[Hot], bounds: &[i64]) -> Vec<Piece> {
        let one = Mass { rows: 1, bytes: 100 };
        let bins = (0..rows).map(|number| (key(number), one)).collect();
        let bins = Bins { range: KeyRange::all(), whole: false, bins, coarse: false };
        let bounds: BTreeSet<KeyBytes> = bounds.iter().map(|number| key(*number)).collect();
        let shard = ShardId::new("s1").unwrap();
        let mut pieces = cut(&bins, &shard, (hot, &bounds), &definition(Scheme::Range));
        spread(&mut pieces, hot, 0.0);
        pieces
    }

    // D3: keys that were seen a few times by chance are no reason to cut a range to pieces.
    #[test]
    fn a_key_is_cut_out_if_it_is_really_hot_and_others_count_where_they_are() {
        let heat = |counted| Heat { rest: 1_000.0, counted, ..Heat::default() };
        // Of four shards' 1 000 requests a second, 250 each, one in 16 of which is 15.6.
        assert!((15.0..16.0).contains(&least_apart(1_000.0, 4.0, &heat(1_000_000))));
        // When 1 000 were counted so far, 64 of them are 64 a second.
        assert!((63.0..65.0).contains(&least_apart(1_000.0, 4.0, &heat(1_000))));
        let scattered: Vec<Hot> = (0..100).map(|n| hot(n * 50, 1.0, false)).collect();
        let cold = pieces(6_400, &[], &[]);
        let warm = pieces(6_400, &scattered, &[]);
        assert_eq!((cold.len(), warm.len()), (64, 64));
        assert!((99.0..101.0).contains(&warm.iter().map(|piece| piece.requests).sum::<f64>()));
        let single = pieces(6_400, &[hot(777, 50.0, true)], &[]);
        let found: Vec<&Piece> = single.iter().filter(|piece| piece.requests > 0.0).collect();
        let wanted = KeyRange::new(key(777), Some(key(778))).unwrap();
        assert_eq!((found.len(), &found[0].range, found[0].rows), (1, &wanted, 1));
        assert_eq!(single.iter().map(|piece| piece.rows).sum::<u64>(), 6_400);
    }

    // D5: else a rule about a part of a piece could never be heeded.
    #[test]
    fn pieces_begin_and_end_where_rules_do() {
        let cut = pieces(1_000, &[hot(500, 9.0, true)], &[-5, 3, 7, 500, 501, 2_000]);
        for (from, to) in [(3, 7), (500, 501)] {
            let wanted = KeyRange::new(key(from), Some(key(to))).unwrap();
            assert!(cut.iter().all(|piece| wanted.covers(&piece.range) || !wanted.overlaps(&piece.range)));
        }
        assert!(cut.iter().any(|piece| *piece.range.lo() == key(2_000) && piece.rows == 0));
        assert_eq!(cut.iter().map(|piece| piece.rows).sum::<u64>(), 1_000);
        let mut sorted = cut.clone();
        sorted.sort_by(|a, b| a.range.cmp(&b.range));
        assert!(
            sorted.windows(2).all(|two| two[0].range.hi() == Some(two[1].range.lo())),
            "nothing is left out"
        );
    }

    #[test]
    fn behind_the_last_number_there_is_none() {
        assert_eq!(next_number(key(-1).as_slice()), Some(key(0)));
        assert_eq!(next_number(key(i64::MAX).as_slice()), None);
    }
}
