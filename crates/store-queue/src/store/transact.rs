//! Putting a message inside a caller's own transaction on a shard, with SQL rows and entities of the same
//! shardlet (H2).
//!
//! The caller holds a ticket for the key that [`Enqueue::key`] names, has let the shard know of the queue
//! ([`Enqueue::dataset`]), and runs either [`enqueue`] on a transaction of the engine, or the statements of
//! [`enqueue_statements`] on a session of its own. Nobody sees the message before it commits; its time of insertion,
//! and so its place among the others, is that of [`QueueStore::enlist`].

use std::sync::Arc;

use polyshard_catalog::DatasetRecord;
use polyshard_engine::{Dialect, Expect, Statement, Transaction};
use polyshard_map::{Key, MapName};
use polyshard_router::descriptor;
use polyshard_shard::Dataset;

use super::messages::broken;
use super::statements::texts;
use super::{Home, QueueStore, StoreError};
use crate::message::{MESSAGE_BYTES_MAX, Message, NewMessage, VISIBILITY_MS_MAX};
use crate::name::QueueName;
use crate::schema::MESSAGES;

/// A message to be put: checked, placed, and given its id and times.
pub struct Enqueue {
    home: Home,
    message: Message,
}

impl Enqueue {
    /// The map that places its queue.
    pub fn map(&self) -> &MapName {
        &self.home.record.map
    }

    /// The queue's key there: the transaction must be on the shard that owns it.
    pub fn key(&self) -> &Key {
        &self.home.key[0]
    }

    /// The placement of the message's row.
    pub fn placement(&self) -> &[u8] {
        &self.home.placement
    }

    /// The queue, as the catalog knows it.
    pub fn record(&self) -> &Arc<DatasetRecord> {
        &self.home.record
    }

    /// What the shard must know of its queue before the first message: `Router::bind`.
    pub fn dataset(&self, dialect: Dialect) -> Dataset {
        descriptor(&self.home.record, dialect.own_table(MESSAGES))
    }

    /// The message as it will be.
    pub fn message(&self) -> &Message {
        &self.message
    }
}

/// The statements that put the message.
pub fn enqueue_statements(dialect: Dialect, enqueue: &Enqueue) -> Vec<Statement> {
    let Enqueue { home, message } = enqueue;
    let put = Statement::new(texts(dialect).put.clone())
        .bind(home.dataset())
        .bind(home.placement.as_slice())
        .bind(message.id.as_bytes())
        .bind(message.visible_ms)
        .bind(message.expires_ms)
        .bind(message.inserted_ms)
        .bind(message.receipt.nonce())
        .bind(message.body.as_bytes());
    vec![put.expect(Expect::Rows(1))]
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
            return Err(StoreError::InvisibleTooLong);
        }
        let home = self.home(queue).await?;
        let message = self.message(new)?;
        // Should it be committed, it may be the first of its queue to expire.
        self.expires_at(home.dataset, message.expires_ms);
        Ok(Enqueue { home, message })
    }
}
