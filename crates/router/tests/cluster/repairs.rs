//! Differences between catalog and local maps, made by hand: shown, and repaired in both directions (B4).

use std::sync::Arc;

use polyshard_catalog::Found;
use polyshard_engine::Statement;
use polyshard_map::{KeyRange, State};
use polyshard_router::Access;

use crate::cluster::{Cluster, Setup, key, keys, map, shard};
use crate::place::Place;

/// Takes a row out of a shard's local map, by hand.
pub async fn take_local(cluster: &Cluster, on: &str, map: &str, range: &KeyRange) {
    let opened = cluster.router.administer(&shard(on)).await.unwrap();
    let table = opened.dialect().own_table("local_range");
    let mut tx = opened.control_transaction().await.unwrap();
    let sql = format!("DELETE FROM {table} WHERE map = $1 AND lo = $2");
    let statement = Statement::new(sql).bind(map).bind(range.lo().as_slice());
    assert_eq!(tx.run(statement).await.unwrap().affected(), 1);
    tx.commit().await.unwrap();
}

/// Puts a row into a shard's local map, by hand.
pub async fn give_local(cluster: &Cluster, on: &str, map: &str, range: &KeyRange) {
    let opened = cluster.router.administer(&shard(on)).await.unwrap();
    let table = opened.dialect().own_table("local_range");
    let mut tx = opened.control_transaction().await.unwrap();
    let sql = format!("INSERT INTO {table} (map, lo, hi, state, epoch) VALUES ($1, $2, $3, 'online', 1)");
    let hi = range.hi().map(|hi| hi.as_slice().to_vec());
    let statement = Statement::new(sql).bind(map).bind(range.lo().as_slice()).bind(hi);
    tx.run(statement).await.unwrap();
    tx.commit().await.unwrap();
}

on_both_engines!(
    differences_are_shown_and_the_shards_are_made_what_the_catalog_says,
    differences_are_shown_and_the_catalog_is_made_what_the_shards_say,
    of_two_shards_that_claim_a_range_the_higher_epoch_keeps_it,
);

/// B4: differences are shown first.
async fn differences_are_shown_and_the_shards_are_made_what_the_catalog_says(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.touch_all_shards().await;
    let before = cluster.picture().await;
    take_local(&cluster, "s1", "orders", &keys(0, 100)).await;
    give_local(&cluster, "s2", "orders", &keys(500, 600)).await;
    set_local_state(&cluster, "s3", "orders", &keys(200, 300), "read_only").await;
    let (differences, away) = cluster.driver.check(&map("orders")).await.unwrap();
    let found: Vec<_> =
        differences.iter().map(|difference| (difference.shard.as_str(), difference.found)).collect();
    assert_eq!(found, [("s1", Found::CatalogOnly), ("s2", Found::ShardOnly), ("s3", Found::Differs)]);
    assert_eq!(away, []);

    let repaired = cluster.driver.repair_shards(&map("orders"), Some(&shard("s2"))).await.unwrap();
    assert_eq!(repaired.len(), 1);
    assert_eq!(cluster.driver.check(&map("orders")).await.unwrap().0.len(), 2);
    let repaired = cluster.driver.repair_shards(&map("orders"), None).await.unwrap();
    assert_eq!(repaired.len(), 2);
    assert_eq!(cluster.picture().await, before);
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn differences_are_shown_and_the_catalog_is_made_what_the_shards_say(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.touch_all_shards().await;
    take_local(&cluster, "s1", "orders", &keys(0, 100)).await;
    give_local(&cluster, "s2", "orders", &keys(500, 600)).await;
    set_local_state(&cluster, "s3", "orders", &keys(200, 300), "read_only").await;
    let repaired = cluster.driver.repair_catalog(&map("orders")).await.unwrap();
    assert_eq!(repaired.len(), 3);
    let shown = cluster.picture().await.maps[&map("orders")].clone();
    let expected = [
        (keys(100, 200), shard("s2"), State::Online, None),
        (keys(200, 300), shard("s3"), State::ReadOnly, None),
        (keys(500, 600), shard("s2"), State::Online, None),
    ];
    assert_eq!(shown, expected);
    cluster.assert_healthy().await;
    let ticket = cluster.router.enter(&map("orders"), &[key(550)], Access::Write).await.unwrap();
    assert_eq!(ticket.shard(), &shard("s2"));
    drop(ticket);
    cluster.close().await;
}

async fn of_two_shards_that_claim_a_range_the_higher_epoch_keeps_it(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.touch_all_shards().await;
    let before = cluster.picture().await;
    // The row made by hand is of epoch 1, older than anything of this map.
    give_local(&cluster, "s3", "orders", &keys(50, 60)).await;
    cluster.driver.repair_catalog(&map("orders")).await.unwrap();
    assert_eq!(cluster.picture().await, before);
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn set_local_state(cluster: &Cluster, on: &str, map: &str, range: &KeyRange, state: &str) {
    let opened = cluster.router.administer(&shard(on)).await.unwrap();
    let table = opened.dialect().own_table("local_range");
    let mut tx = opened.control_transaction().await.unwrap();
    let sql = format!("UPDATE {table} SET state = $3 WHERE map = $1 AND lo = $2");
    let statement = Statement::new(sql).bind(map).bind(range.lo().as_slice()).bind(state);
    assert_eq!(tx.run(statement).await.unwrap().affected(), 1);
    tx.commit().await.unwrap();
}
