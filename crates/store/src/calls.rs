//! What a store does inside a client's SQL transaction (H2): functions that it declares, and calls of these.
//!
//! Stores know nothing of each other. A call says which key it is about and gives statements, one after the other,
//! which whoever has the transaction runs in it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use polyshard_engine::{Dialect, Rows, Statement};
use polyshard_map::{Key, MapName};
use polyshard_router::Access;
use polyshard_shard::Dataset;

use crate::declaration::Store;
use crate::error::{Error, ErrorKind};
use crate::kit::Kit;

/// A function of the schema `polyshard`, whose first argument names a dataset.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    /// Its name there.
    pub name: &'static str,
    /// Its parameters in order; those that may be left out, or be NULL, come last.
    pub parameters: &'static [Parameter],
    /// What it answers.
    pub about: &'static str,
}

/// A parameter of a function.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub kind: ParameterKind,
    /// Whether it must be given.
    pub required: bool,
}

/// What a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterKind {
    /// A text.
    Text,
    /// A whole number of seconds.
    Seconds,
}

impl Parameter {
    /// A text that must be given.
    pub const fn text(name: &'static str) -> Parameter {
        Parameter { name, kind: ParameterKind::Text, required: true }
    }

    /// A number of seconds that may be left out.
    pub const fn optional_seconds(name: &'static str) -> Parameter {
        Parameter { name, kind: ParameterKind::Seconds, required: false }
    }
}

impl Function {
    /// How many of its parameters must be given.
    pub fn required(&self) -> usize {
        self.parameters.iter().filter(|parameter| parameter.required).count()
    }
}

/// A call that is being prepared.
pub type Preparing<'a> = Pin<Box<dyn Future<Output = Result<Box<dyn Call>, Error>> + Send + 'a>>;

/// The functions of one store.
pub trait Calls: Send + Sync {
    /// Checks and places what a function is to do. There is an argument for each parameter.
    fn prepare<'a>(&'a self, function: &'a str, arguments: Vec<Option<String>>) -> Preparing<'a>;
}

/// What a store is to do in one transaction.
pub trait Call: Send + Sync {
    /// The map that places it.
    fn map(&self) -> &MapName;
    /// The key in that map: the transaction must be on the shard that has it.
    fn key(&self) -> &Key;
    /// Whether it reads or writes.
    fn access(&self) -> Access;
    /// What a shard must know before the first row is written there, in this order.
    fn registration(&self, dialect: Dialect) -> Vec<Dataset>;
    /// What is to be run next, given the answer to what was run last; or what to answer the client.
    fn step(&mut self, dialect: Dialect, answer: Option<&Rows>) -> Result<Step, Error>;
}

/// What follows in a call.
#[derive(Debug)]
pub enum Step {
    /// Run this, and come back with its rows.
    Run(Statement),
    /// It is done, with this answer.
    Done(Option<String>),
}

/// The functions of all stores of a process.
#[derive(Clone, Default)]
pub struct AllCalls(Vec<(&'static Store, Arc<dyn Calls>)>);

impl AllCalls {
    /// Of these stores.
    pub fn new(of: Vec<(&'static Store, Arc<dyn Calls>)>) -> AllCalls {
        AllCalls(of)
    }

    /// The function of this name, the store that declares it, and what carries it out.
    pub fn find(&self, name: &str) -> Option<(&'static Store, &'static Function, &Arc<dyn Calls>)> {
        self.0.iter().find_map(|(store, calls)| {
            let function = store.functions.iter().find(|function| function.name == name)?;
            Some((*store, function, calls))
        })
    }
}

impl Kit {
    /// The owner and the name of the dataset that a person names: `name`, which is one of the first owner's, or
    /// `owner/name`.
    pub fn owner_and_name<'a>(&self, text: &'a str) -> Result<(String, &'a str), Error> {
        let owners = self.store().owners(self.options());
        let first = owners.first().map_or("", String::as_str);
        let (owner, name) = text.split_once('/').unwrap_or((first, text));
        if self.store().family.is_none() || owners.iter().any(|known| known == owner) {
            return Ok((owner.to_owned(), name));
        }
        let hint = "Say the name alone for the first account, or account/name.";
        Err(Error {
            kind: ErrorKind::NoDataset,
            message: format!("there is no account {owner:?}"),
            hint: Some(hint.to_owned()),
        })
    }
}
