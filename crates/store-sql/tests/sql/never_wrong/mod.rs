//! Answers that were once wrong: each is now PostgreSQL's, or a refusal. H3, C4.

mod grown;
mod locks;
mod parameters;
mod prepared;
mod renamed;
mod returning;
mod settings;
mod sorted;
mod volatile;

use crate::support::Cluster;

/// Both engines, with the same tables.
pub async fn both() -> [Cluster; 2] {
    [Cluster::with_tables().await, crate::embedded::with_tables().await]
}
