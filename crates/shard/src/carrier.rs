//! What a store keeps outside the databases of shards, such as the bytes of blobs: how a backup, a restoration and an
//! archive treat it without knowing the store.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use polyshard_engine::{Dialect, Statement, Value};
use uuid::Uuid;

/// An object's content, piece by piece.
pub type Pieces = BoxStream<'static, Result<Bytes, CarrierError>>;

/// Why an object could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CarrierError {
    /// A row cannot be read.
    #[error("a row of {table} names an object in a way that cannot be read: {why}")]
    Damaged {
        /// The row's table.
        table: &'static str,
        /// What is wrong.
        why: String,
    },
    /// A row names it, and it is not there.
    #[error("object {0} is missing")]
    Missing(String),
    /// The place where objects are kept does not answer, or is full.
    #[error("object {key}: {why}")]
    Failed {
        /// Which.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// The place where objects are kept belongs to somebody else.
    #[error("{0}")]
    NotOurs(String),
}

/// A column whose values name objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedIn {
    /// The table, as `Dialect::own_table` knows it.
    pub table: &'static str,
    /// The column; its values may be null.
    pub column: &'static str,
    /// The column with the number of a row's dataset.
    pub dataset: &'static str,
    /// The columns that tell where a row belongs: their values are handed to [`Carrier::condemn`].
    pub place: &'static [&'static str],
}

/// An object that the rows of a transaction named, and that no row names after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Unnamed {
    /// Its key.
    pub key: String,
    /// The values of [`NamedIn::place`] in the row that named it.
    pub place: Vec<Value>,
}

/// The objects of one store. An object has a key, belongs to one shardlet, and is never changed: it is written before
/// a row names it. [`Carrier::condemn`] keeps it for a time after no row names it any more, so that a backup of an
/// earlier moment finds it; [`Carrier::delete`] does not.
pub trait Carrier: Send + Sync {
    /// The id of the store.
    fn store(&self) -> &'static str;

    /// The columns that name objects.
    fn named_in(&self) -> &'static [NamedIn];

    /// The columns that name objects which are being written, or which the store is to delete. No backup has those, and
    /// when such a row is removed, its object must be condemned or deleted.
    fn pending_in(&self) -> &'static [NamedIn] {
        &[]
    }

    /// Adds the keys that a value of such a column names, in a row of a dataset.
    fn keys(
        &self,
        column: &NamedIn,
        dataset: i64,
        value: &Value,
        found: &mut Vec<String>,
    ) -> Result<(), CarrierError>;

    /// Statements that have the store delete objects later, unless a row names them then. They run in the transaction
    /// that removes the rows which named the objects.
    fn condemn(&self, dialect: Dialect, objects: &[Unnamed]) -> Result<Vec<Statement>, CarrierError>;

    /// Reads an object.
    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Pieces, CarrierError>>;

    /// Writes an object of so many bytes durably. Nobody sees it before all of it is written.
    fn write<'a>(
        &'a self,
        key: &'a str,
        length: u64,
        pieces: Pieces,
    ) -> BoxFuture<'a, Result<(), CarrierError>>;

    /// The bytes of an object, if it is there.
    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, CarrierError>>;

    /// Deletes an object at once; one that is gone is fine.
    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), CarrierError>>;

    /// Fails if the place of the objects belongs to another cluster than this one.
    fn check_place(&self, _cluster: Uuid) -> BoxFuture<'_, Result<(), CarrierError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Takes the place for a cluster that is being restored. It fails if the place belongs to anybody already, even to
    /// this cluster: the one that was backed up may be running.
    fn begin_restore(&self, _cluster: Uuid) -> BoxFuture<'_, Result<(), CarrierError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Hands the place over to the restored cluster, when all objects are there.
    fn end_restore(&self, _cluster: Uuid) -> BoxFuture<'_, Result<(), CarrierError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
