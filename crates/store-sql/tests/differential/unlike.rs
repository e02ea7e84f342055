//! Merges that must not be: shards that are unlike each other, cursors in two forms, sessions that others need.

use std::sync::Arc;
use std::time::Duration;

use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use tokio_postgres::Client;

use crate::across::notes;
use crate::merge::TEMPORARY;
use crate::support::{Cluster, Place, Setup, refusal, rows};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

async fn fetched(client: &Client, sql: &str) -> Vec<String> {
    rows(client, sql).await.concat()
}

// C2: each database has a collation of its own.
#[tokio::test]
async fn texts_are_not_merged_where_one_shard_has_another_order() {
    let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, ..PgOptions::default() });
    server.create_database("catalog");
    server.execute("postgres", "CREATE DATABASE s1 TEMPLATE template0 LOCALE 'C'");
    let icu = "CREATE DATABASE s2 TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'";
    server.execute("postgres", icu);
    let cluster = Cluster::on_place(Place::Postgres(Arc::new(server)), &Setup::default()).await;
    cluster.make_tables().await;
    let client = cluster.connect().await;
    let mut expected = Vec::new();
    for tenant in 1..=20 {
        let insert =
            format!("INSERT INTO notes VALUES ({tenant}, 1, 'a{tenant}'), ({tenant}, 2, 'B{tenant}')");
        client.batch_execute(&insert).await.unwrap();
        expected.extend([format!("a{tenant}"), format!("B{tenant}")]);
    }
    // The first shard's order, by bytes.
    expected.sort();
    for _ in 0..3 {
        assert_eq!(fetched(&client, "SELECT body FROM notes ORDER BY body").await, expected);
        let first = fetched(&client, "SELECT body FROM notes ORDER BY body LIMIT 21").await;
        assert_eq!(first, expected[..21]);
    }
    // Where it is said, it is the same everywhere.
    let explained = fetched(&client, "EXPLAIN SELECT body FROM notes ORDER BY body COLLATE \"C\"").await;
    assert!(explained.iter().any(|line| line.starts_with("Merge: ")), "{explained:?}");
    cluster.close().await;
}

// C2: a change of a column's type is on one shard, and not yet on the other.
#[tokio::test]
async fn columns_of_unlike_types_are_not_merged() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    client.batch_execute("ALTER TABLE notes ADD COLUMN n int NOT NULL DEFAULT 7").await.unwrap();
    cluster.on_shard("s2", "ALTER TABLE public.notes ALTER COLUMN n TYPE bigint");
    for sql in [
        // A shown one, in the order of another; a key; and one that is planned anew each time.
        "SELECT n FROM notes ORDER BY tenant, id",
        "SELECT n FROM notes ORDER BY n, tenant",
        "SELECT n FROM notes WHERE now() IS NOT NULL ORDER BY n, tenant",
    ] {
        let answered = async {
            for _ in 0..6 {
                let all = client.query(sql, &[]).await.unwrap();
                assert_eq!(all.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [7; 40], "{sql}");
                assert_eq!(fetched(&client, sql).await, ["7"; 40], "{sql}");
            }
            client.batch_execute(&format!("BEGIN; DECLARE c CURSOR FOR {sql}")).await.unwrap();
            let all = client.query("FETCH ALL FROM c", &[]).await.unwrap();
            assert_eq!(all.iter().map(|row| row.get::<_, i32>(0)).collect::<Vec<_>>(), [7; 40], "{sql}");
            client.batch_execute("ROLLBACK").await.unwrap();
        };
        assert!(tokio::time::timeout(PATIENCE, answered).await.is_ok(), "asked for ever: {sql}");
    }
    cluster.close().await;
}

// C2: one FETCH in text form, another in binary form, as JDBC's prepared statements turn to it.
#[tokio::test]
async fn a_cursors_rows_are_in_the_form_that_each_fetch_asks_for() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    for order in ["", " ORDER BY tenant, id"] {
        let declare = format!("DECLARE c CURSOR FOR SELECT tenant + 10000000 FROM notes{order}");
        client.batch_execute("BEGIN").await.unwrap();
        client.execute(&declare, &[]).await.unwrap();
        let mut all: Vec<i64> =
            fetched(&client, "FETCH 20 FROM c").await.iter().map(|shown| shown.parse().unwrap()).collect();
        let others = client.query("FETCH 20 FROM c", &[]).await.unwrap();
        all.extend(others.iter().map(|row| row.get::<_, i64>(0)));
        all.sort_unstable();
        let expected: Vec<i64> = (1..=20).flat_map(|tenant| [tenant + 10_000_000; 2]).collect();
        assert_eq!(all, expected, "{declare}");
        client.batch_execute("ROLLBACK").await.unwrap();
        // Declared by the simple protocol, its rows stay on their shards, in one form; never one for the other.
        client.batch_execute(&format!("BEGIN; {declare}")).await.unwrap();
        assert_eq!(fetched(&client, "FETCH 1 FROM c").await.len(), 1);
        let error = client.query("FETCH 1 FROM c", &[]).await.unwrap_err();
        assert_eq!(error.code().map(|code| code.code()), Some("0A000"), "{declare}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    cluster.close().await;
}

// C2, C6: clients that take their time leave sessions for others, and for what they write themselves.
#[tokio::test]
async fn cursors_leave_sessions_for_others() {
    let cluster = Cluster::start_with(Setup { raw_max: 4, ..Setup::default() }).await;
    cluster.make_tables().await;
    let clients = [cluster.connect().await, cluster.connect().await, cluster.connect().await];
    for tenant in 1..=20 {
        clients[0].batch_execute(&format!("INSERT INTO notes VALUES ({tenant}, 1, 'a')")).await.unwrap();
    }
    let declare = "BEGIN; DECLARE c CURSOR FOR SELECT tenant FROM notes ORDER BY tenant";
    let temporary = || {
        ["s1", "s2"]
            .map(|shard| cluster.on_shard(shard, TEMPORARY).parse::<u64>().unwrap())
            .iter()
            .sum::<u64>()
    };
    clients[0].batch_execute(declare).await.unwrap();
    assert_eq!(fetched(&clients[0], "FETCH 1 FROM c").await, ["1"]);
    assert_eq!(temporary(), 0, "the first one stays with the shards");
    for client in &clients[1..] {
        client.batch_execute(declare).await.unwrap();
        assert_eq!(fetched(client, "FETCH 1 FROM c").await, ["1"]);
    }
    assert!(temporary() > 0, "further ones keep one session");
    for client in &clients {
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    // Closed, it leaves its place to another; the first transaction writes while it reads.
    clients[1].batch_execute(declare).await.unwrap();
    for tenant in 1..=20 {
        assert_eq!(fetched(&clients[1], "FETCH 1 FROM c").await, [tenant.to_string()]);
    }
    assert_eq!(temporary(), 0);
    clients[1].batch_execute("UPDATE notes SET body = 'b' WHERE tenant = 3; COMMIT").await.unwrap();
    assert_eq!(refusal(&clients[1], "FETCH 1 FROM c").await.0, "34000");
    cluster.close().await;
}
