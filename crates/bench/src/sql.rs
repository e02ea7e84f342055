//! The SQL door: point reads beside PgBouncer and beside no pooler at all, fan-out beside the shards' own time, COPY
//! beside COPY.

mod across;
mod copy;
mod lookups;
pub mod world;

use crate::report::Table;
use crate::{Effort, Failure};

/// Everything of the SQL door.
pub fn run(effort: Effort) -> Result<Vec<Table>, Failure> {
    let world = world::World::start(effort)?;
    let mut tables = lookups::run(&world, effort)?;
    tables.push(across::run(&world, effort)?);
    tables.push(copy::run(&world, effort)?);
    Ok(tables)
}
