//! Which ranges should move, and why: rules that placement must keep, weights and load as measured, forecasts, plans.
//! Moves nothing itself.

pub mod aging;
pub mod forecast;
pub mod heat;
pub mod measure;
pub mod plan;
pub mod rule;

pub use heat::{Heat, KeyHeat};
pub use rule::Rule;
