//! Maps whose keys are moments, days and uuids: rows of every such key move and are found, on either engine (D1).

use std::sync::Arc;

use polyshard_engine::{Dialect, Statement, Value};
use polyshard_map::{Epoch, HashSpec, Key, KeyRange, KeyType, MapDefinition, NewEntry, Scheme};
use polyshard_shard::{Dataset, Placement};

use crate::cluster::{Cluster, Setup, map, shard};
use crate::place::Place;
use crate::strays::misplaced;

on_every_engine!(rows_placed_by_moments_days_and_uuids_move_by_range_and_by_bucket);

const MOMENTS: &[&str] = &[
    "-infinity",
    "4713-01-01 00:00:00+00 BC",
    "0044-03-15 12:00:00.000001+00 BC",
    "1999-12-31 23:59:59.999999+00",
    "2000-01-01 00:00:00+00",
    "2026-11-16 05:40:00.123456+00",
    "294246-12-31 23:59:59.999999+00",
    "294276-12-31 23:59:59.999999+00",
    "infinity",
];
const DAYS: &[&str] =
    &["-infinity", "4713-11-24 BC", "0001-01-01", "1999-12-31", "2000-01-01", "5874897-12-31", "infinity"];
const IDS: &[&str] = &[
    "00000000-0000-0000-0000-000000000000",
    "6f9619ff-8b86-d011-b42d-00c04fc964ff",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
];

/// What is tried: a name, the map's keys, the type on PostgreSQL, and keys in their order.
fn tried() -> [(&'static str, KeyType, &'static str, &'static [&'static str]); 4] {
    [
        ("zoned", KeyType::Timestamp, "timestamptz", MOMENTS),
        ("plain", KeyType::Timestamp, "timestamp", MOMENTS),
        ("days", KeyType::Date, "date", DAYS),
        ("ids", KeyType::Uuid, "uuid", IDS),
    ]
}

async fn rows_placed_by_moments_days_and_uuids_move_by_range_and_by_bucket(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    for (name, key_type, sql, values) in tried() {
        for is_hashed in [false, true] {
            let name = format!("{name}_{}", if is_hashed { "hashed" } else { "ranges" });
            let scheme = match is_hashed {
                true => Scheme::Hash(HashSpec::new(3, 8).unwrap()),
                false => Scheme::Range,
            };
            let definition = MapDefinition::new(map(&name), key_type.clone(), scheme).unwrap();
            let keys: Vec<Key> = values.iter().map(|value| key_type.parse(value).unwrap()).collect();
            make(&cluster, &definition, sql).await;
            put(&cluster, &definition, sql, &keys, values).await;
            // From the middle on, or a half of the buckets.
            let middle = key_type.encode_bound(&keys[keys.len() / 2]).unwrap();
            let moving = match is_hashed {
                true => definition.buckets(0, 4).unwrap(),
                false => KeyRange::new(middle, None).unwrap(),
            };
            let there = |key: &Key| moving.contains(definition.placement(key).unwrap().as_slice());
            let sum = |is_there: bool| -> i64 {
                let wanted = keys.iter().enumerate().filter(|(_, key)| there(key) == is_there);
                wanted.map(|(place, _)| 1 << place).sum()
            };
            cluster.moves(&name, moving.clone(), "s2").await.unwrap_or_else(|why| panic!("{name}: {why}"));
            for (on, is_there) in [("s1", false), ("s2", true)] {
                assert_eq!(sum_of(&cluster, on, &name).await, sum(is_there), "{name} on {on}");
                assert_eq!(misplaced(&cluster, &name, on).await, (0, 0), "{name} on {on}");
            }
            cluster.moves(&name, moving, "s1").await.unwrap_or_else(|why| panic!("{name}: {why}"));
            assert_eq!(sum_of(&cluster, "s1", &name).await, (1 << keys.len()) - 1, "{name}");
            assert_eq!(sum_of(&cluster, "s2", &name).await, 0, "{name}");
        }
    }
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// A map that is all on the first shard, and its table on two.
async fn make(cluster: &Cluster, definition: &MapDefinition, sql: &str) {
    let all = match definition.scheme() {
        Scheme::Hash(hash) => definition.buckets(0, hash.buckets()).unwrap(),
        _ => KeyRange::all(),
    };
    let entry = NewEntry::new(all, shard("s1")).at(Epoch::ZERO);
    cluster.driver.create_map(definition, vec![entry]).await.unwrap();
    for on in ["s1", "s2"] {
        let opened = cluster.router.administer(&shard(on)).await.unwrap();
        let kind = match (opened.dialect(), definition.key_type()) {
            (Dialect::Postgres, _) => sql,
            (Dialect::Sqlite, KeyType::Uuid) => "BLOB",
            (Dialect::Sqlite, _) => "BIGINT",
        };
        let create = format!("CREATE TABLE {} (k {kind} PRIMARY KEY, n BIGINT NOT NULL)", definition.name());
        let mut tx = opened.control_transaction().await.unwrap();
        tx.run(Statement::new(create)).await.unwrap();
        tx.commit().await.unwrap();
        let dataset = Dataset {
            name: definition.name().to_string(),
            map: definition.name().clone(),
            table: definition.name().to_string(),
            placement: Placement::Key(vec!["k".to_owned()]),
            rows: polyshard_shard::TableRows::All,
        };
        opened.bind(&dataset).await.unwrap();
    }
}

/// Puts a row of each key on the first shard: each has another bit as its number.
async fn put(cluster: &Cluster, definition: &MapDefinition, sql: &str, keys: &[Key], texts: &[&str]) {
    let opened = cluster.router.administer(&shard("s1")).await.unwrap();
    let mut tx = opened.control_transaction().await.unwrap();
    for (place, (key, text)) in keys.iter().zip(texts).enumerate() {
        let (given, value) = match opened.dialect() {
            Dialect::Postgres => (format!("$1::text::{sql}"), Value::Text((*text).to_owned())),
            Dialect::Sqlite => ("$1".to_owned(), filed(key)),
        };
        let insert = format!("INSERT INTO {} (k, n) VALUES ({given}, {})", definition.name(), 1_i64 << place);
        tx.run(Statement::new(insert).bind(value)).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// A key as files keep it.
fn filed(key: &Key) -> Value {
    match key {
        Key::Timestamp(micros) => Value::Int(*micros),
        Key::Date(i32::MIN) => Value::Int(i64::MIN),
        Key::Date(i32::MAX) => Value::Int(i64::MAX),
        Key::Date(days) => Value::Int((*days).into()),
        Key::Uuid(id) => Value::Blob(id.as_bytes().to_vec()),
        other => panic!("{other} is not tried"),
    }
}

async fn sum_of(cluster: &Cluster, on: &str, table: &str) -> i64 {
    let sql = format!("SELECT CAST(COALESCE(sum(n), 0) AS bigint) FROM {table}");
    cluster.rows(on, |_| sql.clone()).await[0].int(0).unwrap()
}
