//! Windows onto maps of all sizes: nothing is left out, nothing is shown twice.

use std::sync::Arc;

use polyshard_admin::types::{RangeView, Unit};
use polyshard_map::{
    Entry, Epoch, HashSpec, Key, KeyRange, KeyType, Map, MapDefinition, MapName, Scheme, ShardId, State,
    spread_buckets,
};
use polyshard_router::view::KnownMap;

use super::Index;

fn name() -> MapName {
    MapName::new("tenants").unwrap()
}

fn shard(number: usize) -> ShardId {
    ShardId::new(&format!("s{number}")).unwrap()
}

fn index(map: Map) -> Index {
    Index::new(Arc::new(KnownMap { published: map.clone(), map, version: 3 }))
}

fn list(entries: usize, shards: usize) -> Index {
    let definition = MapDefinition::new(name(), KeyType::BigInt, Scheme::List).unwrap();
    let entry = |number: usize| Entry {
        range: KeyRange::point(definition.placement(&Key::BigInt(number as i64)).unwrap()),
        shard: shard(number * shards / entries),
        state: if number == 17 { State::Offline } else { State::Online },
        epoch: Epoch::new(1),
        group: None,
        lock: None,
    };
    index(Map::build(definition.clone(), (0..entries).map(entry), Epoch::new(1)).unwrap())
}

#[test]
fn a_large_map_is_shown_whole_in_few_pieces() {
    let index = list(100_000, 10);
    let window = index.window(name(), 0, None, 300, 0);
    assert_eq!((window.unit, window.total, window.first, window.count), (Unit::Entry, 100_000, 0, 100_000));
    assert_eq!(window.pieces.len(), 300);
    assert_eq!(window.pieces.iter().map(|piece| piece.count).sum::<u64>(), 100_000);
    assert_eq!(window.pieces.iter().map(|piece| piece.entries).sum::<u64>(), 100_000);
    let parts: u64 = window.pieces.iter().flat_map(|piece| &piece.shards).map(|part| part.count).sum();
    assert_eq!(parts, 100_000);
    assert_eq!(window.pieces[0].state, State::Offline, "the worst state of a piece is shown");
    assert!(window.pieces[1..].iter().all(|piece| piece.state == State::Online));
}

#[test]
fn near_by_every_entry_is_itself_wherever_the_window_is() {
    let index = list(5_000, 7);
    for first in [0, 1, 1_023, 1_024, 3_000, 4_990] {
        let window = index.window(name(), first, Some(10), 400, 0);
        let keys: Vec<String> =
            window.pieces.iter().map(|piece| piece.entry.as_ref().unwrap().range.to_string()).collect();
        let expected: Vec<String> = (first..first + 10).map(|key| key.to_string()).collect();
        assert_eq!(keys, expected);
        assert_eq!(window.from.map(|range| range.to_string()), keys.first().cloned());
        assert_eq!(window.to.map(|range| range.to_string()), keys.last().cloned());
    }
    let beyond = index.window(name(), 1_000_000, None, 400, 0);
    assert_eq!((beyond.first, beyond.pieces.len()), (4_999, 1));
}

#[test]
fn a_key_is_found_at_its_position() {
    let index = list(5_000, 7);
    for key in [0, 1_023, 1_024, 4_999] {
        let placement = index.known.map.placement(&Key::BigInt(key)).unwrap();
        assert_eq!(index.position(&placement), Some(key as u64));
    }
    let unknown = index.known.map.placement(&Key::BigInt(5_000)).unwrap();
    assert_eq!(index.position(&unknown), None);
}

#[test]
fn positions_of_a_hash_map_are_its_buckets() {
    let hash = HashSpec::new(0, 1024).unwrap();
    let entries = spread_buckets(&hash, &[shard(1), shard(2), shard(3)]).unwrap();
    let definition = MapDefinition::new(name(), KeyType::BigInt, Scheme::Hash(hash)).unwrap();
    let entries = entries.into_iter().map(|entry| entry.at(Epoch::new(1)));
    let index = index(Map::build(definition, entries, Epoch::new(1)).unwrap());
    let window = index.window(name(), 0, None, 400, 0);
    assert_eq!((window.unit, window.total), (Unit::Bucket, 1024));
    assert_eq!(window.pieces.iter().map(|piece| piece.count).sum::<u64>(), 1024);
    let placement = index.known.map.placement(&Key::BigInt(42)).unwrap();
    let position = index.position(&placement).unwrap();
    let piece = window.pieces.iter().find(|piece| piece.first == position).unwrap();
    assert!(matches!(piece.entry.as_ref().unwrap().range, RangeView::Buckets { .. }));
    // Few pieces: the parts of a piece are still all of it.
    for piece in index.window(name(), 0, None, 2, 0).pieces {
        assert_eq!(piece.shards.iter().map(|part| part.count).sum::<u64>(), 512);
    }
}

#[test]
fn an_empty_map_has_an_empty_window() {
    let definition = MapDefinition::new(name(), KeyType::BigInt, Scheme::Range).unwrap();
    let index = index(Map::build(definition, std::iter::empty(), Epoch::new(1)).unwrap());
    let window = index.window(name(), 0, None, 400, 0);
    assert_eq!((window.total, window.count, window.pieces.len()), (0, 0, 0));
}
