//! The same door before SQLite files. G1, C1, C3.

use crate::support::{Cluster, refusal, rows};

pub async fn with_tables() -> Cluster {
    let cluster = Cluster::start_embedded().await;
    let client = cluster.connect().await;
    for sql in [
        "CREATE TABLE notes (tenant bigint, id bigint, body text, at timestamptz DEFAULT now(), \
         PRIMARY KEY (tenant, id))",
        "CREATE TABLE countries (code text PRIMARY KEY, name text)",
        "SELECT polyshard.create_map('tenants', 'hash', 'bigint')",
        "SELECT polyshard.shard_table('notes', 'tenants', 'tenant')",
        "SELECT polyshard.reference_table('countries')",
        "INSERT INTO countries VALUES ('ch', 'Switzerland'), ('is', 'Iceland')",
    ] {
        rows(&client, sql).await;
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_works_on_sqlite_shards() {
    let cluster = with_tables().await;
    let client = cluster.connect().await;
    for tenant in 0..20_i64 {
        let insert = "INSERT INTO notes (tenant, id, body) VALUES ($1, $2, $3) RETURNING id";
        let row = client.query_one(insert, &[&tenant, &1_i64, &format!("of {tenant}")]).await.unwrap();
        assert_eq!(row.get::<_, i64>(0), 1);
    }
    let statement = client.prepare("SELECT body, at IS NOT NULL FROM notes WHERE tenant = $1").await.unwrap();
    for tenant in 0..20_i64 {
        let row = client.query_one(&statement, &[&tenant]).await.unwrap();
        assert_eq!((row.get::<_, String>(0), row.get::<_, bool>(1)), (format!("of {tenant}"), true));
    }
    let row = client.query_one("SELECT true, 7, 'a'", &[]).await.unwrap();
    assert_eq!(
        (row.get::<_, bool>(0), row.get::<_, i32>(1), row.get::<_, String>(2)),
        (true, 7, "a".to_owned())
    );
    assert_eq!(rows(&client, "SELECT count(*), sum(tenant) FROM notes").await, [["20", "190"]]);
    let some =
        client.query("SELECT tenant FROM notes WHERE tenant < $1 ORDER BY tenant DESC", &[&3_i64]).await;
    assert_eq!(some.unwrap().iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>(), [2, 1, 0]);
    let joined = "SELECT c.name FROM notes n JOIN countries c ON c.code = 'is' WHERE n.tenant = 7";
    assert_eq!(rows(&client, joined).await, [["Iceland"]]);
    assert_eq!(refusal(&client, "SELECT 1/0").await.0, "22012");
    assert_eq!(refusal(&client, "INSERT INTO notes VALUES (1, 1, 'twice')").await.0, "23505");
    assert_eq!(refusal(&client, "SELECT nothing FROM notes WHERE tenant = 1").await.0, "42703");
    let (done, said) = cluster.program("psql", &["-Atc", "SELECT name FROM countries ORDER BY code"]).await;
    assert!(done, "{said}");
    assert_eq!(said, "Switzerland\nIceland\n");
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_on_sqlite_shards_fail_and_roll_back_as_on_postgresql() {
    let cluster = with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    let of = "SELECT body FROM notes WHERE tenant = 1 ORDER BY id";
    run("BEGIN").await;
    run("SELECT * FROM countries").await;
    run("INSERT INTO notes VALUES (1, 1, 'a')").await;
    run("SAVEPOINT s").await;
    assert_eq!(refusal(&client, "INSERT INTO notes VALUES (1, 1, 'b')").await.0, "23505");
    assert_eq!(refusal(&client, of).await.0, "25P02");
    run("ROLLBACK TO s").await;
    run("INSERT INTO notes VALUES (1, 2, 'c')").await;
    assert_eq!(run(of).await, [["a"], ["c"]]);
    run("COMMIT").await;
    assert_eq!(run(of).await, [["a"], ["c"]]);
    run("BEGIN; DELETE FROM notes WHERE tenant = 1; ROLLBACK").await;
    assert_eq!(run(of).await, [["a"], ["c"]]);
    run("BEGIN").await;
    run("CREATE TABLE b (id int PRIMARY KEY, x text)").await;
    run("INSERT INTO b VALUES (1, 'one')").await;
    assert_eq!(run("SELECT x FROM b").await, [["one"]]);
    run("ROLLBACK").await;
    assert_eq!(refusal(&client, "SELECT x FROM b").await.0, "42P01");
    run("BEGIN; CREATE TABLE b (id int PRIMARY KEY, x text); INSERT INTO b VALUES (1, 'one'); COMMIT").await;
    assert_eq!(run("SELECT x FROM b").await, [["one"]]);
    drop(client);
    cluster.close().await;
}
