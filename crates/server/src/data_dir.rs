//! The data directory: made if missing, and held by one server at a time.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::error::ServerError;

/// A directory that this process holds until it ends.
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes and holds it.
    pub(crate) fn open(path: &Path) -> Result<DataDir, ServerError> {
        let refuse = |reason: String| ServerError::Data { path: path.to_path_buf(), reason };
        // Other users of the machine have no business with the tenants' data.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| refuse(error.to_string()))?;
        let mut lock = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path.join("polyshard.lock"))
            .map_err(|error| refuse(error.to_string()))?;
        if let Err(error) = lock.try_lock() {
            if let std::fs::TryLockError::Error(error) = error {
                return Err(refuse(error.to_string()));
            }
            let mut holder = String::new();
            let read = lock.read_to_string(&mut holder);
            let holder = match (read, holder.trim()) {
                (Ok(_), pid) if !pid.is_empty() => format!("process {pid}"),
                _ => "process unknown".to_owned(),
            };
            return Err(ServerError::InUse { path: path.to_path_buf(), holder });
        }
        let write = lock
            .set_len(0)
            .and_then(|()| lock.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(lock, "{}", std::process::id()));
        write.map_err(|error| refuse(error.to_string()))?;
        Ok(DataDir { path: path.to_path_buf(), _lock: lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
