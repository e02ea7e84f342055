//! Answers in pages: of one snapshot, in a transaction, and given up by whoever asked.

use std::time::Duration;

use polyshard_engine::{Access, Database, Dialect, Error, Glimpse, Options, Seen, Statement, Value};

use crate::common::{Bed, insert, options, write};

pub async fn scans_come_in_pages_of_one_snapshot(bed: Bed) {
    bed.items().await;
    bed.db.write((0..1000).map(insert).collect()).await.unwrap();
    let query = Statement::new("SELECT id, body FROM item WHERE id >= $1 ORDER BY id").bind(5);
    let mut scan = bed.db.scan(query.clone(), 100).await.unwrap();
    let first = scan.next().await.unwrap().unwrap();
    assert_eq!((first.len(), first.columns()), (100, &["id".to_owned(), "body".to_owned()][..]));
    // Deleted meanwhile; the scan's snapshot keeps them.
    write(&bed.db, Statement::new("DELETE FROM item WHERE id >= 500")).await.unwrap();
    let mut ids: Vec<i64> = first.iter().map(|row| row.int(0).unwrap()).collect();
    let mut pages = 1;
    while let Some(page) = scan.next().await.unwrap() {
        assert!(!page.is_empty() && page.len() <= 100);
        ids.extend(page.iter().map(|row| row.int(0).unwrap()));
        pages += 1;
    }
    assert_eq!(pages, 10);
    assert_eq!(ids, (5..1000).collect::<Vec<_>>());
    assert!(scan.next().await.unwrap().is_none());

    let mut empty = bed.db.scan(Statement::new("SELECT id FROM item WHERE id = -1"), 10).await.unwrap();
    assert!(empty.next().await.unwrap().is_none());
    assert!(matches!(bed.db.scan(query, 0).await.map(drop), Err(Error::Invalid { .. })));
    let wrong = bed.db.scan(Statement::new("SELECT nonsense FROM item"), 10).await;
    let error = match wrong {
        Ok(mut scan) => scan.next().await.map(drop).unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
}

/// Whole, given up half-way, and failed: the transaction goes on, or says that it must be rolled back.
pub async fn scans_in_a_transaction_see_its_snapshot(bed: Bed) {
    bed.items().await;
    bed.db.write((0..250).map(insert).collect()).await.unwrap();
    let query = Statement::new("SELECT id FROM item ORDER BY id");
    let mut reading = bed.db.begin(Access::Read).await.unwrap();
    assert_eq!(reading.run(query.clone()).await.unwrap().len(), 250);
    write(&bed.db, Statement::new("DELETE FROM item WHERE id >= 10")).await.unwrap();
    let mut scan = reading.scan(query.clone(), 100).await.unwrap();
    let mut seen = 0;
    while let Some(page) = scan.next().await.unwrap() {
        assert!(!page.is_empty());
        seen += page.len();
    }
    assert_eq!(seen, 250);
    let mut left = reading.scan(query.clone(), 1).await.unwrap();
    assert!(left.next().await.unwrap().is_some());
    drop(left);
    assert_eq!(reading.run(query.clone()).await.unwrap().len(), 250);
    assert!(matches!(reading.scan(query.clone(), 0).await.map(drop), Err(Error::Invalid { .. })));
    let failed = match reading.scan(Statement::new("SELECT nonsense FROM item"), 10).await {
        Ok(mut scan) => scan.next().await.map(drop),
        Err(error) => Err(error),
    };
    assert!(failed.is_err());
    assert!(reading.run(query.clone()).await.is_err(), "only a rollback may follow");
    reading.rollback().await.unwrap();
    assert_eq!(bed.db.read(query).await.unwrap().len(), 10);
}

pub async fn a_dropped_scan_frees_its_place(mut bed: Bed) {
    bed.items().await;
    bed.db.write((0..500).map(insert).collect()).await.unwrap();
    bed.reopen_with(Options { sqlite_long_reads_max: 1, postgres_pool_max: 1, ..options() }).await;
    for _ in 0..5 {
        let mut scan = bed.db.scan(Statement::new("SELECT id FROM item"), 1).await.unwrap();
        assert_eq!(scan.next().await.unwrap().unwrap().len(), 1);
    }
    drop(bed.db.scan(Statement::new("SELECT id FROM item"), 1).await.unwrap());
    // Closing waits for every place to be free.
    bed.db.close().await;
}

pub async fn a_dropped_scan_stops_a_query_that_never_ends(mut bed: Bed) {
    const ENDLESS: &str =
        "WITH RECURSIVE e(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM e) SELECT count(*) FROM e";
    let wait = Duration::from_secs(60);
    let few = Options { sqlite_long_reads_max: 1, postgres_pool_max: 1, acquire_timeout: wait, ..options() };
    bed.reopen_with(few).await;
    for _ in 0..2 {
        tokio::select! {
            scan = bed.db.scan(Statement::new(ENDLESS), 1) => drop(scan.unwrap()),
            // PostgreSQL says nothing before the first row: whoever waits for that goes away.
            () = until_endless_runs(&bed.db, true) => {}
        }
    }
    // There is one place: it would be taken for ever.
    let mut next = bed.db.scan(Statement::new("SELECT 1"), 1).await.unwrap();
    assert_eq!(next.next().await.unwrap().unwrap().len(), 1);
    if bed.db.dialect() == Dialect::Postgres {
        let ended = tokio::time::timeout(wait, until_endless_runs(&bed.db, false)).await;
        assert!(ended.is_ok(), "the server works for nobody");
    }
}

/// Waits until such a query runs on a server, or none does.
async fn until_endless_runs(db: &Database, wanted: bool) {
    if db.dialect() == Dialect::Sqlite {
        return std::future::pending().await;
    }
    let running =
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'WITH RECURSIVE e%'";
    while (db.read(Statement::new(running)).await.unwrap().one().unwrap().int(0).unwrap() > 0) != wanted {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A file's rows are looked at before they are copied; a server's all come, unasked.
pub async fn rows_that_nobody_wants_are_counted(bed: Bed) {
    let d = bed.db.dialect();
    bed.ddl(&format!("CREATE TABLE v (i {}, t {}, b {}, r {})", d.bigint(), d.text(), d.blob(), d.real()))
        .await;
    let insert = "INSERT INTO v VALUES ($1, $2, $3, $4)";
    for number in 0..5i64 {
        let row = Statement::new(insert).bind(number).bind(format!("é{number}")).bind(vec![number as u8]);
        write(&bed.db, row.bind(if number == 0 { Value::Null } else { Value::Real(0.5) })).await.unwrap();
    }
    let mut seen = Vec::new();
    let query = || Statement::new("SELECT i, t, b, r, NULL FROM v ORDER BY i");
    let mut look = |row: &Seen<'_>| {
        let Glimpse::Int(number) = row.get(0) else { panic!("{:?}", row.get(0)) };
        let text = format!("é{number}");
        assert_eq!((row.get(1), row.text(1)), (Glimpse::Text(&text), Some(text.as_str())));
        assert_eq!(row.get(2), Glimpse::Blob(&[number as u8]));
        assert_eq!(row.get(3), if number == 0 { Glimpse::Null } else { Glimpse::Other });
        assert_eq!((row.get(4), row.get(5), row.text(0)), (Glimpse::Null, Glimpse::Other, None));
        seen.push(number);
        number % 2 == 1
    };
    let rows = bed.db.read_wanted(query(), &mut look).await.unwrap();
    let wanted: Vec<i64> = rows.iter().map(|row| row.int(0).unwrap()).collect();
    let (looked_at, expected): (&[i64], &[i64]) = match d {
        Dialect::Sqlite => (&[0, 1, 2, 3, 4], &[1, 3]),
        Dialect::Postgres => (&[], &[0, 1, 2, 3, 4]),
    };
    assert_eq!((seen.as_slice(), wanted.as_slice(), rows.affected()), (looked_at, expected, 5));
    // Of none there are still the names.
    let none = bed.db.read_wanted(query(), &mut |_| false).await.unwrap();
    assert_eq!(none.columns()[..2], ["i", "t"]);
}
