//! Queries: what filters let through, in which order, page by page, from all shards.

use polyshard_engine::{Dialect, Statement};
use polyshard_map::ShardId;
use polyshard_store_table::{ChangeKind, EdmValue, Filter, Query, StoreError};

use crate::place::Place;
use crate::tools::{change, properties, table};

on_both_engines! {
    filters_let_through_what_they_say_in_the_order_of_keys
    pages_go_on_after_a_restart
    rows_from_or_for_a_move_are_not_shown
    a_page_has_limits_of_work_and_size
    long_entities_are_read_some_at_a_time
    rows_are_found_in_many_partitions
    scans_follow_the_primary_key
}

/// Entities `{partition}/{row}` with `n` from 0 on; some partitions and rows are beyond ASCII.
async fn fill(cluster: &crate::Cluster) -> Vec<(String, String, i32)> {
    cluster.store.create_table(&table("orders")).await.unwrap();
    let mut all = Vec::new();
    for partition in ["", "A", "B", "a", "b", "b1", "z", "ä", "日", "\u{FFFD}", "😀"] {
        let rows = ["", "1", "10", "2", "B", "a", "ß", "\u{FFFD}", "😀"];
        let changes = rows.iter().map(|row| {
            all.push((partition.to_owned(), (*row).to_owned(), all.len() as i32));
            let n = EdmValue::Int32(all.len() as i32 - 1);
            let text = EdmValue::String(format!("t{}", all.len() % 3));
            change(row, ChangeKind::Insert(properties(&[("n", n), ("t", text)])))
        });
        let changes = changes.collect();
        cluster.change(partition, changes).await.unwrap();
    }
    all.sort();
    all
}

async fn filters_let_through_what_they_say_in_the_order_of_keys(place: Place) {
    let cluster = place.open().await;
    let all = fill(&cluster).await;
    let filters = [
        "",
        "PartitionKey eq 'b'",
        "PartitionKey eq 'b' and RowKey eq '10'",
        "PartitionKey eq 'b' and RowKey ge '10' and RowKey lt 'a'",
        "PartitionKey eq 'b' and RowKey gt '10' and RowKey le '😀'",
        "PartitionKey eq 'b' and (RowKey eq '1' or RowKey eq 'ß' or n gt 40)",
        "PartitionKey eq 'b' and RowKey ne '2' and not (RowKey gt 'B')",
        "PartitionKey ge 'a' and PartitionKey lt 'c'",
        "PartitionKey gt 'A' and RowKey lt '2'",
        "RowKey eq ''",
        "RowKey ge 'a'",
        "PartitionKey eq 'a' or PartitionKey eq '😀'",
        "(PartitionKey eq 'a' and RowKey eq '1') or (PartitionKey eq '日' and RowKey eq '2') or n eq 3",
        "n gt 20 and n le 60",
        "t eq 't1' and RowKey ne '1'",
        "not (PartitionKey lt 'b') and t ne 't2'",
        "PartitionKey eq 'nothing'",
        "PartitionKey eq 'a' and PartitionKey eq 'b'",
        "PartitionKey eq 5",
        "missing eq 1 or missing ne 1",
        "'a' le PartitionKey and 'b' gt PartitionKey",
    ];
    for text in filters {
        let filter = (!text.is_empty()).then(|| Filter::parse(text).unwrap());
        let matches = |(partition, row, n): &&(String, String, i32)| {
            let values = properties(&[
                ("PartitionKey", EdmValue::String(partition.clone())),
                ("RowKey", EdmValue::String(row.clone())),
                ("n", EdmValue::Int32(*n)),
                ("t", EdmValue::String(format!("t{}", (n + 1) % 3))),
            ]);
            filter
                .as_ref()
                .is_none_or(|filter| filter.matches(&|name| values.get(name).map(EdmValue::scalar)))
        };
        let expected: Vec<_> =
            all.iter().filter(matches).map(|(partition, row, _)| format!("{partition}/{row}")).collect();
        for top in [1000, 7, 1] {
            assert_eq!(cluster.all(text, top).await, expected, "{text} by {top}");
        }
    }
    // A page that is just full says that there is no more, where it can know.
    let page = cluster.page("PartitionKey eq 'b'", None, 9).await;
    assert_eq!((page.entities.len(), page.next), (9, None));
    // Where a query goes on is the client's to say, and may be anywhere.
    let anywhere = |partition: &str, row: &str| Some((partition.to_owned(), row.to_owned()));
    assert_eq!(cluster.page("PartitionKey eq 'b'", anywhere("c", ""), 9).await.entities, []);
    assert_eq!(cluster.page("PartitionKey eq 'b'", anywhere("a", "zz"), 9).await.entities.len(), 9);
    assert_eq!(cluster.page("PartitionKey lt 'b'", anywhere("zzz", ""), 9).await.entities, []);
    cluster.close().await;
}

async fn pages_go_on_after_a_restart(place: Place) {
    let cluster = place.open().await;
    let expected: Vec<_> =
        fill(&cluster).await.into_iter().map(|(partition, row, _)| format!("{partition}/{row}")).collect();
    cluster.close().await;
    let (mut keys, mut after) = (Vec::new(), None);
    for _ in 0..4 {
        let cluster = place.open().await;
        let page = cluster.page("", after.take(), 30).await;
        keys.extend(page.entities.iter().map(crate::tools::key));
        after = page.next;
        cluster.close().await;
    }
    assert_eq!((keys, after), (expected, None));
}

async fn rows_from_or_for_a_move_are_not_shown(place: Place) {
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    for n in 0..30 {
        cluster.put((&format!("p{n:02}"), "r"), n).await;
    }
    let expected = cluster.all("", 1000).await;
    assert_eq!(expected.len(), 30);
    // Every row is put on every shard, as if it were on its way there, or had been left behind.
    let shards = ["s1", "s2", "s3"];
    let mut rows = Vec::new();
    let columns = "dataset, pk, rk, placement, ts, props";
    for shard in shards {
        let opened = cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
        let mut tx = opened.control_transaction().await.unwrap();
        let sql = format!("SELECT {columns} FROM {}", opened.dialect().own_table("entity"));
        rows.extend(tx.run(Statement::new(sql)).await.unwrap().into_rows());
        tx.rollback().await.unwrap();
    }
    for shard in shards {
        let opened = cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
        let mut tx = opened.control_transaction().await.unwrap();
        for row in &rows {
            let table = opened.dialect().own_table("entity");
            let sql = format!(
                "INSERT INTO {table} ({columns}) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING"
            );
            let insert = row.values().iter().cloned().fold(Statement::new(sql), Statement::bind);
            tx.run(insert).await.unwrap();
        }
        tx.commit().await.unwrap();
        assert_eq!(cluster.rows_on(shard).await, 30);
    }
    assert_eq!(cluster.all("", 1000).await, expected);
    assert_eq!(cluster.all("n ge 0", 4).await, expected);
    cluster.close().await;
}

async fn a_page_has_limits_of_work_and_size(place: Place) {
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    for part in 0..120 {
        let row = |n| format!("{:05}", part * 100 + n);
        let changes =
            (0..100).map(|n| change(&row(n), ChangeKind::Insert(crate::tools::number("n", part * 100 + n))));
        cluster.change("many", changes.collect()).await.unwrap();
    }
    let filter = "PartitionKey eq 'many' and n eq 11999";
    let first = cluster.page(filter, None, 1000).await;
    assert_eq!(first.entities, []);
    assert!(first.next.is_some(), "an empty page goes on");
    assert_eq!(cluster.all(filter, 1000).await, ["many/11999"]);
    // Nor does the database look for a key as long as it takes, while others wait.
    let filter = "RowKey ne '11999' and RowKey ge '11999' or RowKey eq '11999' or RowKey lt '00000'";
    let first = cluster.page(filter, None, 1000).await;
    assert!(first.entities.is_empty() && first.next.is_some(), "{first:?}");
    assert_eq!(cluster.all(filter, 1000).await, ["many/11999"]);
    assert_eq!(cluster.page("RowKey eq '11999'", None, 1000).await.entities.len(), 1);
    // What lies between keys that are named is not looked at.
    cluster.put(("much", "1"), 1).await;
    for (filter, expected) in [
        ("PartitionKey eq 'many' and (RowKey eq '11999' or RowKey eq '00000')", ["many/00000", "many/11999"]),
        ("PartitionKey eq 'few' or PartitionKey eq 'much' or PartitionKey gt 'n'", ["few/1", "much/1"]),
    ] {
        cluster.put(("few", "1"), 1).await;
        let page = cluster.page(filter, None, 1000).await;
        let keys: Vec<_> = page.entities.iter().map(crate::tools::key).collect();
        assert_eq!((keys, page.next), (expected.map(str::to_owned).to_vec(), None), "{filter}");
        assert_eq!(cluster.all(filter, 1).await, expected, "{filter}");
    }
    assert_eq!(cluster.page("PartitionKey eq 'many'", None, 1000).await.entities.len(), 1000);
    let large = properties(&[
        ("a", EdmValue::String("x".repeat(30_000))),
        ("b", EdmValue::String("y".repeat(30_000))),
        ("c", EdmValue::Binary(vec![7; 60_000])),
    ]);
    for n in 0..60 {
        cluster.one(("large", &format!("{n:02}")), ChangeKind::Insert(large.clone())).await.unwrap();
    }
    let page = cluster.page("PartitionKey eq 'large'", None, 1000).await;
    assert!((20..50).contains(&page.entities.len()), "{} large entities", page.entities.len());
    assert_eq!(cluster.all("PartitionKey eq 'large'", 1000).await.len(), 60);
    cluster.close().await;
}

/// Those of the first chunk are read one by one, since nobody knows how long they are before.
async fn long_entities_are_read_some_at_a_time(place: Place) {
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    let long = |n| {
        let text = |letter: &str, length| EdmValue::String(letter.repeat(length));
        properties(&[("n", EdmValue::Int32(n)), ("a", text("x", 20_000)), ("b", text("y", 14_000))])
    };
    for n in 0..110 {
        cluster.one(("long", &format!("{n:03}")), ChangeKind::Insert(long(n))).await.unwrap();
    }
    let reads = async || {
        let (mut reads, mut dialect) = (0, Dialect::Sqlite);
        for shard in ["s1", "s2", "s3"] {
            let shard = cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
            reads += shard.stats().map_or(0, |stats| stats.reads);
            dialect = shard.dialect();
        }
        (reads, dialect)
    };
    for (filter, expected) in [("PartitionKey eq 'long'", 110), ("PartitionKey eq 'long' and n lt 3", 3)] {
        let (before, dialect) = reads().await;
        let page = cluster.page(filter, None, 1000).await;
        assert_eq!((page.entities.len(), page.next), (expected, None), "{filter}");
        let reads = reads().await.0 - before;
        // A server knows which entities are asked for, and the others are not read at all.
        let some = if dialect == Dialect::Postgres && expected == 3 { 4..8 } else { 65..85 };
        assert!(some.contains(&reads), "{reads} reads: {filter}");
    }
    cluster.close().await;
}

/// What cannot be read is told to whoever asks for it, and is in nobody else's way. A later format is told to
/// everybody, since nobody knows what is in it.
#[tokio::test]
async fn damage_is_told_to_whoever_asks_for_it() {
    let place = Place::sqlite();
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    for row in ["1", "2", "3"] {
        cluster.put(("p", row), 5).await;
    }
    let whole = Filter::parse("PartitionKey eq 'p'").unwrap();
    let asked = async |filter: &str| {
        let mut results = Vec::new();
        // Of one partition, and of all of them.
        for filter in [Filter::parse(filter).unwrap().and(whole.clone()), Filter::parse(filter).unwrap()] {
            let query = Query { filter: Some(filter.into()), ..Query::default() };
            let answer = cluster.store.query(&table("orders"), &query).await;
            results.push(match answer {
                Ok(page) => page.entities.len().to_string(),
                Err(StoreError::Damaged { .. }) => "damaged".to_owned(),
                Err(other) => other.to_string(),
            });
        }
        assert_eq!(results[0], results[1], "{filter}");
        results.remove(0)
    };
    assert_eq!(asked("n eq 5").await, "3");
    let run = async |sql: &str| {
        for shard in ["s1", "s2", "s3"] {
            let opened = cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
            let mut tx = opened.control_transaction().await.unwrap();
            let sql =
                format!("{} WHERE rk = '2'", sql.replace("entity", &opened.dialect().own_table("entity")));
            tx.run(Statement::new(sql)).await.unwrap();
            tx.commit().await.unwrap();
        }
    };
    for (damage, of_five, of_six, of_time) in [
        (r#"props = '{"n":5,"z":1'"#, "damaged", "0", "damaged"),
        (r#"props = '{"$format":2,"n":6}'"#, "damaged", "damaged", "damaged"),
        (r#"props = '{"n":null}'"#, "damaged", "damaged", "damaged"),
        ("ts = 9000000000000000000", "damaged", "0", "damaged"),
    ] {
        run(&format!("UPDATE entity SET {damage}")).await;
        assert_eq!(asked("n eq 5").await, of_five, "{damage}");
        assert_eq!(asked("n eq 6").await, of_six, "{damage}");
        assert_eq!(asked("Timestamp lt datetime'2100-01-01T00:00:00Z'").await, of_time, "{damage}");
        run("DELETE FROM entity").await;
        cluster.put(("p", "2"), 5).await;
        assert_eq!(asked("n eq 5").await, "3", "it was written anew");
    }
    cluster.close().await;
}

/// Row keys that few of many partitions have: these are looked into some at a time.
async fn rows_are_found_in_many_partitions(place: Place) {
    let cluster = place.open().await;
    cluster.store.create_table(&table("orders")).await.unwrap();
    // Each shard has several times as many as are looked into at a time.
    let partitions: Vec<_> = (0..1000).map(|n| format!("p{n:04}")).collect();
    for some in partitions.chunks(50) {
        let puts = some.iter().map(|partition| cluster.put((partition, "usual"), 1));
        futures_util::future::join_all(puts).await;
    }
    let rare: Vec<_> = partitions.iter().step_by(97).collect();
    for partition in &rare {
        cluster.put((partition, "rare"), 2).await;
    }
    let expected: Vec<_> = rare.iter().map(|partition| format!("{partition}/rare")).collect();
    for filter in ["RowKey eq 'rare'", "RowKey ge 'r' and RowKey lt 's' and n eq 2", "RowKey lt 'usual'"] {
        for top in [1000, 4, 1] {
            assert_eq!(cluster.all(filter, top).await, expected, "{filter} by {top}");
        }
    }
    let filter = "RowKey eq 'rare' and (PartitionKey lt 'p0100' or PartitionKey ge 'p0900')";
    let some = |key: &&String| key.as_str() < "p0100" || key.as_str() >= "p0900";
    assert_eq!(cluster.all(filter, 3).await, expected.iter().filter(some).cloned().collect::<Vec<_>>());
    assert_eq!(cluster.all("RowKey eq 'none'", 3).await, Vec::<String>::new());
    cluster.close().await;
}

/// The scans that matter must not read the whole table, nor sort.
async fn scans_follow_the_primary_key(place: Place) {
    let cluster = place.open().await;
    fill(&cluster).await;
    let opened = cluster.router.administer(&ShardId::new("s1").unwrap()).await.unwrap();
    let name = opened.dialect().own_table("entity");
    let mut tx = opened.control_transaction().await.unwrap();
    let (prefix, sort, search, place) = match opened.dialect() {
        Dialect::Sqlite => {
            let place = "placement = x'00000001' AND ";
            ("EXPLAIN QUERY PLAN", "TEMP B-TREE", "(placement=? AND dataset=?", place)
        }
        Dialect::Postgres => {
            // A table of a few rows is read whole, whatever there is to use.
            tx.run(Statement::new("SET LOCAL enable_seqscan = off")).await.unwrap();
            tx.run(Statement::new("SET LOCAL enable_bitmapscan = off")).await.unwrap();
            ("EXPLAIN", "Sort", "Index Scan using entity_pkey", "")
        }
    };
    // How SQLite scans several partitions is seen where its statements are.
    for condition in
        ["pk = 'p' AND rk > 'r' ORDER BY rk", "(pk, rk) > ('p', 'r') AND pk <= 'q' ORDER BY pk, rk"]
    {
        let sql = format!(
            "{prefix} SELECT rk, ts, props FROM {name} WHERE dataset = 1 AND {place}{condition} LIMIT 10"
        );
        let rows = tx.run(Statement::new(sql)).await.unwrap();
        let plan = rows.iter().map(|row| format!("{:?}\n", row.values())).collect::<String>();
        assert!(!plan.contains(sort) && plan.contains(search), "{condition}: {plan}");
    }
    tx.rollback().await.unwrap();
    cluster.close().await;
}
