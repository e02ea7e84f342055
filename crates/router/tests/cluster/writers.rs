//! Writers at full speed while ranges change shards: no write is lost, doubled, or lands on the old shard (B2).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyshard_engine::Statement;
use polyshard_map::{KeyRange, ShardId};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cluster::{BUCKETS, Cluster, PATIENCE, Resolving, Setup, assign, buckets, map, shard};
use crate::place::Place;

on_both_engines!(no_write_lands_on_a_shard_after_its_range_has_left);

const WRITERS: u64 = 8;
const SWITCHES: usize = 12;
/// Writes that must be seen after a switch before its old shard is looked at again.
const WRITES_AFTER: i64 = 40;

/// What the writers have done so far.
#[derive(Default)]
struct Written {
    next: AtomicI64,
    done: AtomicI64,
    stop: AtomicBool,
    /// Where each value went.
    acknowledged: Mutex<BTreeMap<i64, ShardId>>,
}

async fn no_write_lands_on_a_shard_after_its_range_has_left(place: Arc<Place>) {
    let cluster = Arc::new(Cluster::with_maps(&place, Setup::default()).await);
    cluster.items().await;
    // On PostgreSQL a second process writes too, whose router must be asked over the database.
    let second = match place.is_postgres() {
        false => cluster.clone(),
        true => {
            let setup = Setup { router: 2, resolver: Resolving::No, ..Setup::default() };
            Arc::new(Cluster::open(&place, setup).await)
        }
    };
    let written = Arc::new(Written::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|seed| {
            let process = if seed % 2 == 0 { cluster.clone() } else { second.clone() };
            tokio::spawn(write_until_told(process, written.clone(), seed))
        })
        .collect();
    let mut random = StdRng::seed_from_u64(42);
    for _ in 0..SWITCHES {
        let from = random.random_range(0..BUCKETS);
        let range = buckets(from, random.random_range(from + 1..=BUCKETS));
        let to = ["s1", "s2", "s3"][random.random_range(0..3)];
        switch_and_look(&cluster, &written, &range, to).await;
    }
    written.stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    every_write_is_found_once_where_it_was_acknowledged(&cluster, &written).await;
    cluster.assert_healthy().await;
    if place.is_postgres() {
        Arc::into_inner(second).unwrap().close().await;
    } else {
        drop(second);
    }
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn write_until_told(process: Arc<Cluster>, written: Arc<Written>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    while !written.stop.load(Ordering::SeqCst) {
        let value = written.next.fetch_add(1, Ordering::SeqCst);
        let on = process.write("tenants", random.random_range(0..1000), value).await.unwrap();
        written.acknowledged.lock().unwrap().insert(value, on);
        written.done.fetch_add(1, Ordering::SeqCst);
    }
}

/// Assigns a range; then, once the writers have gone on for a while, no other shard may have more rows of it than
/// when the switch was done.
async fn switch_and_look(cluster: &Cluster, written: &Written, range: &KeyRange, to: &str) {
    let others = || ["s1", "s2", "s3"].into_iter().filter(|name| *name != to);
    match cluster.change("tenants", assign(range.clone(), to)).await {
        Ok(_) => {}
        // Nothing to do: all of it is there already.
        Err(polyshard_catalog::CatalogError::Change(_)) => {}
        Err(error) => panic!("{error}"),
    }
    let mut at_the_switch = Vec::new();
    for name in others() {
        at_the_switch.push(cluster.rows_on(name, range).await);
    }
    let seen = written.done.load(Ordering::SeqCst);
    let go_on = async {
        while written.done.load(Ordering::SeqCst) < seen + WRITES_AFTER {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, go_on).await.expect("the writers go on");
    let mut later = Vec::new();
    for name in others() {
        later.push(cluster.rows_on(name, range).await);
    }
    assert_eq!(later, at_the_switch, "rows of {range:?} on the shards that do not have it ({to} does)");
}

async fn every_write_is_found_once_where_it_was_acknowledged(cluster: &Cluster, written: &Written) {
    let mut found: BTreeMap<i64, ShardId> = BTreeMap::new();
    for name in ["s1", "s2", "s3"] {
        let opened = cluster.router.administer(&shard(name)).await.unwrap();
        let mut tx = opened.control_transaction().await.unwrap();
        for row in tx.run(Statement::new("SELECT value FROM item")).await.unwrap() {
            let value = row.int(0).unwrap();
            assert_eq!(found.insert(value, shard(name)), None, "value {value} was written twice");
        }
        tx.rollback().await.unwrap();
    }
    let acknowledged = written.acknowledged.lock().unwrap();
    assert!(acknowledged.len() as i64 > WRITES_AFTER * SWITCHES as i64);
    assert_eq!(found, *acknowledged, "of map {}", map("tenants"));
}
