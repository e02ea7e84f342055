//! What only SQLite has: a file that belongs to one process, a log, a disk that fills up.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Bed, insert, options, write};
use polyshard_engine::{Batch, Database, Error, Options, ScalarFunction, Statement, Target, Value};

/// Names the database file for the child process of the tests below.
const CHILD_FILE: &str = "POLYSHARD_ENGINE_TEST_CHILD";

#[tokio::test]
async fn the_file_belongs_to_one_handle() {
    let bed = Bed::sqlite().await;
    let error = Database::open(bed.target.clone(), options(), None).await.map(drop).unwrap_err();
    let Error::InUse { pid, .. } = &error else { panic!("{error}") };
    assert_eq!(*pid, Some(std::process::id()));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    bed.db.close().await;
    Database::open(bed.target.clone(), options(), None).await.unwrap().close().await;
}

#[tokio::test]
async fn dropping_the_last_handle_frees_the_file() {
    let mut bed = Bed::sqlite().await;
    for _ in 0..3 {
        let target = bed.target.clone();
        drop(std::mem::replace(&mut bed.db, Bed::sqlite().await.db));
        bed.db = Database::open(target, options(), None).await.unwrap();
    }
}

/// Not a test of its own: the other process, which writes until it is killed and prints what was
/// acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process() {
    let Ok(file) = std::env::var(CHILD_FILE) else { return };
    let db = Database::open(Target::sqlite(file), options(), None).await.unwrap();
    let table =
        "CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY, body TEXT NOT NULL, version INTEGER)";
    write(&db, Statement::new(table)).await.unwrap();
    println!("ready");
    let callers: Vec<_> = (0..8i64)
        .map(|caller| {
            let db = db.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    let id = caller * 1_000_000 + number;
                    db.write(Batch::new().push(insert(id)).push(insert(-1 - id))).await.unwrap();
                    println!("{id}");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9_and_the_file_is_free_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shard.db");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_process", "--nocapture", "--test-threads=1"])
        .env(CHILD_FILE, &file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    assert!(lines.any(|line| line.ends_with("ready")));
    let error = Database::open(Target::sqlite(&file), options(), None).await.map(drop).unwrap_err();
    assert!(matches!(error, Error::InUse { pid: Some(pid), .. } if pid == child.id()), "{error}");
    let acknowledged: Vec<i64> = lines.take(500).map(|line| line.parse().unwrap()).collect();
    child.kill().unwrap();
    child.wait().unwrap();

    let db = Database::open(Target::sqlite(&file), options(), None).await.unwrap();
    let rows = db.read(Statement::new("SELECT id FROM item")).await.unwrap();
    let present: std::collections::HashSet<i64> = rows.iter().map(|row| row.int(0).unwrap()).collect();
    for id in acknowledged {
        assert!(present.contains(&id), "{id} was acknowledged and is gone");
    }
    for id in present.iter().filter(|id| **id >= 0) {
        assert!(present.contains(&(-1 - id)), "half of the batch of {id} is there");
    }
    db.close().await;
}

#[tokio::test]
async fn a_full_database_says_so_and_recovers() {
    let bed = Bed::sqlite().await;
    bed.items().await;
    // Of the writer's own connection: a file system of its own would need rights.
    bed.db.write(Statement::new("PRAGMA max_page_count = 40").into()).await.unwrap();
    let mut written = 0;
    let error = loop {
        let big =
            Statement::new("INSERT INTO item VALUES ($1, $2, 0)").bind(written).bind("x".repeat(10_000));
        match write(&bed.db, big).await {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(written > 0 && written < 40);
    assert_eq!(bed.ids().await.len() as i64, written);
    // Neighbours in the group get a clear answer, too, and space made is space used.
    bed.db.write(Statement::new("PRAGMA max_page_count = 4000").into()).await.unwrap();
    write(&bed.db, insert(1000)).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_says_so_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    if !mount(&["-t", "tmpfs", "-o", "size=2m", "tmpfs"], folder.path()) {
        println!("skipped: a small file system cannot be mounted here");
        return;
    }
    let unmount = Unmount(folder.path().to_owned());
    let db = Database::open(Target::sqlite(folder.path().join("shard.db")), options(), None).await.unwrap();
    let table = "CREATE TABLE item (id INTEGER PRIMARY KEY, body TEXT NOT NULL, version INTEGER)";
    write(&db, Statement::new(table)).await.unwrap();
    let mut acknowledged = 0i64;
    let error = loop {
        let body = "x".repeat(20_000);
        let big = Statement::new("INSERT INTO item VALUES ($1, $2, 0)").bind(acknowledged).bind(body);
        match write(&db, big).await {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    let count = db.read(Statement::new("SELECT count(*) FROM item")).await.unwrap();
    assert_eq!(count.one().unwrap().int(0).unwrap(), acknowledged);
    db.close().await;
    drop(unmount);
}

#[tokio::test]
async fn a_read_only_directory_says_so() {
    let folder = tempfile::tempdir().unwrap();
    if !mount(&["-t", "tmpfs", "-o", "size=1m,ro", "tmpfs"], folder.path()) {
        println!("skipped: a read-only file system cannot be mounted here");
        return;
    }
    let unmount = Unmount(folder.path().to_owned());
    let target = Target::sqlite(folder.path().join("shard.db"));
    let error = Database::open(target, options(), None).await.map(drop).unwrap_err();
    assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    drop(unmount);
}

#[tokio::test]
async fn a_missing_directory_and_a_wrong_file_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Target::sqlite(folder.path().join("missing").join("shard.db"));
    let error = Database::open(missing, options(), None).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("make the directory first"), "{error}");
    let file = folder.path().join("shard.db");
    std::fs::write(&file, "this is not a database, but it is long enough to be taken for one".repeat(20))
        .unwrap();
    let error = Database::open(Target::sqlite(file), options(), None).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("restore it from a backup"), "{error}");
}

#[tokio::test]
async fn functions_work_in_statements_triggers_and_indexes() {
    let double = ScalarFunction::new("double_it", 1, |arguments| match arguments {
        [Value::Int(value)] => Ok(Value::Int(value * 2)),
        other => Err(format!("double_it wants an int, not {other:?}")),
    });
    let bed = Bed::sqlite_with(Options { functions: vec![double], ..options() }).await;
    bed.items().await;
    bed.ddl("CREATE INDEX by_double ON item (double_it(id))").await;
    write(&bed.db, insert(4)).await.unwrap();
    assert_eq!(bed.count("SELECT id FROM item WHERE double_it(id) = 8").await, 4);
    let error = bed.db.read(Statement::new("SELECT double_it('x')")).await.unwrap_err();
    assert!(error.to_string().contains("double_it wants an int"), "{error}");
}

#[tokio::test]
async fn a_trigger_sees_what_replace_deletes_and_may_refuse() {
    let bed = Bed::sqlite().await;
    bed.items().await;
    bed.ddl("CREATE TABLE gone (id INTEGER)").await;
    bed.ddl("CREATE TRIGGER t AFTER DELETE ON item BEGIN INSERT INTO gone VALUES (old.id); END").await;
    write(&bed.db, insert(1)).await.unwrap();
    write(&bed.db, Statement::new("REPLACE INTO item VALUES (1, 'new', 1)")).await.unwrap();
    assert_eq!(bed.count("SELECT count(*) FROM gone").await, 1);

    bed.ddl(
        "CREATE TRIGGER r BEFORE INSERT ON item WHEN new.id = 13 BEGIN SELECT RAISE(ABORT, 'unlucky'); END",
    )
    .await;
    bed.ddl(
        "CREATE TRIGGER u BEFORE INSERT ON item WHEN new.id = 14 BEGIN SELECT RAISE(ROLLBACK, 'all'); END",
    )
    .await;
    let tasks: Vec<_> = (10..20)
        .map(|id| {
            let db = bed.db.clone();
            tokio::spawn(async move { (id, write(&db, insert(id)).await) })
        })
        .collect();
    for task in tasks {
        let (id, result) = task.await.unwrap();
        assert_eq!(result.is_err(), id == 13 || id == 14, "{id}: {result:?}");
    }
    assert_eq!(bed.ids().await, [1, 10, 11, 12, 15, 16, 17, 18, 19]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_capped_under_load_and_emptied_when_idle() {
    let keep = Duration::from_secs(1);
    let limits = Options { sqlite_wal_pages_max: 2000, sqlite_wal_keep: keep, ..options() };
    let bed = Bed::sqlite_with(limits).await;
    bed.items().await;
    let Target::Sqlite(target) = &bed.target else { panic!() };
    let log = target.path.with_file_name("shard.db-wal");
    let body = "x".repeat(3000);
    // Each row is a page of the log. The writer goes on until the log has been started over, which it must be.
    let mut rows = 0i64;
    loop {
        let batch = (0..300).map(|number| {
            Statement::new("INSERT INTO item VALUES ($1, $2, 0)").bind(rows + number).bind(body.as_str())
        });
        bed.db.write(batch.collect()).await.unwrap();
        rows += 300;
        let length = i64::try_from(std::fs::metadata(&log).unwrap().len()).unwrap();
        if rows * 4096 > length + 10_000_000 {
            break;
        }
        assert!(rows < 150_000, "the log has {length} bytes and was never started over");
    }
    let mut waits = 0;
    while std::fs::metadata(&log).unwrap().len() > 0 {
        waits += 1;
        assert!(waits < 600, "the log was never emptied");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(bed.count("SELECT count(*) FROM item").await, rows);
}

/// The header of a log, and each of its pages: <https://sqlite.org/fileformat2.html#walformat>.
const LOG_HEADER_BYTES: usize = 32;
const FRAME_BYTES: usize = 24 + 4096;

/// The file of the log is longer than what is in it: whatever was left there is no part of the log.
#[tokio::test]
async fn room_at_the_end_of_the_log_is_no_part_of_it_after_a_loss_of_power() {
    let bed = Bed::sqlite().await;
    bed.items().await;
    let Target::Sqlite(target) = &bed.target else { panic!() };
    let folder = tempfile::tempdir().unwrap();
    for id in 1..=40 {
        write(&bed.db, insert(id)).await.unwrap();
        if id % 13 > 0 {
            continue;
        }
        // As the disk would have it if the machine stopped now.
        let copy = folder.path().join(format!("{id}.db"));
        std::fs::copy(&target.path, &copy).unwrap();
        let log = target.path.with_file_name("shard.db-wal");
        let mut bytes = std::fs::read(&log).unwrap();
        // Room, and pages of a log before this one: they have its salt.
        let mut old = bytes[LOG_HEADER_BYTES..][..3 * FRAME_BYTES].to_vec();
        old.chunks_mut(FRAME_BYTES).for_each(|frame| frame[8] ^= 1);
        bytes.extend([0; 3 * FRAME_BYTES]);
        bytes.extend(old);
        std::fs::write(folder.path().join(format!("{id}.db-wal")), bytes).unwrap();
        let target = Target::Sqlite(polyshard_engine::SqliteTarget { path: copy });
        let db = Database::open(target, options(), None).await.unwrap();
        write(&db, insert(1000)).await.unwrap();
        let count = db.read(Statement::new("SELECT count(*) FROM item")).await.unwrap();
        assert_eq!(count.one().unwrap().int(0).unwrap(), id + 1);
        db.close().await;
    }
}

fn mount(arguments: &[&str], folder: &std::path::Path) -> bool {
    let status = Command::new("mount").args(arguments).arg(folder).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        // Lazily, since a failed assertion may leave files open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Joins texts, so that order and inverse can be seen.
#[derive(Default)]
struct Joined(std::collections::VecDeque<String>);

impl polyshard_engine::Accumulator for Joined {
    fn step(&mut self, arguments: &[Value]) -> Result<(), String> {
        match arguments {
            [Value::Text(text)] => self.0.push_back(text.clone()),
            _ => return Err("only texts can be joined".to_owned()),
        }
        Ok(())
    }

    fn inverse(&mut self, _: &[Value]) -> Result<(), String> {
        self.0.pop_front();
        Ok(())
    }

    fn value(&self) -> Result<Value, String> {
        Ok(Value::Text(self.0.iter().map(String::as_str).collect::<Vec<_>>().join("+")))
    }
}

#[tokio::test]
async fn aggregates_and_orders_of_text_written_in_rust_can_be_used() {
    let options = Options {
        aggregates: vec![polyshard_engine::Aggregate::new("joined", 1, || Box::<Joined>::default())],
        collations: vec![polyshard_engine::Collation::new("by_length", |a, b| a.len().cmp(&b.len()))],
        ..options()
    };
    let bed = Bed::sqlite_with(options).await;
    let first = |sql: &'static str| {
        let db = bed.db.clone();
        async move { db.read(Statement::new(sql)).await.map(|rows| rows.rows()[0].get(0).clone()) }
    };
    let values = "(SELECT 'ccc' AS a UNION ALL SELECT 'a' UNION ALL SELECT 'bb')";
    let sql: &'static str =
        format!("SELECT joined(a) FROM (SELECT a FROM {values} ORDER BY a COLLATE by_length)").leak();
    assert_eq!(first(sql).await.unwrap(), Value::from("a+bb+ccc"));
    let sql: &'static str = format!(
        "SELECT joined(a) OVER (ORDER BY a COLLATE by_length ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) \
         FROM {values} ORDER BY a COLLATE by_length DESC"
    )
    .leak();
    assert_eq!(first(sql).await.unwrap(), Value::from("bb+ccc"));
    assert_eq!(first("SELECT joined(a) FROM (SELECT 'x' AS a) WHERE false").await.unwrap(), Value::from(""));
    let error = first("SELECT joined(1)").await.unwrap_err();
    assert!(error.to_string().contains("only texts can be joined"), "{error}");
}

#[tokio::test]
async fn a_scan_sees_one_snapshot_of_every_attached_file() {
    let beds = [Bed::sqlite_with(options()).await, Bed::sqlite_with(options()).await];
    for (number, bed) in beds.iter().enumerate() {
        bed.db.write(Statement::new("CREATE TABLE t (n INTEGER)").into()).await.unwrap();
        let insert = Statement::new("INSERT INTO t VALUES ($1)").bind(number as i64);
        bed.db.write(insert.into()).await.unwrap();
    }
    let query = "SELECT n FROM main.t UNION ALL SELECT n FROM second.t ORDER BY 1";
    let others = vec![("second".to_owned(), beds[1].db.clone())];
    let mut scan = beds[0].db.scan_attached(&others, Statement::new(query), 10).await.unwrap();
    let rows = scan.next().await.unwrap().unwrap();
    assert_eq!(rows.iter().map(|row| row.int(0).unwrap()).collect::<Vec<_>>(), [0, 1]);
    assert!(scan.next().await.unwrap().is_none());
    let many = vec![others[0].clone(); polyshard_engine::ATTACHED_MAX + 1];
    assert!(beds[0].db.scan_attached(&many, Statement::new(query), 10).await.is_err());
    let all: Vec<_> =
        (0..polyshard_engine::ATTACHED_MAX).map(|n| (format!("s{n}"), beds[1].db.clone())).collect();
    let mut scan =
        beds[0].db.scan_attached(&all[..15], Statement::new("SELECT n FROM s14.t"), 10).await.unwrap();
    assert_eq!(scan.next().await.unwrap().unwrap().rows()[0].int(0).unwrap(), 1);
}

/// E1: a copy may be left out only if it is proven that it would be the same.
#[tokio::test(flavor = "multi_thread")]
async fn moments_of_the_same_content_are_known_and_every_commit_is_noticed() {
    let bed = Bed::sqlite().await;
    let Target::Sqlite(file) = &bed.target else { panic!("a file") };
    let path = file.path.clone();
    write(&bed.db, Statement::new("CREATE TABLE t (n INTEGER)")).await.unwrap();
    let first = bed.db.snapshot().await.unwrap();
    let unchanged = bed.db.snapshot().await.unwrap();
    assert_eq!(first.versions().unwrap().0, unchanged.versions().unwrap().1);
    let outside = rusqlite::Connection::open(&path).unwrap();
    for by_us in [true, false] {
        for sql in [
            "INSERT INTO t (n) VALUES (1)",
            "UPDATE t SET n = n + 1",
            "ALTER TABLE t ADD COLUMN m",
            "DELETE FROM t",
        ] {
            let before = bed.db.snapshot().await.unwrap();
            if by_us {
                write(&bed.db, Statement::new(sql)).await.unwrap();
            } else {
                outside.execute_batch(&sql.replace("COLUMN m", "COLUMN k")).unwrap();
            }
            let after = bed.db.snapshot().await.unwrap();
            assert_ne!(before.versions().unwrap().0, after.versions().unwrap().1, "{sql}");
        }
    }
    drop(outside);
    // Opened anew it is not known, and neither is another handle's.
    let before = bed.db.snapshot().await.unwrap();
    let before = before.versions().unwrap().0.clone();
    bed.db.close().await;
    let again = Database::open(bed.target.clone(), options(), None).await.unwrap();
    assert_ne!(&before, again.snapshot().await.unwrap().versions().unwrap().1);
    // Another file under the same name is another database.
    let before = again.snapshot().await.unwrap();
    std::fs::copy(&path, path.with_extension("copy")).unwrap();
    std::fs::rename(path.with_extension("copy"), &path).unwrap();
    let after = again.snapshot().await.unwrap();
    assert_ne!(before.versions().unwrap().0, after.versions().unwrap().1);
    drop((before, after));
    again.close().await;
}
