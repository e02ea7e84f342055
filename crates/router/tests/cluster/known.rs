//! A change counts for every process once it was answered, also for one that starts then or was cut off.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polyshard_engine::{self as engine, Database, Statement, Transaction};
use polyshard_router::{Access, RouterError};
use polyshard_shard::RouterId;

use crate::cluster::{Cluster, PATIENCE, Resolving, Setup, assign, engine_options, key, keys, map, shard};
use crate::place::Place;

on_postgres!(
    a_process_that_starts_beside_a_change_does_not_miss_it,
    a_process_that_was_cut_off_registers_before_it_goes_on,
    a_demand_is_raised_though_a_process_hangs_with_the_shards_lock,
    a_change_that_not_all_can_be_told_of_is_made_all_the_same,
);

fn second() -> Setup {
    Setup { router: 2, resolver: Resolving::No, ..Setup::default() }
}

/// A transaction that does nothing but hold a lock.
async fn hold(place: &Arc<Place>, name: &str, lock: &str) -> (Database, Transaction) {
    let database = Database::open(place.target(name), engine_options(), None).await.unwrap();
    let mut transaction = database.begin(engine::Access::Write).await.unwrap();
    transaction.run(Statement::new(lock)).await.unwrap();
    (database, transaction)
}

/// Between what a process reads when it starts and its registration, others may change something, and be answered.
async fn a_process_that_starts_beside_a_change_does_not_miss_it(place: Arc<Place>) {
    let one = Cluster::with_maps(&place, Setup::default()).await;
    // It can be read, but nobody registers.
    let (database, held) =
        hold(&place, "catalog", "LOCK TABLE polyshard.router_heard IN EXCLUSIVE MODE").await;
    let other = place.clone();
    let starting = tokio::spawn(async move { Cluster::open(&other, second()).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%router_heard%'";
    let since = Instant::now();
    while place.pg().execute("postgres", waits) == "0" {
        assert!(since.elapsed() < PATIENCE, "it does not register");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    one.change("orders", assign(keys(0, 10), "s2")).await.unwrap();
    one.router.everybody_knows().await.unwrap();
    let changed = one.router.view().seq;
    held.rollback().await.unwrap();
    let two = starting.await.unwrap();
    assert!(two.router.view().seq >= changed, "it serves by an older view than the one that was answered");
    one.router.everybody_knows().await.unwrap();
    assert!(one.catalog.who_heard().await.unwrap()[&RouterId::new(2)] >= changed);
    database.close().await;
    two.close().await;
    one.close().await;
}

/// Nobody waits for it any more: what it has read by then, it must not go by before it is waited for again.
async fn a_process_that_was_cut_off_registers_before_it_goes_on(place: Arc<Place>) {
    let one = Cluster::with_maps(&place, Setup::default()).await;
    let two = Cluster::open(&place, second()).await;
    let read = async || {
        let work = async |ticket: &polyshard_router::Ticket| ticket.read(Statement::new("SELECT 1")).await;
        two.router.call(&map("orders"), &[key(5)], Access::Read, work).await.unwrap();
    };
    read().await;
    let silent = RouterId::new(2);
    assert!(one.catalog.who_heard().await.unwrap().contains_key(&silent));
    // It has read everything, but is silent all the same.
    let opened = one.router.administer(&shard("s1")).await.unwrap();
    opened.demand(two.router.view().seq, &BTreeSet::from([silent])).await.unwrap();
    assert!(opened.cut_off(silent).await.unwrap());
    one.catalog.forget_router(silent, u64::MAX).await.unwrap();
    read().await;
    assert!(
        one.catalog.who_heard().await.unwrap().contains_key(&silent),
        "it goes on, and nobody waits for it"
    );
    two.close().await;
    assert!(!one.catalog.who_heard().await.unwrap().contains_key(&silent));
    one.close().await;
}

async fn a_demand_is_raised_though_a_process_hangs_with_the_shards_lock(place: Arc<Place>) {
    let one = Cluster::with_maps(&place, Setup::default()).await;
    let (database, held) = hold(&place, "s1", "SELECT 1 FROM polyshard.meta FOR UPDATE").await;
    let opened = one.router.administer(&shard("s1")).await.unwrap();
    let began = Instant::now();
    opened.demand(1, &BTreeSet::from([RouterId::new(2)])).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(held.commit().await.is_err(), "its session was ended");
    database.close().await;
    one.close().await;
}

async fn a_change_that_not_all_can_be_told_of_is_made_all_the_same(place: Arc<Place>) {
    let one = Cluster::with_maps(&place, Setup::default()).await;
    let silent = RouterId::new(9);
    one.catalog.heard(silent, 0).await.unwrap();
    // Somebody is at work on a shard, and so is not ended.
    let (database, mut held) = hold(&place, "s3", "SELECT 1 FROM polyshard.meta FOR UPDATE").await;
    let busy = tokio::spawn(async move {
        let slept = held.run(Statement::new("SELECT pg_sleep(12)")).await;
        drop(held);
        slept.map(drop)
    });
    let error = one.router.everybody_knows().await.unwrap_err();
    assert!(matches!(error, RouterError::Unconfirmed(_)), "{error}");
    let words = error.to_string();
    assert!(words.starts_with("the change is made") && words.ends_with("do not repeat it"), "{words}");
    assert!(words.contains("s3"), "{words}");
    assert!(!error.is_retryable());
    assert!(one.catalog.who_heard().await.unwrap().contains_key(&silent), "the next change tries again");
    busy.await.unwrap().unwrap();
    one.router.everybody_knows().await.unwrap();
    assert!(!one.catalog.who_heard().await.unwrap().contains_key(&silent));
    database.close().await;
    one.close().await;
}
