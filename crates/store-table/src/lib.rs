//! Tables of entities: the Azure Table Storage protocol over the router.
//!
//! A table is a dataset of the store `table`, called `account/name` in lower case; its entities are placed by their
//! partition key, so that each partition is on one shard. An entity's timestamp grows with every change and is its
//! ETag. Keys, and all strings in comparisons, are ordered by their UTF-8 bytes, which is the order of code points.

// A request is one future, and the compiler looks through all that it is made of.
#![recursion_limit = "256"]

mod batch;
mod calls;
mod changeset;
mod command;
mod continuation;
mod edm;
mod entity;
mod etag;
mod filter;
mod handler;
mod json;
mod name;
mod odata;
mod path;
mod reply;
mod schema;
mod store;
mod stored;
#[cfg(test)]
mod tests;

/// Changing entities inside a caller's own transaction.
pub mod transact {
    pub use crate::etag::etag;
    pub use crate::store::transact::{
        EntityChange, EntityRead, change_entity, read_properties, upsert_entity,
    };
}

pub use edm::{EdmType, EdmValue, Relation, Scalar};
pub use entity::{
    ENTITY_BYTES_MAX, Entity, EntityKey, InputError, KEY_BYTES_MAX, PROPERTIES_MAX, PROPERTY_BYTES_MAX,
    PROPERTY_NAME_CHARS_MAX, PartitionKey, Properties, RowKey,
};
pub use etag::IfMatch;
pub use filter::{COMPARISONS_MAX, Filter, FilterError};
pub use handler::TableService;
pub use name::{NameError, TableName};
pub use schema::schema;
pub use store::{
    CHANGES_MAX, Change, ChangeKind, DEFAULT_MAP, Listed, PAGE_ROWS_MAX, Page, Policy, Query, STORE,
    StoreError, TableStore, default_rule,
};
