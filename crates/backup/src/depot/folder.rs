//! Objects as files of a folder: written beside, made durable, and only then given their name.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::Item;
use crate::{BackupError, files};

/// What a file is called until it is whole; such files are no objects.
const UNFINISHED: &str = ".unfinished";

#[derive(Clone)]
pub(super) struct Folder {
    root: PathBuf,
}

impl Folder {
    pub(super) fn new(root: PathBuf) -> Folder {
        Folder { root }
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(super) async fn put(&self, path: &str, bytes: Bytes) -> Result<(), BackupError> {
        let to = self.path(path);
        blocking(move || {
            let beside = write_beside(&to, &bytes)?;
            fs::rename(&beside, &to).map_err(|error| BackupError::of_file(&to, &error))?;
            files::sync_folder(files::parent(&to))
        })
        .await
    }

    pub(super) async fn put_new(&self, path: &str, bytes: Bytes) -> Result<bool, BackupError> {
        let to = self.path(path);
        blocking(move || {
            let beside = write_beside(&to, &bytes)?;
            // A second name is given only if nobody has it.
            let linked = fs::hard_link(&beside, &to);
            fs::remove_file(&beside).map_err(|error| BackupError::of_file(&beside, &error))?;
            match linked {
                Ok(()) => files::sync_folder(files::parent(&to)).map(|()| true),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
                Err(error) => Err(BackupError::of_file(&to, &error)),
            }
        })
        .await
    }

    pub(super) async fn get(&self, path: &str) -> Result<Option<Bytes>, BackupError> {
        let from = self.path(path);
        blocking(move || match fs::read(&from) {
            Ok(bytes) => Ok(Some(Bytes::from(bytes))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(BackupError::of_file(&from, &error)),
        })
        .await
    }

    pub(super) async fn look(&self, path: &str) -> Result<Option<Item>, BackupError> {
        let (from, path) = (self.path(path), path.to_owned());
        blocking(move || match fs::metadata(&from) {
            Ok(found) => Ok(Some(item(path, &found))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(BackupError::of_file(&from, &error)),
        })
        .await
    }

    pub(super) async fn list(&self, below: &str) -> Result<Vec<Item>, BackupError> {
        let (root, below) = (self.root.clone(), below.to_owned());
        blocking(move || {
            let (mut items, mut folders) = (Vec::new(), vec![below]);
            while let Some(folder) = folders.pop() {
                for (name, found) in entries(&root.join(&folder))? {
                    let path = format!("{folder}/{name}");
                    if found.is_dir() {
                        folders.push(path);
                    } else if !name.ends_with(UNFINISHED) {
                        items.push(item(path, &found));
                    }
                }
            }
            Ok(items)
        })
        .await
    }

    pub(super) async fn names(&self) -> Result<Vec<String>, BackupError> {
        let root = self.root.clone();
        blocking(move || {
            let folders = entries(&root)?.into_iter().filter(|(_, found)| found.is_dir());
            Ok(folders.map(|(name, _)| name).collect())
        })
        .await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<(), BackupError> {
        let (root, path) = (self.root.clone(), self.path(path));
        blocking(move || {
            match fs::remove_file(&path) {
                Err(error) if !is_missing(&error) => return Err(BackupError::of_file(&path, &error)),
                _ => {}
            }
            // Folders go with their last file; one that is not empty stays.
            let mut folder = files::parent(&path);
            while folder != root && fs::remove_dir(folder).is_ok() {
                folder = files::parent(folder);
            }
            Ok(())
        })
        .await
    }
}

fn item(path: String, found: &fs::Metadata) -> Item {
    let since = found.modified().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let modified_ms = since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
    Item { path, bytes: found.len(), modified_ms }
}

fn entries(folder: &Path) -> Result<Vec<(String, fs::Metadata)>, BackupError> {
    let wrong = |error: std::io::Error| BackupError::of_file(folder, &error);
    let listed = match fs::read_dir(folder) {
        Err(error) if is_missing(&error) => return Ok(Vec::new()),
        other => other.map_err(wrong)?,
    };
    let mut found = Vec::new();
    for entry in listed {
        let entry = entry.map_err(wrong)?;
        // One that was removed meanwhile is not there.
        if let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), entry.metadata()) {
            found.push((name, metadata));
        }
    }
    Ok(found)
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn write_beside(to: &Path, bytes: &[u8]) -> Result<PathBuf, BackupError> {
    let folder = files::parent(to);
    let beside = files::beside(to, &format!(".{:?}{UNFINISHED}", std::thread::current().id()));
    // Who removes the last file of a folder removes the folder; it is made again then.
    for last in [false, true] {
        fs::create_dir_all(folder).map_err(|error| BackupError::of_file(folder, &error))?;
        let written = fs::File::create(&beside).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        match written {
            Err(error) if last || !is_missing(&error) => return Err(BackupError::of_file(&beside, &error)),
            Err(_) => {}
            Ok(()) => break,
        }
    }
    Ok(beside)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackupError> + Send + 'static,
) -> Result<T, BackupError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| BackupError::Failed(format!("work on files was stopped: {error}")))?
}
