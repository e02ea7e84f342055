//! Backups of everything at one moment, and their restoration: taken while requests go on, verified, never half there.
//!
//! Backups are kept in a [`Depot`]: a folder, or a prefix in an object store. They share a pool of chunks, each stored
//! once under the checksum of its content, so that a backup costs only what is new. A backup itself is a folder of
//! lists of chunks, one for each database, and a [`Manifest`] with the checksum of each list. The manifest is written
//! last: without one it is no backup.
//!
//! All copies are of one moment: every router lets writes end and no new ones begin, every database is held at that
//! moment, and writes go on while it is copied.

mod archive;
mod carried;
mod chunker;
mod copy;
mod csv;
mod depot;
mod dump;
mod error;
mod files;
mod keep;
mod lines;
mod manifest;
mod marks;
mod moment;
mod notation;
mod pool;
mod progress;
mod restore;
mod rows;
mod shardlet;
mod take;
mod unchanged;

pub use archive::{Archive, Deleted, Deleting, FOUND_MAX, With};
pub use carried::Carriers;
pub use depot::{Depot, Item, Location, Variables};
pub use error::BackupError;
pub use keep::{Dry, Found, Pruned, Retention, list, prune, prune_until, verify};
pub use manifest::{
    ArchivedRange, FORMAT, MANIFEST, Manifest, MapPart, ObjectsPart, Part, ShardPart, Shardlet,
};
pub use marks::is_pruned;
pub use progress::{CANCELLED, Progress};
pub use restore::{Restore, restore_shard};
pub use rows::Extent;
pub use shardlet::{Present, RestoreShardlet, RunName};
pub use take::{Clock, Probe, Request, What, take};
pub use unchanged::Memory;
