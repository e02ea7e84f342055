//! Shards that break off in the middle of an answer. C4, C9.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Cluster, Place, Setup, refusal, rows};
use polyshard_testkit::postgres::PgServer;

/// Passes everything between the door and a server on, and breaks connections off after so many bytes, if it is told.
struct Between {
    port: u16,
    /// Bytes that the server may still say; negative for any number.
    left: Arc<AtomicI64>,
    /// How many more beginnings of transactions with [`BEGIN`] the server does not understand.
    spoiled: Arc<AtomicUsize>,
}

/// How only these tests begin transactions.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE";

impl Between {
    async fn start(to: u16) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let left = Arc::new(AtomicI64::new(-1));
        let limit = left.clone();
        let spoiled = Arc::new(AtomicUsize::new(0));
        let to_spoil = spoiled.clone();
        tokio::spawn(async move {
            while let Ok((here, _)) = listener.accept().await {
                let there = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                let (mut from_door, mut to_door) = here.into_split();
                let (mut from_server, mut to_server) = there.into_split();
                let to_spoil = to_spoil.clone();
                tokio::spawn(async move {
                    let mut bytes = vec![0; 8192];
                    while let Ok(count @ 1..) = from_door.read(&mut bytes).await {
                        spoil(&mut bytes[..count], &to_spoil);
                        if to_server.write_all(&bytes[..count]).await.is_err() {
                            return;
                        }
                    }
                });
                let limit = limit.clone();
                tokio::spawn(async move {
                    let mut bytes = vec![0; 8192];
                    while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
                        let limited = limit.load(Ordering::SeqCst) >= 0;
                        if limited && limit.fetch_sub(count as i64, Ordering::SeqCst) < count as i64 {
                            return;
                        }
                        if to_door.write_all(&bytes[..count]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Between { port, left, spoiled }
    }
}

/// Makes a beginning in what the door says one that the server refuses, if there is still one to spoil.
fn spoil(said: &mut [u8], left: &AtomicUsize) {
    let found = said.windows(BEGIN.len()).position(|window| window == BEGIN.as_bytes());
    if let Some(at) = found
        && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    {
        said[at] = b'X';
    }
}

async fn behind() -> (Between, Cluster) {
    let server = PgServer::start();
    for name in ["catalog", "s1", "s2"] {
        server.create_database(name);
    }
    let between = Between::start(server.port()).await;
    let place = Place::Through(Arc::new(server), between.port);
    let cluster = Cluster::on_place(place, &Setup::default()).await;
    cluster.make_tables().await;
    (between, cluster)
}

/// What follows a beginning that failed does not count by itself, in either protocol, on one shard or on all. C4.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_behind_a_beginning_that_failed() {
    let (between, cluster) = behind().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    let spoil_next = || between.spoiled.store(1, Ordering::SeqCst);
    let was_spoiled = || assert_eq!(between.spoiled.load(Ordering::SeqCst), 0);

    spoil_next();
    run(BEGIN).await;
    assert_eq!(refusal(&client, "INSERT INTO notes VALUES (1, 1, 'x')").await.0, "42601");
    assert_eq!(refusal(&client, "SELECT 1").await.0, "25P02");
    run("ROLLBACK").await;
    was_spoiled();

    let insert = client.prepare("INSERT INTO notes VALUES ($1, 2, 'x')").await.unwrap();
    let read = client.prepare("SELECT count(*) FROM notes WHERE tenant = $1").await.unwrap();
    for first in [&insert, &read] {
        spoil_next();
        run(BEGIN).await;
        assert!(client.query(first, &[&1_i64]).await.is_err());
        assert_eq!(refusal(&client, "INSERT INTO notes VALUES (1, 3, 'x')").await.0, "25P02");
        run("ROLLBACK").await;
        was_spoiled();
    }

    spoil_next();
    run(BEGIN).await;
    assert_eq!(refusal(&client, "CREATE TABLE made (id int PRIMARY KEY)").await.0, "42601");
    run("ROLLBACK").await;
    was_spoiled();
    assert_eq!(refusal(&client, "SELECT * FROM made").await.0, "42P01");
    for shard in ["s1", "s2"] {
        assert_eq!(cluster.on_shard(shard, "SELECT to_regclass('made') IS NULL"), "t");
    }
    assert_eq!(run("SELECT count(*) FROM notes").await, [["0"]]);
    // And the same words do when the server understands them.
    run(&format!("{BEGIN}; INSERT INTO notes VALUES (1, 1, 'x'); COMMIT")).await;
    assert_eq!(run("SELECT count(*) FROM notes").await, [["1"]]);
    drop(client);
    cluster.close().await;
}

/// Half a row is not passed off as one, and half an answer not as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_is_an_error() {
    let (between, cluster) = behind().await;
    let client = cluster.connect().await;
    let run = async |sql: &str| rows(&client, sql).await;
    run("INSERT INTO notes VALUES (1, 1, repeat('long ', 400000))").await;
    run("INSERT INTO notes SELECT 2, n, repeat('x', 100) FROM generate_series(1, 20000) n").await;
    assert_eq!(run("SELECT count(*) FROM notes WHERE tenant = 2").await, [["20000"]]);

    // Between two rows: the client is told, and goes on.
    between.left.store(500_000, Ordering::SeqCst);
    let (state, message) = refusal(&client, "SELECT * FROM notes WHERE tenant = 2").await;
    assert!(state.starts_with("08"), "{state} {message}");
    between.left.store(-1, Ordering::SeqCst);
    assert_eq!(run("SELECT count(*) FROM notes WHERE tenant = 2").await, [["20000"]]);

    // In the middle of a row nothing can be said any more but goodbye.
    between.left.store(500_000, Ordering::SeqCst);
    let broken = client.simple_query("SELECT body FROM notes WHERE tenant = 1").await;
    assert!(broken.is_err());
    between.left.store(-1, Ordering::SeqCst);
    assert!(client.simple_query("SELECT 1").await.is_err());
    let again = cluster.connect().await;
    assert_eq!(rows(&again, "SELECT length(body) FROM notes WHERE tenant = 1").await, [["2000000"]]);
    drop((client, again));
    cluster.close().await;
}
