//! Operations of several steps that survive their process: procedures and the runner that carries them out, archiving.

pub mod archiving;
pub mod procedure;
mod runner;
pub mod stretch;

pub use procedure::{Columns, Made, Procedure, TakeIn, Task};
pub use runner::{Procedures, RunnerOptions};
