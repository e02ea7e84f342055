//! Answers that clients take in parts: cursors in and beyond transactions, and portals with a fetch size, on both
//! engines. C1, C3.

use tokio_postgres::Client;

use crate::support::{Cluster, Setup, refusal, rows};

/// Thirty notes of ten tenants.
async fn with_notes(cluster: &Cluster) -> Client {
    cluster.make_tables().await;
    let client = cluster.connect().await;
    for number in 0..30 {
        rows(&client, &format!("INSERT INTO notes VALUES ({}, {number}, 'n{number}')", number % 10)).await;
    }
    client
}

async fn numbers(client: &Client, sql: &str) -> Vec<i64> {
    rows(client, sql).await.into_iter().map(|row| row[0].parse().unwrap()).collect()
}

const OF_ONE: &str = "SELECT id FROM notes WHERE tenant = 3 ORDER BY id";
const OF_ALL: &str = "SELECT id FROM notes ORDER BY id";

async fn go_as_postgresql_goes(cluster: &Cluster) {
    let client = with_notes(cluster).await;
    let run = async |sql: &str| drop(rows(&client, sql).await);
    let of = async |sql: &str| numbers(&client, sql).await;
    for (query, all) in [(OF_ONE, vec![3, 13, 23]), (OF_ALL, (0..30).collect())] {
        let last = all.len() - 1;
        run("BEGIN").await;
        run(&format!("DECLARE c SCROLL CURSOR FOR {query}")).await;
        assert_eq!(of("FETCH 2 FROM c").await, all[..2]);
        assert_eq!(of("FETCH NEXT FROM c").await, all[2..3]);
        assert_eq!(of("FETCH ABSOLUTE 2 c").await, all[1..2]);
        assert_eq!(of("FETCH RELATIVE -1 FROM c").await, all[..1]);
        assert_eq!(of("FETCH LAST IN c").await, all[last..]);
        assert_eq!(of("FETCH FORWARD 5 FROM c").await, [0; 0]);
        assert_eq!(of("FETCH BACKWARD 1 FROM c").await, all[last..]);
        run("MOVE ABSOLUTE 0 c").await;
        assert_eq!(of("FETCH ALL FROM c").await, all);
        let state = refusal(&client, &format!("DECLARE c CURSOR FOR {query}")).await.0;
        assert_eq!(state, "42P03");
        run("ROLLBACK").await;
        assert_eq!(refusal(&client, "FETCH c").await.0, "34000");

        // It ends with the savepoint that it began after, or when it is closed, or with the transaction.
        run("BEGIN; SAVEPOINT a").await;
        run(&format!("DECLARE d NO SCROLL CURSOR FOR {query}")).await;
        assert_eq!(of("FETCH 1 FROM d").await, all[..1]);
        run("ROLLBACK TO a").await;
        assert_eq!(refusal(&client, "FETCH d").await.0, "34000");
        run("ROLLBACK").await;
        run("BEGIN").await;
        run(&format!("DECLARE d NO SCROLL CURSOR FOR {query}")).await;
        run("FETCH 2 FROM d").await;
        assert_eq!(refusal(&client, "FETCH PRIOR FROM d").await.0, "55000");
        run("ROLLBACK").await;
        run("BEGIN").await;
        run(&format!("DECLARE d CURSOR FOR {query}; CLOSE d")).await;
        assert_eq!(refusal(&client, "FETCH d").await.0, "34000");
        run("ROLLBACK").await;
        assert_eq!(refusal(&client, &format!("DECLARE e CURSOR FOR {query}")).await.0, "25P01");
    }
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_go_as_postgresqls_go() {
    let cluster = Cluster::start().await;
    go_as_postgresql_goes(&cluster).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_on_sqlite_shards_go_as_postgresqls_go() {
    let cluster = Cluster::start_embedded().await;
    go_as_postgresql_goes(&cluster).await;
    cluster.close().await;
}

/// What JDBC and others do with a fetch size.
async fn portals_are_taken_in_parts(cluster: &Cluster) {
    let mut client = with_notes(cluster).await;
    let transaction = client.transaction().await.unwrap();
    let of_one = transaction.prepare("SELECT id FROM notes WHERE tenant = $1 ORDER BY id").await.unwrap();
    let of_all = transaction.prepare("SELECT id FROM notes WHERE id >= $1 ORDER BY id").await.unwrap();
    let one = transaction.bind(&of_one, &[&3_i64]).await.unwrap();
    let all = transaction.bind(&of_all, &[&10_i64]).await.unwrap();
    let more = async |portal, count| -> Vec<i64> {
        let rows = transaction.query_portal(portal, count).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(more(&all, 3).await, [10, 11, 12]);
    assert_eq!(more(&one, 2).await, [3, 13]);
    // A statement in between does not disturb them, nor what it writes.
    transaction.execute("DELETE FROM notes WHERE tenant = 3", &[]).await.unwrap();
    assert_eq!(more(&one, 2).await, [23]);
    assert_eq!(more(&one, 2).await, [0; 0]);
    assert_eq!(more(&all, 15).await, (13..28).collect::<Vec<i64>>());
    assert_eq!(more(&all, 0).await, [28, 29]);
    assert_eq!(more(&all, 0).await, [0; 0]);
    drop((one, all));
    transaction.rollback().await.unwrap();
    assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["30"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn portals_with_a_fetch_size_are_taken_in_parts() {
    for cluster in [Cluster::start().await, Cluster::start_embedded().await] {
        portals_are_taken_in_parts(&cluster).await;
        cluster.close().await;
    }
}

/// WITH HOLD: rows as they were when the transaction was committed, until the cursor is closed.
async fn outlive_their_transaction(cluster: &Cluster) {
    let (client, other) = (with_notes(cluster).await, cluster.connect().await);
    let run = async |sql: &str| drop(rows(&client, sql).await);
    let of = async |sql: &str| numbers(&client, sql).await;
    run("BEGIN").await;
    run("INSERT INTO notes VALUES (3, 33, 'mine')").await;
    run(&format!("DECLARE one SCROLL CURSOR WITH HOLD FOR {OF_ONE}")).await;
    run("DECLARE two CURSOR WITH HOLD FOR SELECT id FROM notes WHERE tenant = 3 ORDER BY id DESC").await;
    run(&format!("DECLARE gone CURSOR FOR {OF_ONE}")).await;
    assert_eq!(of("FETCH 2 FROM one").await, [3, 13]);
    run("COMMIT").await;
    rows(&other, "DELETE FROM notes WHERE tenant = 3").await;
    assert_eq!(of("FETCH ALL FROM one").await, [23, 33]);
    assert_eq!(of("FETCH FIRST FROM one").await, [3]);
    run("BEGIN").await;
    assert_eq!(of("FETCH 3 FROM two").await, [33, 23, 13]);
    run("ROLLBACK").await;
    assert_eq!(refusal(&client, "FETCH gone").await.0, "34000");
    run("CLOSE one").await;
    assert_eq!(refusal(&client, "FETCH one").await.0, "34000");
    assert_eq!(of("FETCH ALL FROM two").await, [3]);

    // Outside a transaction, over all shards, by the extended protocol, and with settings of the moment.
    client
        .execute(
            "DECLARE all_of_them CURSOR WITH HOLD FOR SELECT id, at FROM \
                    (SELECT id, '2024-07-01 12:00:00+00'::timestamptz AS at FROM notes) n ORDER BY id",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(of("FETCH 2 FROM all_of_them").await, [0, 1]);
    run("SET TimeZone = '+09'").await;
    assert_eq!(rows(&client, "FETCH all_of_them").await, [["2", "2024-07-01 21:00:00+09"]]);
    run("CLOSE ALL").await;
    assert_eq!(refusal(&client, "FETCH all_of_them").await.0, "34000");

    // What is rolled back, or cannot be committed, leaves none.
    run("BEGIN").await;
    run(&format!("DECLARE c CURSOR WITH HOLD FOR {OF_ALL}")).await;
    run("ROLLBACK").await;
    assert_eq!(refusal(&client, "FETCH c").await.0, "34000");
    let state = refusal(&client, "DECLARE c CURSOR WITH HOLD FOR SELECT 1 / (id - 29) FROM notes").await.0;
    assert_eq!(state, "22012");
    assert_eq!(refusal(&client, "FETCH c").await.0, "34000");
    run(&format!("DECLARE c CURSOR WITH HOLD FOR {OF_ALL}")).await;
    run("DISCARD ALL").await;
    assert_eq!(refusal(&client, "FETCH c").await.0, "34000");

    // Sessions come back: there are fewer than cursors were made.
    for _ in 0..8 {
        run(&format!("DECLARE c CURSOR WITH HOLD FOR {OF_ALL}")).await;
        run("DECLARE d CURSOR WITH HOLD FOR SELECT id FROM notes WHERE tenant = 1").await;
        assert_eq!(of("FETCH 1 FROM c").await, [0]);
        run("CLOSE c").await;
        run("CLOSE d").await;
    }
    // They keep nothing from moving: neither keys nor ranges.
    run(&format!("DECLARE c CURSOR WITH HOLD FOR {OF_ALL}")).await;
    run("DECLARE d CURSOR WITH HOLD FOR SELECT id FROM notes WHERE tenant = 1 ORDER BY id").await;
    let moves = cluster.swap_and_keep("tenants").await;
    cluster.clean_up(moves).await;
    assert_eq!(of("FETCH 2 FROM c").await, [0, 1]);
    assert_eq!(of("FETCH ALL FROM d").await, [1, 11, 21]);
    drop((client, other));
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_with_hold_outlive_their_transaction() {
    let cluster = Cluster::start_with(Setup { raw_max: 4, ..Setup::default() }).await;
    outlive_their_transaction(&cluster).await;
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cursors_with_hold_on_sqlite_shards_outlive_their_transaction() {
    let cluster = Cluster::start_embedded().await;
    outlive_their_transaction(&cluster).await;
    cluster.close().await;
}
