//! Taking a backup: hold a moment, copy every database, see that all is there, and only then write the manifest.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use polyshard_catalog::Catalog;
use polyshard_engine::{Snapshot, Target, Version};
use polyshard_map::{Epoch, Map, MapJson, MapName, ShardId};
use polyshard_router::Router;
use sha2::{Digest, Sha256};

use crate::carried::{self, Carriers, Keys};
use crate::depot::Location;
use crate::files::Scratch;
use crate::manifest::{FORMAT, JSON, Manifest, MapPart, Part, ShardPart, Shardlet, engine_word};
use crate::marks::Mark;
use crate::pool::{self, Chunk, Pool};
use crate::progress::Progress;
use crate::unchanged::Memory;
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
    /// What stores keep outside the databases.
    pub carriers: Carriers,
    /// What earlier backups of this process had: databases that have not changed since are not read again.
    pub memory: Arc<Memory>,
    /// For tests.
    pub probe: Option<Probe>,
}

/// Takes a backup while requests go on. When it fails, what was written under its name is removed again, unless another
/// has taken the name meanwhile; if the process dies, it has no manifest and is no backup. Chunks that were written
/// stay for the next one, or until they are pruned.
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
            // It is whole, whatever is beside it; with the mark it is only looked at once more.
            Ok(_) => {
                if let Err(left) = mark.end().await {
                    tracing::warn!(backup = request.to.url(), %left, "the mark of a backup that is whole is left");
                }
            }
            Err(_) => {
                if let Err(left) = mark.remove_all(clock()).await {
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
    let pool = mark.kept_while(Pool::open(&request.to.depot)).await?;
    let copied = Mutex::default();
    let named = Mutex::default();
    let writer = Writer { request, pool: &pool, progress, copied: &copied, named: &named };
    let manifest = mark.kept_while(copy_all(&writer, router, catalog, clock)).await?;
    progress.set_new_bytes(pool.new_bytes());
    mark.kept_while(mark.check(&manifest)).await?;
    // From here on it is whole or gone, and is told to be one or the other.
    progress.seal()?;
    mark.make_whole(&manifest).await?;
    mark.confirm().await?;
    request.memory.remember(&request.to, copied.into_inner().expect("no panic while held"));
    Ok(manifest)
}

async fn copy_all(
    writer: &Writer<'_>,
    router: &Router,
    catalog: &Catalog,
    clock: &Clock,
) -> Result<Manifest, BackupError> {
    let Writer { request, pool, progress, .. } = writer;
    let cluster = catalog.cluster().await?;
    let mut manifest = Manifest {
        format: FORMAT,
        program: request.program.clone(),
        cluster,
        moment_ms: 0,
        seq: 0,
        class: request.class.clone(),
        shardlet: None,
        archive: None,
        new_bytes: 0,
        catalog: None,
        shards: Vec::new(),
        maps: Vec::new(),
        rows: None,
        objects: Vec::new(),
    };
    match &request.what {
        What::Everything => writer.copy_moment(router, catalog, None, clock, &mut manifest).await?,
        What::Shards(shards) => {
            writer.copy_moment(router, catalog, Some(shards), clock, &mut manifest).await?
        }
        What::Shardlet { map, key } => {
            progress.set_databases(1);
            (manifest.moment_ms, manifest.seq) = (clock(), router.view().seq);
            let file = Scratch::new(&request.scratch, &format!("{}-rows.jsonl", request.to.name))?;
            let (lines, definition) = shardlet::extract_live(router, map, key, file, progress).await?;
            *writer.named.lock().expect("no panic while held") =
                carried::named_in_lines(lines.path(), &request.carriers)?;
            let file = tokio::fs::File::open(lines.path()).await;
            let file = file.map_err(|error| BackupError::of_file(lines.path(), &error))?;
            let chunks = pool.store(file, progress).await?;
            manifest.rows = Some(writer.part("rows", JSON, "", &chunks).await?);
            manifest.shardlet = Some(Shardlet { map: map.clone(), key: key.clone() });
            // Without its entries: it tells what the placements in the rows mean.
            let bare = Map::build(definition, std::iter::empty(), Epoch::ZERO);
            let bare = bare.map_err(|error| BackupError::Failed(format!("map {map}: {error}")))?;
            manifest.maps.push(writer.map(&bare).await?);
            progress.add_done();
        }
    }
    let named = std::mem::take(&mut *writer.named.lock().expect("no panic while held"));
    manifest.objects = carried::store(&request.to, pool, &request.carriers, &named, progress).await?;
    progress.set_moment_ms(manifest.moment_ms);
    manifest.new_bytes = pool.new_bytes();
    Ok(manifest)
}

/// Writes the parts of one backup.
struct Writer<'a> {
    request: &'a Request,
    pool: &'a Pool,
    progress: &'a Progress,
    /// The copies that were made, with the versions of their databases.
    copied: &'a Mutex<Vec<(String, Version, Part)>>,
    /// The objects that the databases name.
    named: &'a Mutex<Keys>,
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
        self.progress.set_pause_ms(moment.pause_ms);
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
            let held = match &id {
                Some(_) => {
                    let (held, keys) =
                        carried::named_at(held, target.dialect(), &self.request.carriers).await?;
                    self.named.lock().expect("no panic while held").join(keys);
                    held
                }
                None => held,
            };
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
        for known in moment.view.maps.values() {
            manifest.maps.push(self.map(&known.map).await?);
        }
        Ok(())
    }

    async fn map(&self, map: &Map) -> Result<MapPart, BackupError> {
        put_map(&self.request.to, self.pool, map).await
    }

    async fn copy(
        &self,
        target: &Target,
        url: &str,
        held: Snapshot,
        name: &str,
    ) -> Result<Part, BackupError> {
        let versions = held.versions().map(|(before, after)| (before.clone(), after.clone()));
        let (before, after) = versions.unzip();
        let memory = &self.request.memory;
        let chunks = match memory.chunks(&self.request.to, name, after.as_ref(), self.pool).await {
            Some(chunks) => {
                self.progress.add_bytes(chunks.iter().map(|chunk| chunk.bytes).sum());
                chunks
            }
            None => self.read(target, held, name).await?,
        };
        let part = self.part(name, engine_word(target.dialect()), url, &chunks).await?;
        if let Some(before) = before {
            let mut copied = self.copied.lock().expect("no panic while held");
            copied.push((name.to_owned(), before, part.clone()));
        }
        Ok(part)
    }

    /// Reads a database at the moment that is held, and stores what is new of it.
    async fn read(&self, target: &Target, held: Snapshot, name: &str) -> Result<Vec<Chunk>, BackupError> {
        match target {
            Target::Postgres(target) => dump::dump(target, held, self.pool, self.progress).await,
            Target::Sqlite(_) => {
                let file = format!("{}-{}.sqlite", self.request.to.name, name.replace('/', "-"));
                let copy = Scratch::new(&self.request.scratch, &file)?;
                held.copy_to(copy.path(), |_, _| ()).await?;
                let file = tokio::fs::File::open(copy.path()).await;
                let file = file.map_err(|error| BackupError::of_file(copy.path(), &error))?;
                self.pool.store(file, self.progress).await
            }
        }
    }

    async fn part(&self, name: &str, engine: &str, url: &str, chunks: &[Chunk]) -> Result<Part, BackupError> {
        put_part(&self.request.to, name, (engine, url), chunks).await
    }
}

/// Writes the list of a part's chunks.
pub(crate) async fn put_part(
    to: &Location,
    name: &str,
    (engine, url): (&str, &str),
    chunks: &[Chunk],
) -> Result<Part, BackupError> {
    let file = format!("{name}.chunks");
    let text = pool::list_text(chunks);
    let sha256 = files::hex(&Sha256::digest(text.as_bytes()));
    to.put(&file, Bytes::from(text)).await?;
    let bytes = chunks.iter().map(|chunk| chunk.bytes).sum();
    let (engine, url) = (engine.to_owned(), url.to_owned());
    Ok(Part { file, engine, url, bytes, sha256, chunks: Some(chunks.len() as u64) })
}

/// Writes a map as it is.
pub(crate) async fn put_map(to: &Location, pool: &Pool, map: &Map) -> Result<MapPart, BackupError> {
    let name = map.definition().name().clone();
    let text = serde_json::to_vec(&MapJson(map)).expect("a map has a JSON form");
    let chunks = pool.store(text.as_slice(), &Progress::default()).await?;
    let copy = put_part(to, &format!("maps/{name}"), (JSON, ""), &chunks).await?;
    Ok(MapPart { name, copy })
}
