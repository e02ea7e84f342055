//! Evaluation of plans: expressions, sub-queries, aggregates.

mod aggregate;
mod context;
mod expression;
mod group;
mod like;
mod operators;
mod select;

pub(crate) use aggregate::AggregateKind;
pub use context::UserFunctions;
pub(crate) use context::{Context, Settings, too_much_state};
pub(crate) use expression::{evaluate, follow};
pub(crate) use group::Groups;
pub(crate) use like::literal_prefix;
pub(crate) use operators::equal;
pub(crate) use select::{Flow, rows};
