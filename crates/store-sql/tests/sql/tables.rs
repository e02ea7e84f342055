//! Tables made, declared and changed through the door. G1, C2, C9.

use polyshard_store_sql::{Limits, Undeclared};

use crate::support::{Cluster, Setup, refusal, rows};

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_makes_tables_declares_them_and_works_on() {
    let cluster = Cluster::start().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| drop(rows(&client, sql).await);
    run("CREATE TABLE orders (tenant_id bigint, id bigint, total numeric, PRIMARY KEY (tenant_id, id))")
        .await;
    run("CREATE TABLE countries (code text PRIMARY KEY, name text, seen timestamptz DEFAULT now())").await;
    run("SELECT polyshard.create_map('tenants', 'hash', 'bigint')").await;
    run("SELECT polyshard.shard_table('orders', 'tenants', 'tenant_id')").await;
    run("SELECT polyshard.reference_table('countries')").await;
    for tenant in 0..10 {
        run(&format!("INSERT INTO orders VALUES ({tenant}, 1, 1.50)")).await;
    }
    let count = |shard: &str| cluster.on_shard(shard, "SELECT count(*) FROM orders").parse::<i32>().unwrap();
    assert_eq!(count("s1") + count("s2"), 10);

    // The same rows everywhere, also where a default tells the time.
    run("INSERT INTO countries (code, name) VALUES ('ch', 'Switzerland'), ('is', 'Iceland')").await;
    run("UPDATE countries SET seen = now() + interval '1 day' WHERE code = 'is'").await;
    let all = "SELECT string_agg(c::text, ';' ORDER BY code) FROM countries c";
    let first = cluster.on_shard("s1", all);
    assert!(first.contains("Iceland"), "{first}");
    assert_eq!(first, cluster.on_shard("s2", all));
    let joined = "SELECT c.name FROM orders o JOIN countries c ON c.code = 'ch' WHERE o.tenant_id = 3";
    assert_eq!(rows(&client, joined).await, [["Switzerland"]]);

    // Names that a tool has quoted are found as they are.
    run(r#"CREATE TABLE "Lines" ("tenantId" bigint, id bigint, PRIMARY KEY ("tenantId", id))"#).await;
    run("SELECT polyshard.shard_table('Lines', 'tenants', 'tenantId')").await;
    run(r#"INSERT INTO "Lines" SELECT * FROM UNNEST('{3,3}'::bigint[], '{1,2}'::bigint[])"#).await;
    assert_eq!(
        rows(&client, r#"SELECT id FROM "Lines" WHERE "tenantId" = 3 ORDER BY id"#).await,
        [["1"], ["2"]]
    );

    // A mistake changes nothing anywhere.
    let (state, _) = refusal(&client, "INSERT INTO countries (code, name) VALUES ('ch', 'twice')").await;
    assert_eq!(state, "23505");
    run("INSERT INTO countries VALUES ('x', random()::text, clock_timestamp())").await;
    assert_eq!(cluster.on_shard("s1", all), cluster.on_shard("s2", all));
    run("ALTER TABLE orders ADD COLUMN note text").await;
    assert_eq!(rows(&client, "SELECT note FROM orders WHERE tenant_id = 4").await, [["NULL"]]);
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_in_one_transaction_is_all_or_nothing() {
    let cluster = Cluster::with_tables().await;
    let mut client = cluster.connect().await;
    let migration = client.transaction().await.unwrap();
    migration.batch_execute("CREATE TABLE a (tenant bigint PRIMARY KEY)").await.unwrap();
    migration.batch_execute("CREATE TABLE b (id int PRIMARY KEY, x text)").await.unwrap();
    migration.execute("INSERT INTO b VALUES ($1, $2)", &[&1_i32, &"one"]).await.unwrap();
    let seen = migration.query_one("SELECT x FROM b WHERE id = 1", &[]).await.unwrap();
    assert_eq!(seen.get::<_, String>(0), "one");
    migration.rollback().await.unwrap();
    assert_eq!(refusal(&client, "SELECT * FROM b").await.0, "42P01");

    let migration = client.transaction().await.unwrap();
    migration.batch_execute("CREATE TABLE a (tenant bigint PRIMARY KEY)").await.unwrap();
    migration.batch_execute("SELECT polyshard.shard_table('a', 'tenants', 'tenant')").await.unwrap();
    let (state, message) = {
        let error = migration.batch_execute("INSERT INTO notes VALUES (1, 1, 'x')").await.unwrap_err();
        let db = error.as_db_error().unwrap();
        (db.code().code().to_owned(), db.message().to_owned())
    };
    assert_eq!(state, "0A000", "{message}");
    migration.rollback().await.unwrap();
    let migration = client.transaction().await.unwrap();
    migration.batch_execute("CREATE TABLE a (tenant bigint PRIMARY KEY)").await.unwrap();
    migration.batch_execute("SELECT polyshard.shard_table('a', 'tenants', 'tenant')").await.unwrap();
    migration.commit().await.unwrap();
    for tenant in 0..8_i64 {
        client.execute("INSERT INTO a VALUES ($1)", &[&tenant]).await.unwrap();
    }
    let count = |shard: &str| cluster.on_shard(shard, "SELECT count(*) FROM a").parse::<i32>().unwrap();
    assert_eq!(count("s1") + count("s2"), 8);
    drop(client);
    cluster.close().await;
}

/// A table that is given another name is not a new one, which would be placed on one shard.
#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_table_stays_where_it_is_when_new_ones_are_local() {
    let local = Limits { undeclared: Undeclared::Local, ..Limits::default() };
    for made_before in [true, false] {
        let limits = if made_before { Limits::default() } else { local };
        let cluster = Cluster::start_with(Setup { limits, ..Setup::default() }).await;
        let client = cluster.connect().await;
        rows(&client, "CREATE TABLE a (id int PRIMARY KEY)").await;
        if made_before {
            rows(&client, "INSERT INTO a VALUES (1), (2)").await;
        }
        // Another process, which is told to place new tables on one shard, and renames this one.
        let place = cluster.place.clone();
        let other = Cluster::on(place, &Setup { limits: local, ..Setup::default() }).await;
        let second = other.connect().await;
        rows(&second, "ALTER TABLE a RENAME TO b; CREATE TABLE c (id int PRIMARY KEY)").await;
        if made_before {
            assert_eq!(rows(&second, "SELECT count(*) FROM b").await, [["2"]]);
            assert_eq!(
                cluster.on_shard("s2", "SELECT count(*) FROM b"),
                "2",
                "it is on every shard as before"
            );
        }
        rows(&second, "INSERT INTO b VALUES (3)").await;
        rows(&second, "INSERT INTO c VALUES (3)").await;
        let on_second = if made_before { "3" } else { "0" };
        assert_eq!(cluster.on_shard("s2", "SELECT count(*) FROM b"), on_second);
        assert_eq!(cluster.on_shard("s2", "SELECT count(*) FROM c"), "0");
        drop((client, second));
        other.close().await;
        cluster.close().await;
    }
}

/// A transaction with a temporary table sees what others do to the schema meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_temporary_table_does_not_stop_the_schema() {
    let cluster = Cluster::with_tables().await;
    let (client, other) = (cluster.connect().await, cluster.connect().await);
    rows(&client, "BEGIN").await;
    rows(&client, "SELECT * FROM notes WHERE tenant = 1").await;
    rows(&client, "CREATE TEMP TABLE scratch (tenant bigint, id bigint) ON COMMIT DROP").await;
    rows(&client, "INSERT INTO scratch VALUES (1, 7)").await;
    rows(&other, "CREATE TABLE places (id int PRIMARY KEY)").await;
    rows(&other, "INSERT INTO places VALUES (5)").await;
    assert_eq!(rows(&client, "SELECT id FROM places").await, [["5"]]);
    let here = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND \
                state = 'idle in transaction' AND query LIKE 'SELECT id FROM places%'";
    let elsewhere = if cluster.on_shard("s1", here) == "1" { "s2" } else { "s1" };
    rows(&other, &format!("SELECT polyshard.local_table('places', '{elsewhere}')")).await;
    // It is on another shard than the transaction now: not answered from what was known before.
    let (state, message) = refusal(&client, "SELECT places.id FROM places, scratch").await;
    assert_eq!(state, "0A000", "{message}");
    rows(&client, "ROLLBACK").await;

    // A name that another table gets meanwhile would mean two things.
    rows(&client, "BEGIN").await;
    rows(&client, "SELECT * FROM notes WHERE tenant = 1").await;
    rows(&client, "CREATE TEMP TABLE scratch (tenant bigint, id bigint) ON COMMIT DROP").await;
    rows(&other, "CREATE TABLE scratch (tenant bigint PRIMARY KEY)").await;
    let (state, message) = refusal(&client, "SELECT count(*) FROM scratch").await;
    assert_eq!(state, "0A000", "{message}");
    rows(&client, "ROLLBACK").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM scratch").await, [["0"]]);
    drop((client, other));
    cluster.close().await;
}
