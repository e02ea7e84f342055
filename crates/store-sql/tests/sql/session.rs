//! What programs expect of a session: settings by function, blocks of code, isolation, tables nobody declared. C1, G1.

use std::time::Duration;

use crate::support::{Cluster, Setup, refusal, rows};
use polyshard_store_sql::{Limits, Undeclared};

/// pg_dump and PostgREST set things by a function: as a whole statement it is SET.
#[tokio::test(flavor = "multi_thread")]
async fn set_config_alone_is_set() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("CREATE SCHEMA other; CREATE TABLE other.countries (code text PRIMARY KEY)").await;
    assert_eq!(run("SELECT pg_catalog.set_config('search_path', '', false)").await, [[""]]);
    assert_eq!(refusal(&client, "SELECT * FROM countries").await.0, "42P01");
    assert_eq!(run("SELECT set_config('search_path', 'other, public', false)").await, [["other, public"]]);
    assert!(run("SELECT * FROM countries").await.is_empty());
    assert_eq!(run("SELECT count(*) FROM notes").await, [["0"]]);
    run("BEGIN; SELECT set_config('search_path', 'public', true)").await;
    assert_eq!(run("SELECT count(*) FROM countries").await, [["2"]]);
    run("COMMIT").await;
    assert_eq!(run("SELECT count(*) FROM countries").await, [["0"]]);
    assert_eq!(run("SELECT set_config('timezone', 'Asia/Tokyo', false)").await, [["Asia/Tokyo"]]);
    assert_eq!(run("SHOW timezone").await, [["Asia/Tokyo"]]);
    let row = client.query_one("SELECT set_config('work_mem', '8MB', false)", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "8MB");
    assert_eq!(run("SHOW work_mem").await, [["8MB"]]);
    assert_eq!(refusal(&client, "SELECT set_config('work_mem', 'much', false)").await.0, "22023");
    // Hidden in another statement, it would change what names and texts mean without the door knowing.
    for hidden in [
        "SELECT set_config('search_path', 'other', true), 1",
        "SELECT set_config('standard_conforming_strings', 'off', true), 1",
        "SELECT set_config(lower('SEARCH_PATH'), 'other', true)",
    ] {
        assert_eq!(refusal(&client, hidden).await.0, "0A000", "{hidden}");
    }
    run("BEGIN; SELECT set_config('my.tenant', '5', true), 1").await;
    assert_eq!(run("SELECT current_setting('my.tenant')").await, [["5"]]);
    run("COMMIT").await;
    for off in ["SET standard_conforming_strings = off", "SET LOCAL standard_conforming_strings TO 'off'"] {
        assert_eq!(refusal(&client, off).await.0, "0A000");
    }
    run("SET standard_conforming_strings = on").await;
    drop(client);
    cluster.close().await;
}

/// Blocks that migration tools write run on every shard, and on those that come later; others are refused. E3.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_code_change_the_schema_of_every_shard() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    let enumeration = "DO $$ BEGIN CREATE TYPE mood AS ENUM ('sad', 'ok'); \
                       EXCEPTION WHEN duplicate_object THEN null; END $$";
    run(enumeration).await;
    run(enumeration).await;
    run("DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM information_schema.columns WHERE table_name = 'notes' \
         AND column_name = 'feeling') THEN ALTER TABLE notes ADD COLUMN feeling mood; END IF; END $$")
    .await;
    run("DO $do$ BEGIN EXECUTE 'CREATE TABLE made (id int PRIMARY KEY REFERENCES made ON DELETE CASCADE)'; END $do$")
        .await;
    run("INSERT INTO notes VALUES (1, 1, 'x', 'ok')").await;
    assert_eq!(run("SELECT feeling FROM notes WHERE tenant = 1").await, [["ok"]]);
    cluster.server().create_database("s3");
    cluster.add_shard("s3").await;
    cluster.journal.ready(&polyshard_map::ShardId::new("s3").unwrap()).await.unwrap();
    let checked = cluster.journal.check().await.unwrap();
    assert!(checked.differences.is_empty(), "{checked:?}");
    for touching in [
        "DO $$ BEGIN UPDATE notes SET body = 'y'; END $$",
        "DO $$ BEGIN DELETE FROM countries; END $$",
        "DO $$ DECLARE n int; BEGIN SELECT count(*) INTO n FROM pg_class, notes; END $$",
        "DO $$ BEGIN EXECUTE 'INSERT INTO countries VALUES (''xx'')'; END $$",
        "DO LANGUAGE plperl $$ 1 $$",
        "CALL something()",
    ] {
        let (state, message) = refusal(&client, touching).await;
        assert_eq!(state, "0A000", "{touching}: {message}");
    }
    // The connection goes on.
    assert_eq!(run("SELECT count(*) FROM countries").await, [["2"]]);
    drop(client);
    cluster.close().await;
}

/// A session whose transactions have one snapshot has it also where it is not said at BEGIN.
#[tokio::test(flavor = "multi_thread")]
async fn the_default_isolation_counts() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    let both = "SELECT count(*) FROM notes";
    for set in [
        "SET default_transaction_isolation = 'repeatable read'",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    ] {
        run(set).await;
        run("BEGIN").await;
        assert_eq!(refusal(&client, both).await.0, "0A000", "{set}");
        run("ROLLBACK; BEGIN ISOLATION LEVEL READ COMMITTED").await;
        assert_eq!(run(both).await, [["0"]]);
        run("COMMIT; RESET default_transaction_isolation").await;
        run("BEGIN").await;
        assert_eq!(run(both).await, [["0"]]);
        run("COMMIT").await;
    }
    run("BEGIN; SET LOCAL transaction_isolation = 'serializable'").await;
    assert_eq!(refusal(&client, both).await.0, "0A000");
    run("ROLLBACK; BEGIN ISOLATION LEVEL REPEATABLE READ; COMMIT AND CHAIN").await;
    assert_eq!(refusal(&client, both).await.0, "0A000");
    run("ROLLBACK").await;
    // Settings of a transaction and savepoints do not bind it to a shard.
    for tenant in 0..8 {
        run("BEGIN; SET LOCAL statement_timeout = '20s'; SELECT 1; SAVEPOINT a; SELECT * FROM countries")
            .await;
        run(&format!("INSERT INTO notes VALUES ({tenant}, 1, 'x'); RELEASE a")).await;
        assert_eq!(run("SHOW statement_timeout").await, [["20s"]]);
        run("COMMIT").await;
    }
    assert_eq!(run(both).await, [["8"]]);
    drop(client);
    cluster.close().await;
}

fn undeclared(undeclared: Undeclared) -> Setup {
    Setup { limits: Limits { undeclared, ..Limits::default() }, ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_nobody_declared_can_be_refused() {
    let cluster = Cluster::start_with(undeclared(Undeclared::Refuse)).await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("CREATE TABLE t (id int PRIMARY KEY)").await;
    for sql in ["INSERT INTO t VALUES (1)", "SELECT * FROM t", "TRUNCATE t", "EXPLAIN SELECT 1 FROM t"] {
        let (state, message) = refusal(&client, sql).await;
        assert_eq!((state.as_str(), message.contains("sql.undeclared")), ("55000", true), "{sql}: {message}");
    }
    assert!(client.query("SELECT * FROM t WHERE id = $1", &[&1_i32]).await.is_err());
    run("SELECT polyshard.reference_table('t')").await;
    run("INSERT INTO t VALUES (1)").await;
    assert_eq!(run("SELECT count(*) FROM t").await, [["1"]]);
    assert_eq!(run("SELECT relname FROM pg_class WHERE relname = 't'").await, [["t"]]);
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_nobody_declared_can_be_on_the_first_shard() {
    let cluster = Cluster::start_with(undeclared(Undeclared::Local)).await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("CREATE TABLE t (id int PRIMARY KEY)").await;
    run("INSERT INTO t VALUES (1)").await;
    assert_eq!(run("SELECT count(*) FROM t").await, [["1"]]);
    let on = |shard: &str| cluster.on_shard(shard, "SELECT count(*) FROM t");
    assert_eq!((on("s1").as_str(), on("s2").as_str()), ("1", "0"));
    // What is declared with it is as it was said.
    run("BEGIN; CREATE TABLE r (id int PRIMARY KEY); SELECT polyshard.reference_table('r'); COMMIT").await;
    run("INSERT INTO r VALUES (1)").await;
    assert_eq!(cluster.on_shard("s2", "SELECT count(*) FROM r"), "1");
    drop(client);
    cluster.close().await;
}

/// A statement that may have changed something by a function is not done again when its session dies of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_function_may_have_changed_is_not_done_twice() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    // A sequence keeps its count whatever becomes of the transaction.
    run("CREATE SEQUENCE tries").await;
    run("CREATE FUNCTION dies() RETURNS int LANGUAGE sql VOLATILE AS $$ \
         SELECT nextval('public.tries'); SELECT pg_terminate_backend(pg_backend_pid())::int $$")
    .await;
    run("CREATE FUNCTION reads() RETURNS int LANGUAGE sql STABLE AS $$ \
         SELECT pg_terminate_backend(pg_backend_pid())::int $$")
    .await;
    run("INSERT INTO notes VALUES (1, 1, 'x')").await;
    let (state, _) = refusal(&client, "SELECT dies() FROM notes WHERE tenant = 1").await;
    assert!(state.starts_with("08"), "{state}");
    let tries: i64 = ["s1", "s2"]
        .map(|shard| {
            cluster.on_shard(shard, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tries")
        })
        .iter()
        .map(|said| said.parse::<i64>().unwrap())
        .sum();
    assert_eq!(tries, 1);
    // The client's own session goes on.
    assert_eq!(run("SELECT body FROM notes WHERE tenant = 1").await, [["x"]]);
    drop(client);
    cluster.close().await;
}

/// The word to stop reaches the statement of who says it, and never that of who has the session next.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_cancel_stops_nobody_else() {
    let cluster = Cluster::start_with(Setup { raw_max: 1, ..Setup::default() }).await;
    cluster.make_tables().await;
    let (early, late) = (cluster.connect().await, cluster.connect().await);
    let query = "SELECT pg_sleep(1), count(*) FROM notes WHERE tenant = 1";
    rows(&early, "SELECT count(*) FROM notes WHERE tenant = 1").await;
    let stop = early.cancel_token();
    let other = tokio::spawn(async move {
        let found = late.simple_query(query).await.map(|answers| answers.len());
        (found, late)
    });
    // The only session of the shard is at work for the other client, whenever these come.
    for _ in 0..10 {
        stop.cancel_query(tokio_postgres::NoTls).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (found, late) = other.await.unwrap();
    assert!(found.is_ok(), "{found:?}");
    drop((early, late));
    cluster.close().await;
}
