//! Logging in, and statements of one shard. G1, C1.

use crate::support::{Cluster, refusal, rows};

#[tokio::test(flavor = "multi_thread")]
async fn psql_speaks_with_the_shards() {
    let cluster = Cluster::with_tables().await;
    let (done, said) = cluster.program("psql", &["-Atc", "SELECT 1, 'a'"]).await;
    assert!(done, "{said}");
    assert_eq!(said, "1|a\n");
    let (done, said) = cluster
        .program(
            "psql",
            &["-Atc", "INSERT INTO notes VALUES (1, 1, 'one')", "-c", "SELECT * FROM notes WHERE tenant = 1"],
        )
        .await;
    assert!(done, "{said}");
    assert_eq!(said, "INSERT 0 1\n1|1|one\n");
    let (done, said) = cluster.program("psql", &["-c", "\\d notes", "-c", "\\dt", "-c", "\\l"]).await;
    assert!(done, "{said}");
    assert!(said.contains("tenant") && said.contains("notes"), "{said}");
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_prepares_binds_and_runs_transactions() {
    let cluster = Cluster::with_tables().await;
    let mut client = cluster.connect().await;
    for tenant in 0..20_i64 {
        let done = client
            .execute("INSERT INTO notes VALUES ($1, $2, $3)", &[&tenant, &1_i64, &format!("of {tenant}")])
            .await
            .unwrap();
        assert_eq!(done, 1);
    }
    let statement = client.prepare("SELECT body FROM notes WHERE tenant = $1").await.unwrap();
    for tenant in 0..20_i64 {
        let row = client.query_one(&statement, &[&tenant]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), format!("of {tenant}"));
    }
    let on = |shard: &str| cluster.on_shard(shard, "SELECT count(*) FROM notes").parse::<i32>().unwrap();
    let (first, second) = (on("s1"), on("s2"));
    assert_eq!(first + second, 20);
    assert!(first > 0 && second > 0, "{first} {second}");

    let transaction = client.transaction().await.unwrap();
    transaction.execute("UPDATE notes SET body = 'new' WHERE tenant = $1", &[&3_i64]).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(rows(&client, "SELECT body FROM notes WHERE tenant = 3").await, [["of 3"]]);
    let transaction = client.transaction().await.unwrap();
    transaction.execute("UPDATE notes SET body = 'new' WHERE tenant = $1", &[&3_i64]).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(rows(&client, "SELECT body FROM notes WHERE tenant = 3").await, [["new"]]);

    let (state, message) = refusal(&client, "INSERT INTO notes (id, body) VALUES (1, 'x')").await;
    assert!(message.contains("tenant"), "{state} {message}");
    assert_eq!(
        rows(&client, "SELECT name FROM countries ORDER BY code").await,
        [["Switzerland"], ["Iceland"]]
    );
    assert_eq!(rows(&client, "SELECT count(*), min(id) FROM notes").await, [["20", "1"]]);
    let all =
        client.query("SELECT tenant FROM notes WHERE tenant < $1 ORDER BY tenant", &[&5_i64]).await.unwrap();
    assert_eq!(all.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    drop(client);
    cluster.close().await;
}
