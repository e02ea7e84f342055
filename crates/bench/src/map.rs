//! Locating keys in maps, the memory of a map, and the cost of changing one; beside the standard library's maps.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use polyshard_map::{
    Change, Entry, Epoch, HashSpec, Key, KeyRange, KeyType, Map, MapDefinition, MapName, NewEntry, Scheme,
    ShardId, State, apply, spread_buckets,
};

use crate::measure::{Random, Spread, ns_per_op, resident_bytes};
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// Entries of the large map.
const ENTRIES: usize = 1_000_000;
/// Shards the entries are spread over.
const SHARDS: usize = 8;
/// Keys looked up in one batch: about 0.1 ms, so that few batches contain a time in which another process ran.
const BATCH: usize = 500;

/// How the keys of a list lie.
#[derive(Clone, Copy)]
enum Ids {
    /// 1, 2, 3 …
    Serial,
    /// All over the 64 bits.
    Random,
}

/// All tables of maps.
pub fn run(effort: Effort) -> Result<Vec<Table>, Failure> {
    let batches = effort.pick(20_000, 2_000);
    let mut memory = Table::new(
        "map_memory",
        "Memory of a list map with bigint keys, bytes an entry",
        &["entries", "keys", "by its own count", "by RSS", "goal"],
    );
    let mut locate = Table::new(
        "map_locate",
        format!("Locating a random key, ns ({batches} batches of {BATCH})"),
        &["map", "entries", "min", "median", "chained, min", "std BTreeMap, median", "ratio", "goal"],
    );
    // Memory first: while the process is small, what it grows by is the map.
    let mut lists = Vec::new();
    for (ids, name) in [(Ids::Serial, "serial"), (Ids::Random, "random")] {
        let keys = sorted_keys(ENTRIES, ids);
        let before = resident_bytes()?;
        let map = list(&keys)?;
        let grown = resident_bytes()?.saturating_sub(before);
        memory.row([
            Cell::Number(ENTRIES as f64, 0),
            name.into(),
            (map.heap_bytes() as f64 / ENTRIES as f64).into(),
            (grown as f64 / ENTRIES as f64).into(),
            "120".into(),
        ]);
        lists.push((name, keys, map));
    }
    for (name, keys, map) in &lists {
        let times = time(map, keys, batches)?;
        locate.row([
            format!("list, {name} bigint").into(),
            Cell::Number(map.len() as f64, 0),
            times.free.min.into(),
            times.free.median.into(),
            times.chained.min.into(),
            times.tree.median.into(),
            times.ratio.median.into(),
            "300".into(),
        ]);
    }
    let keys = sorted_keys(ENTRIES, Ids::Random);
    for (name, map) in
        [("hash, 1024 buckets", hash(1024)?), ("hash, 65536 buckets, each apart", hash(65_536)?)]
    {
        let times = time(&map, &keys, batches)?;
        locate.row([
            name.into(),
            Cell::Number(map.len() as f64, 0),
            times.free.min.into(),
            times.free.median.into(),
            times.chained.min.into(),
            Cell::None,
            Cell::None,
            "100".into(),
        ]);
    }
    Ok(vec![locate, memory, changes(effort)?])
}

fn changes(effort: Effort) -> Result<Table, Failure> {
    let mut table = Table::new(
        "map_change",
        "One entry re-pointed in memory: plan the change and make the new map, µs",
        &["entries", "min", "median"],
    );
    for entries in [1_000, 100_000, ENTRIES] {
        let keys = sorted_keys(entries, Ids::Random);
        let map = list(&keys)?;
        let mut random = Random::new(5);
        let times = ns_per_op(effort.pick(500, 50), 1, || {
            let key = Key::BigInt(keys[random.below(keys.len() as u64) as usize]);
            let changed = repoint(&map, &key).expect("every key is in the map");
            black_box(changed);
        });
        table.row([Cell::Number(entries as f64, 0), (times.min / 1e3).into(), (times.median / 1e3).into()]);
    }
    Ok(table)
}

fn repoint(map: &Map, key: &Key) -> Result<Map, Failure> {
    let range = KeyRange::point(map.placement(key)?);
    let change = Change::SetState { range, state: State::ReadOnly };
    let window = map.window(&change);
    let delta = apply(map.definition(), &window, &change, None, map.epoch().next(), 0)?;
    Ok(map.with(&delta, map.epoch().next())?)
}

/// How long lookups took.
struct Times {
    /// As they come: the processor may begin one before the last is done.
    free: Spread,
    /// Each needs the answer before.
    chained: Spread,
    /// The same keys in a `BTreeMap<i64, u32>`, in turn with ours; it finds a number, not a name, and no range.
    tree: Spread,
    /// The tree's time over ours, batch by batch.
    ratio: Spread,
}

fn time(map: &Map, keys: &[i64], batches: usize) -> Result<Times, Failure> {
    let wanted = shuffled(keys);
    for key in wanted.iter().take(1000) {
        map.locate(&Key::BigInt(*key))?;
    }
    let look = |key: i64| {
        let located = map.locate(&Key::BigInt(key));
        located.map_or(0, |located| located.shard().as_str().len())
    };
    let tree: BTreeMap<i64, u32> = keys.iter().map(|key| (*key, (*key as u64 % 8) as u32)).collect();
    let look_in_tree = |key: i64| tree.get(&key).map_or(0, |shard| *shard as usize);
    let mut start = 0;
    let mut next_batch = || {
        // Each batch has other keys, so that what one leaves in the caches does not serve the next.
        start = (start + BATCH) % (wanted.len() - 2 * BATCH);
        start
    };
    let (mut free, mut in_tree, mut chained) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..batches {
        free.push(timed(|| lookups(&wanted[next_batch()..], look)));
        in_tree.push(timed(|| lookups(&wanted[next_batch()..], look_in_tree)));
        chained.push(timed(|| chained_lookups(&wanted[next_batch()..], look)));
    }
    let ratio = Spread::of(in_tree.iter().zip(&free).map(|(tree, ours)| tree / ours).collect());
    Ok(Times { free: Spread::of(free), chained: Spread::of(chained), tree: Spread::of(in_tree), ratio })
}

/// Nanoseconds for each of a batch.
fn timed(batch: impl FnOnce()) -> f64 {
    let start = Instant::now();
    batch();
    start.elapsed().as_nanos() as f64 / BATCH as f64
}

fn lookups(wanted: &[i64], look: impl Fn(i64) -> usize) {
    for key in &wanted[..BATCH] {
        black_box(look(*key));
    }
}

fn chained_lookups(wanted: &[i64], look: impl Fn(i64) -> usize) {
    let mut at = 0;
    for _ in 0..BATCH {
        // A name is shorter than 64 bytes, so this goes on by one: the processor does not know.
        at += 1 + (look(wanted[at]) >> 6);
    }
    black_box(at);
}

fn shuffled(keys: &[i64]) -> Vec<i64> {
    let mut random = Random::new(3);
    let mut keys = keys.to_vec();
    for index in (1..keys.len()).rev() {
        keys.swap(index, random.below(index as u64 + 1) as usize);
    }
    keys
}

/// Keys for a list map, in order.
fn sorted_keys(count: usize, ids: Ids) -> Vec<i64> {
    let mut random = Random::new(1);
    let mut keys: Vec<i64> = match ids {
        Ids::Serial => (1..=count as i64).collect(),
        Ids::Random => (0..count).map(|_| random.next() as i64).collect(),
    };
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn list(keys: &[i64]) -> Result<Map, Failure> {
    let definition = definition(Scheme::List)?;
    let shards = shards()?;
    let mut random = Random::new(2);
    let entries = keys.iter().map(|key| {
        let placement = definition.placement(&Key::BigInt(*key)).expect("a bigint is the key type");
        let shard = shards[random.below(SHARDS as u64) as usize].clone();
        NewEntry::new(KeyRange::point(placement), shard).at(Epoch::new(1))
    });
    Ok(Map::build(definition.clone(), entries, Epoch::new(1))?)
}

/// With more buckets than the usual every bucket is an entry of its own, as after very many moves.
fn hash(buckets: u32) -> Result<Map, Failure> {
    let spec = HashSpec::new(0, buckets)?;
    let definition = definition(Scheme::Hash(spec))?;
    let shards = shards()?;
    let entries: Vec<Entry> = if buckets > 1024 {
        let mut random = Random::new(4);
        let apart = (0..buckets).map(|bucket| {
            let shard = shards[random.below(SHARDS as u64) as usize].clone();
            Ok(NewEntry::new(definition.buckets(bucket, bucket + 1)?, shard).at(Epoch::new(1)))
        });
        apart.collect::<Result<_, Failure>>()?
    } else {
        spread_buckets(&spec, &shards)?.into_iter().map(|entry| entry.at(Epoch::new(1))).collect()
    };
    Ok(Map::build(definition, entries.into_iter(), Epoch::new(1))?)
}

fn definition(scheme: Scheme) -> Result<MapDefinition, Failure> {
    Ok(MapDefinition::new(MapName::new("tenants")?, KeyType::BigInt, scheme)?)
}

fn shards() -> Result<Vec<ShardId>, Failure> {
    (1..=SHARDS).map(|number| Ok(ShardId::new(&format!("s{number}"))?)).collect()
}
