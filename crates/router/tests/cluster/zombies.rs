//! A driver that slept through its lease wakes up after another has finished its work: it can do no harm (PROTOCOL §6).

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyshard_catalog::{Driver, Failpoint, FenceLimits};

use crate::cluster::{Cluster, Picture, Resolving, Setup};
use crate::crashes::{Operation, assign_two, create_map, drop_map, dry_run, read_only};
use crate::place::Place;

/// Stops a driver at its n-th place until it is told to go on.
struct Bed {
    failpoint: Failpoint,
    asleep: Receiver<()>,
    wake: SyncSender<()>,
}

fn bed(at: usize) -> Bed {
    let (fell_asleep, asleep) = sync_channel(1);
    let (wake, woken) = sync_channel(1);
    let state = Mutex::new((0, woken));
    let failpoint: Failpoint = Arc::new(move |_| {
        let mut state = state.lock().unwrap();
        state.0 += 1;
        if state.0 == at + 1 {
            fell_asleep.send(()).unwrap();
            // Everything else of the process goes on meanwhile.
            tokio::task::block_in_place(|| state.1.recv().unwrap());
        }
        false
    });
    Bed { failpoint, asleep, wake }
}

async fn a_sleeper_does_no_harm(operation: Operation) {
    let base = Place::files();
    let cluster = Cluster::with_maps(&base, Setup::default()).await;
    let before = cluster.picture().await;
    cluster.close().await;
    let (places, after) = dry_run(&base.copy(), operation).await;
    for (at, place) in places.iter().enumerate() {
        let here = format!("asleep at place {at}, {place}");
        sleep_and_wake(&base.copy(), operation, at, [&before, &after], &here).await;
    }
}

async fn sleep_and_wake(
    place: &Arc<Place>,
    operation: Operation,
    at: usize,
    [before, after]: [&Picture; 2],
    here: &str,
) {
    let Bed { failpoint, asleep, wake } = bed(at);
    let setup = Setup {
        failpoint: Some(failpoint),
        lease: Duration::ZERO,
        resolver: Resolving::No,
        ..Setup::default()
    };
    let cluster = Arc::new(Cluster::open(place, setup).await);
    cluster.touch_all_shards().await;
    let sleeper = tokio::spawn({
        let cluster = cluster.clone();
        async move { operation(&cluster).await }
    });
    tokio::task::spawn_blocking(move || asleep.recv().unwrap()).await.unwrap();

    let shards = cluster.router.shard_source();
    let second = Driver::new(cluster.catalog.clone(), shards, FenceLimits::default(), None);
    for record in cluster.catalog.running().await.unwrap() {
        assert!(second.take_over(record.op.id).await.unwrap(), "{here}");
    }
    cluster.settle().await;
    let healed = cluster.picture().await;
    assert!(healed == *before || healed == *after, "{here}: {healed:#?}");

    wake.send(()).unwrap();
    let ending = sleeper.await.unwrap();
    cluster.settle().await;
    assert_eq!(cluster.picture().await, healed, "{here}: the sleeper changed something, {ending:?}");
    cluster.assert_healthy().await;
    second.close().await;
    Arc::into_inner(cluster).unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_wakes_up_late_does_no_harm_to_an_assignment() {
    a_sleeper_does_no_harm(assign_two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_wakes_up_late_does_no_harm_to_a_new_map() {
    a_sleeper_does_no_harm(create_map).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_wakes_up_late_does_no_harm_to_a_change_of_state() {
    a_sleeper_does_no_harm(read_only).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_wakes_up_late_does_no_harm_to_a_map_that_goes() {
    a_sleeper_does_no_harm(drop_map).await;
}
