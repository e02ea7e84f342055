//! Marks in a depot: a backup that is being taken, and chunks that are being pruned, keep out of each other's way.
//!
//! Each sets its mark first and looks for the other's after, so that one of the two always sees the other. Ages are by
//! the clock of whoever keeps the depot, since each mark is written there.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::BackupError;
use crate::depot::{Depot, Location};
use crate::manifest::{MANIFEST, Manifest};
use crate::pool::CHUNKS;

/// The mark of a backup that is not whole yet.
pub(crate) const BEGUN: &str = "begun.json";
/// The mark of a depot that is being pruned.
pub(crate) const PRUNING: &str = "pruning.json";
/// How often a mark is set anew.
const KEEP_EVERY: Duration = Duration::from_secs(60);
/// A mark that is older was left by a process that is gone.
pub(crate) const LEFT_AFTER: Duration = Duration::from_secs(15 * 60);

#[derive(Serialize, Deserialize)]
struct Text {
    /// When it was begun, by the clock of the process.
    began_ms: i64,
}

fn text(began_ms: i64) -> Bytes {
    Bytes::from(serde_json::to_vec(&Text { began_ms }).expect("a number has a JSON form"))
}

/// A backup that is being taken.
pub(crate) struct Mark {
    at: Location,
    text: Bytes,
}

impl Mark {
    /// Takes a name for a backup.
    pub(crate) async fn begin(at: &Location, now_ms: i64) -> Result<Mark, BackupError> {
        let mark = Mark { at: at.clone(), text: text(now_ms) };
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

    /// Keeps the mark young while something is done.
    pub(crate) async fn kept_while<T>(
        &self,
        work: impl Future<Output = Result<T, BackupError>>,
    ) -> Result<T, BackupError> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(KEEP_EVERY) => {
                    self.at.depot.put(&self.at.path(BEGUN), self.text.clone()).await?;
                }
            }
        }
    }

    /// Sees that everything is there before the backup is called whole: a process that slept may have been taken for
    /// gone, and its chunks pruned.
    pub(crate) async fn check(&self, manifest: &Manifest) -> Result<(), BackupError> {
        let gone = |what: &str| BackupError::Failed(format!("{what} was removed meanwhile; take it again"));
        if self.at.depot.look(&self.at.path(BEGUN)).await?.is_none() {
            return Err(gone("what was written of the backup"));
        }
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

    /// The backup is whole.
    pub(crate) async fn end(&self) -> Result<(), BackupError> {
        self.at.depot.delete(&self.at.path(BEGUN)).await
    }

    /// Removes what was written under the name.
    pub(crate) async fn remove_all(&self) -> Result<(), BackupError> {
        remove(&self.at).await
    }
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

/// Removes a backup: the manifest first, so that it is whole or none.
pub(crate) async fn remove(at: &Location) -> Result<(), BackupError> {
    at.depot.delete(&at.path(MANIFEST)).await?;
    for item in at.depot.list(&at.name).await? {
        at.depot.delete(&item.path).await?;
    }
    Ok(())
}

/// The mark of who prunes.
pub(crate) struct Pruning<'a> {
    depot: &'a Depot,
    text: Bytes,
}

impl<'a> Pruning<'a> {
    pub(crate) async fn begin(depot: &'a Depot, now_ms: i64) -> Result<Pruning<'a>, BackupError> {
        let pruning = Pruning { depot, text: text(now_ms) };
        if !depot.put_new(PRUNING, pruning.text.clone()).await? {
            let before = depot.look(PRUNING).await?.map_or(0, |item| item.modified_ms);
            let probe = format!("{PRUNING}.look");
            depot.put(&probe, pruning.text.clone()).await?;
            let now = depot.look(&probe).await?.map_or(0, |item| item.modified_ms);
            depot.delete(&probe).await?;
            if now - before <= LEFT_AFTER.as_millis() as i64 {
                return Err(BackupError::Busy(format!(
                    "{} is being pruned already; try again when it is done. If nobody does, remove {}",
                    depot.url(),
                    depot.address(PRUNING)
                )));
            }
            depot.put(PRUNING, pruning.text.clone()).await?;
        }
        Ok(pruning)
    }

    /// The time it is by the depot's clock.
    pub(crate) async fn keep(&self) -> Result<i64, BackupError> {
        self.depot.put(PRUNING, self.text.clone()).await?;
        Ok(self.depot.look(PRUNING).await?.map_or(0, |item| item.modified_ms))
    }

    pub(crate) async fn end(self) -> Result<(), BackupError> {
        self.depot.delete(PRUNING).await
    }
}
