//! Where a statement goes: one shard, several, all, or none.
//!
//! Every occurrence of a sharded table in a statement gets the set of keys that its contributing rows can have: rows
//! with other keys could be taken away without changing the answer. If all those keys are on one shard, so is the
//! statement. `analyse` finds the sets as far as the text tells; `Analysis::route` adds the parameters and the maps.

mod analysis;
mod array;
mod block;
mod build;
mod builder;
mod catalog;
mod cte;
mod decide;
mod describe;
mod formula;
mod from;
mod graph;
mod insert;
mod literal;
mod lock;
mod mention;
mod predicate;
mod query;
mod rekey;
mod scope;
mod unnest;
mod value;
mod write;

use std::collections::BTreeSet;

use polyshard_map::{Key, KeyRange, Map, MapName, ShardId};

pub use analysis::{Analysis, Called, analyse};
pub use catalog::{is_describing, sets_jit_alone};
pub use lock::ReferenceLock;

use crate::schema::{Schema, TableName};

/// What a statement is read against.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The tables, views and functions.
    pub schema: &'a Schema,
    /// Where unqualified names are looked for, in order.
    pub search_path: &'a [String],
    /// Whether a write that names no key is an error.
    pub strict: bool,
}

/// The maps of one moment.
pub trait Maps {
    /// A map by its name.
    fn map(&self, name: &MapName) -> Option<&Map>;
}

/// Where a statement goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// It touches no table of the user's: any shard will do.
    Anywhere,
    /// It reads reference tables alone: any shard that is up to date.
    ReferenceRead,
    /// It writes reference tables alone: all shards, through the journal.
    ReferenceWrite,
    /// It touches local tables of this shard, and reference tables.
    Local(ShardId),
    /// All rows it can touch are on this shard: it goes there as it is.
    One {
        /// The shard.
        shard: ShardId,
        /// The keys that rows must have to matter, by map.
        keys: Vec<(MapName, Vec<Key>)>,
        /// Where rows must be placed to matter, for tables that are not bound to single keys.
        ranges: Vec<(MapName, Vec<KeyRange>)>,
    },
    /// No row of a sharded table can matter (a key that is NULL, or two keys at once): any shard gives the answer.
    Nowhere {
        /// The maps of the tables.
        maps: Vec<MapName>,
    },
    /// Rows of several shards matter. A write that goes here can be done by each shard for its own rows, as it is.
    Many {
        /// The shards.
        shards: BTreeSet<ShardId>,
        /// Where rows must be placed to matter, by map.
        ranges: Vec<(MapName, Vec<KeyRange>)>,
    },
    /// An INSERT of several rows, cut by key.
    Split(Vec<Part>),
    /// A change that every shard gets alike.
    Everywhere,
    /// An UPDATE that gives rows a key whose place is on another shard.
    Rekey(Box<Rekey>),
}

/// An UPDATE that gives rows of one shard a key of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekey {
    /// The table.
    pub table: TableName,
    /// Its map.
    pub map: MapName,
    /// Where the rows are.
    pub from: ShardId,
    /// The keys that they may have.
    pub keys: Vec<Key>,
    /// Where they come to be.
    pub to: ShardId,
    /// Their new key.
    pub key: Key,
}

/// One shard's part of an INSERT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The shard.
    pub shard: ShardId,
    /// The keys of its rows, by map.
    pub keys: Vec<(MapName, Vec<Key>)>,
    /// Which rows of the VALUES it has, from 0.
    pub rows: Vec<usize>,
    /// The statement with these rows alone; parameters keep their numbers.
    pub text: String,
}
