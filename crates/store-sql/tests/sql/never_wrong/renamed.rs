//! What was declared of a table goes with it when it is called otherwise.

use super::both;
use crate::support::{Cluster, refusal, rows};

async fn declarations_go_with_the_name(cluster: &Cluster) {
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    for tenant in 0..12 {
        run(&format!("INSERT INTO notes (tenant, id, body) VALUES ({tenant}, 1, 'of {tenant}')")).await;
    }
    run("ALTER TABLE notes RENAME TO remarks").await;
    run("INSERT INTO remarks (tenant, id, body) VALUES (12, 1, 'of 12')").await;
    assert_eq!(run("SELECT count(*) FROM remarks").await, [["13"]]);
    for tenant in 0..13 {
        let one = run(&format!("SELECT body FROM remarks WHERE tenant = {tenant}")).await;
        assert_eq!(one, [[format!("of {tenant}")]]);
    }
    // A write without the key is refused as before.
    assert_eq!(refusal(&client, "DELETE FROM remarks").await.0, "0A000");
    // Within the transaction that does it, too, and when that is undone.
    run("BEGIN").await;
    run("ALTER TABLE IF EXISTS public.remarks RENAME TO notes").await;
    assert_eq!(refusal(&client, "INSERT INTO notes (tenant, id) VALUES (5, 9)").await.0, "0A000");
    run("ROLLBACK").await;
    run("BEGIN; SAVEPOINT a; ALTER TABLE remarks RENAME TO notes; ROLLBACK TO a").await;
    run("CREATE TABLE beside (id bigint PRIMARY KEY); COMMIT").await;
    assert_eq!(run("SELECT count(*) FROM remarks").await, [["13"]]);
    // Two tables that exchange their names: one is sharded, the other on every shard.
    run("INSERT INTO beside VALUES (1), (2)").await;
    run("BEGIN; ALTER TABLE remarks RENAME TO between; ALTER TABLE beside RENAME TO remarks").await;
    run("ALTER TABLE between RENAME TO beside; COMMIT").await;
    assert_eq!(run("SELECT count(*) FROM beside").await, [["13"]]);
    run("INSERT INTO remarks VALUES (3)").await;
    assert_eq!(run("SELECT count(*) FROM remarks").await, [["3"]]);
    // One that takes the name of a table that is dropped.
    run("BEGIN; DROP TABLE remarks; ALTER TABLE beside RENAME TO remarks; COMMIT").await;
    assert_eq!(run("SELECT count(*) FROM remarks").await, [["13"]]);
    // A move takes its rows along.
    cluster.move_all("tenants", "s1", "s2").await;
    assert_eq!(run("SELECT count(*) FROM remarks").await, [["13"]]);
    // A table of the name that it had is another.
    run("CREATE TABLE notes (id bigint PRIMARY KEY)").await;
    run("INSERT INTO notes VALUES (7)").await;
    assert_eq!(run("SELECT count(*) FROM notes").await, [["1"]]);
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_table_is_placed_as_before() {
    for cluster in both().await {
        declarations_go_with_the_name(&cluster).await;
        cluster.close().await;
    }
}
