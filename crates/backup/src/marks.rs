//! Marks in a depot: a backup that is being taken, and chunks that are being pruned, keep out of each other's way.
//!
//! Each sets its mark first and looks for the other's after, so that one of the two always sees the other. Ages are by
//! the clock of whoever keeps the depot, since each mark is written there.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;

use crate::BackupError;
use crate::depot::{Depot, Item, Location};
use crate::manifest::{MANIFEST, Manifest};
use crate::pool::CHUNKS;
use crate::take::Clock;

/// The mark of a backup that is not whole yet.
pub(crate) const BEGUN: &str = "begun.json";
/// The mark of a depot that is being pruned.
pub(crate) const PRUNING: &str = "pruning.json";
/// How often a mark is set anew.
const KEEP_EVERY: Duration = Duration::from_secs(60);
/// A mark that is older was left by a process that is gone.
pub(crate) const LEFT_AFTER: Duration = Duration::from_secs(15 * 60);

/// A mark that could not be set anew for so long is given up, well before anybody takes it for one that was left.
const LOST_AFTER: Duration = Duration::from_secs(5 * 60);

#[derive(Serialize)]
struct Text {
    /// When it was begun, by the clock of the process.
    began_ms: i64,
    /// What is done: each mark is told from all others by its text.
    doing: &'static str,
    process: u32,
    /// Two machines may have the same time and process numbers.
    id: Uuid,
}

fn text(began_ms: i64, doing: &'static str) -> Bytes {
    let text = Text { began_ms, doing, process: std::process::id(), id: Uuid::new_v4() };
    Bytes::from(serde_json::to_vec(&text).expect("a number has a JSON form"))
}

/// A backup that is being taken.
pub(crate) struct Mark {
    at: Location,
    text: Bytes,
    /// The manifest, from when it is written.
    written: Mutex<Option<Bytes>>,
}

impl Mark {
    /// Takes a name for a backup.
    pub(crate) async fn begin(at: &Location, now_ms: i64) -> Result<Mark, BackupError> {
        let mark = Mark { at: at.clone(), text: text(now_ms, "taking"), written: Mutex::default() };
        let taken = || BackupError::Refused(format!("{} is there already; choose another name", at.url()));
        if !at.depot.list(&at.name).await?.is_empty() {
            return Err(taken());
        }
        if !at.depot.put_new(&at.path(BEGUN), mark.text.clone()).await? {
            return Err(taken());
        }
        if let Err(error) = not_pruned(at).await {
            at.depot.delete(&at.path(BEGUN)).await?;
            return Err(error);
        }
        Ok(mark)
    }

    /// Keeps the mark young while something is done, which goes on meanwhile: writes may wait for it.
    pub(crate) async fn kept_while<T>(
        &self,
        work: impl Future<Output = Result<T, BackupError>>,
    ) -> Result<T, BackupError> {
        tokio::select! {
            done = work => done,
            lost = self.keep() => match lost? {},
        }
    }

    async fn keep(&self) -> Result<Infallible, BackupError> {
        loop {
            tokio::time::sleep(KEEP_EVERY).await;
            // Not over the mark of somebody who has taken this process for gone.
            self.confirm().await?;
            self.at.depot.put(&self.at.path(BEGUN), self.text.clone()).await?;
        }
    }

    /// Sees that everything is there before the backup is called whole: a process that slept may have been taken for
    /// gone, and its chunks pruned.
    pub(crate) async fn check(&self, manifest: &Manifest) -> Result<(), BackupError> {
        self.confirm().await?;
        let listed = self.at.depot.list(CHUNKS).await?;
        let there: HashSet<&str> = listed.iter().map(|item| item.path.as_str()).collect();
        for part in manifest.parts() {
            for chunk in part.list(&self.at).await? {
                if !there.contains(chunk.path().as_str()) {
                    return Err(gone(&self.at.depot.address(&chunk.path())));
                }
            }
        }
        Ok(())
    }

    /// Sees that the name is still this process's. Whoever removes a backup sets another mark first, and looks for a
    /// manifest after; so one of the two sees the other.
    pub(crate) async fn confirm(&self) -> Result<(), BackupError> {
        let found = self.at.depot.get(&self.at.path(BEGUN)).await?;
        if found.as_ref() == Some(&self.text) { Ok(()) } else { Err(gone("what was written of the backup")) }
    }

    /// Writes the manifest.
    pub(crate) async fn make_whole(&self, manifest: &Manifest) -> Result<(), BackupError> {
        let text = manifest.text();
        *self.written.lock().expect("no panic while held") = Some(text.clone());
        Manifest::write(&self.at, text).await
    }

    /// Writes the manifest of what may soon be the only copy: never over another's.
    pub(crate) async fn make_whole_once(&self, manifest: &Manifest) -> Result<(), BackupError> {
        match Manifest::write_new(&self.at, manifest.text()).await? {
            true => Ok(()),
            false => Err(gone("what was written of the archive")),
        }
    }

    /// The backup is whole.
    pub(crate) async fn end(&self) -> Result<(), BackupError> {
        self.at.depot.delete(&self.at.path(BEGUN)).await
    }

    /// Removes what was written under the name. If the name was lost, what is there may be another's backup, and only
    /// the manifest that this process wrote is taken back.
    pub(crate) async fn remove_all(&self, now_ms: i64) -> Result<(), BackupError> {
        if self.at.depot.get(&self.at.path(BEGUN)).await?.as_ref() == Some(&self.text) {
            return remove(&self.at, now_ms).await;
        }
        let written = self.written.lock().expect("no panic while held").clone();
        match written {
            Some(written) => Manifest::take_back(&self.at, &written).await,
            None => Ok(()),
        }
    }
}

fn gone(what: &str) -> BackupError {
    BackupError::Failed(format!("{what} was removed meanwhile; take it again"))
}

async fn not_pruned(at: &Location) -> Result<(), BackupError> {
    let (Some(mine), Some(pruning)) = (at.depot.look(&at.path(BEGUN)).await?, at.depot.look(PRUNING).await?)
    else {
        return Ok(());
    };
    if mine.modified_ms - pruning.modified_ms > LEFT_AFTER.as_millis() as i64 {
        return Ok(());
    }
    Err(BackupError::Busy(format!(
        "{} is being pruned; try again when it is done. If nobody prunes it, remove {}",
        at.depot.url(),
        at.depot.address(PRUNING)
    )))
}

/// Whether a depot is being pruned just now, so that no backup can be begun in it.
pub async fn is_pruned(depot: &Depot) -> Result<bool, BackupError> {
    match depot.look(PRUNING).await? {
        Some(mark) => is_young(depot, &mark).await,
        None => Ok(false),
    }
}

/// Whether whoever set the mark may still be there, by the clock of the depot: what is written now tells it.
async fn is_young(depot: &Depot, mark: &Item) -> Result<bool, BackupError> {
    let probe = format!("{PRUNING}.look");
    depot.put(&probe, Bytes::from_static(b"{}")).await?;
    let now_ms = depot.look(&probe).await?.map_or(0, |item| item.modified_ms);
    depot.delete(&probe).await?;
    Ok(now_ms - mark.modified_ms <= LEFT_AFTER.as_millis() as i64)
}

/// Removes a backup. The mark comes first and goes last: what is left of it when this is killed in between is shown as
/// unfinished, and pruned in time.
pub(crate) async fn remove(at: &Location, now_ms: i64) -> Result<(), BackupError> {
    at.depot.put(&at.path(BEGUN), text(now_ms, "removing")).await?;
    at.depot.delete(&at.path(MANIFEST)).await?;
    remove_rest(at).await
}

/// Removes a backup that was left unfinished; false if it has been finished meanwhile.
pub(crate) async fn remove_unfinished(at: &Location, now_ms: i64) -> Result<bool, BackupError> {
    at.depot.put(&at.path(BEGUN), text(now_ms, "removing")).await?;
    if at.depot.look(&at.path(MANIFEST)).await?.is_some() {
        at.depot.delete(&at.path(BEGUN)).await?;
        return Ok(false);
    }
    remove_rest(at).await?;
    Ok(true)
}

async fn remove_rest(at: &Location) -> Result<(), BackupError> {
    let mark = at.path(BEGUN);
    for item in at.depot.list(&at.name).await?.iter().filter(|item| item.path != mark) {
        at.depot.delete(&item.path).await?;
    }
    at.depot.delete(&mark).await
}

/// The mark of who prunes.
pub(crate) struct Pruning<'a> {
    depot: &'a Depot,
    text: Bytes,
    clock: &'a Clock,
    stop: &'a AtomicBool,
    last: Mutex<Renewed>,
}

/// When the mark was set last.
#[derive(Clone, Copy)]
struct Renewed {
    /// By the clock of this process.
    here_ms: i64,
    /// By the clock of whoever keeps the depot.
    there_ms: i64,
    /// Whether it was found to be there still, after it was set first: two who find an old mark may both take it over.
    confirmed: bool,
}

impl<'a> Pruning<'a> {
    pub(crate) async fn begin(
        depot: &'a Depot,
        clock: &'a Clock,
        stop: &'a AtomicBool,
    ) -> Result<Pruning<'a>, BackupError> {
        let here_ms = clock();
        let text = text(here_ms, "pruning");
        let busy = || {
            BackupError::Busy(format!(
                "{} is being pruned already; try again when it is done. If nobody does, remove {}",
                depot.url(),
                depot.address(PRUNING)
            ))
        };
        if !depot.put_new(PRUNING, text.clone()).await? {
            if is_pruned(depot).await? {
                return Err(busy());
            }
            depot.put(PRUNING, text.clone()).await?;
        }
        let there_ms = depot.look(PRUNING).await?.map_or(0, |item| item.modified_ms);
        if depot.get(PRUNING).await?.as_ref() != Some(&text) {
            return Err(busy());
        }
        let last = Renewed { here_ms, there_ms, confirmed: false };
        Ok(Pruning { depot, text, clock, stop, last: Mutex::new(last) })
    }

    /// The time it was by the depot's clock when the mark was set last.
    pub(crate) fn there_ms(&self) -> i64 {
        self.last().there_ms
    }

    fn last(&self) -> Renewed {
        *self.last.lock().expect("no panic while held")
    }

    /// Keeps the mark young while something is done; gives it up if the mark was lost.
    pub(crate) async fn kept_while<T>(
        &self,
        work: impl Future<Output = Result<T, BackupError>>,
    ) -> Result<T, BackupError> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep(KEEP_EVERY) => self.renew().await?,
                done = &mut work => return done,
            }
        }
    }

    /// Before something is removed: the mark is this process's, and so young that nobody began a backup meanwhile
    /// that may need it. A process that slept finds out here, and one that shall stop does so here.
    pub(crate) async fn check(&self) -> Result<(), BackupError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(BackupError::Busy("the removal was stopped; start it again".to_owned()));
        }
        let last = self.last();
        let silent_ms = ((self.clock)() - last.here_ms).unsigned_abs();
        let renewing = !last.confirmed || u128::from(silent_ms) > KEEP_EVERY.as_millis() * 2;
        if renewing { self.renew().await } else { Ok(()) }
    }

    async fn renew(&self) -> Result<(), BackupError> {
        let lost = || {
            BackupError::Busy(format!(
                "the removal was held up for so long that a backup may have begun in {}, and stopped; start it again",
                self.depot.url()
            ))
        };
        let here_ms = (self.clock)();
        if self.depot.get(PRUNING).await?.as_ref() != Some(&self.text) {
            return Err(lost());
        }
        self.depot.put(PRUNING, self.text.clone()).await?;
        let there_ms = self.depot.look(PRUNING).await?.ok_or_else(lost)?.modified_ms;
        let before = std::mem::replace(
            &mut *self.last.lock().expect("no panic while held"),
            Renewed { here_ms, there_ms, confirmed: true },
        );
        if there_ms - before.there_ms > LOST_AFTER.as_millis() as i64 {
            return Err(lost());
        }
        Ok(())
    }

    /// Takes the mark away, unless it is somebody else's by now.
    pub(crate) async fn end(self) -> Result<(), BackupError> {
        match self.depot.get(PRUNING).await? {
            Some(found) if found == self.text => self.depot.delete(PRUNING).await,
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn manifest(moment_ms: i64) -> Manifest {
        let old: Manifest = serde_json::from_str(include_str!("../tests/manifest-1.json")).unwrap();
        Manifest { moment_ms, ..old }
    }

    // A process that slept after it wrote the manifest, and was taken for gone.
    #[tokio::test]
    async fn who_lost_the_name_takes_back_its_own_manifest_and_nothing_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("monday");
        let location = Location::open(at.to_str().unwrap(), &(Arc::new(|_: &str| None) as _)).unwrap();
        let there = |file: &str| std::fs::read(at.join(file)).ok();

        let mark = Mark::begin(&location, 1).await.unwrap();
        mark.make_whole(&manifest(1)).await.unwrap();
        std::fs::write(at.join(BEGUN), "another's").unwrap();
        std::fs::write(at.join("catalog.chunks"), "another's").unwrap();
        mark.remove_all(2).await.unwrap();
        assert_eq!((there(MANIFEST), there("manifest.sha256")), (None, None), "it is no backup");
        assert_eq!(there(BEGUN).unwrap(), b"another's");
        assert_eq!(there("catalog.chunks").unwrap(), b"another's");

        // The other has made it whole, and its mark is gone.
        Manifest::write(&location, manifest(3).text()).await.unwrap();
        std::fs::remove_file(at.join(BEGUN)).unwrap();
        mark.make_whole(&manifest(1)).await.unwrap_err();
        mark.remove_all(4).await.unwrap();
        assert_eq!(there(MANIFEST).unwrap(), manifest(3).text());
        assert_eq!(there("catalog.chunks").unwrap(), b"another's");
        assert!(there("manifest.sha256").is_some());
    }

    // D7: of a process that slept while it wrote the manifest of an archive, whose rows another deletes meanwhile.
    #[tokio::test]
    async fn what_may_be_the_only_copy_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("january");
        let location = Location::open(at.to_str().unwrap(), &(Arc::new(|_: &str| None) as _)).unwrap();
        let mark = Mark::begin(&location, 1).await.unwrap();
        mark.make_whole_once(&manifest(3)).await.unwrap();
        mark.make_whole_once(&manifest(1)).await.unwrap_err();
        assert_eq!(Manifest::read(&location).await.unwrap().moment_ms, 3);
    }

    #[tokio::test]
    async fn who_still_has_the_name_removes_everything() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("monday");
        let location = Location::open(at.to_str().unwrap(), &(Arc::new(|_: &str| None) as _)).unwrap();
        let mark = Mark::begin(&location, 1).await.unwrap();
        mark.make_whole(&manifest(1)).await.unwrap();
        mark.remove_all(2).await.unwrap();
        assert!(!at.exists());
    }
}
