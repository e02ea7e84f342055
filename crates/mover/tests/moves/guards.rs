//! What keeps a move safe from those it cannot ask: writers that bypass the routers, long transactions, sleeping movers
//! (D3, E4).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polyshard_catalog::{Failpoint, Step};
use polyshard_engine::{Access as EngineAccess, Database, Options, Statement, Transaction};
use polyshard_map::Key;
use polyshard_router::Access;

use crate::cluster::{Cluster, PATIENCE, Setup, buckets, map, request, tenants};
use crate::place::Place;
use crate::world::World;

/// A session that no router knows, as `psql` would have.
async fn direct(place: &Place, on: &str) -> Database {
    Database::open(place.target(on), Options::default(), None).await.unwrap()
}

/// A tenant of the buckets that move.
fn moving() -> i64 {
    (0..).find(|tenant| buckets(0, 4).contains(placement(*tenant).as_slice())).unwrap()
}

fn placement(tenant: i64) -> Vec<u8> {
    tenants().placement(&Key::BigInt(tenant)).unwrap().into_vec()
}

fn insert(id: i64) -> Statement {
    let tenant = moving();
    Statement::new(
        "INSERT INTO polyshard.thing (dataset, tenant, id, placement, n, body) VALUES (1, $1, $2, $3, 0, $4)",
    )
    .bind(tenant)
    .bind(id)
    .bind(placement(tenant))
    .bind(format!("body of {tenant} ä {id}"))
}

async fn count(cluster: &Cluster, on: &str, id: i64) -> usize {
    cluster.rows(on, |_| format!("SELECT 1 FROM polyshard.thing WHERE id = {id}")).await.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_departure_waits_for_a_writer_behind_the_routers_back() {
    let place = Place::server();
    let cluster = Cluster::with_maps(&place, Setup::default()).await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 20, 2).await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::Copying).await;
    let db = direct(&place, "s1").await;
    let mut open: Option<Transaction> = None;
    // As soon as the capture is there: a row in the range, not yet committed.
    let watched = async {
        while cluster
            .rows("s1", |_| "SELECT 1 FROM pg_trigger WHERE tgname LIKE 'polyshard%'".into())
            .await
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, watched).await.unwrap();
    let mut tx = db.begin(EngineAccess::Write).await.unwrap();
    match tx.run(insert(777)).await {
        Ok(_) => open = Some(tx),
        // The move was quicker: then it is refused, which is as good.
        Err(error) => assert!(error.is_retryable(), "{error}"),
    }
    if let Some(tx) = open {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let step = cluster.catalog.operation(record.op.id).await.unwrap().step;
        assert!(
            !matches!(step, Step::Activating | Step::Keeping | Step::Cleaning),
            "it has departed: {step:?}"
        );
        tx.commit().await.unwrap();
        cluster.end_of(record.op.id).await.unwrap();
        assert_eq!((count(&cluster, "s1", 777).await, count(&cluster, "s2", 777).await), (0, 1));
    }
    db.close().await;
    cluster.settle().await;
    cluster.assert_healthy().await;
    cluster.close().await;
}

/// An old snapshot does not help: the function that notes changes is another one for everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn once_the_range_has_left_even_an_older_snapshot_cannot_write_there() {
    let place = Place::server();
    let held = Arc::new(AtomicBool::new(true));
    let gate = held.clone();
    let failpoint: Failpoint = Arc::new(move |here| {
        if here == "clean.before" {
            tokio::task::block_in_place(|| {
                while gate.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
        }
        false
    });
    let cluster = Cluster::with_maps(&place, Setup { failpoint: Some(failpoint), ..Setup::default() }).await;
    let world = Arc::new(World::default());
    world.fill(&cluster, 20, 2).await;
    let db = direct(&place, "s1").await;
    let mut old = db.begin(EngineAccess::Write).await.unwrap();
    old.run(Statement::new("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")).await.unwrap();
    old.run(Statement::new("SELECT count(*) FROM polyshard.meta")).await.unwrap();
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::Cleaning).await;
    let refused = old.run(insert(888)).await.unwrap_err();
    assert!(refused.is_retryable() && refused.to_string().contains("moving"), "{refused}");
    drop(old);
    // Also a new one, and one that empties the table; what is not in the range goes on.
    let refused = db.write(insert(889).into()).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    let refused = db.write(Statement::new("TRUNCATE polyshard.thing").into()).await.unwrap_err();
    assert!(refused.to_string().contains("cannot be truncated"), "{refused}");
    db.write(Statement::new("UPDATE polyshard.thing SET n = n WHERE placement >= '\\x00000008'").into())
        .await
        .unwrap();
    held.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    db.close().await;
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;
}

/// A long transaction of a router delays the switch; others are let go meanwhile, and it ends well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_transaction_delays_the_switch_and_is_not_lost() {
    let place = Place::server();
    let cluster = Arc::new(Cluster::with_maps(&place, Setup::default()).await);
    let world = Arc::new(World::default());
    world.fill(&cluster, 20, 2).await;
    let ticket =
        cluster.router.enter(&map("tenants"), &[Key::BigInt(moving())], Access::Write).await.unwrap();
    let mut tx = ticket.begin().await.unwrap();
    tx.run(insert(555)).await.unwrap();
    // It was written before the capture: CREATE TRIGGER waits for it, a little at a time.
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    let writers = world.start(std::slice::from_ref(&cluster), 2, &["other"]);
    world.until_written(60).await;
    tx.commit().await.unwrap();
    drop(ticket);
    cluster.end_of(record.op.id).await.unwrap();
    writers.stop().await;
    assert_eq!((count(&cluster, "s1", 555).await, count(&cluster, "s2", 555).await), (0, 1));
    cluster.rows("s2", |_| "DELETE FROM polyshard.thing WHERE id = 555".to_owned()).await;
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    Arc::into_inner(cluster).unwrap().close().await;
}

/// A mover that sleeps, as under SIGSTOP, is replaced; when it wakes it does nothing any more (E4).
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_mover_that_sleeps_is_replaced_and_does_no_harm_when_it_wakes() {
    let mut places = vec!["copy.before", "settle.before", "depart:s1.before"];
    if std::env::var_os("POLYSHARD_LONG").is_some() {
        places.extend(["begin.after", "verify.before", "clean.before"]);
    }
    for at in places {
        let place = Place::server();
        let asleep = Arc::new(AtomicBool::new(false));
        let held = Arc::new(AtomicBool::new(true));
        let (gate, flag) = (held.clone(), asleep.clone());
        let failpoint: Failpoint = Arc::new(move |here| {
            if here == at && gate.load(Ordering::SeqCst) {
                flag.store(true, Ordering::SeqCst);
                tokio::task::block_in_place(|| {
                    while gate.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                });
            }
            false
        });
        let lease = Duration::from_millis(400);
        let setup = Setup { failpoint: Some(failpoint), lease, resolving: false, ..Setup::default() };
        let sleeper = Cluster::with_maps(&place, setup).await;
        let world = Arc::new(World::default());
        world.fill(&sleeper, 20, 2).await;
        let second = Setup { router: 2, lease, ..Setup::default() };
        let awake = Arc::new(Cluster::open(&place, Setup { resolving: false, ..second.clone() }).await);
        let writers = world.start(std::slice::from_ref(&awake), 2, &["thing"]);
        let record = sleeper.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
        let slept = async {
            while !asleep.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, slept).await.unwrap_or_else(|_| panic!("it does not come to {at}"));
        let healer = Cluster::open(&place, Setup { router: 3, ..second }).await;
        healer.end_of(record.op.id).await.unwrap_or_else(|why| panic!("{at}: {why}"));
        held.store(false, Ordering::SeqCst);
        world.until_written(30).await;
        writers.stop().await;
        healer.assert_healthy().await;
        world.assert_found(&healer).await;
        healer.close().await;
        Arc::into_inner(awake).unwrap().close().await;
        sleeper.close().await;
    }
}
