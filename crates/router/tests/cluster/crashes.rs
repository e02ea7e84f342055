//! A process killed between any two steps of any operation leaves a cluster that heals by itself (B3).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyshard_catalog::{CatalogError, Failpoint};
use polyshard_map::{Change, NewEntry, State};

use crate::cluster::{
    Cluster, Picture, Resolving, Setup, assign, bound, entries, keys, map, orders, shard, tenants,
};
use crate::place::Place;

pub(crate) type Doing<'a> = Pin<Box<dyn Future<Output = Result<(), CatalogError>> + Send + 'a>>;
pub(crate) type Operation = fn(&Cluster) -> Doing<'_>;

/// What is left when an operation is stopped halfway: the parts of it that people could see.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// One operation: as before, or as after.
    AllOrNothing,
    /// Several operations in a row: each is all or nothing, and doing it again completes it.
    Repeatable,
}

/// Where an operation is stopped.
#[derive(Clone, Copy)]
enum Places {
    All,
    /// So many, evenly spread from the first to the last.
    Spread(usize),
}

impl Places {
    fn chosen(self, count: usize) -> Vec<usize> {
        match self {
            Places::All => (0..count).collect(),
            Places::Spread(some) => (1..=some).map(|part| part * count / (some + 1)).collect(),
        }
    }
}

/// Runs an operation, stopped at its places in turn, and sees that a new process heals what was left.
async fn survives(
    base: Arc<Place>,
    prepare: Operation,
    operation: Operation,
    promise: Promise,
    places: Places,
) {
    let cluster = Cluster::with_maps(&base, Setup::default()).await;
    prepare(&cluster).await.unwrap();
    cluster.settle().await;
    let before = cluster.picture().await;
    cluster.close().await;

    let (passed, after) = dry_run(&base.copy(), operation).await;
    assert!(passed.len() > 3, "the places were not found: {passed:?}");
    for stop in places.chosen(passed.len()) {
        let here = format!("stopped at place {stop}, {}", passed[stop]);
        stop_and_heal(&base.copy(), operation, promise, stop, [&before, &after], &here).await;
    }
}

/// Runs the operation to its end; answers the places it passed and what the cluster is like afterwards.
pub(crate) async fn dry_run(place: &Arc<Place>, operation: Operation) -> (Vec<String>, Picture) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = seen.clone();
    let failpoint: Failpoint = Arc::new(move |place| {
        record.lock().unwrap().push(place.to_owned());
        false
    });
    let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
    let cluster = Cluster::open(place, setup).await;
    cluster.touch_all_shards().await;
    operation(&cluster).await.unwrap();
    let places = seen.lock().unwrap().clone();
    cluster.assert_healthy().await;
    let after = cluster.picture().await;
    cluster.close().await;
    (places, after)
}

async fn stop_and_heal(
    place: &Arc<Place>,
    operation: Operation,
    promise: Promise,
    stop: usize,
    [before, after]: [&Picture; 2],
    here: &str,
) {
    // The process that is stopped: its leases end at once, and it finishes nothing later.
    let passed = Arc::new(Mutex::new(0));
    let counter = passed.clone();
    let failpoint: Failpoint = Arc::new(move |_| {
        let mut passed = counter.lock().unwrap();
        *passed += 1;
        *passed > stop
    });
    let dying = Setup {
        failpoint: Some(failpoint),
        lease: Duration::ZERO,
        resolver: Resolving::No,
        ..Setup::default()
    };
    let cluster = Cluster::open(place, dying).await;
    cluster.touch_all_shards().await;
    let stopped = operation(&cluster).await.expect_err(here);
    assert!(stopped.to_string().contains("failpoint"), "{here}: {stopped}");
    cluster.close().await;

    let cluster = Cluster::open(place, Setup { router: 2, ..Setup::default() }).await;
    cluster.touch_all_shards().await;
    cluster.settle().await;
    if promise == Promise::Repeatable {
        operation(&cluster).await.unwrap_or_else(|error| panic!("{here}, then repeated: {error}"));
        assert_eq!(cluster.picture().await, *after, "{here}");
    } else {
        let found = cluster.picture().await;
        assert!(found == *before || found == *after, "{here}: half of it is done: {found:#?}");
    }
    cluster.assert_healthy().await;
    cluster.close().await;
}

fn nothing(_: &Cluster) -> Doing<'_> {
    Box::pin(async { Ok(()) })
}

pub(crate) fn create_map(cluster: &Cluster) -> Doing<'_> {
    Box::pin(async {
        let definition = polyshard_map::MapDefinition::new(
            map("new"),
            polyshard_map::KeyType::BigInt,
            polyshard_map::Scheme::Range,
        );
        let parts = entries(&[(keys(0, 10), "s1"), (keys(10, 20), "s2")]);
        cluster.driver.create_map(&definition.unwrap(), parts).await.map(drop)
    })
}

fn change(cluster: &Cluster, change: Change) -> Doing<'_> {
    Box::pin(async move { cluster.change("orders", change).await.map(drop) })
}

fn add(cluster: &Cluster) -> Doing<'_> {
    let new = vec![NewEntry::new(keys(300, 400), shard("s1")), NewEntry::new(keys(400, 500), shard("s2"))];
    change(cluster, Change::Add { entries: new })
}

fn remove(cluster: &Cluster) -> Doing<'_> {
    change(cluster, Change::Remove { range: keys(50, 150) })
}

fn assign_one(cluster: &Cluster) -> Doing<'_> {
    change(cluster, assign(keys(10, 20), "s3"))
}

pub(crate) fn assign_two(cluster: &Cluster) -> Doing<'_> {
    change(cluster, assign(keys(50, 150), "s3"))
}

fn split(cluster: &Cluster) -> Doing<'_> {
    change(cluster, Change::Split { at: bound(50) })
}

fn merge(cluster: &Cluster) -> Doing<'_> {
    change(cluster, Change::Merge { at: bound(50) })
}

pub(crate) fn read_only(cluster: &Cluster) -> Doing<'_> {
    change(cluster, Change::SetState { range: keys(50, 150), state: State::ReadOnly })
}

fn online(cluster: &Cluster) -> Doing<'_> {
    change(cluster, Change::SetState { range: keys(50, 150), state: State::Online })
}

fn lock(cluster: &Cluster) -> Doing<'_> {
    change(cluster, Change::Lock { range: keys(50, 150), owner: "ann".into(), until_ms: i64::MAX / 2 })
}

pub(crate) fn drop_map(cluster: &Cluster) -> Doing<'_> {
    Box::pin(async { cluster.driver.drop_map(orders().name(), None, false).await.map(drop) })
}

fn destroy_shard(cluster: &Cluster) -> Doing<'_> {
    Box::pin(async {
        match cluster.driver.remove_shard(&shard("s2"), true).await {
            // The first try had come to its end.
            Err(CatalogError::NoSuchShard(_)) => Ok(()),
            other => other,
        }
    })
}

fn repair_shards(cluster: &Cluster) -> Doing<'_> {
    Box::pin(async { cluster.driver.repair_shards(tenants().name(), None).await.map(drop) })
}

/// By hand: s1 loses a range of `tenants`, s2 gets one that is not its own.
fn damage(cluster: &Cluster) -> Doing<'_> {
    Box::pin(async {
        crate::repairs::take_local(cluster, "s1", "tenants", &crate::cluster::buckets(0, 4)).await;
        crate::repairs::give_local(cluster, "s2", "tenants", &crate::cluster::buckets(8, 12)).await;
        Ok(())
    })
}

/// Every place on SQLite.
macro_rules! every_place_on_sqlite {
    ($($name:ident: $prepare:expr, $operation:expr, $promise:expr;)*) => {
        mod sqlite {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                survives(Place::files(), $prepare, $operation, $promise, Places::All).await;
            })*
        }
    };
}

/// On PostgreSQL, where copying databases takes long, some places; all in the long run, and there every operation.
macro_rules! some_places_on_postgres {
    ($($(#[$attribute:meta])* $name:ident: $prepare:expr, $operation:expr, $promise:expr;)*) => {
        mod postgres {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            $(#[$attribute])*
            async fn $name() {
                let long = std::env::var_os("POLYSHARD_LONG").is_some();
                let places = if long { Places::All } else { Places::Spread(3) };
                survives(Place::server(), $prepare, $operation, $promise, places).await;
            })*
        }
    };
}

every_place_on_sqlite! {
    creating_a_map: nothing, create_map, Promise::AllOrNothing;
    adding_ranges: nothing, add, Promise::AllOrNothing;
    removing_a_range_over_two_shards: nothing, remove, Promise::AllOrNothing;
    assigning_from_one_shard: nothing, assign_one, Promise::AllOrNothing;
    assigning_from_two_shards: nothing, assign_two, Promise::AllOrNothing;
    splitting: nothing, split, Promise::AllOrNothing;
    merging: split, merge, Promise::AllOrNothing;
    making_read_only: nothing, read_only, Promise::AllOrNothing;
    making_online_again: read_only, online, Promise::AllOrNothing;
    locking: nothing, lock, Promise::AllOrNothing;
    dropping_a_map: nothing, drop_map, Promise::AllOrNothing;
    destroying_a_shard: nothing, destroy_shard, Promise::Repeatable;
    repairing_shards: damage, repair_shards, Promise::Repeatable;
}

some_places_on_postgres! {
    creating_a_map: nothing, create_map, Promise::AllOrNothing;
    assigning_from_two_shards: nothing, assign_two, Promise::AllOrNothing;
    making_read_only: nothing, read_only, Promise::AllOrNothing;
    repairing_shards: damage, repair_shards, Promise::Repeatable;
    #[ignore = "one of the long matrices"]
    adding_ranges: nothing, add, Promise::AllOrNothing;
    #[ignore = "one of the long matrices"]
    removing_a_range_over_two_shards: nothing, remove, Promise::AllOrNothing;
    #[ignore = "one of the long matrices"]
    assigning_from_one_shard: nothing, assign_one, Promise::AllOrNothing;
    #[ignore = "one of the long matrices"]
    splitting: nothing, split, Promise::AllOrNothing;
    #[ignore = "one of the long matrices"]
    merging: split, merge, Promise::AllOrNothing;
    #[ignore = "one of the long matrices"]
    making_online_again: read_only, online, Promise::AllOrNothing;
    #[ignore = "one of the long matrices"]
    locking: nothing, lock, Promise::AllOrNothing;
    #[ignore = "one of the long matrices"]
    dropping_a_map: nothing, drop_map, Promise::AllOrNothing;
    #[ignore = "one of the long matrices"]
    destroying_a_shard: nothing, destroy_shard, Promise::Repeatable;
}
