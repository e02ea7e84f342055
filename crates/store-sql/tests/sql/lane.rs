//! Statements that differ in their literals alone take a short way; nobody may notice. G1, C2.

use tokio_postgres::SimpleQueryMessage;

use crate::support::{Cluster, refusal, rows};

#[tokio::test(flavor = "multi_thread")]
async fn literals_go_to_their_own_shards() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    for tenant in 0..20 {
        let done = client
            .simple_query(&format!("INSERT INTO notes VALUES ({tenant}, 1, 'it''s of {tenant}');"))
            .await
            .unwrap();
        assert!(matches!(done[..], [SimpleQueryMessage::CommandComplete(1)]), "{done:?}");
    }
    for tenant in 0..20 {
        let sql = format!("SELECT body FROM notes WHERE tenant = {tenant} AND body LIKE 'it''s%'");
        assert_eq!(rows(&client, &sql).await, [[format!("it's of {tenant}")]]);
    }
    let on = |shard: &str| cluster.on_shard(shard, "SELECT count(*) FROM notes").parse::<i32>().unwrap();
    let (first, second) = (on("s1"), on("s2"));
    assert!(first > 0 && second > 0 && first + second == 20, "{first} {second}");
    // One of the shape that has no key of its own, and one with two: they are not like the others.
    assert_eq!(rows(&client, "SELECT count(*) FROM notes WHERE tenant IN (3, 4)").await, [["2"]]);
    assert_eq!(rows(&client, "SELECT count(*) FROM notes WHERE tenant IN (3, 3)").await, [["1"]]);
    assert!(rows(&client, "SELECT body FROM notes WHERE tenant = 5 AND 1 = 0").await.is_empty());
    // PostgreSQL's own errors, with the place in what the client wrote.
    let failed = client.simple_query("  SELECT nobody FROM notes WHERE tenant = 3").await.unwrap_err();
    let failed = failed.as_db_error().unwrap();
    assert_eq!(failed.code().code(), "42703");
    assert_eq!(failed.position(), Some(&tokio_postgres::error::ErrorPosition::Original(10)));
    drop(client);
    cluster.close().await;
}

/// What a shape means depends on the tables, the search path and the settings of the moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_shape_is_read_anew_when_tables_or_settings_change() {
    let cluster = Cluster::with_tables().await;
    let (client, other) = (cluster.connect().await, cluster.connect().await);
    client.simple_query("INSERT INTO notes VALUES (1, 1, 'public')").await.unwrap();
    let read = "SELECT body FROM notes WHERE tenant = 1";
    assert_eq!(rows(&client, read).await, [["public"]]);
    client.simple_query("CREATE SCHEMA aside").await.unwrap();
    client.simple_query("CREATE TABLE aside.notes (tenant bigint PRIMARY KEY, body text)").await.unwrap();
    client.simple_query("SELECT polyshard.reference_table('aside.notes')").await.unwrap();
    client.simple_query("INSERT INTO aside.notes VALUES (1, 'aside')").await.unwrap();
    client.simple_query("SET search_path = aside, public").await.unwrap();
    for _ in 0..2 {
        assert_eq!(rows(&client, read).await, [["aside"]]);
        assert_eq!(rows(&other, read).await, [["public"]]);
    }
    // A write of the same shape as one that went to a shard is now one for all of them.
    client.simple_query("UPDATE notes SET body = 'all' WHERE tenant = 1").await.unwrap();
    other.simple_query("UPDATE notes SET body = 'one' WHERE tenant = 1").await.unwrap();
    for shard in ["s1", "s2"] {
        assert_eq!(cluster.on_shard(shard, "SELECT body FROM aside.notes"), "all");
    }
    assert_eq!(rows(&other, read).await, [["one"]]);
    // Without its table the shape means nothing.
    client.simple_query("RESET search_path").await.unwrap();
    client.simple_query("DROP TABLE aside.notes").await.unwrap();
    assert_eq!(rows(&client, read).await, [["one"]]);
    drop((client, other));
    cluster.close().await;
}

/// In a transaction: one shard, failed, undone.
#[tokio::test(flavor = "multi_thread")]
async fn the_short_way_keeps_to_the_transaction() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let insert = |tenant: i32| format!("INSERT INTO notes VALUES ({tenant}, 1, 'x')");
    for tenant in 0..8 {
        client.simple_query(&insert(tenant)).await.unwrap();
    }
    client.simple_query("BEGIN").await.unwrap();
    let mut elsewhere = 0;
    for tenant in 1..8 {
        client.simple_query("SAVEPOINT here").await.unwrap();
        let update = |tenant| format!("UPDATE notes SET body = 'y' WHERE tenant = {tenant}");
        client.simple_query(&update(0)).await.unwrap();
        if let Err(error) = client.simple_query(&update(tenant)).await {
            assert_eq!(error.code().unwrap().code(), "0A000");
            elsewhere += 1;
            // Everything is refused until the savepoint is gone back to.
            let (state, _) = refusal(&client, &update(0)).await;
            assert_eq!(state, "25P02");
        }
        client.simple_query("ROLLBACK TO here").await.unwrap();
    }
    assert!(elsewhere > 0 && elsewhere < 7, "{elsewhere}");
    client.simple_query("COMMIT").await.unwrap();
    assert_eq!(rows(&client, "SELECT count(*) FROM notes WHERE body = 'y'").await, [["0"]]);
    // Refused for what the text says, whatever was seen of its shape before.
    for lock in [1, 2] {
        let sql = format!("SELECT pg_advisory_lock({lock}), body FROM notes WHERE tenant = 1");
        assert_eq!(refusal(&client, &sql).await.0, "0A000", "{sql}");
    }
    drop(client);
    cluster.close().await;
}
