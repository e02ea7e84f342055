//! Batches that callers have run on their own thread: only when nobody else writes, and with the same outcome.

mod common;

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use common::{Bed, insert, options};
use polyshard_engine::{Access, Batch, Error, Expect, Generation, Options, ScalarFunction, Statement, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const COUNT: &str = "SELECT count(*) FROM item";

/// A database whose SQL can tell on which thread it runs.
async fn bed() -> Bed {
    let thread = ScalarFunction::new("thread_name", 1, |_| {
        Ok(Value::Text(std::thread::current().name().unwrap_or_default().to_owned()))
    });
    let bed = Bed::sqlite_with(Options { functions: vec![thread], ..options() }).await;
    bed.items().await;
    bed
}

/// Writes a row, and tells which thread did. Its argument makes each call another one: SQLite may keep the answer of a
/// function that depends on nothing.
fn tell(id: i64) -> Batch {
    let sql = "INSERT INTO item (id, body, version) VALUES ($1, thread_name($1), 1) RETURNING body";
    Batch::from(Statement::new(sql).bind(id))
}

async fn told(bed: &Bed, batch: Batch) -> String {
    bed.db.write(batch).await.unwrap()[0].one().unwrap().text(0).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_caller_writes_on_his_own_thread() {
    let bed = bed().await;
    assert_eq!(told(&bed, tell(1)).await, "writer", "only those who ask for it");
    let own = std::thread::current().name().map(str::to_owned);
    // The writer answers a moment before it gives its seat back.
    let mut id = 2;
    while Some(told(&bed, tell(id).in_place()).await) != own {
        id += 1;
        assert!(id < 1_000, "nobody else writes, and it is never the caller's own thread");
    }
    assert_eq!(bed.count(COUNT).await, id);
    let stats = bed.db.stats();
    assert!(stats.groups >= 2 && stats.writes >= 2, "they are counted: {stats:?}");
    bed.db.close().await;
    assert!(matches!(bed.db.write(tell(id + 1).in_place()).await, Err(Error::Closed)));
}

#[tokio::test]
async fn a_runtime_of_one_thread_is_not_stopped() {
    let bed = bed().await;
    assert_eq!(told(&bed, tell(1).in_place()).await, "writer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_finds_a_transaction_waits_in_the_queue() {
    let bed = bed().await;
    let mut open = bed.db.begin(Access::Write).await.unwrap();
    open.run(insert(1)).await.unwrap();
    let db = bed.db.clone();
    let waiting = tokio::spawn(async move { db.write(tell(2).in_place()).await });
    while bed.db.stats().queued == 0 {
        tokio::task::yield_now().await;
    }
    open.commit().await.unwrap();
    let rows = waiting.await.unwrap().unwrap();
    assert_eq!(rows[0].one().unwrap().text(0).unwrap(), "writer");
    assert_eq!(bed.count(COUNT).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_fails_is_undone_and_a_void_one_refused() {
    let bed = bed().await;
    let missed = Statement::new("DELETE FROM item WHERE id = 77").expect(Expect::Rows(1));
    let batch = Batch::from(insert(1)).push(missed).in_place();
    assert!(matches!(bed.db.write(batch).await, Err(Error::Expectation { statement: 1, .. })));
    assert_eq!(bed.count(COUNT).await, 0);

    let generation = Generation::default();
    let guard = generation.guard();
    generation.advance();
    let refused = bed.db.guarded(&guard).write(Batch::from(insert(1)).in_place()).await;
    assert!(matches!(refused, Err(Error::Conflict { .. })));
    assert_eq!(bed.count(COUNT).await, 0);
    bed.db.write(Batch::from(insert(1)).in_place()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_ways_of_writing_at_once_lose_nothing() {
    const CALLERS: i64 = 8;
    const EACH: i64 = 60;
    let bed = bed().await;
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let db = bed.db.clone();
            tokio::spawn(async move {
                for number in 0..EACH {
                    let id = caller * EACH + number;
                    if caller % 4 == 3 {
                        let mut open = db.begin(Access::Write).await.unwrap();
                        open.run(insert(id)).await.unwrap();
                        open.commit().await.unwrap();
                    } else if caller % 4 == 2 {
                        db.write(Batch::from(insert(id))).await.unwrap();
                    } else {
                        db.write(Batch::from(insert(id)).in_place()).await.unwrap();
                        let twice = db.write(Batch::from(insert(id)).in_place()).await;
                        assert!(matches!(twice, Err(Error::Constraint { .. })), "{twice:?}");
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(bed.count(COUNT).await, CALLERS * EACH);
    bed.db.close().await;
}

/// A database with a function that does not return until it is told to, as a disk that hangs does not.
async fn hanging() -> (Bed, Receiver<()>, SyncSender<()>) {
    let ((entered, enters), (release, released)) = (sync_channel(1), sync_channel(1));
    let (entered, released) = (Mutex::new(entered), Mutex::new(released));
    let hang = ScalarFunction::new("hang", 1, move |_| {
        entered.lock().unwrap().send(()).unwrap();
        // Gone is as good as told to.
        let _told = released.lock().unwrap().recv();
        Ok(Value::Int(1))
    });
    let bed = Bed::sqlite_with(Options { functions: vec![hang], ..options() }).await;
    bed.items().await;
    (bed, enters, release)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_stops_nobody_else() {
    let (bed, enters, release) = hanging().await;
    // Quick ones before: this disk is known as one that does not hang.
    let db = bed.db.clone();
    let hangs = tokio::spawn(async move {
        for id in 1..=50 {
            db.write(Batch::from(insert(id)).in_place()).await.unwrap();
        }
        let hang =
            Statement::new("INSERT INTO item (id, body, version) VALUES (1000, 'a', hang($1))").bind(1);
        db.write(Batch::from(hang).in_place()).await
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::block_in_place(|| enters.recv().unwrap());

    // Sockets, clocks, tasks and other files, all of them served by what is left of the runtime.
    let other = tokio::spawn(async move {
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut byte = [0];
            for _ in 0..50 {
                stream.read_exact(&mut byte).await.unwrap();
                stream.write_all(&byte).await.unwrap();
            }
        });
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut byte = [7];
        for _ in 0..50 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            stream.write_all(&byte).await.unwrap();
            stream.read_exact(&mut byte).await.unwrap();
        }
        served.await.unwrap();
        let bed = Bed::sqlite().await;
        bed.items().await;
        for id in 1..=20 {
            bed.db.write(Batch::from(insert(id)).in_place()).await.unwrap();
        }
        bed.count(COUNT).await
    });
    // Only a hang reaches this; the write that hangs is let go either way, so that the test ends.
    let (done, is_done) = sync_channel(1);
    let watcher = std::thread::spawn(move || {
        let went_on = is_done.recv_timeout(Duration::from_secs(60)).is_ok();
        drop(release);
        went_on
    });
    assert_eq!(other.await.unwrap(), 20);
    done.send(()).unwrap();
    assert!(tokio::task::block_in_place(|| watcher.join().unwrap()), "others waited for the disk");
    hangs.await.unwrap().unwrap();
    assert_eq!(bed.count(COUNT).await, 51);
    bed.db.close().await;
}
