//! Shards that are lost for good while a move needs them only to tidy up, and tables that are changing when a move is
//! asked for (D4, E4).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use polyshard_catalog::{Catalog, CatalogError, Decision, MoveRequest, OpState, Step, Wish};
use polyshard_engine::Dialect;

use crate::cluster::{Cluster, PATIENCE, buckets, map, request, shard};
use crate::gates::filled;
use crate::place::Place;

on_both_engines!(
    a_target_lost_while_a_move_is_taken_back_can_be_detached,
    a_source_lost_after_the_switch_can_be_detached,
    a_target_lost_while_the_old_rows_are_cleaned_away_can_be_detached,
    a_move_waits_for_a_change_of_its_tables_to_come_to_all_shards,
);

/// Nothing of a move is left on a shard.
async fn assert_clean(cluster: &Cluster, on: &str) {
    for table in ["capture", "capture_log", "carried"] {
        let left = cluster.rows(on, |d: Dialect| format!("SELECT 1 FROM {}", d.own_table(table))).await;
        assert!(left.is_empty(), "{table} on {on}");
    }
}

async fn rows_of_range(cluster: &Cluster, on: &str) -> usize {
    let range = |dialect: Dialect| {
        let limit = if dialect == Dialect::Sqlite { "x'00000004'" } else { "'\\x00000004'" };
        format!("SELECT 1 FROM {} WHERE placement < {limit}", dialect.own_table("thing"))
    };
    cluster.rows(on, range).await.len()
}

async fn a_target_lost_while_a_move_is_taken_back_can_be_detached(place: Arc<Place>) {
    let (cluster, _, [held]) = filled(&place, 20, ["clear.before"]).await;
    let before = rows_of_range(&cluster, "s1").await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.driver.wish_for(record.op.id, Wish::Cancel).await.unwrap();
    cluster.until_step(record.op.id, Step::RollingBack).await;
    cluster.driver.detach_shard(&shard("s2")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    held.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap_err();
    assert_clean(&cluster, "s1").await;
    assert_eq!(rows_of_range(&cluster, "s1").await, before);
    cluster.close().await;
}

async fn a_source_lost_after_the_switch_can_be_detached(place: Arc<Place>) {
    let (cluster, _, []) = filled(&place, 20, []).await;
    let expected = rows_of_range(&cluster, "s1").await;
    let keep = MoveRequest { keep_ms: 600_000, ..request("tenants", buckets(0, 4), "s2") };
    let record = cluster.start(keep).await.unwrap();
    cluster.until_step(record.op.id, Step::Keeping).await;
    let refused = cluster.driver.detach_shard(&shard("s2")).await.unwrap_err();
    assert!(matches!(refused, CatalogError::Busy { .. }), "its rows are only there: {refused}");
    cluster.driver.detach_shard(&shard("s1")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    cluster.driver.undo_move(record.op.id).await.expect_err("there is nothing to go back to");
    cluster.driver.wish_for(record.op.id, Wish::Clean).await.unwrap();
    cluster.end_of(record.op.id).await.unwrap();
    assert_clean(&cluster, "s2").await;
    assert_eq!(rows_of_range(&cluster, "s2").await, expected);
    cluster.close().await;
}

async fn a_target_lost_while_the_old_rows_are_cleaned_away_can_be_detached(place: Arc<Place>) {
    let (cluster, _, [held]) = filled(&place, 20, ["clean.before"]).await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::Cleaning).await;
    cluster.driver.detach_shard(&shard("s2")).await.unwrap();
    cluster.router.refresh().await.unwrap();
    held.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    assert_clean(&cluster, "s1").await;
    assert_eq!(rows_of_range(&cluster, "s1").await, 0);
    cluster.close().await;
}

/// Decides, as an ALTER TABLE does, something that the shards are still to be told.
async fn decide(catalog: &Catalog) -> u64 {
    let lease = catalog.take_turn().await.unwrap().expect("nobody else has it");
    let decision = Decision { body: "{}".into(), quiet: vec![map("tenants"); 2], ..Decision::default() };
    assert!(catalog.decide(&lease, &decision).await.unwrap());
    lease.position
}

async fn a_move_waits_for_a_change_of_its_tables_to_come_to_all_shards(place: Arc<Place>) {
    let (cluster, _, []) = filled(&place, 20, []).await;
    let cluster = Arc::new(cluster);
    let position = decide(&cluster.catalog).await;
    let asking = {
        let cluster = cluster.clone();
        tokio::spawn(async move { cluster.start(request("tenants", buckets(0, 4), "s2")).await })
    };
    // Another map's rows, and other changes of this one, do not wait.
    cluster.moves("customers", crate::cluster::keys(0, 10), "s2").await.unwrap();
    assert!(!asking.is_finished() && cluster.catalog.running().await.unwrap().is_empty());
    cluster.catalog.release_depends(position).await.unwrap();
    let record = tokio::time::timeout(PATIENCE, asking).await.unwrap().unwrap().unwrap();
    cluster.end_of(record.op.id).await.unwrap();
    assert_eq!(cluster.catalog.operation(record.op.id).await.unwrap().state, OpState::Done);
    cluster.assert_healthy().await;
    Arc::into_inner(cluster).unwrap().close().await;
}
