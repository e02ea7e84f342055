//! Putting a message, and deleting one that was got, inside a caller's own transaction on a shard, with SQL rows and
//! entities of the same shardlet (H2).
//!
//! The caller holds a ticket for the key that [`Enqueue::key`] names, has let the shard know of the queue
//! ([`Enqueue::dataset`]), and runs either [`enqueue`] on a transaction of the engine, or the statements of
//! [`enqueue_statements`] on a session of its own. Nobody sees the message before it commits; its time of insertion,
//! and so its place among the others, is that of [`QueueStore::enlist`]. With a [`Removal`] it is the same: what was
//! done for a message is committed together with its end, or it comes back.

use std::sync::Arc;

use polyshard_azure_storage::xml::is_xml_char;
use polyshard_catalog::DatasetRecord;
use polyshard_engine::{Dialect, Expect, Rows, Statement, Transaction};
use polyshard_map::{Key, MapName};
use polyshard_shard::Dataset;
use polyshard_store::{Placed, descriptor};

use super::messages::{broken, reason};
use super::statements::texts;
use super::{QueueStore, StoreError};
use crate::message::{MESSAGE_BYTES_MAX, Message, MessageId, NewMessage, PopReceipt, VISIBILITY_MS_MAX};
use crate::name::QueueName;
use crate::schema::MESSAGES;

/// A message to be put: checked, placed, and given its id and times.
pub struct Enqueue {
    place: Placed,
    message: Message,
}

impl Enqueue {
    /// The map that places its queue.
    pub fn map(&self) -> &MapName {
        &self.place.record.map
    }

    /// The queue's key there: the transaction must be on the shard that owns it.
    pub fn key(&self) -> &Key {
        &self.place.key[0]
    }

    /// The placement of the message's row.
    pub fn placement(&self) -> &[u8] {
        &self.place.placement
    }

    /// The queue, as the catalog knows it.
    pub fn record(&self) -> &Arc<DatasetRecord> {
        &self.place.record
    }

    /// What the shard must know of its queue before the first message: `Router::bind`.
    pub fn dataset(&self, dialect: Dialect) -> Dataset {
        descriptor(&self.place.record, dialect.own_table(MESSAGES))
    }

    /// The message as it will be.
    pub fn message(&self) -> &Message {
        &self.message
    }
}

/// The statements that put the message.
pub fn enqueue_statements(dialect: Dialect, enqueue: &Enqueue) -> Vec<Statement> {
    let Enqueue { place, message } = enqueue;
    let put = Statement::new(texts(dialect).put.clone())
        .bind(place.dataset())
        .bind(place.placement.as_slice())
        .bind(message.id.as_bytes())
        .bind(message.visible_ms)
        .bind(message.expires_ms)
        .bind(message.inserted_ms)
        .bind(message.receipt.nonce())
        .bind(message.body.as_bytes());
    vec![put.expect(Expect::Rows(1))]
}

/// A message to be deleted by whom got it last.
pub struct Removal {
    place: Placed,
    id: MessageId,
    receipt: PopReceipt,
    now_ms: i64,
}

impl Removal {
    /// The map that places its queue.
    pub fn map(&self) -> &MapName {
        &self.place.record.map
    }

    /// The queue's key there: the transaction must be on the shard that owns it.
    pub fn key(&self) -> &Key {
        &self.place.key[0]
    }

    /// What the shard knows of its queue.
    pub fn dataset(&self, dialect: Dialect) -> Dataset {
        descriptor(&self.place.record, dialect.own_table(MESSAGES))
    }

    /// Deletes it: one row, if the receipt is its last one.
    pub fn delete(&self, dialect: Dialect) -> Statement {
        self.of_message(texts(dialect).delete.clone()).bind(self.receipt.nonce()).bind(self.now_ms)
    }

    /// Asks why nothing was deleted.
    pub fn state(&self, dialect: Dialect) -> Statement {
        self.of_message(texts(dialect).state.clone())
    }

    /// Why nothing was deleted, as the answer to [`Removal::state`] says.
    pub fn why_not(&self, state: &Rows) -> StoreError {
        match reason(state, self.receipt, self.now_ms) {
            // Got and given back within a moment: the holder of this receipt has it no more.
            Ok(StoreError::InvisibleTooLong) => StoreError::ReceiptMismatch,
            Ok(error) | Err(error) => error,
        }
    }

    fn of_message(&self, text: Arc<str>) -> Statement {
        Statement::new(text)
            .bind(self.place.dataset())
            .bind(self.place.placement.as_slice())
            .bind(self.id.as_bytes())
    }
}

/// Puts the message inside a transaction.
pub async fn enqueue(tx: &mut Transaction, dialect: Dialect, enqueue: &Enqueue) -> Result<(), StoreError> {
    tx.run_all(enqueue_statements(dialect, enqueue)).await.map(drop).map_err(broken)
}

impl QueueStore {
    /// A message for a transaction of the caller's, with this store's clock and randomness.
    pub async fn enlist(&self, queue: &QueueName, new: NewMessage) -> Result<Enqueue, StoreError> {
        if new.body.len() > MESSAGE_BYTES_MAX {
            return Err(StoreError::TooLarge);
        }
        if !(0..=VISIBILITY_MS_MAX).contains(&new.invisible_ms) {
            return Err(StoreError::InvisibleMax);
        }
        // Whoever gets it gets it in XML.
        if !new.body.chars().all(is_xml_char) {
            return Err(StoreError::Unwritable);
        }
        let place = self.place(queue).await?;
        let message = self.message(new)?;
        // Should it be committed, it may be the first of its queue to expire.
        self.expires_at(place.record.id, message.expires_ms);
        Ok(Enqueue { place, message })
    }

    /// The end of a message, for a transaction of the caller's.
    pub async fn enlist_removal(
        &self,
        queue: &QueueName,
        id: MessageId,
        receipt: PopReceipt,
    ) -> Result<Removal, StoreError> {
        let place = self.place(queue).await?;
        Ok(Removal { place, id, receipt, now_ms: self.now_ms() })
    }
}
