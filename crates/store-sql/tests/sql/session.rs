//! What programs expect of a session: settings by function, blocks of code, isolation, tables nobody declared. C1, G1.

use std::time::Duration;

use crate::support::{Cluster, Place, Setup, refusal, rows};
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
    let other = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    let both = "SELECT count(*) FROM notes";
    // What others write meanwhile is not seen.
    let keeps_its_snapshot = async |what: &str| {
        assert_eq!(run(both).await, [["0"]], "{what}");
        rows(&other, "INSERT INTO notes VALUES (1, 1, 'x')").await;
        assert_eq!(run(both).await, [["0"]], "{what}");
        rows(&other, "DELETE FROM notes WHERE tenant = 1").await;
    };
    for (set, kept) in [
        ("SET default_transaction_isolation = 'repeatable read'", true),
        ("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE", false),
    ] {
        run(set).await;
        run("BEGIN").await;
        if kept {
            keeps_its_snapshot(set).await;
        } else {
            assert_eq!(refusal(&client, both).await.0, "0A000", "{set}");
        }
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
    keeps_its_snapshot("the next one of a chain").await;
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
    drop((client, other));
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

/// A key that is changed moves its rows, if the session asks for it: all or none. C2.
#[tokio::test(flavor = "multi_thread")]
async fn rows_move_to_their_new_key_where_it_is_asked_for() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run(
        "ALTER TABLE notes ADD COLUMN price numeric(6,2), ADD COLUMN tags text[], ADD COLUMN at timestamptz, \
         ADD COLUMN whole int, ADD COLUMN double int GENERATED ALWAYS AS (whole * 2) STORED",
    )
    .await;
    for tenant in 0..16 {
        run(&format!("INSERT INTO notes VALUES ({tenant}, 0, 'probe')")).await;
    }
    let first = |shard: &str| cluster.on_shard(shard, "SELECT min(tenant) FROM notes");
    let (here, there) = (first("s1"), first("s2"));
    let near = cluster.on_shard("s1", &format!("SELECT min(tenant) FROM notes WHERE tenant > {here}"));
    let odd = r"E'it''s\n\\ odd'";
    run(&format!(
        "INSERT INTO notes VALUES ({here}, 1, {odd}, 1.5, '{{a,\"b c\"}}', '2024-02-03 04:05:06.789+00', 7), \
         ({here}, 2, NULL, NULL, NULL, NULL, NULL)"
    ))
    .await;
    let change = |old: &str, new: &str, more: &str| {
        format!("UPDATE notes SET tenant = {new}{more} WHERE tenant = {old} AND id IN (1, 2)")
    };
    let (state, message) = refusal(&client, &change(&here, &there, "")).await;
    assert_eq!((state.as_str(), message.contains("key")), ("0A000", true), "{message}");
    run("SET polyshard.move_rows = on").await;
    // On the same shard it is a plain UPDATE; to another one, two phases are needed.
    run(&change(&here, &near, "")).await;
    assert_eq!(run(&format!("SELECT count(*) FROM notes WHERE tenant = {near} AND id > 0")).await, [["2"]]);
    assert_eq!(refusal(&client, &change(&near, &there, "")).await.0, "0A000");
    run("SET polyshard.multi_shard = 'two_phase'").await;
    let answers =
        client.simple_query(&change(&near, &there, ", price = price * 1.111, whole = 2.6")).await.unwrap();
    let told = |answer: &tokio_postgres::SimpleQueryMessage| {
        matches!(answer, tokio_postgres::SimpleQueryMessage::CommandComplete(2))
    };
    assert!(answers.iter().any(told), "{answers:?}");
    let moved = "SELECT id, body, price, tags, at, whole, double FROM notes WHERE id > 0 ORDER BY id";
    let at = "2024-02-03 04:05:06.789+00";
    run("SET timezone = 'UTC'").await;
    let one = ["1", "it's\n\\ odd", "1.67", "{a,\"b c\"}", at, "3", "6"];
    let two = ["2", "NULL", "NULL", "NULL", "NULL", "3", "6"];
    assert_eq!(run(moved).await, [one, two]);
    assert_eq!(cluster.on_shard("s1", "SELECT count(*) FROM notes WHERE id > 0"), "0");
    assert_eq!(cluster.on_shard("s2", "SELECT count(*) FROM notes WHERE id > 0"), "2");
    // With parameters; and none of it, if the rows do not fit where they come to.
    let (old, new): (i64, i64) = (there.parse().unwrap(), here.parse().unwrap());
    let by = "UPDATE notes SET tenant = $1 WHERE tenant = $2 AND id = 1";
    assert_eq!(client.execute(by, &[&new, &old]).await.unwrap(), 1);
    run(&format!("INSERT INTO notes VALUES ({there}, 1, 'in the way')")).await;
    assert_eq!(refusal(&client, &change(&here, &there, "")).await.0, "23505");
    assert_eq!(cluster.on_shard("s1", "SELECT count(*) FROM notes WHERE id > 0"), "1");
    run(&format!("BEGIN; DELETE FROM notes WHERE tenant = {there} AND id = 1")).await;
    run(&change(&here, &there, "")).await;
    run("ROLLBACK").await;
    assert_eq!(cluster.on_shard("s1", "SELECT count(*) FROM notes WHERE id > 0"), "1");
    for not in [
        format!("UPDATE notes SET tenant = {there} WHERE tenant IN ({here}, {there}, {near})"),
        format!("UPDATE notes SET tenant = {there} WHERE tenant = {here} RETURNING id"),
        format!("UPDATE notes SET tenant = tenant + 1 WHERE tenant = {here}"),
    ] {
        assert_eq!(refusal(&client, &not).await.0, "0A000", "{not}");
    }
    drop(client);
    cluster.close().await;
}

/// Temporary tables live in a transaction on one shard; others would be left behind for whoever has the session next.
#[tokio::test(flavor = "multi_thread")]
async fn temporary_tables_live_in_a_transaction_of_one_shard() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    for tenant in 0..4 {
        run(&format!("INSERT INTO notes VALUES ({tenant}, 1, 'one')")).await;
        run(&format!("BEGIN; SELECT 1 FROM notes WHERE tenant = {tenant}")).await;
        let kind = if tenant % 2 == 0 { "bigint" } else { "text" };
        run(&format!("CREATE TEMP TABLE stage (id {kind}, body text) ON COMMIT DROP")).await;
        run("INSERT INTO stage VALUES (2, 'two'), (3, 'three')").await;
        // The same words mean another table in another transaction.
        let found = client.query_one("SELECT id FROM stage WHERE body = 'two'", &[]).await.unwrap();
        assert_eq!(found.columns()[0].type_().name(), if tenant % 2 == 0 { "int8" } else { "text" });
        run(&format!("INSERT INTO notes SELECT {tenant}, id::bigint, body FROM stage")).await;
        let both = format!(
            "SELECT n.body FROM notes n JOIN stage s ON s.id::bigint = n.id WHERE n.tenant = {tenant}"
        );
        assert_eq!(run(&both).await.len(), 2);
        run("COMMIT").await;
        assert_eq!(run(&format!("SELECT count(*) FROM notes WHERE tenant = {tenant}")).await, [["3"]]);
        assert_eq!(refusal(&client, "SELECT * FROM stage").await.0, "42P01");
    }
    run("BEGIN").await;
    run("CREATE TEMP TABLE mine ON COMMIT DROP AS SELECT * FROM notes WHERE tenant = 3").await;
    assert_eq!(run("SELECT count(*) FROM mine").await, [["3"]]);
    run("ROLLBACK").await;
    for (begin, sql) in [
        ("BEGIN", "CREATE TEMP TABLE t (a int)"),
        ("SELECT 1", "CREATE TEMP TABLE t (a int) ON COMMIT DROP"),
        ("BEGIN", "CREATE TEMP TABLE countries (a int) ON COMMIT DROP"),
        ("BEGIN", "CREATE TEMP TABLE t ON COMMIT DROP AS SELECT * FROM notes"),
    ] {
        run(begin).await;
        let (state, message) = refusal(&client, sql).await;
        assert_eq!(state, "0A000", "{sql}: {message}");
        run("ROLLBACK").await;
    }
    drop(client);
    cluster.close().await;
}

/// Cursors of one shard move as PostgreSQL's do.
#[tokio::test(flavor = "multi_thread")]
async fn cursors_are_read_moved_and_closed() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    for id in 1..=5 {
        run(&format!("INSERT INTO notes VALUES (1, {id}, 'x')")).await;
    }
    run("BEGIN; DECLARE c SCROLL CURSOR FOR SELECT id FROM notes WHERE tenant = 1 ORDER BY id").await;
    assert_eq!(run("FETCH 2 FROM c").await, [["1"], ["2"]]);
    run("MOVE FORWARD 1 IN c").await;
    assert_eq!(run("FETCH NEXT FROM c").await, [["4"]]);
    assert_eq!(run("FETCH BACKWARD 2 FROM c").await, [["3"], ["2"]]);
    assert_eq!(run("FETCH LAST FROM c").await, [["5"]]);
    run("CLOSE c; SAVEPOINT a").await;
    assert_eq!(refusal(&client, "FETCH c").await.0, "34000");
    run("ROLLBACK TO a; CLOSE ALL; COMMIT").await;
    assert_eq!(refusal(&client, "FETCH c").await.0, "34000");
    drop(client);
    cluster.close().await;
}

/// A trigger that gives rows another key would put them where nobody looks for them.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_whose_triggers_set_its_key_is_not_sharded() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("CREATE TABLE t (tenant bigint, id bigint, tenant_name text, PRIMARY KEY (tenant, id))").await;
    run("CREATE FUNCTION sets() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN NEW.tenant_name := 'x'; IF NEW.tenant = 5 THEN NEW.id = 1; END IF; RETURN NEW; END $$")
    .await;
    run("CREATE TRIGGER harmless BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION sets()").await;
    run("CREATE FUNCTION sets_key() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN NEW . \"tenant\" := 5; RETURN NEW; END $$")
    .await;
    run("CREATE TRIGGER harmful BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION sets_key()").await;
    let declare = "SELECT polyshard.shard_table('t', 'tenants', 'tenant')";
    let (state, message) = refusal(&client, declare).await;
    assert_eq!((state.as_str(), message.contains("harmful")), ("42P16", true), "{message}");
    run("DROP TRIGGER harmful ON t; CREATE RULE other AS ON INSERT TO t DO INSTEAD NOTHING").await;
    let (state, message) = refusal(&client, declare).await;
    assert_eq!((state.as_str(), message.contains("rule other")), ("42P16", true), "{message}");
    run("DROP RULE other ON t").await;
    // A comparison with the key is no assignment.
    run(declare).await;
    drop(client);
    cluster.close().await;
}

/// A sharded table that is called otherwise is not a reference table for the rest of the transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_renamed_within_a_transaction_is_placed_as_before() {
    let cluster = Cluster::with_tables().await;
    let client = cluster.connect().await;
    rows(&client, "BEGIN").await;
    rows(&client, "ALTER TABLE notes RENAME TO remarks").await;
    assert_eq!(refusal(&client, "INSERT INTO remarks VALUES (5, 1, 'x')").await.0, "0A000");
    rows(&client, "ROLLBACK").await;
    rows(&client, "BEGIN").await;
    rows(&client, "ALTER TABLE notes RENAME TO remarks").await;
    rows(&client, "COMMIT").await;
    rows(&client, "INSERT INTO remarks VALUES (5, 1, 'x')").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM remarks").await, [["1"]]);
    drop(client);
    cluster.close().await;
}

/// What names no key is asked of the shard that the session has chosen, of the rows that are its own. C3, G1.
async fn a_shard_can_be_chosen(cluster: &Cluster) {
    cluster.make_tables().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    for tenant in 0..20 {
        run(&format!("INSERT INTO notes VALUES ({tenant}, 1, 'x')")).await;
    }
    run("CREATE TABLE audit (id int PRIMARY KEY)").await;
    run("SELECT polyshard.local_table('audit', 's2')").await;
    let count = "SELECT count(*) FROM notes";
    let mut parts = Vec::new();
    for shard in ["s1", "s2"] {
        run(&format!("SET polyshard.shard = '{shard}'")).await;
        assert_eq!(run("SHOW polyshard.shard").await, [[shard]]);
        let part: usize = run(count).await[0][0].parse().unwrap();
        if !matches!(cluster.place, Place::Files(_)) {
            let named = run("SELECT DISTINCT polyshard.shard() FROM notes").await;
            assert_eq!(named, [[shard]], "only its own");
        }
        assert_eq!(client.query_one(count, &[]).await.unwrap().get::<_, i64>(0), part as i64);
        parts.push(part);
        // What has a key goes where the key is; what every shard has is everywhere; what is on one is there.
        for tenant in 0..20 {
            assert_eq!(run(&format!("{count} WHERE tenant = {tenant}")).await, [["1"]]);
        }
        assert_eq!(run("SELECT count(*) FROM countries").await, [["2"]]);
        assert_eq!(run("SELECT count(*) FROM audit").await, [["0"]]);
        assert_eq!(refusal(&client, "DELETE FROM notes").await.0, "0A000");
    }
    assert_eq!(parts.iter().sum::<usize>(), 20);
    assert!(parts.iter().all(|part| *part > 0), "{parts:?}");
    run("SET polyshard.shard = 's1'").await;
    assert_eq!(refusal(&client, "SELECT count(*) FROM notes, audit").await.0, "0A000");
    // Rows that were left behind by a move are not its own, and those that came are.
    let moves = cluster.swap_and_keep("tenants").await;
    let mut now = Vec::new();
    for shard in ["s1", "s2"] {
        run(&format!("SET polyshard.shard = '{shard}'")).await;
        now.push(run(count).await[0][0].parse::<usize>().unwrap());
    }
    assert_eq!(now.iter().sum::<usize>(), 20, "{now:?}");
    cluster.clean_up(moves).await;
    run("BEGIN; SET polyshard.shard = 's2'; ROLLBACK; RESET polyshard.shard").await;
    assert_eq!(run(count).await, [["20"]]);
    run("SET polyshard.shard = 's9'").await;
    assert_eq!(refusal(&client, count).await.0, "22023");
    assert_eq!(refusal(&client, "SET polyshard.shard = 'no such name!'").await.0, "22023");
    run("RESET ALL").await;
    assert_eq!(run(count).await, [["20"]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_can_choose_a_shard() {
    for cluster in [Cluster::start().await, Cluster::start_embedded().await] {
        a_shard_can_be_chosen(&cluster).await;
        cluster.close().await;
    }
}
