//! A batch that reads another SQLite file beside its own, or that is not synced: what it writes, whom it holds up, and
//! what it leaves behind.

use polyshard_engine::{Access, Batch, Database, Durable, Error, Expect, Options, Statement, Target};

async fn open(folder: &tempfile::TempDir, name: &str) -> Database {
    let target = Target::sqlite(folder.path().join(name));
    let db = Database::open(target, Options::default(), None).await.unwrap();
    db.write(Statement::new("CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)").into()).await.unwrap();
    db
}

async fn count(db: &Database, table: &str) -> i64 {
    let rows = db.read(Statement::new(format!("SELECT count(*) FROM {table}"))).await.unwrap();
    rows.one().unwrap().int(0).unwrap()
}

fn copy() -> Batch {
    Statement::new("INSERT INTO main.t SELECT id, body FROM other.t ORDER BY id").into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_copied_from_file_to_file_and_survive() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (open(&folder, "from.db").await, open(&folder, "to.db").await);
    from.write(Statement::new("INSERT INTO t VALUES (1, 'a'), (2, 'b')").into()).await.unwrap();
    for durable in [Durable::WithTheNext, Durable::Now] {
        to.write(Statement::new("DELETE FROM t").into()).await.unwrap();
        let answers = to.write_beside(("other", &from), copy(), durable).await.unwrap();
        assert_eq!(answers[0].affected(), 2);
        assert_eq!(count(&to, "t").await, 2);
    }
    // Nothing is left beside it, and it syncs as before.
    let gone = to.write(copy()).await.unwrap_err();
    assert!(gone.to_string().contains("other.t"), "{gone}");
    to.close().await;
    let again =
        Database::open(Target::sqlite(folder.path().join("to.db")), Options::default(), None).await.unwrap();
    assert_eq!(count(&again, "t").await, 2);
    again.close().await;
    from.close().await;
}

/// What the writer is set to: 2 is FULL, a sync with every commit.
async fn synchronous(db: &Database) -> i64 {
    let answers = db.write(Statement::new("PRAGMA synchronous").into()).await.unwrap();
    answers[0].one().unwrap().int(0).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_without_a_sync_is_seen_at_once_and_the_next_one_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&folder, "lazy.db").await;
    let insert = |id: i64| Statement::new("INSERT INTO t VALUES ($1, 'a')").bind(id);
    db.write_lazily(insert(1).into()).await.unwrap();
    assert_eq!((count(&db, "t").await, synchronous(&db).await), (1, 2));
    // One that fails leaves nothing, and is nobody else's failure.
    let missed = Batch::from(insert(2)).push(insert(3).expect(Expect::None));
    let (missed, other) = tokio::join!(db.write_lazily(missed), db.write(insert(4).into()));
    assert!(matches!(missed, Err(Error::Expectation { statement: 1, .. })), "{missed:?}");
    other.unwrap();
    assert_eq!((count(&db, "t").await, synchronous(&db).await), (2, 2));
    db.close().await;
    let again = Database::open(Target::sqlite(folder.path().join("lazy.db")), Options::default(), None);
    let again = again.await.unwrap();
    assert_eq!(count(&again, "t").await, 2);
    again.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_writer_of_the_other_file_is_not_kept_out() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (open(&folder, "from.db").await, open(&folder, "to.db").await);
    let mut writing = from.begin(Access::Write).await.unwrap();
    writing.run(Statement::new("INSERT INTO t VALUES (1, 'a')")).await.unwrap();
    // What is not committed is not seen, and nobody waits for it.
    let answers = to.write_beside(("other", &from), copy(), Durable::Now).await.unwrap();
    assert_eq!(answers[0].affected(), 0);
    writing.commit().await.unwrap();
    let answers = to.write_beside(("other", &from), copy(), Durable::Now).await.unwrap();
    assert_eq!(answers[0].affected(), 1);
    to.close().await;
    from.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_fails_leaves_nothing_and_the_next_one_works() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (open(&folder, "from.db").await, open(&folder, "to.db").await);
    from.write(Statement::new("INSERT INTO t VALUES (1, 'a'), (2, 'b')").into()).await.unwrap();
    to.write(Statement::new("INSERT INTO t VALUES (2, 'mine')").into()).await.unwrap();
    let refused = to.write_beside(("other", &from), copy(), Durable::WithTheNext).await.unwrap_err();
    assert!(matches!(refused, Error::Constraint { .. }), "{refused}");
    assert_eq!(count(&to, "t").await, 1);
    let missed = copy().push(Statement::new("DELETE FROM t WHERE id = 9").expect(Expect::Rows(1)));
    to.write(Statement::new("DELETE FROM t").into()).await.unwrap();
    let missed = to.write_beside(("other", &from), missed, Durable::Now).await.unwrap_err();
    assert!(matches!(missed, Error::Expectation { statement: 1, .. }), "{missed}");
    assert_eq!(count(&to, "t").await, 0);
    to.write_beside(("other", &from), copy(), Durable::Now).await.unwrap();
    assert_eq!(count(&to, "t").await, 2);
    to.close().await;
    from.close().await;
}
