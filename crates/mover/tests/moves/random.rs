//! Moves, cancels, undos and dying processes in random order, by seed, under writers of two processes: afterwards every
//! acknowledged row is found exactly once, on its owner (D4, E4).

use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{CatalogError, MoveRequest, Step, Wish};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::cluster::{BUCKETS, Cluster, Setup, buckets, keys, request};
use crate::place::Place;
use crate::world::World;

/// Things done for one seed.
const DEEDS: usize = 14;

async fn nothing_is_lost(place: Arc<Place>, seed: u64) {
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    // The one that writes lives; the one that moves dies now and then. An embedded shard has one process for both.
    let shared = place.is_shared();
    let first = Arc::new(Cluster::with_maps(&place, Setup { resolving: !shared, ..Setup::default() }).await);
    let world = Arc::new(World::default());
    world.fill(&first, 30, 3).await;
    let lease = Duration::from_secs(1);
    let mut generation = 2;
    let mover = |generation: u32| Setup { router: generation, lease, ..Setup::default() };
    let mut second =
        if shared { Arc::new(Cluster::open(&place, mover(generation)).await) } else { first.clone() };
    let writers = world.start(std::slice::from_ref(&first), 4, &["thing", "other"]);
    let entries = world.start(std::slice::from_ref(&first), 2, &["entry"]);
    for _ in 0..DEEDS {
        world.until_written(random.random_range(5..30)).await;
        let to = ["s1", "s2", "s3"][random.random_range(0..3)];
        let asked = match random.random_range(0..3) {
            0 => {
                let from = random.random_range(0..250);
                request("customers", keys(from, from + random.random_range(1..50)), to)
            }
            _ => {
                let from = random.random_range(0..BUCKETS);
                request("tenants", buckets(from, random.random_range(from + 1..=BUCKETS.min(from + 3))), to)
            }
        };
        let keep_ms = if random.random_range(0..3) == 0 { 300 } else { 0 };
        let started = second.start(MoveRequest { keep_ms, ..asked }).await;
        let record = match started {
            Ok(record) => record,
            // Nothing to do, on several shards, or under way already.
            Err(
                CatalogError::Change(_)
                | CatalogError::Invalid(_)
                | CatalogError::Unsettled(_)
                | CatalogError::Busy { .. },
            ) => {
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        };
        match random.random_range(0..5) {
            0 => {
                tokio::time::sleep(Duration::from_millis(random.random_range(0..60))).await;
                // It may be too late.
                let _ = second.driver.wish_for(record.op.id, Wish::Cancel).await;
            }
            1 if keep_ms > 0 => {
                while second.catalog.operation(record.op.id).await.unwrap().step == Step::Copying {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                for _ in 0..200 {
                    if second.driver.undo_move(record.op.id).await.is_ok() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            2 if shared => {
                tokio::time::sleep(Duration::from_millis(random.random_range(0..80))).await;
                // Whatever it was doing ends where it is.
                Arc::into_inner(second).unwrap().close().await;
                generation += 1;
                second = Arc::new(Cluster::open(&place, mover(generation)).await);
            }
            3 => {}
            _ => {
                // Rolled back or done: both are fine.
                let _ = second.end_of(record.op.id).await;
            }
        }
    }
    second.settle().await;
    world.until_written(20).await;
    writers.stop().await;
    entries.stop().await;
    second.assert_healthy().await;
    world.assert_found(&second).await;
    if shared {
        Arc::into_inner(second).unwrap().close().await;
    } else {
        drop(second);
    }
    Arc::into_inner(first).unwrap().close().await;
}

/// `POLYSHARD_SEED` replays one seed; `POLYSHARD_FIRST_SEED` begins the long run with another.
fn seeds(short: u64, long: u64) -> std::ops::Range<u64> {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = variable("POLYSHARD_SEED") {
        return seed..seed + 1;
    }
    if std::env::var_os("POLYSHARD_LONG").is_none() {
        return 0..short;
    }
    let first = variable("POLYSHARD_FIRST_SEED").unwrap_or(0);
    first..first + long
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_moves_on_sqlite_lose_nothing() {
    for seed in seeds(4, 60) {
        nothing_is_lost(Place::files(), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_moves_on_postgres_with_processes_that_die_lose_nothing() {
    for seed in seeds(2, 30) {
        nothing_is_lost(Place::server(), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_moves_between_engines_lose_nothing() {
    for seed in seeds(2, 30) {
        nothing_is_lost(Place::mixed(), seed).await;
    }
}
