//! Tiny questions to all shards, beside the same question to one shard through the door and to one plain database.

use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use tokio_postgres::Client;

use super::across::connect;
use super::world::{SHARDS, World};
use crate::measure::Spread;
use crate::report::Table;
use crate::{Effort, Failure};

/// Rows of the table over all shards.
const ROWS: u64 = 400;
/// A table of one shard's size on one shard.
const ONE: &str = "small_one";

const QUESTIONS: &[(&str, &str)] = &[
    ("count", "SELECT count(*) FROM small"),
    ("ten rows of a kind, sorted", "SELECT tenant, note FROM small WHERE kind = 3 ORDER BY note LIMIT 10"),
    ("rows of a kind", "SELECT tenant, note FROM small WHERE kind = 3"),
    ("group, sorted", "SELECT kind, count(*), avg(tenant) FROM small GROUP BY kind ORDER BY kind"),
];

/// Microseconds of each question. Rounds in turn.
pub fn run(world: &World, effort: Effort) -> Result<Table, Failure> {
    let rounds = effort.pick(1000, 200);
    let ddl = "CREATE TABLE small (tenant bigint PRIMARY KEY, kind int NOT NULL, note text NOT NULL)";
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("small");
    let mut lines = String::new();
    for row in 0..ROWS {
        writeln!(lines, "{row}\t{}\tnote {}", row % 20, row * 7919 % 1000)?;
    }
    fs::write(&file, &lines)?;
    let (plain, door) = (world.plain(), world.sharded());
    for place in [&plain, &door] {
        place.psql(ddl)?;
        place.psql("CREATE INDEX ON small (kind)")?;
    }
    door.psql("SELECT polyshard.shard_table('small', 'tenants', 'tenant')")?;
    // As many rows as a shard has of the other one, on one shard: a question to them passes the door as it is.
    door.psql(&ddl.replace("small", ONE))?;
    door.psql(&format!("CREATE INDEX ON {ONE} (kind)"))?;
    door.psql(&format!("SELECT polyshard.local_table('{ONE}', 's1')"))?;
    for place in [&plain, &door] {
        place.psql(&format!("\\copy small FROM '{}'", file.display()))?;
    }
    fs::write(&file, lines.lines().step_by(SHARDS).flat_map(|line| [line, "\n"]).collect::<String>())?;
    door.psql(&format!("\\copy {ONE} FROM '{}'", file.display()))?;
    plain.psql("VACUUM ANALYZE small")?;
    for shard in 1..=SHARDS {
        world.shard(shard).psql("VACUUM ANALYZE")?;
    }
    let title = format!("Tiny questions to {SHARDS} shards, µs, median of {rounds}");
    let columns = &[
        "question",
        "one plain database",
        "one shard through the door",
        "a round trip through the door",
        "Polyshard, all shards",
        "goal: 2 × one shard + a round trip",
        "of the goal",
    ];
    let mut table = Table::new("sql-small", title, columns);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (plain, door) = (connect(&plain).await?, connect(&door).await?);
        for (name, sql) in QUESTIONS {
            let of_one = sql.replace("small", ONE);
            let mut figures: [Vec<f64>; 4] = Default::default();
            // The first ones are not counted: caches fill, and statements are prepared.
            for round in 0..rounds + 10 {
                let took = [
                    us(&plain, sql).await?,
                    us(&door, &of_one).await?,
                    us(&door, "SELECT 1").await?,
                    us(&door, sql).await?,
                ];
                if round < 10 {
                    continue;
                }
                for (figures, took) in figures.iter_mut().zip(took) {
                    figures.push(took);
                }
            }
            let [plain, one, trip, all] = figures.map(|figures| Spread::of(figures).median);
            let goal = 2.0 * one + trip;
            table.row([
                (*name).into(),
                plain.into(),
                one.into(),
                trip.into(),
                all.into(),
                goal.into(),
                (all / goal).into(),
            ]);
        }
        Ok::<(), Failure>(())
    })?;
    Ok(table)
}

async fn us(client: &Client, sql: &str) -> Result<f64, Failure> {
    let start = Instant::now();
    client.simple_query(sql).await?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}
