//! Answers across shards that are taken in parts: fetch sizes of drivers, and cursors.

use std::fmt::Write as _;

use futures_util::{StreamExt, pin_mut};

use crate::across::notes;
use crate::support::{refusal, rows};

// C2: a driver's fetch size: the rows come as they are asked for, each once.
#[tokio::test]
async fn a_fetch_size_takes_an_answer_in_parts() {
    let cluster = notes().await;
    let mut client = cluster.connect().await;
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname IN ('s1', 's2') \
                AND state LIKE 'idle in transaction%'";
    for sql in [
        "SELECT tenant, id FROM notes ORDER BY tenant, id",
        // Neither sorted nor combined: the shards' rows one after the other.
        "SELECT tenant, id FROM notes WHERE id >= $1",
        "SELECT a.tenant, a.id FROM notes a JOIN notes b ON b.id = a.id AND b.tenant = 7 WHERE a.id >= $1",
    ] {
        let transaction = client.transaction().await.unwrap();
        let portal = if sql.contains("$1") {
            transaction.bind(sql, &[&1_i64]).await.unwrap()
        } else {
            transaction.bind(sql, &[]).await.unwrap()
        };
        let mut all = Vec::new();
        loop {
            let part = transaction.query_portal(&portal, 7).await.unwrap();
            let count = part.len();
            all.extend(part.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i64>(1))));
            // Other statements run in between.
            transaction.query_one("SELECT count(*) FROM notes", &[]).await.unwrap();
            if count < 7 {
                break;
            }
        }
        if sql.contains("ORDER") {
            assert!(all.is_sorted(), "{all:?}");
        }
        all.sort_unstable();
        let expected: Vec<(i64, i64)> = (1..=20).flat_map(|tenant| [(tenant, 1), (tenant, 2)]).collect();
        assert_eq!(all, expected, "{sql}");
        assert!(transaction.query_portal(&portal, 7).await.unwrap().is_empty(), "there are no more");
        transaction.commit().await.unwrap();
        // The process has sessions of its own, which are in a transaction for a moment; what stays open is ours.
        let closed = async {
            while cluster.on_shard("s1", open) != "0" {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(std::time::Duration::from_secs(30), closed).await;
        waited.unwrap_or_else(|_| panic!("something is left open: {sql}"));
    }
    cluster.close().await;
}

// C2: DECLARE, FETCH, MOVE and CLOSE, in both protocols.
#[tokio::test]
async fn a_cursor_across_shards_goes_both_ways() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    client.batch_execute("BEGIN").await.unwrap();
    let declare = "DECLARE \"C 1\" SCROLL CURSOR FOR SELECT tenant, id AS n FROM notes ORDER BY tenant, id";
    client.batch_execute(declare).await.unwrap();
    let fetched = async |sql: &str| rows(&client, sql).await.concat().join(" ");
    assert_eq!(fetched("FETCH 2 FROM \"C 1\"").await, "1 1 1 2");
    assert_eq!(fetched("FETCH NEXT FROM \"C 1\"").await, "2 1");
    assert_eq!(fetched("FETCH BACKWARD 1 FROM \"C 1\"").await, "1 2");
    assert_eq!(fetched("MOVE FORWARD 10 FROM \"C 1\"").await, "");
    assert_eq!(fetched("FETCH ABSOLUTE 40 FROM \"C 1\"").await, "20 2");
    let binary = client.query("FETCH ABSOLUTE 39 FROM \"C 1\"", &[]).await.unwrap();
    assert_eq!((binary[0].get::<_, i64>(0), binary[0].columns()[1].name()), (20, "n"));
    // A second one, over something else; and one of the same name is refused.
    client.execute("DECLARE other CURSOR FOR SELECT body FROM notes WHERE id = $1", &[&2_i64]).await.unwrap();
    assert_eq!(client.query("FETCH ALL FROM other", &[]).await.unwrap().len(), 20);
    client.batch_execute("CLOSE \"C 1\"").await.unwrap();
    assert_eq!(refusal(&client, "FETCH 1 FROM \"C 1\"").await.0, "34000");
    assert_eq!(refusal(&client, "DECLARE other CURSOR FOR SELECT tenant FROM notes").await.0, "25P02");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(refusal(&client, "FETCH 1 FROM other").await.0, "34000");
    assert_eq!(refusal(&client, declare).await.0, "25P01");
    // Each keeps a session of a shard: there is an end to them.
    client.batch_execute("BEGIN").await.unwrap();
    for number in 0..8 {
        client
            .batch_execute(&format!("DECLARE c{number} CURSOR FOR SELECT tenant FROM notes"))
            .await
            .unwrap();
    }
    assert_eq!(refusal(&client, "DECLARE c8 CURSOR FOR SELECT tenant FROM notes").await.0, "54000");
    client.batch_execute("ROLLBACK").await.unwrap();
    client.batch_execute("BEGIN; DECLARE c0 CURSOR FOR SELECT tenant FROM notes").await.unwrap();
    assert_eq!(refusal(&client, "DECLARE c0 CURSOR FOR SELECT id FROM notes").await.0, "42P03");
    client.batch_execute("ROLLBACK").await.unwrap();
    cluster.close().await;
}

// C2: what one session fetches is described by its own cursor, not by another session's of the same name.
#[tokio::test]
async fn cursors_of_one_name_have_columns_of_their_own() {
    let cluster = notes().await;
    let (first, second) = (cluster.connect().await, cluster.connect().await);
    first.batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT body FROM notes").await.unwrap();
    second
        .batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT id, tenant FROM notes WHERE tenant = 3")
        .await
        .unwrap();
    for _ in 0..2 {
        let row = &first.query("FETCH 1 FROM c", &[]).await.unwrap()[0];
        assert_eq!((row.len(), row.columns()[0].name()), (1, "body"));
        let row = &second.query("FETCH 1 FROM c", &[]).await.unwrap()[0];
        assert_eq!((row.len(), row.get::<_, i64>(1)), (2, 3));
    }
    cluster.close().await;
}

// C1: a cursor ends with the savepoint that it was declared after.
#[tokio::test]
async fn a_cursor_ends_with_its_savepoint() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    let declare = "DECLARE c CURSOR FOR SELECT tenant FROM notes ORDER BY tenant, id";
    client.batch_execute(&format!("BEGIN; SAVEPOINT a; {declare}; RELEASE a; SAVEPOINT b")).await.unwrap();
    client.batch_execute("DECLARE d CURSOR FOR SELECT tenant FROM notes; ROLLBACK TO b").await.unwrap();
    assert_eq!(rows(&client, "FETCH 1 FROM c").await, [["1"]]);
    assert_eq!(refusal(&client, "FETCH 1 FROM d").await.0, "34000");
    client.batch_execute("ROLLBACK").await.unwrap();
    cluster.close().await;
}

// C1, C2: the transaction's own writes on several shards are in what it reads across them.
#[tokio::test]
async fn a_transaction_on_several_shards_sees_all_its_writes_across_them() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    client.batch_execute("SET polyshard.multi_shard = 'two_phase'").await.unwrap();
    let mut script = "BEGIN;".to_owned();
    for tenant in 1..=20 {
        write!(script, "INSERT INTO notes VALUES ({tenant}, 3, 'mine');").unwrap();
    }
    client.batch_execute(&script).await.unwrap();
    for (sql, expected) in [
        ("SELECT count(*) FROM notes", "60"),
        ("SELECT sum(n) FROM (SELECT count(*) AS n FROM notes GROUP BY body) x", "60"),
        ("SELECT count(*) FROM notes a JOIN notes b ON a.id = b.id + 2 AND a.body = 'mine'", "400"),
    ] {
        assert_eq!(rows(&client, sql).await, [[expected]], "{sql}");
    }
    assert_eq!(rows(&client, "SELECT tenant FROM notes WHERE id = 3").await.len(), 20);
    client.batch_execute("DECLARE c CURSOR FOR SELECT tenant FROM notes WHERE body = 'mine'").await.unwrap();
    assert_eq!(rows(&client, "FETCH ALL FROM c").await.len(), 20);
    client.batch_execute("UPDATE notes SET body = 'later' WHERE tenant = 5 AND id = 3").await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(rows(&client, "SELECT count(*) FROM notes WHERE id = 3 AND body = 'mine'").await, [["19"]]);
    cluster.close().await;
}

// C3: a shard that ends the session of a cursor fails the transaction, and nothing is passed off as the rest.
#[tokio::test]
async fn a_cursor_whose_session_is_lost_is_an_error() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    let declare = "DECLARE c SCROLL CURSOR FOR SELECT tenant FROM notes ORDER BY 1";
    client.batch_execute(&format!("BEGIN; {declare}")).await.unwrap();
    assert_eq!(rows(&client, "FETCH 3 FROM c").await.len(), 3);
    for shard in ["s1", "s2"] {
        let end = "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND state = 'idle in transaction'";
        cluster.on_shard(shard, end);
    }
    assert_eq!(refusal(&client, "FETCH 3 FROM c").await.0, "08006");
    assert_eq!(refusal(&client, "SELECT 1").await.0, "25P02");
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["40"]]);
    cluster.close().await;
}

// C2: rows are streamed to a client that reads them one by one.
#[tokio::test]
async fn a_client_may_stop_reading_in_the_middle() {
    let cluster = notes().await;
    let client = cluster.connect().await;
    let sql = "SELECT a.body, repeat('x', 10000) FROM notes a, notes b, notes c ORDER BY a.tenant";
    let nothing: [i64; 0] = [];
    {
        let stream = client.query_raw(sql, nothing).await.unwrap();
        pin_mut!(stream);
        for _ in 0..3 {
            stream.next().await.unwrap().unwrap();
        }
    }
    assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["40"]]);
    cluster.close().await;
}
