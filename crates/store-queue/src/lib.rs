//! Queues of messages: the Azure Queue Storage protocol over the router.
//!
//! A queue is a dataset of the store `queue`, called `account/name`; all its messages have one placement, so that each
//! queue is on one shard. A message that was got is invisible until a time; its pop receipt, new with every get and
//! update, is what may change or delete it.

// A request is one future, and the compiler looks through all that it is made of.
#![recursion_limit = "256"]

mod calls;
mod command;
mod handler;
mod message;
mod name;
mod reply;
mod schema;
mod store;

/// Putting messages inside a caller's own transaction.
pub mod transact {
    pub use crate::store::transact::{Enqueue, Removal, enqueue, enqueue_statements};
}

pub use handler::QueueService;
pub use message::{
    MESSAGE_BYTES_MAX, MESSAGES_PER_GET_MAX, Message, MessageId, NewMessage, PopReceipt, TTL_DEFAULT_MS, Ttl,
    VISIBILITY_MS_MAX,
};
pub use name::{NameError, QueueName};
pub use schema::schema;
pub use store::{
    Created, DEFAULT_MAP, Listed, Metadata, Page, Policy, QueueStore, STORE, StoreError, Updated,
    default_rule,
};
