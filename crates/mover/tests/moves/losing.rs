//! A server that comes back without what was not on its disk yet: what was copied last is copied again (D3, D4).

use std::sync::atomic::Ordering;
use std::time::Duration;

use polyshard_engine::Statement;

use crate::cluster::{Cluster, PATIENCE, dataset, keys, request, shard};
use crate::gates::held_at;
use crate::place::Place;

/// Rows of several chunks.
const ROWS: i64 = 6_000;
/// The row that the copy is held at, and the one up to which the server still has what was copied.
const HELD: i64 = 5_000;
const KEPT: i64 = 99;

async fn wait_for(place: &Place, what: &str, sql: &str) {
    let there = async {
        while place.pg().execute(&place.database("s2"), sql) != "t" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, there).await.unwrap_or_else(|_| panic!("{what} does not come"));
}

async fn run(cluster: &Cluster, on: &str, statements: &[String]) {
    let opened = cluster.router.administer(&shard(on)).await.unwrap();
    let mut tx = opened.control_transaction().await.unwrap();
    tx.run_all(statements.iter().map(|sql| Statement::new(sql.as_str())).collect()).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_has_lost_of_a_copy_is_copied_again() {
    let place = Place::server();
    let (cluster, [copies]) = held_at(&place, ["copy.before"]).await;
    for on in ["s1", "s2"] {
        let opened = cluster.router.administer(&shard(on)).await.unwrap();
        opened.ensure_tables().await.unwrap();
        opened.bind(&dataset(opened.dialect(), "account")).await.unwrap();
    }
    let fill =
        format!("INSERT INTO account SELECT 1, id, 'note ' || id FROM generate_series(0, {}) id", ROWS - 1);
    run(&cluster, "s1", &[fill]).await;
    let record = cluster.start(request("customers", keys(0, 50), "s2")).await.unwrap();
    wait_for(&place, "the mark", "SELECT count(*) > 0 FROM polyshard.carried WHERE dataset = 'account'")
        .await;

    // The copy waits for somebody who is about to write one of its rows.
    let opened = cluster.router.administer(&shard("s2")).await.unwrap();
    let mut blocker = opened.control_transaction().await.unwrap();
    let insert = format!("INSERT INTO account VALUES (1, {HELD}, 'in the way')");
    blocker.run(Statement::new(insert)).await.unwrap();
    copies.store(false, Ordering::SeqCst);
    let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() \
                 AND wait_event_type = 'Lock' AND query LIKE 'INSERT INTO account%'";
    wait_for(&place, "the copy", waits).await;
    let lose = [
        format!("DELETE FROM account WHERE id > {KEPT} AND id <> {HELD}"),
        format!("UPDATE polyshard.carried SET position = '[\"i1\",\"i{KEPT}\"]' WHERE dataset = 'account'"),
    ];
    run(&cluster, "s2", &lose).await;
    blocker.rollback().await.unwrap();
    cluster.end_of(record.op.id).await.unwrap();
    let there = cluster.rows("s2", |_| "SELECT count(*), sum(id)::bigint FROM account".to_owned()).await;
    assert_eq!(there[0].int(0).unwrap(), ROWS);
    assert_eq!(there[0].int(1).unwrap(), ROWS * (ROWS - 1) / 2);
    cluster.assert_healthy().await;
    cluster.close().await;
}
