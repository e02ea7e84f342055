//! The SQL door as its clients see it, before PostgreSQL shards.

// A test is one future, and the compiler looks through all that it is made of.
#![recursion_limit = "256"]

#[path = "../support/mod.rs"]
mod support;

mod broken;
mod copying;
mod cursors;
mod embedded;
mod engines;
mod first;
mod first_steps;
mod growing;
mod lane;
mod moving;
mod never_wrong;
mod point;
mod prepared;
mod programs;
mod rights;
mod savepoints;
mod series;
mod session;
mod several;
mod several_eventual;
mod several_recorded;
mod sharing;
mod short;
mod stopped;
mod strangers;
mod tables;
mod transactions;
mod types;
mod wire;
