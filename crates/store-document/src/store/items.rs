//! Single documents: created, read, replaced, upserted and deleted, each by one statement that guards itself.

use polyshard_engine::{Row, Rows, Value as Parameter};

use super::home::{Key, Step};
use super::{Container, DocumentStore};
use crate::document::{Document, Stamp};
use crate::failure::Failure;
use crate::rid;

/// The condition of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Whatever the document is like.
    None,
    /// It has this ETag.
    Etag(i64),
}

impl Condition {
    /// As statements take it: 0 is none.
    pub(super) fn stored(self) -> i64 {
        match self {
            Condition::None => 0,
            Condition::Etag(etag) => etag,
        }
    }
}

/// A document as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub stamp: Stamp,
    pub body: Vec<u8>,
}

/// What became of a document.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub is_new: bool,
    pub stamp: Stamp,
}

/// Documents removed by one write, so that others' writes are not held up for long.
const REMOVE_ROWS_MAX: i64 = 500;

impl DocumentStore {
    /// What the system adds to a document.
    pub(super) fn stamp(&self, container: &Container, number: i64, etag: i64, ts_ms: i64) -> Stamp {
        let rid = rid::document(container.body.database, container.record.id, number);
        let self_link = format!("{}docs/{rid}/", container.self_link);
        Stamp { rid, self_link, etag, ts_ms }
    }

    pub(super) fn new_number(&self) -> i64 {
        rid::new_document(self.kit.random())
    }

    /// Creates a document that there is not.
    pub(crate) async fn create(
        &self,
        container: &Container,
        key: &Key,
        document: &Document,
    ) -> Result<Written, Failure> {
        let (number, etag) = (self.new_number(), self.new_etag());
        let rows = self.write_one(key, insert(key, document, number, etag)).await?;
        let row = rows.first().ok_or_else(|| Failure::conflict("Entity"))?;
        Ok(Written { is_new: true, stamp: self.stamp(container, row.int(0)?, etag, row.int(1)?) })
    }

    /// Replaces a document, or creates it.
    pub(crate) async fn upsert(
        &self,
        container: &Container,
        key: &Key,
        document: &Document,
        condition: Condition,
    ) -> Result<Written, Failure> {
        let (number, etag) = (self.new_number(), self.new_etag());
        let step = added(key, document, number, etag, |texts| &texts.upsert).bind(condition.stored());
        let rows = self.write_one(key, step).await?;
        let row = rows.first().ok_or_else(Failure::etag)?;
        let found = row.int(0)?;
        Ok(Written { is_new: found == number, stamp: self.stamp(container, found, etag, row.int(1)?) })
    }

    /// Replaces a document that there is.
    pub(crate) async fn replace(
        &self,
        container: &Container,
        key: &Key,
        document: &Document,
        condition: Condition,
    ) -> Result<Written, Failure> {
        let etag = self.new_etag();
        let rows = self.write_one(key, replace(key, document, etag, condition)).await?;
        match rows.first() {
            Some(row) => {
                Ok(Written { is_new: false, stamp: self.stamp(container, row.int(0)?, etag, row.int(1)?) })
            }
            None => Err(self.why_not(key, &document.id).await?),
        }
    }

    /// Deletes a document.
    pub(crate) async fn delete(&self, key: &Key, id: &str, condition: Condition) -> Result<(), Failure> {
        let rows = self.write_one(key, delete(key, id, condition)).await?;
        if rows.is_empty() { Err(self.why_not(key, id).await?) } else { Ok(()) }
    }

    /// Why a statement with a condition found no document.
    async fn why_not(&self, key: &Key, id: &str) -> Result<Failure, Failure> {
        let rows = self.read(key, get(key, id)).await?;
        Ok(if rows.is_empty() { no_item(id) } else { Failure::etag() })
    }

    /// Reads a document.
    pub(crate) async fn get(&self, container: &Container, key: &Key, id: &str) -> Result<Item, Failure> {
        let rows = self.read(key, get(key, id)).await?;
        self.item(container, rows)?.ok_or_else(|| no_item(id))
    }

    pub(super) fn item(&self, container: &Container, rows: Rows) -> Result<Option<Item>, Failure> {
        let Some(row) = rows.into_rows().into_iter().next() else { return Ok(None) };
        let stamp = self.stamp(container, row.int(0)?, row.int(1)?, row.int(2)?);
        Ok(Some(Item { stamp, body: last_blob(row)? }))
    }

    /// Deletes all documents of a partition.
    pub(crate) async fn delete_partition(&self, key: &Key) -> Result<(), Failure> {
        loop {
            let step = Step::new(key, |texts| &texts.delete_partition).bind(REMOVE_ROWS_MAX);
            let removed = self.write_one(key, step).await?.affected();
            if removed < REMOVE_ROWS_MAX as u64 {
                return Ok(());
            }
        }
    }
}

/// There is no such document.
pub(super) fn no_item(id: &str) -> Failure {
    Failure::not_found(format_args!("document {id:?}"))
}

/// The bytes that stand last in a row.
pub(super) fn last_blob(row: Row) -> Result<Vec<u8>, Failure> {
    match row.into_values().pop() {
        Some(Parameter::Blob(body)) => Ok(body),
        _ => Err(Failure::damaged("document", "its body is none")),
    }
}

pub(super) fn get(key: &Key, id: &str) -> Step {
    Step::of(key, id, |texts| &texts.get)
}

fn added(
    key: &Key,
    document: &Document,
    number: i64,
    etag: i64,
    text: fn(&super::statements::Texts) -> &std::sync::Arc<str>,
) -> Step {
    Step::of(key, &document.id, text)
        .bind(key.text.as_str())
        .bind(number)
        .bind(etag)
        .bind(document.ttl)
        .bind(document.body.clone())
        .adding()
}

pub(super) fn insert(key: &Key, document: &Document, number: i64, etag: i64) -> Step {
    added(key, document, number, etag, |texts| &texts.insert)
}

pub(super) fn replace(key: &Key, document: &Document, etag: i64, condition: Condition) -> Step {
    Step::of(key, &document.id, |texts| &texts.replace)
        .bind(etag)
        .bind(document.ttl)
        .bind(document.body.clone())
        .bind(condition.stored())
}

pub(super) fn delete(key: &Key, id: &str, condition: Condition) -> Step {
    Step::of(key, id, |texts| &texts.delete).bind(condition.stored())
}
