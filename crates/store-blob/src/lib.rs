//! Containers of blobs: the Azure Blob Storage protocol over the router.
//!
//! A container is a dataset of the store `blob`, called `account/name`. A blob is a row, placed by its account,
//! container and name; its bytes lie in the row if they are few, otherwise in immutable objects that the row names, or
//! in rows of blocks, appends and pages.

// A request is one future, and the compiler looks through all that it is made of.
#![recursion_limit = "256"]

mod batch;
mod body;
mod carrier;
mod checksum;
mod command;
mod conditions;
mod handler;
mod lease_rules;
mod model;
mod name;
mod objects;
mod options;
mod reply;
mod schema;
mod store;
mod tag_filter;

pub use checksum::{Digests, Wanted};
pub use conditions::{ConditionError, Conditions, Etags};
pub use handler::BlobService;
pub use model::*;
pub use name::{BlobName, ContainerName, NameError};
pub use objects::{
    Boxed, ByteStream, Folder, ObjectBackend, ObjectError, ObjectId, ObjectWriter, Objects, Variables,
};
pub use schema::schema;
pub use store::{
    BlobOptions, BlobProperties, BlobPropertiesPatch, BlobStore, DEFAULT_MAP, DeleteRetention, Rates, STORE,
    StoreError, Website, default_rule,
};
pub use tag_filter::{TagFilter, TagUse};
