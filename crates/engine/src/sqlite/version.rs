//! Whether anything was committed to a file between two looks at it.

use std::os::unix::fs::MetadataExt;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use super::connection::{Connection, Role};
use super::engine::Engine;
use super::error::translate;
use crate::{Error, Version};

/// A connection that never writes. SQLite promises that `PRAGMA data_version` differs on one connection if any other,
/// of whatever process, has committed since; the numbers of two connections say nothing of each other.
pub(crate) struct Watch {
    connection: Connection,
    /// Device and inode: another file under the same name is another database.
    file: (u64, u64),
    number: u64,
}

/// Numbers watches, so that no version of one is taken for a version of another.
static WATCHES: AtomicU64 = AtomicU64::new(1);

impl Engine {
    /// The version of the file now. It waits for the disk.
    pub(super) fn version(&self) -> Result<Version, Error> {
        let path = self.readers.path();
        let found = std::fs::metadata(path).map_err(|error| Error::Unavailable {
            message: format!("{} cannot be looked at ({error})", path.display()),
        })?;
        let file = (found.dev(), found.ino());
        let mut slot = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let watch = match slot.take().filter(|watch| watch.file == file) {
            Some(watch) => watch,
            None => {
                let connection = Connection::open(path, Role::Reader, &self.options)?;
                Watch { connection, file, number: WATCHES.fetch_add(1, Ordering::Relaxed) }
            }
        };
        let data = watch.connection.raw.query_row("PRAGMA data_version", [], |row| row.get(0));
        let version = Version { watch: watch.number, data: data.map_err(translate)? };
        *slot = Some(watch);
        Ok(version)
    }
}
