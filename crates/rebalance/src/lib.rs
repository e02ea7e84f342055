//! What is made of several changes and moves: procedures that survive their process, rules that placement must
//! heed, plans that even out load, and what the checker looks into.

pub mod aging;
pub mod archiving;
pub mod forecast;
pub mod heat;
pub mod link;
pub mod measure;
pub mod plan;
pub mod procedure;
pub mod rule;
mod runner;
pub mod stretch;

pub use heat::{Heat, KeyHeat};
pub use link::Link;
pub use procedure::{Columns, Made, Procedure, TakeIn, Task};
pub use rule::Rule;
pub use runner::{Procedures, RunnerOptions};
