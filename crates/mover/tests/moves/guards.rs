//! What keeps a move safe from those it cannot ask: writers that bypass the routers, long transactions, sleeping movers
//! (D3, E4).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use polyshard_catalog::saga::{Action, Outcome, Saga};
use polyshard_catalog::{CarryTask, Failpoint, FenceLimits, Step, Wish};
use polyshard_engine::{Access as EngineAccess, Database, Options, Statement, Transaction};
use polyshard_map::Key;
use polyshard_router::Access;

use crate::cluster::{Cluster, PATIENCE, Setup, buckets, dataset, map, request, shard, tenants};
use crate::gates::filled;
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
        // A test that fails drops it, and so wakes the sleeper.
        let (gate, flag) = (Arc::downgrade(&held), asleep.clone());
        let is_held = move || gate.upgrade().is_some_and(|held| held.load(Ordering::SeqCst));
        let failpoint: Failpoint = Arc::new(move |here| {
            if here == at && is_held() {
                flag.store(true, Ordering::SeqCst);
                tokio::task::block_in_place(|| {
                    while is_held() {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                });
            }
            false
        });
        // Long enough that a busy machine does not let it lapse before the place is reached.
        let lease = Duration::from_secs(2);
        // And that its routers have drained the range in time.
        let limits = FenceLimits { hold: Duration::from_secs(3), ..FenceLimits::default() };
        let setup = Setup { failpoint: Some(failpoint), lease, resolving: false, limits, ..Setup::default() };
        let sleeper = Cluster::with_maps(&place, setup).await;
        let world = Arc::new(World::default());
        world.fill(&sleeper, 20, 2).await;
        let second = Setup { router: 2, lease, limits, ..Setup::default() };
        let awake = Arc::new(Cluster::open(&place, Setup { resolving: false, ..second.clone() }).await);
        world.rest_ms.store(4, Ordering::SeqCst);
        let writers = world.start(std::slice::from_ref(&awake), 2, &["thing"]);
        let record = sleeper.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
        let slept = async {
            while !asleep.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, slept).await.is_err() {
            panic!("it does not come to {at}: {:#?}", sleeper.catalog.operation(record.op.id).await);
        }
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

/// Sessions that no router knows, and that wait for locks longer than a move takes.
async fn patient(place: &Place, on: &str) -> Database {
    let options = Options {
        lock_timeout: PATIENCE,
        statement_timeout: PATIENCE,
        postgres_pool_max: 4,
        ..Options::default()
    };
    Database::open(place.target(on), options, None).await.unwrap()
}

/// Waits until somebody waits for a lock.
async fn until_waiting(db: &Database, condition: &str) {
    let waiting = async {
        let sql = format!("SELECT 1 FROM pg_locks WHERE NOT granted AND {condition}");
        while db.read(Statement::new(sql.clone())).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("somebody waits");
}

/// A statement that began before the departure knows the function that notes changes as it was then.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_statement_that_runs_across_the_departure_does_not_write_what_is_lost() {
    for isolation in ["READ COMMITTED", "REPEATABLE READ"] {
        let place = Place::server();
        let (cluster, world, [fencing, cleaning]) =
            filled(&place, 40, ["record_fencing.before", "clean.before"]).await;
        let record = cluster.start(request("tenants", buckets(0, 2), "s2")).await.unwrap();
        cluster.until_step(record.op.id, Step::CatchingUp).await;
        let db = patient(&place, "s1").await;
        let mut blocker = db.begin(EngineAccess::Write).await.unwrap();
        blocker.run(Statement::new("SELECT pg_advisory_xact_lock(4242)")).await.unwrap();
        let mut tx = db.begin(EngineAccess::Write).await.unwrap();
        tx.run(Statement::new(format!("SET TRANSACTION ISOLATION LEVEL {isolation}"))).await.unwrap();
        // A row that does not move: the session knows the function from here on, and holds nothing of the move's.
        let known = "UPDATE polyshard.thing SET n = n WHERE placement >= '\\x00000002'";
        assert!(tx.run(Statement::new(known)).await.unwrap().affected() > 0, "there are such rows");
        let is_moving = |tenant: &i64| buckets(0, 2).contains(placement(*tenant).as_slice());
        let tenant = (0..40).find(is_moving).unwrap();
        let writing = tokio::spawn(async move {
            // One row only: with the next one it would learn of the departure.
            let across = "UPDATE polyshard.thing SET n = n + 100 WHERE tenant = $1 AND id = 1 \
                          AND pg_advisory_lock(4242) IS NOT NULL";
            let written = tx.run(Statement::new(across).bind(tenant)).await.map(|rows| rows.affected());
            match written {
                Ok(count) => tx.commit().await.map(|()| count),
                Err(error) => Err(error),
            }
        });
        until_waiting(&db, "locktype = 'advisory' AND objid = 4242").await;
        fencing.store(false, Ordering::SeqCst);
        cluster.until_step(record.op.id, Step::Cleaning).await;
        blocker.rollback().await.unwrap();
        let written = writing.await.unwrap();
        cleaning.store(false, Ordering::SeqCst);
        let refused = written.expect_err(isolation);
        assert!(refused.is_retryable(), "{isolation}: {refused}");
        cluster.end_of(record.op.id).await.unwrap();
        db.close().await;
        cluster.assert_healthy().await;
        world.assert_found(&cluster).await;
        cluster.close().await;
    }
}

/// A writer whom nobody ends keeps the ranges from leaving: it can be cancelled, and in the end it gives up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_cannot_depart_can_be_cancelled_and_gives_up_by_itself() {
    let place = Place::server();
    let (cluster, world, [fencing]) = filled(&place, 20, ["record_fencing.before"]).await;
    let before = cluster.owners("tenants").await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    let db = patient(&place, "s1").await;
    let mut forgotten = db.begin(EngineAccess::Write).await.unwrap();
    forgotten.run(insert(777)).await.unwrap();
    fencing.store(false, Ordering::SeqCst);
    cluster.until_step(record.op.id, Step::Departing).await;
    cluster.driver.wish_for(record.op.id, Wish::Cancel).await.unwrap();
    cluster.until_step(record.op.id, Step::RollingBack).await;
    forgotten.rollback().await.unwrap();
    let why = cluster.end_of(record.op.id).await.unwrap_err();
    assert!(why.contains("cancelled"), "{why}");
    assert_eq!(cluster.owners("tenants").await, before);
    db.close().await;
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;

    // The same without an operator.
    let mut saga = Saga::new(&polyshard_catalog::OpRecord { step: Step::Departing, ..record });
    let mut refusals = 0;
    while saga.step() == Step::Departing {
        let outcome = match saga.next() {
            Action::Raise(_) => Outcome::Raised(1),
            Action::Depart(..) => {
                refusals += 1;
                assert!(refusals < 1000, "it goes on for ever");
                Outcome::CannotDrain("something is left".into())
            }
            Action::Activate(_) | Action::ActivateFrom { .. } => panic!("nothing has left"),
            _ => Outcome::Done,
        };
        saga.report(outcome);
    }
    assert_eq!(saga.step(), Step::RollingBack);
    assert!(refusals > 100, "it is worth waiting for, not only {refusals} times");
}

/// B2: writers that change rows faster than these are carried are held for a part of the time, whatever the step, until
/// little is left; nothing is given up for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_falls_behind_holds_writers_for_a_part_of_the_time() {
    let place = Place::server();
    let (cluster, world, [fencing]) = filled(&place, 20, ["record_fencing.before"]).await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    let mut saga = Saga::new(&polyshard_catalog::OpRecord { step: Step::CatchingUp, ..record.clone() });
    let behind = || Outcome::Behind("writers are faster".into());
    let (mut lag, mut is_held, mut holds) = (3_000_000_u64, false, 0);
    while saga.step() != Step::Departing {
        let outcome = match saga.next() {
            Action::Raise(_) => {
                (is_held, holds) = (true, holds + 1);
                Outcome::Raised(holds)
            }
            Action::Release(_) => {
                is_held = false;
                Outcome::Done
            }
            Action::Carry(CarryTask::CatchUp) => {
                assert!(!is_held, "they go on meanwhile");
                lag += 1_000;
                if lag <= 1_000 { Outcome::Done } else { behind() }
            }
            Action::Carry(CarryTask::Settle) => {
                assert!(is_held, "nobody adds to it");
                lag = lag.saturating_sub(8_000);
                if lag == 0 { Outcome::Done } else { behind() }
            }
            Action::Wait(_) => panic!("each attempt carries something"),
            Action::Finished(ending) => panic!("{ending:?}"),
            _ => Outcome::Done,
        };
        saga.report(outcome);
    }
    assert!(is_held && holds > 400, "{holds}");
    // Whoever takes over lets them go on first.
    let taken_over = Saga::new(&polyshard_catalog::OpRecord { step: Step::CatchingUp, ..record.clone() });
    assert!(matches!(taken_over.next(), Action::Release(_)), "{:?}", taken_over.next());
    fencing.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;
}

/// Readers of all shards leave out what the target has, also while a move that was rolled back clears it away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cancelled_move_has_copied_is_announced_until_it_is_cleared() {
    let place = Place::server();
    let (cluster, world, [verifying, clearing]) = filled(&place, 20, ["verify.before", "clear.before"]).await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    cluster.driver.wish_for(record.op.id, Wish::Cancel).await.unwrap();
    verifying.store(false, Ordering::SeqCst);
    // The arriving ranges are taken away before the rows are.
    let arriving =
        || cluster.rows("s2", |_| "SELECT 1 FROM polyshard.local_range WHERE incoming IS NOT NULL".into());
    let undone = async {
        while !arriving().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, undone).await.unwrap();
    let copied = "SELECT 1 FROM polyshard.thing WHERE placement < '\\x00000004'";
    assert!(!cluster.rows("s2", |_| copied.into()).await.is_empty(), "there is something to leave out");
    let announced = cluster.rows("s2", |_| "SELECT ranges FROM polyshard.capture".into()).await;
    let ranges: Vec<polyshard_map::KeyRange> = serde_json::from_str(announced[0].text(0).unwrap()).unwrap();
    assert_eq!(ranges, [buckets(0, 4)]);
    clearing.store(false, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap_err();
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;
}

/// Rows of a dataset that came and went while a batch was on its way: the target has none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rows_of_a_new_dataset_that_are_deleted_again_do_not_come_back() {
    let place = Place::server();
    let (cluster, world, [catching_up]) = filled(&place, 20, ["catch_up.before"]).await;
    let record = cluster.start(request("tenants", buckets(0, 4), "s2")).await.unwrap();
    cluster.until_step(record.op.id, Step::CatchingUp).await;
    let db = patient(&place, "s1").await;
    let lock = || Statement::new("LOCK TABLE polyshard.capture_log IN ACCESS EXCLUSIVE MODE");
    let mut first = db.begin(EngineAccess::Write).await.unwrap();
    first.run(lock()).await.unwrap();
    catching_up.store(false, Ordering::SeqCst);
    let on_log = "relation = 'polyshard.capture_log'::regclass AND mode = ";
    // It has looked which datasets there are, and is about to read the notes.
    until_waiting(&db, &format!("{on_log} 'AccessShareLock'")).await;
    let opened = cluster.router.administer(&shard("s1")).await.unwrap();
    opened.bind(&dataset(opened.dialect(), "other")).await.unwrap();
    let come = "INSERT INTO polyshard.thing (dataset, tenant, id, placement, n, body) \
                SELECT 2, $1, id, $2, 0, 'x' FROM generate_series(1, 100) AS id";
    first.run(Statement::new(come).bind(moving()).bind(placement(moving()))).await.unwrap();
    let second = db.clone();
    let going = tokio::spawn(async move {
        let mut second = second.begin(EngineAccess::Write).await.unwrap();
        second.run(lock()).await.unwrap();
        second.run(Statement::new("DELETE FROM polyshard.thing WHERE dataset = 2")).await.unwrap();
        second.commit().await.unwrap();
    });
    until_waiting(&db, &format!("{on_log} 'AccessExclusiveLock'")).await;
    first.commit().await.unwrap();
    going.await.unwrap();
    cluster.end_of(record.op.id).await.unwrap();
    let left = cluster.rows("s2", |_| "SELECT 1 FROM polyshard.thing WHERE dataset = 2".into()).await;
    assert_eq!(left.len(), 0, "deleted rows are back");
    db.close().await;
    cluster.assert_healthy().await;
    world.assert_found(&cluster).await;
    cluster.close().await;
}
