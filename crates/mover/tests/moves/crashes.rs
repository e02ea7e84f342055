//! A mover that is stopped between any two of its steps, under writers: another process finishes the move or takes it
//! back, and every acknowledged row is found once, on its owner (D4, E4).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyshard_catalog::{Failpoint, MoveRequest};
use polyshard_shard::OpId;

use crate::cluster::{Cluster, PATIENCE, Setup, buckets, request};
use crate::place::Place;
use crate::world::World;

/// What is done while the mover is stopped.
#[derive(Clone, Copy)]
enum Doing {
    Move,
    /// A move that keeps its old rows for a moment, so that it has a capture on the target, too.
    Kept,
    /// A move that is cancelled halfway.
    Cancelled,
    /// A move that is undone.
    Undone,
}

/// Where it is stopped: everywhere, or at so many places, evenly spread.
enum Places {
    All,
    Spread(usize),
}

impl Places {
    fn chosen(&self, count: usize) -> Vec<usize> {
        match self {
            Places::All => (0..count).collect(),
            Places::Spread(some) => (1..=*some).map(|part| part * count / (some + 1)).collect(),
        }
    }
}

async fn survives(base: Arc<Place>, doing: Doing, places: Places) {
    let cluster = Cluster::with_maps(&base, Setup::default()).await;
    let filled = Arc::new(World::default());
    filled.fill(&cluster, 24, 3).await;
    cluster.close().await;
    let passed = dry_run(&base.copy(), doing).await;
    assert!(passed.len() > 20, "the places were not found: {passed:?}");
    for stop in places.chosen(passed.len()) {
        let here = format!("stopped at place {stop} of {}, such as {}", passed.len(), passed[stop]);
        println!("{here}");
        stop_and_heal(&base.copy(), &filled, doing, stop).await;
    }
}

/// Runs it to its end; answers the places that it passed.
async fn dry_run(place: &Arc<Place>, doing: Doing) -> Vec<String> {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = seen.clone();
    let failpoint: Failpoint = Arc::new(move |place| {
        let mut seen = record.lock().unwrap();
        // Waiting passes the same place again and again.
        if seen.last().is_none_or(|last| last != place) {
            seen.push(place.to_owned());
        }
        false
    });
    let cluster = Cluster::open(place, Setup { failpoint: Some(failpoint), ..Setup::default() }).await;
    begin(&cluster, doing, &AtomicBool::new(false)).await.expect("it is stopped nowhere");
    cluster.settle().await;
    cluster.assert_healthy().await;
    cluster.close().await;
    seen.lock().unwrap().clone()
}

async fn begin(cluster: &Cluster, doing: Doing, stopped: &AtomicBool) -> Result<(), String> {
    let text = |error: polyshard_catalog::CatalogError| error.to_string();
    let keep_ms = match doing {
        Doing::Move | Doing::Cancelled => 0,
        Doing::Kept => 150,
        Doing::Undone => 60_000,
    };
    let request = MoveRequest { keep_ms, ..request("tenants", buckets(0, 3), "s2") };
    let record = cluster.start(request).await.map_err(text)?;
    match doing {
        Doing::Move | Doing::Kept => {}
        Doing::Cancelled => {
            match cluster.driver.wish_for(record.op.id, polyshard_catalog::Wish::Cancel).await {
                Ok(()) => {}
                // It was quicker.
                Err(error) => println!("too late to cancel: {error}"),
            }
        }
        Doing::Undone => return undo_when_possible(cluster, record.op.id, stopped).await,
    }
    Ok(())
}

/// Undoes a move as soon as it has switched; nothing if it is stopped before.
async fn undo_when_possible(cluster: &Cluster, id: OpId, stopped: &AtomicBool) -> Result<(), String> {
    let until = tokio::time::Instant::now() + PATIENCE;
    loop {
        // Looked at before it is tried: one that was stopped and has not switched then never does.
        let is_stopped = stopped.load(Ordering::SeqCst);
        match cluster.driver.undo_move(id).await {
            Ok(_) => return Ok(()),
            Err(error) if !error.to_string().contains("has not switched") => return Err(error.to_string()),
            Err(_) if is_stopped => return Err("it is stopped before".to_owned()),
            Err(error) if tokio::time::Instant::now() > until => {
                panic!("it neither goes on nor stops: {error}")
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn stop_and_heal(place: &Arc<Place>, filled: &Arc<World>, doing: Doing, stop: usize) {
    let world = Arc::new(filled.known());
    let (passed, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(String::new())));
    let stopped = Arc::new(AtomicBool::new(false));
    let (counter, flag, before) = (passed.clone(), stopped.clone(), last.clone());
    let failpoint: Failpoint = Arc::new(move |place| {
        let mut last = before.lock().unwrap();
        if *last != place {
            *last = place.to_owned();
            counter.fetch_add(1, Ordering::SeqCst);
        }
        let stops = counter.load(Ordering::SeqCst) > stop;
        flag.fetch_or(stops, Ordering::SeqCst);
        stops
    });
    // The process that is stopped: its leases end at once, and it finishes nothing later. Its router lives on.
    let dying =
        Setup { failpoint: Some(failpoint), lease: Duration::ZERO, resolving: false, ..Setup::default() };
    let cluster = Arc::new(Cluster::open(place, dying).await);
    let writers = world.start(std::slice::from_ref(&cluster), 3, &["thing", "other"]);
    let began = begin(&cluster, doing, &stopped).await;
    let come = async {
        // Under writers it may take a shorter way than it did without.
        while !stopped.load(Ordering::SeqCst) && !cluster.catalog.running().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, come)
        .await
        .unwrap_or_else(|_| panic!("{began:?}: it does not come to its place"));
    world.until_written(10).await;
    writers.stop().await;
    Arc::into_inner(cluster).unwrap().close().await;

    let cluster = Arc::new(Cluster::open(place, Setup { router: 2, ..Setup::default() }).await);
    let writers = world.start(std::slice::from_ref(&cluster), 3, &["thing", "other"]);
    if matches!(doing, Doing::Undone) {
        // One that keeps its old rows is told that it need not any longer.
        clean_kept(&cluster).await;
    }
    cluster.settle().await;
    world.until_written(10).await;
    writers.stop().await;
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

/// Tells moves that keep their old rows not to.
async fn clean_kept(cluster: &Cluster) {
    let quiet = async {
        loop {
            let running = cluster.catalog.running().await.unwrap();
            if running.is_empty() {
                return;
            }
            for record in running.iter().filter(|record| record.step == polyshard_catalog::Step::Keeping) {
                // It may end meanwhile.
                let _ = cluster.driver.wish_for(record.op.id, polyshard_catalog::Wish::Clean).await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, quiet).await.expect("what is left ends");
}

/// Whether there is time for every place.
fn is_long() -> bool {
    std::env::var_os("POLYSHARD_LONG").is_some()
}

/// Tests that stop at some places, and at every one where there is time.
macro_rules! at_every_step {
    ($($name:ident: $doing:expr, $some:expr;)*) => {
        mod sqlite {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                survives(Place::files(), $doing, if is_long() { Places::All } else { Places::Spread($some) }).await;
            })*
        }
        mod postgres {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                // Copying databases takes long.
                survives(Place::server(), $doing, if is_long() { Places::All } else { Places::Spread(2) }).await;
            })*
        }
    };
}

at_every_step! {
    a_move_stopped_at_any_step_is_finished_or_taken_back: Doing::Move, 24;
    a_move_that_keeps_its_rows_stopped_at_any_step_ends_well: Doing::Kept, 12;
    a_cancelled_move_stopped_at_any_step_leaves_everything_as_it_was: Doing::Cancelled, 12;
    an_undone_move_stopped_at_any_step_loses_nothing_written_since: Doing::Undone, 16;
}
