//! What other stores do inside a client's transaction, called as functions of the schema `polyshard` (H2).
//!
//! Stores know nothing of each other. One that takes part says which key it is about and gives statements, one after
//! the other, which the door runs on the client's own session; the server brings the stores and the door together.

use std::future::Future;
use std::pin::Pin;

use polyshard_engine::{Dialect, Rows, Statement};
use polyshard_map::{Key, MapName};
use polyshard_router::{Access, RouterError};
use polyshard_shard::Dataset;
use polyshard_sql::SqlError;
use polyshard_store::Store;

use crate::reply;

/// A function that a store offers.
#[derive(Debug, Clone, Copy)]
pub struct StoreFunction {
    /// Its name in the schema `polyshard`.
    pub name: &'static str,
    /// Its parameters in order.
    pub parameters: &'static [&'static str],
    /// How many of them must be given; the others may be left out, or be NULL.
    pub required: usize,
}

/// The stores beside the door.
pub trait Stores: Send + Sync {
    /// The functions that they offer.
    fn functions(&self) -> &'static [StoreFunction];

    /// The store that a function is of, and the table or queue that its arguments name, as rights name it.
    fn concerned(&self, function: &str, arguments: &[Option<String>]) -> (&'static Store, String);

    /// Checks and places what a function is to do. There is an argument for each parameter.
    fn enlist<'a>(&'a self, function: &'a str, arguments: Vec<Option<String>>) -> Enlisting<'a>;
}

/// A call that is being looked at.
pub type Enlisting<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Enlisted>, Refusal>> + Send + 'a>>;

/// Why a store does not take part.
#[derive(Debug)]
pub enum Refusal {
    /// In the client's terms.
    Sql(SqlError),
    /// The router's answer.
    Router(RouterError),
    /// The store's, in the terms of all stores.
    Store(polyshard_store::Error),
}

impl From<SqlError> for Refusal {
    fn from(error: SqlError) -> Refusal {
        Refusal::Sql(error)
    }
}

impl From<Refusal> for SqlError {
    fn from(refusal: Refusal) -> SqlError {
        match refusal {
            Refusal::Sql(error) => error,
            Refusal::Router(error) => reply::of_router(&error),
            Refusal::Store(error) => reply::of_store(&error),
        }
    }
}

/// What a store is to do in one transaction.
pub trait Enlisted: Send + Sync {
    /// The map that places it.
    fn map(&self) -> &MapName;
    /// The key in that map: the transaction must be on the shard that has it.
    fn key(&self) -> &Key;
    /// Whether it reads or writes.
    fn access(&self) -> Access;
    /// What a shard must know before the first row is written there.
    fn dataset(&self, dialect: Dialect) -> Dataset;
    /// What is to be run next, given the answer to what was run last; or what to answer the client.
    fn step(&mut self, dialect: Dialect, answer: Option<&Rows>) -> Result<Step, SqlError>;
}

/// What follows in a call.
#[derive(Debug)]
pub enum Step {
    /// Run this, and come back with its rows.
    Run(Statement),
    /// It is done, with this answer.
    Done(Option<String>),
}
