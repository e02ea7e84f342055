//! Several operators at once: one wins, nobody waits for what does not concern him, leases end by themselves (B3, B6).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polyshard_catalog::{CatalogError, ChangeRequest, OpState};
use polyshard_map::Change;
use polyshard_router::Access;

use crate::cluster::{Cluster, PATIENCE, Setup, assign, bound, key, keys, map, shard};
use crate::place::{Place, start_server};

on_both_engines!(
    of_two_operators_who_saw_the_same_version_one_succeeds_and_one_learns_the_current,
    a_busy_range_is_refused_and_the_rest_of_the_map_is_not,
    changes_of_different_ranges_succeed_together,
    a_locked_range_is_refused_to_others_until_its_lease_ends,
);

/// B3: compare by version; nobody overwrites what he has not seen.
async fn of_two_operators_who_saw_the_same_version_one_succeeds_and_one_learns_the_current(
    place: Arc<Place>,
) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    for round in 1..=5 {
        let seen = Some(cluster.catalog.map(&map("orders")).await.unwrap().version);
        let (one, two) = tokio::join!(
            cluster.change_if("orders", Change::Split { at: bound(round * 10) }, seen),
            cluster.change_if("orders", Change::Split { at: bound(100 + round * 10) }, seen),
        );
        let (winner, loser) = if one.is_ok() { (one, two) } else { (two, one) };
        winner.unwrap();
        let now = cluster.catalog.map(&map("orders")).await.unwrap().version;
        match loser.unwrap_err() {
            CatalogError::ChangedMeanwhile { current, .. } => assert_eq!(current, now),
            other => panic!("{other}"),
        }
    }
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn a_busy_range_is_refused_and_the_rest_of_the_map_is_not(place: Arc<Place>) {
    let cluster = Arc::new(Cluster::with_maps(&place, Setup::default()).await);
    let ticket = cluster.router.enter(&map("orders"), &[key(5)], Access::Write).await.unwrap();
    let stuck = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.change("orders", assign(keys(0, 10), "s2")).await }
    });
    let running = cluster.until_running().await;
    match cluster.change("orders", Change::Split { at: bound(50) }).await.unwrap_err() {
        CatalogError::Busy { op, kind } => assert_eq!((op, kind.as_str()), (running, "assign")),
        other => panic!("{other}"),
    }
    cluster.change("orders", Change::Split { at: bound(150) }).await.unwrap();
    cluster.change("orders", assign(keys(200, 210), "s2")).await.unwrap();
    drop(ticket);
    stuck.await.unwrap().unwrap();
    cluster.assert_healthy().await;
    Arc::into_inner(cluster).unwrap().close().await;
}

async fn changes_of_different_ranges_succeed_together(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    cluster.touch_all_shards().await;
    let (one, two, three, four) = tokio::join!(
        cluster.change("orders", assign(keys(0, 10), "s2")),
        cluster.change("orders", assign(keys(100, 110), "s3")),
        cluster.change("orders", assign(keys(200, 210), "s1")),
        cluster.change("tenants", assign(crate::cluster::buckets(0, 2), "s3")),
    );
    for result in [one, two, three, four] {
        result.unwrap();
    }
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// B6: operations can hold a lock with a lease; the catalog's clock ends it.
async fn a_locked_range_is_refused_to_others_until_its_lease_ends(place: Arc<Place>) {
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let lock = |until_ms| {
        let change = Change::Lock { range: keys(0, 100), owner: "ann".into(), until_ms };
        ChangeRequest { map: map("orders"), change, if_version: None, by: Some("ann".into()) }
    };
    cluster.driver.change(&lock(now_ms() + 3_600_000)).await.unwrap();
    let refused = cluster.change("orders", assign(keys(10, 20), "s2")).await.unwrap_err();
    assert!(matches!(refused, CatalogError::Change(_)) && refused.to_string().contains("ann"), "{refused}");
    let by_ann = ChangeRequest {
        map: map("orders"),
        change: assign(keys(10, 20), "s2"),
        if_version: None,
        by: Some("ann".into()),
    };
    cluster.driver.change(&by_ann).await.unwrap();

    let until = now_ms() + 500;
    cluster.driver.change(&lock(until)).await.unwrap();
    let freed = async {
        while cluster.change("orders", assign(keys(30, 40), "s3")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("the lease ends");
    assert!(now_ms() >= until, "the lock did not hold until its end");
    cluster.assert_healthy().await;
    cluster.close().await;
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

/// PROTOCOL §1: nothing waits for an unrelated operation; what is stuck heals when its shard is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_stuck_on_a_dead_server_holds_up_no_other_and_heals_when_it_is_back() {
    let place = Place::server();
    let far = start_server();
    {
        let server = far.lock().unwrap();
        server.create_database("far");
        place.move_to("s3", polyshard_engine::Target::parse(&server.url("far")).unwrap());
    }
    let cluster = Arc::new(Cluster::with_maps(&place, Setup::default()).await);
    cluster.touch_all_shards().await;
    far.lock().unwrap().kill9();
    let stuck = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.change("orders", assign(keys(200, 210), "s1")).await }
    });
    let op = cluster.until_running().await;
    cluster.change("orders", assign(keys(0, 10), "s2")).await.unwrap();
    cluster.change("orders", Change::Split { at: bound(150) }).await.unwrap();
    assert_eq!(cluster.catalog.operation(op).await.unwrap().state, OpState::Running);

    far.lock().unwrap().start_again();
    let ending = stuck.await.unwrap();
    cluster.settle().await;
    let on = cluster.catalog.entry_at(&map("orders"), bound(205).as_slice()).await.unwrap().unwrap().shard;
    match ending {
        Ok(_) => assert_eq!(on, shard("s1")),
        Err(CatalogError::RolledBack(_)) => assert_eq!(on, shard("s3")),
        Err(other) => panic!("{other}"),
    }
    cluster.assert_healthy().await;
    Arc::into_inner(cluster).unwrap().close().await;
}
