//! Where statements go: scripts that read as the specification, and random conditions against rows.

mod deep;
mod generate;
mod golden;
mod lane;
mod random;
mod truth;
mod world;
