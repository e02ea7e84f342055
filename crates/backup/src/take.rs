//! Taking a backup: hold a moment, copy every database, compare, and only then give the folder its name.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{StreamExt, TryStreamExt};
use polyshard_catalog::Catalog;
use polyshard_engine::{Snapshot, Target};
use polyshard_map::ShardId;
use polyshard_router::Router;

use crate::manifest::{FORMAT, MANIFEST, Manifest, Part, ShardPart, engine_word};
use crate::{BackupError, dump, files, moment};

/// What a folder is called as long as it is not whole.
const PARTIAL: &str = ".partial";
/// Databases copied at once: more would only make the disk jump.
const COPIED_AT_ONCE: usize = 2;

/// Milliseconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// What to back up, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The folder that will be the backup; it may not exist yet.
    pub backup: PathBuf,
    /// Only these shards, without the catalog; everything if none are named.
    pub shards: Option<Vec<ShardId>>,
    /// The version of the program.
    pub program: String,
    /// The catalog's address without a password.
    pub catalog_url: String,
}

/// How far it is.
#[derive(Debug, Default)]
pub struct Progress {
    databases: AtomicU64,
    done: AtomicU64,
    bytes: AtomicU64,
    pause_ms: AtomicU64,
}

impl Progress {
    /// Databases to copy.
    pub fn databases(&self) -> u64 {
        self.databases.load(Ordering::Relaxed)
    }
    /// Databases copied.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
    /// Bytes of the copies so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
    /// How long writes waited.
    pub fn pause_ms(&self) -> u64 {
        self.pause_ms.load(Ordering::Relaxed)
    }
}

/// A backup that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Where.
    pub backup: PathBuf,
    /// What it consists of.
    pub manifest: Manifest,
}

/// Takes a backup while requests go on. When it fails, what was copied is removed again; if the process dies, a folder
/// that ends in `.partial` stays, which is no backup.
pub async fn take(
    router: &Router,
    catalog: &Catalog,
    request: &Request,
    clock: &Clock,
    progress: &Progress,
) -> Result<Taken, BackupError> {
    let partial = files::beside(&request.backup, PARTIAL);
    for taken in [&request.backup, &partial] {
        if taken.exists() {
            let taken = taken.display();
            return Err(BackupError::Refused(format!("{taken} is there already; choose another name")));
        }
    }
    fs::create_dir_all(partial.join("shards")).map_err(|error| BackupError::of_file(&partial, &error))?;
    let copied = copy_all(router, catalog, request, &partial, clock, progress).await;
    let whole = copied.and_then(|manifest| {
        let text = serde_json::to_vec_pretty(&manifest).expect("a manifest has a JSON form");
        files::sync_folder(&partial.join("shards"))?;
        files::write_new(&partial.join(MANIFEST), &text)?;
        files::sync_folder(&partial)?;
        files::rename_folder(&partial, &request.backup)?;
        Ok(manifest)
    });
    match whole {
        Ok(manifest) => Ok(Taken { backup: request.backup.clone(), manifest }),
        Err(error) => {
            if let Err(left) = fs::remove_dir_all(&partial) {
                tracing::warn!(folder = %partial.display(), %left, "what was copied of a failed backup is left");
            }
            Err(error)
        }
    }
}

async fn copy_all(
    router: &Router,
    catalog: &Catalog,
    request: &Request,
    folder: &Path,
    clock: &Clock,
    progress: &Progress,
) -> Result<Manifest, BackupError> {
    let cluster = catalog.cluster().await?;
    let mut moment = moment::hold(router, catalog, request.shards.as_deref(), clock).await?;
    progress.pause_ms.store(moment.pause_ms, Ordering::Relaxed);
    let whole = request.shards.is_none();
    progress.databases.store(moment.records.len() as u64 + u64::from(whole), Ordering::Relaxed);
    let mut works = Vec::new();
    for record in &moment.records {
        let Some((shard, held)) = moment.shards.remove(&record.id) else { continue };
        let name = format!("shards/{}", record.id);
        works.push((Some(record.id.clone()), shard.address().clone(), record.url.clone(), held, name));
    }
    if whole {
        let (target, url) = (catalog.target().clone(), request.catalog_url.clone());
        works.push((None, target, url, moment.catalog, "catalog".to_owned()));
    }
    let copy = |(id, target, url, held, name): (Option<ShardId>, Target, String, Snapshot, String)| async move {
        let part = copy(&target, url, held, folder, &name, progress).await?;
        progress.done.fetch_add(1, Ordering::Relaxed);
        Ok::<_, BackupError>((id, part))
    };
    let copied: Vec<(Option<ShardId>, Part)> = futures_util::stream::iter(works.into_iter().map(copy))
        .buffered(COPIED_AT_ONCE)
        .try_collect()
        .await?;
    let (mut shards, mut of_catalog) = (Vec::new(), None);
    for (id, part) in copied {
        match id {
            Some(id) => shards.push(ShardPart { id, copy: part }),
            None => of_catalog = Some(part),
        }
    }
    Ok(Manifest {
        format: FORMAT,
        program: request.program.clone(),
        cluster,
        moment_ms: moment.at_ms,
        seq: moment.seq,
        catalog: of_catalog,
        shards,
    })
}

async fn copy(
    target: &Target,
    url: String,
    held: Snapshot,
    folder: &Path,
    name: &str,
    progress: &Progress,
) -> Result<Part, BackupError> {
    let engine = engine_word(target.dialect()).to_owned();
    let file = match target {
        Target::Sqlite(_) => format!("{name}.sqlite"),
        Target::Postgres(_) => format!("{name}.pgdump"),
    };
    let path = folder.join(&file);
    match target {
        Target::Sqlite(_) => held.copy_to(&path, |_, _| ()).await?,
        Target::Postgres(target) => dump::dump(target, held, &path).await?,
    }
    // Read back: what cannot be read now will not be read when it is needed.
    let summed = tokio::task::spawn_blocking(move || files::checksum(&path)).await;
    let (bytes, sha256) =
        summed.map_err(|error| BackupError::Failed(format!("a checksum was not made: {error}")))??;
    progress.bytes.fetch_add(bytes, Ordering::Relaxed);
    Ok(Part { file, engine, url, bytes, sha256 })
}
