//! What the disk and SQLite allow to one writer who waits for each write: nothing durable can be quicker with one
//! connection.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tempfile::TempDir;

use super::work::TEXT;
use crate::measure::Spread;
use crate::report::{Cell, Table};
use crate::{Effort, Failure};

/// What a commit of one entity writes at least: two pages with their headers.
const COMMIT_BYTES: usize = 2 * (4096 + 24);
/// Partitions that entities go to, as in the load.
const PARTITIONS: u64 = 1_000;
/// Log pages after which it is moved into the file, as SQLite does by itself.
const LOG_PAGES: i64 = 1_000;

/// Measures them.
pub fn run(effort: Effort) -> Result<Table, Failure> {
    let folder = TempDir::with_prefix("polyshard-raw-")?;
    let length = Duration::from_millis(effort.pick(2000, 700));
    let file = File::create_new(folder.path().join("longer"))?;
    let longer = rates(effort, length, |number| sync(&file, number * COMMIT_BYTES as u64))?;
    let file = File::create_new(folder.path().join("same"))?;
    sync(&file, 0)?;
    let same = rates(effort, length, |_| sync(&file, 0))?;
    let connection = Connection::open(folder.path().join("raw.db"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    connection.execute_batch(
        "CREATE TABLE entity (dataset INTEGER NOT NULL, pk TEXT NOT NULL, rk TEXT NOT NULL, \
         placement BLOB NOT NULL, ts INTEGER NOT NULL, props TEXT NOT NULL, PRIMARY KEY (dataset, pk, rk)) \
         WITHOUT ROWID, STRICT; CREATE INDEX entity_placement ON entity (dataset, placement)",
    )?;
    let insert = rates(effort, length, |number| {
        let partition = (number * 7_919) % PARTITIONS;
        let placement = (partition as u32).to_be_bytes();
        let properties = format!("{{\"n\":{number},\"text\":\"{TEXT}\"}}");
        let sql = "INSERT INTO entity VALUES (1, ?1, ?2, ?3, ?4, ?5)";
        connection.prepare_cached(sql)?.execute(params![
            format!("p{partition:04}"),
            format!("{number:012}"),
            placement,
            number as i64,
            properties
        ])?;
        Ok(())
    })?;
    let mut table = Table::new(
        "azure_raw",
        "What one writer can have who waits for each write, a second",
        &["what", "median", "from", "to"],
    );
    for (what, rate) in [
        ("sync of a file that grows by two pages", longer),
        ("sync of a file of which two pages are overwritten", same),
        ("raw SQLite: one entity a commit", insert),
    ] {
        table.row([what.into(), Cell::number(rate.median), Cell::number(rate.min), Cell::number(rate.max)]);
    }
    Ok(table)
}

fn sync(file: &File, at: u64) -> Result<(), Failure> {
    file.write_all_at(&[7; COMMIT_BYTES], at)?;
    Ok(file.sync_data()?)
}

/// How often something can be done in a second, in several rounds. It is given a number that is new each time.
fn rates(
    effort: Effort,
    length: Duration,
    mut work: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<Spread, Failure> {
    let mut number = 0;
    let mut rates = Vec::new();
    for _ in 0..effort.pick(5, 2) {
        let (began, first) = (Instant::now(), number);
        while began.elapsed() < length {
            work(number)?;
            number += 1;
        }
        rates.push((number - first) as f64 / began.elapsed().as_secs_f64());
    }
    Ok(Spread::of(rates))
}
