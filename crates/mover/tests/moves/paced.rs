//! Moves that step back come to their end, whatever writers do (D1).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use polyshard_catalog::{Step, Wish};
use polyshard_engine::{Batch, Statement};
use polyshard_map::Key;
use polyshard_router::Access;

use crate::cluster::{Cluster, Setup, dataset, keys, map, request};
use crate::place::Place;

on_both_engines!(
    a_move_that_steps_back_is_not_outrun_by_those_who_add_rows,
    an_operator_has_a_move_that_steps_back_work_more,
);

/// The customer whose rows move.
const CUSTOMER: i64 = 50;
/// Rows that are there, and that come whenever the move looks whether it should step back: more than it copies until
/// it looks again, if it does.
const ROWS: i64 = 100;
const ROWS_MORE: i64 = 500;
/// Rows that a move which hardly works is not done with at once.
const ROWS_MANY: i64 = 10_000;

async fn add(cluster: &Cluster, first: i64, count: i64) {
    let sql = "WITH RECURSIVE g(n) AS (SELECT CAST($1 AS bigint) UNION ALL SELECT n + 1 FROM g WHERE n < $2) \
               INSERT INTO account (customer, id, note) SELECT $3, n, 'x' FROM g";
    let statement = Statement::new(sql).bind(first).bind(first + count - 1).bind(CUSTOMER);
    let key = [Key::BigInt(CUSTOMER)];
    let ticket = cluster.router.enter(&map("customers"), &key, Access::Write).await.unwrap();
    cluster.router.bind(&ticket, &dataset(ticket.dialect(), "account")).await.unwrap();
    ticket.write(Batch::from(statement)).await.unwrap();
}

async fn a_move_that_steps_back_is_not_outrun_by_those_who_add_rows(place: Arc<Place>) {
    let (looks, is_quiet) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, quiet) = (looks.clone(), is_quiet.clone());
    let traffic: polyshard_mover::Traffic = Arc::new(move || {
        let more = u64::from(!quiet.load(Ordering::SeqCst));
        Some(counted.fetch_add(more, Ordering::SeqCst))
    });
    let cluster = Cluster::with_maps(&place, Setup { paced: Some((traffic, 3)), ..Setup::default() }).await;
    add(&cluster, 1, ROWS).await;
    let record = cluster.start(request("customers", keys(0, 100), "s2")).await.unwrap();
    let adding = async {
        let (mut seen, mut last) = (0, ROWS);
        loop {
            let now = cluster.catalog.operation(record.op.id).await.unwrap();
            match now.step {
                Step::Staging | Step::Preparing | Step::Copying => {}
                _ => return last,
            }
            let before = std::mem::replace(&mut seen, looks.load(Ordering::SeqCst));
            if before == seen {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            add(&cluster, last + 1, ROWS_MORE).await;
            last += ROWS_MORE;
        }
    };
    let rows =
        tokio::time::timeout(crate::cluster::PATIENCE, adding).await.expect("it comes to the last row");
    // The rest as quickly as it can.
    is_quiet.store(true, Ordering::SeqCst);
    cluster.end_of(record.op.id).await.unwrap();
    let ticket =
        cluster.router.enter(&map("customers"), &[Key::BigInt(CUSTOMER)], Access::Read).await.unwrap();
    let found = ticket.read(Statement::new("SELECT count(*) FROM account")).await.unwrap();
    assert_eq!((ticket.shard().as_str(), found.one().unwrap().int(0).unwrap()), ("s2", rows));
    drop(ticket);
    cluster.assert_healthy().await;
    cluster.close().await;
}

async fn an_operator_has_a_move_that_steps_back_work_more(place: Arc<Place>) {
    // Requests without end.
    let served = AtomicU64::new(0);
    let traffic: polyshard_mover::Traffic = Arc::new(move || Some(served.fetch_add(1, Ordering::SeqCst)));
    let cluster = Cluster::with_maps(&place, Setup { paced: Some((traffic, 1)), ..Setup::default() }).await;
    add(&cluster, 1, ROWS_MANY).await;
    let id = cluster.start(request("customers", keys(0, 100), "s2")).await.unwrap().op.id;
    let told = async {
        loop {
            let status = cluster.catalog.move_status(id).await.unwrap();
            match status.and_then(|status| status.progress.works_percent) {
                Some(percent) => return percent,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let told = tokio::time::timeout(crate::cluster::PATIENCE, told).await.expect("it says why it is slow");
    assert_eq!(told, 1);
    cluster.driver.wish_for(id, Wish::Pace(100)).await.unwrap();
    cluster.end_of(id).await.unwrap();
    let status = cluster.catalog.move_status(id).await.unwrap().unwrap();
    assert_eq!((status.wish, status.progress.works_percent), (Wish::Pace(100), None), "it was heard");
    assert_eq!(status.progress.copied_rows, ROWS_MANY as u64);
    cluster.assert_healthy().await;
    cluster.close().await;
}
