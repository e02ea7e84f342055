//! Locating in a map of chunks finds what a plain look through all entries finds.

use std::collections::BTreeSet;

use polyshard_map::{
    Entry, Epoch, HashSpec, Key, KeyBytes, KeyRange, KeyType, LocateError, Map, MapDefinition, MapName,
    NewEntry, Scheme, Segment, ShardId, spread_segment,
};
use proptest::prelude::*;

/// Bytes that often share a long beginning, end in zeros, and differ only after the eighth byte.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let head =
        prop_oneof![Just(vec![]), Just(vec![7; 3]), Just(vec![7; 8]), Just(vec![7; 20]), Just(vec![0; 9])];
    let tail = proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(0xff)], 0..6);
    (head, tail).prop_map(|(mut head, tail)| {
        head.extend(tail);
        head
    })
}

fn definition(key_type: KeyType, scheme: Scheme) -> MapDefinition {
    MapDefinition::new(MapName::new("m").unwrap(), key_type, scheme).unwrap()
}

fn entry(range: KeyRange, number: usize) -> Entry {
    let shard = ShardId::new(&format!("s{}", number % 5)).unwrap();
    NewEntry::new(range, shard).at(Epoch::new(number as u64))
}

fn check(map: &Map, entries: &[Entry], placements: &BTreeSet<Vec<u8>>, ranges: &[(Vec<u8>, Vec<u8>)]) {
    assert!(map.entries(&KeyRange::all()).eq(entries.iter().cloned()));
    for placement in placements {
        let expected = entries.iter().find(|entry| entry.range.contains(placement));
        let found = map.locate_placement(placement).map(|located| located.entry());
        assert_eq!(found.as_ref(), expected, "{placement:?}");
    }
    for (lo, hi) in ranges {
        let Ok(range) = KeyRange::new(KeyBytes::new(lo.clone()), Some(KeyBytes::new(hi.clone()))) else {
            continue;
        };
        let expected = entries.iter().filter(|entry| entry.range.overlaps(&range)).cloned();
        assert!(map.entries(&range).eq(expected), "{range:?}");
        let shards: BTreeSet<ShardId> = entries
            .iter()
            .filter(|entry| entry.range.overlaps(&range))
            .map(|entry| entry.shard.clone())
            .collect();
        assert!(map.shards_for(&range).iter().eq(&shards));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn in_a_list(
        keys in proptest::collection::btree_set(bytes(), 0..80),
        others in proptest::collection::btree_set(bytes(), 0..40),
        ranges in proptest::collection::vec((bytes(), bytes()), 0..10),
    ) {
        let entries: Vec<Entry> = keys
            .iter()
            .enumerate()
            .map(|(number, key)| entry(KeyRange::point(KeyBytes::new(key.clone())), number))
            .collect();
        let definition = definition(KeyType::Binary, Scheme::List);
        let map = Map::build(definition, entries.iter().cloned(), Epoch::new(99)).unwrap();
        check(&map, &entries, &keys.union(&others).cloned().collect(), &ranges);
    }

    #[test]
    fn in_ranges_with_gaps(
        bounds in proptest::collection::btree_set(bytes(), 2..80),
        gaps in proptest::collection::vec(any::<bool>(), 80),
        open_end: bool,
        others in proptest::collection::btree_set(bytes(), 0..40),
        ranges in proptest::collection::vec((bytes(), bytes()), 0..10),
    ) {
        let sorted: Vec<KeyBytes> = bounds.iter().cloned().map(KeyBytes::new).collect();
        let mut entries: Vec<Entry> = sorted
            .windows(2)
            .zip(gaps)
            .enumerate()
            .filter(|(_, (_, gap))| !gap)
            .map(|(number, (pair, _))| entry(KeyRange::new(pair[0].clone(), Some(pair[1].clone())).unwrap(), number))
            .collect();
        if open_end {
            entries.push(entry(KeyRange::new(sorted[sorted.len() - 1].clone(), None).unwrap(), 3));
        }
        let definition = definition(KeyType::Binary, Scheme::Range);
        let map = Map::build(definition, entries.iter().cloned(), Epoch::new(99)).unwrap();
        check(&map, &entries, &bounds.union(&others).cloned().collect(), &ranges);
    }

    #[test]
    fn in_segments(
        bounds in proptest::collection::btree_set("[ab\u{1}]{0,3}", 2..12),
        gaps in proptest::collection::vec(any::<bool>(), 12),
        keys in proptest::collection::vec(("[ab\u{1}]{0,4}", any::<i64>()), 1..40),
    ) {
        let key_type = KeyType::tuple(vec![KeyType::Text, KeyType::BigInt]).unwrap();
        let hash = HashSpec::new(3, 10).unwrap();
        let bound = |text: &String| key_type.encode_bound(&Key::Tuple(vec![Key::Text(text.clone())])).unwrap();
        let texts: Vec<String> = bounds.into_iter().collect();
        let chosen: Vec<(String, String)> = texts
            .windows(2)
            .zip(gaps)
            .filter(|(_, gap)| !gap)
            .map(|(pair, _)| (pair[0].clone(), pair[1].clone()))
            .collect();
        let segment = |(lo, hi): &(String, String)| Segment::new(KeyRange::new(bound(lo), Some(bound(hi))).unwrap());
        let segments: Vec<Segment> = chosen.iter().map(segment).collect();
        // Each segment has two shards, named by its number.
        let entries = segments.iter().enumerate().flat_map(|(number, segment)| {
            let shards = ["low", "high"].map(|half| ShardId::new(&format!("s{number}-{half}")).unwrap());
            spread_segment(&hash, segment, &shards).unwrap()
        });
        let entries: Vec<Entry> = entries.map(|entry| entry.at(Epoch::new(1))).collect();
        let definition = definition(key_type, Scheme::RangeHash { prefix: 1, hash, segments });
        let map = Map::build(definition, entries.into_iter(), Epoch::new(1)).unwrap();
        for (text, number) in keys {
            let key = Key::Tuple(vec![Key::Text(text.clone()), Key::BigInt(number)]);
            let expected = chosen.iter().position(|(lo, hi)| *lo <= text && text < *hi).map(|segment| {
                let half = if hash.bucket(&Key::BigInt(number)) < 5 { "low" } else { "high" };
                format!("s{segment}-{half}")
            });
            match map.locate(&key) {
                Ok(found) => prop_assert_eq!(Some(found.shard().to_string()), expected),
                Err(LocateError::Gap { .. }) => prop_assert_eq!(None, expected),
                Err(other) => prop_assert!(false, "{}", other),
            }
        }
    }
}
