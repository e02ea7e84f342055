//! Whether a shard has rows of keys that nobody owns.

use std::collections::BTreeSet;

use polyshard_map::{Key, KeyRange, KeyType, MapDefinition, Scheme};
use polyshard_planner::measure;
use polyshard_schema::Declaration;
use polyshard_sql::TableName;

use crate::bed::{Bed, keys, map, range_map, shard};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_some_ranges_are_found_on_the_shard_that_has_them() {
    let bed = Bed::start().await;
    bed.on("s1", "INSERT INTO orders VALUES (7, 1, ''), (500, 1, '')").await;
    bed.on("s1", "INSERT INTO lines VALUES (600, 1, '')").await;
    let ranges: Vec<KeyRange> = (0..1_000).map(|tenant| keys(tenant, tenant + 1)).collect();
    let found = measure::found(&bed.router, &range_map("tenants"), &ranges, &shard("s1")).await;
    assert_eq!(found.unwrap(), BTreeSet::from([7, 500, 600]));
    let found = measure::found(&bed.router, &range_map("tenants"), &ranges, &shard("s2")).await;
    assert_eq!(found.unwrap(), BTreeSet::new());
    bed.close().await;
}

/// Single keys are looked up as they are stored; ranges of them by what is computed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_texts_are_found_by_key_and_by_range() {
    let bed = Bed::start().await;
    let definition = MapDefinition::new(map("names"), KeyType::Text, Scheme::Range).unwrap();
    bed.driver.create_map(&definition, Vec::new()).await.unwrap();
    bed.router.refresh().await.unwrap();
    bed.journal
        .apply(&["CREATE TABLE notes (name text, id bigint, PRIMARY KEY (name, id))".to_owned()])
        .await
        .unwrap();
    let (table, column) = (TableName::public("notes"), "name".to_owned());
    bed.journal.declare(Declaration::Sharded { table, map: map("names"), column }).await.unwrap();
    bed.journal.finish().await.unwrap();
    bed.on("s2", "INSERT INTO notes VALUES ('o''hara', 1), ('ünal', 1), ('', 1)").await;
    let bytes = |name: &str| KeyType::Text.encode(&Key::Text(name.to_owned())).unwrap();
    let names = ["ann", "o'hara", "O'Hara", "ünal", ""];
    let mut ranges: Vec<KeyRange> = names.iter().map(|name| KeyRange::point(bytes(name))).collect();
    let found = measure::found(&bed.router, &definition, &ranges, &shard("s2")).await;
    assert_eq!(found.unwrap(), BTreeSet::from([1, 3, 4]));
    ranges.push(KeyRange::new(bytes("n"), Some(bytes("p"))).unwrap());
    ranges.push(KeyRange::new(bytes("p"), None).unwrap());
    ranges.push(KeyRange::new(bytes("a"), Some(bytes("n"))).unwrap());
    let found = measure::found(&bed.router, &definition, &ranges, &shard("s2")).await;
    assert_eq!(found.unwrap(), BTreeSet::from([1, 3, 4, 5, 6]));
    bed.close().await;
}
