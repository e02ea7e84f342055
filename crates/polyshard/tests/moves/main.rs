//! Moves of the real program under fire: killed and paused parts, racing callers, and what must be true afterwards.

mod azure;
mod cluster;
mod cutover;
#[path = "../e2e/fleet.rs"]
#[allow(dead_code, reason = "these scenarios use a part of it")]
mod fleet;
mod grow_out_of_sqlite;
mod history;
mod killed;
mod ledger;
mod operator;
mod outside;
mod paused;
mod random;
mod scenario;
mod several;
mod store_callers;
mod stores;
#[path = "../e2e/support.rs"]
#[allow(dead_code, reason = "these scenarios use a part of it")]
mod support;
mod writers;
