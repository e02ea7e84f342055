//! Backups of everything at one moment, and their restoration: taken while requests go on, verified, never half there.
//!
//! A backup is a folder with a copy of the catalog and of each shard, and a [`Manifest`] with the checksum of each.
//! It gets its name when it is whole; before, it is called `….partial` and nobody takes it for one. Restoring goes the
//! same way: a data folder gets its name when everything in it was compared with the manifest.
//!
//! All copies are of one moment: the router lets writes end and no new ones begin, every database is held at that
//! moment, and writes go on while it is copied.

mod dump;
mod error;
mod files;
mod manifest;
mod moment;
mod restore;
mod take;

pub use error::BackupError;
pub use manifest::{FORMAT, MANIFEST, Manifest, Part, ShardPart};
pub use restore::{Restore, check};
pub use take::{Clock, Progress, Request, Taken, take};
