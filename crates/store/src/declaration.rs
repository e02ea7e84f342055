//! What a store declares about itself: one static value that everything else is made from.

use std::fmt;

use polyshard_catalog::{KeyPart, KeyRule};
use polyshard_shard::StoreSchema;
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
    /// The protocol family whose accounts its clients come in with, if it has one: "azure".
    pub family: Option<&'static str>,
    /// Its tables on every shard.
    pub schema: Option<fn() -> StoreSchema>,
    /// The datasets that it keeps as records of the catalog.
    pub datasets: Option<Datasets>,
    /// Where an earlier program kept the settings of an owner: they are read there until they are changed.
    pub former_settings: Option<FormerSettings>,
}

/// The datasets of a store.
#[derive(Debug, Clone, Copy)]
pub struct Datasets {
    /// What one is called: "queue".
    pub noun: &'static str,
    /// The attribute of an item that its key is derived from, unless a binding says otherwise.
    pub attribute: &'static str,
    /// Whether that attribute is the dataset's own name, so that all its items have one key.
    pub is_key_of_name: bool,
    /// The map of datasets that are not bound to another one. It is created for the first of them.
    pub map: &'static str,
}

impl Datasets {
    /// How a dataset that is not bound otherwise is placed.
    pub fn rule(&self) -> KeyRule {
        KeyRule { attribute: self.attribute.to_owned(), part: KeyPart::Whole }
    }
}

/// A record of the catalog in which an earlier program kept the settings of an owner.
#[derive(Debug, Clone, Copy)]
pub struct FormerSettings {
    /// Under which store.
    pub store: &'static str,
    /// Under which name.
    pub name: fn(owner: &str) -> String,
}

impl Store {
    /// A store with an id and a title, and nothing else yet.
    pub const fn new(id: &'static str, title: &'static str) -> Store {
        let (family, schema, datasets, former_settings) = (None, None, None, None);
        Store { id, title, formerly: &[], ignores_case: false, family, schema, datasets, former_settings }
    }

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

    /// The stores of a protocol family.
    pub fn of_family(self, family: &'static str) -> impl Iterator<Item = &'static Store> {
        self.0.iter().copied().filter(move |store| store.family == Some(family))
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
