//! A statement means what the session's own settings say, whoever has asked it before on the shard's session.

use std::sync::Arc;

use tempfile::TempDir;
use tokio_postgres::Client;

use crate::support::{Cluster, Place, Setup, refusal, rows};

/// One session for each shard, which all clients share.
async fn with_one_session() -> Cluster {
    let cluster = Cluster::start_with(Setup { raw_max: 1, ..Setup::default() }).await;
    cluster.make_tables().await;
    cluster
}

async fn counted(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
}

/// Texts without a zone, days and months in some order, intervals with a sign: what a text is read as is a matter of
/// the session that asks.
async fn literals_are_read_by_the_one_who_asks(cluster: &Cluster, settings: &[(&str, [&str; 2], &str)]) {
    let (one, two) = (cluster.connect().await, cluster.connect().await);
    rows(
        &one,
        "CREATE TABLE logs (tenant bigint, id bigint, at timestamptz, day date, PRIMARY KEY (tenant, id))",
    )
    .await;
    rows(&one, "SELECT polyshard.shard_table('logs', 'tenants', 'tenant')").await;
    for tenant in 0..6 {
        let values = format!("({tenant}, 1, '2024-01-02 00:00:00+00', '2024-01-02')");
        rows(&one, &format!("INSERT INTO logs VALUES {values}")).await;
    }
    for (name, [first, second], condition) in settings {
        rows(&one, &format!("SET {name} = '{first}'")).await;
        rows(&two, &format!("SET {name} = '{second}'")).await;
        let by_key = format!("SELECT count(*) FROM logs WHERE tenant = 3 AND {condition}");
        let all = format!("SELECT count(*) FROM logs WHERE {condition}");
        for round in 0..6 {
            for (client, hits) in [(&one, 1), (&two, 0)] {
                let told = format!("{name}, round {round}, {hits}");
                assert_eq!(rows(client, &by_key).await, [[hits.to_string()]], "{told}");
                assert_eq!(counted(client, &by_key).await, hits, "{told}");
                assert_eq!(rows(client, &all).await, [[(6 * hits).to_string()]], "{told}");
                assert_eq!(counted(client, &all).await, 6 * hits, "{told}");
            }
        }
        // What a driver keeps prepared under a name.
        let prepared = [one.prepare(&by_key).await.unwrap(), two.prepare(&by_key).await.unwrap()];
        for _ in 0..4 {
            assert_eq!(one.query_one(&prepared[0], &[]).await.unwrap().get::<_, i64>(0), 1, "{name}");
            assert_eq!(two.query_one(&prepared[1], &[]).await.unwrap().get::<_, i64>(0), 0, "{name}");
        }
        rows(&one, &format!("RESET {name}")).await;
        rows(&two, &format!("RESET {name}")).await;
    }
    drop((one, two));
}

const OF_SERVERS: [(&str, [&str; 2], &str); 3] = [
    ("TimeZone", ["UTC", "Asia/Tokyo"], "at = '2024-01-02 00:00'"),
    ("DateStyle", ["ISO, DMY", "ISO, MDY"], "day = '02/01/2024'"),
    ("IntervalStyle", ["postgres", "sql_standard"], "interval '-1 1:00' = interval '-23:00'"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_literal_is_read_by_the_settings_of_the_one_who_asks() {
    let cluster = with_one_session().await;
    literals_are_read_by_the_one_who_asks(&cluster, &OF_SERVERS).await;
    // For one transaction, too: before, within and after it.
    let client = cluster.connect().await;
    let by_key = "SELECT count(*) FROM logs WHERE tenant = 3 AND at = '2024-01-02 00:00'";
    rows(&client, "SET TimeZone = 'UTC'").await;
    for _ in 0..6 {
        assert_eq!(counted(&client, by_key).await, 1);
        rows(&client, "BEGIN; SET LOCAL TimeZone = 'Asia/Tokyo'").await;
        assert_eq!(counted(&client, by_key).await, 0);
        rows(&client, "SAVEPOINT a; SET LOCAL TimeZone = 'UTC'").await;
        assert_eq!(counted(&client, by_key).await, 1);
        rows(&client, "ROLLBACK TO a").await;
        assert_eq!(counted(&client, by_key).await, 0);
        rows(&client, "COMMIT").await;
        assert_eq!(counted(&client, by_key).await, 1);
        rows(&client, "BEGIN; SELECT 1 FROM notes WHERE tenant = 3").await;
        assert_eq!(counted(&client, by_key).await, 1);
        client.query("SELECT set_config('TimeZone', $1, true)", &[&"Asia/Tokyo"]).await.unwrap();
        assert_eq!(counted(&client, by_key).await, 0);
        rows(&client, "SAVEPOINT a; SELECT 1, set_config('TimeZone', 'UTC', true)").await;
        assert_eq!(counted(&client, by_key).await, 1);
        rows(&client, "ROLLBACK TO a").await;
        assert_eq!(counted(&client, by_key).await, 0);
        rows(&client, "COMMIT").await;
        assert_eq!(counted(&client, by_key).await, 1);
        rows(&client, "BEGIN; SELECT 1 FROM notes WHERE tenant = 3; SET TimeZone = 'Asia/Tokyo'").await;
        assert_eq!(counted(&client, by_key).await, 0);
        rows(&client, "ROLLBACK").await;
        assert_eq!(counted(&client, by_key).await, 1);
    }
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_read_a_literal_by_the_settings_of_the_one_who_asks() {
    let cluster = crate::embedded::with_tables().await;
    literals_are_read_by_the_one_who_asks(
        &cluster,
        &[("TimeZone", ["UTC", "+09"], "at = '2024-01-02 00:00'")],
    )
    .await;
    cluster.close().await;
}

/// What is set for a transaction alone holds on every session that answers for it.
async fn all_answer_by_the_transactions_settings(cluster: &Cluster, zone: &str) {
    let client = cluster.connect().await;
    rows(&client, "CREATE TABLE logs (tenant bigint PRIMARY KEY, at timestamptz)").await;
    rows(&client, "SELECT polyshard.shard_table('logs', 'tenants', 'tenant')").await;
    for tenant in 0..6 {
        rows(&client, &format!("INSERT INTO logs VALUES ({tenant}, '2024-01-02 00:00:00+00')")).await;
    }
    let all = "SELECT count(*) FROM logs WHERE at = '2024-01-02 09:00'";
    let shown = "SELECT at::text FROM logs ORDER BY tenant LIMIT 1";
    let outside = rows(&client, shown).await;
    for _ in 0..3 {
        rows(&client, &format!("BEGIN; SET LOCAL TimeZone = '{zone}'")).await;
        assert_eq!(rows(&client, all).await, [["6"]]);
        assert_eq!(counted(&client, all).await, 6);
        assert_eq!(rows(&client, shown).await, [["2024-01-02 09:00:00+09"]]);
        rows(&client, "SAVEPOINT a; SET LOCAL TimeZone = 'UTC'").await;
        assert_eq!(rows(&client, all).await, [["0"]]);
        rows(&client, "ROLLBACK TO a").await;
        assert_eq!(rows(&client, all).await, [["6"]]);
        rows(&client, "SELECT set_config('TimeZone', 'UTC', true)").await;
        assert_eq!(rows(&client, all).await, [["0"]]);
        rows(&client, "COMMIT").await;
        assert_eq!(rows(&client, all).await, [["0"]]);
        assert_eq!(rows(&client, shown).await, outside);
    }
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_a_transaction_hold_wherever_it_is_answered() {
    for (cluster, zone) in super::both().await.into_iter().zip(["Asia/Tokyo", "+09"]) {
        all_answer_by_the_transactions_settings(&cluster, zone).await;
        cluster.close().await;
    }
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    // Also what a statement sets to a value that the door does not see.
    rows(&client, "CREATE TABLE logs (tenant bigint PRIMARY KEY, at timestamptz)").await;
    rows(&client, "SELECT polyshard.shard_table('logs', 'tenants', 'tenant')").await;
    for tenant in 0..6 {
        rows(&client, &format!("INSERT INTO logs VALUES ({tenant}, '2024-01-02 00:00:00+00')")).await;
    }
    let all = "SELECT count(*) FROM logs WHERE at = '2024-01-02 09:00'";
    for _ in 0..3 {
        rows(&client, "BEGIN").await;
        client.query("SELECT set_config('TimeZone', $1, true)", &[&"Asia/Tokyo"]).await.unwrap();
        assert_eq!(rows(&client, all).await, [["6"]]);
        assert_eq!(counted(&client, all).await, 6);
        rows(&client, "SAVEPOINT a").await;
        client.query("SELECT set_config('TimeZone', $1, true)", &[&"UTC"]).await.unwrap();
        assert_eq!(rows(&client, all).await, [["0"]]);
        rows(&client, "ROLLBACK TO a").await;
        assert_eq!(rows(&client, all).await, [["6"]]);
        rows(&client, "COMMIT").await;
        assert_eq!(rows(&client, all).await, [["0"]]);
    }
    // A value that a server is asked to write as a literal is read under them, too.
    rows(&client, "CREATE TABLE days (day date PRIMARY KEY)").await;
    rows(&client, "SELECT polyshard.reference_table('days')").await;
    rows(&client, "BEGIN; SET LOCAL DateStyle = 'ISO, DMY'").await;
    rows(&client, "PREPARE put (date) AS INSERT INTO days VALUES ($1)").await;
    rows(&client, "EXECUTE put('02/01/2024'); COMMIT").await;
    assert_eq!(rows(&client, "SELECT day FROM days").await, [["2024-01-02"]]);
    drop(client);
    cluster.close().await;
}

/// What a session has done with a sequence is no one else's to be told.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_told_the_numbers_of_others() {
    let cluster = with_one_session().await;
    let client = cluster.connect().await;
    rows(&client, "CREATE SEQUENCE counter").await;
    for sql in [
        "SELECT lastval()",
        "SELECT pg_catalog.currval('counter')",
        "INSERT INTO notes VALUES (1, currval('counter'), 'x')",
        "SELECT id FROM notes WHERE tenant = 1 AND id = LASTVAL()",
        "BEGIN; SELECT nextval('counter'); SELECT lastval()",
    ] {
        assert_eq!(refusal(&client, sql).await.0, "0A000", "{sql}");
        rows(&client, "ROLLBACK").await;
    }
    rows(&client, "CREATE TABLE rows (tenant bigint, id bigserial, PRIMARY KEY (tenant, id))").await;
    rows(&client, "SELECT polyshard.shard_table('rows', 'tenants', 'tenant')").await;
    let told = rows(&client, "INSERT INTO rows (tenant) VALUES (1) RETURNING id").await;
    assert_eq!(rows(&client, "SELECT id FROM rows WHERE tenant = 1").await, told);
    drop(client);
    cluster.close().await;
    let place = Place::Files(Arc::new(TempDir::new().unwrap()));
    let files = Cluster::on_place(place, &Setup::default()).await;
    let client = files.connect().await;
    assert_eq!(refusal(&client, "SELECT lastval()").await.0, "0A000");
    drop(client);
    files.close().await;
}
