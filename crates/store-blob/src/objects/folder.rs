//! Objects in a folder: each is a file that is written once under another name, synced, renamed, and synced with its
//! folder before anything names it.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use tokio::task::spawn_blocking;

use super::{Boxed, ByteStream, MARK, ObjectBackend, ObjectError, ObjectId, ObjectWriter};

/// Bytes written or read by one call.
const PIECE_BYTES: usize = 256 * 1024;
/// Bytes that are written before the disk is asked to begin with them, so that the sync at the end has little to do.
const GATHER_BYTES: usize = 1024 * 1024;

/// What follows the id of an object in the name of its file until the file is whole; a random number comes after it.
const PARTIAL: &str = ".part-";
/// A partial file that nobody has written to for so long is left by a process that was killed. A file that is being
/// written changes much more often.
const PARTIAL_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Folders that are known to be durable, at most: about 10 MB of names. Then all are looked at again.
const DURABLE_MAX: usize = 65_536;

/// A folder of objects.
pub struct Folder {
    root: PathBuf,
    durable: Arc<Durable>,
}

impl Folder {
    /// A folder; it is made when the first object is.
    pub fn new(root: PathBuf) -> Folder {
        Folder { durable: Arc::new(Durable::new(root.clone())), root }
    }
}

fn failed(what: &Path, error: &io::Error) -> ObjectError {
    let shown = what.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match error.kind() {
        ErrorKind::NotFound => ObjectError::Gone(shown),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            ObjectError::NoSpace(format!("{shown}: {error}"))
        }
        _ => ObjectError::Failed(format!("{}: {error}", what.display())),
    }
}

/// Runs what waits for the disk on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ObjectError> + Send + 'static,
) -> Result<T, ObjectError> {
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(ObjectError::Failed(format!("file access did not end: {error}"))),
    }
}

/// Syncs a folder, so that the names in it are durable.
fn sync_folder(folder: &Path) -> Result<(), ObjectError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed(folder, &error))
}

/// The folders whose names are known to be durable. That a folder is there does not say so: whoever made it just now,
/// in this process or another, may not have synced the one above it yet.
struct Durable {
    root: PathBuf,
    known: Mutex<HashSet<PathBuf>>,
}

impl Durable {
    fn new(root: PathBuf) -> Durable {
        Durable { root, known: Mutex::default() }
    }

    /// Makes a folder and those above it, each durable before it is used. Answers whether this process has not used it
    /// before.
    fn make(
        &self,
        folder: &Path,
        sync: &mut dyn FnMut(&Path) -> Result<(), ObjectError>,
    ) -> Result<bool, ObjectError> {
        let is_known = self.known.lock().expect("no panic while held").contains(folder);
        if is_known && folder.is_dir() {
            return Ok(false);
        }
        let is_outside = !folder.starts_with(&self.root);
        let Some(above) = folder.parent().filter(|above| !above.as_os_str().is_empty()) else {
            fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
            return Ok(true);
        };
        if is_outside && folder.is_dir() {
            // It is not made by servers, which may not be allowed to read the one above it.
            return Ok(true);
        }
        self.make(above, sync)?;
        let is_new = match fs::create_dir(folder) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(failed(folder, &error)),
        };
        if is_new || folder != self.root || File::open(above).is_ok() {
            sync(above)?;
        }
        let mut known = self.known.lock().expect("no panic while held");
        if known.len() >= DURABLE_MAX {
            known.clear();
        }
        known.insert(folder.to_owned());
        Ok(true)
    }

    /// Forgets a folder that was removed, with all in it.
    fn forget(&self, removed: &Path) {
        self.known.lock().expect("no panic while held").retain(|folder| !folder.starts_with(removed));
    }
}

/// Removes the partial files of a folder that match. They are never read, so one that stays costs space only.
fn remove_partial(folder: &Path, is_left: impl Fn(&Path, &str) -> bool) -> Result<(), ObjectError> {
    for name in names(folder)?.iter().filter(|name| name.contains(PARTIAL)) {
        let path = folder.join(name);
        if is_left(&path, name) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Whether nobody has written to a partial file for long.
fn is_old(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|found| found.modified());
    let age = modified.ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
    age.is_some_and(|age| age >= PARTIAL_KEPT)
}

/// Removes a file; answers whether it was there.
fn remove(path: &Path) -> Result<bool, ObjectError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(path, &error)),
    }
}

/// A number that no other process guesses.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The name of a file that is being written. It is removed unless the file is finished.
struct Partial(Option<PathBuf>);

impl Partial {
    fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    /// Gives the file its name, if no other has it. Only restorations write an object a second time, with the same
    /// content: if two do so at the same moment, either file may stay.
    fn rename(mut self, to: &Path) -> Result<(), ObjectError> {
        if to.exists() {
            return Err(ObjectError::Failed(format!("{} is there already", to.display())));
        }
        fs::rename(self.path(), to)
            .map_err(|error| ObjectError::Failed(format!("{}: {error}", to.display())))?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if let Some(path) = &self.0
            && let Err(error) = remove(path)
        {
            tracing::debug!(%error, "a partial file is left; the deletion of its object removes it");
        }
    }
}

impl ObjectBackend for Folder {
    fn create<'a>(&'a self, path: &'a str, _length: u64) -> Boxed<'a, Box<dyn ObjectWriter>> {
        let (path, durable) = (self.root.join(path), self.durable.clone());
        Box::pin(blocking(move || {
            let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
            if durable.make(&folder, &mut sync_folder)? {
                // Restorations that were killed announce nothing, so nobody deletes what they have left.
                remove_partial(&folder, |path, _| is_old(path))?;
            }
            if path.exists() {
                return Err(ObjectError::Failed(format!("{} is there already", path.display())));
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let partial = folder.join(format!("{name}{PARTIAL}{:016x}", random()));
            let file = OpenOptions::new().write(true).create_new(true).open(&partial);
            let file = file.map_err(|error| failed(&partial, &error))?;
            let partial = Partial(Some(partial));
            let writer =
                FileWriter { file: Some(file), partial, path, folder, waiting: Vec::new(), waiting_bytes: 0 };
            Ok(Box::new(writer) as Box<dyn ObjectWriter>)
        }))
    }

    fn read<'a>(&'a self, path: &'a str, range: Range<u64>) -> Boxed<'a, ByteStream> {
        let path = self.root.join(path);
        Box::pin(async move {
            let (first, length) = (range.start, range.end.saturating_sub(range.start));
            let opened = blocking(move || {
                let mut file = File::open(&path).map_err(|error| failed(&path, &error))?;
                file.seek(SeekFrom::Start(first)).map_err(|error| failed(&path, &error))?;
                // The first piece comes with it: most objects are read by one call then.
                read_piece(&mut file, &path, length).map(|piece| (file, path, piece))
            });
            let (file, path, piece) = opened.await?;
            let left = length - piece.len() as u64;
            let first = stream::once(std::future::ready(Ok(piece)));
            let rest = stream::try_unfold((file, path, left), |(mut file, path, left)| async move {
                if left == 0 {
                    return Ok(None);
                }
                let read =
                    blocking(move || read_piece(&mut file, &path, left).map(|piece| (file, path, piece)));
                let (file, path, piece) = read.await?;
                let left = left - piece.len() as u64;
                Ok(Some((piece, (file, path, left))))
            });
            Ok(first.chain(rest).boxed())
        })
    }

    fn delete<'a>(&'a self, path: &'a str) -> Boxed<'a, ()> {
        let path = self.root.join(path);
        // Not synced: after a power failure the file may be back while its row is gone for good. It costs space then,
        // until its container is deleted: no row names it, and none ever will, since ids are random.
        Box::pin(blocking(move || {
            if remove(&path)? {
                return Ok(());
            }
            // Its upload may have broken off.
            let (Some(folder), Some(id)) = (path.parent(), path.file_name()) else { return Ok(()) };
            let beginning = format!("{}{PARTIAL}", id.to_string_lossy());
            remove_partial(folder, |_, name| name.starts_with(&beginning))
        }))
    }

    fn length<'a>(&'a self, path: &'a str) -> Boxed<'a, Option<u64>> {
        let path = self.root.join(path);
        Box::pin(blocking(move || match fs::metadata(&path) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, &error)),
        }))
    }

    fn list<'a>(&'a self, dataset: u64) -> Boxed<'a, BoxStream<'static, Result<ObjectId, ObjectError>>> {
        let folder = self.root.join(dataset.to_string());
        Box::pin(async move {
            let parts = blocking(move || names(&folder).map(|names| (folder, names)));
            let (folder, parts) = parts.await?;
            let ids = stream::iter(parts).then(move |part| {
                let part = folder.join(part);
                async move {
                    let ids: Vec<Result<ObjectId, ObjectError>> = match blocking(move || names(&part)).await {
                        Ok(names) => names.iter().filter_map(|name| ObjectId::parse(name)).map(Ok).collect(),
                        Err(error) => vec![Err(error)],
                    };
                    stream::iter(ids)
                }
            });
            Ok(ids.flatten().boxed())
        })
    }

    fn datasets(&self) -> Boxed<'_, Vec<u64>> {
        let root = self.root.clone();
        Box::pin(blocking(move || Ok(names(&root)?.iter().filter_map(|name| name.parse().ok()).collect())))
    }

    fn delete_all<'a>(&'a self, dataset: u64) -> Boxed<'a, ()> {
        let (folder, durable) = (self.root.join(dataset.to_string()), self.durable.clone());
        Box::pin(blocking(move || {
            durable.forget(&folder);
            match fs::remove_dir_all(&folder) {
                Ok(()) => Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(failed(&folder, &error)),
            }
        }))
    }

    fn mark<'a>(&'a self, new: &'a str) -> Boxed<'a, String> {
        let (root, durable, new) = (self.root.clone(), self.durable.clone(), new.to_owned());
        Box::pin(blocking(move || {
            durable.make(&root, &mut sync_folder)?;
            mark(&root, &new)
        }))
    }
}

/// The mark appears whole or not at all, since several processes may begin with the same folder.
fn mark(root: &Path, new: &str) -> Result<String, ObjectError> {
    let (path, own) = (root.join(MARK), root.join(format!("{MARK}-{new}")));
    if !path.exists() {
        let mut file = File::create(&own).map_err(|error| failed(&own, &error))?;
        let written = file.write_all(new.as_bytes()).and_then(|()| file.sync_all());
        written.map_err(|error| failed(&own, &error))?;
        match fs::hard_link(&own, &path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&path, &error)),
        }
        fs::remove_file(&own).map_err(|error| failed(&own, &error))?;
        sync_folder(root)?;
    }
    fs::read_to_string(&path).map_err(|error| failed(&path, &error))
}

/// The names in a folder; none if it is not there.
fn names(folder: &Path) -> Result<Vec<String>, ObjectError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder, &error)),
    };
    let name = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.map_err(|error| failed(folder, &error))?;
        Ok(entry.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

fn read_piece(file: &mut File, path: &Path, left: u64) -> Result<Bytes, ObjectError> {
    let wanted = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
    let mut piece = BytesMut::zeroed(wanted);
    match file.read_exact(&mut piece) {
        Ok(()) => Ok(piece.freeze()),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
            Err(ObjectError::Failed(format!("{} is shorter than its row says", path.display())))
        }
        Err(error) => Err(failed(path, &error)),
    }
}

/// A file that is being written.
struct FileWriter {
    /// None while a piece is being written, or after that failed.
    file: Option<File>,
    partial: Partial,
    path: PathBuf,
    folder: PathBuf,
    /// What was not written yet.
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
}

impl FileWriter {
    fn take(&mut self) -> Result<(File, PathBuf, Vec<Bytes>), ObjectError> {
        let broken = || ObjectError::Failed(format!("{}: an earlier write failed", self.path.display()));
        let file = self.file.take().ok_or_else(broken)?;
        self.waiting_bytes = 0;
        Ok((file, self.path.clone(), std::mem::take(&mut self.waiting)))
    }
}

impl ObjectWriter for FileWriter {
    fn write(&mut self, bytes: Bytes) -> Boxed<'_, ()> {
        Box::pin(async move {
            self.waiting_bytes += bytes.len();
            self.waiting.push(bytes);
            if self.waiting_bytes < GATHER_BYTES {
                return Ok(());
            }
            let (mut file, path, pieces) = self.take()?;
            let written = blocking(move || {
                write_all(&mut file, &path, &pieces)?;
                Ok(file)
            });
            self.file = Some(written.await?);
            Ok(())
        })
    }

    fn finish(mut self: Box<Self>) -> Boxed<'static, ()> {
        Box::pin(async move {
            let (mut file, path, pieces) = self.take()?;
            let (partial, folder) = (self.partial, self.folder);
            blocking(move || {
                write_all(&mut file, &path, &pieces)?;
                file.sync_all().map_err(|error| failed(&path, &error))?;
                partial.rename(&path)?;
                sync_folder(&folder)
            })
            .await
        })
    }
}

fn write_all(file: &mut File, path: &Path, pieces: &[Bytes]) -> Result<(), ObjectError> {
    pieces.iter().try_for_each(|piece| file.write_all(piece)).map_err(|error| failed(path, &error))
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::*;

    async fn put(folder: &Folder, path: &str, pieces: &[&'static [u8]]) {
        let mut writer = folder.create(path, 0).await.unwrap();
        for piece in pieces {
            writer.write(Bytes::from_static(piece)).await.unwrap();
        }
        writer.finish().await.unwrap();
    }

    async fn read(folder: &Folder, path: &str, range: Range<u64>) -> Result<Vec<u8>, ObjectError> {
        let pieces: Vec<Bytes> = folder.read(path, range).await?.try_collect().await?;
        Ok(pieces.concat())
    }

    #[tokio::test]
    async fn an_object_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("blobs/below"));
        let id = ObjectId::new(1, 2);
        put(&folder, &id.path(7), &[b"abc", b"", b"defg"]).await;
        assert_eq!(read(&folder, &id.path(7), 0..7).await.unwrap(), b"abcdefg");
        assert_eq!(read(&folder, &id.path(7), 2..4).await.unwrap(), b"cd");
        assert_eq!(folder.length(&id.path(7)).await.unwrap(), Some(7));
        let long = read(&folder, &id.path(7), 2..9).await;
        assert!(matches!(long, Err(ObjectError::Failed(_))), "{long:?}");
        assert!(folder.create(&id.path(7), 0).await.is_err(), "it is never overwritten");
        let ids: Vec<ObjectId> = folder.list(7).await.unwrap().try_collect().await.unwrap();
        assert_eq!(ids, std::slice::from_ref(&id));
        assert!(folder.list(8).await.unwrap().next().await.is_none());
        folder.delete(&id.path(7)).await.unwrap();
        folder.delete(&id.path(7)).await.unwrap();
        assert_eq!(folder.length(&id.path(7)).await.unwrap(), None);
        assert!(matches!(read(&folder, &id.path(7), 0..1).await, Err(ObjectError::Gone(_))));
    }

    /// All files of a dataset's objects, partial ones too.
    fn files(root: &Path, id: &ObjectId) -> Vec<String> {
        names(root.join(id.path(7)).parent().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn an_object_that_is_not_finished_is_never_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, id) = (Folder::new(dir.path().to_owned()), ObjectId::new(1, 2));
        let mut writer = folder.create(&id.path(7), 10).await.unwrap();
        writer.write(Bytes::from(vec![1; 2 * GATHER_BYTES])).await.unwrap();
        assert_eq!(folder.length(&id.path(7)).await.unwrap(), None);
        assert!(folder.list(7).await.unwrap().next().await.is_none());
        drop(writer);
        assert!(files(dir.path(), &id).is_empty(), "a writer that is given up removes what it wrote");

        // A process that is killed removes nothing.
        let mut killed = folder.create(&id.path(7), 10).await.unwrap();
        killed.write(Bytes::from(vec![1; 2 * GATHER_BYTES])).await.unwrap();
        std::mem::forget(killed);
        let other = folder.create(&ObjectId::new(1, 3).path(7), 10).await.unwrap();
        std::mem::forget(other);
        assert_eq!(folder.length(&id.path(7)).await.unwrap(), None);
        put(&folder, &id.path(7), &[b"whole"]).await;
        assert_eq!(read(&folder, &id.path(7), 0..5).await.unwrap(), b"whole");
        folder.delete(&id.path(7)).await.unwrap();
        assert_eq!(files(dir.path(), &id).len(), 2, "the file was there, so nothing else is looked for");
        folder.delete(&id.path(7)).await.unwrap();
        assert_eq!(files(dir.path(), &id).len(), 1, "the partial file of another object stays");
    }

    #[tokio::test]
    async fn partial_files_that_are_old_are_removed_by_the_first_who_uses_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (id, other) = (ObjectId::new(1, 2), ObjectId::new(1, 3));
        let folder = Folder::new(dir.path().to_owned());
        std::mem::forget(folder.create(&id.path(7), 10).await.unwrap());
        let [left] = files(dir.path(), &id).try_into().unwrap();
        let file =
            File::options().write(true).open(dir.path().join(id.path(7)).with_file_name(left)).unwrap();
        put(&Folder::new(dir.path().to_owned()), &other.path(7), &[b"a"]).await;
        assert_eq!(files(dir.path(), &id).len(), 2, "it may be being written");
        file.set_modified(SystemTime::now() - PARTIAL_KEPT).unwrap();
        folder.delete(&other.path(7)).await.unwrap();
        put(&Folder::new(dir.path().to_owned()), &other.path(7), &[b"a"]).await;
        assert_eq!(files(dir.path(), &id), [other.as_str()]);
    }

    #[test]
    fn a_folder_that_somebody_else_has_made_is_synced_before_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("blobs");
        let part = root.join("7/ab");
        let durable = Durable::new(root.clone());
        let synced = |durable: &Durable| {
            let mut synced = Vec::new();
            let is_first = durable.make(&part, &mut |folder| {
                synced.push(folder.to_owned());
                Ok(())
            });
            assert_eq!(is_first.unwrap(), !synced.is_empty());
            synced
        };
        let all = [dir.path().to_owned(), root.clone(), root.join("7")];
        assert_eq!(synced(&durable), all);
        assert!(synced(&durable).is_empty(), "once is enough");
        // Of another process, or a thread that has not come to its sync yet.
        assert_eq!(synced(&Durable::new(root.clone())), all);
        fs::remove_dir_all(root.join("7")).unwrap();
        durable.forget(&root.join("7"));
        assert_eq!(synced(&durable), [root.clone(), root.join("7")]);
    }

    #[tokio::test]
    async fn a_folder_keeps_its_first_mark() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("new"));
        assert_eq!(folder.mark("one").await.unwrap(), "one");
        assert_eq!(folder.mark("two").await.unwrap(), "one");
        assert!(folder.datasets().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_long_object_comes_in_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        let piece: &'static [u8] = &[7; 100_000];
        put(&folder, "1/ab/x", &[piece; 30]).await;
        let bytes = read(&folder, "1/ab/x", 1..2_999_999).await.unwrap();
        assert_eq!(bytes.len(), 2_999_998);
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
