//! Putting, getting and deleting messages.

use polyshard_engine::{self as engine, Row, Rows};
use polyshard_store::{Error, Placed};

use super::ask::{Kind, Query};
use super::{QueueStore, StoreError};
use crate::message::{Message, MessageId, NewMessage, PopReceipt};
use crate::name::QueueName;

/// Messages removed by one write, so that others' writes are not held up for long.
pub(super) const REMOVE_ROWS_MAX: i64 = 500;
/// Writes of one clear; more is left for the next request, which the service's clients send by themselves.
const CLEAR_WRITES_MAX: usize = 400;

/// Times that a get looks again for messages that came while it waited.
const GET_TRIES_MAX: u32 = 4;

/// What an update did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Updated {
    /// The new pop receipt.
    pub receipt: PopReceipt,
    /// When the message becomes visible, in milliseconds since 1970.
    pub visible_ms: i64,
}

impl QueueStore {
    /// Puts a message at the end of a queue.
    pub async fn put(&self, queue: &QueueName, new: NewMessage) -> Result<Message, StoreError> {
        let place = self.place_request(queue).await?;
        let message = self.message(new)?;
        let insert = Query::new(Kind::Add, |texts| &texts.put, &place)
            .bind(place.placement.clone())
            .bind(message.id.as_bytes())
            .bind(message.visible_ms)
            .bind(message.expires_ms)
            .bind(message.inserted_ms)
            .bind(message.receipt.nonce())
            .bind(message.body.as_bytes());
        self.ask(&place, insert).await?;
        self.expires_at(place.record.id, message.expires_ms);
        Ok(message)
    }

    /// A message as it is put now.
    pub(super) fn message(&self, new: NewMessage) -> Result<Message, StoreError> {
        let now_ms = self.now_ms();
        let message = Message {
            id: self.next_id(),
            inserted_ms: now_ms,
            expires_ms: new.ttl.expires_ms(now_ms),
            visible_ms: now_ms.saturating_add(new.invisible_ms),
            dequeue_count: 0,
            receipt: self.next_receipt(),
            body: new.body,
        };
        match message.visible_ms < message.expires_ms {
            true => Ok(message),
            false => Err(StoreError::InvisibleTooLong),
        }
    }

    /// Gets up to `count` messages, which nobody else sees for a time.
    pub async fn get(
        &self,
        queue: &QueueName,
        count: u32,
        invisible_ms: i64,
    ) -> Result<Vec<Message>, StoreError> {
        let place = self.place_request(queue).await?;
        if self.seems_empty(place.record.id) && self.is_empty_now(&place).await? {
            return Ok(Vec::new());
        }
        let mut tries = 1;
        let rows = loop {
            let now_ms = self.now_ms();
            let rows = self.take(&place, count, now_ms, invisible_ms).await?;
            // While it waited for its turn, others may have taken what it would have got and put what is newer than
            // its look at the clock: that is not an empty queue.
            if !rows.is_empty() || tries >= GET_TRIES_MAX || self.is_empty_now(&place).await? {
                break rows;
            }
            tries += 1;
        };
        self.note_empty(place.record.id, rows.is_empty());
        let mut messages = rows.iter().map(read_due).collect::<Result<Vec<_>, _>>()?;
        messages.sort_by_key(|(due_ms, message)| (*due_ms, message.id));
        Ok(messages.into_iter().map(|(_, message)| message).collect())
    }

    /// Takes up to `count` messages that are visible at a time.
    async fn take(
        &self,
        place: &Placed,
        count: u32,
        now_ms: i64,
        invisible_ms: i64,
    ) -> Result<Rows, StoreError> {
        let ask = match count {
            1 => Query::new(Kind::Change, |texts| &texts.get_one, place),
            _ => Query::new(Kind::Change, |texts| &texts.get, place),
        };
        let mut ask = ask
            .bind(now_ms)
            .bind(now_ms.saturating_add(invisible_ms))
            .bind(self.next_receipt().nonce())
            .bind(place.placement.clone());
        if count != 1 {
            ask = ask.bind(i64::from(count));
        }
        self.ask(place, ask).await
    }

    /// Whether the last one to ask here got nothing. Consumers ask idle queues again and again, which must not cost a
    /// write each time; and a busy queue must not cost a read before each write.
    fn seems_empty(&self, dataset: u64) -> bool {
        self.empty.lock().expect("no panic while held").contains(&dataset)
    }

    fn note_empty(&self, dataset: u64, is_empty: bool) {
        let mut empty = self.empty.lock().expect("no panic while held");
        if is_empty {
            empty.insert(dataset);
        } else {
            empty.remove(&dataset);
        }
    }

    /// Whether there is nothing to get.
    async fn is_empty_now(&self, place: &Placed) -> Result<bool, StoreError> {
        let any = Query::new(Kind::Read, |texts| &texts.any_visible, place).bind(self.now_ms());
        Ok(self.ask(place, any).await?.is_empty())
    }

    /// Shows up to `count` messages that could be got, and leaves them as they are.
    pub async fn peek(&self, queue: &QueueName, count: u32) -> Result<Vec<Message>, StoreError> {
        let place = self.place_request(queue).await?;
        let peek =
            Query::new(Kind::Read, |texts| &texts.peek, &place).bind(self.now_ms()).bind(i64::from(count));
        let rows = self.ask(&place, peek).await?;
        rows.iter().map(|row| read_due(row).map(|(_, message)| message)).collect()
    }

    /// Sets when a message becomes visible, and its text if one is given.
    pub async fn update(
        &self,
        queue: &QueueName,
        id: &MessageId,
        receipt: PopReceipt,
        invisible_ms: i64,
        body: Option<String>,
    ) -> Result<Updated, StoreError> {
        let place = self.place_request(queue).await?;
        let now_ms = self.now_ms();
        let updated =
            Updated { receipt: self.next_receipt(), visible_ms: now_ms.saturating_add(invisible_ms) };
        let update = match &body {
            Some(_) => Query::new(Kind::Change, |texts| &texts.update_body, &place),
            None => Query::new(Kind::Change, |texts| &texts.update, &place),
        };
        let mut update =
            held(update, &place, id, receipt, now_ms).bind(updated.visible_ms).bind(updated.receipt.nonce());
        if let Some(body) = body {
            update = update.bind(body.into_bytes());
        }
        let changed = self.ask(&place, update).await?.affected();
        if changed == 1 { Ok(updated) } else { Err(self.why_not(&place, id, receipt).await?) }
    }

    /// Deletes a message for whom got it last.
    pub async fn delete_message(
        &self,
        queue: &QueueName,
        id: &MessageId,
        receipt: PopReceipt,
    ) -> Result<(), StoreError> {
        let place = self.place_request(queue).await?;
        let delete = Query::new(Kind::Change, |texts| &texts.delete, &place);
        let delete = held(delete, &place, id, receipt, self.now_ms());
        let deleted = self.ask(&place, delete).await?.affected();
        if deleted == 1 { Ok(()) } else { Err(self.why_not(&place, id, receipt).await?) }
    }

    /// Why a message could not be changed with a receipt.
    async fn why_not(
        &self,
        place: &Placed,
        id: &MessageId,
        receipt: PopReceipt,
    ) -> Result<StoreError, StoreError> {
        let state = Query::new(Kind::Read, |texts| &texts.state, place)
            .bind(place.placement.clone())
            .bind(id.as_bytes());
        reason(&self.ask(place, state).await?, receipt, self.now_ms())
    }

    /// Deletes all messages that are in the queue now.
    pub async fn clear(&self, queue: &QueueName) -> Result<(), StoreError> {
        let place = self.place_request(queue).await?;
        // What is put from now on has a greater id and stays.
        let last = self.next_id();
        for _ in 0..CLEAR_WRITES_MAX {
            let clear = Query::new(Kind::Change, |texts| &texts.clear, &place)
                .bind(place.placement.clone())
                .bind(last.as_bytes())
                .bind(REMOVE_ROWS_MAX);
            let removed = self.ask(&place, clear).await?.affected();
            if removed < REMOVE_ROWS_MAX as u64 {
                return Ok(());
            }
        }
        Err(StoreError::Unfinished)
    }

    /// How many messages a queue has, those that nobody sees now among them.
    pub async fn count(&self, queue: &QueueName) -> Result<i64, StoreError> {
        let place = self.place_request(queue).await?;
        let count = Query::new(Kind::Sum, |texts| &texts.count, &place).bind(self.now_ms());
        self.ask(&place, count).await?.one().and_then(|row| row.int(0)).map_err(broken)
    }
}

/// Why a message in this state could not be changed with a receipt.
pub(super) fn reason(state: &Rows, receipt: PopReceipt, now_ms: i64) -> Result<StoreError, StoreError> {
    let Some(row) = state.first() else { return Ok(StoreError::NoSuchMessage) };
    let (stored, expires_ms) = (row.int(0).map_err(broken)?, row.int(1).map_err(broken)?);
    Ok(if expires_ms <= now_ms {
        StoreError::NoSuchMessage
    } else if stored == receipt.nonce() {
        StoreError::InvisibleTooLong
    } else {
        StoreError::ReceiptMismatch
    })
}

/// A statement on one message for the holder of its receipt.
fn held(ask: Query, place: &Placed, id: &MessageId, receipt: PopReceipt, now_ms: i64) -> Query {
    ask.bind(place.placement.clone()).bind(id.as_bytes()).bind(receipt.nonce()).bind(now_ms)
}

/// A message, and when it had become visible before it was got.
fn read_due(row: &Row) -> Result<(i64, Message), StoreError> {
    let int = |index| row.int(index).map_err(broken);
    let id = row.blob(0).ok().and_then(MessageId::from_bytes).ok_or(damaged("message id"))?;
    let body = row.blob(6).map_err(broken)?.to_vec();
    let message = Message {
        id,
        inserted_ms: int(1)?,
        expires_ms: int(2)?,
        visible_ms: int(3)?,
        dequeue_count: int(4)?,
        receipt: PopReceipt::new(int(5)?),
        body: String::from_utf8(body).map_err(|_| damaged("message text"))?,
    };
    Ok((int(7)?, message))
}

pub(super) fn broken(error: engine::Error) -> StoreError {
    StoreError::Kit(error.into())
}

fn damaged(what: &str) -> StoreError {
    Error::damaged(what, "it cannot be decoded").into()
}
