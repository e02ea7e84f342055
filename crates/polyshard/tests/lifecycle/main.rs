//! Data that grows old and shards that grow full, with the real program: archives, rules by age, spill-over.

mod archive;
#[path = "../moves/azure.rs"]
#[allow(dead_code, reason = "these scenarios use a part of it")]
mod azure;
mod engines;
#[path = "../e2e/fleet.rs"]
#[allow(dead_code, reason = "these scenarios use a part of it")]
mod fleet;
mod killed;
mod known;
mod others;
mod placing;
mod rule;
mod spill;
#[path = "../balance/sql.rs"]
#[allow(dead_code, reason = "these scenarios use a part of it")]
mod sql;
#[path = "../e2e/support.rs"]
#[allow(dead_code, reason = "these scenarios use a part of it")]
mod support;
