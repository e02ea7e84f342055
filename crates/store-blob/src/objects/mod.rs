//! The bytes of blobs that do not lie in rows: immutable objects, in a folder or in an object store.

mod folder;
mod remote;

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use uuid::Uuid;

pub use folder::Folder;
pub use remote::{Remote, Variables};

/// Bytes that come in pieces.
pub type ByteStream = BoxStream<'static, Result<Bytes, ObjectError>>;

/// What a backend answers with.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, ObjectError>> + Send + 'a>>;

/// The name of the mark by which a place of objects is told from others, and that says whose it is.
const MARK: &str = "polyshard-objects";
/// Bytes of a mark that are read at most: more is none of ours.
const MARK_BYTES_MAX: u64 = 1024;
/// What a mark ends with until the restoration of a cluster is whole.
const RESTORING: &str = "-restoring";
/// What an operator writes into the mark to give a place to the cluster that looks next.
const TAKE_OVER: &str = "take-over";

/// Characters of an object's id.
const ID_CHARS: usize = 32;

/// The id of an object: random, and never used for another one.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(String);

impl ObjectId {
    /// Of two random numbers.
    pub fn new(high: u64, low: u64) -> ObjectId {
        ObjectId(format!("{high:016x}{low:016x}"))
    }

    /// As it is stored.
    pub fn parse(text: &str) -> Option<ObjectId> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == ID_CHARS && text.bytes().all(is_hex)).then(|| ObjectId(text.to_owned()))
    }

    /// As it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where it is: objects of a dataset are kept together, in folders of a bearable size.
    pub fn path(&self, dataset: u64) -> String {
        format!("{dataset}/{}/{}", &self.0[..2], self.0)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The mark of a place: which cluster it belongs to, and a number that no other mark has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    /// A new one of a cluster.
    pub fn new(cluster: Uuid, high: u64, low: u64) -> Mark {
        Mark(format!("{}-{high:016x}{low:016x}", cluster.simple()))
    }

    /// As it is stored.
    pub fn parse(text: &str) -> Mark {
        Mark(text.trim().to_owned())
    }

    /// As it is stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it names this cluster.
    pub fn is_of(&self, cluster: Uuid) -> bool {
        let rest = self.0.strip_prefix(&cluster.simple().to_string());
        rest.is_some_and(|rest| rest.starts_with('-'))
    }

    /// Whether it names no cluster: a program before the first release wrote such marks.
    pub fn names_nobody(&self) -> bool {
        !self.0.contains('-')
    }

    /// Whether an operator gives the place away.
    pub fn is_given_away(&self) -> bool {
        self.0 == TAKE_OVER
    }

    /// Whether a restoration has begun here that did not end.
    pub fn is_restoring(&self) -> bool {
        self.0.ends_with(RESTORING)
    }

    /// The same until a restoration is whole.
    pub fn restoring(self) -> Mark {
        Mark(format!("{}{RESTORING}", self.0))
    }

    /// The same when it is.
    pub fn restored(self) -> Mark {
        Mark(self.0.strip_suffix(RESTORING).unwrap_or(&self.0).to_owned())
    }
}

/// Why bytes could not be stored or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// It was overwritten or deleted while it was read.
    #[error("the object {0} does not exist")]
    Gone(String),
    /// There is no space left.
    #[error("the object store has no space left: {0}")]
    NoSpace(String),
    /// It cannot be reached or refuses.
    #[error("the object store failed: {0}")]
    Failed(String),
    /// The client's own bytes broke off, or were not as it said.
    #[error("{0}")]
    Client(String),
    /// The rows that say where the bytes are could not be read.
    #[error("{0}")]
    Rows(String),
}

/// Where objects are kept. Tests put in one that fails.
pub trait ObjectBackend: Send + Sync + 'static {
    /// Begins an object that there is not yet. Nobody sees it before it is finished.
    fn create<'a>(&'a self, path: &'a str, length: u64) -> Boxed<'a, Box<dyn ObjectWriter>>;

    /// Reads a range of an object.
    fn read<'a>(&'a self, path: &'a str, range: Range<u64>) -> Boxed<'a, ByteStream>;

    /// Deletes an object; one that is not there is fine.
    fn delete<'a>(&'a self, path: &'a str) -> Boxed<'a, ()>;

    /// The length of an object, if there is one.
    fn length<'a>(&'a self, path: &'a str) -> Boxed<'a, Option<u64>>;

    /// The ids of the objects of a dataset, for the check of bytes without rows.
    fn list<'a>(&'a self, dataset: u64) -> Boxed<'a, BoxStream<'static, Result<ObjectId, ObjectError>>>;

    /// The datasets that there are objects of.
    fn datasets(&self) -> Boxed<'_, Vec<u64>>;

    /// Deletes all objects of a dataset.
    fn delete_all<'a>(&'a self, dataset: u64) -> Boxed<'a, ()>;

    /// The mark of this place, by which it is told from others. One that has none gets this one.
    fn mark<'a>(&'a self, new: &'a str) -> Boxed<'a, String>;
}

/// An object that is being written. Dropped before it is finished, it is never read.
pub trait ObjectWriter: Send {
    /// Adds bytes.
    fn write(&mut self, bytes: Bytes) -> Boxed<'_, ()>;

    /// Makes all of it durable.
    fn finish(self: Box<Self>) -> Boxed<'static, ()>;
}

/// The objects of a cluster.
#[derive(Clone)]
pub struct Objects {
    backend: Arc<dyn ObjectBackend>,
    url: String,
}

impl fmt::Debug for Objects {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Objects").field(&self.url).finish()
    }
}

/// Beginnings of the addresses of object stores.
const SCHEMES: [&str; 5] = ["s3://", "s3a://", "az://", "azure://", "abfs://"];

impl Objects {
    /// Reads an address: a path, `s3://bucket/prefix` or `az://container/prefix`. Secrets come from `variables`.
    pub fn open(url: &str, variables: &Variables) -> Result<Objects, ObjectError> {
        let url = url.trim_end_matches('/');
        let backend: Arc<dyn ObjectBackend> = if SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
            Arc::new(Remote::open(url, variables)?)
        } else if let Some((scheme, _)) = url.split_once("://") {
            let known = "name a folder, s3://bucket/prefix or az://container/prefix";
            return Err(ObjectError::Failed(format!("blobs cannot be kept at {scheme}://; {known}")));
        } else {
            Arc::new(Folder::new(PathBuf::from(url)))
        };
        Ok(Objects { backend, url: url.to_owned() })
    }

    /// Those of a backend.
    pub fn new(backend: Arc<dyn ObjectBackend>, url: impl Into<String>) -> Objects {
        Objects { backend, url: url.into() }
    }

    /// Whether they are in a folder, which only the processes of one machine can share.
    pub fn are_in_folder(&self) -> bool {
        !self.url.contains("://")
    }

    /// Their address; it holds no secret.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Begins an object.
    pub(crate) async fn create(
        &self,
        dataset: u64,
        id: &ObjectId,
        length: u64,
    ) -> Result<Box<dyn ObjectWriter>, ObjectError> {
        self.backend.create(&id.path(dataset), length).await
    }

    /// Reads a range of an object.
    pub(crate) async fn read(
        &self,
        dataset: u64,
        id: &ObjectId,
        range: Range<u64>,
    ) -> Result<ByteStream, ObjectError> {
        self.backend.read(&id.path(dataset), range).await
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, dataset: u64, id: &ObjectId) -> Result<(), ObjectError> {
        self.backend.delete(&id.path(dataset)).await
    }

    /// The length of an object, if there is one.
    pub(crate) async fn length(&self, dataset: u64, id: &ObjectId) -> Result<Option<u64>, ObjectError> {
        self.backend.length(&id.path(dataset)).await
    }

    /// The datasets that there are objects of.
    pub(crate) async fn datasets(&self) -> Result<Vec<u64>, ObjectError> {
        self.backend.datasets().await
    }

    /// Deletes all objects of a dataset.
    pub(crate) async fn delete_all(&self, dataset: u64) -> Result<(), ObjectError> {
        self.backend.delete_all(dataset).await
    }

    /// The mark of this place, if it has one.
    pub(crate) async fn mark(&self) -> Result<Option<Mark>, ObjectError> {
        let Some(length) = self.backend.length(MARK).await? else { return Ok(None) };
        let read = self.backend.read(MARK, 0..length.min(MARK_BYTES_MAX)).await;
        let bytes: Result<Vec<Bytes>, ObjectError> = match read {
            Ok(pieces) => pieces.try_collect().await,
            Err(error) => Err(error),
        };
        match bytes {
            Ok(bytes) => Ok(Some(Mark::parse(&String::from_utf8_lossy(&bytes.concat())))),
            Err(ObjectError::Gone(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Marks this place, unless somebody was quicker; its mark then.
    pub(crate) async fn set_mark(&self, new: &Mark) -> Result<Mark, ObjectError> {
        Ok(Mark::parse(&self.backend.mark(new.as_str()).await?))
    }

    /// Puts another mark in the place of one. If it is interrupted, there is none.
    pub(crate) async fn replace_mark(&self, new: &Mark) -> Result<Mark, ObjectError> {
        self.backend.delete(MARK).await?;
        self.set_mark(new).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_names_its_cluster() {
        let (ours, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mark = Mark::new(ours, 3, 4);
        assert_eq!(mark.as_str(), "00000000000000000000000000000001-00000000000000030000000000000004");
        assert!(mark.is_of(ours) && !mark.is_of(other) && !mark.names_nobody() && !mark.is_restoring());
        let restoring = mark.clone().restoring();
        assert!(restoring.is_of(ours) && restoring.is_restoring() && restoring != mark);
        assert_eq!(restoring.restored(), mark);
        assert!(Mark::parse("take-over\n").is_given_away());
        assert!(!Mark::parse("take-over").is_of(ours) && Mark::parse("0123456789abcdef").names_nobody());
    }
}
