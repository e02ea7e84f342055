//! The statements on files of SQLite, also on those that an earlier version has made.

use std::collections::BTreeSet;

use polyshard_engine::{Database, Dialect, Options, Row, SqliteTarget, Statement, Target, Value};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::{Asked, From, INSERT_ROWS, LONG_BYTES, Long, Over, PARTITIONS_AHEAD, Texts, Until, texts};
use crate::schema;

/// As earlier versions made it: first in the order of keys, then in that of placements, then in the order they came.
const EARLIER: [&[&str]; 3] = [
    &[
        "CREATE TABLE polyshard_entity (dataset INTEGER NOT NULL, pk TEXT NOT NULL, rk TEXT NOT NULL, \
         placement BLOB NOT NULL, ts INTEGER NOT NULL, props TEXT NOT NULL, \
         PRIMARY KEY (dataset, pk, rk)) WITHOUT ROWID, STRICT",
        "CREATE INDEX polyshard_entity_placement ON polyshard_entity (dataset, placement)",
    ],
    &["CREATE TABLE polyshard_entity (dataset INTEGER NOT NULL, pk TEXT NOT NULL, rk TEXT NOT NULL, \
       placement BLOB NOT NULL, ts INTEGER NOT NULL, props TEXT NOT NULL, \
       PRIMARY KEY (dataset, placement, pk, rk)) WITHOUT ROWID, STRICT"],
    &["CREATE TABLE polyshard_entity (dataset INTEGER NOT NULL, pk TEXT NOT NULL, rk TEXT NOT NULL, \
       placement BLOB NOT NULL, ts INTEGER NOT NULL, props TEXT NOT NULL, \
       PRIMARY KEY (dataset, placement, pk, rk)) STRICT"],
];

/// What a file may have had before, nothing among them.
fn versions() -> impl Iterator<Item = &'static [&'static str]> {
    EARLIER.into_iter().chain([&[][..]])
}

/// A file with the store's tables, after these statements.
async fn open(before: &[&str]) -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::Sqlite(SqliteTarget { path: folder.path().join("entities.db") });
    let db = Database::open(target, Options::default(), None).await.unwrap();
    let own = (schema().statements)(Dialect::Sqlite);
    // As often as a server is started.
    let twice = own.iter().chain(&own).map(String::as_str);
    for sql in before.iter().copied().chain(twice) {
        db.write(Statement::new(sql.to_owned()).into()).await.unwrap();
    }
    (folder, db)
}

fn sqlite() -> &'static Texts {
    texts(Dialect::Sqlite)
}

/// Placements are in another order than names.
fn placement(pk: &str) -> Vec<u8> {
    pk.bytes().rev().collect()
}

fn key(text: &std::sync::Arc<str>, (dataset, pk, rk): (i64, &str, &str)) -> Statement {
    Statement::new(text.clone()).bind(dataset).bind(pk).bind(rk)
}

fn insert(key_of: (i64, &str, &str), ts: i64) -> Statement {
    key(&sqlite().insert, key_of).bind(placement(key_of.1)).bind(ts).bind("{}")
}

async fn affected(db: &Database, statement: Statement) -> u64 {
    db.write(statement.into()).await.unwrap()[0].affected()
}

/// All rows of a dataset in chunks of this length, as `pk/rk`.
async fn listed(db: &Database, dataset: i64, rows: i64) -> Vec<String> {
    let mut all = Vec::new();
    let mut after: Option<(String, String)> = None;
    loop {
        let (from, (pk, rk)) = match &after {
            None => (From::At, ("", "")),
            Some((pk, rk)) => (From::After, (pk.as_str(), rk.as_str())),
        };
        let text = sqlite().scan(Over::Partitions, from, Until::End, &Asked::default());
        let scan = Statement::new(text).bind(dataset).bind(pk).bind(rk).bind(rows);
        let found = db.read(scan).await.unwrap().into_rows();
        let keys = |row: &Row| (row.text(3).unwrap().to_owned(), row.text(0).unwrap().to_owned());
        let Some(last) = found.last() else { return all };
        after = Some(keys(last));
        all.extend(found.iter().map(|row| {
            let (pk, rk) = keys(row);
            assert_eq!(row.blob(4).unwrap(), placement(&pk));
            format!("{pk}/{rk}")
        }));
    }
}

async fn texts_of(db: &Database, sql: &str) -> Vec<String> {
    let rows = db.read(Statement::new(sql.to_owned())).await.unwrap().into_rows();
    rows.iter().map(|row| row.text(0).unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_file_of_an_earlier_version_is_used_as_it_is() {
    let rows = "INSERT INTO polyshard_entity VALUES (1, 'ab', '1', x'6261', 5, '{}'), \
                (1, 'ab', '2', x'6261', 5, '{}'), (1, 'ba', '1', x'6162', 5, '{}'), (2, 'ab', '1', x'6261', 5, '{}')";
    for tables in EARLIER {
        let (_folder, db) = open(&[tables, &[rows]].concat()).await;
        assert_eq!(listed(&db, 1, 2).await, ["ab/1", "ab/2", "ba/1"]);
        assert_eq!(affected(&db, insert((1, "ab", "1"), 6)).await, 0, "it is there");
        assert_eq!(affected(&db, insert((1, "aa", "9"), 6)).await, 1);
        let upsert =
            |ts: i64| key(&sqlite().upsert, (1, "ab", "1")).bind(placement("ab")).bind(ts).bind("{\"a\":1}");
        assert_eq!(db.write(upsert(4).into()).await.unwrap()[0].one().unwrap().int(0).unwrap(), 6);
        let get = key(&sqlite().get, (1, "ab", "1")).bind(placement("ab"));
        assert_eq!(db.read(get).await.unwrap().one().unwrap().text(1).unwrap(), "{\"a\":1}");
        let replace = key(&sqlite().replace, (1, "ba", "1")).bind(9).bind("{}").bind(placement("ba"));
        assert_eq!(affected(&db, replace).await, 1);
        let delete = key(&sqlite().delete_at, (1, "ba", "1")).bind(9).bind(placement("ba"));
        assert_eq!(affected(&db, delete).await, 1);
        assert_eq!(listed(&db, 1, 1).await, ["aa/9", "ab/1", "ab/2"]);
        let remove = Statement::new(sqlite().remove_some.clone()).bind(1).bind(10);
        assert_eq!(affected(&db, remove).await, 3);
        assert_eq!(texts_of(&db, "SELECT number || name FROM polyshard_entity_partition").await, ["2ab"]);
        db.close().await;
    }
}

#[tokio::test]
async fn partitions_are_listed_as_long_as_they_have_entities() {
    let mut random = StdRng::seed_from_u64(7);
    for before in versions() {
        let (_folder, db) = open(before).await;
        let mut expected = BTreeSet::new();
        for step in 0..600 {
            let (pk, rk) =
                (format!("p{}", random.random_range(0..20)), random.random_range(0..4).to_string());
            let (row, is_there) =
                ((1, pk.as_str(), rk.as_str()), expected.contains(&(pk.clone(), rk.clone())));
            if random.random_bool(0.5) {
                assert_eq!(affected(&db, insert(row, step)).await, u64::from(!is_there));
                expected.insert((pk, rk));
            } else {
                let delete = key(&sqlite().delete, row).bind(placement(&pk));
                assert_eq!(affected(&db, delete).await, u64::from(is_there));
                expected.remove(&(pk, rk));
            }
        }
        let partitions: BTreeSet<_> = expected.iter().map(|(pk, _)| pk.clone()).collect();
        let kept = texts_of(&db, "SELECT name FROM polyshard_entity_partition ORDER BY name").await;
        assert!(kept.len() > 5 && kept.iter().eq(&partitions), "{kept:?}");
        let rows: Vec<_> = expected.iter().map(|(pk, rk)| format!("{pk}/{rk}")).collect();
        for chunk in [1, 3, 100] {
            assert_eq!(listed(&db, 1, chunk).await, rows);
        }
        db.close().await;
    }
}

/// No statement reads more than it needs, nor sorts: a shard may have millions of entities.
#[tokio::test]
async fn rows_are_searched_by_key_and_not_sorted() {
    for before in versions() {
        let (_folder, db) = open(before).await;
        let own = sqlite();
        let mut all = vec![own.get.clone(), own.replace.clone(), own.replace_at.clone(), own.delete.clone()];
        all.extend([own.delete_at.clone(), own.any.clone(), own.remove_some.clone()]);
        for over in [Over::Partition, Over::Partitions] {
            for from in [From::At, From::After] {
                for until in [Until::End, Until::Last] {
                    all.push(own.scan(over, from, until, &Asked::default()));
                    for long in [Long::Marked, Long::Read] {
                        let (rows, wanted) = (" AND rk >= 'x' AND rk <= 'y'".into(), "rk <> 'x'".into());
                        all.push(own.scan(over, from, until, &Asked { rows, wanted, long }));
                    }
                }
            }
        }
        for text in all {
            let parameters = (1..10).filter(|number| text.contains(&format!("${number}"))).count();
            let explain = Statement::new(format!("EXPLAIN QUERY PLAN {text}"));
            let explain = (0..parameters).fold(explain, |explain, _| explain.bind(Value::Int(1)));
            let rows = db.read(explain).await.unwrap().into_rows();
            let plan: Vec<_> = rows.iter().map(|row| row.text(3).unwrap().to_owned()).collect();
            let is_good = |line: &String| !line.contains("TEMP B-TREE") && !line.starts_with("SCAN");
            assert!(plan.iter().all(is_good), "{text}: {plan:#?}");
            assert!(
                plan.iter().any(|line| line.starts_with("SEARCH polyshard_entity ")),
                "{text}: {plan:#?}"
            );
        }
        db.close().await;
    }
}

#[tokio::test]
async fn long_props_are_marked() {
    let (_folder, db) = open(&[]).await;
    for (rk, bytes) in [("1", 2), ("2", LONG_BYTES), ("3", LONG_BYTES + 1)] {
        let insert = key(&sqlite().insert, (1, "p", rk)).bind(placement("p")).bind(1).bind("x".repeat(bytes));
        assert_eq!(affected(&db, insert).await, 1);
    }
    for (long, last) in [(Long::Marked, 0), (Long::Read, LONG_BYTES + 1)] {
        let text = sqlite().scan(Over::Partition, From::At, Until::End, &Asked { long, ..Asked::default() });
        let rows =
            db.read(Statement::new(text).bind(1).bind("p").bind("").bind(9)).await.unwrap().into_rows();
        let lengths: Vec<_> = rows.iter().map(|row| row.text(2).unwrap().len()).collect();
        assert_eq!(lengths, [2, LONG_BYTES, last], "{long:?}");
    }
    db.close().await;
}

#[tokio::test]
async fn partitions_are_counted_ahead() {
    let (_folder, db) = open(&[]).await;
    for n in 0..PARTITIONS_AHEAD + 2 {
        assert_eq!(affected(&db, insert((1, &format!("p{n:03}"), "r"), 1)).await, 1);
    }
    let text = sqlite().partition_ahead.clone().unwrap();
    for (from, expected) in
        [("", Some(PARTITIONS_AHEAD - 1)), ("p000", Some(PARTITIONS_AHEAD)), ("p002", None)]
    {
        let rows = db.read(Statement::new(text.clone()).bind(1).bind(from)).await.unwrap();
        let found = rows.first().map(|row| row.text(0).unwrap().to_owned());
        assert_eq!(found, expected.map(|n| format!("p{n:03}")), "after {from}");
    }
    db.close().await;
}

#[tokio::test]
async fn several_rows_are_inserted_by_one_statement() {
    let (_folder, db) = open(&[]).await;
    let (rows, text) = (INSERT_ROWS[1], sqlite().insert_rows[1].clone());
    let shared = Statement::new(text).bind(1).bind("p").bind(placement("p")).bind(5);
    let many = (0..rows).fold(shared, |many, row| many.bind(format!("{row:02}")).bind("{}"));
    assert_eq!(affected(&db, insert((1, "p", "03"), 1)).await, 1);
    assert_eq!(affected(&db, many).await, rows as u64 - 1, "one was there");
    assert_eq!(listed(&db, 1, 5).await.len(), rows);
    db.close().await;
}
