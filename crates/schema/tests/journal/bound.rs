//! What the protocol knows of sharded tables stays in step with the tables: beside other processes, and after drops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use polyshard_schema::Declaration;

use crate::cluster::{Cluster, shard, sharded, table};
use crate::place::Place;

const ORDERS: &str =
    "CREATE TABLE orders (tenant bigint NOT NULL, id bigserial, note text, PRIMARY KEY (tenant, id))";

on_both_engines!(a_registration_that_was_left_is_found_and_forgotten);

/// A process is about to tell a shard of a table when another drops it: nothing is left there that says that the shard
/// has rows of it. Every move off the shard would look for the table.
async fn a_table_that_another_process_drops_is_not_bound_after(place: Arc<Place>) {
    let one = Cluster::with_shards(&place).await;
    one.apply(&[ORDERS]).await.unwrap();
    one.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    let (dropper, dropped) = (one.journal.clone(), Arc::new(AtomicBool::new(false)));
    let told = dropped.clone();
    let failpoint = Arc::new(move |at: &str| {
        if at == "bind:s1.before" && !told.swap(true, Ordering::SeqCst) {
            let change = ["DROP TABLE orders".to_owned()];
            let drop = dropper.apply(&change);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(drop)).unwrap();
        }
        false
    });
    let two = Cluster::open_with(&place, 2, Some(failpoint)).await;
    two.journal.ready(&shard("s1")).await.unwrap();
    assert!(dropped.load(Ordering::SeqCst));
    let left = "SELECT count(*) FROM polyshard.dataset WHERE name LIKE 'sql:%'";
    assert_eq!(one.numbers(left).await, [0, 0, 0]);
    let checked = one.journal.check().await.unwrap();
    assert_eq!((checked.differences, checked.away), (vec![], vec![]));
    two.close().await;
    one.close().await;
}

/// What an earlier version has left is found by a check, and a repair has it forgotten.
async fn a_registration_that_was_left_is_found_and_forgotten(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&["CREATE TABLE orders (tenant bigint NOT NULL PRIMARY KEY)"]).await.unwrap();
    cluster.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    let datasets = if place.is_postgres() { "polyshard.dataset" } else { "polyshard_dataset" };
    let rule = "key:[\"tenant\"]";
    cluster
        .on(
            "s2",
            &format!(
                "INSERT INTO {datasets} (name, map, tab, placement) \
                 VALUES ('sql:public.gone (77)', 'tenants', 'gone', '{rule}')"
            ),
        )
        .await;
    let left = format!("SELECT count(*) FROM {datasets} WHERE name LIKE 'sql:%'");
    let checked = cluster.journal.check().await.unwrap();
    let [difference] = checked.differences.as_slice() else { panic!("{checked:?}") };
    assert_eq!(difference.shard, shard("s2"));
    assert!(difference.object.contains("public.gone (77)"), "{difference:?}");
    for dry_run in [true, false] {
        assert_eq!(cluster.numbers(&left).await, [1, 2, 1]);
        let mended = cluster.journal.mend(None, dry_run, false).await.unwrap();
        assert!(mended.len() == 1 && mended[0].refused.is_none() && mended[0].deleted == 1, "{mended:?}");
    }
    assert_eq!(cluster.numbers(&left).await, [1, 1, 1]);
    assert_eq!(cluster.journal.check().await.unwrap().differences, vec![]);
    cluster.close().await;
}

/// A table with a serial column that was dropped is made, sharded and dropped again as often as one likes; ids go on.
async fn a_dropped_table_is_sharded_again(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    let mut last = 0;
    for round in 0..3 {
        cluster.apply(&[ORDERS]).await.unwrap();
        cluster.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap_or_else(|error| {
            panic!("round {round}: {error}");
        });
        for name in ["s1", "s2", "s3"] {
            let insert = "INSERT INTO orders (tenant) SELECT 1 FROM generate_series(1, 5) RETURNING id";
            let ids = cluster.on(name, insert).await;
            let ids = ids.iter().map(|row| match row[0] {
                polyshard_engine::Value::Int(id) => id,
                ref other => panic!("{other:?}"),
            });
            let (least, most) = ids.fold((i64::MAX, 0), |(least, most), id| (least.min(id), most.max(id)));
            assert!(least > last, "round {round}: {least} after {last}");
            last = most;
        }
        cluster.apply(&["DROP TABLE orders"]).await.unwrap();
        assert_eq!(cluster.numbers("SELECT count(*) FROM polyshard.id_block").await, [0, 0, 0]);
    }
    // What an earlier version has left of such a table is not in the way either.
    cluster
        .on(
            "s2",
            "INSERT INTO polyshard.id_block (sequence, local_from, size, start) \
             VALUES ('public.orders_id_seq', 1, 10, 1)",
        )
        .await;
    cluster.apply(&[ORDERS]).await.unwrap();
    cluster.journal.declare(sharded("orders", "tenants", "tenant")).await.unwrap();
    // And as a reference table a shard that comes later counts on.
    cluster
        .apply(&["DROP TABLE orders", "CREATE TABLE orders (id bigserial PRIMARY KEY, note text)"])
        .await
        .unwrap();
    cluster.journal.declare(Declaration::Reference { table: table("orders") }).await.unwrap();
    cluster.close().await;
}

mod in_postgres {
    use super::{a_dropped_table_is_sharded_again, a_table_that_another_process_drops_is_not_bound_after};

    on_postgres!(a_dropped_table_is_sharded_again, a_table_that_another_process_drops_is_not_bound_after);
}
