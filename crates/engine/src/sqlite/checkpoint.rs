//! The checkpointer: a thread that moves the write-ahead log into the database file, so that no write waits
//! for it.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::connection::{Connection, Role};
use crate::{Error, Options};

/// The pause between two checkpoints under load.
const PAUSE: Duration = Duration::from_millis(50);

/// Without a commit for so long the database counts as idle, and the log is moved as a whole.
const IDLE: Duration = Duration::from_secs(1);

/// How long a checkpoint that starts the log over waits for readers and the writer, who wait for it meanwhile.
const WAIT: Duration = Duration::from_millis(100);

/// The log starts over while writers wait, who may have left so many pages to be moved since the last look; it is moved
/// again beside them while there are more, and so often at most: some write more than can be moved meanwhile.
const LEFT_PAGES: u32 = 64;
const ROUNDS_MAX: u32 = 6;

/// What the writer tells the checkpointer.
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
    /// Held while the log is started over. The writer takes it before each transaction: one that never pauses would
    /// otherwise always have SQLite's lock back before the checkpointer gets it, and the log would grow without end.
    restart: Mutex<()>,
    /// Log pages that start a checkpoint. A page that is changed again and again is then moved once for all of them:
    /// with a quarter as many, checkpoints took an eighth of the time of inserts.
    start_pages: u32,
}

#[derive(Default)]
struct State {
    /// Pages in the log after the last commit, 0 once it is empty.
    wal_pages: u32,
    /// Commits so far, to see whether any came meanwhile.
    commits: u64,
    /// All of the log was moved, and nothing was committed since: only its file is still there.
    moved: bool,
    stop: bool,
}

impl Signal {
    pub fn new(start_pages: u32) -> Signal {
        Signal { state: Mutex::default(), changed: Condvar::new(), restart: Mutex::default(), start_pages }
    }

    pub fn committed(&self, wal_pages: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let was_idle = state.wal_pages == 0 || state.moved;
        let was_small = state.wal_pages < self.start_pages;
        state.wal_pages = wal_pages;
        state.commits += 1;
        state.moved = false;
        if was_idle || (was_small && wal_pages >= self.start_pages) {
            self.changed.notify_one();
        }
    }

    /// Waits while the log is started over, which takes [`WAIT`] at most.
    pub fn await_restart(&self) {
        drop(self.restart.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Starts the log over, between two transactions of the writer; whether that was done.
    fn restart(&self, connection: &mut Connection) -> bool {
        let _held = self.restart.lock().unwrap_or_else(PoisonError::into_inner);
        checkpoint(connection, "RESTART").is_some()
    }

    /// Pages in the log after the last commit.
    fn pages(&self) -> u32 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).wal_pages
    }

    /// Changes the state if nothing was committed since.
    fn unless_committed(&self, commits: u64, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.commits == commits {
            change(&mut state);
        }
    }

    pub fn stop(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.changed.notify_one();
    }
}

pub(crate) fn start(path: &Path, options: &Options, signal: Arc<Signal>) -> Result<JoinHandle<()>, Error> {
    let connection = Connection::open(path, Role::Checkpointer, options)?;
    let syncing = Connection::open(path, Role::Checkpointer, options)?;
    let (wal_pages_max, wal_keep) = (options.sqlite_wal_pages_max, options.sqlite_wal_keep);
    let mut files = Files { connection, syncing };
    std::thread::Builder::new()
        .name("checkpointer".to_owned())
        .spawn(move || run(&mut files, &signal, wal_pages_max, wal_keep))
        .map_err(|error| Error::Unavailable { message: format!("cannot start a thread ({error})") })
}

/// What the checkpointer works with.
struct Files {
    connection: Connection,
    /// For syncing the database, and for nothing else: a failure to write it is told to each who has it open, and once.
    syncing: Connection,
}

fn run(files: &mut Files, signal: &Signal, wal_pages_max: u32, wal_keep: Duration) {
    let mut restart_pages = wal_pages_max;
    loop {
        match wait(signal, wal_keep) {
            Work::Stop => {
                // The last connection to close would do it, too; here it can be seen in the log.
                checkpoint(&mut files.connection, "TRUNCATE");
                return;
            }
            Work::Truncate { commits } => {
                if checkpoint(&mut files.connection, "TRUNCATE").is_some() {
                    signal.unless_committed(commits, |state| state.wal_pages = 0);
                }
            }
            Work::MoveAll { commits } => {
                // Whoever writes just now waits for what is left of it only.
                move_beside(files, signal);
                // The file stays: a commit that overwrites what is there takes half the time of one that makes the
                // file longer (92 µs instead of 180 on the machine of the benchmarks).
                if signal.restart(&mut files.connection) {
                    signal.unless_committed(commits, |state| state.moved = true);
                }
            }
            Work::Move { commits } => {
                let pages = move_beside(files, signal);
                if pages >= restart_pages {
                    let restarted = signal.restart(&mut files.connection);
                    // A long read is in the way: writers shall not wait for it with every checkpoint.
                    restart_pages = if restarted { wal_pages_max } else { pages + wal_pages_max };
                }
                // Moved, but the log is still there: the next commit or idleness will see to it.
                signal.unless_committed(commits, |state| state.wal_pages = 1);
                let state = signal.state.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = signal.changed.wait_timeout_while(state, PAUSE, |state| !state.stop);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

enum Work {
    /// Moves what can be moved while others read and write.
    Move {
        commits: u64,
    },
    /// Moves all of it, so that the log starts over.
    MoveAll {
        commits: u64,
    },
    /// The same, and empties the file.
    Truncate {
        commits: u64,
    },
    Stop,
}

fn wait(signal: &Signal, wal_keep: Duration) -> Work {
    let mut state = signal.state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if state.stop {
            return Work::Stop;
        }
        if state.wal_pages >= signal.start_pages && !state.moved {
            return Work::Move { commits: state.commits };
        }
        if state.wal_pages == 0 {
            state = signal.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let (commits, moved) = (state.commits, state.moved);
        let pause = if moved { wal_keep } else { IDLE };
        let (after, timeout) =
            signal.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
        state = after;
        if timeout.timed_out() && state.commits == commits && !state.stop {
            return if moved { Work::Truncate { commits } } else { Work::MoveAll { commits } };
        }
    }
}

/// Moves the log while others go on, until hardly anything is left of it; returns the pages in it.
///
/// SQLite syncs the database only when nothing is left, which under load is when the log starts over and writers wait.
/// So that is done here before, and what they have written meanwhile is moved once more.
fn move_beside(files: &mut Files, signal: &Signal) -> u32 {
    let pages = move_rounds(&mut files.connection, signal, 0);
    match polyshard_sqlite_wal::sync_database(&files.syncing.raw) {
        Ok(()) => move_rounds(&mut files.connection, signal, pages),
        Err(code) => {
            // SQLite's own sync, when the log starts over, says so again.
            tracing::warn!(
                code,
                "an SQLite database could not be synced: look at its disk; it will be tried again"
            );
            pages
        }
    }
}

fn move_rounds(connection: &mut Connection, signal: &Signal, mut pages: u32) -> u32 {
    for _ in 0..ROUNDS_MAX {
        match checkpoint(connection, "PASSIVE") {
            Some(now) if now > pages => pages = now,
            // It could not be moved, or has started over meanwhile.
            _ => break,
        }
        if signal.pages().saturating_sub(pages) <= LEFT_PAGES {
            break;
        }
    }
    pages
}

/// Runs a checkpoint; returns the pages in the log, or nothing if it could not finish. A failure is not an
/// error of anybody's request: the log keeps the data, and the next checkpoint tries again.
fn checkpoint(connection: &mut Connection, mode: &str) -> Option<u32> {
    let set_wait = connection.raw.busy_timeout(WAIT);
    let result = set_wait.and_then(|()| {
        connection.raw.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })
    });
    match result {
        Ok((0, pages)) => u32::try_from(pages).ok(),
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(%error, mode, "checkpoint failed and will be tried again");
            None
        }
    }
}
