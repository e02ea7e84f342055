//! Taking a backup: hold a moment, copy every database, see that all is there, and only then write the manifest.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use polyshard_catalog::Catalog;
use polyshard_engine::{Snapshot, Target};
use polyshard_map::{MapJson, MapName, ShardId};
use polyshard_router::Router;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::depot::Location;
use crate::files::Scratch;
use crate::manifest::{FORMAT, JSON, Manifest, MapPart, Part, ShardPart, Shardlet, engine_word};
use crate::marks::Mark;
use crate::pool::{self, Chunk, Pool};
use crate::{BackupError, dump, files, moment, shardlet};

/// Databases copied at once: more would only make the disk jump.
const COPIED_AT_ONCE: usize = 2;

/// Milliseconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Told when a shard is held, one after the other, while writes wait. For tests: it makes a moment long.
pub type Probe = Arc<dyn Fn(ShardId) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What to back up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The catalog and all shards.
    Everything,
    /// These shards, without the catalog.
    Shards(Vec<ShardId>),
    /// One shardlet: the rows of a key in all datasets.
    Shardlet {
        /// Its map.
        map: MapName,
        /// Its key, as people write it.
        key: String,
    },
}

/// What to back up, and where to.
#[derive(Clone)]
pub struct Request {
    /// The backup, which may not exist yet.
    pub to: Location,
    /// What of the cluster.
    pub what: What,
    /// The class of the schedule that asks for it.
    pub class: Option<String>,
    /// The version of the program.
    pub program: String,
    /// The catalog's address without a password.
    pub catalog_url: String,
    /// A folder for files that are needed meanwhile: copies of SQLite databases.
    pub scratch: PathBuf,
    /// For tests.
    pub probe: Option<Probe>,
}

/// How far it is, and whether it shall go on.
#[derive(Debug)]
pub struct Progress {
    databases: AtomicU64,
    done: AtomicU64,
    bytes: AtomicU64,
    new_bytes: AtomicU64,
    rows: AtomicU64,
    pause_ms: AtomicU64,
    moment_ms: AtomicI64,
    cancelled: watch::Sender<bool>,
}

impl Default for Progress {
    fn default() -> Progress {
        let number = AtomicU64::default;
        Progress {
            databases: number(),
            done: number(),
            bytes: number(),
            new_bytes: number(),
            rows: number(),
            pause_ms: number(),
            moment_ms: AtomicI64::default(),
            cancelled: watch::Sender::new(false),
        }
    }
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
    /// Bytes that were new in the depot.
    pub fn new_bytes(&self) -> u64 {
        self.new_bytes.load(Ordering::Relaxed)
    }
    /// Rows restored.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
    /// How long writes waited.
    pub fn pause_ms(&self) -> u64 {
        self.pause_ms.load(Ordering::Relaxed)
    }
    /// The moment it is of; 0 before it is held.
    pub fn moment_ms(&self) -> i64 {
        self.moment_ms.load(Ordering::Relaxed)
    }
    /// Asks for it to be given up.
    pub fn cancel(&self) {
        self.cancelled.send_replace(true);
    }
    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    pub(crate) fn add_rows(&self, rows: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
    }
    pub(crate) fn set_databases(&self, databases: u64) {
        self.databases.store(databases, Ordering::Relaxed);
    }
    pub(crate) fn add_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Does something unless it is cancelled before it is done.
    pub(crate) async fn unless_cancelled<T>(
        &self,
        work: impl Future<Output = Result<T, BackupError>>,
    ) -> Result<T, BackupError> {
        let mut cancelled = self.cancelled.subscribe();
        tokio::select! {
            done = work => done,
            // The sender is in `self`, so it cannot be gone.
            _ = cancelled.wait_for(|cancelled| *cancelled) => {
                Err(BackupError::Refused("it was cancelled".to_owned()))
            }
        }
    }
}

/// Takes a backup while requests go on. When it fails, what was written under its name is removed again; if the process
/// dies, it has no manifest and is no backup. Chunks that were written stay for the next one, or until they are pruned.
pub fn take<'a>(
    router: &'a Router,
    catalog: &'a Catalog,
    request: &'a Request,
    clock: &'a Clock,
    progress: &'a Progress,
) -> Pin<Box<dyn Future<Output = Result<Manifest, BackupError>> + Send + 'a>> {
    Box::pin(async move {
        let mark = Mark::begin(&request.to, clock()).await?;
        let taking = finish(&mark, router, catalog, request, clock, progress);
        let taken = progress.unless_cancelled(taking).await;
        match &taken {
            Ok(_) => mark.end().await?,
            Err(_) => {
                if let Err(left) = mark.remove_all().await {
                    tracing::warn!(backup = request.to.url(), %left, "what was written of a failed backup is left");
                }
            }
        }
        taken
    })
}

async fn finish(
    mark: &Mark,
    router: &Router,
    catalog: &Catalog,
    request: &Request,
    clock: &Clock,
    progress: &Progress,
) -> Result<Manifest, BackupError> {
    let pool = Pool::open(&request.to.depot).await?;
    let manifest = mark.kept_while(copy_all(router, catalog, request, &pool, clock, progress)).await?;
    progress.new_bytes.store(pool.new_bytes(), Ordering::Relaxed);
    mark.check(&manifest).await?;
    manifest.write(&request.to).await?;
    Ok(manifest)
}

async fn copy_all(
    router: &Router,
    catalog: &Catalog,
    request: &Request,
    pool: &Pool,
    clock: &Clock,
    progress: &Progress,
) -> Result<Manifest, BackupError> {
    let cluster = catalog.cluster().await?;
    let mut manifest = Manifest {
        format: FORMAT,
        program: request.program.clone(),
        cluster,
        moment_ms: 0,
        seq: 0,
        class: request.class.clone(),
        shardlet: None,
        new_bytes: 0,
        catalog: None,
        shards: Vec::new(),
        maps: Vec::new(),
        rows: None,
    };
    let writer = Writer { request, pool, progress };
    match &request.what {
        What::Everything => writer.copy_moment(router, catalog, None, clock, &mut manifest).await?,
        What::Shards(shards) => {
            writer.copy_moment(router, catalog, Some(shards), clock, &mut manifest).await?
        }
        What::Shardlet { map, key } => {
            progress.set_databases(1);
            (manifest.moment_ms, manifest.seq) = (clock(), router.view().seq);
            let lines = shardlet::extract_live(router, map, key, &request.scratch, progress).await?;
            let file = tokio::fs::File::open(lines.path()).await;
            let file = file.map_err(|error| BackupError::of_file(lines.path(), &error))?;
            let chunks = pool.store(file, progress).await?;
            manifest.rows = Some(writer.part("rows", JSON, "", &chunks).await?);
            manifest.shardlet = Some(Shardlet { map: map.clone(), key: key.clone() });
            progress.add_done();
        }
    }
    progress.moment_ms.store(manifest.moment_ms, Ordering::Relaxed);
    manifest.new_bytes = pool.new_bytes();
    Ok(manifest)
}

/// Writes the parts of one backup.
struct Writer<'a> {
    request: &'a Request,
    pool: &'a Pool,
    progress: &'a Progress,
}

impl Writer<'_> {
    async fn copy_moment(
        &self,
        router: &Router,
        catalog: &Catalog,
        shards: Option<&[ShardId]>,
        clock: &Clock,
        manifest: &mut Manifest,
    ) -> Result<(), BackupError> {
        let probe = self.request.probe.as_ref();
        let mut moment = moment::hold(router, catalog, shards, clock, probe).await?;
        (manifest.moment_ms, manifest.seq) = (moment.at_ms, moment.view.seq);
        self.progress.pause_ms.store(moment.pause_ms, Ordering::Relaxed);
        let whole = shards.is_none();
        self.progress.set_databases(moment.records.len() as u64 + u64::from(whole));
        let mut works = Vec::new();
        for record in &moment.records {
            let Some((shard, held)) = moment.shards.remove(&record.id) else { continue };
            let name = format!("shards/{}", record.id);
            works.push((Some(record.id.clone()), shard.address().clone(), record.url.clone(), held, name));
        }
        if whole {
            let (target, url) = (catalog.target().clone(), self.request.catalog_url.clone());
            works.push((None, target, url, moment.catalog, "catalog".to_owned()));
        }
        let copy = |(id, target, url, held, name): (_, Target, String, Snapshot, String)| async move {
            let part = self.copy(&target, &url, held, &name).await?;
            self.progress.add_done();
            Ok::<_, BackupError>((id, part))
        };
        let works: Vec<_> = works.into_iter().map(copy).collect();
        let copied: Vec<(Option<ShardId>, Part)> =
            futures_util::stream::iter(works).buffered(COPIED_AT_ONCE).try_collect().await?;
        for (id, part) in copied {
            match id {
                Some(id) => manifest.shards.push(ShardPart { id, copy: part }),
                None => manifest.catalog = Some(part),
            }
        }
        for (name, known) in &moment.view.maps {
            let text = serde_json::to_vec(&MapJson(&known.map)).expect("a map has a JSON form");
            let chunks = self.pool.store(text.as_slice(), &Progress::default()).await?;
            let copy = self.part(&format!("maps/{name}"), JSON, "", &chunks).await?;
            manifest.maps.push(MapPart { name: name.clone(), copy });
        }
        Ok(())
    }

    async fn copy(
        &self,
        target: &Target,
        url: &str,
        held: Snapshot,
        name: &str,
    ) -> Result<Part, BackupError> {
        let chunks = match target {
            Target::Postgres(target) => dump::dump(target, held, self.pool, self.progress).await?,
            Target::Sqlite(_) => {
                let file = format!("{}-{}.sqlite", self.request.to.name, name.replace('/', "-"));
                let copy = Scratch::new(&self.request.scratch, &file)?;
                held.copy_to(copy.path(), |_, _| ()).await?;
                let file = tokio::fs::File::open(copy.path()).await;
                let file = file.map_err(|error| BackupError::of_file(copy.path(), &error))?;
                self.pool.store(file, self.progress).await?
            }
        };
        self.part(name, engine_word(target.dialect()), url, &chunks).await
    }

    /// Writes the list of a part's chunks.
    async fn part(&self, name: &str, engine: &str, url: &str, chunks: &[Chunk]) -> Result<Part, BackupError> {
        let file = format!("{name}.chunks");
        let text = pool::list_text(chunks);
        let sha256 = files::hex(&Sha256::digest(text.as_bytes()));
        self.request.to.depot.put(&self.request.to.path(&file), Bytes::from(text)).await?;
        let bytes = chunks.iter().map(|chunk| chunk.bytes).sum();
        let (engine, url) = (engine.to_owned(), url.to_owned());
        Ok(Part { file, engine, url, bytes, sha256, chunks: Some(chunks.len() as u64) })
    }
}
