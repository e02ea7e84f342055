//! What archives need of a depot, and of the shards: written, compared, removed and put back for the procedures.

use std::path::PathBuf;
use std::sync::Arc;

use polyshard_backup::{
    Archive, BackupError, Carriers, Clock, Deleting, Depot, FOUND_MAX, Location, Progress, Variables, With,
};
use polyshard_catalog::{ArchiveRecord, Catalog};
use polyshard_map::{KeyRange, MapDefinition, MapName, ShardId};
use polyshard_router::Router;
use polyshard_shard::OpId;
use polyshard_workflow::archiving::{self, Archiver, Held, NotStepped, Stepped, Stepping};

use crate::RunOptions;
use crate::config::Config;
use crate::operator::now_ms;

/// Rows that are removed before it is looked whether it shall wait: those that one scan finds.
const PART_ROWS: u64 = FOUND_MAX as u64;
/// The folder under the data folder for files that are needed meanwhile.
const SCRATCH: &str = "archive-scratch";

/// Works on archives, wherever they are kept.
pub(crate) struct Keeper {
    router: Arc<Router>,
    catalog: Arc<Catalog>,
    scratch: PathBuf,
    variables: Variables,
    carriers: Carriers,
}

impl Keeper {
    pub(crate) fn new(
        router: Arc<Router>,
        catalog: Arc<Catalog>,
        config: &Config,
        options: &RunOptions,
        carriers: Carriers,
    ) -> Arc<Keeper> {
        let options = options.clone();
        let scratch = config.data.join(SCRATCH);
        // Of a process that was killed.
        match std::fs::remove_dir_all(&scratch) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(folder = %scratch.display(), %error, "files of an earlier archive are left");
            }
            _ => {}
        }
        let variables: Variables = Arc::new(move |name: &str| options.variable(name));
        Arc::new(Keeper { router, catalog, scratch, variables, carriers })
    }

    /// Where an archive is, or would be.
    pub(crate) fn location(&self, place: &str, name: &str) -> Result<Location, BackupError> {
        if !place.starts_with('/') && !place.contains("://") {
            return Err(BackupError::Refused(format!("{place:?} is not a path from the root")));
        }
        Location::new(Depot::open(place, &self.variables)?, name)
    }

    async fn record(&self, name: &str) -> Result<ArchiveRecord, NotStepped> {
        let record = self.catalog.archive(name).await.map_err(NotStepped::Catalog)?;
        record.ok_or_else(|| NotStepped::Refused(format!("there is no archive {name} any more")))
    }

    async fn definition(&self, map: &MapName) -> Result<MapDefinition, NotStepped> {
        Ok(self.catalog.map(map).await.map_err(NotStepped::Catalog)?.definition)
    }

    /// The shard that has all of a range now.
    async fn owner(&self, map: &MapName, range: &KeyRange) -> Result<ShardId, NotStepped> {
        let entries = self.catalog.entries(map).await.map_err(NotStepped::Catalog)?;
        let mut shards =
            entries.into_iter().filter(|entry| entry.range.overlaps(range)).map(|entry| entry.shard);
        match (shards.next(), shards.next()) {
            (Some(shard), other) if other.as_ref().is_none_or(|other| *other == shard) => Ok(shard),
            _ => Err(NotStepped::Refused(format!("the range of map {map} is not on one shard any more"))),
        }
    }

    async fn with<T>(
        &self,
        record: &ArchiveRecord,
        work: impl AsyncFnOnce(&Archive<'_>) -> Result<T, BackupError>,
    ) -> Result<T, NotStepped> {
        let at = self.location(&record.place, &record.name).map_err(not_stepped)?;
        let definition = self.definition(&record.map).await?;
        let archive = Archive {
            router: &self.router,
            cluster: self.catalog.cluster().await.map_err(NotStepped::Catalog)?,
            record,
            definition: &definition,
            at: &at,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            carriers: self.carriers.clone(),
            scratch: self.scratch.clone(),
            clock: Arc::new(now_ms) as Clock,
        };
        work(&archive).await.map_err(not_stepped)
    }

    async fn write(&self, name: &str) -> Result<Stepped, NotStepped> {
        let record = self.record(name).await?;
        let written = self.with(&record, async |archive| archive.write(&Progress::default()).await).await?;
        let (rows, bytes) = (written.archive.as_ref().map_or(0, |archive| archive.rows()), written.bytes());
        let noted =
            self.catalog.set_archive(name, |record| (record.rows, record.bytes) = (rows, bytes)).await;
        noted.map_err(NotStepped::Catalog)?;
        tracing::info!(archive = name, map = %record.map, rows, bytes, "an archive was written");
        Ok(Stepped::Done(Some(format!("{rows} rows are archived as {name}"))))
    }

    async fn compare(&self, name: &str) -> Result<Stepped, NotStepped> {
        let record = self.record(name).await?;
        self.with(&record, async |archive| archive.compare().await).await?;
        Ok(Stepped::Done(None))
    }

    /// What may be removed of a range: what its archive has, which is read each time; all if it is dropped. None if
    /// nothing may.
    async fn removable(&self, of: &Held) -> Result<Option<Option<Vec<String>>>, NotStepped> {
        let (name, comes_back) = match archiving::purpose(&of.owner) {
            archiving::Purpose::Drop => return Ok(Some(None)),
            archiving::Purpose::Archive(name) => (name, false),
            archiving::Purpose::Restore(name) => (name, true),
        };
        let record = self.record(name).await?;
        match self.with(&record, async |archive| archive.dataset_names().await).await {
            Ok(names) => Ok(Some(Some(names))),
            // What has come back from an archive that is damaged since is all that there is of it.
            Err(NotStepped::Refused(why)) if comes_back => {
                tracing::warn!(archive = name, why, "what was restored of an archive stays on its shard");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The name under which rows of a range are claimed on a shard: the same for all that is done with an archive, so
    /// that whoever has slept in the middle of deleting them cannot go on while they are put back.
    async fn claimed(&self, of: &Held) -> Result<String, NotStepped> {
        match archiving::purpose(&of.owner) {
            archiving::Purpose::Drop => Ok(of.owner.clone()),
            archiving::Purpose::Archive(name) | archiving::Purpose::Restore(name) => {
                Ok(self.record(name).await?.id.to_string())
            }
        }
    }

    async fn drop_rows(&self, of: &Held, mark: OpId) -> Result<Stepped, NotStepped> {
        let Some(only) = self.removable(of).await? else { return Ok(Stepped::Done(None)) };
        let definition = self.definition(&of.map).await?;
        let id = self.owner(&of.map, &of.range).await?;
        let later = |error: polyshard_shard::ShardError| NotStepped::Later(format!("shard {id}: {error}"));
        let shard = self.router.administer(&id).await.map_err(later)?;
        let what = self.claimed(of).await?;
        let claim = shard.claim_offline(&what, mark).await.map_err(later)?;
        let deleting = Deleting::new(&shard, &definition, &of.range, only.as_deref()).await;
        let purpose = archiving::purpose(&of.owner);
        // What an archive names is deleted after all of its rows: until then, its list of objects is whole.
        let with = match purpose {
            archiving::Purpose::Drop => With::Objects,
            archiving::Purpose::Archive(_) | archiving::Purpose::Restore(_) => With::PendingObjects,
        };
        let mut deleting = deleting.map_err(not_stepped)?.with_objects(&self.carriers, with);
        let deleted = deleting.go_on(&shard, &claim, PART_ROWS).await.map_err(not_stepped)?;
        if !deleted.is_done {
            return Ok(Stepped::Part(format!("{} rows were deleted just now", deleted.rows)));
        }
        // Those of a restoration that was given up are in the archive as before.
        if let archiving::Purpose::Archive(name) | archiving::Purpose::Restore(name) = purpose {
            let record = self.record(name).await?;
            self.with(&record, async |archive| archive.delete_objects(&shard, &claim).await).await?;
        }
        tracing::info!(map = %of.map, shard = %id, of = of.owner, "the rows of a range were deleted");
        Ok(Stepped::Done(None))
    }

    async fn restore(&self, name: &str, mark: OpId) -> Result<Stepped, NotStepped> {
        let mut record = self.record(name).await?;
        record.shard = self.owner(&record.map, &record.range).await?;
        let later = |error: polyshard_shard::ShardError| {
            NotStepped::Later(format!("shard {}: {error}", record.shard))
        };
        let shard = self.router.administer(&record.shard).await.map_err(later)?;
        let claim = shard.claim_offline(&record.id.to_string(), mark).await.map_err(later)?;
        let rows = self.with(&record, async |archive| archive.restore(&claim).await).await?;
        let to = record.shard.clone();
        let noted = self.catalog.set_archive(name, |record| record.shard = to).await;
        noted.map_err(NotStepped::Catalog)?;
        tracing::info!(archive = name, map = %record.map, shard = %record.shard, rows, "an archive was restored");
        Ok(Stepped::Done(Some(format!("{rows} rows are back on shard {}", record.shard))))
    }

    /// Removes an archive from its place, and from the list.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), NotStepped> {
        let Some(record) = self.catalog.archive(name).await.map_err(NotStepped::Catalog)? else {
            return Ok(());
        };
        self.with(&record, async |archive| archive.remove().await).await?;
        self.catalog.remove_archive(name).await.map_err(NotStepped::Catalog)?;
        tracing::info!(archive = name, map = %record.map, state = record.state.as_str(), "an archive was removed");
        Ok(())
    }

    /// Compares all of an archive with its checksums.
    pub(crate) async fn verify(&self, record: &ArchiveRecord) -> Result<(), BackupError> {
        let at = self.location(&record.place, &record.name)?;
        let manifest = polyshard_backup::verify(&at).await?;
        match manifest.archive.is_some_and(|archive| archive.id == record.id) {
            true => Ok(()),
            false => Err(BackupError::Damaged(format!("{} is not the archive any more", at.url()))),
        }
    }
}

/// What to do about a failure.
fn not_stepped(error: BackupError) -> NotStepped {
    match error {
        BackupError::Busy(why) | BackupError::Failed(why) => NotStepped::Later(why),
        BackupError::Refused(why) | BackupError::Damaged(why) => NotStepped::Refused(why),
    }
}

/// The procedures' side of it.
pub(crate) struct Hands(pub(crate) Arc<Keeper>);

impl Archiver for Hands {
    fn write<'a>(&'a self, archive: &'a str) -> Stepping<'a> {
        Box::pin(self.0.write(archive))
    }
    fn compare<'a>(&'a self, archive: &'a str) -> Stepping<'a> {
        Box::pin(self.0.compare(archive))
    }
    fn drop_rows<'a>(&'a self, of: &'a Held, mark: OpId) -> Stepping<'a> {
        Box::pin(self.0.drop_rows(of, mark))
    }
    fn restore<'a>(&'a self, archive: &'a str, mark: OpId) -> Stepping<'a> {
        Box::pin(self.0.restore(archive, mark))
    }
    fn forget<'a>(&'a self, archive: &'a str) -> Stepping<'a> {
        Box::pin(async move { self.0.remove(archive).await.map(|()| Stepped::Done(None)) })
    }
}
