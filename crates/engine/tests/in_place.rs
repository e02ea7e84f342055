//! Batches that callers have run on their own thread: only when nobody else writes, and with the same outcome.

mod common;

use common::{Bed, insert, options};
use polyshard_engine::{Access, Batch, Error, Expect, Generation, Options, ScalarFunction, Statement, Value};

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
