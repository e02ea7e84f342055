//! What every engine must do, run on each of them.

mod common;
#[path = "suite/scans.rs"]
mod scans;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Bed, hold, insert, options, update, write};
use polyshard_engine::{
    Access, Batch, ConstraintKind, Database, Dialect, Error, Event, Expect, HookFuture, Options,
    SessionHandle, SessionHook, Statement, Value,
};
use scans::*;

/// Runs each case on SQLite and on PostgreSQL, as tests of their own.
macro_rules! on_every_engine {
    ($($case:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::Bed::sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case(super::Bed::postgres().await).await;
            })*
        }
    };
}

on_every_engine! {
    values_come_back_as_they_went,
    parameters_are_numbered_not_positioned,
    a_batch_is_applied_whole_or_not_at_all,
    expectations_decide_over_the_batch,
    constraints_are_told_apart,
    a_failing_batch_does_not_hurt_its_neighbours,
    a_batch_may_use_the_table_it_makes,
    a_deferred_constraint_hurts_only_its_batch,
    reads_see_own_writes,
    reads_may_not_write,
    concurrent_writes_are_grouped,
    a_full_queue_says_busy,
    ordered_batches_run_in_order,
    rows_that_nobody_wants_are_counted,
    scans_come_in_pages_of_one_snapshot,
    a_dropped_scan_frees_its_place,
    scans_in_a_transaction_see_its_snapshot,
    a_dropped_scan_stops_a_query_that_never_ends,
    a_transaction_commits_or_vanishes,
    a_failed_transaction_can_only_roll_back,
    savepoints_recover_a_transaction,
    a_read_transaction_keeps_its_snapshot,
    an_idle_transaction_is_rolled_back,
    two_transactions_for_one_row_do_not_wait_for_ever,
    a_notice_arrives_after_commit_and_only_then,
    wrong_statements_are_explained,
    transaction_control_is_refused,
    a_statement_that_runs_too_long_is_stopped,
    changed_tables_are_noticed,
    data_survives_reopening,
    a_closed_database_says_so,
    the_hook_meets_the_session_first,
    the_database_clock_is_in_milliseconds,
}

async fn values_come_back_as_they_went(bed: Bed) {
    let d = bed.db.dialect();
    let (int, real, text, blob, bool) = (d.bigint(), d.real(), d.text(), d.blob(), d.bool());
    bed.ddl(&format!("CREATE TABLE v (i {int}, r {real}, t {text}, b {blob}, o {bool}, n {text})")).await;
    for number in [i64::MIN, -1, 0, 1, i64::MAX] {
        let insert = Statement::new("INSERT INTO v VALUES ($1, $2, $3, $4, $5, $6)")
            .bind(number)
            .bind(-0.5)
            .bind("grüße 'quoted' $1 \u{1F600}")
            .bind(vec![0u8, 255, 0])
            .bind(true)
            .bind(None::<String>);
        write(&bed.db, insert).await.unwrap();
        let row = bed.one(Statement::new("SELECT i, r, t, b, o, n FROM v WHERE i = $1").bind(number)).await;
        assert_eq!(row.int(0).unwrap(), number);
        assert_eq!(row.real(1).unwrap(), -0.5);
        assert_eq!(row.text(2).unwrap(), "grüße 'quoted' $1 \u{1F600}");
        assert_eq!(row.blob(3).unwrap(), [0, 255, 0]);
        assert!(row.bool(4).unwrap());
        assert_eq!(row.opt_text(5).unwrap(), None);
        assert_eq!(*row.get(5), Value::Null);
        assert!(row.int(2).unwrap_err().to_string().contains("column 2 (t) is text, not an int"));
        assert!(row.text(9).unwrap_err().to_string().contains("column 9 does not exist"));
    }
}

async fn parameters_are_numbered_not_positioned(bed: Bed) {
    bed.items().await;
    let swapped =
        Statement::new("INSERT INTO item (body, id, version) VALUES ($2, $1, $1)").bind(7).bind("seven");
    write(&bed.db, swapped).await.unwrap();
    let row = bed.one(Statement::new("SELECT id, body, version FROM item WHERE body <> '$9'")).await;
    assert_eq!((row.int(0).unwrap(), row.text(1).unwrap(), row.int(2).unwrap()), (7, "seven", 7));

    let missing = bed.db.read(Statement::new("SELECT id FROM item WHERE id = $1")).await.unwrap_err();
    assert!(matches!(missing, Error::Invalid { .. }), "{missing}");
    let spare = Statement::new("SELECT id FROM item WHERE id = $1").bind(1).bind(2);
    assert!(matches!(bed.db.read(spare).await, Err(Error::Invalid { .. })));
}

async fn a_batch_is_applied_whole_or_not_at_all(bed: Bed) {
    bed.items().await;
    let answers =
        bed.db.write(Batch::new().push(insert(1)).push(insert(2)).push(update(1, 1))).await.unwrap();
    assert_eq!(answers.iter().map(|rows| rows.affected()).collect::<Vec<_>>(), [1, 1, 1]);
    let error = bed.db.write(Batch::new().push(insert(3)).push(insert(1))).await.unwrap_err();
    assert!(matches!(error, Error::Constraint { kind: ConstraintKind::Unique, .. }), "{error}");
    assert_eq!(bed.ids().await, [1, 2]);
    assert!(bed.db.write(Batch::new()).await.unwrap().is_empty());
}

async fn expectations_decide_over_the_batch(bed: Bed) {
    bed.items().await;
    write(&bed.db, insert(1)).await.unwrap();
    // A lost race for a version, alone and behind another statement.
    let error = write(&bed.db, update(1, 99)).await.unwrap_err();
    assert!(
        matches!(error, Error::Expectation { statement: 0, expected: Expect::Rows(1), got: 0 }),
        "{error}"
    );
    assert_eq!(error.to_string(), "statement 1 expected exactly 1 row and got 0: nothing was applied");
    let error = bed.db.write(Batch::new().push(insert(2)).push(update(1, 99))).await.unwrap_err();
    assert!(matches!(error, Error::Expectation { statement: 1, got: 0, .. }), "{error}");
    // More than expected: what was changed is undone.
    bed.db.write(Batch::new().push(insert(3)).push(insert(4))).await.unwrap();
    let all = Statement::new("UPDATE item SET version = 50").expect(Expect::Rows(1));
    let error = write(&bed.db, all).await.unwrap_err();
    assert!(matches!(error, Error::Expectation { got: 3, .. }), "{error}");
    assert_eq!(bed.count("SELECT count(*) FROM item WHERE version = 50").await, 0);
    // Of rows returned.
    let none = Statement::new("SELECT id FROM item WHERE id = 1").expect(Expect::None);
    assert!(matches!(write(&bed.db, none).await, Err(Error::Expectation { got: 1, .. })));
    let some = Statement::new("SELECT id FROM item WHERE id = 9").expect(Expect::AtLeastOne);
    assert!(matches!(bed.db.read(some).await, Err(Error::Expectation { got: 0, .. })));
    let returning = Statement::new("DELETE FROM item WHERE id >= 3 RETURNING id").expect(Expect::Rows(2));
    let answers = bed.db.write(Batch::new().push(returning)).await.unwrap();
    assert_eq!((answers[0].len(), answers[0].affected()), (2, 2));
    assert_eq!(bed.ids().await, [1]);
}

async fn constraints_are_told_apart(bed: Bed) {
    bed.ddl("CREATE TABLE parent (id INTEGER PRIMARY KEY)").await;
    bed.ddl(
        "CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL REFERENCES parent (id), \
         size INTEGER CONSTRAINT positive CHECK (size > 0))",
    )
    .await;
    bed.ddl("INSERT INTO parent VALUES (1)").await;
    bed.ddl("INSERT INTO child VALUES (1, 1, 1)").await;
    for (sql, kind, name) in [
        ("INSERT INTO child VALUES (1, 1, 1)", ConstraintKind::Unique, "child"),
        ("INSERT INTO child VALUES (2, 9, 1)", ConstraintKind::ForeignKey, ""),
        ("DELETE FROM parent", ConstraintKind::ForeignKey, ""),
        ("INSERT INTO child VALUES (2, NULL, 1)", ConstraintKind::NotNull, "parent"),
        ("INSERT INTO child VALUES (2, 1, 0)", ConstraintKind::Check, "positive"),
    ] {
        let error = write(&bed.db, Statement::new(sql)).await.unwrap_err();
        assert!(!error.is_retryable());
        match error {
            Error::Constraint { kind: found, constraint, .. } => {
                assert_eq!(found, kind, "{sql}");
                assert!(constraint.contains(name), "{sql}: {constraint}");
            }
            other => panic!("{sql}: {other}"),
        }
    }
    assert_eq!(bed.count("SELECT count(*) FROM child").await, 1);
}

async fn a_failing_batch_does_not_hurt_its_neighbours(bed: Bed) {
    bed.items().await;
    write(&bed.db, insert(0)).await.unwrap();
    // A held write makes the rest pile up behind it, so that they form groups.
    for round in 0..5i64 {
        let tasks: Vec<_> = (1..=60)
            .map(|number| {
                let db = bed.db.clone();
                let id = round * 100 + number;
                tokio::spawn(async move {
                    let batch = match number % 6 {
                        0 => Batch::new().push(insert(0)),
                        1 => Batch::new().push(insert(id)).push(update(id, 99)),
                        2 => Batch::new().push(Statement::new("UPDATE item SET nonsense = 1")),
                        3 => Batch::new().push(update(0, 99)),
                        _ => Batch::new().push(insert(id)),
                    };
                    (number, id, db.write(batch).await)
                })
            })
            .collect();
        for task in tasks {
            let (number, id, result) = task.await.unwrap();
            match number % 6 {
                0 => assert!(matches!(result, Err(Error::Constraint { .. })), "{result:?}"),
                1 => assert!(matches!(result, Err(Error::Expectation { statement: 1, .. })), "{result:?}"),
                2 => assert!(matches!(result, Err(Error::Invalid { .. })), "{result:?}"),
                3 => assert!(matches!(result, Err(Error::Expectation { statement: 0, .. })), "{result:?}"),
                _ => assert!(result.is_ok(), "{id}: {result:?}"),
            }
        }
    }
    let expected: Vec<i64> = std::iter::once(0)
        .chain((0..5).flat_map(|round| (1..=60).filter(|n| n % 6 >= 4).map(move |n| round * 100 + n)))
        .collect();
    assert_eq!(bed.ids().await, expected);
}

async fn a_batch_may_use_the_table_it_makes(bed: Bed) {
    let batch = Batch::new()
        .push(Statement::new("CREATE TABLE fresh (id INTEGER PRIMARY KEY)"))
        .push(Statement::new("INSERT INTO fresh VALUES ($1)").bind(5))
        .push(Statement::new("CREATE INDEX fresh_id ON fresh (id)"));
    bed.db.write(batch).await.unwrap();
    assert_eq!(bed.count("SELECT id FROM fresh").await, 5);
    let wrong = Batch::new()
        .push(Statement::new("CREATE TABLE gone (id INTEGER PRIMARY KEY)"))
        .push(Statement::new("INSERT INTO gone VALUES (1), (1)"));
    assert!(matches!(bed.db.write(wrong).await, Err(Error::Constraint { .. })));
    assert!(bed.db.read(Statement::new("SELECT * FROM gone")).await.is_err());
}

async fn a_deferred_constraint_hurts_only_its_batch(bed: Bed) {
    bed.items().await;
    bed.ddl("CREATE TABLE note (item BIGINT REFERENCES item (id) DEFERRABLE INITIALLY DEFERRED)").await;
    // Filled within the same batch, the constraint holds at commit.
    let note = |id: i64| Statement::new("INSERT INTO note VALUES ($1)").bind(id);
    bed.db.write(Batch::new().push(note(1)).push(insert(1))).await.unwrap();
    let tasks: Vec<_> = (10..30)
        .map(|id| {
            let db = bed.db.clone();
            let statement = if id == 20 { note(999) } else { insert(id) };
            tokio::spawn(async move { (id, write(&db, statement).await) })
        })
        .collect();
    for task in tasks {
        let (id, result) = task.await.unwrap();
        if id == 20 {
            assert!(
                matches!(result, Err(Error::Constraint { kind: ConstraintKind::ForeignKey, .. })),
                "{result:?}"
            );
        } else {
            assert!(result.is_ok(), "{id}: {result:?}");
        }
    }
    assert_eq!(bed.count("SELECT count(*) FROM item").await, 20);
}

async fn reads_see_own_writes(bed: Bed) {
    bed.items().await;
    for id in 0..200 {
        write(&bed.db, insert(id)).await.unwrap();
        let row = bed.one(Statement::new("SELECT body FROM item WHERE id = $1").bind(id)).await;
        assert_eq!(row.text(0).unwrap(), format!("body {id}"));
    }
}

async fn reads_may_not_write(bed: Bed) {
    bed.items().await;
    let error = bed.db.read(insert(1)).await.unwrap_err();
    assert!(error.to_string().contains("a read may not write"), "{error}");
    assert!(bed.db.read(Statement::notify("news", "x")).await.is_err());
    assert!(bed.ids().await.is_empty());
}

async fn concurrent_writes_are_grouped(bed: Bed) {
    bed.items().await;
    let before = bed.db.stats();
    let tasks: Vec<_> = (0..64i64)
        .map(|caller| {
            let db = bed.db.clone();
            tokio::spawn(async move {
                for number in 0..20 {
                    write(&db, insert(caller * 1000 + number)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(bed.count("SELECT count(*) FROM item").await, 64 * 20);
    let after = bed.db.stats();
    assert_eq!(after.writes - before.writes, 64 * 20);
    assert!(after.groups - before.groups < 64 * 20 / 2, "writes were not grouped: {after:?}");
}

async fn a_full_queue_says_busy(mut bed: Bed) {
    bed.items().await;
    bed.reopen_with(Options { queue_max: 2, ..options() }).await;
    // The writer waits for the row this transaction holds (PostgreSQL) or for the transaction (SQLite).
    let transaction = hold(&bed.db, 1).await;
    let mut waiting: Vec<_> = (0..8)
        .map(|_| {
            let db = bed.db.clone();
            tokio::spawn(async move { write(&db, insert(1)).await })
        })
        .collect();
    // One is with the writer at most, two are queued; the rest hear of it before the transaction ends.
    let mut busy = 0;
    while busy < 5 {
        let (result, _, rest) = futures_util::future::select_all(waiting).await;
        let result = result.unwrap();
        assert!(matches!(result, Err(Error::Busy { .. })), "{result:?}");
        busy += 1;
        waiting = rest;
    }
    transaction.commit().await.unwrap();
    let mut refused = 0;
    for task in waiting {
        match task.await.unwrap() {
            Err(Error::Busy { .. }) => busy += 1,
            Err(Error::Constraint { .. }) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused >= 2 && busy + refused == 8, "{busy} busy, {refused} refused");
}

async fn ordered_batches_run_in_order(bed: Bed) {
    let bigint = bed.db.dialect().bigint();
    bed.items().await;
    bed.ddl(&format!("CREATE TABLE trace (id {bigint})")).await;
    // The writer is kept busy: SQLite's by the transaction, PostgreSQL's by a batch that waits for its row.
    let transaction = hold(&bed.db, 1).await;
    let writes = bed.db.stats().writes;
    let blocked = {
        let db = bed.db.clone();
        tokio::spawn(async move { write(&db, insert(1)).await })
    };
    // PostgreSQL's writer takes it; SQLite's cannot, and leaves it in the queue.
    let is_taken = || match bed.db.dialect() {
        Dialect::Sqlite => bed.db.stats().queued == 1,
        Dialect::Postgres => bed.db.stats().writes > writes,
    };
    while !is_taken() {
        tokio::task::yield_now().await;
    }
    // Queued behind it in descending order of key: all of them, and what was queued before.
    let all_queued = bed.db.stats().queued + 50;
    let mut tasks = Vec::new();
    for id in (0..50i64).rev() {
        let db = bed.db.clone();
        let batch = Batch::new()
            .push(Statement::new("INSERT INTO trace VALUES ($1)").bind(id))
            .order_key(id.to_be_bytes().to_vec());
        tasks.push(tokio::spawn(async move { db.write(batch).await }));
    }
    while bed.db.stats().queued < all_queued {
        tokio::task::yield_now().await;
    }
    transaction.rollback().await.unwrap();
    blocked.await.unwrap().unwrap();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let place = match bed.db.dialect() {
        Dialect::Sqlite => "rowid",
        Dialect::Postgres => "ctid",
    };
    let rows = bed.db.read(Statement::new(format!("SELECT id FROM trace ORDER BY {place}"))).await.unwrap();
    let ids: Vec<i64> = rows.iter().map(|row| row.int(0).unwrap()).collect();
    assert_eq!(ids, (0..50).collect::<Vec<_>>());
}

async fn a_transaction_commits_or_vanishes(bed: Bed) {
    bed.items().await;
    let mut transaction = bed.db.begin(Access::Write).await.unwrap();
    transaction.run_all(vec![insert(1), insert(2)]).await.unwrap();
    let seen = transaction.run(Statement::new("SELECT count(*) FROM item")).await.unwrap();
    assert_eq!(seen.one().unwrap().int(0).unwrap(), 2);
    // Others do not see it yet.
    assert!(bed.ids().await.is_empty());
    let again = transaction.run_all(vec![insert(3), insert(4), update(3, 1)]).await.unwrap();
    assert_eq!(again.len(), 3);
    transaction.commit().await.unwrap();
    assert_eq!(bed.ids().await, [1, 2, 3, 4]);

    hold(&bed.db, 5).await.rollback().await.unwrap();
    drop(hold(&bed.db, 6).await);
    write(&bed.db, insert(7)).await.unwrap();
    assert_eq!(bed.ids().await, [1, 2, 3, 4, 7]);
}

async fn a_failed_transaction_can_only_roll_back(bed: Bed) {
    bed.items().await;
    let mut transaction = hold(&bed.db, 1).await;
    assert!(matches!(transaction.run(insert(1)).await, Err(Error::Constraint { .. })));
    let error = transaction.run(insert(2)).await.unwrap_err();
    assert!(error.to_string().contains("roll it back"), "{error}");
    assert!(transaction.commit().await.unwrap_err().to_string().contains("earlier statement"));
    assert!(bed.ids().await.is_empty());

    let mut transaction = hold(&bed.db, 1).await;
    assert!(matches!(transaction.run(update(1, 9)).await, Err(Error::Expectation { .. })));
    assert!(transaction.commit().await.is_err());
    assert!(bed.ids().await.is_empty());
}

async fn savepoints_recover_a_transaction(bed: Bed) {
    bed.items().await;
    let mut transaction = hold(&bed.db, 1).await;
    transaction.run(Statement::new("SAVEPOINT here")).await.unwrap();
    transaction.run(insert(2)).await.unwrap();
    assert!(transaction.run(insert(1)).await.is_err());
    transaction.run(Statement::new("ROLLBACK TO here")).await.unwrap();
    transaction.run(insert(3)).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(bed.ids().await, [1, 3]);
}

async fn a_read_transaction_keeps_its_snapshot(bed: Bed) {
    bed.items().await;
    let mut transaction = bed.db.begin(Access::Read).await.unwrap();
    write(&bed.db, insert(1)).await.unwrap();
    let count = || Statement::new("SELECT count(*) FROM item");
    assert_eq!(transaction.run(count()).await.unwrap().one().unwrap().int(0).unwrap(), 0);
    let error = transaction.run(insert(2)).await.unwrap_err();
    assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    transaction.rollback().await.unwrap();
    let mut transaction = bed.db.begin(Access::Read).await.unwrap();
    assert_eq!(transaction.run(count()).await.unwrap().one().unwrap().int(0).unwrap(), 1);
    transaction.commit().await.unwrap();
}

async fn an_idle_transaction_is_rolled_back(mut bed: Bed) {
    bed.items().await;
    bed.reopen_with(Options { transaction_idle_max: Duration::from_millis(100), ..options() }).await;
    let mut transaction = hold(&bed.db, 1).await;
    // Waits behind the transaction until that is thrown out.
    write(&bed.db, insert(1)).await.unwrap();
    let error = transaction.run(insert(2)).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(transaction.commit().await.is_err());
    assert_eq!(bed.ids().await, [1]);
}

async fn two_transactions_for_one_row_do_not_wait_for_ever(mut bed: Bed) {
    bed.items().await;
    write(&bed.db, insert(1)).await.unwrap();
    let short = Duration::from_millis(100);
    bed.reopen_with(Options { lock_timeout: short, acquire_timeout: short, ..options() }).await;
    let mut first = bed.db.begin(Access::Write).await.unwrap();
    first.run(update(1, 1)).await.unwrap();
    let second = match bed.db.begin(Access::Write).await {
        Ok(mut second) => second.run(update(1, 1)).await.map(drop),
        Err(error) => Err(error),
    };
    let error = second.unwrap_err();
    assert!(matches!(error, Error::Conflict { .. } | Error::Busy { .. }), "{error}");
    assert!(error.is_retryable());
    first.commit().await.unwrap();
    write(&bed.db, update(1, 2)).await.unwrap();
}

async fn a_notice_arrives_after_commit_and_only_then(bed: Bed) {
    bed.items().await;
    let mut news = bed.db.listen("news").await.unwrap();
    let mut other = bed.db.listen("other \"channel\"").await.unwrap();
    // Not sent: the batch fails, the transaction is rolled back.
    let failing = Batch::new().push(Statement::notify("news", "lost")).push(update(9, 9));
    assert!(bed.db.write(failing).await.is_err());
    let mut transaction = bed.db.begin(Access::Write).await.unwrap();
    transaction.run(Statement::notify("news", "lost, too")).await.unwrap();
    transaction.rollback().await.unwrap();
    // Sent.
    let batch = Batch::new().push(insert(1)).push(Statement::notify("news", "first"));
    assert_eq!(bed.db.write(batch).await.unwrap().len(), 2);
    write(&bed.db, Statement::notify("other \"channel\"", "aside")).await.unwrap();
    let mut transaction = bed.db.begin(Access::Write).await.unwrap();
    transaction.run(Statement::notify("news", "second")).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(news.next().await.unwrap(), Event::Notice("first".to_owned()));
    assert_eq!(news.next().await.unwrap(), Event::Notice("second".to_owned()));
    assert_eq!(other.next().await.unwrap(), Event::Notice("aside".to_owned()));

    assert!(bed.db.listen("").await.is_err());
    let long = write(&bed.db, Statement::notify("news", "x".repeat(8000))).await.unwrap_err();
    assert!(long.to_string().contains("at most 7999 bytes"), "{long}");
    bed.db.close().await;
    assert!(matches!(news.next().await, Err(Error::Closed)));
}

async fn wrong_statements_are_explained(bed: Bed) {
    bed.items().await;
    for (sql, word) in [
        ("SELEKT 1", "SELEKT"),
        ("SELECT nonsense FROM item", "nonsense"),
        ("SELECT 1 FROM missing_table", "missing_table"),
    ] {
        let error = bed.db.read(Statement::new(sql)).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains(word), "{error}");
        let error = write(&bed.db, Statement::new(sql)).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains(word), "{error}");
    }
    let two = write(&bed.db, Statement::new("DELETE FROM item; DELETE FROM item")).await;
    assert!(matches!(two, Err(Error::Invalid { .. })), "{two:?}");
    assert!(bed.db.ping().await.is_ok());
}

async fn transaction_control_is_refused(bed: Bed) {
    let error = write(&bed.db, Statement::new("COMMIT")).await.unwrap_err();
    assert!(error.to_string().contains("Database::begin"), "{error}");
    assert!(bed.db.read(Statement::new("begin")).await.is_err());
    let mut transaction = bed.db.begin(Access::Write).await.unwrap();
    assert!(transaction.run(Statement::new("ROLLBACK")).await.is_err());
}

async fn a_statement_that_runs_too_long_is_stopped(mut bed: Bed) {
    bed.items().await;
    bed.reopen_with(Options { statement_timeout: Duration::from_millis(100), ..options() }).await;
    let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) \
                   SELECT count(*) FROM n";
    let error = bed.db.read(Statement::new(endless)).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let error = write(&bed.db, Statement::new(endless)).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    write(&bed.db, insert(1)).await.unwrap();
}

async fn changed_tables_are_noticed(bed: Bed) {
    bed.items().await;
    write(&bed.db, insert(1)).await.unwrap();
    let all = || Statement::new("SELECT * FROM item");
    let star = || Statement::new("UPDATE item SET version = 7 RETURNING *");
    assert_eq!(bed.db.read(all()).await.unwrap().columns().len(), 3);
    assert_eq!(bed.db.write(star().into()).await.unwrap()[0].columns().len(), 3);
    bed.ddl("ALTER TABLE item ADD COLUMN extra INTEGER DEFAULT 4").await;
    let rows = bed.db.read(all()).await.unwrap();
    assert_eq!(rows.columns(), ["id", "body", "version", "extra"]);
    assert_eq!(rows.one().unwrap().int(3).unwrap(), 4);
    assert_eq!(bed.db.write(star().into()).await.unwrap()[0].columns().len(), 4);
}

async fn data_survives_reopening(mut bed: Bed) {
    bed.items().await;
    bed.db.write((0..100).map(insert).collect()).await.unwrap();
    bed.reopen_with(options()).await;
    assert_eq!(bed.ids().await.len(), 100);
}

async fn a_closed_database_says_so(bed: Bed) {
    bed.items().await;
    let clone = bed.db.clone();
    bed.db.close().await;
    bed.db.close().await;
    assert!(matches!(write(&clone, insert(1)).await, Err(Error::Closed)));
    assert!(matches!(clone.read(Statement::new("SELECT 1")).await, Err(Error::Closed)));
    assert!(matches!(clone.begin(Access::Write).await.map(drop), Err(Error::Closed)));
    assert!(matches!(clone.begin(Access::Read).await.map(drop), Err(Error::Closed)));
    assert!(matches!(clone.scan(Statement::new("SELECT 1"), 1).await.map(drop), Err(Error::Closed)));
    assert!(matches!(clone.listen("news").await.map(drop), Err(Error::Closed)));
}

/// Counts sessions; refuses from the given number on.
struct Doorman {
    met: AtomicUsize,
    refuse_from: AtomicUsize,
}

#[derive(Debug, thiserror::Error)]
#[error("the list is full")]
struct ListFull;

impl SessionHook for Doorman {
    fn on_session<'a>(&'a self, session: &'a mut SessionHandle<'_>) -> HookFuture<'a> {
        Box::pin(async move {
            let rows = session.run(Statement::new("SELECT $1 + 1").bind(1i64)).await?;
            assert_eq!(rows.len(), 1);
            if self.met.fetch_add(1, Ordering::SeqCst) >= self.refuse_from.load(Ordering::SeqCst) {
                return Err(Error::refused(ListFull));
            }
            Ok(())
        })
    }
}

async fn the_hook_meets_the_session_first(mut bed: Bed) {
    bed.db.close().await;
    let doorman = Arc::new(Doorman { met: AtomicUsize::new(0), refuse_from: AtomicUsize::new(0) });
    let refused = Database::open(bed.target.clone(), options(), Some(doorman.clone())).await;
    let error = refused.map(drop).unwrap_err();
    assert!(matches!(error, Error::SessionRefused(_)) && error.to_string().contains("the list is full"));

    doorman.refuse_from.store(usize::MAX, Ordering::SeqCst);
    bed.db = Database::open(bed.target.clone(), options(), Some(doorman.clone())).await.unwrap();
    bed.items().await;
    write(&bed.db, insert(1)).await.unwrap();
    let generation = bed.db.session_generation();
    let met = doorman.met.load(Ordering::SeqCst);
    bed.db.disconnect_all();
    assert!(bed.db.session_generation() > generation);
    write(&bed.db, insert(2)).await.unwrap();
    assert_eq!(bed.ids().await, [1, 2]);
    hold(&bed.db, 3).await.commit().await.unwrap();
    let met_again = doorman.met.load(Ordering::SeqCst) - met;
    match bed.db.dialect() {
        // A new session each for the writer, a reader and the pool.
        Dialect::Postgres => assert_eq!(met_again, 3),
        Dialect::Sqlite => assert_eq!(met_again, 0),
    }
    if bed.db.dialect() == Dialect::Postgres {
        doorman.refuse_from.store(0, Ordering::SeqCst);
        bed.db.disconnect_all();
        assert!(matches!(write(&bed.db, insert(4)).await, Err(Error::SessionRefused(_))));
        assert!(matches!(bed.db.ping().await, Err(Error::SessionRefused(_))));
        assert!(matches!(bed.db.begin(Access::Read).await.map(drop), Err(Error::SessionRefused(_))));
        assert!(matches!(bed.db.listen("news").await.map(drop), Err(Error::SessionRefused(_))));
    }
}

async fn the_database_clock_is_in_milliseconds(bed: Bed) {
    let now = bed.count(&format!("SELECT {}", bed.db.dialect().now_ms())).await;
    let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    assert!((now - here).abs() < 60_000, "{now} {here}");
}
