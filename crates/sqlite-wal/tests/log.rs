//! Real SQLite files: what is committed at once is in the log, as it is without.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use polyshard_sqlite_wal::{commit, register, sync_database};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rusqlite::{Connection, OpenFlags};

type Rows = BTreeMap<i64, Vec<u8>>;

fn open(path: &Path) -> Connection {
    open_with(path, "")
}

/// Opens a database with parameters of SQLite's.
fn open_with(path: &Path, parameters: &str) -> Connection {
    let gathering = register().expect("SQLite takes the file system");
    let uri = format!("file:{}{parameters}", path.display());
    let raw = Connection::open_with_flags_and_vfs(uri, OpenFlags::default(), gathering).unwrap();
    raw.pragma_update(None, "journal_mode", "WAL").unwrap();
    raw.pragma_update(None, "synchronous", "FULL").unwrap();
    raw.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
    raw.execute_batch("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v BLOB)").unwrap();
    raw
}

fn rows(raw: &Connection) -> Rows {
    let mut all = raw.prepare_cached("SELECT id, v FROM t").unwrap();
    let all = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    all.map(Result::unwrap).collect()
}

fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// What is there if the process is killed now: the files as they are, opened by somebody else.
fn rows_if_killed(path: &Path, folder: &Path) -> Rows {
    let copy = folder.join("killed.db");
    std::fs::copy(path, &copy).unwrap();
    std::fs::copy(log_of(path), log_of(&copy)).unwrap();
    let raw = Connection::open(&copy).unwrap();
    let check: String = raw.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let found = rows(&raw);
    // Closing it removes its log.
    drop(raw);
    found
}

/// How often this thread has called the kernel to write something.
fn writes() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("syscw: ")).unwrap();
    line.parse().unwrap()
}

#[test]
fn a_commit_of_many_pages_is_one_call() {
    let folder = tempfile::tempdir().unwrap();
    let raw = open(&folder.path().join("a.db"));
    let calls = |first: i64, is_at_once: bool| {
        raw.execute_batch("BEGIN IMMEDIATE").unwrap();
        for id in first..first + 20 {
            raw.execute("INSERT INTO t VALUES (?1, zeroblob(3000))", [id]).unwrap();
        }
        let before = writes();
        if is_at_once { commit(&raw) } else { raw.execute_batch("COMMIT") }.unwrap();
        writes() - before
    };
    let apart = calls(1, false);
    assert!(apart >= 40, "SQLite itself writes each page with two calls, and not {apart}");
    assert_eq!(calls(100, true), 1);
    assert_eq!(calls(200, true), 1);
    // A log that starts over has its new header synced before anything else is written.
    raw.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
    assert_eq!(calls(300, true), 2);
}

#[test]
fn a_commit_that_nobody_syncs_is_seen_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let raw = open(&path);
    for synchronous in ["NORMAL", "OFF", "FULL", "EXTRA"] {
        raw.pragma_update(None, "synchronous", synchronous).unwrap();
        raw.execute_batch("BEGIN IMMEDIATE; INSERT INTO t (v) VALUES (zeroblob(9000))").unwrap();
        commit(&raw).unwrap();
        let expected = rows(&raw);
        assert_eq!(rows(&Connection::open(&path).unwrap()), expected);
        assert_eq!(rows_if_killed(&path, folder.path()), expected);
    }
}

/// Transactions of all sizes, some larger than the cache, so that SQLite writes pages before the commit, and again with
/// it; some undone, in part or as a whole; checkpoints and other readers and writers between them.
fn random_transactions(seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    // A disk that may damage what lies beside a write: SQLite fills the last sector of a commit.
    let raw = open_with(&path, if seed.is_multiple_of(3) { "?psow=0" } else { "" });
    let other = Connection::open(&path).unwrap();
    let mut expected = Rows::new();
    for _ in 0..60 {
        let synchronous = ["FULL", "FULL", "NORMAL"][random.random_range(0..3)];
        raw.pragma_update(None, "synchronous", synchronous).unwrap();
        raw.pragma_update(None, "cache_size", [5, 10, 1000][random.random_range(0..3)]).unwrap();
        // Who else writes uses SQLite's own file system.
        let writer = if random.random_range(0..6) == 0 { &other } else { &raw };
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut after = expected.clone();
        for _ in 0..random.random_range(1..60) {
            let before = after.clone();
            writer.execute_batch("SAVEPOINT one").unwrap();
            let id = random.random_range(0..200);
            if random.random_range(0..5) == 0 {
                writer.execute("DELETE FROM t WHERE id = ?1", [id]).unwrap();
                after.remove(&id);
            } else {
                let value = vec![random.random::<u8>(); random.random_range(1..9000)];
                writer.execute("INSERT OR REPLACE INTO t VALUES (?1, ?2)", (id, &value)).unwrap();
                after.insert(id, value);
            }
            if random.random_range(0..8) == 0 {
                writer.execute_batch("ROLLBACK TO one").unwrap();
                after = before;
            }
            writer.execute_batch("RELEASE one").unwrap();
        }
        if random.random_range(0..5) == 0 {
            writer.execute_batch("ROLLBACK").unwrap();
        } else {
            commit(writer).unwrap();
            expected = after;
        }
        assert_eq!(rows(&raw), expected, "seed {seed}: as the writer sees it");
        assert_eq!(rows(&other), expected, "seed {seed}: as others see it");
        assert_eq!(rows_if_killed(&path, folder.path()), expected, "seed {seed}: killed");
        if random.random_range(0..4) == 0 {
            let mode = ["PASSIVE", "RESTART", "TRUNCATE"][random.random_range(0..3)];
            other.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())).unwrap();
        }
    }
    drop(other);
    drop(raw);
    assert_eq!(rows(&Connection::open(&path).unwrap()), expected, "seed {seed}: opened again");
}

#[test]
fn random_transactions_are_there_for_everybody() {
    for seed in 0..8 {
        random_transactions(seed);
    }
}

#[test]
fn a_commit_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let raw = open(&path);
    raw.execute_batch(
        "PRAGMA foreign_keys = ON; CREATE TABLE parent (id INTEGER PRIMARY KEY); \
         CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
    )
    .unwrap();
    raw.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (1, x'01'); INSERT INTO child VALUES (7)")
        .unwrap();
    commit(&raw).unwrap_err();
    assert!(raw.is_autocommit(), "it was rolled back");
    raw.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (2, x'02')").unwrap();
    commit(&raw).unwrap();
    assert_eq!(rows_if_killed(&path, folder.path()).keys().collect::<Vec<_>>(), [&2]);
}

/// The locks that this process has on a file, as others see them.
fn locks(path: &Path) -> usize {
    use std::os::unix::fs::MetadataExt;
    let own = format!(" {} ", std::process::id());
    let file = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let all = std::fs::read_to_string("/proc/locks").unwrap();
    all.lines().filter(|line| line.contains(&own) && line.contains(&file)).count()
}

#[test]
fn who_syncs_a_database_and_closes_it_gives_up_no_lock_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let raw = open(&path);
    raw.execute_batch("INSERT INTO t VALUES (1, x'01')").unwrap();
    let before = locks(&path);
    assert!(before > 0, "SQLite has locked it");
    let syncing = Connection::open(&path).unwrap();
    assert_eq!(rows(&syncing).len(), 1);
    sync_database(&syncing).unwrap();
    drop(syncing);
    assert_eq!(locks(&path), before);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error() {
    let gathering = register().unwrap();
    let missing = Path::new("/nowhere/at/all.db");
    Connection::open_with_flags_and_vfs(missing, OpenFlags::default(), gathering).unwrap_err();
}
