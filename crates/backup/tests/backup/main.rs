//! Backups of real clusters on both engines, taken under writes, restored, and damaged on purpose. E1.

mod cluster;
mod restoring;
mod taking;
