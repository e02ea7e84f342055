//! A column that is added may be NULL in the rows that were there.

use super::both;
use crate::support::{Cluster, refusal, rows};

async fn rows_before_a_column_have_none(cluster: &Cluster) {
    let client = cluster.connect().await;
    rows(&client, "CREATE TABLE grown (tenant bigint PRIMARY KEY)").await;
    rows(&client, "SELECT polyshard.shard_table('grown', 'tenants', 'tenant')").await;
    for tenant in 0..4 {
        rows(&client, &format!("INSERT INTO grown VALUES ({tenant})")).await;
    }
    rows(&client, "ALTER TABLE grown ADD COLUMN x int").await;
    for tenant in 4..7 {
        rows(&client, &format!("INSERT INTO grown VALUES ({tenant}, {tenant})")).await;
    }
    let sorted = rows(&client, "SELECT x FROM grown ORDER BY x").await.concat();
    assert_eq!(sorted, ["4", "5", "6", "NULL", "NULL", "NULL", "NULL"]);
    let first = rows(&client, "SELECT x FROM grown ORDER BY x DESC LIMIT 5").await.concat();
    assert_eq!(first, ["NULL", "NULL", "NULL", "NULL", "6"]);
    let listed = rows(&client, "SELECT array_agg(x ORDER BY x) FROM grown").await;
    assert_eq!(listed, [["{4,5,6,NULL,NULL,NULL,NULL}"]]);
    let marked = "SELECT attnotnull FROM pg_attribute WHERE attrelid = 'grown'::regclass AND attname = 'x'";
    assert_eq!(rows(&client, marked).await, [["f"]]);
    let told =
        "SELECT is_nullable FROM information_schema.columns WHERE table_name = 'grown' AND column_name = 'x'";
    assert_eq!(rows(&client, told).await, [["YES"]]);
    rows(&client, "ALTER TABLE grown ADD COLUMN y int NOT NULL DEFAULT 0").await;
    assert_eq!(rows(&client, &marked.replace("'x'", "'y'")).await, [["t"]]);
    assert_eq!(refusal(&client, "INSERT INTO grown VALUES (9, 9, NULL)").await.0, "23502");
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_is_added_may_be_null() {
    for cluster in both().await {
        rows_before_a_column_have_none(&cluster).await;
        cluster.close().await;
    }
}
