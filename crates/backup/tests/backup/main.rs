//! Backups of clusters in this process, on both engines: one moment, whole or none, only what is new. E1.

mod buckets;
mod carried;
mod cluster;
mod dates;
mod keeping;
mod objects;
mod restoring;
mod shardlets;
mod taking;
