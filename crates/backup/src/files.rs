//! Files that are there whole or not at all: checksums, durable writes, folders that get their name at the end.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::BackupError;

/// Bytes read at once.
const READ_BYTES: usize = 1024 * 1024;

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes and SHA-256 of a file.
pub(crate) fn checksum(path: &Path) -> Result<(u64, String), BackupError> {
    let wrong = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            BackupError::Damaged(format!("{} is missing; use another backup", path.display()))
        }
        _ => BackupError::of_file(path, &error),
    };
    let mut file = File::open(path).map_err(wrong)?;
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; READ_BYTES]);
    loop {
        let read = file.read(&mut buffer).map_err(wrong)?;
        if read == 0 {
            return Ok((bytes, hex(&hash.finalize())));
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), BackupError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| BackupError::of_file(folder, &error))
}

/// Gives a folder its name, durably.
pub(crate) fn rename_folder(from: &Path, to: &Path) -> Result<(), BackupError> {
    fs::rename(from, to).map_err(|error| BackupError::of_file(to, &error))?;
    sync_folder(parent(to))
}

/// The folder that holds a path.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A path with an ending added to its last name.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Writes a new file durably.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), BackupError> {
    let written = File::create_new(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(|error| BackupError::of_file(path, &error))
}

/// A file that goes when it is no longer needed.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A name for one in a folder that is made; what an earlier process left there under it is removed.
    pub(crate) fn new(folder: &Path, name: &str) -> Result<Scratch, BackupError> {
        fs::create_dir_all(folder).map_err(|error| BackupError::of_file(folder, &error))?;
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(BackupError::of_file(&path, &error))
            }
            _ => Ok(Scratch(path)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for ending in ["", "-wal", "-shm", "-journal"] {
            let path = beside(&self.0, ending);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(file = %path.display(), %error, "a file that is no longer needed is left");
                }
                _ => {}
            }
        }
    }
}
