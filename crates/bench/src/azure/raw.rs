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

/// A file of raw SQLite that entities are put into, each in a commit of its own.
pub struct Raw {
    connection: Connection,
    number: u64,
    _folder: TempDir,
}

impl Raw {
    /// A new file with the table of entities as shards have it, but for the list of partitions.
    pub fn new() -> Result<Raw, Failure> {
        let folder = TempDir::with_prefix("polyshard-raw-")?;
        let connection = Connection::open(folder.path().join("raw.db"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        connection.execute_batch(
            "CREATE TABLE entity (dataset INTEGER NOT NULL, pk TEXT NOT NULL, rk TEXT NOT NULL, \
             placement BLOB NOT NULL, ts INTEGER NOT NULL, props TEXT NOT NULL, \
             PRIMARY KEY (dataset, placement, pk, rk)) WITHOUT ROWID, STRICT",
        )?;
        Ok(Raw { connection, number: 0, _folder: folder })
    }

    /// Commits one entity after the other for a while: how many a second.
    pub fn round(&mut self, length: Duration) -> Result<f64, Failure> {
        rate(length, || self.insert())
    }

    fn insert(&mut self) -> Result<(), Failure> {
        self.number += 1;
        let number = self.number;
        let partition = (number * 7_919) % PARTITIONS;
        let placement = (partition as u32).to_be_bytes();
        let properties = format!("{{\"n\":{number},\"text\":\"{TEXT}\"}}");
        let sql = "INSERT INTO entity VALUES (1, ?1, ?2, ?3, ?4, ?5)";
        self.connection.prepare_cached(sql)?.execute(params![
            format!("p{partition:04}"),
            format!("{number:012}"),
            placement,
            number as i64,
            properties
        ])?;
        Ok(())
    }
}

/// What one writer has who waits for each write, beside what the disk and raw SQLite allow in the same rounds.
pub struct Alone {
    table: Table,
}

impl Alone {
    /// Measures how long the disk takes to sync what a commit writes.
    pub fn new(effort: Effort) -> Result<Alone, Failure> {
        let folder = TempDir::with_prefix("polyshard-raw-")?;
        let length = Duration::from_millis(effort.pick(1000, 300));
        let mut table = Table::new(
            "azure_raw",
            "One connection that waits for each answer, beside what the disk allows",
            &["what", "commits in one", "a second", "raw SQLite allows", "of that"],
        );
        let file = File::create_new(folder.path().join("longer"))?;
        let mut at = 0;
        let longer = rate(length, || {
            at += COMMIT_BYTES as u64;
            sync(&file, at)
        })?;
        let file = File::create_new(folder.path().join("same"))?;
        sync(&file, 0)?;
        let same = rate(length, || sync(&file, 0))?;
        for (what, rate) in [
            ("sync of a file that grows by two pages", longer),
            ("sync of a file of which two pages are overwritten", same),
        ] {
            table.row([what.into(), Cell::None, Cell::number(rate), Cell::None, Cell::None]);
        }
        Ok(Alone { table })
    }

    /// Adds an operation of so many commits: its rates, and those of raw SQLite's commits in the same rounds.
    pub fn add(&mut self, what: &str, commits: usize, ours: &[f64], raw: &[f64]) {
        let allowed: Vec<f64> = raw.iter().map(|rate| rate / commits as f64).collect();
        let part =
            Spread::of(ours.iter().zip(&allowed).map(|(ours, allowed)| ours / allowed).collect()).median;
        self.table.row([
            what.into(),
            Cell::Number(commits as f64, 0),
            Cell::number(Spread::of(ours.to_vec()).median),
            Cell::number(Spread::of(allowed).median),
            Cell::number(part),
        ]);
    }

    /// The table of all of them.
    pub fn table(self) -> Table {
        self.table
    }
}

fn sync(file: &File, at: u64) -> Result<(), Failure> {
    file.write_all_at(&[7; COMMIT_BYTES], at)?;
    Ok(file.sync_data()?)
}

/// How often something can be done in a second.
fn rate(length: Duration, mut work: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let began = Instant::now();
    let mut count = 0u32;
    while began.elapsed() < length {
        work()?;
        count += 1;
    }
    Ok(f64::from(count) / began.elapsed().as_secs_f64())
}
