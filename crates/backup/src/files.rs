//! Files that are there whole or not at all: checksums, durable writes, folders that get their name at the end.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::BackupError;

/// Bytes read at once.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Bytes and SHA-256 of a file.
pub(crate) fn checksum(path: &Path) -> Result<(u64, String), BackupError> {
    copy(path, None)
}

/// Copies a file durably into a new one; bytes and SHA-256 of what was copied.
pub(crate) fn copy_into(from: &Path, to: &Path) -> Result<(u64, String), BackupError> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(|error| BackupError::of_file(folder, &error))?;
    }
    let mut file = File::create_new(to).map_err(|error| BackupError::of_file(to, &error))?;
    let copied = copy(from, Some((&mut file, to)))?;
    file.sync_all().map_err(|error| BackupError::of_file(to, &error))?;
    Ok(copied)
}

fn copy(from: &Path, mut to: Option<(&mut File, &Path)>) -> Result<(u64, String), BackupError> {
    let mut source = File::open(from).map_err(|error| BackupError::of_file(from, &error))?;
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = source.read(&mut chunk).map_err(|error| BackupError::of_file(from, &error))?;
        if read == 0 {
            break;
        }
        hash.update(&chunk[..read]);
        bytes += read as u64;
        if let Some((file, path)) = &mut to {
            file.write_all(&chunk[..read]).map_err(|error| BackupError::of_file(path, &error))?;
        }
    }
    let digits = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, digits))
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
