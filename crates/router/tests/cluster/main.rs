//! Catalog, shards and router together on real databases: what operators and requests see, also when things break.

mod cluster;
mod crashes;
mod place;
mod shards;
