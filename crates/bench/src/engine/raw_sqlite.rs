//! The same on rusqlite alone, as one would write it for one program: a writer thread with group commit, reads on the
//! calling thread, checkpoints on a thread of their own, the same settings.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot};

use super::work::{Store, shard_of};
use super::{BODY_BYTES, ROWS};
use crate::Failure;

/// As the engine's defaults.
const QUEUE_MAX: usize = 4096;
const GROUP_MAX: usize = 512;
const WAL_PAGES_START: u64 = 1000;
const WAL_PAGES_MAX: i64 = 16_384;
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_secs(1);

const READ: &str = "SELECT body FROM item WHERE id = ?1";
const INSERT: &str = "INSERT INTO item (id, body) VALUES (?1, ?2)";
const UPDATE: &str = "UPDATE item SET body = ?2 WHERE id = ?1";

thread_local! {
    /// Read connections of this thread, by shard. A thread reads of one store only: each has a runtime of its own.
    static READERS: RefCell<Vec<Option<Connection>>> = const { RefCell::new(Vec::new()) };
}

struct Write {
    sql: &'static str,
    id: i64,
    body: Vec<u8>,
    done: oneshot::Sender<Result<(), rusqlite::Error>>,
}

struct Shard {
    path: PathBuf,
    queue: mpsc::Sender<Write>,
}

/// Several files.
#[derive(Clone)]
pub struct Raw {
    shards: Arc<[Shard]>,
    threads: Arc<Threads>,
}

/// What the writer's commits say of the write-ahead log.
#[derive(Default)]
struct Log {
    commits: AtomicU64,
    pages: AtomicU64,
}

struct Threads {
    stop: Arc<AtomicBool>,
    writers: std::sync::Mutex<Vec<JoinHandle<()>>>,
    checkpointers: std::sync::Mutex<Vec<JoinHandle<()>>>,
}

impl Raw {
    /// So many files in the folder, filled.
    pub fn open(directory: &Path, count: usize) -> Result<Raw, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut shards, mut writers, mut checkpointers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            let path = directory.join(format!("{number}.db"));
            let mut connection = connect(&path, 8192)?;
            connection.pragma_update(None, "wal_autocheckpoint", 0)?;
            fill(&mut connection, number, count)?;
            let (queue, writes) = mpsc::channel(QUEUE_MAX);
            let log = Arc::new(Log::default());
            let committed = log.clone();
            connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
                committed.commits.fetch_add(1, Ordering::Relaxed);
                committed.pages.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
                Ok(())
            }))?;
            let checkpoints = connect(&path, 1024)?;
            let stop = stop.clone();
            // Names tell the two sides apart in a profile.
            let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
            let write = move || write_all(&connection, writes);
            writers.push(thread("raw-writer").spawn(write)?);
            let checkpoint = move || checkpoint_all(&checkpoints, &log, &stop);
            checkpointers.push(thread("raw-checkpoint").spawn(checkpoint)?);
            shards.push(Shard { path, queue });
        }
        let threads = Threads { stop, writers: writers.into(), checkpointers: checkpointers.into() };
        Ok(Raw { shards: shards.into(), threads: threads.into() })
    }

    /// Ends the threads; the runtime whose threads read has ended before.
    pub fn close(self) {
        drop(self.shards);
        self.threads.stop.store(true, Ordering::Relaxed);
        for threads in [&self.threads.writers, &self.threads.checkpointers] {
            for thread in std::mem::take(&mut *threads.lock().expect("no panic while held")) {
                thread.join().expect("a thread of the raw library does not panic");
            }
        }
    }

    async fn write(&self, shard: usize, sql: &'static str, id: i64, body: Vec<u8>) -> Result<(), Failure> {
        let (done, answer) = oneshot::channel();
        self.shards[shard]
            .queue
            .try_send(Write { sql, id, body, done })
            .map_err(|error| error.to_string())?;
        Ok(answer.await??)
    }
}

impl Store for Raw {
    async fn read(&self, shard: usize, id: i64) -> Result<usize, Failure> {
        READERS.with_borrow_mut(|readers| {
            readers.resize_with(self.shards.len(), || None);
            let reader = match &mut readers[shard] {
                Some(reader) => reader,
                none => {
                    let connection = connect(&self.shards[shard].path, 1024)?;
                    connection.pragma_update(None, "query_only", true)?;
                    none.insert(connection)
                }
            };
            let mut statement = reader.prepare_cached(READ)?;
            let body: Vec<u8> = statement.query_row(params![id], |row| row.get(0))?;
            Ok(body.len())
        })
    }

    async fn insert(&self, shard: usize, id: i64, body: Vec<u8>) -> Result<(), Failure> {
        self.write(shard, INSERT, id, body).await
    }

    async fn update(&self, shard: usize, id: i64, body: Vec<u8>) -> Result<(), Failure> {
        self.write(shard, UPDATE, id, body).await
    }
}

fn connect(path: &Path, cache_kib: i64) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "mmap_size", 1_i64 << 30)?;
    connection.pragma_update(None, "journal_size_limit", WAL_PAGES_MAX * 4096)?;
    connection.pragma_update(None, "cache_size", -cache_kib)?;
    Ok(connection)
}

fn fill(connection: &mut Connection, number: usize, shards: usize) -> Result<(), rusqlite::Error> {
    connection.execute_batch("CREATE TABLE item (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")?;
    let transaction = connection.transaction()?;
    for id in (0..ROWS).filter(|id| shard_of(*id, shards) == number) {
        transaction.prepare_cached(INSERT)?.execute(params![id, [b'x'; BODY_BYTES]])?;
    }
    transaction.commit()?;
    // Reads shall find the rows in the file, as they do once a database has been idle, and not in its log.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| match row.get(0)? {
        0 => Ok(()),
        busy => Err(rusqlite::Error::IntegralValueOutOfRange(0, busy)),
    })
}

fn write_all(connection: &Connection, mut queue: mpsc::Receiver<Write>) {
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP_MAX
            && let Ok(write) = queue.try_recv()
        {
            group.push(write);
        }
        let committed = write_group(connection, &group);
        for (index, write) in group.into_iter().enumerate() {
            // All of a group fail if one does: the benchmark ends then. Only the first gets the error itself.
            let result = match &committed {
                Err(_) if index > 0 => Err(rusqlite::Error::InvalidQuery),
                Err(error) => Err(rusqlite::Error::ToSqlConversionFailure(error.to_string().into())),
                Ok(()) => Ok(()),
            };
            // A caller who has gone does not mind.
            let _ = write.done.send(result);
        }
    }
}

fn write_group(connection: &Connection, group: &[Write]) -> Result<(), rusqlite::Error> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    for write in group {
        let changed = connection.prepare_cached(write.sql)?.execute(params![write.id, write.body])?;
        if changed != 1 {
            return Err(rusqlite::Error::StatementChangedRows(changed));
        }
    }
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

fn checkpoint_all(connection: &Connection, log: &Log, stop: &AtomicBool) {
    let (mut moved, mut seen, mut last_commit) = (0, 0, Instant::now());
    let mut truncated = true;
    while !stop.load(Ordering::Relaxed) {
        let commits = log.commits.load(Ordering::Relaxed);
        if commits != seen {
            (seen, last_commit, truncated) = (commits, Instant::now(), false);
        }
        if commits != moved && log.pages.load(Ordering::Relaxed) >= WAL_PAGES_START {
            moved = commits;
            if checkpoint(connection, "PASSIVE") > WAL_PAGES_MAX {
                checkpoint(connection, "RESTART");
            }
        } else if !truncated && last_commit.elapsed() > IDLE {
            truncated = true;
            checkpoint(connection, "TRUNCATE");
        }
        std::thread::sleep(CHECKPOINT_PAUSE);
    }
}

/// Pages in the log, 0 if it could not be done now.
fn checkpoint(connection: &Connection, mode: &str) -> i64 {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    connection.query_row(&sql, [], |row| row.get(1)).unwrap_or(0)
}
