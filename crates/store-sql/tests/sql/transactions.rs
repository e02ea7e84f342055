//! Transactions, savepoints and failure, as a client sees them. C1, C3.

use std::time::Duration;

use polyshard_map::{Key, KeyRange, MapName, Scheme};
use polyshard_store_sql::Limits;

use crate::support::{Cluster, Setup, refusal, rows};

/// Two tenants of different shards.
async fn apart(cluster: &Cluster) -> (i64, i64) {
    let client = cluster.connect().await;
    for tenant in 0..30_i64 {
        client.execute("INSERT INTO notes VALUES ($1, 0, 'probe')", &[&tenant]).await.unwrap();
    }
    let first = |shard: &str| cluster.on_shard(shard, "SELECT min(tenant) FROM notes").parse().unwrap();
    (first("s1"), first("s2"))
}

/// Runs a script once, each of its pipelines as one series.
pub async fn script(cluster: &Cluster, text: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.sql");
    std::fs::write(&path, text).unwrap();
    let file = path.to_str().unwrap();
    cluster.program("pgbench", &["-n", "-M", "extended", "-t", "1", "-f", file]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_stays_on_its_shard_and_fails_as_a_whole() {
    let cluster = Cluster::with_tables().await;
    let (here, there) = apart(&cluster).await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    let of = |tenant: i64| format!("SELECT body FROM notes WHERE tenant = {tenant} AND id = 1");

    run("BEGIN").await;
    // What every shard has does not bind it to one.
    run("SELECT 1").await;
    run("SELECT * FROM countries").await;
    run(&format!("INSERT INTO notes VALUES ({there}, 1, 'x')")).await;
    let (state, message) = refusal(&client, &format!("INSERT INTO notes VALUES ({here}, 1, 'x')")).await;
    assert_eq!(state, "0A000");
    assert!(message.contains("s1") && message.contains("s2"), "{message}");
    assert_eq!(refusal(&client, "SELECT 1").await.0, "25P02");
    // COMMIT of a failed transaction is a rollback.
    run("COMMIT").await;
    assert!(run(&of(there)).await.is_empty());

    run("BEGIN").await;
    run(&format!("INSERT INTO notes VALUES ({here}, 1, 'one')")).await;
    run("SAVEPOINT a").await;
    assert_eq!(refusal(&client, &format!("INSERT INTO notes VALUES ({here}, 1, 'twice')")).await.0, "23505");
    assert_eq!(refusal(&client, &of(here)).await.0, "25P02");
    run("ROLLBACK TO SAVEPOINT a").await;
    assert_eq!(refusal(&client, &format!("INSERT INTO notes VALUES ({there}, 1, 'x')")).await.0, "0A000");
    run("ROLLBACK TO a").await;
    run(&format!("UPDATE notes SET body = 'two' WHERE tenant = {here} AND id = 1")).await;
    run("RELEASE a").await;
    assert_eq!(refusal(&client, "ROLLBACK TO a").await.0, "3B001");
    run("ROLLBACK").await;

    // A savepoint before anything says where the transaction is.
    run("BEGIN").await;
    run("SAVEPOINT b").await;
    run(&format!("INSERT INTO notes VALUES ({here}, 1, 'one')")).await;
    run("ROLLBACK TO b").await;
    run(&format!("INSERT INTO notes VALUES ({here}, 1, 'again')")).await;
    run("COMMIT").await;
    assert_eq!(run(&of(here)).await, [["again"]]);
    assert_eq!(refusal(&client, "SAVEPOINT c").await.0, "25P01");
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_statements_in_one_message_are_one_transaction() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let all = "SELECT id FROM notes WHERE tenant = 7 ORDER BY id";
    let twice = "INSERT INTO notes VALUES (7, 1, 'a'); INSERT INTO notes VALUES (7, 1, 'b')";
    assert_eq!(refusal(&client, twice).await.0, "23505");
    assert!(rows(&client, all).await.is_empty());
    let both = "INSERT INTO notes VALUES (7, 1, 'a'); INSERT INTO notes VALUES (7, 2, 'b'); SELECT 3";
    assert_eq!(rows(&client, both).await, [["3"]]);
    assert_eq!(rows(&client, all).await, [["1"], ["2"]]);
    let mixed = "BEGIN; INSERT INTO notes VALUES (7, 3, 'c'); COMMIT; INSERT INTO notes VALUES (7, 1, 'd')";
    assert_eq!(refusal(&client, mixed).await.0, "23505");
    assert_eq!(rows(&client, all).await, [["1"], ["2"], ["3"]]);
    assert_eq!(refusal(&client, "SELECT 'a' FROM; SELECT 1").await.0, "42601");
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_gives_its_rows_in_parts() {
    let cluster = Cluster::with_tables().await;
    let mut client = cluster.connect().await;
    let insert = "INSERT INTO notes SELECT 9, n, 'x' FROM generate_series(1, 10) n";
    // A set of rows for one tenant, whose key is a constant.
    if client.batch_execute(insert).await.is_err() {
        for id in 1..=10_i64 {
            client.execute("INSERT INTO notes VALUES (9, $1, 'x')", &[&id]).await.unwrap();
        }
    }
    let count = |shard: &str| cluster.on_shard(shard, "SELECT count(*) FROM notes");
    assert_eq!(
        rows(&client, "SELECT count(*) FROM notes WHERE tenant = 9").await,
        [["10"]],
        "{} {}",
        count("s1"),
        count("s2")
    );
    let transaction = client.transaction().await.unwrap();
    let portal =
        transaction.bind("SELECT id FROM notes WHERE tenant = $1 ORDER BY id", &[&9_i64]).await.unwrap();
    let mut got = Vec::new();
    loop {
        let part = transaction.query_portal(&portal, 4).await.unwrap();
        if part.is_empty() {
            break;
        }
        assert!(part.len() <= 4);
        got.extend(part.iter().map(|row| row.get::<_, i64>(0)));
    }
    assert_eq!(got, (1..=10).collect::<Vec<_>>());
    transaction
        .batch_execute("DECLARE c CURSOR FOR SELECT id FROM notes WHERE tenant = 9 ORDER BY id")
        .await
        .unwrap();
    let fetched = transaction.simple_query("FETCH 2 FROM c").await.unwrap();
    assert!(fetched.len() >= 3);
    transaction.commit().await.unwrap();
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_its_client_forgets_is_ended() {
    let limits = Limits { idle_in_transaction: Duration::from_millis(300), ..Limits::default() };
    let cluster = Cluster::start_with(Setup { limits, raw_max: 1, ..Setup::default() }).await;
    cluster.make_tables().await;
    let forgetful = cluster.connect().await;
    rows(&forgetful, "BEGIN; INSERT INTO notes VALUES (1, 1, 'x')").await;
    // The only session of the shard is free again once the transaction is ended.
    let other = cluster.connect().await;
    rows(&other, "INSERT INTO notes VALUES (1, 1, 'y')").await;
    assert_eq!(rows(&other, "SELECT body FROM notes WHERE tenant = 1").await, [["y"]]);
    assert!(forgetful.simple_query("SELECT 1").await.is_err());
    drop((forgetful, other));
    cluster.close().await;
}

/// A series that says BEGIN after something else: what came before it is part of the transaction, as on a server alone.
#[tokio::test(flavor = "multi_thread")]
async fn begin_in_the_middle_of_a_series_begins_on_the_shard() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let of = "SELECT id FROM notes WHERE tenant = 7 ORDER BY id";
    let series = "\\startpipeline\n\
                  INSERT INTO notes VALUES (7, 1, 'a');\n\
                  BEGIN;\n\
                  INSERT INTO notes VALUES (7, 2, 'b');\n\
                  \\endpipeline\n";
    let (done, said) =
        script(&cluster, &format!("{series}INSERT INTO notes VALUES (7, 3, 'c');\nROLLBACK;\n")).await;
    assert!(done, "{said}");
    assert!(rows(&client, of).await.is_empty());
    let (done, said) = script(&cluster, &format!("{series}COMMIT;\n")).await;
    assert!(done, "{said}");
    assert_eq!(rows(&client, of).await, [["1"], ["2"]]);
    // After a failure the rest of the series is passed over, and BEGIN with it.
    let (done, said) = script(&cluster, series).await;
    assert!(!done && said.contains("duplicate key"), "{said}");
    assert_eq!(rows(&client, of).await, [["1"], ["2"]]);
    drop(client);
    cluster.close().await;
}

/// REPEATABLE READ across shards: one snapshot of each shard, for the whole transaction. C4.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_reads_one_snapshot_of_every_shard() {
    let cluster = Cluster::with_tables().await;
    let (client, other) = (cluster.connect().await, cluster.connect().await);
    let run = async |sql: &str| rows(&client, sql).await;
    for tenant in 0..20 {
        run(&format!("INSERT INTO notes VALUES ({tenant}, 1, 'x')")).await;
    }
    let count = "SELECT count(*) FROM notes";
    run("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(run(count).await, [["20"]]);
    for tenant in 0..20 {
        rows(&other, &format!("INSERT INTO notes VALUES ({tenant}, 2, 'new')")).await;
        rows(&other, &format!("DELETE FROM notes WHERE tenant = {tenant} AND id = 1")).await;
    }
    // Neither by key nor over all, in either protocol; but what it writes itself is there.
    assert_eq!(run(count).await, [["20"]]);
    for tenant in 0..20 {
        assert_eq!(run(&format!("SELECT id FROM notes WHERE tenant = {tenant}")).await, [["1"]]);
    }
    assert_eq!(client.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 20);
    run("SAVEPOINT a").await;
    run("INSERT INTO notes VALUES (1, 3, 'mine')").await;
    assert_eq!(run(count).await, [["21"]]);
    // A second shard is not written to, unless that is asked for.
    let mut refused = 0;
    for tenant in 0..20 {
        run("SAVEPOINT b").await;
        if let Err(error) = client.simple_query(&format!("INSERT INTO notes VALUES ({tenant}, 4, 'y')")).await
        {
            assert_eq!(error.code().unwrap().code(), "0A000", "{error:?}");
            refused += 1;
        }
        run("ROLLBACK TO b").await;
    }
    assert!((1..20).contains(&refused), "{refused}");
    run("COMMIT").await;
    assert_eq!(run(count).await, [["21"]]);
    assert_eq!(run("SELECT id FROM notes WHERE tenant = 1 ORDER BY id").await, [["2"], ["3"]]);
    // It began on one shard; the others follow with the first query that needs them.
    run("SET default_transaction_isolation = 'repeatable read'; BEGIN").await;
    assert_eq!(run("SELECT count(*) FROM notes WHERE tenant = 1").await, [["2"]]);
    assert_eq!(run(count).await, [["21"]]);
    rows(&other, "DELETE FROM notes WHERE tenant = 5").await;
    assert_eq!(run(count).await, [["21"]]);
    run("ROLLBACK").await;
    assert_eq!(run(count).await, [["20"]]);
    run("BEGIN ISOLATION LEVEL SERIALIZABLE").await;
    assert_eq!(refusal(&client, count).await.0, "0A000");
    run("ROLLBACK").await;
    drop((client, other));
    cluster.close().await;
}

/// Rows that moved since a snapshot was taken are in none, or in two: that transaction is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_older_than_a_move_is_not_mixed_with_newer_ones() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    for tenant in 0..40 {
        run(&format!("INSERT INTO notes VALUES ({tenant}, 1, 'x')")).await;
    }
    let map = MapName::new("tenants").unwrap();
    let place = |tenant: i64| {
        let view = cluster.router.view();
        view.maps[&map].map.locate(&Key::BigInt(tenant)).unwrap().shard().clone()
    };
    // Those in the middle stay, on either shard; the others change places.
    let before: Vec<_> = (0..40).map(place).collect();
    let definition = cluster.router.view().maps[&map].map.definition().clone();
    let Scheme::Hash(hash) = definition.scheme() else { panic!("no buckets") };
    let middle = definition.buckets(hash.buckets() / 4, hash.buckets() / 4 * 3).unwrap();
    let stays = |tenant: &i64| {
        let placed = cluster.router.view().maps[&map].map.placement(&Key::BigInt(*tenant)).unwrap();
        middle.covers(&KeyRange::point(placed))
    };
    let stayer = (0..40).find(stays).expect("one of forty");
    run("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    run(&format!("SELECT count(*) FROM notes WHERE tenant = {stayer}")).await;
    let moves = cluster.swap_and_keep("tenants").await;
    let comer =
        (0..40).find(|tenant| place(*tenant) == place(stayer) && place(*tenant) != before[*tenant as usize]);
    let comer = comer.expect("one has come to its shard");
    run("SAVEPOINT a").await;
    let (state, message) = refusal(&client, &format!("SELECT * FROM notes WHERE tenant = {comer}")).await;
    assert_eq!(state, "40001", "{message}");
    run("ROLLBACK TO a").await;
    assert_eq!(refusal(&client, "SELECT count(*) FROM notes").await.0, "40001");
    run("ROLLBACK").await;
    run("BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(run("SELECT count(*) FROM notes").await, [["40"]]);
    assert_eq!(run(&format!("SELECT count(*) FROM notes WHERE tenant = {comer}")).await, [["1"]]);
    run("COMMIT").await;
    cluster.clean_up(moves).await;
    assert_eq!(run("SELECT count(*) FROM notes").await, [["40"]]);
    drop(client);
    cluster.close().await;
}
