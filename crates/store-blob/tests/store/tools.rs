//! What the tests share: a store with its objects in a folder of its own, and an object store that stops on demand.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use polyshard_engine::{Dialect, Statement, Transaction};
use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_router::Access;
use polyshard_store_blob::{
    BlobName, BlobOptions, BlobStore, Boxed, ByteStream, Conditions, ContainerName, DEFAULT_MAP, Download,
    Expected, Folder, Metadata, NewBlob, ObjectBackend, ObjectError, ObjectId, ObjectWriter, Objects,
    PublicAccess, Upload, Wanted,
};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::Cluster;
use crate::place::Place;

/// More than lies in a row.
pub const LARGE: usize = 200_000;

/// A process with its store.
pub struct Tried {
    pub cluster: Cluster,
    pub store: Arc<BlobStore>,
    pub stops: Arc<Stops>,
    folder: TempDir,
    /// How far the clock of the process is ahead, in ticks.
    ahead: Arc<AtomicI64>,
}

/// Steps of an object at which its store can stop or fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Create,
    Write,
    BeforeFinish,
    AfterFinish,
    Read,
    Delete,
    AfterDelete,
}

/// Where and how it stops.
#[derive(Default)]
pub struct Stops {
    at: Mutex<Option<(At, How)>>,
    /// Told when it has stopped.
    pub reached: Notify,
    /// Lets it go on.
    pub go: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It fails, as if it were away.
    Fail,
    /// It fails as a full disk does.
    Full,
    /// It waits until it is told to go on, or for ever.
    Wait,
}

impl Stops {
    pub fn set(&self, stop: Option<(At, How)>) {
        *self.at.lock().unwrap() = stop;
    }

    async fn pass(&self, at: At) -> Result<(), ObjectError> {
        let stop = self.at.lock().unwrap().filter(|(stop, _)| *stop == at);
        match stop {
            None => Ok(()),
            Some((_, How::Fail)) => Err(ObjectError::Failed("it is away".to_owned())),
            Some((_, How::Full)) => Err(ObjectError::NoSpace("it is full".to_owned())),
            Some((_, How::Wait)) => {
                self.reached.notify_one();
                self.go.notified().await;
                Ok(())
            }
        }
    }
}

struct Stopping {
    inner: Folder,
    stops: Arc<Stops>,
}

impl ObjectBackend for Stopping {
    fn create<'a>(&'a self, path: &'a str, length: u64) -> Boxed<'a, Box<dyn ObjectWriter>> {
        Box::pin(async move {
            self.stops.pass(At::Create).await?;
            let inner = self.inner.create(path, length).await?;
            Ok(Box::new(StoppingWriter { inner, stops: self.stops.clone() }) as Box<dyn ObjectWriter>)
        })
    }

    fn read<'a>(&'a self, path: &'a str, range: Range<u64>) -> Boxed<'a, ByteStream> {
        Box::pin(async move {
            self.stops.pass(At::Read).await?;
            self.inner.read(path, range).await
        })
    }

    fn delete<'a>(&'a self, path: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move {
            self.stops.pass(At::Delete).await?;
            self.inner.delete(path).await?;
            self.stops.pass(At::AfterDelete).await
        })
    }

    fn length<'a>(&'a self, path: &'a str) -> Boxed<'a, Option<u64>> {
        self.inner.length(path)
    }

    fn list<'a>(&'a self, dataset: u64) -> Boxed<'a, BoxStream<'static, Result<ObjectId, ObjectError>>> {
        self.inner.list(dataset)
    }

    fn datasets(&self) -> Boxed<'_, Vec<u64>> {
        self.inner.datasets()
    }

    fn delete_all<'a>(&'a self, dataset: u64) -> Boxed<'a, ()> {
        self.inner.delete_all(dataset)
    }

    fn mark<'a>(&'a self, new: &'a str) -> Boxed<'a, String> {
        self.inner.mark(new)
    }
}

struct StoppingWriter {
    inner: Box<dyn ObjectWriter>,
    stops: Arc<Stops>,
}

impl ObjectWriter for StoppingWriter {
    fn write(&mut self, bytes: Bytes) -> Boxed<'_, ()> {
        Box::pin(async move {
            self.stops.pass(At::Write).await?;
            self.inner.write(bytes).await
        })
    }

    fn finish(self: Box<Self>) -> Boxed<'static, ()> {
        Box::pin(async move {
            self.stops.pass(At::BeforeFinish).await?;
            self.inner.finish().await?;
            self.stops.pass(At::AfterFinish).await
        })
    }
}

/// The machine's clock.
fn ticks() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_nanos() / 100).unwrap()
}

impl Tried {
    /// A process on a new cluster, with the container of the tests. Nothing that is not needed is kept.
    pub async fn new(place: &Place) -> Tried {
        Tried::with(place, |options| BlobOptions { keep_removed: Duration::ZERO, ..options }).await
    }

    pub async fn with(place: &Place, change: impl FnOnce(BlobOptions) -> BlobOptions) -> Tried {
        let ahead = Arc::new(AtomicI64::new(0));
        let hand = ahead.clone();
        let clock = Arc::new(move || ticks() + hand.load(Ordering::SeqCst));
        let cluster: Cluster = place.open_at(clock).await;
        let folder = tempfile::tempdir().unwrap();
        let stops = Arc::new(Stops::default());
        let backend = Stopping { inner: Folder::new(folder.path().to_owned()), stops: stops.clone() };
        let options = BlobOptions::new(Objects::new(Arc::new(backend), "test"));
        let store = Arc::new(BlobStore::new(cluster.store.kit.clone(), change(options)));
        store.create_container(&container(), Metadata::new(), PublicAccess::None).await.unwrap();
        Tried { cluster, store, stops, folder, ahead }
    }

    /// The same store with other options.
    pub fn again(&self, change: impl FnOnce(BlobOptions) -> BlobOptions) -> Arc<BlobStore> {
        let backend =
            Stopping { inner: Folder::new(self.folder.path().to_owned()), stops: self.stops.clone() };
        let options = BlobOptions::new(Objects::new(Arc::new(backend), "test"));
        Arc::new(BlobStore::new(self.cluster.store.kit.clone(), change(options)))
    }

    /// A store of the same cluster that has its objects in another folder.
    pub fn elsewhere(&self, folder: &Path) -> Arc<BlobStore> {
        let objects = Objects::open(&folder.to_string_lossy(), &(Arc::new(|_: &str| None) as _)).unwrap();
        Arc::new(BlobStore::new(self.cluster.store.kit.clone(), BlobOptions::new(objects)))
    }

    /// Puts the clock of the process forward.
    pub fn pass(&self, time: Duration) {
        self.ahead.fetch_add(i64::try_from(time.as_nanos() / 100).unwrap(), Ordering::SeqCst);
    }

    /// Has the process believe that there are so many.
    pub fn hear_of(&self, processes: usize) {
        self.cluster.store.kit.host().quotas().share(processes);
    }

    pub async fn put(&self, name: &str, bytes: impl Into<Bytes>) {
        let none = Conditions::default();
        self.store.put_blob(&blob(name), &NewBlob::default(), upload(bytes), &none).await.unwrap();
    }

    pub async fn get(&self, name: &str) -> Option<Vec<u8>> {
        let got = self.store.get_blob(&blob(name), None, None, &Conditions::default()).await;
        match got {
            Ok(download) => Some(read(download).await),
            Err(polyshard_store_blob::StoreError::NoSuchBlob(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Rows of a table on all shards.
    pub async fn rows(&self, table: &str) -> i64 {
        let (map, all) = (MapName::new(DEFAULT_MAP).unwrap(), KeyRange::all());
        let mut count = 0;
        for shard in ["s1", "s2", "s3"] {
            let shard = ShardId::new(shard).unwrap();
            let ticket = self.cluster.router.enter_shard(&map, &all, &shard, Access::Read).await.unwrap();
            let sql = format!("SELECT count(*) FROM {}", ticket.dialect().own_table(table));
            count += ticket.read(Statement::new(sql)).await.unwrap().one().unwrap().int(0).unwrap();
        }
        count
    }

    /// A transaction beside the store on a shard, in which `{table}` is its own table of this name.
    pub async fn beside(&self, shard: &str) -> (Transaction, Dialect) {
        let opened = self.cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
        (opened.patient_transaction().await.unwrap(), opened.dialect())
    }

    /// Whether the shards are SQLite files.
    pub async fn is_sqlite(&self) -> bool {
        let opened = self.cluster.router.administer(&ShardId::new("s1").unwrap()).await.unwrap();
        opened.dialect() == Dialect::Sqlite
    }

    /// Runs a statement on a shard, beside the store. Answers how many rows it touched.
    pub async fn run_sql(&self, shard: &str, table: &str, sql: &str) -> u64 {
        let (mut tx, dialect) = self.beside(shard).await;
        let sql = sql.replace("{table}", &dialect.own_table(table));
        let touched = tx.run(Statement::new(sql)).await.unwrap().affected();
        tx.commit().await.unwrap();
        touched
    }

    /// Objects there are.
    pub fn objects(&self) -> usize {
        files(self.folder.path()).len()
    }

    /// Sweeps as often as it takes: what is announced is condemned first, and deleted then.
    pub async fn sweep(&self) {
        for _ in 0..4 {
            self.store.sweep().await;
        }
    }

    pub async fn close(self) {
        drop(self.store);
        self.cluster.close().await;
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.file_name().is_some_and(|name| name.len() == 32) {
            found.push(path);
        }
    }
    found
}

pub fn container() -> ContainerName {
    ContainerName::new("acct", "box").unwrap()
}

pub fn blob(name: &str) -> BlobName {
    BlobName::new(container(), name).unwrap()
}

/// Bytes that are not all alike.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8).wrapping_add(seed))
        .collect()
}

/// An upload that comes in pieces.
pub fn upload(bytes: impl Into<Bytes>) -> Upload {
    let bytes = bytes.into();
    let length = bytes.len() as u64;
    let starts = (0..bytes.len()).step_by(50_000);
    let pieces: Vec<Result<Bytes, ObjectError>> =
        starts.map(|start| Ok(bytes.slice(start..bytes.len().min(start + 50_000)))).collect();
    let wanted = Wanted::default();
    Upload { length, bytes: stream::iter(pieces).boxed(), expected: Expected::default(), wanted }
}

pub async fn read(download: Download) -> Vec<u8> {
    let length = download.length;
    let pieces: Vec<Bytes> = download.bytes.try_collect().await.unwrap();
    let bytes = pieces.concat();
    assert_eq!(bytes.len() as u64, length);
    bytes
}
