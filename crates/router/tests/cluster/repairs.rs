//! Shards come, go, change their address and are repaired; what the maps say of them stays true (B4, D1).

use polyshard_engine::Statement;
use polyshard_map::KeyRange;

use crate::cluster::{Cluster, shard};

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
