//! What is asked of lists of containers and blobs, and of searches by tags, and what they find.

use super::{Blob, Container, Tags};
use crate::name::ContainerName;

/// Containers of an account that are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerQuery {
    /// How their names begin.
    pub prefix: String,
    /// The name to begin with.
    pub marker: Option<String>,
    /// How many at most.
    pub max: usize,
}

/// A part of a list of containers, in the order of names.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerPage {
    /// The containers.
    pub containers: Vec<Container>,
    /// Where the next part begins, if there is more.
    pub next: Option<String>,
}

/// What a list of blobs shows besides the blobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Include {
    /// Snapshots of blobs.
    pub snapshots: bool,
    /// Blobs that have uncommitted blocks only.
    pub uncommitted: bool,
    /// Deleted blobs and snapshots that can be brought back.
    pub deleted: bool,
}

/// Blobs of a container that are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobQuery {
    /// How their names begin.
    pub prefix: String,
    /// Names with this in them after the prefix are shown as one prefix that ends with it.
    pub delimiter: Option<String>,
    /// Where the last page ended, as it said.
    pub marker: Option<String>,
    /// Names before this one are passed over.
    pub start_from: Option<String>,
    /// How many entries at most.
    pub max: usize,
    /// What else is shown.
    pub include: Include,
}

/// An entry of a list of blobs.
#[derive(Debug, Clone, PartialEq)]
pub enum Listed {
    /// All names that begin so.
    Prefix(String),
    /// A blob or snapshot.
    Blob(Box<Blob>),
}

/// A part of a list of blobs, in the order of names and then of snapshots, the blob itself last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BlobPage {
    /// What was found; may be empty even if there is more.
    pub entries: Vec<Listed>,
    /// The marker of the next part, if there is more.
    pub next: Option<String>,
}

/// A blob that has the tags that were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its container's name.
    pub container: String,
    /// Its name.
    pub name: String,
    /// The tags that the filter names.
    pub tags: Tags,
}

/// A part of the blobs that have certain tags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundPage {
    /// The blobs, by container and name; may be empty even if there is more.
    pub blobs: Vec<Found>,
    /// The marker of the next part, if there is more.
    pub next: Option<String>,
}

/// Where tags are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindIn {
    /// In all containers of an account.
    Account(String),
    /// In one container.
    Container(ContainerName),
}
