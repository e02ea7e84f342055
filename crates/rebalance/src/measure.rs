//! Measures what the pieces of a map weigh: rows and bytes as they are on the shards, requests as routers have counted
//! them. Reads only.

use std::collections::BTreeMap;
use std::time::Duration;

use polyshard_catalog::ShardRecord;
use polyshard_engine::{Database, Row, Statement, Value};
use polyshard_map::{Key, KeyBytes, KeyRange, Map, MapName, Scheme, ShardId, State};
use polyshard_router::Router;
use polyshard_shard::{Dataset, ShardError};

use crate::plan::{Piece, Place};
use crate::rule::Seen;

/// Pieces that one entry is thought to be cut into: finer ones would make more moves and hardly a better balance.
const PIECES_MAX: u64 = 64;
/// Keys of one entry that are counted apart; beyond it, neighbours are counted together.
const BINS_MAX: usize = 4096;
/// Rows whose length is taken for that of all.
const SAMPLE_ROWS: usize = 64;
/// Groups read at once.
const PAGE_ROWS: usize = 1_000;
/// How long a shard may take to say how large it is.
const GAUGE_WAIT: Duration = Duration::from_secs(2);
/// What a row takes beside its values, about, on either engine.
const ROW_OVERHEAD_BYTES: u64 = 24;

/// How busy shards and keys are, in requests a second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heat {
    /// All requests, by shard.
    pub shards: BTreeMap<ShardId, f64>,
    /// The hottest keys.
    pub keys: Vec<(MapName, Key, f64)>,
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

/// All pieces of a map, where they are and what they weigh.
pub async fn pieces(router: &Router, map: &Map, heat: &Heat) -> Result<Vec<Piece>, Unmeasured> {
    let definition = map.definition();
    let cuts = !matches!(definition.scheme(), Scheme::List);
    let mut of_shards: BTreeMap<ShardId, Vec<Bins>> = BTreeMap::new();
    let mut groups: BTreeMap<String, KeyRange> = BTreeMap::new();
    for located in map.located(&KeyRange::all()) {
        if let Some(group) = located.group()
            && let Some(first) = groups.insert(group.to_string(), located.range())
        {
            // A group moves as one, under the name of its first entry.
            groups.insert(group.to_string(), first);
        }
        let whole = !cuts || located.group().is_some();
        let bins = Bins { range: located.range(), whole, bins: BTreeMap::new(), coarse: false };
        of_shards.entry(located.shard().clone()).or_default().push(bins);
    }
    let mut out = Vec::new();
    for (shard, mut entries) in of_shards {
        let failed = |error| Unmeasured { shard: shard.clone(), error };
        let opened = router.administer(&shard).await.map_err(failed)?;
        for dataset in opened.datasets(definition.name()).await.map_err(failed)? {
            let db = opened.carrier().await.map_err(failed)?;
            count(db, &dataset, map, &mut entries).await.map_err(failed)?;
        }
        let hot: Vec<(KeyBytes, f64)> = heat
            .keys
            .iter()
            .filter(|(of, _, _)| of == definition.name())
            .filter_map(|(_, key, rate)| Some((map.placement(key).ok()?, *rate)))
            .filter(|(placement, _)| entries.iter().any(|bins| bins.range.contains(placement.as_slice())))
            .collect();
        let mut pieces: Vec<Piece> =
            entries.iter().flat_map(|bins| cut(bins, &shard, &hot, definition.scheme())).collect();
        let rest = rest_of(heat, &shard, &hot, router);
        spread(&mut pieces, &hot, rest);
        out.extend(pieces);
    }
    Ok(join_groups(map, &groups, out))
}

/// Counts the rows of a dataset by key.
async fn count(db: &Database, dataset: &Dataset, map: &Map, entries: &mut [Bins]) -> Result<(), ShardError> {
    let definition = map.definition();
    let expression = dataset.placement.expression(db.dialect(), definition, "")?;
    let condition = match &dataset.rows {
        Some((column, number)) => format!(" WHERE {column} = {number}"),
        None => String::new(),
    };
    let table = &dataset.table;
    let sample = format!("SELECT * FROM {table}{condition} LIMIT {SAMPLE_ROWS}");
    let mut scan = match db.scan(Statement::new(sample), SAMPLE_ROWS).await {
        Ok(scan) => scan,
        // A table of a store that is made when its first row comes.
        Err(polyshard_engine::Error::Invalid { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let (mut rows, mut bytes) = (0, 0);
    while let Some(page) = scan.next().await? {
        rows += page.len() as u64;
        bytes += page.iter().map(length).sum::<u64>();
    }
    drop(scan);
    let Some(average) = bytes.checked_div(rows) else { return Ok(()) };
    let groups = format!("SELECT {expression} AS placement, count(*) FROM {table}{condition} GROUP BY 1");
    let mut scan = db.scan(Statement::new(groups), PAGE_ROWS).await?;
    while let Some(page) = scan.next().await? {
        for row in page.iter() {
            let Some(placement) = row.opt_blob(0)? else { continue };
            let rows = u64::try_from(row.int(1)?).unwrap_or(0);
            // Entries are in order; what is in none of them is not this shard's.
            let after = entries.partition_point(|bins| bins.range.lo().as_slice() <= placement);
            let Some(bins) = after.checked_sub(1).map(|index| &mut entries[index]) else { continue };
            if bins.range.contains(placement) {
                bins.add(KeyBytes::from(placement), Mass { rows, bytes: rows.saturating_mul(average) });
            }
        }
    }
    Ok(())
}

fn length(row: &Row) -> u64 {
    let value = |value: &Value| match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Int(_) | Value::Real(_) => 8,
        Value::Text(text) => text.len() as u64,
        Value::Blob(bytes) => bytes.len() as u64,
    };
    ROW_OVERHEAD_BYTES + row.values().iter().map(value).sum::<u64>()
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

/// Cuts an entry into pieces of about the same number of rows, and around its hot keys.
fn cut(bins: &Bins, shard: &ShardId, hot: &[(KeyBytes, f64)], scheme: &Scheme) -> Vec<Piece> {
    let rows: u64 = bins.bins.values().map(|mass| mass.rows).sum();
    let enough = rows.div_ceil(PIECES_MAX).max(1);
    let piece = |range: KeyRange, mass: Mass| Piece {
        range,
        shard: shard.clone(),
        rows: mass.rows,
        bytes: mass.bytes,
        requests: 0.0,
    };
    let mut bounds: Vec<(KeyBytes, Mass)> = vec![(bins.range.lo().clone(), Mass::default())];
    let hot_in = |key: &KeyBytes| hot.iter().any(|(placement, _)| placement == key);
    let mut was_hot = false;
    for (key, mass) in &bins.bins {
        let last = &mut bounds.last_mut().expect("it begins with one").1;
        let is_hot = hot_in(key);
        let begins = last.rows >= enough || (last.rows > 0 && (is_hot || was_hot));
        // Between two keys of a range map there may be others later: the cut is where the next one begins.
        if !bins.whole && begins && key > bins.range.lo() {
            bounds.push((key.clone(), *mass));
        } else {
            last.add(*mass);
        }
        was_hot = is_hot && matches!(scheme, Scheme::Range | Scheme::Hash(_));
    }
    let mut out = Vec::new();
    for (index, (lo, mass)) in bounds.iter().enumerate() {
        let hi = bounds.get(index + 1).map(|(next, _)| next.clone());
        let hi = hi.or_else(|| bins.range.hi().cloned());
        if let Ok(range) = KeyRange::new(lo.clone(), hi) {
            out.push(piece(range, *mass));
        }
    }
    out
}

/// Requests to a shard that are not for its hottest keys, as far as they are this map's.
fn rest_of(heat: &Heat, shard: &ShardId, hot: &[(KeyBytes, f64)], router: &Router) -> f64 {
    let total = heat.shards.get(shard).copied().unwrap_or(0.0);
    let own: f64 = hot.iter().map(|(_, rate)| rate).sum();
    let view = router.view();
    let on_shard = |map: &MapName, key: &Key| {
        view.maps.get(map).is_some_and(|known| known.map.locate(key).is_ok_and(|at| at.shard() == shard))
    };
    let all: f64 = heat.keys.iter().filter(|(map, key, _)| on_shard(map, key)).map(|(_, _, rate)| rate).sum();
    // Nobody has counted which map the others are of: as the hot ones are, or all alike.
    let maps = view.maps.values().filter(|known| known.map.shards().any(|on| on == shard)).count();
    let part = if all > 0.0 { own / all } else { 1.0 / maps.max(1) as f64 };
    (total - all).max(0.0) * part
}

/// Gives pieces their requests: those of hot keys, and the rest by rows.
fn spread(pieces: &mut [Piece], hot: &[(KeyBytes, f64)], rest: f64) {
    for (placement, rate) in hot {
        let after = pieces.partition_point(|piece| piece.range.lo() <= placement);
        if let Some(piece) = after.checked_sub(1).map(|index| &mut pieces[index]) {
            piece.requests += rate;
        }
    }
    let rows: u64 = pieces.iter().map(|piece| piece.rows).sum();
    for piece in pieces.iter_mut().filter(|_| rows > 0) {
        piece.requests += rest * piece.rows as f64 / rows as f64;
    }
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
            ..piece.clone()
        });
        joined.rows += piece.rows;
        joined.bytes += piece.bytes;
        joined.requests += piece.requests;
    }
    out.extend(of_groups.into_values());
    out.sort_by(|a, b| a.range.cmp(&b.range));
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
    let mut out = Vec::with_capacity(shards.len());
    for record in shards {
        let ask = async { router.administer(&record.id).await.ok()?.gauge().await.ok() };
        let gauge = tokio::time::timeout(GAUGE_WAIT, ask).await.ok().flatten();
        out.push(Place {
            shard: record.id.clone(),
            seen: Seen { region: record.region.clone(), tier: record.tier.clone() },
            takes: record.state == State::Online && gauge.is_some(),
            bytes: gauge.map_or(0, |gauge| gauge.bytes),
            bytes_max: record.limits.bytes_max,
            entries: entries.get(&record.id).copied().unwrap_or(0),
            entries_max: record.limits.shardlets_max,
        });
    }
    out
}
