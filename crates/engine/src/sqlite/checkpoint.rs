//! The checkpointer: a thread that moves the write-ahead log into the database file, so that no write waits
//! for it.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::connection::{Connection, Role};
use crate::{Error, Options};

/// Log pages (4 MiB) that start a checkpoint; SQLite's own default for its automatic one.
const START_PAGES: u32 = 1000;

/// The pause between two checkpoints under load.
const PAUSE: Duration = Duration::from_millis(50);

/// Without a commit for so long the database counts as idle, and the log is emptied.
const IDLE: Duration = Duration::from_secs(1);

/// How long a checkpoint that empties the log waits for readers and the writer, who wait for it meanwhile.
const WAIT: Duration = Duration::from_millis(100);

/// What the writer tells the checkpointer.
#[derive(Default)]
pub(crate) struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Pages in the log after the last commit, 0 once it is empty.
    wal_pages: u32,
    /// Commits so far, to see whether any came meanwhile.
    commits: u64,
    stop: bool,
}

impl Signal {
    pub fn committed(&self, wal_pages: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = state.wal_pages == 0;
        let was_small = state.wal_pages < START_PAGES;
        state.wal_pages = wal_pages;
        state.commits += 1;
        if was_empty || (was_small && wal_pages >= START_PAGES) {
            self.changed.notify_one();
        }
    }

    pub fn stop(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).stop = true;
        self.changed.notify_one();
    }
}

pub(crate) fn start(path: &Path, options: &Options, signal: Arc<Signal>) -> Result<JoinHandle<()>, Error> {
    let mut connection = Connection::open(path, Role::Checkpointer, options)?;
    let wal_pages_max = options.sqlite_wal_pages_max;
    std::thread::Builder::new()
        .name("checkpointer".to_owned())
        .spawn(move || run(&mut connection, &signal, wal_pages_max))
        .map_err(|error| Error::Unavailable { message: format!("cannot start a thread ({error})") })
}

fn run(connection: &mut Connection, signal: &Signal, wal_pages_max: u32) {
    loop {
        match wait(signal) {
            Work::Stop => {
                // The last connection to close would do it, too; here it can be seen in the log.
                checkpoint(connection, "TRUNCATE");
                return;
            }
            Work::Truncate { commits } => {
                if checkpoint(connection, "TRUNCATE").is_some() {
                    let mut state = signal.state.lock().unwrap_or_else(PoisonError::into_inner);
                    if state.commits == commits {
                        state.wal_pages = 0;
                    }
                }
            }
            Work::Move { commits } => {
                let pages = checkpoint(connection, "PASSIVE").unwrap_or(0);
                if pages > wal_pages_max {
                    checkpoint(connection, "RESTART");
                }
                let mut state = signal.state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.commits == commits {
                    // Moved, but the log is still there: the next commit or idleness will see to it.
                    state.wal_pages = 1;
                }
                let waited = signal.changed.wait_timeout_while(state, PAUSE, |state| !state.stop);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

enum Work {
    Move { commits: u64 },
    Truncate { commits: u64 },
    Stop,
}

fn wait(signal: &Signal) -> Work {
    let mut state = signal.state.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if state.stop {
            return Work::Stop;
        }
        if state.wal_pages >= START_PAGES {
            return Work::Move { commits: state.commits };
        }
        if state.wal_pages == 0 {
            state = signal.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let commits = state.commits;
        let (after, timeout) =
            signal.changed.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
        state = after;
        if timeout.timed_out() && state.commits == commits && !state.stop {
            return Work::Truncate { commits };
        }
    }
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
