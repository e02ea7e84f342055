//! Where statements go: scripts that read as the specification, and random conditions against rows.

mod golden;
mod random;
mod world;
