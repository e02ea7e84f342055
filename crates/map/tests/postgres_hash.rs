//! The hash of every key type equals that of a real PostgreSQL, and so does the bucket computed there in SQL.

use polyshard_map::{HashSpec, Key, KeyType, hash_extended};
use polyshard_testkit::postgres::PgServer;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// Values of each type; with two seeds and buckets, thousands of comparisons.
const VALUES: usize = 2000;
const SEEDS: [i64; 3] = [0, 42, i64::MIN];

#[tokio::test]
async fn every_type_hashes_as_in_postgresql() {
    let server = PgServer::start();
    let (client, connection) = tokio_postgres::connect(&server.connect_string("postgres"), NoTls)
        .await
        .expect("the server has just started");
    let connection = tokio::spawn(connection);

    for key_type in types() {
        compare(&client, &key_type).await;
    }
    timestamps_with_a_zone(&client).await;
    composite_buckets(&client).await;

    drop(client);
    connection.await.expect("the connection task does not panic").expect("the connection ends in order");
}

fn types() -> Vec<KeyType> {
    let names = [
        "int",
        "bigint",
        "uuid",
        "binary",
        "text",
        "timestamp",
        "date",
        "(text, bigint)",
        "(timestamp, text)",
        "(int, uuid, binary, date)",
        "(int, bigint, uuid, binary, text, timestamp, date, text)",
    ];
    names.iter().map(|name| name.parse().expect("a key type")).collect()
}

/// Sends every value as text, and lets PostgreSQL read it, hash it and compute its bucket.
async fn compare(client: &Client, key_type: &KeyType) {
    let parts = key_type.components();
    let columns: Vec<String> = (0..parts.len()).map(|number| format!("c{number}")).collect();
    let declared: Vec<String> = columns
        .iter()
        .zip(parts)
        .map(|(column, part)| format!("{column} {} NOT NULL", sql_type(part)))
        .collect();
    let create = format!("DROP TABLE IF EXISTS keys; CREATE TABLE keys (id int, {})", declared.join(", "));
    client.batch_execute(&create).await.expect("a table for the keys");

    let keys = values(key_type);
    for (batch, part) in keys.chunks(500).enumerate() {
        let rows: Vec<String> = part
            .iter()
            .enumerate()
            .map(|(number, key)| {
                let literals: Vec<String> = components(key).iter().map(literal).collect();
                format!("({}, {})", batch * 500 + number, literals.join(", "))
            })
            .collect();
        client
            .batch_execute(&format!("INSERT INTO keys VALUES {}", rows.join(", ")))
            .await
            .expect("keys fit");
    }

    let expression: Vec<(&str, KeyType)> =
        columns.iter().map(String::as_str).zip(parts.iter().cloned()).collect();
    for seed in SEEDS {
        for buckets in [1, 7, 1024, 65_536] {
            let spec = HashSpec::new(seed, buckets).expect("a valid number of buckets");
            let bucket = spec.sql_bucket_expression(&expression);
            let record = columns.join(", ");
            let query = format!(
                "SELECT id, {bucket}, hash_record_extended(ROW({record}), {seed}) FROM keys ORDER BY id"
            );
            let rows = client.query(&query, &[]).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
            assert_eq!(rows.len(), keys.len());
            for (row, key) in rows.iter().zip(&keys) {
                let (bucket, hash): (i32, i64) = (row.get(1), row.get(2));
                assert_eq!(hash_extended(key, seed), hash, "{key_type} {key} with seed {seed}");
                assert_eq!(
                    i64::from(spec.bucket(key)),
                    i64::from(bucket),
                    "{key_type} {key} in {buckets} buckets"
                );
            }
        }
    }
}

/// The same moment has the same bucket in a column with a zone, whatever the session's own zone.
async fn timestamps_with_a_zone(client: &Client) {
    let spec = HashSpec::standard();
    let bucket = spec.sql_bucket_expression(&[("moment", KeyType::Timestamp)]);
    for zone in ["UTC", "Pacific/Auckland"] {
        for key in values(&KeyType::Timestamp).iter().take(200) {
            let query = format!(
                "SET TIME ZONE '{zone}'; SELECT {bucket} FROM (SELECT {}tz AS moment) m",
                literal(key)
            );
            let rows = client.simple_query(&query).await.unwrap_or_else(|e| panic!("{query}: {e:?}"));
            let found = rows.iter().find_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                _ => None,
            });
            assert_eq!(found, Some(spec.bucket(key).to_string()), "{key} in {zone}");
        }
    }
    client.batch_execute("RESET TIME ZONE").await.expect("the zone can be reset");
}

/// In a composite map the components after the prefix are hashed, also if it is only one.
async fn composite_buckets(client: &Client) {
    let spec = HashSpec::new(5, 1000).expect("a valid number of buckets");
    for key in values(&KeyType::Text).into_iter().take(300) {
        let alone = spec.bucket(&key);
        let in_a_row = spec.bucket(&Key::Tuple(vec![key.clone()]));
        assert_eq!(alone, in_a_row);
        let expression = spec.sql_bucket_expression(&[("v", KeyType::Text)]);
        let row = client
            .query_one(&format!("SELECT {expression} FROM (SELECT {} AS v) one", literal(&key)), &[])
            .await
            .expect("the expression is valid");
        assert_eq!(i64::from(row.get::<_, i32>(0)), i64::from(alone), "{key}");
    }
}

fn components(key: &Key) -> &[Key] {
    match key {
        Key::Tuple(keys) => keys,
        single => std::slice::from_ref(single),
    }
}

fn sql_type(key_type: &KeyType) -> &'static str {
    match key_type {
        KeyType::Int => "int",
        KeyType::BigInt => "bigint",
        KeyType::Uuid => "uuid",
        KeyType::Binary => "bytea",
        KeyType::Text => "text",
        KeyType::Timestamp => "timestamp",
        KeyType::Date => "date",
        KeyType::Tuple(_) => panic!("tuples do not nest"),
    }
}

/// The key as an SQL literal: its own text form, so that PostgreSQL's reading of that is compared, too.
fn literal(key: &Key) -> String {
    let quoted = format!("'{}'", key.to_string().replace('\'', "''"));
    match key {
        Key::Int(_) => format!("{quoted}::int"),
        Key::BigInt(_) => format!("{quoted}::bigint"),
        Key::Uuid(_) => format!("{quoted}::uuid"),
        Key::Binary(_) => format!("{quoted}::bytea"),
        Key::Text(_) => format!("{quoted}::text"),
        Key::Timestamp(_) => format!("{quoted}::timestamp"),
        Key::Date(_) => format!("{quoted}::date"),
        Key::Tuple(_) => panic!("tuples do not nest"),
    }
}

fn values(key_type: &KeyType) -> Vec<Key> {
    // Deterministic, so that a failure is found again.
    let mut runner = TestRunner::deterministic();
    let strategy = key_of(key_type);
    (0..VALUES)
        .map(|_| strategy.new_tree(&mut runner).expect("a strategy without rejections").current())
        .collect()
}

fn key_of(key_type: &KeyType) -> BoxedStrategy<Key> {
    match key_type {
        KeyType::Int => prop_oneof![Just(0), Just(i32::MIN), Just(i32::MAX), -50..50, any::<i32>()]
            .prop_map(Key::Int)
            .boxed(),
        KeyType::BigInt => prop_oneof![
            Just(i64::MIN),
            Just(i64::MAX),
            -50..50_i64,
            any::<i32>().prop_map(i64::from),
            any::<i64>()
        ]
        .prop_map(Key::BigInt)
        .boxed(),
        KeyType::Uuid => any::<u128>().prop_map(|n| Key::Uuid(Uuid::from_u128(n))).boxed(),
        // Every length modulo 12 takes another path through the hash.
        KeyType::Binary => proptest::collection::vec(any::<u8>(), 0..=128).prop_map(Key::Binary).boxed(),
        KeyType::Text => prop_oneof!["[^\0]{0,40}", "[a-z]{0,30}", "[^\0]{400}"].prop_map(Key::Text).boxed(),
        KeyType::Timestamp => prop_oneof![
            Just(i64::MIN),
            Just(i64::MAX),
            -211_813_488_000_000_000..=9_223_371_331_199_999_999_i64,
            -10_000_000..10_000_000_i64,
        ]
        .prop_map(Key::Timestamp)
        .boxed(),
        KeyType::Date => {
            prop_oneof![Just(i32::MIN), Just(i32::MAX), -2_451_545..=2_145_031_948, -20_000..20_000]
                .prop_map(Key::Date)
                .boxed()
        }
        KeyType::Tuple(parts) => parts.iter().map(key_of).collect::<Vec<_>>().prop_map(Key::Tuple).boxed(),
    }
}
