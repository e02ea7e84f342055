//! COPY of many rows through the program to all shards, beside COPY straight into one database.
//!
//! The peer is the same table: with the index by which a moving range's rows are found, which sharded tables have. COPY
//! into a table without it stands beside for what the index costs.

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use super::world::{Place, SHARDS, World, children_us, cpu_us};
use crate::measure::Spread;
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// How long a session may take to end.
const SESSION_END_S: f64 = 1.0;

/// Rows a second, and rows for each second that a core worked.
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
    let file = file.display().to_string();
    // What finds the rows of a range when it moves: the shards' tables have it, a plain one has not.
    let index = world.shard(1).psql(
        "SELECT indexdef FROM pg_indexes WHERE tablename = 'copied' AND indexname = 'copied_polyshard_key'",
    )?;
    let (mut direct, mut indexed, mut through) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        direct.push(copy(world, &plain, &file, rows)?);
        plain.psql("TRUNCATE copied")?;
        through.push(copy(world, &door, &file, rows)?);
        for shard in 1..=SHARDS {
            world.shard(shard).psql("TRUNCATE copied")?;
        }
        plain.psql(&index)?;
        indexed.push(copy(world, &plain, &file, rows)?);
        plain.psql("DROP INDEX copied_polyshard_key; TRUNCATE copied")?;
    }
    let title = format!("COPY of {rows} rows by psql, median of {rounds}");
    let mut table = Table::new(
        "sql-copy",
        title,
        &[
            "",
            "one database, the same table and index",
            "Polyshard, 4 shards",
            "ratio",
            "goal",
            "one database without the index",
            "ratio to that",
        ],
    );
    type Figure = fn(&Load) -> f64;
    let figures: [(&str, Figure, Cell); 2] = [
        ("rows a second", |load| load.rows_a_second, Cell::None),
        ("rows a second of a core", |load| load.rows_a_core, "0.9".into()),
    ];
    for (name, figure, goal) in figures {
        let median = |loads: &[Load]| Spread::of(loads.iter().map(figure).collect()).median;
        let ratio = |loads: &[Load]| {
            let ratios = through.iter().zip(loads).map(|(ours, theirs)| figure(ours) / figure(theirs));
            Spread::of(ratios.collect()).median
        };
        table.row([
            name.into(),
            median(&indexed).into(),
            median(&through).into(),
            ratio(&indexed).into(),
            goal,
            median(&direct).into(),
            ratio(&direct).into(),
        ]);
    }
    let door_ns = Spread::of(through.iter().map(|load| load.door_us * 1000.0 / rows as f64).collect()).median;
    let (none, name) = (|| Cell::None, "the door's own ns a row");
    table.row([name.into(), none(), door_ns.into(), none(), none(), none(), none()]);
    Ok(table)
}

/// What one COPY took.
struct Load {
    rows_a_second: f64,
    /// For each second that a core worked for it: in psql, the door and PostgreSQL together.
    rows_a_core: f64,
    door_us: f64,
}

fn copy(world: &World, place: &Place, file: &str, rows: u64) -> Result<Load, Failure> {
    let (server, sessions) = world.server_cpu_us()?;
    let (psql, door) = (children_us()?, cpu_us(world.door.id())?);
    let start = Instant::now();
    place.psql(&format!("\\copy copied FROM '{file}'"))?;
    let took = start.elapsed().as_secs_f64();
    let door_us = cpu_us(world.door.id())? - door;
    let mut server_after = world.server_cpu_us()?;
    // A session is counted once PostgreSQL has taken note of its end; those of the door stay.
    while server_after.1 > sessions && start.elapsed().as_secs_f64() < took + SESSION_END_S {
        std::thread::sleep(Duration::from_millis(10));
        server_after = world.server_cpu_us()?;
    }
    let cores_s = (server_after.0 - server + children_us()? - psql + door_us) / 1e6;
    Ok(Load { rows_a_second: rows as f64 / took, rows_a_core: rows as f64 / cores_s, door_us })
}
