//! Rows of all shards come in PostgreSQL's order.

use super::both;
use crate::support::{Cluster, refusal, rows};

/// The answer to be had, or a refusal.
async fn is_right_or_refused(client: &tokio_postgres::Client, sql: &str, right: &[&str]) {
    let answer = match client.simple_query(sql).await {
        Ok(_) => rows(client, sql).await.concat(),
        Err(_) => {
            assert_eq!(refusal(client, sql).await.0, "0A000", "{sql}");
            return;
        }
    };
    assert_eq!(answer, right, "{sql}");
}

async fn values_of_enums_are_in_their_order(cluster: &Cluster) {
    let client = cluster.connect().await;
    rows(&client, "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')").await;
    rows(&client, "CREATE TABLE felt (tenant bigint PRIMARY KEY, m mood)").await;
    rows(&client, "SELECT polyshard.shard_table('felt', 'tenants', 'tenant')").await;
    for (tenant, mood) in ["happy", "sad", "ok", "happy", "sad", "ok"].iter().enumerate() {
        rows(&client, &format!("INSERT INTO felt VALUES ({tenant}, '{mood}')")).await;
    }
    // More often than it takes to be asked the short way.
    for _ in 0..8 {
        for (sql, right) in [
            ("SELECT m FROM felt ORDER BY m", &["sad", "sad", "ok", "ok", "happy", "happy"][..]),
            ("SELECT m FROM felt ORDER BY m DESC, tenant LIMIT 3", &["happy", "happy", "ok"]),
            ("SELECT DISTINCT m FROM felt ORDER BY m", &["sad", "ok", "happy"]),
            ("SELECT DISTINCT ON (m) m FROM felt ORDER BY m, tenant", &["sad", "ok", "happy"]),
            ("SELECT min(m), max(m) FROM felt", &["sad", "happy"]),
            ("SELECT m FROM felt UNION SELECT m FROM felt ORDER BY m", &["sad", "ok", "happy"]),
            (
                "SELECT m, row_number() OVER (ORDER BY m, tenant) FROM felt WHERE tenant < 3 ORDER BY 2",
                &["sad", "1", "ok", "2", "happy", "3"],
            ),
            ("SELECT m FROM felt GROUP BY m ORDER BY m", &["sad", "ok", "happy"]),
            ("SELECT count(*) FROM felt WHERE m > 'sad'", &["4"]),
            ("SELECT m FROM felt WHERE m < 'happy' ORDER BY m OFFSET 2", &["ok", "ok"]),
            ("SELECT array_agg(m ORDER BY m) FROM felt", &["{sad,sad,ok,ok,happy,happy}"]),
            ("SELECT greatest(min(m), 'ok') FROM felt", &["ok"]),
            ("SELECT m FROM (SELECT m FROM felt ORDER BY m LIMIT 2) x", &["sad", "sad"]),
        ] {
            is_right_or_refused(&client, sql, right).await;
        }
    }
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn enums_are_sorted_by_their_order() {
    for cluster in both().await {
        values_of_enums_are_in_their_order(&cluster).await;
        cluster.close().await;
    }
}
