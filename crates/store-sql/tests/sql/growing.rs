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
    let cluster =
        Cluster::on_place(Place::Growing(Arc::new(server), Arc::new(folder)), &Setup::default()).await;
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
