//! The SQL door: point reads beside PgBouncer and beside no pooler at all, fan-out beside the shards' own time, tiny
//! questions to all shards beside those to one, COPY beside COPY.

mod across;
mod copy;
mod lookups;
mod small;
pub mod world;

use crate::report::Table;
use crate::{Effort, Failure};

/// Everything of the SQL door, or only the tables whose name has this in it.
pub fn run(effort: Effort, only: &str) -> Result<Vec<Table>, Failure> {
    let world = world::World::start(effort)?;
    let mut tables = Vec::new();
    if "lookups".contains(only) {
        tables.extend(lookups::run(&world, effort)?);
    }
    type Part = fn(&world::World, Effort) -> Result<Table, Failure>;
    let parts: [(&str, Part); 3] = [("across", across::run), ("small", small::run), ("copy", copy::run)];
    for (_, run) in parts.iter().filter(|(name, _)| name.contains(only)) {
        tables.push(run(&world, effort)?);
    }
    Ok(tables)
}
