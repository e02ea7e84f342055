//! Containers of JSON documents: the Cosmos DB protocol over the router.
//!
//! A database is a dataset `account/database` without rows, a container a dataset `account/database/container`. The
//! documents of one logical partition are on one shard; those of a container without a partition key all are.

// A request is one future, and the compiler looks through all that it is made of.
#![recursion_limit = "256"]

mod auth;
mod charge;
mod document;
mod epk;
mod failure;
mod handler;
mod http;
mod name;
mod options;
mod partition_key;
mod patch;
mod rid;
mod schema;
mod store;
mod token;

pub use name::{NameError, dataset_name};
pub use schema::schema;
pub use store::{DEFAULT_MAP, DocumentStore, STORE};
