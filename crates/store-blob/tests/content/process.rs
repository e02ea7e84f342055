//! A process with a store, and short forms for what the tests do again and again.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use polyshard_engine::Statement;
use polyshard_map::ShardId;
use polyshard_store_blob::{
    BlobName, BlobOptions, BlobStore, BlockId, BlockSource, ByteRange, Conditions, ContainerName, Expected,
    NewBlob, Objects, PublicAccess, SnapshotId, StoreError, Upload, Wanted,
};

use crate::Opened;
use crate::backend::{Backend, Memory};
use crate::cluster::Cluster;
use crate::place::Place;

/// Bytes in a row at most, here: few, so that short tests have objects too.
pub const INLINE_BYTES_MAX: u64 = 1000;
/// The tables that must be empty when all blobs are gone.
const TABLES: [&str; 5] = ["blob_item", "blob_block", "blob_extent", "blob_page", "blob_pending"];
const SHARDS: [&str; 3] = ["s1", "s2", "s3"];

pub struct Process {
    cluster: Cluster<Opened>,
    is_sqlite: bool,
    pub store: BlobStore,
    pub memory: Arc<Memory>,
}

impl Place {
    /// A process with an empty container `box`.
    pub async fn open(&self) -> Process {
        let cluster: Cluster<Opened> = self.open_at(Arc::new(ticks)).await;
        let memory = Arc::new(Memory::default());
        let store = open_store(&cluster, &memory);
        store.create_container(&container(), Vec::new(), PublicAccess::None).await.unwrap();
        // From now on every shard has the tables.
        store.sweep().await;
        let shard = cluster.router.administer(&ShardId::new("s1").unwrap()).await.unwrap();
        let is_sqlite = shard.dialect() == polyshard_engine::Dialect::Sqlite;
        Process { cluster, is_sqlite, store, memory }
    }
}

fn ticks() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_nanos() / 100).unwrap()
}

fn open_store(cluster: &Cluster<Opened>, memory: &Arc<Memory>) -> BlobStore {
    let objects = Objects::new(Arc::new(Backend(memory.clone())), "memory://");
    let options = BlobOptions {
        inline_bytes_max: INLINE_BYTES_MAX,
        keep_removed: Duration::ZERO,
        upload_max: Duration::ZERO,
        ..BlobOptions::new(objects)
    };
    BlobStore::new(cluster.store.0.clone(), options)
}

pub fn container() -> ContainerName {
    ContainerName::new("acct", "box").unwrap()
}

pub fn blob(name: &str) -> BlobName {
    BlobName::new(container(), name).unwrap()
}

pub fn id(text: &str) -> BlockId {
    BlockId(text.as_bytes().to_vec())
}

/// Bytes in several pieces.
pub fn upload(bytes: &[u8]) -> Upload {
    let pieces: Vec<_> = bytes.chunks(400).map(Bytes::copy_from_slice).map(Ok).collect();
    Upload {
        length: bytes.len() as u64,
        bytes: stream::iter(pieces).boxed(),
        expected: Expected::default(),
        wanted: Wanted::default(),
    }
}

/// Bytes that differ from place to place, and by a number.
pub fn bytes(length: usize, number: u64) -> Vec<u8> {
    (0..length).map(|at| ((at as u64).wrapping_mul(31) + number * 7 + (at as u64 / 251)) as u8).collect()
}

pub fn unconditional() -> &'static Conditions {
    static NONE: LazyLock<Conditions> = LazyLock::new(Conditions::default);
    &NONE
}

impl Process {
    /// A store of the same process that keeps more bytes in rows.
    pub fn with_inline(&self, inline_bytes_max: u64) -> BlobStore {
        let objects = Objects::new(Arc::new(Backend(self.memory.clone())), "memory://");
        let options = BlobOptions {
            inline_bytes_max,
            keep_removed: Duration::ZERO,
            upload_max: Duration::ZERO,
            ..BlobOptions::new(objects)
        };
        BlobStore::new(self.cluster.store.0.clone(), options)
    }

    /// Runs a statement on every shard, beside the store; `{table}` names its own table. Answers how many rows it
    /// touched.
    pub async fn run_sql(&self, table: &str, sql: &str) -> u64 {
        let mut touched = 0;
        for shard in SHARDS {
            let opened = self.cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
            let sql = sql.replace("{table}", &opened.dialect().own_table(table));
            let sql = sql.replace("{items}", &opened.dialect().own_table("blob_item"));
            let mut tx = opened.control_transaction().await.unwrap();
            touched += tx.run(Statement::new(sql)).await.unwrap().affected();
            tx.commit().await.unwrap();
        }
        touched
    }

    /// A transaction on the shard that has a blob, which can stay open; and the shard's name for a table.
    pub async fn beside(&self, name: &str) -> Beside {
        for shard in SHARDS {
            let opened = self.cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
            let mut tx = opened.patient_transaction().await.unwrap();
            let items = opened.dialect().own_table("blob_item");
            let found = format!("SELECT 1 FROM {items} WHERE name = '{name}'");
            if !tx.run(Statement::new(found)).await.unwrap().is_empty() {
                return Beside { tx, dialect: opened.dialect() };
            }
            tx.rollback().await.unwrap();
        }
        panic!("no shard has blob {name}");
    }

    /// Whether the shards are SQLite files.
    pub fn is_sqlite(&self) -> bool {
        self.is_sqlite
    }

    /// How many rows there are in a table.
    pub async fn count(&self, table: &str) -> i64 {
        self.rows().await.into_iter().find(|(name, _)| *name == table).unwrap().1
    }

    /// Another process in place of this one, which was killed.
    pub fn restart(&mut self) {
        self.store = open_store(&self.cluster, &self.memory);
    }

    pub async fn put_block(&self, name: &str, block: &str, data: &[u8]) -> Result<(), StoreError> {
        self.store.put_block(&blob(name), &id(block), upload(data), unconditional()).await.map(drop)
    }

    pub async fn commit(&self, name: &str, list: &[(BlockSource, &str)]) -> Result<(), StoreError> {
        let list: Vec<_> = list.iter().map(|(source, block)| (*source, id(block))).collect();
        let (name, new) = (blob(name), NewBlob::default());
        self.store.put_block_list(&name, &list, &new, unconditional()).await.map(drop)
    }

    pub async fn put(&self, name: &str, data: &[u8]) {
        let (name, new) = (blob(name), NewBlob::default());
        self.store.put_blob(&name, &new, upload(data), unconditional()).await.unwrap();
    }

    pub async fn snapshot(&self, name: &str) -> SnapshotId {
        self.store.snapshot(&blob(name), None, unconditional()).await.unwrap().0
    }

    /// Bytes of a blob or snapshot from one to before another.
    pub async fn range(
        &self,
        name: &str,
        snapshot: Option<SnapshotId>,
        (from, to): (u64, u64),
    ) -> Result<Vec<u8>, StoreError> {
        let range = Some(ByteRange { first: from, last: Some(to - 1) });
        let download = self.store.get_blob(&blob(name), snapshot, range, unconditional()).await?;
        assert_eq!((download.first, download.length), (from, to - from));
        Ok(collect(download.bytes).await)
    }

    pub async fn all(&self, name: &str, snapshot: Option<SnapshotId>) -> Result<Vec<u8>, StoreError> {
        let download = self.store.get_blob(&blob(name), snapshot, None, unconditional()).await?;
        let all = collect(download.bytes).await;
        assert_eq!(all.len() as u64, download.blob.size);
        Ok(all)
    }

    /// How many rows the shards have in each table.
    async fn rows(&self) -> Vec<(&'static str, i64)> {
        let mut counts: Vec<(&'static str, i64)> = TABLES.iter().map(|table| (*table, 0)).collect();
        for shard in SHARDS {
            let opened = self.cluster.router.administer(&ShardId::new(shard).unwrap()).await.unwrap();
            let mut tx = opened.control_transaction().await.unwrap();
            for (table, count) in &mut counts {
                let sql = format!("SELECT count(*) FROM {}", opened.dialect().own_table(table));
                *count += tx.run(Statement::new(sql)).await.unwrap().one().unwrap().int(0).unwrap();
            }
            tx.rollback().await.unwrap();
        }
        counts
    }

    /// Deletes blobs with their snapshots, and shows that nothing is left of them, neither rows nor objects.
    pub async fn expect_nothing_left(&self, names: &[&str]) {
        for name in names {
            // Uncommitted blocks alone cannot be deleted; what replaces them can.
            self.put(name, b"").await;
            let include = polyshard_store_blob::DeleteSnapshots::Include;
            self.store.delete_blob(&blob(name), None, include, unconditional()).await.unwrap();
        }
        let mut left = Vec::new();
        for _ in 0..20 {
            self.store.sweep().await;
            left = self.rows().await;
            left.retain(|(_, count)| *count > 0);
            if left.is_empty() && self.memory.count() == 0 {
                return;
            }
        }
        panic!("left: {left:?} and {} objects", self.memory.count());
    }

    pub async fn close(self) {
        self.cluster.close().await;
    }
}

/// A transaction beside those of the store.
pub struct Beside {
    tx: polyshard_engine::Transaction,
    dialect: polyshard_engine::Dialect,
}

impl Beside {
    /// Runs a statement, in which `{blob_item}` and the like are names of tables.
    pub async fn run(&mut self, sql: &str) -> polyshard_engine::Rows {
        let named = TABLES.iter().fold(sql.to_owned(), |sql, table| {
            sql.replace(&format!("{{{table}}}"), &self.dialect.own_table(table))
        });
        self.tx.run(Statement::new(named)).await.unwrap()
    }

    pub async fn commit(self) {
        self.tx.commit().await.unwrap();
    }
}

async fn collect(bytes: polyshard_store_blob::ByteStream) -> Vec<u8> {
    let pieces: Vec<Bytes> = bytes.try_collect().await.unwrap();
    pieces.concat()
}
