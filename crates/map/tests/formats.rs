//! Files of earlier versions are still read, and stored forms do not change unnoticed.

use polyshard_map::{
    Change, Entry, Epoch, Key, KeyBytes, KeyRange, KeyType, Lock, Map, MapDefinition, MapJson, MapName,
    NewEntry, Scheme, ShardId, State, import,
};
use serde_json::{Value, json};

const FIXTURES: [(&str, &[u8]); 5] = [
    ("list", include_bytes!("fixtures/format_1_list.json")),
    ("range", include_bytes!("fixtures/format_1_range.json")),
    ("hash", include_bytes!("fixtures/format_1_hash.json")),
    ("range_hash", include_bytes!("fixtures/format_1_range_hash.json")),
    ("list_hash", include_bytes!("fixtures/format_1_list_hash.json")),
];

#[test]
fn format_1_is_read_and_written_back_the_same() {
    for (kind, file) in FIXTURES {
        let map = import(file).unwrap_or_else(|e| panic!("{kind}: {e}"));
        assert_eq!(map.definition().scheme().kind(), kind);
        let written = serde_json::to_value(MapJson(&map)).unwrap();
        let original: Value = serde_json::from_slice(file).unwrap();
        assert_eq!(written, original, "{kind}");
    }
}

#[test]
fn format_1_finds_the_same_shards() {
    let shard = |file: usize, key: &str| {
        let map = import(FIXTURES[file].1).unwrap();
        let key = map.definition().key_type().parse(key).unwrap();
        map.locate(&key).map(|found| found.shard().to_string()).ok()
    };
    assert_eq!(shard(0, "no").as_deref(), Some("s2"));
    assert_eq!(shard(0, "se"), None);
    assert_eq!(shard(1, r#"[202312, "infinity"]"#).as_deref(), Some("archive"));
    assert_eq!(shard(1, r#"[202401, "2024-01-15T00:00:00Z"]"#).as_deref(), Some("s2"));
    assert_eq!(shard(1, r#"[202401, "2024-01-15T00:00:00.000001Z"]"#).as_deref(), Some("s1"));
    // Bucket 838, as PostgreSQL says: (hashint8extended(1, 0) & 9223372036854775807) % 1024.
    assert_eq!(shard(2, "1").as_deref(), Some("s3"));
    assert_eq!(shard(3, r#"["1999-01-01", "device"]"#).as_deref(), Some("archive"));
    assert_eq!(shard(4, r#"["eu", 1, "67e55044-10b1-426f-9247-bb680e5fe0c8"]"#).as_deref(), Some("eu1"));
    assert_eq!(shard(4, r#"["eu", 2, "67e55044-10b1-426f-9247-bb680e5fe0c8"]"#), None);
}

/// Stored in catalogs and shards: a change here needs a migration.
#[test]
fn stored_forms_are_pinned() {
    let range = KeyRange::point(KeyType::Int.encode(&Key::Int(1)).unwrap());
    let shard = ShardId::new("s1").unwrap();
    let entry = Entry {
        range: range.clone(),
        shard: shard.clone(),
        state: State::ReadOnly,
        epoch: Epoch::new(3),
        group: None,
        lock: Some(Lock::new("mover-1".to_owned(), 5).unwrap()),
    };
    check(
        &entry,
        json!({"range": {"lo": "80000001", "hi": "8000000100"}, "shard": "s1", "state": "read_only", "epoch": 3,
               "lock": {"owner": "mover-1", "until_ms": 5}}),
    );
    let change = Change::Add { entries: vec![NewEntry::new(KeyRange::all(), shard)] };
    check(
        &change,
        json!({"change": "add", "entries": [{"range": {"lo": "", "hi": null}, "shard": "s1", "state": "online"}]}),
    );
    check(&Change::Split { at: KeyBytes::new(vec![1]) }, json!({"change": "split", "at": "01"}));
    for (kind, file) in FIXTURES {
        let definition = import(file).unwrap().definition().clone();
        let text = serde_json::to_string(&definition).unwrap();
        assert_eq!(serde_json::from_str::<MapDefinition>(&text).unwrap(), definition, "{kind}");
    }
    let hash = import(FIXTURES[2].1).unwrap().definition().clone();
    check(
        &hash,
        json!({"name": "tenants", "key_type": "bigint",
               "scheme": {"kind": "hash", "function": "postgres_hash_extended", "seed": 0, "buckets": 1024}}),
    );
}

fn check<T>(value: &T, form: Value)
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    assert_eq!(serde_json::to_value(value).unwrap(), form);
    assert_eq!(serde_json::from_value::<T>(form).unwrap(), *value);
}

#[test]
fn stored_forms_that_break_a_rule_are_refused() {
    let wrong = [
        json!({"range": {"lo": "02", "hi": "01"}, "shard": "s1", "state": "online", "epoch": 1}),
        json!({"range": {"lo": "0", "hi": null}, "shard": "s1", "state": "online", "epoch": 1}),
        json!({"range": {"lo": "", "hi": null}, "shard": "S1", "state": "online", "epoch": 1}),
        json!({"range": {"lo": "", "hi": null}, "shard": "s1", "state": "on", "epoch": 1}),
        json!({"range": {"lo": "", "hi": null}, "shard": "s1", "state": "online", "epoch": 1, "colour": 1}),
        json!({"range": {"lo": "", "hi": null}, "shard": "s1", "state": "online", "epoch": 1,
               "lock": {"owner": "", "until_ms": 1}}),
    ];
    for form in wrong {
        assert!(serde_json::from_value::<Entry>(form.clone()).is_err(), "{form}");
    }
    let wrong = json!({"name": "t", "key_type": "bigint",
        "scheme": {"kind": "range_hash", "prefix": 1, "segments": [],
                   "hash": {"function": "postgres_hash_extended", "seed": 0, "buckets": 8}}});
    assert!(serde_json::from_value::<MapDefinition>(wrong).is_err());
}

#[test]
fn a_map_of_every_key_type_survives_export() {
    let types = ["int", "bigint", "uuid", "binary", "text", "timestamp", "date", "(text, binary, date)"];
    let keys = [
        vec!["-5", "0", "7"],
        vec!["-9223372036854775808", "9223372036854775807"],
        vec!["00000000-0000-0000-0000-000000000000", "67e55044-10b1-426f-9247-bb680e5fe0c8"],
        vec!["\\x", "\\x00", "\\x0000", "\\xff"],
        vec!["", "a", "a\u{1}", "é\"\\"],
        vec!["-infinity", "0044-03-15T00:00:00Z BC", "2024-01-01T00:00:00.000001Z", "infinity"],
        vec!["-infinity", "4714-11-24 BC", "5874897-12-31", "infinity"],
        vec![r#"["", "\\x00", "2000-01-01"]"#, r#"["a", "\\x", "infinity"]"#],
    ];
    for (name, keys) in types.iter().zip(keys) {
        let key_type: KeyType = name.parse().unwrap();
        let mut entries: Vec<Entry> = keys
            .iter()
            .map(|key| {
                let key = key_type.encode(&key_type.parse(key).unwrap()).unwrap();
                NewEntry::new(KeyRange::point(key), ShardId::new("s1").unwrap()).at(Epoch::new(1))
            })
            .collect();
        entries.sort_by(|a, b| a.range.cmp(&b.range));
        let definition = MapDefinition::new(MapName::new("t").unwrap(), key_type, Scheme::List).unwrap();
        let map = Map::build(definition, entries.into_iter(), Epoch::new(1)).unwrap();
        let text = serde_json::to_vec(&MapJson(&map)).unwrap();
        assert!(import(&text).unwrap() == map, "{name}");
    }
}
