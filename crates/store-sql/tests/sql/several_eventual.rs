//! Writes on several shards that are completed whatever happens: `polyshard.multi_shard = 'eventual'`. C3.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyshard_catalog::{Failpoint, MoveRequest, OpState};
use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_testkit::postgres::{Durability, PgOptions, PgServer};
use tokio_postgres::Client;

use crate::support::{Cluster, Place, Setup, refusal, rows};

const TENANTS: i64 = 20;

/// A server on which nothing can be prepared, as PostgreSQL is by default.
pub fn server() -> Arc<PgServer> {
    let settings = vec![("max_prepared_transactions".to_owned(), "0".to_owned())];
    let server = PgServer::start_with(PgOptions { durability: Durability::NoFsync, settings });
    for name in ["catalog", "s1", "s2"] {
        server.create_database(name);
    }
    Arc::new(server)
}

pub fn files() -> Place {
    Place::Files(Arc::new(tempfile::tempdir().unwrap()))
}

fn mixed() -> Place {
    Place::Mixed(server(), Arc::new(tempfile::tempdir().unwrap()))
}

/// A table with a row of each tenant.
pub async fn make_tables(cluster: &Cluster) -> Client {
    let client = cluster.connect().await;
    for sql in [
        "CREATE TABLE counts (tenant bigint PRIMARY KEY, n bigint NOT NULL, at timestamptz)",
        "SELECT polyshard.create_map('tenants', 'hash', 'bigint')",
        "SELECT polyshard.shard_table('counts', 'tenants', 'tenant')",
        "SET polyshard.multi_shard = 'eventual'; SET polyshard.strict = off",
    ] {
        rows(&client, sql).await;
    }
    let many: Vec<String> = (0..TENANTS).map(|tenant| format!("({tenant}, 0)")).collect();
    rows(&client, &format!("INSERT INTO counts (tenant, n) VALUES {}", many.join(", "))).await;
    client
}

pub async fn connect(cluster: &Cluster) -> Client {
    let client = cluster.connect().await;
    rows(&client, "SET polyshard.multi_shard = 'eventual'; SET polyshard.strict = off").await;
    client
}

/// What all rows have, each counted once.
pub async fn all_are(client: &Client, n: i64) {
    let found = rows(client, "SELECT count(*), min(n), max(n) FROM counts").await;
    assert_eq!(found, [[TENANTS.to_string(), n.to_string(), n.to_string()]]);
}

pub async fn last_write(client: &Client) -> String {
    rows(client, "SHOW polyshard.last_write").await[0][0].clone()
}

pub async fn is_completed(client: &Client, id: &str) -> String {
    rows(client, &format!("SELECT polyshard.write_completed('{id}')")).await[0][0].clone()
}

/// Completes the newest write.
pub async fn complete_newest(cluster: &Cluster) {
    let write = cluster.journal.writes(1).await.unwrap().remove(0);
    let wait = async {
        while !cluster.journal.complete_write(write.id).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let completed = tokio::time::timeout(Duration::from_secs(60), wait).await;
    assert!(completed.is_ok(), "{:?}", cluster.journal.write(write.id).await);
}

async fn writes_are_completed(place: Place) {
    let cluster = Cluster::on_place(place, &Setup::default()).await;
    let client = make_tables(&cluster).await;
    let run = async |sql: &str| rows(&client, sql).await;
    all_are(&client, 0).await;
    let first = last_write(&client).await;
    assert_eq!(is_completed(&client, &first).await, "true");
    assert_eq!(run("SHOW polyshard.multi_shard").await, [["eventual"]]);

    // Counts and rows of all shards; parameters; both protocols.
    assert_eq!(client.execute("UPDATE counts SET n = n + $1", &[&1_i64]).await.unwrap(), TENANTS as u64);
    let returned = client.query("UPDATE counts SET n = n + 1 WHERE n >= $1 RETURNING tenant, n", &[&1_i64]);
    let returned = returned.await.unwrap();
    let tenants: BTreeSet<i64> = returned.iter().map(|row| row.get(0)).collect();
    assert_eq!(tenants, (0..TENANTS).collect());
    assert!(returned.iter().all(|row| row.get::<_, i64>(1) == 2));
    let told = run("UPDATE counts SET n = n + 1 WHERE tenant IN (1, 2, 3, 4, 5, 6, 7, 8) RETURNING n").await;
    assert_eq!(told, vec![["3"]; 8]);
    run("UPDATE counts SET n = 3").await;
    all_are(&client, 3).await;
    assert_ne!(last_write(&client).await, first);

    // The clock says the same everywhere; what is random is refused before anything is written.
    run("UPDATE counts SET at = now(), n = n").await;
    assert_eq!(run("SELECT count(DISTINCT at), count(at) FROM counts").await, [["1", "20"]]);
    let (state, message) = refusal(&client, "UPDATE counts SET n = n + (random() * 10)::bigint").await;
    assert_eq!(state, "0A000");
    assert!(message.contains("random()"), "{message}");

    // One shard's refusal undoes what the others have done.
    let many: Vec<String> = (10..40).map(|tenant| format!("({tenant}, 0)")).collect();
    let insert = format!("INSERT INTO counts (tenant, n) VALUES {}", many.join(", "));
    assert_eq!(refusal(&client, &insert).await.0, "23505");
    all_are(&client, 3).await;
    let skipping = format!("{insert} ON CONFLICT (tenant) DO NOTHING");
    assert_eq!(client.execute(&skipping, &[]).await.unwrap(), 20);
    assert_eq!(client.execute("DELETE FROM counts WHERE tenant >= 20", &[]).await.unwrap(), 20);
    all_are(&client, 3).await;

    // Transactions of several statements are such writes on files only; those of one shard go on as always.
    run("BEGIN").await;
    if cluster.journal.has_postgres() {
        assert_eq!(refusal(&client, "UPDATE counts SET n = 7").await.0, "0A000");
    } else {
        run("UPDATE counts SET n = 7").await;
    }
    run("ROLLBACK").await;
    run("BEGIN; UPDATE counts SET n = 7 WHERE tenant = 1; ROLLBACK").await;
    all_are(&client, 3).await;
    assert_eq!(is_completed(&client, "00000000-0000-4000-8000-000000000000").await, "NULL");
    assert_eq!(refusal(&client, "SELECT polyshard.write_completed('x')").await.0, "22023");
    assert_eq!(refusal(&client, "SET polyshard.last_write = 'x'").await.0, "22023");
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_on_several_sqlite_shards_are_completed() {
    writes_are_completed(files()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_on_several_postgresql_shards_need_no_prepared_transactions() {
    writes_are_completed(Place::Postgres(server())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_on_shards_of_both_engines_are_completed() {
    writes_are_completed(mixed()).await;
}

/// Stops wherever it is told to.
pub fn stopping() -> (Failpoint, Arc<Mutex<String>>, Arc<AtomicBool>) {
    let stop_at = Arc::new(Mutex::new(String::new()));
    let stopped = Arc::new(AtomicBool::new(false));
    let (wanted, told) = (stop_at.clone(), stopped.clone());
    let failpoint: Failpoint = Arc::new(move |place: &str| {
        let stop = place == wanted.lock().unwrap().as_str();
        told.fetch_or(stop, Ordering::SeqCst);
        stop
    });
    (failpoint, stop_at, stopped)
}

const STEPS: [(&str, bool); 5] = [
    ("eventual.decide.before", false),
    ("eventual.decide.after", true),
    ("eventual.commit:s1.before", true),
    ("eventual.commit:s2.before", true),
    ("eventual.commit.after", true),
];

/// Stopped at each step, the write is on all shards or on none once somebody else has looked, and never twice.
async fn a_write_stopped_anywhere_is_on_all_or_on_none(place: Place) {
    let cluster = Cluster::on_place(place.clone(), &Setup::default()).await;
    drop(make_tables(&cluster).await);
    cluster.close().await;
    let mut n = 0;
    for (at, decided) in STEPS {
        let (failpoint, stop_at, stopped) = stopping();
        let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
        let process = Cluster::on(place.clone(), &setup).await;
        let client = connect(&process).await;
        at.clone_into(&mut stop_at.lock().unwrap());
        assert!(client.simple_query("UPDATE counts SET n = n + 1").await.is_err(), "{at}");
        assert!(stopped.load(Ordering::SeqCst), "{at} was not passed");
        drop(client);
        process.close().await;

        n += i64::from(decided);
        let next = Cluster::on(place.clone(), &Setup::default()).await;
        let client = connect(&next).await;
        // Whoever uses a shard first completes what it lacks.
        all_are(&client, n).await;
        let writes = next.journal.writes(100).await.unwrap();
        assert!(writes.iter().all(|write| write.done_ms.is_some()), "{at}: {writes:?}");
        rows(&client, "UPDATE counts SET n = n + 1").await;
        n += 1;
        all_are(&client, n).await;
        drop(client);
        next.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_on_sqlite_shards_stopped_anywhere_is_on_all_or_on_none() {
    a_write_stopped_anywhere_is_on_all_or_on_none(files()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long: run it with make test-all"]
async fn a_write_on_postgresql_shards_stopped_anywhere_is_on_all_or_on_none() {
    a_write_stopped_anywhere_is_on_all_or_on_none(Place::Postgres(server())).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long: run it with make test-all"]
async fn a_write_on_both_engines_stopped_anywhere_is_on_all_or_on_none() {
    a_write_stopped_anywhere_is_on_all_or_on_none(mixed()).await;
}

const CUT: &str = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE datname = 's2'";

/// A shard is cut off between the decision and its commit.
fn cutting(server: &Arc<PgServer>, closed: bool) -> (Failpoint, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let (server, wanted) = (server.clone(), armed.clone());
    let failpoint: Failpoint = Arc::new(move |place: &str| {
        if place == "eventual.commit:s2.before" && wanted.swap(false, Ordering::SeqCst) {
            tokio::task::block_in_place(|| {
                if closed {
                    server.execute("catalog", "ALTER DATABASE s2 ALLOW_CONNECTIONS false");
                }
                server.execute("catalog", CUT);
            });
        }
        false
    });
    (failpoint, armed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_loses_its_session_after_the_decision_gets_its_part_at_once() {
    let server = server();
    let (failpoint, armed) = cutting(&server, false);
    let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
    let cluster = Cluster::on_place(Place::Postgres(server), &setup).await;
    let client = make_tables(&cluster).await;
    armed.store(true, Ordering::SeqCst);
    rows(&client, "UPDATE counts SET n = n + 1").await;
    assert!(!armed.load(Ordering::SeqCst));
    all_are(&client, 1).await;
    let id = last_write(&client).await;
    assert_eq!(is_completed(&client, &id).await, "true");
    drop(client);
    cluster.close().await;
}

/// A shard that is away after the decision: the client hears that it is decided, and can ask whether it is completed;
/// meanwhile no range leaves the shard or comes to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_away_after_the_decision_gets_its_part_when_it_is_back() {
    let server = server();
    let (failpoint, armed) = cutting(&server, true);
    let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
    let cluster = Cluster::on_place(Place::Postgres(server), &setup).await;
    let client = make_tables(&cluster).await;
    armed.store(true, Ordering::SeqCst);
    let sql = "SET polyshard.multi_shard = 'eventual'; SET polyshard.strict = off;";
    let arguments = [
        "-v",
        "ON_ERROR_STOP=1",
        "-Atc",
        sql,
        "-c",
        "UPDATE counts SET n = n + 1",
        "-c",
        "SHOW polyshard.last_write",
    ];
    let (done, said) = cluster.program("psql", &arguments).await;
    assert!(done, "{said}");
    assert!(said.contains("UPDATE 20") && said.contains("WARNING"), "{said}");
    let id = said.lines().find(|line| line.len() == 36 && line.matches('-').count() == 4).unwrap().to_owned();
    assert!(said.contains(&format!("write {id} is decided, but shard s2 does not have it yet")), "{said}");
    assert_eq!(is_completed(&client, &id).await, "false");
    let write = cluster.journal.write(id.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(write.waiting.len(), 1);
    assert_eq!(write.waiting[0].0.as_str(), "s2");
    assert!(write.about.starts_with("UPDATE counts"), "{}", write.about);
    assert!(!cluster.journal.complete_write(id.parse().unwrap()).await.unwrap());

    cluster.on_shard("catalog", "ALTER DATABASE s2 ALLOW_CONNECTIONS true");
    // Whoever uses the shard next completes it first.
    let wait = async {
        while client.simple_query("SELECT count(*) FROM counts").await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
    all_are(&client, 1).await;
    assert_eq!(is_completed(&client, &id).await, "true");
    drop(client);
    cluster.close().await;
}

/// Somebody was in between: the shard says why it cannot take its part, and an operator can give it up there.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_cannot_be_done_says_why_and_can_be_given_up() {
    let place = Place::Postgres(server());
    let (failpoint, stop_at, _) = stopping();
    let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
    let cluster = Cluster::on_place(place, &setup).await;
    let client = make_tables(&cluster).await;
    "eventual.commit:s2.before".clone_into(&mut stop_at.lock().unwrap());
    let many: Vec<String> = (100..120).map(|tenant| format!("({tenant}, 0)")).collect();
    let insert = format!("INSERT INTO counts (tenant, n) VALUES {}", many.join(", "));
    assert!(client.simple_query(&insert).await.is_err());
    // Its transaction there ends with it; whoever writes the same row waits for that.
    drop(client);
    let missing = "SELECT min(g) FROM generate_series(100, 119) g WHERE g NOT IN (SELECT tenant FROM counts)";
    let on_s2 = cluster.on_shard("s1", missing);
    cluster.on_shard("s2", &format!("INSERT INTO counts (tenant, n) VALUES ({on_s2}, 77)"));
    let write = cluster.journal.writes(1).await.unwrap().remove(0);
    assert!(!cluster.journal.complete_write(write.id).await.unwrap());
    let write = cluster.journal.write(write.id).await.unwrap().unwrap();
    assert_eq!(write.waiting.len(), 1, "{write:?}");
    assert_eq!(write.waiting[0].0.as_str(), "s2");
    let why = write.waiting[0].1.clone().unwrap();
    assert!(why.contains("counts_pkey") || why.contains("duplicate") || why.contains("nique"), "{why}");
    let s2 = ShardId::new("s2").unwrap();
    // Not while somebody is at it.
    let mut held = cluster.router.administer(&s2).await.unwrap().patient_transaction().await.unwrap();
    held.run(cluster.journal.write_mark(polyshard_engine::Dialect::Postgres, write.id)).await.unwrap();
    assert!(cluster.journal.skip_write(write.id, &s2).await.unwrap_err().is_retryable());
    held.rollback().await.unwrap();
    assert!(cluster.journal.skip_write(write.id, &s2).await.unwrap());
    assert!(!cluster.journal.skip_write(write.id, &s2).await.unwrap());
    let write = cluster.journal.write(write.id).await.unwrap().unwrap();
    assert!(write.done_ms.is_some() && write.skipped == [s2], "{write:?}");
    let client = connect(&cluster).await;
    assert_eq!(is_completed(&client, &write.id.to_string()).await, "false");
    drop(client);
    assert_eq!(cluster.on_shard("s2", "SELECT count(*) FROM counts WHERE tenant >= 100"), "1");
    cluster.close().await;
}

/// While a shard is still to get its part, its ranges stay where they are, and no others come; then they move, and
/// every row has the write once.
async fn a_move_waits_for_a_write_that_is_not_complete(place: Place, from: &str, to: &str) {
    let (failpoint, stop_at, _) = stopping();
    let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
    let cluster = Cluster::on_place(place, &setup).await;
    let client = make_tables(&cluster).await;
    cluster.journal.finish().await.unwrap();
    "eventual.commit:s2.before".clone_into(&mut stop_at.lock().unwrap());
    assert!(client.simple_query("UPDATE counts SET n = n + 1").await.is_err());
    drop(client);
    stop_at.lock().unwrap().clear();
    let map = MapName::new("tenants").unwrap();
    let range = {
        let (view, all) = (cluster.router.view(), KeyRange::all());
        let mut entries = view.maps[&map].map.entries(&all);
        entries.find(|entry| entry.shard.as_str() == from).unwrap().range
    };
    let to = ShardId::new(to).unwrap();
    let request = MoveRequest { map, range, to, keep_ms: 0, if_version: None, by: None };
    let id = cluster.driver.start_move(&request).await.unwrap().op.id;
    let catalog = cluster.driver.catalog();
    let until = async |is_there: &dyn Fn(&polyshard_catalog::OpRecord) -> bool| {
        let there = async {
            while !is_there(&catalog.operation(id).await.unwrap()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let there = tokio::time::timeout(Duration::from_secs(60), there).await;
        assert!(there.is_ok(), "{:#?}", catalog.operation(id).await);
    };
    let waits = |record: &polyshard_catalog::OpRecord| {
        record.message.as_ref().is_some_and(|why| why.contains("write on several shards"))
    };
    until(&waits).await;
    // Rows that arrive are not the shard's own yet: its part waits for the move, which is given up for it.
    let write = cluster.journal.writes(1).await.unwrap().remove(0);
    assert!(write.done_ms.is_none());
    let ended = |record: &polyshard_catalog::OpRecord| record.state != OpState::Running;
    complete_newest(&cluster).await;
    until(&ended).await;
    let client = connect(&cluster).await;
    all_are(&client, 1).await;
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_between_sqlite_shards_waits_for_a_write_that_is_not_complete() {
    a_move_waits_for_a_write_that_is_not_complete(files(), "s2", "s1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_between_postgresql_shards_waits_for_a_write_that_is_not_complete() {
    a_move_waits_for_a_write_that_is_not_complete(Place::Postgres(server()), "s2", "s1").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long: run it with make test-all"]
async fn a_move_to_a_shard_gives_way_to_a_write_that_is_not_complete_there() {
    a_move_waits_for_a_write_that_is_not_complete(files(), "s1", "s2").await;
}

/// Writes over all shards beside moves to and fro: each row has every write that was answered, once.
async fn every_row_has_every_write_once(place: Place, seed: u64) {
    let cluster = Arc::new(Cluster::on_place(place, &Setup::default()).await);
    drop(make_tables(&cluster).await);
    let writers: Vec<_> = (0..3_u64)
        .map(|writer| {
            let cluster = cluster.clone();
            tokio::spawn(async move {
                let client = connect(&cluster).await;
                let mut done = 0;
                for round in 0..12_u64 {
                    // Which rows are never the same; all rows every third time.
                    let all = (seed + writer + round).is_multiple_of(3);
                    let sql = if all {
                        "UPDATE counts SET n = n + 1".to_owned()
                    } else {
                        let tenants: Vec<String> = (0..TENANTS).map(|tenant| tenant.to_string()).collect();
                        format!("UPDATE counts SET n = n + 1 WHERE tenant IN ({})", tenants.join(", "))
                    };
                    loop {
                        match client.simple_query(&sql).await {
                            Ok(_) => break,
                            // A range was being moved, or others were in the way: nothing was written.
                            Err(error) => {
                                let code = error.code().map(|code| code.code().to_owned());
                                let code = code.unwrap_or_else(|| panic!("{error:?}"));
                                assert!(
                                    ["40001", "40P01", "55P03", "57P03"].contains(&code.as_str()),
                                    "{error:?}"
                                );
                                tokio::time::sleep(Duration::from_millis(10)).await;
                            }
                        }
                    }
                    done += 1;
                }
                done
            })
        })
        .collect();
    for (from, to) in [("s1", "s2"), ("s2", "s1")] {
        cluster.move_all("tenants", from, to).await;
    }
    let mut done = 0;
    for writer in writers {
        done += tokio::time::timeout(Duration::from_secs(120), writer).await.unwrap().unwrap();
    }
    let client = connect(&cluster).await;
    all_are(&client, done).await;
    drop(client);
    Arc::into_inner(cluster).unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_on_sqlite_shards_has_every_write_once_beside_moves() {
    every_row_has_every_write_once(files(), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long: run it with make test-all"]
async fn every_row_on_postgresql_shards_has_every_write_once_beside_moves() {
    every_row_has_every_write_once(Place::Postgres(server()), 2).await;
}

/// Numbers that the database gives are the same when a part is run again: what RETURNING told is what is there.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_were_told_are_those_that_are_completed() {
    for place in [files(), Place::Postgres(server())] {
        let (failpoint, stop_at, _) = stopping();
        let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
        let cluster = Cluster::on_place(place.clone(), &setup).await;
        let client = make_tables(&cluster).await;
        for sql in [
            "CREATE TABLE items (tenant bigint, id bigint GENERATED BY DEFAULT AS IDENTITY, \
             made timestamptz DEFAULT now(), PRIMARY KEY (tenant, id))",
            "SELECT polyshard.shard_table('items', 'tenants', 'tenant')",
        ] {
            rows(&client, sql).await;
        }
        let many: Vec<String> = (0..TENANTS).map(|tenant| format!("({tenant})")).collect();
        let insert =
            format!("INSERT INTO items (tenant) VALUES {} RETURNING tenant, id, made", many.join(", "));
        let told: BTreeSet<Vec<String>> = rows(&client, &insert).await.into_iter().collect();
        let read = "SELECT tenant, id, made FROM items";
        assert_eq!(rows(&client, read).await.into_iter().collect::<BTreeSet<_>>(), told);
        "eventual.decide.after".clone_into(&mut stop_at.lock().unwrap());
        assert!(client.simple_query(&insert).await.is_err());
        stop_at.lock().unwrap().clear();
        drop(client);
        complete_newest(&cluster).await;
        let client = connect(&cluster).await;
        let counts = "SELECT count(*), count(DISTINCT id), count(DISTINCT made) FROM items";
        assert_eq!(rows(&client, counts).await, [["40", "40", "2"]]);
        drop(client);
        cluster.close().await;
    }
}

/// Tenants of the first and of the second shard.
pub async fn apart(cluster: &Cluster) -> (i64, i64) {
    let view = cluster.router.view();
    let map = &view.maps[&MapName::new("tenants").unwrap()].map;
    let on = |shard: &str| {
        let is_there = |tenant: &i64| {
            let key = polyshard_map::Key::BigInt(*tenant);
            map.locate(&key).unwrap().shard().as_str() == shard
        };
        (0..TENANTS).find(is_there).unwrap()
    };
    (on("s1"), on("s2"))
}

/// A transaction over SQLite shards is one write: it sees what it has written, goes back to savepoints, and is on all
/// of its shards or on none, also when it is stopped.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_over_sqlite_shards_is_one_write() {
    let place = files();
    let (failpoint, stop_at, stopped) = stopping();
    let setup = Setup { failpoint: Some(failpoint), ..Setup::default() };
    let cluster = Cluster::on_place(place.clone(), &setup).await;
    let client = make_tables(&cluster).await;
    let (one, two) = apart(&cluster).await;
    let run = async |sql: &str| rows(&client, sql).await;
    let both = format!("SELECT n FROM counts WHERE tenant IN ({one}, {two}) ORDER BY n");
    let of = |tenant: i64| format!("SELECT n FROM counts WHERE tenant = {tenant}");
    let add = |tenant: i64, n: i64| format!("UPDATE counts SET n = n + {n} WHERE tenant = {tenant}");

    run("BEGIN").await;
    assert_eq!(run(&of(one)).await, [["0"]]);
    run(&add(one, -5)).await;
    assert_eq!(run(&of(one)).await, [["-5"]]);
    run("SAVEPOINT a").await;
    assert_eq!(
        client.execute("UPDATE counts SET n = n + $1 WHERE tenant = $2", &[&5_i64, &two]).await.unwrap(),
        1
    );
    run(&add(one, 100)).await;
    run("ROLLBACK TO a").await;
    let change = "UPDATE counts SET n = n + $1 WHERE tenant = $2 RETURNING n";
    let told = client.query(change, &[&5_i64, &two]).await;
    assert_eq!(told.unwrap()[0].get::<_, i64>(0), 5);
    let other = connect(&cluster).await;
    assert_eq!(rows(&other, &both).await, [["0"], ["0"]]);
    run("COMMIT").await;
    assert_eq!(rows(&other, &both).await, [["-5"], ["5"]]);

    run("BEGIN").await;
    run(&add(one, 7)).await;
    run(&add(two, 7)).await;
    run("UPDATE counts SET n = n + 1").await;
    run("ROLLBACK").await;
    assert_eq!(run(&both).await, [["-5"], ["5"]]);
    run("BEGIN").await;
    run(&add(one, 7)).await;
    assert_eq!(refusal(&client, &format!("INSERT INTO counts VALUES ({two}, 1)")).await.0, "23505");
    run("COMMIT").await;
    assert_eq!(run(&both).await, [["-5"], ["5"]]);
    // What cannot be noted is refused, and nothing of the transaction stays.
    run("BEGIN").await;
    run(&add(one, 7)).await;
    assert_eq!(refusal(&client, "CREATE TABLE x (a bigint)").await.0, "0A000");
    run("ROLLBACK").await;

    "eventual.commit:s2.before".clone_into(&mut stop_at.lock().unwrap());
    run("BEGIN").await;
    run(&add(one, 1)).await;
    run(&add(two, -1)).await;
    run(&add(one, 1)).await;
    assert!(client.simple_query("COMMIT").await.is_err());
    assert!(stopped.load(Ordering::SeqCst));
    drop((client, other));
    cluster.close().await;
    let next = Cluster::on(place, &Setup::default()).await;
    let client = connect(&next).await;
    assert_eq!(rows(&client, &both).await, [["-3"], ["4"]]);
    drop(client);
    next.close().await;
}

/// Transactions that take files in opposite order do not wait for each other for ever, and money is only moved.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_over_sqlite_shards_in_opposite_order_end() {
    let setup = Setup { patience: Duration::from_millis(300), ..Setup::default() };
    let cluster = Arc::new(Cluster::on_place(files(), &setup).await);
    drop(make_tables(&cluster).await);
    let (one, two) = apart(&cluster).await;
    let movers: Vec<_> = [(one, two), (two, one), (one, two)]
        .into_iter()
        .map(|(from, to)| {
            let cluster = cluster.clone();
            tokio::spawn(async move {
                let client = connect(&cluster).await;
                let mut done = 0;
                while done < 5 {
                    let steps = [
                        "BEGIN".to_owned(),
                        format!("UPDATE counts SET n = n - 1 WHERE tenant = {from}"),
                        format!("UPDATE counts SET n = n + 1 WHERE tenant = {to}"),
                        "COMMIT".to_owned(),
                    ];
                    let mut failed = false;
                    for step in &steps {
                        if client.simple_query(step).await.is_err() {
                            client.simple_query("ROLLBACK").await.unwrap();
                            failed = true;
                            // So that two of them do not meet again and again.
                            tokio::time::sleep(Duration::from_millis(rand::random::<u64>() % 100)).await;
                            break;
                        }
                    }
                    done += i64::from(!failed);
                }
            })
        })
        .collect();
    for mover in movers {
        tokio::time::timeout(Duration::from_secs(120), mover).await.unwrap().unwrap();
    }
    let client = connect(&cluster).await;
    let found =
        rows(&client, &format!("SELECT n FROM counts WHERE tenant IN ({one}, {two}) ORDER BY n")).await;
    assert_eq!(found, [["-5"], ["5"]]);
    drop(client);
    Arc::into_inner(cluster).unwrap().close().await;
}

/// A reference that is checked at the end of a transaction is checked before it is decided.
async fn what_is_checked_at_the_end_is_checked_before_the_decision(place: Place) {
    let cluster = Cluster::on_place(place, &Setup::default()).await;
    let client = make_tables(&cluster).await;
    for sql in [
        "CREATE TABLE lines (tenant bigint, id bigint, PRIMARY KEY (tenant, id), FOREIGN KEY (tenant) \
         REFERENCES counts (tenant) DEFERRABLE INITIALLY DEFERRED)",
        "SELECT polyshard.shard_table('lines', 'tenants', 'tenant')",
    ] {
        rows(&client, sql).await;
    }
    let lines = |upto: i64| {
        let lines: Vec<String> = (0..upto).map(|tenant| format!("({tenant}, {upto})")).collect();
        format!("INSERT INTO lines VALUES {}", lines.join(", "))
    };
    assert_eq!(refusal(&client, &lines(TENANTS + 20)).await.0, "23503");
    assert_eq!(rows(&client, "SELECT count(*) FROM lines").await, [["0"]]);
    rows(&client, &lines(TENANTS)).await;
    assert_eq!(rows(&client, "SELECT count(*) FROM lines").await, [["20"]]);
    drop(client);
    cluster.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sqlite_shards_check_at_the_end_is_checked_before_the_decision() {
    what_is_checked_at_the_end_is_checked_before_the_decision(files()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_postgresql_shards_check_at_the_end_is_checked_before_the_decision() {
    what_is_checked_at_the_end_is_checked_before_the_decision(Place::Postgres(server())).await;
}
