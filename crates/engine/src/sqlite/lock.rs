//! The lock file beside a database: one process at a time, and its number for the one that comes second.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::Error;

/// Holds the lock until dropped. The file stays: deleting it would let two processes lock two files of the
/// same name.
#[derive(Debug)]
pub(crate) struct FileLock {
    _file: File,
}

impl FileLock {
    pub fn take(database: &Path) -> Result<FileLock, Error> {
        let mut name = database.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        let failed = |error: std::io::Error| refused(&path, error);

        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(Error::InUse { path: database.to_owned(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).map_err(failed)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(FileLock { _file: file })
    }
}

fn refused(path: &Path, error: std::io::Error) -> Error {
    let message = format!("{}: {error}", path.display());
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Error::ReadOnly { message },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Error::Full { message },
        ErrorKind::NotFound => Error::invalid(format!("{message}: make the directory first")),
        _ => Error::invalid(message),
    }
}
