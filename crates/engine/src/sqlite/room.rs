//! Room in the write-ahead log: its file is made longer before its pages are needed, many pages at a time.
//!
//! A sync after the file has become longer takes twice the time of one after the same bytes were overwritten (196 and
//! 87 µs on the machine of the benchmarks), since the file system then also writes down the new length. SQLite makes
//! the file longer with every commit, until the log starts over.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const LOG_HEADER_BYTES: u64 = polyshard_sqlite_wal::LOG_HEADER_BYTES as u64;
const FRAME_HEADER_BYTES: u64 = polyshard_sqlite_wal::FRAME_HEADER_BYTES as u64;

/// Commits like the last one that there is room for after the file was made longer.
const COMMITS: u32 = 16;
/// Pages that it is made longer by at least, and at most: the commit that does it waits for them to be written.
const PAGES_MIN: u32 = 64;
const PAGES_MAX: u32 = 256;

/// What the log has in it, as the last commit left it.
#[derive(Default)]
pub(crate) struct LogPages {
    all: AtomicU32,
    /// How many of them came with that commit.
    last: AtomicU32,
}

impl LogPages {
    /// A commit left so many in it.
    pub fn committed(&self, pages: u32) {
        let before = self.all.swap(pages, Ordering::Relaxed);
        // Less than before: the log has started over.
        self.last.store(pages.checked_sub(before).unwrap_or(pages), Ordering::Relaxed);
    }
}

/// The file of the log, for making it longer.
pub(crate) struct LogRoom {
    path: PathBuf,
    file: Option<File>,
    frame_bytes: u64,
    pages: Arc<LogPages>,
    /// What the file is made longer by is written from here.
    zeros: Vec<u8>,
}

impl LogRoom {
    pub fn new(database: &Path, page_bytes: u64, pages: Arc<LogPages>) -> LogRoom {
        let mut path = database.as_os_str().to_owned();
        path.push("-wal");
        let frame_bytes = page_bytes + FRAME_HEADER_BYTES;
        LogRoom { path: path.into(), file: None, frame_bytes, pages, zeros: Vec::new() }
    }

    /// Makes the file longer if the next commit may need it. Only with SQLite's lock for writing, so that nobody else
    /// writes to the log meanwhile. What is added is no page: SQLite never reads so far, and if it is all that is left
    /// after a loss of power, a page of zeros ends the log.
    ///
    /// It is a matter of speed only: what cannot be done now is left to SQLite.
    pub fn make(&mut self) {
        if let Err(error) = self.try_make() {
            tracing::debug!(%error, log = %self.path.display(), "the log is made longer by each commit");
        }
    }

    fn try_make(&mut self) -> std::io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(OpenOptions::new().write(true).open(&self.path)?),
        };
        let (all, last) = (self.pages.all.load(Ordering::Relaxed), self.pages.last.load(Ordering::Relaxed));
        let bytes = |pages: u32| u64::from(pages) * self.frame_bytes;
        // Not by its metadata: whoever has looked at a file's times has its next change get a time of its own on newer
        // Linux, and a sync that has to write that down as well takes as long as one of a file that has become longer.
        let length = (&*file).seek(SeekFrom::End(0))?;
        // Shorter than what was in it: it was emptied since.
        let all = if LOG_HEADER_BYTES + bytes(all) > length { 0 } else { all };
        // Made longer once must be enough, with the header if it was empty: else every transaction that commits nothing
        // would make it longer again. A larger commit waits less for the new length than for its own pages.
        let last = last.clamp(1, PAGES_MAX - 1);
        // One commit like the last must fit.
        if LOG_HEADER_BYTES + bytes(all.saturating_add(last)) <= length {
            return Ok(());
        }
        let more = bytes(last.saturating_mul(COMMITS).clamp(PAGES_MIN, PAGES_MAX));
        self.zeros.resize(usize::try_from(more).unwrap_or(0), 0);
        let made = file.write_all_at(&self.zeros, length);
        if made.is_err() {
            // The last of a disk is for commits.
            file.set_len(length)?;
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(folder: &Path) -> (LogRoom, Arc<LogPages>, PathBuf) {
        let pages = Arc::new(LogPages::default());
        let room = LogRoom::new(&folder.join("a.db"), 4096, pages.clone());
        (room, pages, folder.join("a.db-wal"))
    }

    fn length(path: &Path) -> u64 {
        std::fs::metadata(path).unwrap().len()
    }

    #[test]
    fn the_file_is_longer_before_its_pages_are_needed() {
        let folder = tempfile::tempdir().unwrap();
        let (mut room, pages, path) = room(folder.path());
        room.make();
        assert!(!path.exists(), "SQLite makes the file");
        std::fs::write(&path, vec![7; 32 + 3 * 4120]).unwrap();
        pages.committed(3);
        room.make();
        let first = length(&path);
        assert_eq!(first, 32 + 3 * 4120 + 64 * 4120);
        assert_eq!(std::fs::read(&path).unwrap()[..32 + 3 * 4120], vec![7; 32 + 3 * 4120]);
        for all in [6, 20, 60] {
            pages.committed(all);
            room.make();
        }
        assert_eq!(length(&path), first + 256 * 4120, "a commit of forty pages would not have fitted");
        pages.committed(2);
        room.make();
        assert_eq!(length(&path), first + 256 * 4120, "the log started over");
        std::fs::write(&path, "").unwrap();
        room.make();
        assert_eq!(length(&path), 64 * 4120, "it was emptied");
    }

    #[test]
    fn transactions_that_commit_nothing_do_not_make_the_file_longer_and_longer() {
        let folder = tempfile::tempdir().unwrap();
        let (mut room, pages, path) = room(folder.path());
        let full = 32 + 20_000 * 4120;
        File::create(&path).unwrap().set_len(full).unwrap();
        pages.committed(10_000);
        pages.committed(20_000);
        for _ in 0..50 {
            room.make();
        }
        assert_eq!(length(&path), full + 256 * 4120, "once is enough");
        std::fs::write(&path, "").unwrap();
        for _ in 0..50 {
            room.make();
        }
        assert_eq!(length(&path), 256 * 4120, "so it is after it was emptied");
    }
}
