//! Reference tables have the same rows on every shard, whatever a value is worked out from.

use super::both;
use crate::support::{Cluster, refusal, rows};

/// What a shard itself has.
async fn contents(cluster: &Cluster, shard: &str, table: &str) -> Vec<Vec<String>> {
    let client = cluster.connect().await;
    rows(&client, &format!("SET polyshard.shard = '{shard}'")).await;
    let found = rows(&client, &format!("SELECT * FROM {table} ORDER BY id")).await;
    drop(client);
    found
}

async fn rows_are_alike(cluster: &Cluster) {
    let client = cluster.connect().await;
    rows(
        &client,
        "CREATE TABLE lots (id bigint PRIMARY KEY, v double precision DEFAULT random(), \
                   at timestamptz DEFAULT now(), day date DEFAULT CURRENT_DATE, token uuid DEFAULT \
                   gen_random_uuid())",
    )
    .await;
    rows(&client, "SELECT polyshard.reference_table('lots')").await;
    for (sql, is_run) in [
        ("INSERT INTO lots (id) VALUES (1), (2)", true),
        ("INSERT INTO lots (id, v) VALUES (3, DEFAULT), (4, random())", true),
        ("INSERT INTO lots (id, at) VALUES (5, now()), (6, clock_timestamp())", true),
        ("INSERT INTO lots (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET at = DEFAULT, day = DEFAULT", true),
        ("UPDATE lots SET at = DEFAULT WHERE id = 2", true),
        ("INSERT INTO lots (id) SELECT id + 10 FROM lots", true),
        ("INSERT INTO lots (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET v = DEFAULT", false),
        ("UPDATE lots SET (at, v) = (DEFAULT, DEFAULT)", false),
        ("UPDATE lots SET token = gen_random_uuid()", false),
        ("DELETE FROM lots WHERE at > 'now'", false),
    ] {
        match is_run {
            true => drop(rows(&client, sql).await),
            false => assert_eq!(refusal(&client, sql).await.0, "0A000", "{sql}"),
        }
        assert_eq!(contents(cluster, "s1", "lots").await, contents(cluster, "s2", "lots").await, "{sql}");
    }
    // Within a transaction the clock goes on.
    rows(&client, "CREATE TABLE moments (id bigint PRIMARY KEY, at timestamptz, began timestamptz)").await;
    rows(&client, "SELECT polyshard.reference_table('moments')").await;
    rows(&client, "BEGIN; INSERT INTO moments VALUES (1, clock_timestamp(), now())").await;
    rows(&client, "INSERT INTO moments VALUES (2, statement_timestamp(), now()); COMMIT").await;
    let (one, two) =
        ("SELECT at, began FROM moments WHERE id = 1", "SELECT at, began FROM moments WHERE id = 2");
    let (one, two) = (rows(&client, one).await.remove(0), rows(&client, two).await.remove(0));
    assert!(one[0] < two[0] && one[1] == two[1], "{one:?} {two:?}");
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn reference_tables_are_alike_whatever_is_volatile() {
    for cluster in both().await {
        rows_are_alike(&cluster).await;
        cluster.close().await;
    }
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    // Rows that are there get one value of a column that is added.
    rows(&client, "CREATE TABLE old (id bigint PRIMARY KEY)").await;
    rows(&client, "SELECT polyshard.reference_table('old')").await;
    rows(&client, "INSERT INTO old VALUES (1), (2)").await;
    rows(
        &client,
        "ALTER TABLE old ADD COLUMN at timestamptz NOT NULL DEFAULT now(), ADD COLUMN n int DEFAULT 7",
    )
    .await;
    assert_eq!(contents(&cluster, "s1", "old").await, contents(&cluster, "s2", "old").await);
    let told = "SELECT column_default FROM information_schema.columns WHERE table_name = 'old' AND column_name = 'at'";
    assert_eq!(rows(&client, told).await, [["now()"]]);
    rows(&client, "INSERT INTO old (id) VALUES (3)").await;
    assert_eq!(rows(&client, "SELECT count(DISTINCT at) FROM old").await, [["2"]]);
    for default in ["v float8 DEFAULT random()", "token uuid DEFAULT gen_random_uuid()", "count bigserial"] {
        let add = format!("ALTER TABLE old ADD COLUMN {default}");
        assert_eq!(refusal(&client, &add).await.0, "0A000", "{add}");
    }
    rows(&client, "TRUNCATE old; ALTER TABLE old ADD COLUMN token uuid DEFAULT gen_random_uuid()").await;
    rows(&client, "ALTER TABLE notes ADD COLUMN made timestamptz DEFAULT now()").await;
    // Letters for a time zone mean several, and fewer digits another number.
    rows(&client, "CREATE TABLE lots (id bigint PRIMARY KEY, at timestamptz DEFAULT now(), v float8)").await;
    rows(&client, "SELECT polyshard.reference_table('lots')").await;
    rows(&client, "SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Kolkata'").await;
    rows(&client, "INSERT INTO lots (id) VALUES (1)").await;
    let late = "SELECT abs(extract(epoch FROM now() - at)) < 600 FROM lots";
    assert_eq!(rows(&client, late).await, [["t"]]);
    assert_eq!(refusal(&client, "INSERT INTO lots (id, v) VALUES (2, random())").await.0, "0A000");
    assert_eq!(refusal(&client, "INSERT INTO lots (id, at) SELECT 3, at FROM lots").await.0, "0A000");
    rows(&client, "RESET DateStyle").await;
    rows(&client, "INSERT INTO lots (id, at) SELECT 3, at FROM lots").await;
    assert_eq!(rows(&client, "SELECT count(DISTINCT at) FROM lots").await, [["1"]]);
    drop(client);
    cluster.close().await;
}
