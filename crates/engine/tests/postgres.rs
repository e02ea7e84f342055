//! What only PostgreSQL has: a server that goes away, comes back, and may have committed or not.

mod common;

use std::collections::HashSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Bed, hold, insert, options, update, write};
use polyshard_engine::{Access, Batch, Database, Error, Event, Expect, Options, Secret, Statement, Target};
use polyshard_testkit::postgres::{PgOptions, PgServer};
use postgres_protocol::message::frontend;

/// Callers that write as fast as they can and note what they were told.
struct Load {
    stop: Arc<AtomicBool>,
    told: Arc<Mutex<Told>>,
    callers: Vec<tokio::task::JoinHandle<()>>,
}

#[derive(Default)]
struct Told {
    applied: Vec<i64>,
    not_applied: Vec<i64>,
    unknown: Vec<i64>,
}

impl Load {
    fn start(db: &Database) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let told: Arc<Mutex<Told>> = Arc::default();
        let callers = (0..16i64)
            .map(|caller| {
                let (db, stop, told) = (db.clone(), stop.clone(), told.clone());
                tokio::spawn(async move {
                    for number in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let id = caller * 1_000_000 + number;
                        let result = match number % 8 {
                            7 => in_transaction(&db, id).await,
                            _ => write(&db, insert(id)).await,
                        };
                        let mut told = told.lock().unwrap();
                        match result {
                            Ok(()) => told.applied.push(id),
                            Err(Error::OutcomeUnknown { .. }) => told.unknown.push(id),
                            Err(Error::Unavailable { .. } | Error::Busy { .. }) => told.not_applied.push(id),
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                })
            })
            .collect();
        Load { stop, told, callers }
    }

    /// Waits until this many more were acknowledged.
    async fn acknowledged(&self, more: usize) {
        let start = self.told.lock().unwrap().applied.len();
        while self.told.lock().unwrap().applied.len() < start + more {
            assert!(!self.callers.iter().any(|caller| caller.is_finished()), "a caller has failed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop(self) -> Told {
        self.stop.store(true, Ordering::Relaxed);
        for caller in self.callers {
            caller.await.unwrap();
        }
        Arc::into_inner(self.told).unwrap().into_inner().unwrap()
    }
}

async fn in_transaction(db: &Database, id: i64) -> Result<(), Error> {
    let mut transaction = db.begin(Access::Write).await?;
    transaction.run(insert(id)).await?;
    transaction.commit().await
}

impl Told {
    /// Every acknowledged write is there, none that was said not to be.
    async fn check(&self, bed: &Bed) {
        let present: HashSet<i64> = bed.ids().await.into_iter().collect();
        for id in &self.applied {
            assert!(present.contains(id), "{id} was acknowledged and is gone");
        }
        for id in &self.not_applied {
            assert!(!present.contains(id), "{id} was said not to be applied and is there");
        }
        let told = self.applied.len() + self.not_applied.len() + self.unknown.len();
        assert!(present.len() <= told);
        println!(
            "applied {}, not applied {}, unknown {}",
            self.applied.len(),
            self.not_applied.len(),
            self.unknown.len()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load_loses_nothing_and_leaves_nothing_unknown() {
    let mut bed = Bed::postgres().await;
    bed.items().await;
    let load = Load::start(&bed.db);
    for _ in 0..3 {
        load.acknowledged(300).await;
        tokio::task::block_in_place(|| bed.server().restart());
    }
    load.acknowledged(300).await;
    let told = load.stop().await;
    told.check(&bed).await;
    // An orderly restart forgets nothing, so every outcome can be learned.
    assert_eq!(told.unknown.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_server_under_load_loses_nothing_acknowledged() {
    let mut bed = Bed::postgres().await;
    bed.items().await;
    let load = Load::start(&bed.db);
    for _ in 0..4 {
        load.acknowledged(200).await;
        tokio::task::block_in_place(|| {
            bed.server().kill9();
            bed.server().start_again();
        });
    }
    load.acknowledged(200).await;
    load.stop().await.check(&bed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_backend_makes_the_server_recover_and_the_callers_carry_on() {
    let mut bed = Bed::postgres().await;
    bed.items().await;
    let load = Load::start(&bed.db);
    load.acknowledged(200).await;
    let pids = tokio::task::block_in_place(|| {
        bed.server().execute(
            "postgres",
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        )
    });
    let victim: u32 = pids.lines().next().unwrap().parse().unwrap();
    bed.server().kill_backend(victim);
    load.acknowledged(200).await;
    load.stop().await.check(&bed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminated_sessions_are_replaced_and_every_outcome_is_known() {
    let mut bed = Bed::postgres().await;
    bed.items().await;
    let load = Load::start(&bed.db);
    for _ in 0..5 {
        load.acknowledged(150).await;
        tokio::task::block_in_place(|| {
            bed.server().execute(
                "postgres",
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'postgres' \
                 AND backend_type = 'client backend' AND pid <> pg_backend_pid()",
            )
        });
    }
    load.acknowledged(150).await;
    let told = load.stop().await;
    told.check(&bed).await;
    assert_eq!(told.unknown.len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_is_unavailable_and_then_found_again() {
    let mut bed = Bed::postgres().await;
    bed.items().await;
    write(&bed.db, insert(1)).await.unwrap();
    let mut news = bed.db.listen("news").await.unwrap();
    let mut transaction = hold(&bed.db, 50).await;
    bed.server().stop();
    for _ in 0..3 {
        for error in [
            write(&bed.db, insert(2)).await.unwrap_err(),
            bed.db.ping().await.unwrap_err(),
            bed.db.begin(Access::Write).await.map(drop).unwrap_err(),
            bed.db.scan(Statement::new("SELECT 1"), 1).await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
            assert!(error.is_retryable());
        }
    }
    let error = transaction.run(insert(51)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(transaction.commit().await.is_err());
    let away = Database::open(bed.target.clone(), options(), None).await.map(drop).unwrap_err();
    assert!(matches!(away, Error::Unavailable { .. }), "{away:?}");

    bed.server().start_again();
    while let Err(error) = write(&bed.db, insert(3)).await {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
    assert_eq!(bed.ids().await, [1, 3]);
    assert_eq!(news.next().await.unwrap(), Event::Reconnected);
    write(&bed.db, Statement::notify("news", "back")).await.unwrap();
    assert_eq!(news.next().await.unwrap(), Event::Notice("back".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_does_not_hang_the_caller() {
    // Short, but not so short that a busy machine looks like a server that hangs.
    let quick = Options {
        statement_timeout: Duration::from_secs(1),
        connect_timeout: Duration::from_secs(2),
        ..options()
    };
    let mut bed = Bed::postgres_with(quick).await;
    bed.items().await;
    write(&bed.db, insert(1)).await.unwrap();
    bed.ids().await;
    bed.server().suspend();
    let (written, read) = tokio::join!(write(&bed.db, insert(2)), bed.db.ping());
    // No COMMIT was sent: the first part of the group was never answered.
    assert!(matches!(written, Err(Error::Unavailable { .. })), "{written:?}");
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    bed.server().resume();
    while let Err(error) = write(&bed.db, insert(3)).await {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
    assert_eq!(bed.ids().await, [1, 3]);
}

/// How many sleep for an hour.
const SLEEPING: &str = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(360%' \
                        AND state = 'active' AND pid <> pg_backend_pid()";

/// Nobody tells the server to stop then, and it would not notice before it has something to say.
#[test]
fn a_statement_of_a_process_that_is_gone_ends() {
    let server = PgServer::start();
    let target = Target::parse(&server.url("postgres")).unwrap();
    // Time limits are for statements of our own, and may be long.
    let options = Options { statement_timeout: Duration::from_secs(3600), ..options() };
    for raw in [true, false] {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let db = runtime.block_on(Database::open(target.clone(), options.clone(), None)).unwrap();
        let mut lent = None;
        if raw {
            let session = lent.insert(runtime.block_on(db.raw()).unwrap());
            frontend::query("SELECT pg_sleep(3601)", session.outgoing()).unwrap();
            runtime.block_on(session.flush()).unwrap();
        } else {
            let db = db.clone();
            runtime.spawn(async move { db.read(Statement::new("SELECT 1 FROM pg_sleep(3602)")).await });
        }
        while server.execute("postgres", SLEEPING) != "1" {
            std::thread::sleep(Duration::from_millis(5));
        }
        // All connections are cut.
        runtime.shutdown_background();
        drop((lent, db));
        let began = std::time::Instant::now();
        while server.execute("postgres", SLEEPING) != "0" {
            assert!(began.elapsed() < Duration::from_secs(60), "it goes on for nobody");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A server runs what it was sent next when it has stopped a statement, or did not hear that it should, and does not
/// notice that nobody is there any more.
#[tokio::test]
async fn a_session_that_is_thrown_away_runs_nothing_of_what_it_was_sent() {
    let mut bed = Bed::postgres().await;
    let mut lent = bed.db.raw().await.unwrap();
    for text in ["SELECT pg_sleep(3601)", "SELECT pg_sleep(3602)", "SELECT pg_sleep(3603)"] {
        frontend::query(text, lent.outgoing()).unwrap();
    }
    lent.flush().await.unwrap();
    while bed.server().execute("postgres", SLEEPING) != "1" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    lent.abandon().await;
    assert_eq!(bed.server().execute("postgres", SLEEPING), "0");
}

#[tokio::test]
async fn a_transaction_pooler_is_refused() {
    let server = PgServer::start();
    let Some(pooler) = server.pgbouncer("postgres") else {
        println!("skipped: pgbouncer is not installed");
        return;
    };
    let Target::Postgres(mut target) = Target::parse(&server.url("postgres")).unwrap() else { panic!() };
    target.port = pooler.port();
    let error = Database::open(Target::Postgres(target), options(), None).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("transaction pooler"), "{error}");
    assert!(error.to_string().contains("connect to PostgreSQL directly"), "{error}");
}

#[tokio::test]
async fn ordinary_rights_are_enough() {
    let server = PgServer::start();
    server.create_role("shop", "open sesame");
    server.execute("postgres", "CREATE DATABASE shop OWNER shop");
    let url = format!("postgres://shop:open%20sesame@{}:{}/shop", server.host(), server.port());
    let db = Database::open(Target::parse(&url).unwrap(), options(), None).await.unwrap();
    let schema = db.dialect().create_own_schema().unwrap();
    db.write(Statement::new(schema).into()).await.unwrap();
    let table = db.dialect().own_table("range");
    db.write(Statement::new(format!("CREATE TABLE {table} (id bigint)")).into()).await.unwrap();
    write(&db, Statement::new(format!("INSERT INTO {table} VALUES (1)"))).await.unwrap();
    let mut transaction = db.begin(Access::Write).await.unwrap();
    transaction.run(Statement::new(format!("INSERT INTO {table} VALUES (2)"))).await.unwrap();
    transaction.commit().await.unwrap();
    db.close().await;
    assert_eq!(server.execute("shop", "SELECT count(*) FROM polyshard.range"), "2");
    let left = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'shop'";
    assert_eq!(server.execute("postgres", left), "0");
}

#[tokio::test]
async fn the_socket_works_too() {
    let server = PgServer::start();
    let url = format!(
        "postgres://postgres@:{}/postgres?host={}",
        server.port(),
        server.socket_directory().display()
    );
    let target = Target::parse(&url).unwrap().with_password(Secret::new(server.password()));
    let db = Database::open(target, options(), None).await.unwrap();
    db.ping().await.unwrap();
    db.close().await;
}

#[tokio::test]
async fn a_password_is_never_shown() {
    let server = PgServer::start();
    let wrong = format!("postgres://postgres:hunter2@{}:{}/postgres", server.host(), server.port());
    let target = Target::parse(&wrong).unwrap();
    let error = Database::open(target.clone(), options(), None).await.map(drop).unwrap_err();
    assert!(matches!(&error, Error::Invalid { sqlstate: Some(state), .. } if state == "28P01"), "{error:?}");
    let gone = Target::parse("postgres://postgres:hunter2@127.0.0.1:1/postgres").unwrap();
    let away = Database::open(gone, options(), None).await.map(drop).unwrap_err();
    for text in [
        error.to_string(),
        format!("{error:?}"),
        away.to_string(),
        format!("{away:?}"),
        target.to_string(),
        format!("{target:?} {:?} {}", Secret::new("hunter2"), Secret::new("hunter2")),
    ] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    let missing = Target::parse(&server.url("missing")).unwrap();
    let error = Database::open(missing, options(), None).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("\"missing\" does not exist"), "{error}");
}

#[tokio::test]
async fn values_of_many_column_types() {
    let bed = Bed::postgres().await;
    bed.ddl("CREATE TABLE t (u uuid, j jsonb, s smallint, i int, f real, v varchar(10), b boolean)").await;
    let insert = Statement::new("INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7)")
        .bind(uuid::Uuid::from_u128(7))
        .bind("{\"a\": 1}")
        .bind(3)
        .bind(4)
        .bind(0.5)
        .bind("six")
        .bind(1);
    write(&bed.db, insert).await.unwrap();
    let row = bed.one(Statement::new("SELECT u, j, s, i, f, v, b FROM t")).await;
    assert_eq!(row.text(0).unwrap(), uuid::Uuid::from_u128(7).to_string());
    assert_eq!(row.text(1).unwrap(), "{\"a\": 1}");
    assert_eq!((row.int(2).unwrap(), row.int(3).unwrap(), row.real(4).unwrap()), (3, 4, 0.5));
    assert_eq!((row.text(5).unwrap(), row.bool(6).unwrap()), ("six", true));
    for (statement, word) in [
        (Statement::new("SELECT $1::int").bind(1i64 << 40), "out of range"),
        (Statement::new("SELECT $1::uuid").bind("no uuid"), "uuid"),
        (Statement::new("SELECT $1::bytea").bind("text"), "bytea"),
        (Statement::new("SELECT $1::text").bind("zero\0byte"), "zero byte"),
        (Statement::new("SELECT 1.5::numeric AS n"), "column 0 (n): type numeric"),
    ] {
        let error = bed.db.read(statement).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains(word), "{error}");
    }
}

#[tokio::test]
async fn encryption_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(folder.path().join("server.key"))
        .arg("-out")
        .arg(folder.path().join("server.crt"))
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        println!("skipped: openssl is not installed");
        return;
    }
    let mut server = PgServer::start_with(PgOptions::default());
    let plain = Target::parse(&format!("{}?sslmode=require", server.url("postgres"))).unwrap();
    let error = Database::open(plain.clone(), options(), None).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");

    for file in ["server.key", "server.crt"] {
        server.install_file(&folder.path().join(file), file);
    }
    server.execute("postgres", "ALTER SYSTEM SET ssl = on");
    server.restart();
    let used = "SELECT CASE WHEN ssl THEN 1 ELSE 0 END FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let certificate = folder.path().join("server.crt");
    let verified = format!("sslmode=verify-full&sslrootcert={}", certificate.display());
    for (settings, encrypted) in
        [("sslmode=disable", 0), ("sslmode=prefer", 1), ("sslmode=require", 1), (verified.as_str(), 1)]
    {
        let target = Target::parse(&format!("{}?{settings}", server.url("postgres"))).unwrap();
        let db = Database::open(target, options(), None)
            .await
            .unwrap_or_else(|error| panic!("{settings}: {error}"));
        let row = db.read(Statement::new(used)).await.unwrap();
        assert_eq!(row.one().unwrap().int(0).unwrap(), encrypted, "{settings}");
        db.close().await;
    }
    // The certificate does not name localhost.
    let Target::Postgres(mut other) =
        Target::parse(&format!("{}?{verified}", server.url("postgres"))).unwrap()
    else {
        panic!()
    };
    other.host = "localhost".to_owned();
    assert!(Database::open(Target::Postgres(other), options(), None).await.is_err());
}

/// One forgotten transaction holds up whoever wants its rows, and nobody else (H2).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_lock_holds_up_nobody_else() {
    let mut bed = Bed::postgres().await;
    bed.items().await;
    for id in [1, 2] {
        write(&bed.db, insert(id)).await.unwrap();
    }
    // Nobody who waits for it is answered before the test is over.
    let long = Duration::from_secs(120);
    let statement_timeout = long;
    bed.reopen_with(Options {
        lock_timeout: long,
        statement_timeout,
        transaction_idle_max: long,
        ..options()
    })
    .await;
    let mut held = bed.db.begin(Access::Write).await.unwrap();
    held.run(update(1, 1)).await.unwrap();
    let count = |id: i64| {
        Statement::new("UPDATE item SET version = version + 1 WHERE id = $1").bind(id).expect(Expect::Rows(1))
    };
    // More than there are sessions for them.
    let waiting: Vec<_> = (0..9)
        .map(|_| {
            let (db, change) = (bed.db.clone(), count(1));
            tokio::spawn(async move { write(&db, change).await })
        })
        .collect();
    for number in 0..20 {
        let others = async { tokio::join!(write(&bed.db, count(2)), write(&bed.db, insert(100 + number))) };
        let (updated, inserted) = tokio::time::timeout(long / 4, others).await.expect("they do not wait");
        updated.unwrap();
        inserted.unwrap();
    }
    assert!(waiting.iter().all(|waits| !waits.is_finished()), "they wait for the transaction");
    held.commit().await.unwrap();
    for waits in waiting {
        waits.await.unwrap().unwrap();
    }
    assert_eq!(bed.count("SELECT version FROM item WHERE id = 1").await, 1 + 1 + 9, "each once");
    assert_eq!(bed.count("SELECT version FROM item WHERE id = 2").await, 1 + 20);
    bed.db.close().await;
}

/// Whoever waits too long is told so, and nothing of his is done.
#[tokio::test]
async fn who_waits_too_long_for_a_lock_is_told_so() {
    let mut bed = Bed::postgres().await;
    bed.items().await;
    write(&bed.db, insert(1)).await.unwrap();
    bed.reopen_with(Options { lock_timeout: Duration::from_millis(300), ..options() }).await;
    let mut held = bed.db.begin(Access::Write).await.unwrap();
    held.run(update(1, 1)).await.unwrap();
    let batch = Batch::new().push(insert(2)).push(update(1, 1));
    let error = bed.db.write(batch).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
    held.rollback().await.unwrap();
    assert_eq!(bed.ids().await, [1]);
    write(&bed.db, update(1, 1)).await.unwrap();
}
