//! Clients share the shards' sessions, and do not notice. C1, C4.

use std::time::Duration;

use crate::support::{Cluster, Setup, refusal, rows};

async fn with_one_session() -> Cluster {
    let cluster = Cluster::start_with(Setup { raw_max: 1, ..Setup::default() }).await;
    cluster.make_tables().await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_each_clients_own() {
    let cluster = with_one_session().await;
    let (one, two) = (cluster.connect().await, cluster.connect().await);
    let zone = async |client| rows(client, "SHOW TimeZone").await.concat().concat();
    let default = zone(&one).await;
    rows(&one, "SET TimeZone = 'Asia/Tokyo'").await;
    assert_eq!(zone(&one).await, "Asia/Tokyo");
    assert_eq!(zone(&two).await, default);
    rows(&two, "SET SESSION TIME ZONE 'Europe/Zurich'").await;
    assert_eq!((zone(&one).await, zone(&two).await), ("Asia/Tokyo".into(), "Europe/Zurich".into()));
    // What is set in a transaction goes with it; what is set for it alone, in any case.
    rows(&one, "BEGIN; SET TimeZone = 'UTC'; ROLLBACK").await;
    assert_eq!(zone(&one).await, "Asia/Tokyo");
    rows(&one, "BEGIN").await;
    rows(&one, "SET LOCAL TimeZone = 'UTC'").await;
    assert_eq!(zone(&one).await, "UTC");
    rows(&one, "COMMIT").await;
    assert_eq!(zone(&one).await, "Asia/Tokyo");
    rows(&one, "RESET ALL").await;
    assert_eq!((zone(&one).await, zone(&two).await), (default.clone(), "Europe/Zurich".into()));
    rows(&two, "DISCARD ALL").await;
    assert_eq!(zone(&two).await, default);
    assert_eq!(refusal(&one, "SET TimeZone = 'Nowhere/Land'").await.0, "22023");
    assert_eq!(refusal(&one, "SET no_such_setting = 1").await.0, "42704");
    assert_eq!(
        rows(&one, "SET polyshard.multi_shard = two_phase; SHOW polyshard.multi_shard").await,
        [["two_phase"]]
    );
    assert_eq!(refusal(&one, "SET client_encoding = latin1").await.0, "0A000");
    drop((one, two));
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_survive_sharing_and_schema_changes() {
    let cluster = with_one_session().await;
    let (one, two) = (cluster.connect().await, cluster.connect().await);
    rows(&one, "INSERT INTO notes VALUES (1, 1, 'a'); INSERT INTO notes VALUES (1, 2, 'b')").await;
    let first = one.prepare("SELECT * FROM notes WHERE tenant = $1 AND id = $2").await.unwrap();
    let second = two.prepare("SELECT body FROM notes WHERE tenant = $1 AND id = $2").await.unwrap();
    for _ in 0..3 {
        let row = one.query_one(&first, &[&1_i64, &1_i64]).await.unwrap();
        assert_eq!(row.get::<_, String>("body"), "a");
        let row = two.query_one(&second, &[&1_i64, &2_i64]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), "b");
    }
    rows(&two, "ALTER TABLE notes ADD COLUMN extra int DEFAULT 5").await;
    let again = one.prepare("SELECT * FROM notes WHERE tenant = $1 AND id = $2").await.unwrap();
    assert_eq!(again.columns().len(), 4);
    assert_eq!(one.query_one(&again, &[&1_i64, &1_i64]).await.unwrap().get::<_, i32>("extra"), 5);
    let row = two.query_one(&second, &[&1_i64, &2_i64]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "b");
    // More statements than a session keeps.
    for number in 0..300 {
        let text = format!("SELECT {number} + $1::int");
        assert_eq!(one.query_one(&text, &[&1_i32]).await.unwrap().get::<_, i32>(0), number + 1);
    }
    assert_eq!(one.query_one(&again, &[&1_i64, &1_i64]).await.unwrap().get::<_, i32>("extra"), 5);
    drop((one, two));
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_cancelled_and_one_left_behind_is_stopped() {
    let cluster = with_one_session().await;
    let client = cluster.connect().await;
    let token = client.cancel_token();
    let sleeping = tokio::spawn(async move {
        let refused = refusal(&client, "SELECT pg_sleep(600)").await;
        (client, refused)
    });
    let asleep =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'";
    while cluster.on_shard("s1", asleep) == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    token.cancel_query(tokio_postgres::NoTls).await.unwrap();
    let (client, refused) = sleeping.await.unwrap();
    assert_eq!(refused.0, "57014");
    assert_eq!(rows(&client, "SELECT 1").await, [["1"]]);

    // A client that leaves in the middle leaves nothing running, and the shard's session to others.
    let (gone, connection) =
        tokio_postgres::connect(&cluster.connect_string(), tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let waiting = tokio::spawn(async move { gone.simple_query("SELECT pg_sleep(600)").await });
    while cluster.on_shard("s1", asleep) == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    connection.abort();
    assert!(waiting.await.unwrap().is_err());
    assert_eq!(rows(&client, "SELECT 2").await, [["2"]]);
    assert_eq!(cluster.on_shard("s1", asleep), "0");
    drop(client);
    cluster.close().await;
}

/// A query across shards in a transaction leaves the transaction's own session where a word to stop finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_can_be_cancelled_after_a_query_across_shards() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    rows(&client, "BEGIN; INSERT INTO notes VALUES (1, 1, 'x')").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["1"]]);
    let token = client.cancel_token();
    let sleeping = tokio::spawn(async move {
        let refused = refusal(&client, "SELECT pg_sleep(600) FROM notes WHERE tenant = 1").await;
        (client, refused)
    });
    let asleep =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'";
    while cluster.on_shard("s1", asleep) == "0" {
        assert!(!sleeping.is_finished());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    token.cancel_query(tokio_postgres::NoTls).await.unwrap();
    let (client, refused) =
        tokio::time::timeout(Duration::from_secs(60), sleeping).await.expect("it is stopped").unwrap();
    assert_eq!(refused.0, "57014");
    rows(&client, "ROLLBACK").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["0"]]);
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_were_ended_are_replaced() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let statement = client.prepare("SELECT count(*) FROM notes WHERE tenant = $1").await.unwrap();
    let ask = async || client.query_one(&statement, &[&3_i64]).await;
    assert_eq!(ask().await.unwrap().get::<_, i64>(0), 0);
    let end = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity \
               WHERE pid <> pg_backend_pid() AND datname IN ('s1', 's2') AND query LIKE '%notes%'";
    cluster.on_shard("s1", end);
    // What was ended while nobody used it is not noticed.
    assert_eq!(rows(&client, "SELECT count(*) FROM notes WHERE tenant = 3").await, [["0"]]);
    assert_eq!(ask().await.unwrap().get::<_, i64>(0), 0);

    // In a transaction it is an error, and the client goes on.
    rows(&client, "BEGIN; INSERT INTO notes VALUES (3, 1, 'x')").await;
    cluster.on_shard("s1", &end.replace("%notes%", "%INSERT INTO notes VALUES (3%"));
    assert_eq!(refusal(&client, "SELECT body FROM notes WHERE tenant = 3").await.0, "08006");
    assert_eq!(refusal(&client, "SELECT 1").await.0, "25P02");
    rows(&client, "ROLLBACK").await;
    assert_eq!(ask().await.unwrap().get::<_, i64>(0), 0);
    drop(client);
    cluster.close().await;
}
