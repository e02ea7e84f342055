//! SQL while some shards are SQLite files and some PostgreSQL databases. G1, C1-C5, D1.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, TryStreamExt};
use polyshard_testkit::postgres::PgServer;
use tokio_postgres::Client;

use crate::support::{Cluster, Place, Setup, refusal, rows};
use crate::wire::Wire;

/// How long anything may take; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// `s1` is a PostgreSQL database, `s2` an SQLite file.
async fn mixed() -> Cluster {
    let server = PgServer::start();
    for name in ["catalog", "s1"] {
        server.create_database(name);
    }
    let folder = tempfile::tempdir().unwrap();
    let place = Place::Mixed(Arc::new(server), Arc::new(folder));
    Cluster::on_place(place, &Setup { patience: PATIENCE, ..Setup::default() }).await
}

/// `f1` is an SQLite file, `p1` a PostgreSQL database: whoever asks the first one asks the file.
async fn file_first() -> Cluster {
    let server = PgServer::start();
    server.create_database("p1");
    let place = Place::Growing(Arc::new(server), Arc::new(tempfile::tempdir().unwrap()));
    let cluster = Cluster::on(place, &Setup::default()).await;
    for shard in ["f1", "p1"] {
        cluster.add_shard(shard).await;
    }
    cluster
}

/// The tables of the tests, made through the door.
async fn make_tables(client: &Client) {
    for sql in [
        "SELECT polyshard.create_map('tenants', 'hash', 'bigint')",
        "CREATE TABLE notes (tenant bigint, id bigint, body text, at timestamptz, PRIMARY KEY (tenant, id))",
        "SELECT polyshard.shard_table('notes', 'tenants', 'tenant')",
        "CREATE TABLE countries (code text PRIMARY KEY, name text)",
        "INSERT INTO countries VALUES ('ch', 'Switzerland'), ('is', 'Iceland')",
    ] {
        rows(client, sql).await;
    }
}

const TENANTS: i64 = 20;

/// On which shard each tenant is, as the door says it.
async fn tenants_by_engine(cluster: &Cluster) -> (Vec<i64>, Vec<i64>) {
    let view = cluster.router.view();
    let map = &view.maps[&polyshard_map::MapName::new("tenants").unwrap()].map;
    let of = |tenant: &i64| map.locate(&polyshard_map::Key::BigInt(*tenant)).unwrap().shard();
    let on = |tenant: &i64| ["s1", "p1"].contains(&of(tenant).as_str());
    (0..TENANTS).partition(on)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_on_either_engine_are_read_and_written_by_key() {
    let cluster = mixed().await;
    let client = cluster.connect().await;
    make_tables(&client).await;
    let (servers, files) = tenants_by_engine(&cluster).await;
    assert!(!servers.is_empty() && !files.is_empty(), "both engines have rows");
    for tenant in 0..TENANTS {
        let insert =
            format!("INSERT INTO notes VALUES ({tenant}, 1, 'it''s', '2024-02-29 12:00+00') RETURNING id");
        assert_eq!(rows(&client, &insert).await, [["1"]]);
    }
    let read =
        client.prepare("SELECT id, body, at::text FROM notes WHERE tenant = $1 AND id = $2").await.unwrap();
    let write = client.prepare("UPDATE notes SET body = $3 WHERE tenant = $1 AND id = $2").await.unwrap();
    for tenant in 0..TENANTS {
        // Both protocols, and often enough that the short ways are taken.
        for _ in 0..6 {
            let text = format!("SELECT body FROM notes WHERE tenant = {tenant} AND id = 1");
            assert_eq!(rows(&client, &text).await, [["it's"]]);
        }
        let row = client.query_one(&read, &[&tenant, &1_i64]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, &str>(1)), (1, "it's"));
        assert!(row.get::<_, &str>(2).starts_with("2024-02-29 12:00:00"), "{row:?}");
        assert_eq!(client.execute(&write, &[&tenant, &1_i64, &"new"]).await.unwrap(), 1);
        let row = client.query_one(&read, &[&tenant, &1_i64]).await.unwrap();
        assert_eq!(row.get::<_, &str>(1), "new");
        let joined =
            format!("SELECT c.name FROM notes n, countries c WHERE n.tenant = {tenant} AND c.code = 'is'");
        assert_eq!(rows(&client, &joined).await, [["Iceland"]]);
        let again = format!("INSERT INTO notes VALUES ({tenant}, 1, 'again')");
        assert_eq!(refusal(&client, &again).await.0, "23505", "an error is PostgreSQL's, on either engine");
    }
    assert_eq!(cluster.on_shard("s1", "SELECT count(*) FROM notes"), servers.len().to_string());
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_cursors_and_copy_work_on_either_engine() {
    let cluster = mixed().await;
    let mut client = cluster.connect().await;
    make_tables(&client).await;
    let (servers, files) = tenants_by_engine(&cluster).await;
    for tenant in [servers[0], files[0]] {
        let transaction = client.transaction().await.unwrap();
        let insert = "INSERT INTO notes VALUES ($1, $2, $3)";
        transaction.execute(insert, &[&tenant, &1_i64, &"a"]).await.unwrap();
        transaction.batch_execute("SAVEPOINT s").await.unwrap();
        transaction.execute(insert, &[&tenant, &1_i64, &"b"]).await.unwrap_err();
        transaction.batch_execute("ROLLBACK TO s").await.unwrap();
        transaction.execute(insert, &[&tenant, &2_i64, &"b"]).await.unwrap();
        let portal =
            transaction.bind("SELECT id FROM notes WHERE tenant = $1 ORDER BY id", &[&tenant]).await.unwrap();
        let first = transaction.query_portal(&portal, 1).await.unwrap();
        let second = transaction.query_portal(&portal, 1).await.unwrap();
        assert_eq!((first[0].get::<_, i64>(0), second[0].get::<_, i64>(0)), (1, 2));
        transaction.commit().await.unwrap();

        let transaction = client.transaction().await.unwrap();
        transaction.execute("DELETE FROM notes WHERE tenant = $1", &[&tenant]).await.unwrap();
        transaction.rollback().await.unwrap();
        let count = format!("SELECT count(*) FROM notes WHERE tenant = {tenant}");
        assert_eq!(rows(&client, &count).await, [["2"]]);

        let cursor = format!(
            "BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT id FROM notes WHERE tenant = {tenant} ORDER BY id; COMMIT"
        );
        rows(&client, &cursor).await;
        assert_eq!(rows(&client, "FETCH ALL FROM c").await, [["1"], ["2"]]);
        rows(&client, "CLOSE c").await;
    }
    // Rows for both engines in one COPY, and out again.
    let sink = client.copy_in("COPY notes (tenant, id, body) FROM STDIN").await.unwrap();
    let mut sink = Box::pin(sink);
    for tenant in 0..TENANTS {
        sink.send(bytes::Bytes::from(format!("{tenant}\t9\tcopied\n"))).await.unwrap();
    }
    assert_eq!(sink.as_mut().finish().await.unwrap(), TENANTS as u64);
    let out = client.copy_out("COPY notes (tenant, body) TO STDOUT").await.unwrap();
    let out: Vec<bytes::Bytes> = out.try_collect().await.unwrap();
    let text = String::from_utf8(out.concat()).unwrap();
    assert_eq!(text.lines().filter(|line| line.ends_with("copied")).count(), TENANTS as usize, "{text}");
    // Nothing is written on both at once.
    rows(&client, "SET polyshard.multi_shard = 'two_phase'").await;
    let both = format!("INSERT INTO notes VALUES ({}, 5), ({}, 5)", servers[0], files[0]);
    let (state, message) = refusal(&client, &both).await;
    assert!(state == "0A000" && message.contains("s2") && message.contains("SQLite"), "{message}");
    for tenant in [servers[0], files[0]] {
        rows(&client, if tenant == servers[0] { "BEGIN" } else { "SELECT 1" }).await;
        rows(&client, &format!("INSERT INTO notes VALUES ({tenant}, 5)")).await;
    }
    assert_eq!(refusal(&client, "COMMIT").await.0, "0A000");
    assert_eq!(rows(&client, "SELECT count(*) FROM notes WHERE id = 5").await, [["0"]]);
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_across_both_engines_count_every_row_once() {
    let cluster = mixed().await;
    let client = cluster.connect().await;
    make_tables(&client).await;
    for tenant in 0..TENANTS {
        let insert = format!("INSERT INTO notes VALUES ({tenant}, {}, 'n{}')", tenant % 3, tenant % 7);
        rows(&client, &insert).await;
    }
    let check = async || {
        let ask = async |sql: &str| rows(&client, sql).await;
        assert_eq!(
            ask("SELECT count(*), sum(tenant), min(body), max(body) FROM notes").await,
            [["20", "190", "n0", "n6"]]
        );
        let grouped = "SELECT id, count(*), avg(tenant) FROM notes GROUP BY id ORDER BY id";
        assert_eq!(ask(grouped).await.len(), 3);
        let top = "SELECT tenant FROM notes ORDER BY tenant DESC LIMIT 2 OFFSET 1";
        assert_eq!(ask(top).await, [["18"], ["17"]]);
        let joined = "SELECT count(*) FROM notes a JOIN notes b ON a.id = b.id JOIN countries ON code = 'ch'";
        assert_eq!(ask(joined).await, [["134"]]);
        let listed = client.query("SELECT tenant, body FROM notes WHERE body = $1", &[&"n0"]).await.unwrap();
        assert_eq!(listed.len(), 3);
        let windows = "SELECT tenant, row_number() OVER (ORDER BY tenant) FROM notes ORDER BY 1 LIMIT 1";
        assert_eq!(ask(windows).await, [["0", "1"]]);
    };
    check().await;
    // Rows that were moved from one engine to the other, and are still kept in the old place.
    let moves = cluster.swap_and_keep("tenants").await;
    check().await;
    rows(&client, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    check().await;
    rows(&client, "COMMIT").await;
    cluster.clean_up(moves).await;
    check().await;
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_every_shard_has_is_changed_on_both_engines_or_on_none() {
    let cluster = mixed().await;
    let client = cluster.connect().await;
    make_tables(&client).await;
    let (servers, files) = tenants_by_engine(&cluster).await;
    rows(&client, "ALTER TABLE notes ADD COLUMN stars integer DEFAULT 3").await;
    rows(&client, "BEGIN").await;
    rows(&client, "CREATE TABLE colours (id serial PRIMARY KEY, name text NOT NULL)").await;
    rows(&client, "INSERT INTO colours (name) VALUES ('red'), ('blue')").await;
    rows(&client, "COMMIT").await;
    rows(&client, "UPDATE countries SET name = 'Schweiz' WHERE code = 'ch'").await;
    let wrong = "CREATE TABLE points (id int PRIMARY KEY, at point)";
    let (state, message) = refusal(&client, wrong).await;
    assert_eq!(state, "42704", "a type that SQLite shards do not have: {message}");
    assert_eq!(cluster.on_shard("s1", "SELECT count(*) FROM pg_class WHERE relname = 'points'"), "0");
    for tenant in [servers[0], files[0]] {
        rows(&client, &format!("INSERT INTO notes (tenant, id) VALUES ({tenant}, 1)")).await;
        let read = format!(
            "SELECT n.stars, c.name, r.name FROM notes n, countries c, colours r \
             WHERE n.tenant = {tenant} AND c.code = 'ch' AND r.id = 2"
        );
        assert_eq!(rows(&client, &read).await, [["3", "Schweiz", "blue"]]);
    }
    rows(&client, "TRUNCATE notes").await;
    assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["0"]]);
    rows(&client, "DROP TABLE colours").await;
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_go_across_also_if_a_file_comes_first() {
    let cluster = file_first().await;
    let mut client = cluster.connect().await;
    make_tables(&client).await;
    let (servers, files) = tenants_by_engine(&cluster).await;
    assert!(!servers.is_empty() && !files.is_empty(), "both engines have rows");
    for tenant in 0..TENANTS {
        rows(&client, &format!("INSERT INTO notes VALUES ({tenant}, 1, 'a b', '2024-02-29 12:00+00')")).await;
    }
    // What only PostgreSQL can work out, of rows that are not combined.
    let words = "SELECT tenant, to_tsvector('simple', body)::text FROM notes";
    let found = rows(&client, words).await;
    assert_eq!(found.len(), TENANTS as usize);
    assert!(found.iter().all(|row| row[1] == "'a':1 'b':2"), "{found:?}");
    assert_eq!(rows(&client, "SELECT tenant FROM notes WHERE at < now()").await.len(), TENANTS as usize);
    let old = "SELECT count(*) FROM notes WHERE at < now() - interval '1 day'";
    assert_eq!(rows(&client, old).await, [["20"]]);
    // By a portal, and where the transaction is on the file already.
    let transaction = client.transaction().await.unwrap();
    let one = "SELECT id FROM notes WHERE tenant = $1";
    assert_eq!(transaction.query(one, &[&files[0]]).await.unwrap().len(), 1);
    let portal = transaction.bind(words, &[]).await.unwrap();
    assert_eq!(transaction.query_portal(&portal, 7).await.unwrap().len(), 7);
    assert_eq!(transaction.query_portal(&portal, 0).await.unwrap().len(), TENANTS as usize - 7);
    assert_eq!(transaction.query("SELECT tenant FROM notes WHERE at < now()", &[]).await.unwrap().len(), 20);
    transaction.commit().await.unwrap();
    drop(client);
    cluster.close().await;
}

/// A file has one writer: whoever only reads leaves it to others.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_read_keep_nobody_from_writing() {
    let cluster = mixed().await;
    let (client, other) = (cluster.connect().await, cluster.connect().await);
    make_tables(&client).await;
    let (servers, files) = tenants_by_engine(&cluster).await;
    let by_key = format!("SELECT count(*) FROM notes WHERE tenant = {}", files[0]);
    let all = "SELECT count(*) FROM notes";
    let mut id = 0;
    for begin in ["BEGIN", "BEGIN READ ONLY", "BEGIN ISOLATION LEVEL REPEATABLE READ"] {
        rows(&client, begin).await;
        if !begin.contains("REPEATABLE") {
            assert_eq!(rows(&client, &by_key).await, [[id.to_string()]], "{begin}");
        }
        let before = rows(&client, all).await;
        assert_eq!(before, [[(2 * id).to_string()]]);
        id += 1;
        for tenant in [servers[0], files[0]] {
            // Refused when the file is not free for it.
            rows(&other, &format!("INSERT INTO notes VALUES ({tenant}, {id})")).await;
        }
        let seen = if begin.contains("REPEATABLE") { before } else { vec![vec![(2 * id).to_string()]] };
        assert_eq!(rows(&client, all).await, seen, "{begin}");
        rows(&client, "COMMIT").await;
    }
    // Of a snapshot alone a file cannot be written; what was written before is seen in it, and stays.
    let insert = |id: i64| format!("INSERT INTO notes VALUES ({}, {id})", files[0]);
    rows(&client, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    assert_eq!(rows(&client, all).await, [["6"]]);
    let (state, message) = refusal(&client, &insert(9)).await;
    assert!(state == "0A000" && message.contains("s2"), "{message}");
    rows(&client, "ROLLBACK").await;
    rows(&client, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    rows(&client, &insert(9)).await;
    assert_eq!(rows(&client, all).await, [["7"]]);
    rows(&client, &insert(10)).await;
    rows(&client, "COMMIT").await;
    assert_eq!(rows(&other, all).await, [["8"]]);
    drop((client, other));
    cluster.close().await;
}

/// What a client sends before one Sync is done as a whole or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_series_on_a_file_is_one_transaction() {
    for (cluster, name) in [(mixed().await, "s2"), (Cluster::start_embedded().await, "all")] {
        let client = cluster.connect().await;
        make_tables(&client).await;
        let (servers, files) = tenants_by_engine(&cluster).await;
        let (here, elsewhere) = (files[0], servers[0]);
        let mut wire = Wire::connect(&cluster).await;
        let insert = |tenant: i64, id: i64| format!("INSERT INTO notes VALUES ({tenant}, {id}, 'x')");
        let ids = async || {
            let found =
                rows(&client, &format!("SELECT id FROM notes WHERE tenant = {here} ORDER BY id")).await;
            found.into_iter().map(|mut row| row.remove(0)).collect::<Vec<String>>()
        };
        wire.statement(&insert(here, 1));
        wire.statement(&insert(here, 2));
        assert_eq!(wire.sync().await.matches('C').count(), 2, "{name}");
        assert_eq!(ids().await, ["1", "2"], "{name}");
        wire.statement(&insert(here, 3));
        wire.statement(&insert(here, 2));
        wire.statement(&insert(here, 4));
        let kinds = wire.sync().await;
        assert!(kinds.matches('C').count() == 1 && kinds.ends_with("EZ"), "{name}: {kinds}");
        assert_eq!(ids().await, ["1", "2"], "{name}: nothing of a series that failed stays");
        // What is refused before it comes to the shard undoes what came before as well.
        wire.statement(&insert(here, 3));
        wire.statement("SELECT nothing_of_it FROM notes");
        assert!(wire.sync().await.ends_with("EZ"));
        assert_eq!(ids().await, ["1", "2"], "{name}");
        // The client's own transaction takes in what came before it.
        wire.statement(&insert(here, 3));
        wire.statement("BEGIN");
        wire.statement(&insert(here, 4));
        assert_eq!(wire.sync().await.matches('C').count(), 3, "{name}");
        wire.simple("ROLLBACK").await;
        assert_eq!(ids().await, ["1", "2"], "{name}");
        // One that is left without its end, and one that is alone.
        wire.statement(&insert(here, 3));
        wire.flush().await;
        assert_eq!(wire.sync().await.matches('C').count(), 1, "{name}");
        wire.statement(&insert(here, 4));
        wire.sync().await;
        assert_eq!(ids().await, ["1", "2", "3", "4"], "{name}");
        if name == "all" {
            // Files are written one after the other, and what all of them have after them.
            wire.statement(&insert(here, 5));
            wire.statement(&insert(elsewhere, 5));
            wire.statement("INSERT INTO countries VALUES ('no', 'Norway')");
            wire.statement(&insert(here, 6));
            wire.statement("SELECT count(*) FROM notes");
            assert_eq!(wire.sync().await.matches('C').count(), 5);
            assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["7"]]);
        }
        drop((client, wire));
        cluster.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_are_told_what_a_cursor_on_a_file_has() {
    let cluster = mixed().await;
    let mut client = cluster.connect().await;
    make_tables(&client).await;
    let (servers, files) = tenants_by_engine(&cluster).await;
    for tenant in [servers[0], files[0]] {
        rows(&client, &format!("INSERT INTO notes VALUES ({tenant}, 1, 'a')")).await;
        let transaction = client.transaction().await.unwrap();
        let declare = format!("DECLARE c CURSOR FOR SELECT id, body FROM notes WHERE tenant = {tenant}");
        transaction.execute(&declare, &[]).await.unwrap();
        let fetch = transaction.prepare("FETCH 10 FROM c").await.unwrap();
        assert_eq!(fetch.columns().len(), 2);
        let row = transaction.query_one(&fetch, &[]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, &str>(1)), (1, "a"));
        transaction.commit().await.unwrap();
    }
    drop(client);
    cluster.close().await;
}

/// What letters are is PostgreSQL's to say, on whichever engine a row is: in the locale C it knows those of ASCII. What
/// both work out must be the same.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_text_is_worked_out_alike_on_either_engine() {
    let server = PgServer::start();
    server.create_database("catalog");
    server.execute("postgres", "CREATE DATABASE s1 TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'");
    let place = Place::Mixed(Arc::new(server), Arc::new(tempfile::tempdir().unwrap()));
    let cluster = Cluster::on_place(place, &Setup::default()).await;
    let client = cluster.connect().await;
    make_tables(&client).await;
    rows(&client, "ALTER TABLE notes ADD COLUMN f double precision, ADD COLUMN n numeric").await;
    for tenant in 0..TENANTS {
        let values = "7, ' Ünder é 12', '2024-02-29 12:00:00.5+00', 0.1, 1.50";
        rows(&client, &format!("INSERT INTO notes VALUES ({tenant}, {values})")).await;
    }
    let letters = ["upper(body)", "lower(body)", "initcap(body)", "body ILIKE '%É%'", "body ~* 'É'"];
    let others = [
        "body ~ '[[:alpha:]]nder'",
        "body SIMILAR TO '%[[:alpha:]]nder%'",
        "substring(body from '[[:alpha:]]+')",
        "length(body)",
        "octet_length(body)",
        "trim(body)",
        "reverse(body)",
        "left(body, 3)",
        "lpad(body, 12, 'é')",
        "position('é' in body)",
        "split_part(body, ' ', 2)",
        "replace(body, 'é', 'e')",
        "md5(body)",
        "body || id",
        "body || f",
        "body || n",
        "concat(body, f, n, true)",
        "f * 3",
        "(f * 1e20)::text",
        "(f / 3)::text",
        "(n / 3)::text",
        "n * 2",
        "id / 2",
        "id % 4",
        "-id / 2",
        "round(f * 25)",
        "round(n * 1.5)",
        "round(n / 7, 3)",
        "n::integer",
        "(f * 25)::integer",
        "at::text",
        "at::date::text",
        "to_char(at, 'YYYY-MM-DD HH24:MI:SS.MS')",
        "to_char(n, 'FM990.00')",
        "date_trunc('hour', at)::text",
        "extract(epoch from at)",
        "at - interval '1 month'",
        "body < 'Zoo'",
        "greatest(body, 'Zoo')",
    ];
    for expression in letters.iter().chain(&others) {
        let asked = format!("SELECT ({expression})::text, count(*) FROM notes GROUP BY 1");
        let found = rows(&client, &asked).await;
        assert!(found.len() == 1 && found[0][1] == TENANTS.to_string(), "{expression}: {found:?}");
    }
    let upper = rows(&client, "SELECT DISTINCT upper(body) FROM notes").await;
    assert_eq!(upper, [[" ÜNDER é 12"]], "the locale C knows no é");
    drop(client);
    cluster.close().await;
}

/// Whoever has a file's only writer may need to hear of a PostgreSQL shard what his next statement is like.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_change_that_waits_for_a_file_keeps_nobody_from_servers() {
    let cluster = mixed().await;
    let (client, changer) = (cluster.connect().await, cluster.connect().await);
    make_tables(&client).await;
    let (_, files) = tenants_by_engine(&cluster).await;
    rows(&client, "BEGIN").await;
    rows(&client, &format!("INSERT INTO notes VALUES ({}, 1, 'a')", files[0])).await;
    let changing = tokio::spawn(async move {
        changer.batch_execute("ALTER TABLE notes ADD COLUMN more text").await.map(|()| changer)
    });
    let in_transaction =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = 's1' AND state = 'idle in transaction'";
    let begun = async {
        while cluster.on_shard("s1", in_transaction) == "0" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), begun).await.expect("the change begins");
    let read = "SELECT body, id + 40 FROM notes WHERE tenant = $1";
    assert_eq!(client.query(read, &[&files[0]]).await.unwrap().len(), 1);
    rows(&client, "COMMIT").await;
    let changer = changing.await.unwrap().expect("the change is made once the transaction has ended");
    assert_eq!(rows(&client, "SELECT more FROM notes").await, [["NULL"]]);
    drop((client, changer));
    cluster.close().await;
}

/// C3: a word to stop reaches a file beside servers.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_file_works_out_is_stopped_on_request() {
    let cluster = mixed().await;
    let client = cluster.connect().await;
    make_tables(&client).await;
    let (_, files) = tenants_by_engine(&cluster).await;
    let tenant = files[0];
    let values: Vec<String> = (0..200).map(|id| format!("({tenant}, {id})")).collect();
    rows(&client, &format!("INSERT INTO notes VALUES {}", values.join(", "))).await;
    let names = ["a", "b", "c", "d", "e", "f"];
    let tables = names.map(|name| format!("notes {name}")).join(", ");
    let together: Vec<String> = names[1..].iter().map(|name| format!("{name}.tenant = a.tenant")).collect();
    // Found by none of so many rows that no test waits for the end.
    let none = format!("{} = -1", names.map(|name| format!("{name}.id")).join(" + "));
    let across = format!("SELECT count(*) FROM {tables} WHERE {} AND {none}", together.join(" AND "));
    let by_key = format!("{across} AND a.tenant = {tenant}");
    let after_write = format!("BEGIN; INSERT INTO notes VALUES ({tenant}, 200)");
    let write = format!("DELETE FROM notes WHERE tenant = {tenant} AND 0 = ({by_key})");
    let saved = format!("{after_write}; SAVEPOINT a");
    let client = Arc::new(client);
    for (begin, asked) in [
        ("SELECT 1", &by_key),
        ("SELECT 1", &across),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", &by_key),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ", &across),
        (after_write.as_str(), &by_key),
        ("SELECT 1", &write),
        (after_write.as_str(), &write),
        (saved.as_str(), &write),
    ] {
        rows(&client, begin).await;
        let token = client.cancel_token();
        let (asking, text) = (client.clone(), asked.clone());
        let asking = tokio::spawn(async move { refusal(&asking, &text).await });
        let stopped = async {
            while !asking.is_finished() {
                // Before it has begun there is nothing to stop.
                cluster.stop(&token).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), stopped).await.expect("it is stopped");
        let refused = asking.await.unwrap();
        assert_eq!(refused.0, "57014", "{begin}: {asked}: {refused:?}");
        if begin == saved {
            // SQLite has given up the whole transaction.
            assert_eq!(refusal(&client, "ROLLBACK TO SAVEPOINT a").await.0, "40001");
        }
        rows(&client, "ROLLBACK").await;
        assert_eq!(rows(&client, "SELECT count(*) FROM notes").await, [["200"]], "{begin}: {asked}");
    }
    drop(client);
    cluster.close().await;
}

/// Drivers look the number of a type up once. Files have numbers of their own.
#[tokio::test(flavor = "multi_thread")]
async fn an_enum_has_one_number_on_either_engine() {
    use tokio_postgres::types::{Kind, Type};
    let cluster = mixed().await;
    let client = cluster.connect().await;
    make_tables(&client).await;
    for sql in [
        "CREATE TYPE mood AS ENUM ('sad', 'happy')",
        "CREATE TABLE feelings (tenant bigint PRIMARY KEY, m mood, several mood[])",
        "SELECT polyshard.shard_table('feelings', 'tenants', 'tenant')",
    ] {
        rows(&client, sql).await;
    }
    let (servers, files) = tenants_by_engine(&cluster).await;
    let number = |name: &str| {
        cluster.on_shard("s1", &format!("SELECT '{name}'::regtype::oid")).parse::<u32>().unwrap()
    };
    let (one, many) = (number("mood"), number("mood[]"));
    let mood = Type::new("mood".into(), one, Kind::Enum(vec!["sad".into(), "happy".into()]), "public".into());
    let set = "UPDATE feelings SET m = $2 WHERE tenant = $1";
    let set = client.prepare_typed(set, &[Type::INT8, mood]).await.unwrap();
    for tenant in [servers[0], files[0]] {
        rows(&client, &format!("INSERT INTO feelings VALUES ({tenant}, 'sad', '{{happy,sad}}')")).await;
        assert_eq!(client.execute(&set, &[&tenant, &crate::growing::Label("happy")]).await.unwrap(), 1);
        let read = format!("SELECT m, several FROM feelings WHERE tenant = {tenant}");
        assert_eq!(rows(&client, &read).await, [["happy", "{happy,sad}"]]);
        let found = client.query_one(&read, &[]).await.unwrap();
        let numbers: Vec<u32> = found.columns().iter().map(|column| column.type_().oid()).collect();
        assert_eq!(numbers, [one, many], "{tenant}");
    }
    drop(client);
    cluster.close().await;
}
