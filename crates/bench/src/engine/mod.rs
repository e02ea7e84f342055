//! Point reads and durable single-row writes of many callers: the engine beside the raw library, in turns.

mod ours;
mod raw_postgres;
mod raw_sqlite;
mod work;

use std::path::Path;

use polyshard_testkit::postgres::{PgOptions, PgServer};
use tokio::runtime::Runtime;

use self::ours::Ours;
use self::work::{Operation, Store};
use crate::measure::Spread;
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// Callers at once.
const CALLERS: usize = 128;
/// Rows there are before, over all shards: they fit into memory, so that the library is measured and not the disk.
const ROWS: i64 = 100_000;
/// Bytes of a row's body.
const BODY_BYTES: usize = 200;
/// Databases of the one PostgreSQL server.
const POSTGRES_DATABASES: usize = 2;

/// All tables of engines.
pub fn run(effort: Effort) -> Result<Vec<Table>, Failure> {
    let rounds = effort.pick(15, 3);
    let seconds = effort.pick(0.5, 0.3);
    let title = format!(
        "Operations a second of {CALLERS} callers, median of {rounds} rounds of {seconds} s each in turn"
    );
    let mut table = Table::new(
        "engine",
        title,
        &["engine", "shards", "operation", "raw", "ours", "ratio", "ratios from", "to", "goal"],
    );
    for shards in [1, 2, 4, 8] {
        let directory = tempfile::tempdir()?;
        let runtime = Runtime::new()?;
        let ours = runtime.block_on(Ours::sqlite(&sub(directory.path(), "ours")?, shards))?;
        let raw = raw_sqlite::Raw::open(&sub(directory.path(), "raw")?, shards)?;
        compare(&runtime, &mut table, "sqlite", shards, (&raw, &ours), rounds, seconds)?;
        runtime.block_on(ours.close());
        // Its threads have the raw library's read connections.
        drop(runtime);
        raw.close();
    }
    // Enough memory and log that the server does not checkpoint in one side's round for the other's writes.
    let settings = [("shared_buffers", "256MB"), ("max_wal_size", "8GB"), ("checkpoint_timeout", "1h")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let server = PgServer::start_with(PgOptions { settings, ..PgOptions::default() });
    let names =
        |side: &str| (1..=POSTGRES_DATABASES).map(|number| format!("{side}{number}")).collect::<Vec<_>>();
    for name in names("ours").iter().chain(&names("raw")) {
        fill_postgres(&server, name);
    }
    let runtime = Runtime::new()?;
    let ours = runtime.block_on(Ours::postgres(&server, &names("ours")))?;
    let raw = runtime.block_on(raw_postgres::Raw::connect(&server, &names("raw")))?;
    compare(&runtime, &mut table, "postgres", POSTGRES_DATABASES, (&raw, &ours), rounds, seconds)?;
    runtime.block_on(ours.close());
    runtime.block_on(raw.close());
    Ok(vec![table])
}

/// Runs every operation on both, in turn, the first in one round being the second in the next.
fn compare(
    runtime: &Runtime,
    table: &mut Table,
    engine: &str,
    shards: usize,
    (raw, ours): (&impl Store, &Ours),
    rounds: usize,
    seconds: f64,
) -> Result<(), Failure> {
    for operation in [Operation::Read, Operation::Insert, Operation::Update] {
        let mut counts = (Vec::new(), Vec::new());
        // The first round warms up.
        for round in 0..=rounds {
            let of_raw = || runtime.block_on(work::round(raw, shards, operation, round, seconds));
            let of_ours = || runtime.block_on(work::round(ours, shards, operation, round, seconds));
            let (raw, ours) = if round % 2 == 0 {
                let raw = of_raw()?;
                (raw, of_ours()?)
            } else {
                let ours = of_ours()?;
                (of_raw()?, ours)
            };
            if round > 0 {
                counts.0.push(raw);
                counts.1.push(ours);
            }
        }
        let ratios = counts.0.iter().zip(&counts.1).map(|(raw, ours)| ours / raw).collect();
        let (raw, ours, ratio) = (Spread::of(counts.0), Spread::of(counts.1), Spread::of(ratios));
        table.row([
            engine.into(),
            Cell::Number(shards as f64, 0),
            operation.name().into(),
            Cell::Number(raw.median, 0),
            Cell::Number(ours.median, 0),
            ratio.median.into(),
            ratio.min.into(),
            ratio.max.into(),
            "0.80".into(),
        ]);
    }
    Ok(())
}

fn fill_postgres(server: &PgServer, database: &str) {
    server.create_database(database);
    server.execute(
        database,
        &format!(
            "CREATE TABLE item (id bigint PRIMARY KEY, body bytea NOT NULL); \
             INSERT INTO item SELECT n, convert_to(repeat('x', {BODY_BYTES}), 'UTF8') \
             FROM generate_series(0, {ROWS} - 1) n; ANALYZE item"
        ),
    );
}

fn sub(directory: &Path, name: &str) -> Result<std::path::PathBuf, Failure> {
    let path = directory.join(name);
    std::fs::create_dir(&path)?;
    Ok(path)
}
