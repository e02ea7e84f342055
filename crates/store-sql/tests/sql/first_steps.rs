//! What people try first in psql, on SQLite shards. G1, C1, C3.

use polyshard_store::rights::Right;

use crate::rights::{connect, on_table, put};
use crate::support::{Cluster, refusal, rows};

async fn with_orders() -> Cluster {
    let cluster = Cluster::start_embedded().await;
    let client = cluster.connect().await;
    for sql in [
        "CREATE TABLE orders (tenant_id bigint, id bigserial, at timestamptz DEFAULT now(), amount numeric(10,2), \
         note text, PRIMARY KEY (tenant_id, id))",
        "SELECT polyshard.create_map('tenants', 'hash', 'bigint')",
        "SELECT polyshard.shard_table('orders', 'tenants', 'tenant_id')",
    ] {
        rows(&client, sql).await;
    }
    cluster
}

/// A table is filled from a series; each row gets an id that no other row has, in the order of the query.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_query_get_ids() {
    let cluster = with_orders().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    let fill =
        "INSERT INTO orders (tenant_id, amount, note) SELECT 5, g, 'n' || g FROM generate_series(1, 50) g";
    assert_eq!(client.execute(fill, &[]).await.unwrap(), 50);
    let ordered = "SELECT count(*), count(DISTINCT id), min(amount), string_agg(note, ',' ORDER BY id) = \
                   (SELECT string_agg('n' || g, ',' ORDER BY g) FROM generate_series(1, 50) g) FROM orders \
                   WHERE tenant_id = 5";
    assert_eq!(run(ordered).await, [["50", "50", "1.00", "t"]]);

    // With parameters and RETURNING, and many more rows than a block of ids has.
    let more =
        "INSERT INTO orders (tenant_id, amount) SELECT 6, g FROM generate_series(1, $1::int) g RETURNING id";
    let given = client.query(more, &[&3000_i32]).await.unwrap();
    let ids: Vec<i64> = given.iter().map(|row| row.get(0)).collect();
    assert!(ids.len() == 3000 && ids.is_sorted() && ids[0] > 50, "{} ids from {}", ids.len(), ids[0]);

    // Within a transaction, after a failure there, and undone.
    run("BEGIN").await;
    assert_eq!(client.execute(fill, &[]).await.unwrap(), 50);
    run("SAVEPOINT s").await;
    let bad = "INSERT INTO orders (tenant_id, amount) SELECT 5, 1 / (g - 3) FROM generate_series(1, 5) g";
    assert_eq!(refusal(&client, bad).await.0, "22012");
    run("ROLLBACK TO s").await;
    assert_eq!(client.execute(fill, &[]).await.unwrap(), 50);
    assert_eq!(run("SELECT count(*) FROM orders WHERE tenant_id = 5").await, [["150"]]);
    run("ROLLBACK").await;
    assert_eq!(refusal(&client, bad).await.0, "22012");
    assert_eq!(client.execute(fill, &[]).await.unwrap(), 50);
    assert_eq!(
        run("SELECT count(*), count(DISTINCT id) FROM orders WHERE tenant_id = 5").await,
        [["100", "100"]]
    );

    // Rows of several shards are refused, as those of VALUES are.
    let several = "INSERT INTO orders (tenant_id, amount) SELECT g, g FROM generate_series(1, 50) g";
    assert_eq!(refusal(&client, several).await.0, "0A000");
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_are_those_of_all_shards() {
    let cluster = with_orders().await;
    let client = cluster.connect().await;
    let size = async |sql: &str| rows(&client, sql).await[0][0].parse::<i64>().unwrap();
    let before = size("SELECT pg_table_size('orders')").await;
    for tenant in 0..8 {
        let fill = format!(
            "INSERT INTO orders (tenant_id, note) SELECT {tenant}, repeat('x', 1000) FROM generate_series(1, 100)"
        );
        rows(&client, &fill).await;
    }
    let after = size("SELECT pg_table_size('orders'::regclass)").await;
    assert!(after - before > 800_000, "800 rows of 1000 bytes take {before} → {after}");
    let one = "SELECT pg_catalog.pg_table_size(c.oid) FROM pg_catalog.pg_class c WHERE c.relname = 'orders'";
    assert_eq!(size(one).await, after);
    assert!(size("SELECT pg_database_size('polyshard')").await > after);
    assert_eq!(refusal(&client, "SELECT pg_relation_size('nothing')").await.0, "42P01");
    let (done, said) = cluster.program("psql", &["-Atc", "\\dt+ orders"]).await;
    assert!(done && said.contains(" kB"), "{said}");

    // Where not all files can be seen, the size is not known; nothing else fails by it.
    let unknown =
        async |sql: &str| client.query_one(sql, &[]).await.unwrap().get::<_, Option<i64>>(0).is_none();
    rows(&client, "BEGIN; INSERT INTO orders (tenant_id, note) VALUES (1, 'kept')").await;
    assert!(unknown(one).await);
    rows(&client, "COMMIT").await;
    assert!(!unknown(one).await);
    let kept = "SELECT count(*) FROM orders WHERE tenant_id = 1 AND note = 'kept'";
    assert_eq!(rows(&client, kept).await, [["1"]]);
    rows(&client, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert!(unknown(one).await);
    rows(&client, "COMMIT").await;
    assert!(unknown("SELECT pg_table_size('orders') FROM orders WHERE tenant_id = 1 LIMIT 1").await);
    let s2 = polyshard_map::ShardId::new("s2").unwrap();
    let away =
        polyshard_catalog::ShardPatch { state: Some(polyshard_map::State::Offline), ..Default::default() };
    cluster.driver.patch_shard(&s2, away, None).await.unwrap();
    cluster.router.refresh().await.unwrap();
    let (done, said) = cluster.program("psql", &["-Atc", "\\dt+ orders"]).await;
    assert!(done && said.contains("orders") && !said.contains(" kB"), "{said}");
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upkeep_and_locks_are_answered_for_what_they_are() {
    let cluster = with_orders().await;
    let client = cluster.connect().await;
    let (done, said) =
        cluster.program("psql", &["-c", "analyze", "-c", "analyze orders", "-c", "vacuum"]).await;
    assert!(done, "{said}");
    assert_eq!(said, "ANALYZE\nANALYZE\nVACUUM\n");
    assert_eq!(refusal(&client, "LOCK TABLE orders").await.0, "25P01");
    rows(&client, "BEGIN").await;
    let (state, message) = refusal(&client, "LOCK TABLE orders").await;
    assert!(state == "0A000" && message.contains("rows on several"), "{message}");
    rows(&client, "ROLLBACK").await;
    // A transaction that has its shard may lock the table: all that it can see of it is its own.
    rows(&client, "BEGIN; SELECT * FROM orders WHERE tenant_id = 1 FOR UPDATE; LOCK TABLE orders; COMMIT")
        .await;
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_settings_are_shown() {
    let cluster = with_orders().await;
    let client = cluster.connect().await;
    let other = cluster.connect().await;
    rows(&other, "SET application_name = 'the other'").await;
    let asked = "SELECT pid = pg_backend_pid(), usename, state, query LIKE 'SELECT pid%' FROM pg_stat_activity \
                 WHERE state IS NOT NULL";
    assert_eq!(rows(&client, asked).await, [["t", "polyshard", "active", "t"]]);
    let named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'the other' AND \
                 pid <> pg_backend_pid()";
    assert_eq!(rows(&client, named).await, [["1"]]);
    let statement = client.prepare(named).await.unwrap();
    assert_eq!(client.query_one(&statement, &[]).await.unwrap().get::<_, i64>(0), 1);
    rows(&other, "RESET application_name").await;
    assert_eq!(client.query_one(&statement, &[]).await.unwrap().get::<_, i64>(0), 0);

    // A user with limited rights is not told of others.
    put(&cluster, "reader", &[on_table(Right::Read, "orders")]).await;
    let reader = connect(&cluster, "reader").await;
    assert_eq!(refusal(&reader, "SELECT usename FROM pg_stat_activity").await.0, "42501");
    assert_eq!(
        rows(&client, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader'").await,
        [["1"]]
    );
    drop(reader);

    rows(&client, "SET statement_timeout = '7s'").await;
    let all = rows(&client, "SHOW ALL").await;
    let find = |name: &str| all.iter().find(|row| row[0] == name).map(|row| row[1].clone());
    assert_eq!(find("statement_timeout").as_deref(), Some("7s"));
    assert_eq!(find("TimeZone").as_deref(), Some("UTC"));
    assert!(all.is_sorted_by_key(|row| row[0].to_lowercase()), "{all:?}");
    let in_table = rows(&client, "SELECT setting FROM pg_settings WHERE name = 'statement_timeout'").await;
    assert_eq!(in_table, [["7s"]]);
    assert_eq!(client.query("SHOW ALL", &[]).await.unwrap().len(), all.len());
    drop((client, other));
    cluster.close().await;
}

/// Rows go from one table to another in one statement, as queues do it.
#[tokio::test(flavor = "multi_thread")]
async fn writes_within_with_are_one_statement() {
    let cluster = with_orders().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("CREATE TABLE past (tenant_id bigint, number bigserial, note text, PRIMARY KEY (tenant_id, number))")
        .await;
    run("SELECT polyshard.shard_table('past', 'tenants', 'tenant_id')").await;
    run("INSERT INTO orders (tenant_id, amount, note) SELECT 5, g, 'n' || g FROM generate_series(1, 50) g")
        .await;
    let count = "WITH d AS (DELETE FROM orders WHERE tenant_id = 5 AND amount > 40 RETURNING *) SELECT count(*) FROM d";
    assert_eq!(run(count).await, [["10"]]);
    assert_eq!(run(count).await, [["0"]]);

    // With parameters, ids for the rows that come, and RETURNING.
    let carry = "WITH d AS (DELETE FROM orders WHERE tenant_id = $1 AND amount <= $2::int RETURNING tenant_id, note, \
                 amount) INSERT INTO past (tenant_id, note) SELECT tenant_id, note FROM d WHERE tenant_id = $1 \
                 ORDER BY amount RETURNING note, number";
    let carried = client.query(carry, &[&5_i64, &3_i32]).await.unwrap();
    let carried: Vec<(String, i64)> = carried.iter().map(|row| (row.get(0), row.get(1))).collect();
    let notes: Vec<&str> = carried.iter().map(|(note, _)| note.as_str()).collect();
    assert_eq!(notes, ["n1", "n2", "n3"]);
    assert!(carried.is_sorted_by_key(|(_, number)| *number), "{carried:?}");

    // What fails half-way leaves everything as it was, in a transaction and out of it.
    let bad =
        "WITH d AS (DELETE FROM orders WHERE tenant_id = 5 RETURNING amount) SELECT 1 / (amount - 7) FROM d";
    assert_eq!(refusal(&client, bad).await.0, "22012");
    run("BEGIN; SAVEPOINT s").await;
    assert_eq!(refusal(&client, bad).await.0, "22012");
    run("ROLLBACK TO s").await;
    assert_eq!(run("SELECT count(*) FROM orders WHERE tenant_id = 5").await, [["37"]]);
    assert_eq!(run(&count.replace("40", "30")).await, [["10"]]);
    run("COMMIT").await;
    assert_eq!(run("SELECT count(*) FROM orders WHERE tenant_id = 5").await, [["27"]]);

    // A cursor only reads.
    run("BEGIN").await;
    assert_eq!(
        refusal(&client, &format!("DECLARE c CURSOR FOR {}", count.replace("40", "0"))).await.0,
        "0A000"
    );
    run("ROLLBACK").await;
    assert_eq!(run("SELECT count(*) FROM orders WHERE tenant_id = 5").await, [["27"]]);

    // Of several shards it is refused, and so it is where nothing may be written.
    let several = "WITH d AS (DELETE FROM orders RETURNING *) SELECT count(*) FROM d";
    assert_eq!(refusal(&client, several).await.0, "0A000");
    run("BEGIN READ ONLY").await;
    assert_eq!(refusal(&client, count).await.0, "25006");
    run("ROLLBACK; BEGIN READ ONLY").await;
    assert_eq!(refusal(&client, "INSERT INTO orders (tenant_id) VALUES (1)").await.0, "25006");
    run("ROLLBACK; BEGIN READ ONLY").await;
    assert_eq!(refusal(&client, "CREATE TABLE more (id int PRIMARY KEY)").await.0, "25006");
    run("ROLLBACK").await;
    assert_eq!(run("SELECT count(*) FROM orders").await, [["27"]]);
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_are_kept() {
    let cluster = with_orders().await;
    let say = "COMMENT ON TABLE orders IS 'all orders'; COMMENT ON COLUMN orders.note IS 'by the clerk'; \
               COMMENT ON DATABASE polyshard IS 'forgotten'";
    let (done, said) = cluster.program("psql", &["-c", say]).await;
    assert!(done && said.contains("is not kept"), "{said}");
    let (done, said) = cluster.program("psql", &["-Atc", "\\dt+ orders", "-c", "\\d+ orders"]).await;
    assert!(done && said.contains("all orders") && said.contains("by the clerk"), "{said}");
    // Every shard has them.
    let client = cluster.connect().await;
    let asked = "SELECT obj_description('orders'::regclass, 'pg_class')";
    for shard in cluster.router.view().shards.keys() {
        rows(&client, &format!("SET polyshard.shard = '{shard}'")).await;
        assert_eq!(rows(&client, asked).await, [["all orders"]]);
    }
    drop(client);
    cluster.close().await;
}
