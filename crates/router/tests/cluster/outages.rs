//! Servers die in the middle of things and come back: nothing acknowledged is lost, nobody restarts anything (B3, B5).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use polyshard_catalog::CatalogError;
use polyshard_engine::{Error, Target};
use polyshard_router::RouterError;
use polyshard_shard::ShardError;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cluster::{Cluster, PATIENCE, Resolving, Setup, assign, buckets, key, keys, map, shard};
use crate::place::{Place, start_server};

on_postgres!(
    a_restart_of_the_server_in_the_middle_of_changes_loses_none_that_was_acknowledged,
    a_process_finds_a_reattached_shard_by_itself,
);

/// Crash and restart at random moments, under changes and writes: what was acknowledged is there afterwards.
async fn a_restart_of_the_server_in_the_middle_of_changes_loses_none_that_was_acknowledged(
    place: Arc<Place>,
) {
    let cluster = Arc::new(Cluster::with_maps(&place, Setup::default()).await);
    cluster.items().await;
    let progress = Arc::new(Progress::default());
    let changing = tokio::spawn(change_until_told(cluster.clone(), progress.clone()));
    let writing = tokio::spawn(write_until_told(cluster.clone(), progress.clone()));
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..4 {
        progress.goes_on().await;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..200))).await;
        let place = place.clone();
        let restart = move || {
            place.pg().kill9();
            place.pg().start_again();
        };
        tokio::task::spawn_blocking(restart).await.unwrap();
    }
    progress.goes_on().await;
    progress.stop.store(true, Ordering::SeqCst);
    changing.await.unwrap();
    let written = writing.await.unwrap();
    cluster.settle().await;
    cluster.assert_healthy().await;
    let mut found = Vec::new();
    for name in ["s1", "s2", "s3"] {
        let opened = cluster.router.administer(&shard(name)).await.unwrap();
        let mut tx = opened.control_transaction().await.unwrap();
        let rows = tx.run(polyshard_engine::Statement::new("SELECT value FROM item")).await.unwrap();
        found.extend(rows.iter().map(|row| row.int(0).unwrap()));
        tx.rollback().await.unwrap();
    }
    found.sort_unstable();
    let doubled: Vec<_> = found.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(doubled.is_empty(), "written twice: {doubled:?}");
    for value in written {
        assert!(found.binary_search(&value).is_ok(), "{value} was acknowledged and is lost");
    }
    Arc::into_inner(cluster).unwrap().close().await;
}

/// How far changes and writes have come.
#[derive(Default)]
struct Progress {
    changes: AtomicUsize,
    writes: AtomicUsize,
    stop: AtomicBool,
}

impl Progress {
    /// Waits until a change and a write that began from now on have been acknowledged.
    async fn goes_on(&self) {
        let now = || (self.changes.load(Ordering::SeqCst), self.writes.load(Ordering::SeqCst));
        let (changes, writes) = now();
        let further = async {
            // One of each may have been under way already.
            while now().0 < changes + 2 || now().1 < writes + 2 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, further).await.expect("changes and writes go on by themselves");
    }
}

/// Sends a bucket round the shards; after each success the catalog must say so.
async fn change_until_told(cluster: Arc<Cluster>, progress: Arc<Progress>) {
    for round in 0.. {
        if progress.stop.load(Ordering::SeqCst) {
            break;
        }
        let to = ["s2", "s3", "s1"][round % 3];
        match cluster.change("tenants", assign(buckets(1, 2), to)).await {
            Ok(_) => {
                progress.changes.fetch_add(1, Ordering::SeqCst);
                if let Ok(Some(entry)) =
                    cluster.catalog.entry_at(&map("tenants"), buckets(1, 2).lo().as_slice()).await
                {
                    assert_eq!(entry.shard, shard(to), "an acknowledged change is lost");
                }
            }
            // Not now, undone, still under way, or there already: all of them honest answers in an outage.
            Err(
                CatalogError::Engine(_)
                | CatalogError::Shard { .. }
                | CatalogError::RolledBack(_)
                | CatalogError::Busy { .. }
                | CatalogError::Change(_)
                | CatalogError::Unfinished { .. },
            ) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Writes rows; answers those that were acknowledged. An unknown outcome is never repeated.
async fn write_until_told(cluster: Arc<Cluster>, progress: Arc<Progress>) -> Vec<i64> {
    let mut acknowledged = Vec::new();
    for value in 0.. {
        if progress.stop.load(Ordering::SeqCst) {
            break;
        }
        match cluster.write("tenants", value % 100, value).await {
            Ok(_) => {
                acknowledged.push(value);
                progress.writes.fetch_add(1, Ordering::SeqCst);
            }
            Err(RouterError::Engine(Error::OutcomeUnknown { .. } | Error::Unavailable { .. })) => {}
            Err(RouterError::Shard { error: ShardError::Engine(_), .. }) => {}
            Err(RouterError::Engine(error)) if error.is_retryable() => {}
            Err(other) => panic!("{other}"),
        }
    }
    acknowledged
}

/// PROTOCOL §1: the incarnation changes on attach; a router that knew the old one looks again, unseen by its callers.
async fn a_process_finds_a_reattached_shard_by_itself(place: Arc<Place>) {
    let one = Cluster::with_maps(&place, Setup::default()).await;
    one.items().await;
    let never = Duration::from_secs(3600);
    let setup = Setup { router: 2, resolver: Resolving::No, poll: never, ..Setup::default() };
    let two = Cluster::open(&place, setup).await;
    assert_eq!(two.write("orders", 150, 1).await.unwrap(), shard("s2"));
    one.driver.detach_shard(&shard("s2")).await.unwrap();
    one.router.refresh().await.unwrap();
    one.attach_shard("s2").await.unwrap();
    // All sessions of the second process on that shard end, and it must introduce itself again.
    place.pg().execute(
        "postgres",
        &format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{}'",
            place.database("s2")
        ),
    );
    assert_eq!(two.write("orders", 150, 2).await.unwrap(), shard("s2"));
    assert_eq!(two.read("orders", 150).await.unwrap().1, [1, 2]);
    one.change("orders", assign(keys(150, 160), "s1")).await.unwrap();
    assert_eq!(two.write("orders", 150, 3).await.unwrap(), shard("s1"));
    one.assert_healthy().await;
    two.close().await;
    one.close().await;
}

/// An operation whose catalog dies under it goes on by itself when the catalog is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_under_way_when_the_catalog_dies_end_when_it_is_back() {
    let (place, server) = (Place::server(), start_server());
    {
        let server = server.lock().unwrap();
        server.create_database("catalog");
        place.move_to("catalog", Target::parse(&server.url("catalog")).unwrap());
    }
    let cluster = Arc::new(Cluster::with_maps(&place, Setup::default()).await);
    let ticket =
        cluster.router.enter(&map("orders"), &[key(5)], polyshard_router::Access::Write).await.unwrap();
    let under_way = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.change("orders", assign(keys(0, 10), "s2")).await }
    });
    cluster.until_running().await;
    server.lock().unwrap().kill9();
    drop(ticket);
    // Longer than one attempt holds requests: the switch must not need them to stand still all the while.
    tokio::time::sleep(Duration::from_millis(700)).await;
    server.lock().unwrap().start_again();
    let ending = under_way.await.unwrap();
    cluster.settle().await;
    let entry = cluster.catalog.entry_at(&map("orders"), keys(5, 6).lo().as_slice()).await.unwrap().unwrap();
    match ending {
        Ok(_) => assert_eq!(entry.shard, shard("s2")),
        Err(CatalogError::RolledBack(_)) => assert_eq!(entry.shard, shard("s1")),
        Err(CatalogError::Superseded(_) | CatalogError::Unfinished { .. } | CatalogError::Engine(_)) => {}
        Err(other) => panic!("{other}"),
    }
    cluster.assert_healthy().await;
    Arc::into_inner(cluster).unwrap().close().await;
}
