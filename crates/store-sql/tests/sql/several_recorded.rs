//! What clients do inside transactions under `polyshard.multi_shard = 'eventual'`, and what is kept of them to be done
//! again. C3.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt;
use polyshard_engine::Statement;
use polyshard_map::ShardId;
use tokio_postgres::Client;

use crate::several_eventual::{
    all_are, apart, complete_newest, connect, files, last_write, make_tables, server, stopping,
};
use crate::support::{Cluster, Place, Setup, refusal, rows};

fn add(tenant: i64, n: i64) -> String {
    format!("UPDATE counts SET n = n + {n} WHERE tenant = {tenant}")
}

async fn counts(client: &Client, one: i64, two: i64) -> Vec<String> {
    let mut found = Vec::new();
    for tenant in [one, two] {
        found.extend(rows(client, &format!("SELECT n FROM counts WHERE tenant = {tenant}")).await.concat());
    }
    found
}

/// Cursors, portals and COPY go on as always while nothing was written, and reading binds to nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_has_not_written_reads_as_always() {
    let cluster = Cluster::on_place(files(), &Setup::default()).await;
    let mut client = make_tables(&cluster).await;
    rows(&client, "CREATE TABLE here (a bigint PRIMARY KEY)").await;
    rows(&client, "SELECT polyshard.local_table('here', 's1')").await;
    let (one, two) = apart(&cluster).await;
    rows(&client, "BEGIN").await;
    let declare = format!("DECLARE c CURSOR FOR SELECT tenant FROM counts WHERE tenant = {one}");
    assert_eq!(rows(&client, &declare).await, Vec::<Vec<String>>::new());
    assert_eq!(rows(&client, "FETCH 100 FROM c").await, [[one.to_string()]]);
    // Of one shard, of all shards, and of another one; then it writes on two.
    assert_eq!(counts(&client, one, two).await, ["0", "0"]);
    assert_eq!(rows(&client, "SELECT count(*) FROM counts").await, [["20"]]);
    rows(&client, &add(two, -1)).await;
    rows(&client, &add(one, 1)).await;
    assert_eq!(rows(&client, "FETCH 100 FROM c").await, Vec::<Vec<String>>::new());
    rows(&client, "COMMIT").await;
    assert_eq!(counts(&client, one, two).await, ["1", "-1"]);

    for lock in ["", " FOR UPDATE"] {
        let transaction = client.transaction().await.unwrap();
        let query = format!("SELECT n FROM counts WHERE tenant = $1{lock}");
        let portal = transaction.bind(query.as_str(), &[&one]).await.unwrap();
        let found = transaction.query_portal(&portal, 1).await.unwrap();
        assert_eq!(found.len(), 1);
        transaction.execute(add(one, 1).as_str(), &[]).await.unwrap();
        transaction.execute(add(two, -1).as_str(), &[]).await.unwrap();
        transaction.commit().await.unwrap();
    }
    assert_eq!(counts(&client, one, two).await, ["3", "-3"]);

    rows(&client, "BEGIN").await;
    let mut sink = pin!(client.copy_in::<_, Bytes>("COPY here FROM STDIN").await.unwrap());
    sink.send(Bytes::from_static(b"1\n2\n")).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 2);
    rows(&client, "COMMIT").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM here").await, [["2"]]);
    drop(client);
    cluster.close().await;
}

/// What a savepoint undoes on a shard is no part of the write, also if nothing else was written there.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_whose_writes_were_all_undone_is_no_part_of_the_write() {
    let cluster = Cluster::on_place(files(), &Setup::default()).await;
    let client = make_tables(&cluster).await;
    let (one, two) = apart(&cluster).await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("BEGIN").await;
    run(&add(one, 1)).await;
    run("SAVEPOINT a").await;
    run(&add(two, 1)).await;
    run("ROLLBACK TO a").await;
    run("COMMIT").await;
    assert_eq!(counts(&client, one, two).await, ["1", "0"]);

    run("BEGIN").await;
    run(&add(one, 1)).await;
    run("SAVEPOINT a").await;
    assert_eq!(refusal(&client, &format!("INSERT INTO counts VALUES ({two}, 1)")).await.0, "23505");
    run("ROLLBACK TO a").await;
    run("RELEASE a").await;
    run("COMMIT").await;
    assert_eq!(counts(&client, one, two).await, ["2", "0"]);

    // Everything was undone; then it begins anew.
    run("BEGIN").await;
    run("SAVEPOINT a").await;
    run(&add(one, 1)).await;
    run(&add(two, 1)).await;
    run("ROLLBACK TO a").await;
    run(&add(two, 5)).await;
    run(&add(one, 5)).await;
    run("COMMIT").await;
    assert_eq!(counts(&client, one, two).await, ["7", "5"]);
    run("BEGIN; SAVEPOINT a").await;
    run(&add(one, 1)).await;
    run("ROLLBACK TO a; COMMIT").await;
    assert_eq!(counts(&client, one, two).await, ["7", "5"]);
    drop(client);
    cluster.close().await;
}

/// Settings that shards have taken over stay as they are, and those that a savepoint undoes are undone on shards, too.
#[tokio::test(flavor = "multi_thread")]
async fn settings_do_not_change_within_a_transaction_on_several_shards() {
    let cluster = Cluster::on_place(files(), &Setup::default()).await;
    let client = make_tables(&cluster).await;
    let (one, two) = apart(&cluster).await;
    let run = async |sql: &str| rows(&client, sql).await;
    for change in [
        "SET polyshard.multi_shard = 'refuse'",
        "RESET polyshard.multi_shard",
        "SET TIME ZONE '+05'",
        "SET LOCAL timezone = '+05'",
        "SELECT set_config('timezone', '+05', false)",
        "SET search_path = public, other",
        "RESET ALL",
    ] {
        run("BEGIN").await;
        run(&add(one, 1)).await;
        assert_eq!(refusal(&client, change).await.0, "0A000", "{change}");
        run("ROLLBACK").await;
    }
    assert_eq!(counts(&client, one, two).await, ["0", "0"]);

    let at = format!("UPDATE counts SET at = '2024-01-01 00:00' WHERE tenant IN ({one}, {two})");
    let hours = "SELECT DISTINCT at = '2024-01-01 00:00+00' FROM counts WHERE at IS NOT NULL";
    run("SET TIME ZONE 'UTC'").await;
    run("BEGIN; SAVEPOINT a; SET TIME ZONE '+05'").await;
    run(&at).await;
    run("ROLLBACK TO a").await;
    run(&at).await;
    run("COMMIT").await;
    assert_eq!(run(hours).await, [["t"]]);

    // A transaction that may not write on several shards any more has left those that it was on.
    run("SET polyshard.multi_shard = 'refuse'").await;
    run("BEGIN; SAVEPOINT a; SET polyshard.multi_shard = 'eventual'").await;
    run(&add(one, 1)).await;
    run(&add(two, 1)).await;
    run("ROLLBACK TO a").await;
    run(&add(one, 1)).await;
    assert_eq!(refusal(&client, &add(two, 1)).await.0, "0A000");
    run("ROLLBACK").await;
    assert_eq!(counts(&client, one, two).await, ["0", "0"]);
    drop(client);
    cluster.close().await;
}

/// A part that is run again is run under what the client had set, by whatever name.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_client_has_set_is_set_when_a_part_is_run_again() {
    let (failpoint, stop_at, _) = stopping();
    let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
    let cluster = Cluster::on_place(Place::Postgres(server()), &setup).await;
    let client = make_tables(&cluster).await;
    for sql in [
        "CREATE TABLE notes (tenant bigint PRIMARY KEY, who text DEFAULT current_setting('app.who', true), \
         words tsvector)",
        "SELECT polyshard.shard_table('notes', 'tenants', 'tenant')",
        "SET app.who = 'ann''s'; SET default_text_search_config = 'english'",
    ] {
        rows(&client, sql).await;
    }
    "eventual.decide.after".clone_into(&mut stop_at.lock().unwrap());
    let many: Vec<String> = (0..20).map(|tenant| format!("({tenant}, to_tsvector('running'))")).collect();
    let insert = format!("INSERT INTO notes (tenant, words) VALUES {}", many.join(", "));
    assert!(client.simple_query(&insert).await.is_err());
    stop_at.lock().unwrap().clear();
    drop(client);
    complete_newest(&cluster).await;
    let client = connect(&cluster).await;
    let found = rows(&client, "SELECT DISTINCT who, words::text FROM notes").await;
    assert_eq!(found, [["ann's", "'run':1"]]);
    drop(client);
    cluster.close().await;
}

/// A file that is still to get its part, and cannot just now, answers nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_serves_nobody_before_it_has_its_part() {
    let place = files();
    let (failpoint, stop_at, _) = stopping();
    let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
    let cluster = Cluster::on_place(place.clone(), &setup).await;
    let client = make_tables(&cluster).await;
    let (one, two) = apart(&cluster).await;
    "eventual.commit:s2.before".clone_into(&mut stop_at.lock().unwrap());
    assert!(client.simple_query("UPDATE counts SET n = n + 1").await.is_err());
    drop(client);
    cluster.close().await;

    "enter:s2.waits".clone_into(&mut stop_at.lock().unwrap());
    let next = Cluster::on(place, &setup).await;
    let client = connect(&next).await;
    for _ in 0..2 {
        let look = format!("SELECT n FROM counts WHERE tenant = {two}");
        let (state, message) = refusal(&client, &look).await;
        assert_eq!(state, "57P03", "{message}");
        assert!(message.contains("takes no writes just now"), "{message}");
    }
    stop_at.lock().unwrap().clear();
    assert_eq!(counts(&client, one, two).await, ["1", "1"]);
    all_are(&client, 1).await;
    drop(client);
    next.close().await;
}

/// However many marks there are, they are forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn all_marks_of_complete_writes_are_forgotten() {
    let cluster = Cluster::on_place(files(), &Setup::default()).await;
    let client = make_tables(&cluster).await;
    assert!(!last_write(&client).await.is_empty());
    let shard = cluster.router.administer(&ShardId::new("s1").unwrap()).await.unwrap();
    let mut tx = shard.patient_transaction().await.unwrap();
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) \
                INSERT INTO polyshard_several_mark (id) SELECT printf('%036d', i) FROM n";
    tx.run(Statement::new(many)).await.unwrap();
    tx.commit().await.unwrap();
    let keeper = cluster.journal.keep_up();
    let forgotten = async {
        loop {
            let mut look = shard.control_snapshot().await.unwrap();
            let count = Statement::new("SELECT count(*) FROM polyshard_several_mark");
            let left = look.run(count).await.unwrap().first().unwrap().int(0).unwrap();
            look.rollback().await.unwrap();
            if left == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // Less than the pause between two rounds: one round forgets all.
    tokio::time::timeout(Duration::from_secs(25), forgotten).await.unwrap();
    keeper.stop().await;
    drop(client);
    cluster.close().await;
}
