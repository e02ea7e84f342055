//! Random changes on a map against a model that maps every single key by itself.

use std::collections::BTreeMap;

use polyshard_map::{
    Change, Entry, Epoch, GroupName, HashSpec, Key, KeyBytes, KeyRange, KeyType, Map, MapDefinition, MapName,
    NewEntry, Scheme, ShardId, State, apply,
};
use proptest::prelude::*;

/// Keys of the model: few enough to look at each after every change.
const KEYS: i32 = 60;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    List,
    Range,
    Hash,
}

/// A change in terms of small numbers, which may well be refused.
#[derive(Clone, Debug)]
enum Try {
    Add(i32, i32, u8, Option<u8>),
    Remove(i32, i32),
    Assign(i32, i32, u8),
    AssignGroup(u8, u8),
    Split(i32),
    Merge(i32),
    SetState(i32, i32, State),
    Lock(i32, i32, u8),
    Unlock(i32, i32, Option<u8>),
}

fn tries() -> impl Strategy<Value = Vec<(Try, Option<u8>)>> {
    let at = || 0..KEYS;
    let span = || (0..KEYS, 1..12_i32).prop_map(|(from, width)| (from, (from + width).min(KEYS)));
    let state = prop_oneof![Just(State::Online), Just(State::ReadOnly), Just(State::Offline)];
    let one = prop_oneof![
        4 => (span(), 0..4_u8, proptest::option::weighted(0.3, 0..2_u8))
            .prop_map(|((a, b), s, g)| Try::Add(a, b, s, g)),
        1 => span().prop_map(|(a, b)| Try::Remove(a, b)),
        4 => (span(), 0..4_u8).prop_map(|((a, b), s)| Try::Assign(a, b, s)),
        1 => (0..2_u8, 0..4_u8).prop_map(|(g, s)| Try::AssignGroup(g, s)),
        3 => at().prop_map(Try::Split),
        6 => at().prop_map(Try::Merge),
        2 => (span(), state).prop_map(|((a, b), s)| Try::SetState(a, b, s)),
        1 => (span(), 0..2_u8).prop_map(|((a, b), o)| Try::Lock(a, b, o)),
        1 => (span(), proptest::option::of(0..2_u8)).prop_map(|((a, b), o)| Try::Unlock(a, b, o)),
    ];
    proptest::collection::vec((one, proptest::option::of(0..2_u8)), 1..60)
}

/// What the model knows of one key.
#[derive(Clone, Debug, PartialEq)]
struct Cell {
    shard: ShardId,
    state: State,
    group: Option<GroupName>,
    owner: Option<String>,
}

type Model = BTreeMap<i32, Cell>;

fn shard(number: u8) -> ShardId {
    ShardId::new(&format!("s{number}")).unwrap()
}

fn group(number: u8) -> GroupName {
    GroupName::new(&format!("g{number}")).unwrap()
}

fn owner(number: u8) -> String {
    format!("owner-{number}")
}

fn definition(kind: Kind) -> MapDefinition {
    let scheme = match kind {
        Kind::List => Scheme::List,
        Kind::Range => Scheme::Range,
        Kind::Hash => Scheme::Hash(HashSpec::new(0, KEYS as u32).unwrap()),
    };
    MapDefinition::new(MapName::new("model").unwrap(), KeyType::Int, scheme).unwrap()
}

/// The placement of a model key: the key itself, or the bucket of that number.
fn place(kind: Kind, key: i32) -> KeyBytes {
    match kind {
        Kind::Hash => KeyBytes::new((key as u32).to_be_bytes().to_vec()),
        Kind::List | Kind::Range => KeyType::Int.encode(&Key::Int(key)).unwrap(),
    }
}

fn range(kind: Kind, from: i32, to: i32) -> KeyRange {
    KeyRange::new(place(kind, from), Some(place(kind, to))).unwrap()
}

fn change(kind: Kind, attempt: &Try) -> Change {
    let range = |from: &i32, to: &i32| range(kind, *from, *to);
    match attempt {
        Try::Add(a, b, s, g) => {
            let new = |range| NewEntry { group: g.map(group), ..NewEntry::new(range, shard(*s)) };
            let entries = match kind {
                Kind::List => (*a..*b).map(|key| new(KeyRange::point(place(kind, key)))).collect(),
                Kind::Range | Kind::Hash => vec![new(range(a, b))],
            };
            Change::Add { entries }
        }
        Try::Remove(a, b) => Change::Remove { range: range(a, b) },
        Try::Assign(a, b, s) => Change::Assign { range: range(a, b), to: shard(*s) },
        Try::AssignGroup(g, s) => Change::AssignGroup { group: group(*g), to: shard(*s) },
        Try::Split(at) => Change::Split { at: place(kind, *at) },
        Try::Merge(at) => Change::Merge { at: place(kind, *at) },
        Try::SetState(a, b, state) => Change::SetState { range: range(a, b), state: *state },
        Try::Lock(a, b, o) => Change::Lock { range: range(a, b), owner: owner(*o), until_ms: 1000 },
        Try::Unlock(a, b, o) => Change::Unlock { range: range(a, b), owner: o.map(owner) },
    }
}

/// What an accepted change does to the model. Splits and merges do nothing there.
fn expect(model: &mut Model, attempt: &Try) {
    let mut each = |from: i32, to: i32, edit: &dyn Fn(&mut Cell)| {
        model.range_mut(from..to).for_each(|(_, cell)| edit(cell))
    };
    match attempt {
        Try::Add(a, b, s, g) => {
            let cell = Cell { shard: shard(*s), state: State::Online, group: g.map(group), owner: None };
            for key in *a..*b {
                assert_eq!(model.insert(key, cell.clone()), None, "something was mapped at {key} already");
            }
        }
        Try::Remove(a, b) => model.retain(|key, _| !(*a..*b).contains(key)),
        Try::Assign(a, b, s) => {
            each(*a, *b, &|cell| cell.shard = shard(*s));
            let groups: Vec<GroupName> =
                model.range(*a..*b).filter_map(|(_, cell)| cell.group.clone()).collect();
            for cell in
                model.values_mut().filter(|cell| cell.group.as_ref().is_some_and(|g| groups.contains(g)))
            {
                cell.shard = shard(*s);
            }
        }
        Try::AssignGroup(g, s) => {
            let group = Some(group(*g));
            model.values_mut().filter(|cell| cell.group == group).for_each(|cell| cell.shard = shard(*s));
        }
        Try::Split(_) | Try::Merge(_) => {}
        Try::SetState(a, b, state) => each(*a, *b, &|cell| cell.state = *state),
        Try::Lock(a, b, o) => each(*a, *b, &|cell| cell.owner = Some(owner(*o))),
        Try::Unlock(a, b, _) => each(*a, *b, &|cell| cell.owner = None),
    }
}

fn read(map: &Map, kind: Kind) -> Model {
    let cell = |entry: Entry| Cell {
        shard: entry.shard,
        state: entry.state,
        group: entry.group,
        owner: entry.lock.map(|lock| lock.owner().to_owned()),
    };
    let keys = (0..KEYS).filter_map(|key| {
        map.locate_placement(place(kind, key).as_slice()).map(|found| (key, cell(found.entry())))
    });
    keys.collect()
}

fn run(kind: Kind, first: Option<Try>, attempts: Vec<(Try, Option<u8>)>) {
    let mut map = Map::build(definition(kind), std::iter::empty(), Epoch::ZERO).unwrap();
    let mut model = Model::new();
    for (attempt, by) in first.into_iter().map(|first| (first, None)).chain(attempts) {
        let by = by.map(owner);
        let change = change(kind, &attempt);
        let epoch = map.epoch().next();
        let window = map.window(&change);
        let all: Vec<Entry> = map.entries(&KeyRange::all()).collect();
        let answer = apply(map.definition(), &window, &change, by.as_deref(), epoch, 0);
        // The window is enough: with all rows at hand the answer is the same.
        assert_eq!(answer, apply(map.definition(), &all, &change, by.as_deref(), epoch, 0), "{change:?}");
        let Ok(delta) = answer else { continue };

        expect_departures(&model, &attempt, &delta.departures(&window), kind);
        map = map.with(&delta, epoch).unwrap();
        expect(&mut model, &attempt);
        assert_eq!(read(&map, kind), model, "after {attempt:?}");
        let built = Map::build(map.definition().clone(), map.entries(&KeyRange::all()), epoch).unwrap();
        assert!(built == map, "the changed map differs from one built anew");
        for entry in &delta.put {
            assert_eq!(entry.epoch, epoch);
        }
    }
}

/// Exactly the keys that change their shard depart, each once.
fn expect_departures(before: &Model, attempt: &Try, departures: &[polyshard_map::Departure], kind: Kind) {
    let mut after = before.clone();
    expect(&mut after, attempt);
    for (key, cell) in before {
        let placement = place(kind, *key);
        let leaving: Vec<_> = departures.iter().filter(|d| d.range.contains(placement.as_slice())).collect();
        let to = after.get(key).map(|cell| cell.shard.clone());
        if to.as_ref() == Some(&cell.shard) {
            assert!(leaving.is_empty(), "{key} stays on {}", cell.shard);
        } else {
            assert_eq!(leaving.len(), 1, "{key} leaves once");
            assert_eq!((&leaving[0].from, &leaving[0].to), (&cell.shard, &to));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_list_map_is_its_keys(attempts in tries()) {
        run(Kind::List, None, attempts);
    }

    #[test]
    fn a_range_map_is_its_keys(full: bool, attempts in tries()) {
        run(Kind::Range, full.then_some(Try::Add(0, KEYS, 0, None)), attempts);
    }

    #[test]
    fn a_hash_map_is_its_buckets(full: bool, attempts in tries()) {
        run(Kind::Hash, full.then_some(Try::Add(0, KEYS, 0, None)), attempts);
    }
}

fn entry(key: i64, epoch: u64) -> Entry {
    let range = KeyRange::point(KeyType::BigInt.encode(&Key::BigInt(key)).unwrap());
    NewEntry::new(range, shard((key % 7) as u8)).at(Epoch::new(epoch))
}

#[test]
fn chunks_split_and_join_as_a_large_map_changes() {
    let definition =
        MapDefinition::new(MapName::new("large").unwrap(), KeyType::BigInt, Scheme::List).unwrap();
    let mut model: BTreeMap<i64, Entry> = (0..20_000).map(|key| (key * 3, entry(key * 3, 1))).collect();
    let mut map = Map::build(definition, model.values().cloned(), Epoch::new(1)).unwrap();
    // Fill one stretch to many times its size, then empty another, a few hundred keys at a time.
    for round in 0..60_i64 {
        let epoch = map.epoch().next();
        let change = if round < 30 {
            let keys = (0..100).map(|n| 30_001 + (round * 100 + n) * 3);
            let entries = keys.map(|key| NewEntry::new(entry(key, 0).range, shard(1))).collect();
            Change::Add { entries }
        } else {
            let bound = |key| KeyType::BigInt.encode(&Key::BigInt(key)).unwrap();
            let from = 5_000 + (round - 30) * 900;
            Change::Remove { range: KeyRange::new(bound(from), Some(bound(from + 900))).unwrap() }
        };
        let window = map.window(&change);
        let delta = apply(map.definition(), &window, &change, None, epoch, 0).unwrap();
        for range in &delta.remove {
            let Key::BigInt(key) = KeyType::BigInt.decode(range.lo().as_slice()).unwrap() else {
                unreachable!()
            };
            model.remove(&key).unwrap();
        }
        for entry in &delta.put {
            let Key::BigInt(key) = KeyType::BigInt.decode(entry.range.lo().as_slice()).unwrap() else {
                unreachable!()
            };
            model.insert(key, entry.clone());
        }
        map = map.with(&delta, epoch).unwrap();
        assert_eq!(map.len(), model.len());
    }
    assert!(map.entries(&KeyRange::all()).eq(model.values().cloned()));
    for key in -1..60_010 {
        let found = map.locate(&Key::BigInt(key)).ok().map(|located| located.entry());
        assert_eq!(found.as_ref(), model.get(&key), "key {key}");
    }
    let counted: usize = map.count_by_shard().values().sum();
    assert_eq!(counted, model.len());
}

#[test]
fn a_delta_of_another_map_is_refused() {
    let definition =
        MapDefinition::new(MapName::new("small").unwrap(), KeyType::BigInt, Scheme::List).unwrap();
    let map = Map::build(definition, [entry(1, 1)].into_iter(), Epoch::new(1)).unwrap();
    let missing = polyshard_map::Delta { remove: vec![entry(2, 1).range], ..Default::default() };
    let double = polyshard_map::Delta { put: vec![entry(1, 2)], ..Default::default() };
    assert!(map.with(&missing, Epoch::new(2)).is_err());
    assert!(map.with(&double, Epoch::new(2)).is_err());
}

#[test]
fn a_bigint_entry_takes_less_than_120_bytes() {
    let definition =
        MapDefinition::new(MapName::new("large").unwrap(), KeyType::BigInt, Scheme::List).unwrap();
    let map = Map::build(definition, (0..50_000).map(|key| entry(key, 1)), Epoch::new(1)).unwrap();
    assert!(map.heap_bytes() / map.len() < 120, "{} bytes for {} entries", map.heap_bytes(), map.len());
}
