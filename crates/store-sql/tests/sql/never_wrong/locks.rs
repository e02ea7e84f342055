//! Rows of reference tables that a transaction locks stay locked until it ends.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::both;
use crate::support::{Cluster, refusal, rows};

const WORKERS: usize = 4;
const ROUNDS: i64 = 6;

/// Reads a counter for update and writes one more; false if it is to be tried again.
async fn count_one_more(client: &Client) -> bool {
    let counted = async {
        client.batch_execute("BEGIN").await?;
        let n: i64 = client.query_one("SELECT n FROM counters WHERE id = 1 FOR UPDATE", &[]).await?.get(0);
        client.execute("UPDATE counters SET n = $1 WHERE id = 1", &[&(n + 1)]).await?;
        client.batch_execute("COMMIT").await
    };
    done_or_again(client, counted.await).await
}

/// Takes a job that nobody has, and does it.
async fn take_a_job(client: &Client) -> Option<bool> {
    let taken = async {
        client.batch_execute("BEGIN").await?;
        let job = "SELECT id FROM jobs WHERE times = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
        let Some(job) = client.query_opt(job, &[]).await? else {
            return client.batch_execute("COMMIT").await;
        };
        client.execute("UPDATE jobs SET times = times + 1 WHERE id = $1", &[&job.get::<_, i64>(0)]).await?;
        client.batch_execute("COMMIT").await
    };
    let done = done_or_again(client, taken.await).await;
    let left = rows(client, "SELECT count(*) FROM jobs WHERE times = 0").await;
    (left != [["0"]]).then_some(done)
}

async fn done_or_again(client: &Client, done: Result<(), tokio_postgres::Error>) -> bool {
    let Err(error) = done else { return true };
    assert_eq!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE), "{error:?}");
    client.batch_execute("ROLLBACK").await.unwrap();
    false
}

async fn nothing_is_lost(cluster: &Arc<Cluster>) {
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("CREATE TABLE counters (id bigint PRIMARY KEY, n bigint)").await;
    run("SELECT polyshard.reference_table('counters')").await;
    run("INSERT INTO counters VALUES (1, 0)").await;
    run("CREATE TABLE jobs (id bigint PRIMARY KEY, times int NOT NULL)").await;
    run("SELECT polyshard.reference_table('jobs')").await;
    for id in 0..8 {
        run(&format!("INSERT INTO jobs VALUES ({id}, 0)")).await;
    }
    join_all((0..WORKERS).map(|_| {
        let cluster = cluster.clone();
        async move {
            let client = cluster.connect().await;
            for _ in 0..ROUNDS {
                while !count_one_more(&client).await {}
            }
            while take_a_job(&client).await.is_some() {}
        }
    }))
    .await;
    let counted = i64::try_from(WORKERS).unwrap() * ROUNDS;
    assert_eq!(run("SELECT n FROM counters").await, [[counted.to_string()]]);
    assert_eq!(run("SELECT DISTINCT times FROM jobs").await, [["1"]]);
    drop(client);
}

async fn locks_are_kept_or_refused(cluster: &Cluster) {
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("INSERT INTO notes (tenant, id, body) VALUES (5, 1, 'ch')").await;
    // Others could have the same lock on another shard.
    let join = "SELECT n.body FROM notes n JOIN countries c ON c.code = n.body WHERE n.tenant = 5 FOR UPDATE";
    for locked in ["SELECT name FROM countries WHERE code = 'ch' FOR UPDATE", join] {
        run("BEGIN; UPDATE notes SET body = 'ch' WHERE tenant = 5 AND id = 1").await;
        assert_eq!(refusal(&client, locked).await.0, "0A000", "{locked}");
        run("ROLLBACK").await;
    }
    run("BEGIN").await;
    assert_eq!(run(&format!("{join} OF n")).await, [["ch"]]);
    run("UPDATE notes SET body = 'is' WHERE tenant = 5 AND id = 1; COMMIT").await;
    // Writers come to every shard.
    run("BEGIN; UPDATE notes SET body = 'ch' WHERE tenant = 5 AND id = 1").await;
    assert_eq!(run("SELECT name FROM countries WHERE code = 'ch' FOR SHARE").await, [["Switzerland"]]);
    run("COMMIT").await;
    // By itself, and with others in one message, it is over with its statement.
    assert_eq!(run("SELECT code FROM countries WHERE code = 'is' FOR UPDATE").await, [["is"]]);
    run("INSERT INTO notes (tenant, id) VALUES (6, 1)").await;
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_update_of_a_reference_table_is_lost() {
    for cluster in both().await {
        let cluster = Arc::new(cluster);
        nothing_is_lost(&cluster).await;
        Arc::into_inner(cluster).unwrap().close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_a_reference_table_is_kept_or_refused() {
    for cluster in both().await {
        locks_are_kept_or_refused(&cluster).await;
        cluster.close().await;
    }
    let cluster = Cluster::with_tables().await;
    let (client, other) = (cluster.connect().await, cluster.connect().await);
    // It is not left for another shard.
    rows(&client, "BEGIN; SELECT name FROM countries WHERE code = 'ch' for update skip locked").await;
    assert_eq!(refusal(&client, "INSERT INTO notes VALUES (5, 2, 'x')").await.0, "0A000");
    rows(&client, "ROLLBACK").await;
    // Against writers it is locked on the shard where the transaction is, which may write elsewhere.
    rows(&other, "SET lock_timeout = '100ms'").await;
    rows(&client, "SET polyshard.multi_shard = 'two_phase'").await;
    for tenant in 5..9 {
        rows(&client, "BEGIN; SELECT name FROM countries WHERE code = 'ch' FOR SHARE").await;
        rows(&client, &format!("INSERT INTO notes VALUES ({tenant}, 3, 'x')")).await;
        assert_eq!(refusal(&other, "UPDATE countries SET name = 'x' WHERE code = 'ch'").await.0, "55P03");
        rows(&client, "COMMIT").await;
    }
    rows(&client, "RESET polyshard.multi_shard").await;
    // A row that is locked on any shard is not written before that ends.
    rows(&client, "BEGIN; SELECT 1 FROM notes WHERE tenant = 5").await;
    rows(&client, "SELECT name FROM countries WHERE code = 'ch' FOR SHARE").await;
    rows(&other, "SET lock_timeout = '100ms'").await;
    assert_eq!(refusal(&other, "UPDATE countries SET name = 'x' WHERE code = 'ch'").await.0, "55P03");
    rows(&client, "COMMIT").await;
    rows(&other, "UPDATE countries SET name = 'x' WHERE code = 'ch'").await;
    drop((client, other));
    cluster.close().await;
}
