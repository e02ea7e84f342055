//! Objects in memory, of which a test can make one stop when all its bytes are there: as if the process were killed
//! before the row that names it is written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use polyshard_store_blob::{Boxed, ByteStream, ObjectBackend, ObjectError, ObjectId, ObjectWriter};
use tokio::sync::Notify;

/// Bytes that a read answers with at once.
const PIECE_BYTES: usize = 700;
const MARK: &str = "polyshard-objects";

#[derive(Default)]
pub struct Memory {
    objects: Mutex<BTreeMap<String, Bytes>>,
    /// Whose place it is; it lies beside the objects under this path.
    mark: Mutex<Option<Bytes>>,
    /// The next object is stored, and then its upload never goes on.
    pub hangs: AtomicBool,
    /// Told when that has happened.
    pub hung: Notify,
}

struct Writer {
    memory: Arc<Memory>,
    path: String,
    bytes: Vec<u8>,
}

impl Memory {
    pub fn count(&self) -> usize {
        self.objects.lock().unwrap().len()
    }

    fn get(&self, path: &str) -> Option<Bytes> {
        match path {
            MARK => self.mark.lock().unwrap().clone(),
            _ => self.objects.lock().unwrap().get(path).cloned(),
        }
    }
}

/// The backend of a test's memory.
pub struct Backend(pub Arc<Memory>);

impl ObjectBackend for Backend {
    fn create<'a>(&'a self, path: &'a str, _length: u64) -> Boxed<'a, Box<dyn ObjectWriter>> {
        Box::pin(async move {
            let writer = Writer { memory: self.0.clone(), path: path.to_owned(), bytes: Vec::new() };
            Ok(Box::new(writer) as Box<dyn ObjectWriter>)
        })
    }

    fn read<'a>(&'a self, path: &'a str, range: Range<u64>) -> Boxed<'a, ByteStream> {
        Box::pin(async move {
            let object = self.0.get(path).ok_or_else(|| ObjectError::Gone(path.to_owned()))?;
            let bytes = object.slice(range.start as usize..range.end as usize);
            let pieces: Vec<_> = bytes.chunks(PIECE_BYTES).map(Bytes::copy_from_slice).map(Ok).collect();
            Ok(stream::iter(pieces).boxed())
        })
    }

    fn delete<'a>(&'a self, path: &'a str) -> Boxed<'a, ()> {
        Box::pin(async move {
            self.0.objects.lock().unwrap().remove(path);
            Ok(())
        })
    }

    fn length<'a>(&'a self, path: &'a str) -> Boxed<'a, Option<u64>> {
        Box::pin(async move { Ok(self.0.get(path).map(|bytes| bytes.len() as u64)) })
    }

    fn list<'a>(&'a self, dataset: u64) -> Boxed<'a, BoxStream<'static, Result<ObjectId, ObjectError>>> {
        Box::pin(async move {
            let prefix = format!("{dataset}/");
            let objects = self.0.objects.lock().unwrap();
            let ids = objects.keys().filter(|path| path.starts_with(&prefix));
            let ids = ids.map(|path| Ok(ObjectId::parse(path.rsplit('/').next().unwrap()).unwrap()));
            Ok(stream::iter(ids.collect::<Vec<_>>()).boxed())
        })
    }

    fn datasets(&self) -> Boxed<'_, Vec<u64>> {
        Box::pin(async move {
            let objects = self.0.objects.lock().unwrap();
            let mut datasets: Vec<u64> =
                objects.keys().map(|path| path.split('/').next().unwrap().parse().unwrap()).collect();
            datasets.dedup();
            Ok(datasets)
        })
    }

    fn delete_all<'a>(&'a self, dataset: u64) -> Boxed<'a, ()> {
        Box::pin(async move {
            let prefix = format!("{dataset}/");
            self.0.objects.lock().unwrap().retain(|path, _| !path.starts_with(&prefix));
            Ok(())
        })
    }

    fn mark<'a>(&'a self, new: &'a str) -> Boxed<'a, String> {
        Box::pin(async move {
            let mut mark = self.0.mark.lock().unwrap();
            let mark = mark.get_or_insert_with(|| Bytes::copy_from_slice(new.as_bytes()));
            Ok(String::from_utf8(mark.to_vec()).unwrap())
        })
    }
}

impl ObjectWriter for Writer {
    fn write(&mut self, bytes: Bytes) -> Boxed<'_, ()> {
        self.bytes.extend_from_slice(&bytes);
        Box::pin(async { Ok(()) })
    }

    fn finish(self: Box<Self>) -> Boxed<'static, ()> {
        Box::pin(async move {
            self.memory.objects.lock().unwrap().insert(self.path, self.bytes.into());
            if self.memory.hangs.swap(false, Ordering::SeqCst) {
                self.memory.hung.notify_one();
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    }
}
