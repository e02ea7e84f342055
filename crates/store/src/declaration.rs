//! What a store declares about itself: one static value that everything else is made from.

use std::fmt;
use std::sync::Arc;

use polyshard_catalog::{KeyPart, KeyRule, MapScheme};
use polyshard_engine::Dialect;
use polyshard_shard::{Carrier, Dataset, StoreSchema};
use serde::{Deserialize, Serialize};

use crate::calls::Function;
use crate::datasets::DatasetName;
use crate::kit::Kit;
use crate::options::{Kind, OptionSpec, OptionValues};
use crate::start::{Configured, Endpoint, Family, StartError, Started};

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
    /// The protocol family whose accounts its clients come in with, if it has one.
    pub family: Option<&'static Family>,
    /// Its tables on every shard.
    pub schema: Option<fn() -> StoreSchema>,
    /// Those of them that have rows of its datasets, with the columns `dataset` and `placement`; named as
    /// [`Dialect::own_table`] knows them. The first one never changes.
    pub tables: &'static [&'static str],
    /// The datasets that it keeps as records of the catalog.
    pub datasets: Option<Datasets>,
    /// Where an earlier program kept the settings of an owner: they are read there until they are changed.
    pub former_settings: Option<FormerSettings>,
    /// Where it is spoken to.
    pub endpoints: &'static [Endpoint],
    /// Its options beside those of its endpoints; their section is its id.
    pub options: &'static [OptionSpec],
    /// Opens what it keeps outside the databases of shards: for backups, restorations and archives.
    pub carrier: Option<OpenCarrier>,
    /// What can be called inside a client's SQL transaction.
    pub functions: &'static [Function],
    /// Starts it in a process. One without is started by whoever has the list of stores.
    pub start: Option<fn(Kit) -> Result<Started, StartError>>,
}

/// How a store opens what it keeps outside the databases of shards.
pub type OpenCarrier = fn(&Configured) -> Result<Arc<dyn Carrier>, StartError>;

/// The datasets of a store.
#[derive(Debug, Clone, Copy)]
pub struct Datasets {
    /// What one is called: "queue".
    pub noun: &'static str,
    /// The attribute of an item that its key is derived from, unless a binding says otherwise.
    pub attribute: &'static str,
    /// All attributes that a key can be derived from, that one among them.
    pub attributes: &'static [&'static str],
    /// The attribute that is the dataset's own name, if there is one: all items of a dataset that is placed by it have
    /// one key.
    pub name_attribute: Option<&'static str>,
    /// The columns that hold attributes of items, by which the key of a row is told.
    pub key_columns: &'static [KeyColumn],
    /// Checks the name of a dataset of an owner; answers what the catalog calls it.
    pub parse: fn(owner: &str, name: &str) -> Result<DatasetName, NameError>,
    /// The map of datasets that are not bound to another one. It is created for the first of them.
    pub map: DefaultMap,
}

/// A column of a store's table that holds an attribute of its items.
#[derive(Debug, Clone, Copy)]
pub struct KeyColumn {
    /// The table, as [`Dialect::own_table`] knows it.
    pub table: &'static str,
    /// The attribute.
    pub attribute: &'static str,
    /// The column.
    pub column: &'static str,
}

impl KeyColumn {
    /// Whether it tells the keys of what a shard has in a table, by this rule.
    pub fn is_of(&self, dataset: &Dataset, rule: &KeyRule) -> bool {
        let is_table = |dialect: Dialect| dialect.own_table(self.table) == dataset.table;
        self.attribute == rule.attribute && (is_table(Dialect::Postgres) || is_table(Dialect::Sqlite))
    }
}

/// The map that a store's datasets are placed by, unless they are bound to another one.
#[derive(Debug, Clone, Copy)]
pub struct DefaultMap {
    /// Its name.
    pub name: &'static str,
    /// How it is created.
    pub scheme: MapScheme,
}

impl DefaultMap {
    /// Spread by the hash of a text over all shards that are online.
    pub const fn hash_of_text(name: &'static str) -> DefaultMap {
        DefaultMap { name, scheme: MapScheme::HashOfText }
    }

    /// In the order of texts: one range on one shard, to be split when it grows.
    pub const fn range_of_text(name: &'static str) -> DefaultMap {
        DefaultMap { name, scheme: MapScheme::RangeOfText }
    }
}

/// A name that no dataset of a store can have; says why not and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NameError(pub String);

impl NameError {
    /// In the words of the store's own error.
    pub fn of(error: impl fmt::Display) -> NameError {
        NameError(error.to_string())
    }
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
        let (formerly, tables): (&[&str], &[&str]) = (&[], &[]);
        Store {
            id,
            title,
            formerly,
            ignores_case: false,
            family,
            schema,
            tables,
            datasets,
            former_settings,
            endpoints: &[],
            options: &[],
            carrier: None,
            functions: &[],
            start: None,
        }
    }

    /// Those who own its datasets, such as accounts: the first one is meant where none is named.
    pub fn owners(&self, values: &OptionValues) -> Vec<String> {
        self.family.map_or_else(Vec::new, |family| (family.owners)(values))
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

    /// The protocol families of the stores.
    pub fn families(self) -> Vec<&'static Family> {
        let mut families: Vec<&'static Family> = Vec::new();
        for family in self.0.iter().filter_map(|store| store.family) {
            if families.iter().all(|known| known.id != family.id) {
                families.push(family);
            }
        }
        families
    }

    /// The endpoints of the stores of a protocol family.
    pub fn endpoints_of(self, family: &'static Family) -> Vec<&'static str> {
        let of = |store: &&&'static Store| store.family.is_some_and(|its| its.id == family.id);
        let endpoints = self.0.iter().filter(of).flat_map(|store| store.endpoints);
        endpoints.map(|endpoint| endpoint.name).collect()
    }

    /// All options that are declared: of families, endpoints and stores. The texts of those of endpoints are made here
    /// and kept for as long as the process lives: call it once.
    pub fn options(self) -> Vec<OptionSpec> {
        let mut options: Vec<OptionSpec> = Vec::new();
        options.extend(self.families().into_iter().flat_map(|family| family.options));
        for store in self.0 {
            options.extend(store.endpoints.iter().flat_map(options_of));
            options.extend(store.options);
        }
        options
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

/// The options that every endpoint has.
fn options_of(endpoint: &Endpoint) -> [OptionSpec; 2] {
    let Endpoint { name, about, port, .. } = endpoint;
    let listen = format!("Address of the {name} endpoint ({about}); port 0 takes a free port.");
    let open = format!("Whether the {name} endpoint is open.");
    [
        OptionSpec::new(
            format!("{name}.listen").leak(),
            Kind::Address,
            format!("127.0.0.1:{port}").leak(),
            listen.leak(),
        ),
        OptionSpec::new(format!("{name}.open").leak(), Kind::Bool, "true", open.leak()),
    ]
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
