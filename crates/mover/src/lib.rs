//! Moves: plans, and the carrying of rows from one shard to another while traffic runs. Has no branch per store.
//!
//! The order of a move's steps is the catalog's saga, its fence is that of every change of a map. This crate does the
//! tasks in between ([`polyshard_catalog::CarryTask`]): it copies, catches up, verifies and cleans, for the datasets
//! that shards know, whatever store they are of.

mod apply;
mod carry;
mod clean;
mod copy;
mod ending;
mod error;
mod misplaced;
mod pace;
mod preflight;
mod register;
mod repair;
mod session;
mod table;
mod taken;
mod verify;
mod whole;

pub use carry::Mover;
pub use error::MoveError;
pub use misplaced::Misplaced;
pub use pace::{BUSY_SHARE, BUSY_SHARE_MIN, Traffic};
pub use preflight::Load;
pub use repair::{OldRows, Repair, Repaired};
