//! COPY of many rows through the program to all shards, beside COPY straight into one database.

use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use super::world::{Place, SHARDS, World};
use crate::measure::Spread;
use crate::report::Table;
use crate::{Effort, Failure};

/// Rows a second.
pub fn run(world: &World, effort: Effort) -> Result<Table, Failure> {
    let rows: u64 = effort.pick(500_000, 50_000);
    let rounds = effort.pick(5, 2);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rows");
    let mut lines = String::new();
    for id in 0..rows {
        writeln!(lines, "{}\t{id}\t{}\t{}", id % world.tenants, id % 97, id % 10_007)?;
    }
    fs::write(&file, lines)?;
    let ddl = "CREATE TABLE copied (tenant bigint NOT NULL, id bigint NOT NULL, kind int NOT NULL, \
         amount bigint NOT NULL, PRIMARY KEY (tenant, id))";
    let (plain, door) = (world.plain(), world.sharded());
    plain.psql(ddl)?;
    door.psql(ddl)?;
    door.psql("SELECT polyshard.shard_table('copied', 'tenants', 'tenant')")?;
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        direct.push(copy(&plain, &file.display().to_string(), rows)?);
        plain.psql("TRUNCATE copied")?;
        through.push(copy(&door, &file.display().to_string(), rows)?);
        for shard in 1..=SHARDS {
            world.shard(shard).psql("TRUNCATE copied")?;
        }
    }
    let (direct, through) = (Spread::of(direct).median, Spread::of(through).median);
    let title = format!("COPY of {rows} rows, rows a second, median of {rounds}");
    let mut table = Table::new("sql-copy", title, &["COPY into one database", "through Polyshard", "ratio"]);
    table.row([direct.into(), through.into(), (through / direct).into()]);
    Ok(table)
}

fn copy(place: &Place, file: &str, rows: u64) -> Result<f64, Failure> {
    let start = Instant::now();
    place.psql(&format!("\\copy copied FROM '{file}'"))?;
    Ok(rows as f64 / start.elapsed().as_secs_f64())
}
