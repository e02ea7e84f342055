//! A cluster that grows out of SQLite files onto PostgreSQL, and back, while its clients work. D1, D2, E4, G1.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use polyshard_testkit::postgres::PgServer;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::support::{Cluster, Place, Setup, refusal, rows};

const TENANTS: i64 = 12;
/// Tables that number their rows.
const NUMBERED: [&str; 2] = ["numbered", "\"Counted\""];
/// How long a writer may take to get something done; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two SQLite shards, and a server on which there can be others.
async fn small() -> Cluster {
    let server = PgServer::start();
    server.create_database("p1");
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup { patience: PATIENCE, ..Setup::default() };
    let cluster = Cluster::on_place(Place::Growing(Arc::new(server), Arc::new(folder)), &setup).await;
    let client = cluster.connect().await;
    for sql in [
        "SELECT polyshard.create_map('tenants', 'hash', 'bigint')",
        "CREATE TABLE notes (tenant bigint, id bigint, body text, PRIMARY KEY (tenant, id))",
        "SELECT polyshard.shard_table('notes', 'tenants', 'tenant')",
        "CREATE TABLE numbered (tenant bigint, id bigserial, PRIMARY KEY (tenant, id))",
        "SELECT polyshard.shard_table('numbered', 'tenants', 'tenant')",
        // Its sequence has a name that must be quoted.
        "CREATE TABLE \"Counted\" (tenant bigint, id bigserial, PRIMARY KEY (tenant, id))",
        "SELECT polyshard.shard_table('\"Counted\"', 'tenants', 'tenant')",
        "CREATE TABLE countries (code text PRIMARY KEY, name text, since timestamptz, area numeric)",
        "INSERT INTO countries VALUES ('ch', 'it''s \\ Swiss', '1291-08-01 00:00+00', 41285.50), ('is', NULL, NULL, 0)",
    ] {
        rows(&client, sql).await;
    }
    cluster
}

/// A client that writes on one session, each way in its turn, and knows what was acknowledged.
struct Writer {
    task: JoinHandle<BTreeSet<(i64, i64)>>,
    done: Arc<AtomicI64>,
}

impl Writer {
    async fn start(cluster: &Cluster, number: i64, over: Arc<AtomicBool>) -> Writer {
        let mut client = cluster.connect().await;
        let insert = client.prepare("INSERT INTO notes VALUES ($1, $2, $3)").await.unwrap();
        let read = client.prepare("SELECT body FROM notes WHERE tenant = $1 AND id = $2").await.unwrap();
        let done = Arc::new(AtomicI64::new(0));
        let counted = done.clone();
        let task = tokio::spawn(async move {
            let mut acknowledged = BTreeSet::new();
            let mut id = number * 1_000_000;
            while !over.load(Ordering::SeqCst) {
                id += 1;
                let tenant = id % TENANTS;
                let body = format!("{tenant}/{id}");
                match id % 4 {
                    0 => {
                        let text = format!("INSERT INTO notes VALUES ({tenant}, {id}, '{body}')");
                        client.simple_query(&text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
                    }
                    1 => {
                        // A transaction that is caught by the switch may be told to begin again.
                        loop {
                            let tried = in_transaction(&mut client, &insert, tenant, id, &body).await;
                            match tried {
                                Ok(()) => break,
                                Err(error) if is_retryable(&error) => {}
                                Err(error) => panic!("{body}: {error:?}"),
                            }
                        }
                    }
                    _ => {
                        let ran = client.execute(&insert, &[&tenant, &id, &body]).await;
                        ran.unwrap_or_else(|error| panic!("{body}: {error:?}"));
                    }
                }
                acknowledged.insert((tenant, id));
                let found = client.query(&read, &[&tenant, &id]).await;
                let found = found.unwrap_or_else(|error| panic!("{body}: {error:?}"));
                assert_eq!(found.len(), 1, "{body} was acknowledged");
                assert_eq!(found[0].get::<_, &str>(0), body);
                for table in NUMBERED {
                    let insert = format!("INSERT INTO {table} (tenant) VALUES ($1)");
                    let ran = client.execute(&insert, &[&tenant]).await;
                    ran.unwrap_or_else(|error| panic!("{body}: {error:?}"));
                }
                counted.fetch_add(1, Ordering::SeqCst);
            }
            acknowledged
        });
        Writer { task, done }
    }

    /// Waits until it has done some more.
    async fn goes_on(&self) {
        let before = self.done.load(Ordering::SeqCst);
        let more = async {
            while self.done.load(Ordering::SeqCst) < before + 8 {
                assert!(!self.task.is_finished(), "a writer has failed");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, more).await.expect("writers go on");
    }
}

async fn in_transaction(
    client: &mut Client,
    insert: &tokio_postgres::Statement,
    tenant: i64,
    id: i64,
    body: &str,
) -> Result<(), tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    transaction.execute("DELETE FROM notes WHERE tenant = $1 AND id = $2", &[&tenant, &id]).await?;
    transaction.execute(insert, &[&tenant, &id, &body]).await?;
    transaction.commit().await
}

fn is_retryable(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("40"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_go_on_while_a_cluster_grows_onto_postgresql_and_back() {
    let cluster = small().await;
    // As in the program: blocks of ids are leased before they are used up.
    let keeper = cluster.journal.keep_up();
    let watcher = cluster.connect().await;
    let ask = async |sql: &str| rows(&watcher, sql).await;
    ask("SET TimeZone TO '+09'").await;
    let over = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for number in 0..3 {
        writers.push(Writer::start(&cluster, number, over.clone()).await);
    }
    let all_go_on = async || {
        for writer in &writers {
            writer.goes_on().await;
        }
        let read = "SELECT name, since::text, area FROM countries WHERE code = 'ch'";
        assert_eq!(ask(read).await, [["it's \\ Swiss", "1291-08-01 09:00:00+09", "41285.50"]]);
        let twice = "SELECT tenant, id, count(*) FROM notes GROUP BY tenant, id HAVING count(*) > 1";
        assert!(ask(twice).await.is_empty(), "every row is counted once");
    };
    all_go_on().await;
    cluster.add_shard("p1").await;
    all_go_on().await;
    cluster.move_all("tenants", "s1", "p1").await;
    all_go_on().await;
    cluster.move_all("tenants", "s2", "p1").await;
    all_go_on().await;
    for shard in ["s1", "s2"] {
        cluster.remove_shard(shard).await;
        all_go_on().await;
    }
    ask("UPDATE countries SET name = 'Ísland' WHERE code = 'is'").await;
    ask("CREATE INDEX ON notes (body)").await;
    // And back.
    cluster.add_shard("s3").await;
    all_go_on().await;
    cluster.move_all("tenants", "p1", "s3").await;
    all_go_on().await;
    cluster.remove_shard("p1").await;
    all_go_on().await;
    assert_eq!(ask("SELECT name FROM countries WHERE code = 'is'").await, [["Ísland"]]);

    over.store(true, Ordering::SeqCst);
    let mut acknowledged = BTreeSet::new();
    for writer in writers {
        acknowledged.extend(writer.task.await.expect("no statement of a writer failed"));
    }
    let found = ask("SELECT tenant, id FROM notes").await;
    let number = |text: &String| text.parse::<i64>().unwrap();
    let there: BTreeSet<(i64, i64)> = found.iter().map(|row| (number(&row[0]), number(&row[1]))).collect();
    assert_eq!(there.len(), found.len(), "no row is there twice");
    assert_eq!(there, acknowledged);
    for table in NUMBERED {
        let numbers = ask(&format!("SELECT count(*), count(DISTINCT id) FROM {table}")).await;
        assert_eq!(numbers[0][0], numbers[0][1], "ids of {table} are given once, on either engine");
        assert_eq!(number(&numbers[0][0]), acknowledged.len() as i64);
    }
    drop(watcher);
    keeper.stop().await;
    cluster.close().await;
}

/// What a client has set is the same when the first PostgreSQL shard comes, also after a rollback.
#[tokio::test(flavor = "multi_thread")]
async fn settings_are_kept_when_a_cluster_grows_onto_postgresql() {
    let cluster = small().await;
    let zoned = cluster.connect().await;
    rows(&zoned, "SET TimeZone TO '+09'").await;
    rows(&zoned, "BEGIN").await;
    let options = format!("{} options='-c search_path=app'", cluster.connect_string());
    let (placed, connection) = tokio_postgres::connect(&options, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    rows(&placed, "SET search_path TO public").await;
    let local = cluster.connect().await;
    rows(&local, "BEGIN").await;
    rows(&local, "SET LOCAL search_path TO elsewhere, public").await;

    cluster.add_shard("p1").await;
    let read = "SELECT since::text FROM countries WHERE code = 'ch'";
    assert_eq!(rows(&zoned, read).await, [["1291-08-01 09:00:00+09"]]);
    rows(&zoned, "ROLLBACK").await;
    assert_eq!(rows(&zoned, read).await, [["1291-08-01 09:00:00+09"]]);
    assert_eq!(rows(&zoned, "SHOW TimeZone").await, [["<+09>-09"]]);
    assert_eq!(rows(&placed, "SELECT current_schemas(false)").await, [["{public}"]]);
    // Its path would outlive it there: it is to begin again.
    assert_eq!(refusal(&local, "SELECT count(*) FROM countries").await.0, "40001");
    rows(&local, "ROLLBACK").await;
    let path = rows(&local, "SHOW search_path").await;
    assert!(!path[0][0].contains("elsewhere"), "{path:?}");
    drop((zoned, placed, local));
    cluster.close().await;
}

/// The tenants of a file.
fn tenants_on(cluster: &Cluster, shard: &str) -> Vec<i64> {
    let view = cluster.router.view();
    let map = &view.maps[&polyshard_map::MapName::new("tenants").unwrap()].map;
    let of =
        |tenant: &i64| map.locate(&polyshard_map::Key::BigInt(*tenant)).unwrap().shard().as_str() == shard;
    (0..TENANTS).filter(of).collect()
}

/// A file has one writer. The first PostgreSQL shard is brought up from a file, and every new statement waits for that:
/// it must not wait for transactions whose next statement does.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_on_all_files_go_on_while_the_first_postgresql_shard_is_brought_up() {
    let cluster = small().await;
    let (first, second, other) = (cluster.connect().await, cluster.connect().await, cluster.connect().await);
    let begun = [(&first, tenants_on(&cluster, "s1")[0]), (&second, tenants_on(&cluster, "s2")[0])];
    for (client, tenant) in begun {
        rows(client, "BEGIN").await;
        rows(client, &format!("INSERT INTO notes VALUES ({tenant}, 1, 'a')")).await;
    }
    cluster.add_shard("p1").await;
    let go_on = async |(client, tenant): (&Client, i64)| {
        rows(client, &format!("INSERT INTO notes VALUES ({tenant}, 2, 'b')")).await;
        rows(client, "COMMIT").await;
        assert_eq!(
            rows(client, &format!("SELECT count(*) FROM notes WHERE tenant = {tenant}")).await,
            [["2"]]
        );
    };
    let countries = async || rows(&other, "SELECT count(*) FROM countries").await;
    let (_, _, counted) = tokio::join!(go_on(begun[0]), go_on(begun[1]), countries());
    assert_eq!(counted, [["2"]]);
    assert_eq!(rows(&other, "SELECT count(*) FROM notes").await, [["4"]]);
    drop((first, second, other));
    cluster.close().await;
}

/// A session that must stay with the files goes by what they say of tables: PostgreSQL has other words for the default
/// of an id, and tells them when its first shard is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_stays_with_the_files_gives_ids_in_their_words() {
    let cluster = small().await;
    let (staying, other) = (cluster.connect().await, cluster.connect().await);
    rows(&staying, "BEGIN").await;
    rows(&staying, "SET LOCAL search_path TO public, elsewhere").await;
    cluster.add_shard("p1").await;
    // It has taken that up, and has it known.
    let tenant = tenants_on(&cluster, "s1")[0];
    rows(&other, "SELECT count(*) FROM countries").await;
    rows(&other, &format!("INSERT INTO numbered (tenant) VALUES ({tenant})")).await;
    for table in NUMBERED {
        rows(&staying, &format!("INSERT INTO {table} (tenant) VALUES ({tenant})")).await;
    }
    rows(&staying, "COMMIT").await;
    let numbers = rows(&other, "SELECT count(*), count(DISTINCT id) FROM numbered").await;
    assert_eq!(numbers, [["2", "2"]]);
    drop((staying, other));
    cluster.close().await;
}

/// The same in a transaction of several shards, which may meet one on a server: there the words of files would count
/// ids by what only that server knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_files_does_not_write_on_a_server_in_their_words() {
    let cluster = small().await;
    let (client, other) = (cluster.connect().await, cluster.connect().await);
    let (stays, goes) = (tenants_on(&cluster, "s1")[0], tenants_on(&cluster, "s2")[0]);
    let insert = |tenant: i64| format!("INSERT INTO numbered (tenant) VALUES ({tenant})");
    rows(&other, &insert(goes)).await;
    rows(&client, "SET polyshard.multi_shard = 'eventual'").await;
    rows(&client, "BEGIN").await;
    rows(&client, &insert(stays)).await;
    cluster.add_shard("p1").await;
    cluster.journal.ready(&polyshard_map::ShardId::new("p1").unwrap()).await.unwrap();
    cluster.move_all("tenants", "s2", "p1").await;
    assert_eq!(refusal(&client, &insert(goes)).await.0, "40001");
    rows(&client, "ROLLBACK").await;
    for tenant in [stays, goes, goes] {
        rows(&client, &insert(tenant)).await;
    }
    let numbers = rows(&other, "SELECT count(*), count(DISTINCT id) FROM numbered").await;
    assert_eq!(numbers, [["4", "4"]], "ids are given once, on either engine");
    drop((client, other));
    cluster.close().await;
}

/// PostgreSQL finds the name of a sequence taken and chooses another one, and files do not: ids are counted for the
/// column. Those of a reference table go on as well.
#[tokio::test(flavor = "multi_thread")]
async fn ids_are_given_once_where_postgresql_calls_a_sequence_otherwise() {
    let cluster = small().await;
    let client = cluster.connect().await;
    for sql in [
        // Both sequences would be called a_b_c_seq.
        "CREATE TABLE a_b (tenant bigint, c bigserial, PRIMARY KEY (tenant, c))",
        "SELECT polyshard.shard_table('a_b', 'tenants', 'tenant')",
        "CREATE TABLE a (tenant bigint, b_c bigserial, PRIMARY KEY (tenant, b_c))",
        "SELECT polyshard.shard_table('a', 'tenants', 'tenant')",
        "CREATE TABLE colours (id serial PRIMARY KEY, name text)",
    ] {
        rows(&client, sql).await;
    }
    let mut written = 0;
    let mut write = async || {
        for tenant in 0..TENANTS {
            rows(&client, &format!("INSERT INTO a_b (tenant) VALUES ({tenant})")).await;
            rows(&client, &format!("INSERT INTO a (tenant) VALUES ({tenant})")).await;
        }
        rows(&client, "INSERT INTO colours (name) VALUES ('red')").await;
        written += TENANTS;
        let all = written.to_string();
        for column in ["c) FROM a_b", "b_c) FROM a"] {
            let counted = rows(&client, &format!("SELECT count(*), count(DISTINCT {column}")).await;
            assert_eq!(counted, [[all.as_str(), all.as_str()]], "{column}");
        }
    };
    write().await;
    cluster.add_shard("p1").await;
    write().await;
    let names =
        "SELECT string_agg(sequencename, ' ' ORDER BY 1) FROM pg_sequences WHERE sequencename LIKE 'a_b%'";
    assert_eq!(cluster.on_shard("p1", names), "a_b_c_seq a_b_c_seq1");
    cluster.move_all("tenants", "s1", "p1").await;
    write().await;
    cluster.move_all("tenants", "s2", "p1").await;
    for shard in ["s1", "s2"] {
        cluster.remove_shard(shard).await;
    }
    write().await;
    cluster.add_shard("s3").await;
    cluster.journal.ready(&polyshard_map::ShardId::new("s3").unwrap()).await.unwrap();
    cluster.move_all("tenants", "p1", "s3").await;
    cluster.remove_shard("p1").await;
    write().await;
    drop(client);
    cluster.close().await;
}

/// A column of each type, with values at the ends of what it can have.
const TYPES: [(&str, &[&str]); 34] = [
    ("smallint", &["-32768", "32767"]),
    ("integer", &["-2147483648", "2147483647"]),
    ("bigint", &["-9223372036854775808", "9223372036854775807"]),
    ("numeric", &["123456789012345678901234567890.000100", "-0.00", "NaN"]),
    ("numeric(12,3)", &["1.5", "-123456789.999"]),
    ("double precision", &["0.1", "1e308", "-Infinity", "Infinity", "4.9e-324"]),
    ("boolean", &["true", "false"]),
    ("text", &["it\'s \\ \"é\" ", "", "NULL"]),
    ("varchar(5)", &["ab  ", "äöü"]),
    ("char(5)", &["ab", "", "  a"]),
    ("date", &["2024-02-29", "infinity", "-infinity", "0044-03-15 BC", "5874897-12-31", "4714-11-24 BC"]),
    ("time", &["00:00", "23:59:59.999999", "24:00:00"]),
    ("timestamp", &["2024-02-29 23:59:59.000001", "infinity", "0044-03-15 12:00:00.000001 BC"]),
    ("timestamp", &["-infinity", "294276-12-31 23:59:59.999999", "4714-11-24 00:00:00 BC"]),
    ("timestamptz", &["2024-03-31 02:30:00.123456+02", "-infinity", "1291-08-01 00:00:00.000001+00"]),
    ("timestamptz", &["infinity", "294276-12-31 23:59:59.999999+00", "4714-11-24 00:00:00+00 BC"]),
    (
        "interval",
        &["1 year 2 mons -3 days 04:05:06.000007", "-178000000 years", "-00:00:00.000001", "30 days"],
    ),
    ("uuid", &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "00000000-0000-0000-0000-000000000000"]),
    ("jsonb", &["{\"b\": [1, 1.50, null], \"a\": \"x\"}", "null", "[]"]),
    ("json", &["{\"b\" : 1,  \"a\":2}", "1"]),
    ("bytea", &["\\x", "\\x00ff5c"]),
    ("mood", &["sad", "it\'s ok", "happy"]),
    ("smallint[]", &["{}", "{1,NULL,-32768}"]),
    ("text[]", &["{\"a b\",\"\",NULL,\"NULL\",\"c,d\"}", "{}"]),
    ("date[]", &["{2024-02-29,infinity}", "{\"0044-03-15 BC\"}"]),
    ("timestamp[]", &["{\"2024-02-29 12:00:00.5\",-infinity}"]),
    ("timestamptz[]", &["{\"2024-02-29 12:00:00.5+02\",infinity,\"0044-03-15 12:00:00+00 BC\",NULL}", "{}"]),
    ("numeric[]", &["{1.50,NULL,0}"]),
    ("double precision[]", &["{0.1,-Infinity,1e+300}"]),
    ("boolean[]", &["{t,f,NULL}"]),
    ("uuid[]", &["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"]),
    ("bytea[]", &["{\"\\\\x00ff\"}"]),
    ("jsonb[]", &["{\"{\\\"a\\\": 1}\",\"[]\"}"]),
    ("mood[]", &["{sad,happy,NULL}"]),
];

/// A label of an enum, whatever number that has.
#[derive(Debug)]
pub struct Label(pub &'static str);

impl tokio_postgres::types::ToSql for Label {
    fn to_sql(
        &self,
        _: &tokio_postgres::types::Type,
        out: &mut bytes::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(tokio_postgres::types::IsNull::No)
    }

    fn accepts(_: &tokio_postgres::types::Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

/// Files and servers keep most types each in a way of its own.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_every_type_are_the_same_on_either_engine() {
    let cluster = small().await;
    cluster.on_shard("p1", "ALTER DATABASE p1 SET timezone TO 'Asia/Tokyo'");
    let client = cluster.connect().await;
    let columns: Vec<String> =
        TYPES.iter().enumerate().map(|(at, (kind, _))| format!("c{at} {kind}")).collect();
    for sql in [
        "CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'happy')".to_owned(),
        format!("CREATE TABLE kinds (tenant bigint, id bigint, {}, PRIMARY KEY (tenant, id))", columns.join(", ")),
        "SELECT polyshard.shard_table('kinds', 'tenants', 'tenant')".to_owned(),
        "CREATE TABLE keyed (tenant bigint, d date, z timestamptz, u uuid, c char(4), n numeric, m mood, b bigint, \
         PRIMARY KEY (tenant, d, z, u, c, n, m))"
            .to_owned(),
        "SELECT polyshard.shard_table('keyed', 'tenants', 'tenant')".to_owned(),
    ] {
        rows(&client, &sql).await;
    }
    let value = |value: &str| format!("'{}'", value.replace('\'', "''"));
    for id in 0..TENANTS {
        let values = TYPES.iter().map(|(_, values)| match id as usize % (values.len() + 1) {
            0 => "NULL".to_owned(),
            at => value(values[at - 1]),
        });
        let values = values.collect::<Vec<_>>().join(", ");
        rows(&client, &format!("INSERT INTO kinds VALUES ({id}, {id}, {values})")).await;
    }
    let days = ["'infinity'", "'0044-03-15 BC'", "'2024-02-29'"];
    let moods = ["'sad'", "'it''s ok'", "'happy'"];
    for (at, (day, mood)) in
        (0..TENANTS).flat_map(|tenant| days.iter().zip(moods).map(move |of| (tenant, of)))
    {
        rows(
            &client,
            &format!(
                "INSERT INTO keyed VALUES ({at}, {day}, '2024-02-29 12:00:00.000001+00', \
                 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a{at:02}', 'a', 1.50, {mood}, 0)"
            ),
        )
        .await;
    }
    let feel = client.prepare("UPDATE keyed SET b = b + 1 WHERE tenant = $1 AND m = $2").await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let writer = {
        let (client, over) = (cluster.connect().await, over.clone());
        tokio::spawn(async move {
            let mut done = vec![0; TENANTS as usize];
            for tenant in (0..TENANTS).cycle() {
                if over.load(Ordering::SeqCst) {
                    return done;
                }
                rows(&client, &format!("UPDATE keyed SET b = b + 1 WHERE tenant = {tenant} AND m = 'sad'"))
                    .await;
                // It is another row then, and the same one again.
                for (from, to) in [("a", "b"), ("b", "a")] {
                    let other =
                        format!("UPDATE keyed SET c = '{to}' WHERE tenant = {tenant} AND c = '{from}'");
                    rows(&client, &other).await;
                }
                done[tenant as usize] += 1;
            }
            done
        })
    };
    let mut felt = 0;
    let mut feels = async || {
        felt += 1;
        for tenant in 0..TENANTS {
            let done = client.execute(&feel, &[&tenant, &Label("happy")]).await;
            assert_eq!(done.unwrap_or_else(|error| panic!("{error:?}")), 1);
        }
    };
    let seen = async || rows(&client, "SELECT * FROM kinds ORDER BY id").await;
    let before = seen().await;
    feels().await;
    cluster.add_shard("p1").await;
    feels().await;
    cluster.move_all("tenants", "s1", "p1").await;
    assert_eq!(seen().await, before);
    cluster.move_all("tenants", "s2", "p1").await;
    for shard in ["s1", "s2"] {
        cluster.remove_shard(shard).await;
    }
    assert_eq!(seen().await, before);
    assert_eq!(cluster.on_shard("p1", "SELECT count(*) FROM kinds"), TENANTS.to_string());
    feels().await;
    // And back.
    cluster.add_shard("s3").await;
    cluster.journal.ready(&polyshard_map::ShardId::new("s3").unwrap()).await.unwrap();
    cluster.move_all("tenants", "p1", "s3").await;
    assert_eq!(seen().await, before);
    cluster.remove_shard("p1").await;
    assert_eq!(seen().await, before);
    feels().await;
    over.store(true, Ordering::SeqCst);
    let done = writer.await.expect("no statement of the writer failed");
    let found = rows(&client, "SELECT tenant, m::text, b, d::text, c FROM keyed ORDER BY tenant, d").await;
    let mut expected = Vec::new();
    for tenant in 0..TENANTS {
        let of = |mood: &str, times: i64, day: &str| {
            vec![tenant.to_string(), mood.to_owned(), times.to_string(), day.to_owned(), "a   ".to_owned()]
        };
        expected.push(of("it's ok", 0, "0044-03-15 BC"));
        expected.push(of("happy", felt, "2024-02-29"));
        expected.push(of("sad", done[tenant as usize], "infinity"));
    }
    assert_eq!(found, expected);
    drop(client);
    cluster.close().await;
}

/// What a file cannot keep is told of before a move, and by a move that meets it.
#[tokio::test(flavor = "multi_thread")]
async fn values_that_no_file_can_keep_stay_on_postgresql() {
    let cluster = small().await;
    cluster.add_shard("p1").await;
    let client = cluster.connect().await;
    for sql in [
        "CREATE TABLE odd (tenant bigint PRIMARY KEY, tags text[], f double precision)",
        "SELECT polyshard.shard_table('odd', 'tenants', 'tenant')",
    ] {
        rows(&client, sql).await;
    }
    for shard in ["s1", "s2"] {
        cluster.move_all("tenants", shard, "p1").await;
        cluster.remove_shard(shard).await;
    }
    cluster.add_shard("s3").await;
    let mover = polyshard_mover::Mover::new(cluster.router.shard_source());
    let definition =
        cluster.router.view().maps[&polyshard_map::MapName::new("tenants").unwrap()].map.definition().clone();
    let [p1, s3] = ["p1", "s3"].map(|name| polyshard_map::ShardId::new(name).unwrap());
    cluster.journal.ready(&s3).await.unwrap();
    let look = async || mover.preflight(&definition, &polyshard_map::KeyRange::all(), &p1, &s3).await;
    for (odd, column) in [("'{{a,b},{c,d}}', 0", "tags"), ("'[2:3]={a,b}', 0", "tags"), ("'{}', 'NaN'", "f")]
    {
        rows(&client, &format!("INSERT INTO odd VALUES (1, {odd})")).await;
        let refused = look().await.expect_err(odd).to_string();
        assert!(refused.contains(&format!("cannot be moved: column {column}")), "{refused}");
        let refused = cluster.refused_move("tenants", "s3").await;
        assert!(refused.contains(&format!("column {column} of the row")), "{refused}");
        rows(&client, "DELETE FROM odd WHERE tenant = 1").await;
    }
    rows(&client, "INSERT INTO odd VALUES (1, '{a}', 1)").await;
    look().await.unwrap();
    drop(client);
    cluster.close().await;
}
