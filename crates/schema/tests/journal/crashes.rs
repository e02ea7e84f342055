//! A process killed between any two steps of a change: afterwards it is on all shards or on none, and nothing is stuck.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use polyshard_catalog::{Decision, Failpoint};
use polyshard_schema::{Change, EntryKind, JournalError, Recorded};

use crate::cluster::{Cluster, shard, sharded};
use crate::place::Place;

/// Stops at one place when it is come by for the given time, and remembers all that it was asked about.
fn stop_at(place: &str, time: usize) -> (Failpoint, Arc<Mutex<BTreeSet<String>>>) {
    let passed: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let (wanted, seen) = (place.to_owned(), passed.clone());
    let times = AtomicUsize::new(0);
    let failpoint = move |at: &str| {
        seen.lock().unwrap().insert(at.to_owned());
        at == wanted && times.fetch_add(1, Ordering::SeqCst) + 1 == time
    };
    (Arc::new(failpoint), passed)
}

const SHARDS: [&str; 3] = ["s1", "s2", "s3"];

/// C7: stopped at each step, the change is either everywhere or nowhere for the next process.
async fn a_change_stopped_anywhere_is_on_all_shards_or_on_none(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&["CREATE TABLE t (a int PRIMARY KEY)"]).await.unwrap();
    cluster.close().await;
    // A run to the end tells all the places there are.
    let (failpoint, passed) = stop_at("nowhere", 1);
    let whole = Cluster::open_with(&place, 1, Some(failpoint)).await;
    whole.apply(&["INSERT INTO t VALUES (1)"]).await.unwrap();
    whole.close().await;
    let places = passed.lock().unwrap().clone();
    assert!(places.len() >= 9, "{places:?}");
    let mut rows = 1;
    for at in places {
        let (failpoint, _) = stop_at(&at, 1);
        let process = Cluster::open_with(&place, 1, Some(failpoint)).await;
        let insert = format!("INSERT INTO t VALUES ({})", rows + 1);
        let stopped = process.apply(&[&insert]).await.unwrap_err();
        assert!(matches!(stopped, JournalError::Failpoint(_)), "{at}: {stopped}");
        process.close().await;

        let next = Cluster::open(&place).await;
        let decided = at == "decide.after" || at.starts_with("commit");
        rows += i64::from(decided);
        for name in SHARDS {
            next.journal.ready(&shard(name)).await.unwrap();
        }
        assert_eq!(next.numbers("SELECT count(*) FROM t").await, [rows, rows, rows], "{at}");
        let positions = next.positions(&place).await;
        assert_eq!(positions, [rows + 1, rows + 1, rows + 1], "{at}");
        next.close().await;
    }
}

/// Likewise for a declaration that spreads rows: no row is lost, none is doubled, and the map can be changed again.
async fn a_declaration_stopped_anywhere_loses_no_row(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.close().await;
    // The first time all are told that the table is changing, the second time its rows are spread.
    let places = [
        (1, "decide.after"),
        (1, "commit:s2.before"),
        (1, "changing.after"),
        (2, "run:s2.before"),
        (2, "decide.before"),
        (2, "decide.after"),
        (2, "commit:s1.before"),
        (2, "commit:s2.before"),
        (2, "commit.after"),
    ];
    for (number, (time, at)) in places.into_iter().enumerate() {
        let name = format!("t{number}");
        let setup = Cluster::open(&place).await;
        let create = format!(
            "CREATE TABLE {name} (tenant bigint NOT NULL, id int NOT NULL, PRIMARY KEY (tenant, id))"
        );
        let rows: Vec<String> = (0..40).map(|tenant| format!("({tenant}, 1)")).collect();
        let insert = format!("INSERT INTO {name} VALUES {}", rows.join(", "));
        setup.apply(&[&create, &insert]).await.unwrap();
        setup.close().await;

        let (failpoint, _) = stop_at(at, time);
        let process = Cluster::open_with(&place, 1, Some(failpoint)).await;
        let stopped = process.journal.declare(sharded(&name, "tenants", "tenant")).await.unwrap_err();
        assert!(matches!(stopped, JournalError::Failpoint(_)), "{at}: {stopped}");
        process.close().await;

        let next = Cluster::open(&place).await;
        let keeper = next.journal.keep_up();
        // Nobody may go by the schema while a table is changing; one that was left so is freed.
        next.journal.schema().await.unwrap();
        next.journal.finish().await.unwrap();
        for shard_name in SHARDS {
            next.journal.ready(&shard(shard_name)).await.unwrap();
        }
        let counts = next.numbers(&format!("SELECT count(*) FROM {name}")).await;
        let decided = time == 2 && (at == "decide.after" || at.starts_with("commit"));
        if decided {
            assert_eq!(counts.iter().sum::<i64>(), 40, "{at}: {counts:?}");
            assert!(counts.iter().all(|count| *count < 40), "{at}: {counts:?}");
        } else {
            assert_eq!(counts, [40, 40, 40], "{at}");
        }
        assert_eq!(next.catalog.journal_depends().await.unwrap(), [], "{at}");
        keeper.stop().await;
        next.close().await;
    }
}

/// If not all can be told that a table is changing, it is not changed, and nobody waits for it.
async fn tables_are_open_again_when_not_all_can_be_told(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster
        .apply(&[
            "CREATE TABLE t (tenant bigint NOT NULL PRIMARY KEY)",
            "INSERT INTO t SELECT * FROM (VALUES (1), (2), (3)) AS v (tenant)",
        ])
        .await
        .unwrap();
    cluster.close().await;
    let (failpoint, _) = stop_at("commit.tell.before", 1);
    let process = Cluster::open_with(&place, 1, Some(failpoint)).await;
    process.journal.declare(sharded("t", "tenants", "tenant")).await.unwrap_err();
    let began = std::time::Instant::now();
    process.journal.schema().await.unwrap();
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "statements waited");
    assert_eq!(process.numbers("SELECT count(*) FROM t").await, [3, 3, 3]);
    process.journal.declare(sharded("t", "tenants", "tenant")).await.unwrap();
    assert_eq!(process.numbers("SELECT count(*) FROM t").await.iter().sum::<i64>(), 3);
    process.close().await;
}

/// A decision whose answer was lost: it is found out whether it was made, and if not, it never will be.
async fn an_unknown_decision_is_settled_for_good(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    let decision =
        Decision { body: r#"{"format":1,"kind":"schema","statements":[]}"#.into(), ..Decision::default() };
    let made = cluster.catalog.take_turn().await.unwrap().unwrap();
    assert!(cluster.catalog.decide(&made, &decision).await.unwrap());
    assert!(cluster.catalog.settle_turn(&made).await.unwrap());
    let lost = cluster.catalog.take_turn().await.unwrap().unwrap();
    assert!(!cluster.catalog.settle_turn(&lost).await.unwrap());
    // The commit that was on its way all the time arrives now.
    assert!(!cluster.catalog.decide(&lost, &decision).await.unwrap());
    assert!(!cluster.catalog.renew_turn(&lost).await.unwrap());
    assert_eq!(cluster.catalog.journal_position().await.unwrap(), 1);
    assert_eq!(cluster.apply(&["CREATE TABLE t (a int)"]).await.unwrap(), 2);
    cluster.close().await;
}

/// A process that sleeps through its turn finds that another has taken it, and has changed nothing.
async fn a_process_that_lost_its_turn_changes_nothing(place: Arc<Place>) {
    let cluster = Cluster::with_shards(&place).await;
    cluster.apply(&["CREATE TABLE t (a int PRIMARY KEY)"]).await.unwrap();
    let turn = cluster.journal.turn().await.unwrap();
    assert!(cluster.catalog.take_turn().await.unwrap().is_none());
    // The lease is over, as after a long sleep.
    place.pg().execute("catalog", "UPDATE polyshard.journal_state SET lease_until = 0");
    let other = Cluster::open_with(&place, 2, None).await;
    assert_eq!(other.apply(&["INSERT INTO t VALUES (2)"]).await.unwrap(), 2);
    let statements = vec![Recorded::new("INSERT INTO t VALUES (1)")];
    let change = Change { kind: EntryKind::Rows, statements, settings: BTreeMap::new() };
    let error = turn.decide(change).await.unwrap_err();
    assert!(matches!(error, JournalError::TurnLost), "{error}");
    assert_eq!(other.numbers("SELECT sum(a)::bigint FROM t").await, [2, 2, 2]);
    other.close().await;
    cluster.close().await;
}

on_both_engines!(
    an_unknown_decision_is_settled_for_good,
    tables_are_open_again_when_not_all_can_be_told,
    a_change_stopped_anywhere_is_on_all_shards_or_on_none,
    a_declaration_stopped_anywhere_loses_no_row,
);

mod processes {
    use super::a_process_that_lost_its_turn_changes_nothing;

    on_postgres!(a_process_that_lost_its_turn_changes_nothing);
}
