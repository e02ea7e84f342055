//! Answers that clients take in parts: cursors in and beyond transactions, and portals with a fetch size, on both
//! engines. C1, C3.

use bytes::BytesMut;
use tokio_postgres::Client;
use tokio_postgres::types::{IsNull, ToSql, Type, accepts, to_sql_checked};

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

/// Tenants of the two shards.
fn tenants(cluster: &Cluster) -> (String, String) {
    let first = |shard: &str| cluster.on_shard(shard, "SELECT min(tenant) FROM notes");
    (first("s1"), first("s2"))
}

/// What was declared WITH HOLD and then undone is not there, and its name is free.
#[tokio::test(flavor = "multi_thread")]
async fn cursors_of_a_commit_that_failed_are_gone() {
    let cluster = Cluster::start().await;
    let client = with_notes(&cluster).await;
    let run = async |sql: &str| drop(rows(&client, sql).await);
    let of = async |sql: &str| numbers(&client, sql).await;
    run("CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
    run("SELECT polyshard.local_table('late', 's2')").await;
    let declare = "DECLARE c CURSOR WITH HOLD FOR SELECT id FROM late ORDER BY id";
    run("BEGIN; INSERT INTO late VALUES (1), (1)").await;
    run(declare).await;
    assert_eq!(refusal(&client, "COMMIT").await.0, "23505");
    assert_eq!(refusal(&client, "FETCH c").await.0, "34000");
    run("INSERT INTO late VALUES (7)").await;
    run(declare).await;
    assert_eq!(of("FETCH ALL FROM c").await, [7]);
    run("CLOSE c").await;

    run("BEGIN; INSERT INTO late VALUES (8); SAVEPOINT a").await;
    run(declare).await;
    run("ROLLBACK TO a; COMMIT").await;
    assert_eq!(refusal(&client, "FETCH c").await.0, "34000");
    run("BEGIN; INSERT INTO late VALUES (9); SAVEPOINT a").await;
    run(&declare.replace(" c ", " kept ")).await;
    assert_eq!(refusal(&client, &declare.replace(" id FROM", " nobody FROM")).await.0, "42703");
    run("ROLLBACK TO a").await;
    run(&declare.replace(" CURSOR", " NO SCROLL CURSOR")).await;
    run("COMMIT").await;
    assert_eq!(refusal(&client, "FETCH kept").await.0, "34000");
    assert_eq!(of("FETCH 2 FROM c").await, [7, 8]);
    // A refusal does not end it: its name is taken until it is closed.
    assert_eq!(refusal(&client, "FETCH PRIOR FROM c").await.0, "55000");
    assert_eq!(refusal(&client, declare).await.0, "42P03");
    run("CLOSE c").await;
    run(declare).await;
    assert_eq!(of("FETCH ALL FROM c").await, [7, 8, 9]);
    drop(client);
    cluster.close().await;
}

/// Each shard of a transaction with one snapshot keeps the cursors that were declared there.
#[tokio::test(flavor = "multi_thread")]
async fn cursors_with_hold_outlive_a_transaction_with_one_snapshot() {
    let cluster = Cluster::start().await;
    let (client, other) = (with_notes(&cluster).await, cluster.connect().await);
    let run = async |sql: &str| drop(rows(&client, sql).await);
    let of = async |sql: &str| numbers(&client, sql).await;
    let (here, there) = tenants(&cluster);
    for first in [&there, &here] {
        let others = if *first == here { &there } else { &here };
        run("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
        let declare = |name: &str, tenant: &str| {
            format!(
                "DECLARE {name} CURSOR WITH HOLD FOR SELECT id FROM notes WHERE tenant = {tenant} ORDER BY id"
            )
        };
        let count = rows(&client, &format!("SELECT count(*) FROM notes WHERE tenant = {first}")).await;
        run(&declare("one", first)).await;
        rows(&other, &format!("DELETE FROM notes WHERE tenant = {first} AND id >= 20")).await;
        assert_eq!(rows(&client, "SELECT count(*) > 20 FROM notes").await, [["t"]]);
        // The transaction is still where it was: the cursor is found.
        assert_eq!(of("FETCH 1 FROM one").await.len(), 1);
        run(&declare("two", others)).await;
        run(&format!("DECLARE everything CURSOR WITH HOLD FOR {OF_ALL}")).await;
        run("COMMIT").await;
        let rest = of("FETCH ALL FROM one").await.len();
        assert_eq!(count, [[(rest + 1).to_string()]]);
        assert!(of("FETCH ALL FROM two").await.len() >= 2);
        assert!(of("FETCH ALL FROM everything").await.len() > 20);
        run("CLOSE ALL").await;
        assert_eq!(refusal(&client, "FETCH one").await.0, "34000");
    }
    drop((client, other));
    cluster.close().await;
}

/// A cursor on a shard that the transaction only reads outlives it if everything is committed on the others.
#[tokio::test(flavor = "multi_thread")]
async fn cursors_with_hold_outlive_a_transaction_on_several_shards() {
    let cluster = Cluster::start().await;
    let client = with_notes(&cluster).await;
    let run = async |sql: &str| drop(rows(&client, sql).await);
    let (here, _) = tenants(&cluster);
    run("CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
    run("SELECT polyshard.local_table('late', 's2')").await;
    run("SET polyshard.multi_shard = 'two_phase'").await;
    let declare = format!("DECLARE c CURSOR WITH HOLD FOR SELECT id FROM notes WHERE tenant = {here}");
    run("BEGIN; INSERT INTO late VALUES (1), (1)").await;
    run(&declare).await;
    assert_eq!(refusal(&client, "COMMIT").await.0, "23505");
    assert_eq!(refusal(&client, "FETCH c").await.0, "34000");
    for write in ["INSERT INTO late VALUES (1), (2)", "CREATE TABLE more (id int PRIMARY KEY)"] {
        run("BEGIN").await;
        run(write).await;
        run(&declare).await;
        run("COMMIT").await;
        assert_eq!(numbers(&client, "FETCH ALL FROM c").await.len(), 3, "{write}");
        run("CLOSE c").await;
    }
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ninth_cursor_is_refused() {
    let cluster = Cluster::start().await;
    let client = with_notes(&cluster).await;
    let run = async |sql: &str| drop(rows(&client, sql).await);
    let declare = |number: usize| format!("DECLARE c{number} CURSOR WITH HOLD FOR {OF_ONE}");
    for number in 0..8 {
        run(&declare(number)).await;
    }
    assert_eq!(refusal(&client, &declare(8)).await.0, "54000");
    assert!(client.execute(&declare(8), &[]).await.is_err());
    run("CLOSE c3").await;
    run(&declare(8)).await;
    run("CLOSE ALL").await;
    run("BEGIN").await;
    for number in 0..8 {
        run(&declare(number)).await;
    }
    assert_eq!(refusal(&client, &declare(8)).await.0, "54000");
    run("ROLLBACK").await;
    run(&declare(8)).await;
    assert_eq!(numbers(&client, "FETCH ALL FROM c8").await, [3, 13, 23]);
    drop(client);
    cluster.close().await;
}

/// Days since the year 2000, as PostgreSQL has dates.
#[derive(Debug)]
struct Day(i32);

impl ToSql for Day {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    accepts!(DATE);
    to_sql_checked!();
}

/// Parameters of a cursor have the types that PostgreSQL says, as those of its query have.
#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_with_hold_takes_parameters_of_any_type() {
    let cluster = Cluster::start().await;
    let client = with_notes(&cluster).await;
    let (here, there) = tenants(&cluster);
    let one = format!(
        "DECLARE one CURSOR WITH HOLD FOR SELECT id FROM notes \
         WHERE tenant = {here} AND date '2000-01-01' + id::int < $1 ORDER BY id"
    );
    let all = "DECLARE everything CURSOR WITH HOLD FOR SELECT id FROM notes \
               WHERE date '2000-01-01' + id::int < $1 ORDER BY id";
    for (sql, fetch) in [(one.as_str(), "FETCH ALL FROM one"), (all, "FETCH ALL FROM everything")] {
        let statement = client.prepare(sql).await.unwrap();
        assert_eq!(statement.params(), [Type::DATE]);
        client.execute(&statement, &[&Day(5)]).await.unwrap();
        let found = numbers(&client, fetch).await;
        assert!(!found.is_empty() && found.iter().all(|id| *id < 5), "{found:?}");
        rows(&client, "CLOSE ALL").await;
    }
    // It binds the transaction to its shard.
    rows(&client, "BEGIN").await;
    client.execute(one.as_str(), &[&Day(5)]).await.unwrap();
    let elsewhere = format!("SELECT id FROM notes WHERE tenant = {there}");
    assert_eq!(refusal(&client, &elsewhere).await.0, "0A000");
    rows(&client, "ROLLBACK").await;
    drop(client);
    cluster.close().await;
}
