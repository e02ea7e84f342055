//! Changes of the schema and of reference tables: on all shards or on none, in one order, seen by all.

use std::sync::Arc;

use polyshard_schema::{Change, Declaration, EntryKind, Recorded};
use polyshard_sql::Placement;

use crate::cluster::{Cluster, shard, sharded, table};
use crate::place::Place;

/// C3, C7: a change is on every shard, and the schema shows it.
async fn a_change_is_on_all_shards_and_in_the_schema(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    assert_eq!(cluster.journal.schema().await.unwrap().tables.len(), 0);
    let create = "CREATE TABLE country (code int PRIMARY KEY, name text NOT NULL)";
    assert_eq!(cluster.apply(&[create]).await.unwrap(), 1);
    let insert = "INSERT INTO country VALUES (1, 'Aland'), (2, 'Borduria')";
    assert_eq!(
        cluster.apply(&[insert, "UPDATE country SET name = 'Åland' WHERE code = 1"]).await.unwrap(),
        2
    );
    assert_eq!(cluster.numbers("SELECT count(*) FROM country WHERE name = 'Åland'").await, [1, 1, 1]);
    assert_eq!(cluster.positions(&place).await, [2, 2, 2]);
    let schema = cluster.journal.schema().await.unwrap();
    assert_eq!(schema.position, 2);
    let country = &schema.tables[&table("country")];
    assert_eq!(country.columns.len(), 2);
    assert_eq!(country.primary_key, [0]);
    assert_eq!(country.placement, Placement::Reference { declared: false });
    // Nothing has changed: it is the very same.
    assert!(Arc::ptr_eq(&schema, &cluster.journal.schema().await.unwrap()));
    cluster.close().await;
}

/// Whoever writes a row may be waiting for the schema: it is read without waiting for him.
async fn the_schema_is_read_while_every_shard_is_written(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&["CREATE TABLE t (a int PRIMARY KEY)"]).await.unwrap();
    let mut writing = Vec::new();
    for name in ["s1", "s2", "s3"] {
        let opened = cluster.router.administer(&shard(name)).await.unwrap();
        let mut tx = opened.control_transaction().await.unwrap();
        tx.run(polyshard_engine::Statement::new("INSERT INTO t VALUES (1)")).await.unwrap();
        writing.push(tx);
    }
    assert!(cluster.journal.schema().await.unwrap().tables.contains_key(&table("t")));
    for tx in writing {
        tx.commit().await.expect("it was not waited for until it was given up");
    }
    cluster.close().await;
}

/// Likewise a new shard is brought up from those that are there.
async fn a_shard_is_brought_up_while_the_others_are_written(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&["CREATE TABLE t (a int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)"]).await.unwrap();
    let mut writing = Vec::new();
    for name in ["s1", "s2", "s3"] {
        let opened = cluster.router.administer(&shard(name)).await.unwrap();
        let mut tx = opened.control_transaction().await.unwrap();
        tx.run(polyshard_engine::Statement::new("INSERT INTO t VALUES (3)")).await.unwrap();
        writing.push(tx);
    }
    cluster.add_shard("s4").await;
    cluster.journal.ready(&shard("s4")).await.unwrap();
    for tx in writing {
        tx.commit().await.expect("it was not waited for until it was given up");
    }
    assert_eq!(cluster.number("s4", "SELECT count(*) FROM t").await, 2);
    cluster.close().await;
}

/// The first use of a new database makes the tables of the stores, and bringing it up those of the journal, which are
/// among them: PostgreSQL refuses who makes a table that another is making.
async fn tables_are_made_one_after_the_other(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.add_shard("s4").await;
    let there = |name: &str| format!("SELECT to_regclass('polyshard.{name}') IS NOT NULL");
    assert_eq!(place.pg().execute("s4", &there("journal_applied")).trim(), "f");
    // As a process that makes them at this moment.
    let opened = cluster.router.administer(&shard("s4")).await.unwrap();
    let mut making = opened.control_transaction().await.unwrap();
    let mut statements = vec!["SELECT pg_advisory_xact_lock(1886611460, 1)".to_owned()];
    statements.extend((polyshard_schema::schema().statements)(polyshard_engine::Dialect::Postgres));
    for sql in statements {
        making.run(polyshard_engine::Statement::new(sql)).await.unwrap();
    }
    let journal = cluster.journal.clone();
    let ready = tokio::spawn(async move { journal.ready(&shard("s4")).await });
    let waiting = polyshard_engine::Statement::new("SELECT count(*) FROM pg_locks WHERE NOT granted");
    let waits = async {
        let mut asked = opened.control_snapshot().await.unwrap();
        let mut is_waiting =
            async || asked.run(waiting.clone()).await.unwrap().one().unwrap().int(0).unwrap() > 0;
        while !is_waiting().await && !ready.is_finished() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), waits).await.expect("the other one waits");
    making.commit().await.unwrap();
    ready.await.unwrap().unwrap();
    cluster.close().await;
}

/// C7: what one shard refuses is on none.
async fn what_one_shard_refuses_is_on_none(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&["CREATE TABLE t (a int PRIMARY KEY)"]).await.unwrap();
    // A row that only s3 has, as if somebody had gone around Polyshard.
    cluster.on("s3", "INSERT INTO t VALUES (7)").await;
    let error = cluster.apply(&["INSERT INTO t VALUES (7)"]).await.unwrap_err().to_sql();
    assert_eq!(error.state.0, "23505");
    assert!(error.message.contains("shard s3"), "{}", error.message);
    assert_eq!(cluster.numbers("SELECT count(*) FROM t").await, [0, 0, 1]);
    assert_eq!(cluster.positions(&place).await, [1, 1, 1]);
    // The turn was given back.
    cluster.apply(&["INSERT INTO t VALUES (8)"]).await.unwrap();
    cluster.close().await;
}

/// Concurrent writers to a reference table: all are applied, in one order everywhere.
async fn concurrent_writes_have_one_order(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&["CREATE TABLE t (a int PRIMARY KEY, last int NOT NULL)"]).await.unwrap();
    cluster.apply(&["INSERT INTO t VALUES (1, 0)"]).await.unwrap();
    let writers = (1..=8).map(|number| {
        let journal = cluster.journal.clone();
        async move {
            for round in 0..3 {
                let value = number * 10 + round;
                journal.apply(&[format!("UPDATE t SET last = last * 31 % 1000003 + {value}")]).await.unwrap();
            }
        }
    });
    futures_util::future::join_all(writers).await;
    let last = cluster.numbers("SELECT last FROM t").await;
    assert!(last.iter().all(|value| *value == last[0]), "{last:?}");
    assert_eq!(cluster.positions(&place).await, [26, 26, 26]);
    cluster.close().await;
}

/// A shard that was away while the schema changed catches up before it serves.
async fn a_shard_that_was_offline_catches_up(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&["CREATE TABLE t (a int PRIMARY KEY)"]).await.unwrap();
    let offline = |state| polyshard_catalog::ShardPatch { state: Some(state), ..Default::default() };
    let id = shard("s2");
    cluster.driver.patch_shard(&id, offline(polyshard_map::State::Offline), None).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.apply(&["INSERT INTO t VALUES (1)"]).await.unwrap();
    cluster.apply(&["ALTER TABLE t ADD COLUMN b int", "INSERT INTO t VALUES (2, 3)"]).await.unwrap();
    assert_eq!(cluster.positions(&place).await, [3, 1, 3]);
    // What is declared meanwhile is declared; the map waits for the shard.
    let orders = "CREATE TABLE o (tenant bigint NOT NULL, id int NOT NULL, PRIMARY KEY (tenant, id))";
    cluster.apply(&[orders]).await.unwrap();
    cluster.journal.declare(sharded("o", "tenants", "tenant")).await.unwrap();
    // Rows that a shard has which is away cannot be put elsewhere.
    let local = Declaration::Local { table: table("t"), shard: shard("s1") };
    let error = cluster.journal.declare(local).await.unwrap_err().to_sql();
    assert!(error.message.contains("shard s2 is offline"), "{}", error.message);
    cluster.driver.patch_shard(&id, offline(polyshard_map::State::Online), None).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.journal.ready(&id).await.unwrap();
    assert_eq!(cluster.positions(&place).await, [5, 5, 5]);
    assert_eq!(cluster.numbers("SELECT sum(coalesce(b, a)) FROM t").await, [4, 4, 4]);
    cluster.journal.finish().await.unwrap();
    assert_eq!(cluster.catalog.journal_depends().await.unwrap(), []);
    cluster.close().await;
}

/// C3: a shard that is new has the schema and the reference rows before it serves.
async fn a_new_shard_has_schema_and_reference_rows(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster
        .apply(&["CREATE TABLE t (a int PRIMARY KEY, b text)", "INSERT INTO t VALUES (1, 'it''s')"])
        .await
        .unwrap();
    cluster.apply(&["INSERT INTO t VALUES (2, NULL)"]).await.unwrap();
    cluster.add_shard("s4").await;
    cluster.journal.ready(&shard("s4")).await.unwrap();
    assert_eq!(cluster.number("s4", "SELECT count(*) FROM t").await, 2);
    assert_eq!(cluster.number("s4", "SELECT count(*) FROM t WHERE b = 'it''s'").await, 1);
    assert_eq!(cluster.positions(&place).await, [2, 2, 2, 2]);
    // And takes part from then on.
    cluster.apply(&["INSERT INTO t VALUES (3, 'c')"]).await.unwrap();
    assert_eq!(cluster.numbers("SELECT count(*) FROM t").await, [3, 3, 3, 3]);
    cluster.close().await;
}

/// Two processes on one cluster: each sees what the other has decided, and neither undoes the other.
async fn two_processes_take_turns(place: Arc<Place>) {
    let one = Cluster::with_shards(&place).await;
    let two = Cluster::open_with(&place, 2, None).await;
    one.apply(&["CREATE TABLE t (a int PRIMARY KEY, last int NOT NULL)", "INSERT INTO t VALUES (1, 0)"])
        .await
        .unwrap();
    let write = |journal: polyshard_schema::Journal, factor: i64| async move {
        for round in 0..6 {
            let value = factor + round;
            journal.apply(&[format!("UPDATE t SET last = last * 31 % 1000003 + {value}")]).await.unwrap();
        }
    };
    tokio::join!(write(one.journal.clone(), 100), write(two.journal.clone(), 200));
    let last = one.numbers("SELECT last FROM t").await;
    assert!(last.iter().all(|value| *value == last[0]), "{last:?}");
    two.apply(&["ALTER TABLE t ADD COLUMN c int"]).await.unwrap();
    one.router.refresh().await.unwrap();
    assert_eq!(one.journal.schema().await.unwrap().tables[&table("t")].columns.len(), 3);
    two.close().await;
    one.close().await;
}

/// C7: what somebody has changed on one shard behind Polyshard's back is found.
async fn drift_is_found(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster
        .apply(&["CREATE TABLE t (a int PRIMARY KEY, b text)", "INSERT INTO t VALUES (1, 'x'), (2, 'y')"])
        .await
        .unwrap();
    let checked = cluster.journal.check().await.unwrap();
    assert_eq!((checked.shards, checked.position), (3, 1), "{:?}", checked.away);
    assert_eq!((checked.differences, checked.away), (vec![], vec![]));
    assert!(checked.objects >= 2, "{}", checked.objects);
    cluster.on("s2", "UPDATE t SET b = 'z' WHERE a = 2").await;
    cluster.on("s3", "CREATE INDEX extra ON t (b)").await;
    let checked = cluster.journal.check().await.unwrap();
    let found: Vec<(String, String)> = checked
        .differences
        .iter()
        .map(|difference| (difference.shard.to_string(), difference.object.clone()))
        .collect();
    let index = if place.is_postgres() { "index public.extra" } else { "index extra" };
    assert_eq!(found, [("s2".into(), "rows of t".into()), ("s3".into(), index.into())]);
    assert!(checked.differences[1].expected.is_none() && checked.differences[1].found.is_some());
    cluster.on("s3", "DROP TABLE t").await;
    let lost = cluster.journal.check().await.unwrap().differences;
    assert!(lost.iter().any(|one| one.object == "rows of t" && one.found.is_none()), "{lost:?}");
    cluster.close().await;
}

/// What every shard has is forgotten, but for what the schema is made of; a new shard gets the rows all the same.
async fn old_writes_are_forgotten_when_every_shard_has_them(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&["CREATE TABLE t (a int PRIMARY KEY)"]).await.unwrap();
    for number in 0..6 {
        let statements = vec![Recorded::new(format!("INSERT INTO t VALUES ({number})"))];
        let change = Change { kind: EntryKind::Rows, statements, settings: Default::default() };
        cluster.journal.apply_change(change).await.unwrap();
    }
    let kept = async || -> Vec<u64> {
        let entries = cluster.catalog.journal_entries(0, 100).await.unwrap();
        entries.into_iter().map(|entry| entry.position).collect()
    };
    assert_eq!(kept().await, [1, 2, 3, 4, 5, 6, 7]);
    cluster.journal.compact(2).await.unwrap();
    assert_eq!(kept().await, [1, 6, 7]);
    cluster.add_shard("s4").await;
    cluster.journal.ready(&shard("s4")).await.unwrap();
    assert_eq!(cluster.numbers("SELECT count(*) FROM t").await, [6, 6, 6, 6]);
    assert_eq!(cluster.positions(&place).await, [7, 7, 7, 7]);
    cluster.close().await;
}

/// Comments that earlier versions recorded without a look at what they are about are in nobody's way.
async fn comments_on_nothing_are_passed_over(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&["CREATE TABLE t (a int PRIMARY KEY)", "CREATE VIEW v AS SELECT a FROM t"]).await.unwrap();
    let comments = [
        "COMMENT ON TABLE typo IS 'x'",
        "COMMENT ON COLUMN t.nothing IS 'x'",
        "COMMENT ON COLUMN a IS 'x'",
        "COMMENT ON TABLE v IS 'x'",
        "COMMENT ON TABLE t IS 'kept'",
    ];
    let statements = comments.map(Recorded::new).to_vec();
    let change = Change { kind: EntryKind::Schema, statements, settings: Default::default() };
    cluster.journal.turn().await.unwrap().decide(change).await.unwrap();
    // Those that are there are behind, and a new one makes all of it.
    cluster.add_shard("s4").await;
    for name in ["s1", "s2", "s3", "s4"] {
        cluster.journal.ready(&shard(name)).await.unwrap();
        assert_eq!(cluster.number(name, "SELECT count(*) FROM polyshard_sql_comment").await, 1, "{name}");
    }
    assert_eq!(cluster.positions(&place).await, [2, 2, 2, 2]);
    cluster.close().await;
}

mod of_files {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn comments_on_nothing_are_passed_over() {
        super::comments_on_nothing_are_passed_over(crate::place::Place::files()).await;
    }
}

on_both_engines!(
    old_writes_are_forgotten_when_every_shard_has_them,
    drift_is_found,
    the_schema_is_read_while_every_shard_is_written,
    a_shard_is_brought_up_while_the_others_are_written,
    a_change_is_on_all_shards_and_in_the_schema,
    what_one_shard_refuses_is_on_none,
    concurrent_writes_have_one_order,
    a_shard_that_was_offline_catches_up,
    a_new_shard_has_schema_and_reference_rows,
);

mod processes {
    use super::{tables_are_made_one_after_the_other, two_processes_take_turns};

    on_postgres!(tables_are_made_one_after_the_other, two_processes_take_turns);
}
