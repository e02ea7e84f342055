//! Where load should be, with the real program: isolation, rules, plans, drains, offline moves, adoption, the checker.

mod adopt;
mod auto;
mod check;
#[path = "../e2e/fleet.rs"]
#[allow(dead_code, reason = "these scenarios use a part of it")]
mod fleet;
mod follow;
mod isolate;
mod left;
mod offline;
mod rates;
mod reader;
mod rebalance;
mod repair;
mod sizes;
mod sql;
#[path = "../e2e/support.rs"]
#[allow(dead_code, reason = "these scenarios use a part of it")]
mod support;
