//! What a store declares about itself: one static value that everything else is made from.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A store, as it describes itself.
#[derive(Debug)]
pub struct Store {
    /// Its id: one spelling in the code, the configuration, rights, datasets, metrics and the command line.
    pub id: &'static str,
    /// What it holds, in the plural: "SQL tables". A sentence can end with it.
    pub title: &'static str,
    /// Ids that were written before; they are read in stored grants and on the command line, and never written.
    pub formerly: &'static [&'static str],
    /// Names of its datasets that differ only in case are the same name.
    pub ignores_case: bool,
}

impl Store {
    /// Whether two names mean the same dataset.
    pub fn is_same_name(&self, one: &str, other: &str) -> bool {
        if self.ignores_case { one.eq_ignore_ascii_case(other) } else { one == other }
    }
}

/// The stores of a program.
#[derive(Debug, Clone, Copy)]
pub struct Stores(pub &'static [&'static Store]);

impl Stores {
    /// The store with this id, or that had it.
    pub fn find(self, id: &str) -> Option<&'static Store> {
        self.0.iter().copied().find(|store| store.id == id || store.formerly.contains(&id))
    }

    /// All ids, in the order of the list.
    pub fn ids(self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|store| store.id)
    }

    /// An id as text, checked against the list and in its present spelling.
    pub fn id(self, text: &str) -> Result<StoreId, UnknownStore> {
        match self.find(text) {
            Some(store) => Ok(StoreId(store.id.to_owned())),
            None => Err(UnknownStore { id: text.to_owned(), known: self.ids().collect() }),
        }
    }
}

/// The id of a store in a stored record. Only [`Stores::find`] says whether this program has that store: another
/// program of the cluster may be newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoreId(String);

impl StoreId {
    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// A text that is the id of no store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no store {id:?}; the stores are {}", known.join(", "))]
pub struct UnknownStore {
    id: String,
    known: Vec<&'static str>,
}
