//! What the machine and SQLite allow to one connection that waits for each answer: nobody who sleeps until he is asked,
//! and answers when the write is on the disk, can be quicker.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tempfile::TempDir;

use super::client::look;
use super::work::{Kind, TEXT};
use crate::Failure;
use crate::measure::Spread;
use crate::report::{Cell, Table};

/// What a commit of one entity writes at least: two pages with their headers.
const COMMIT_BYTES: usize = 2 * (4096 + 24);
/// A request for an entity, and its answer, are about as long.
const ASK_BYTES: usize = 350;
const ANSWER_BYTES: usize = 500;
/// Partitions that entities go to, as in the load.
const PARTITIONS: u64 = 1_000;
/// Log pages after which it is moved into the file, as SQLite does by itself.
const LOG_PAGES: i64 = 1_000;

/// A file of raw SQLite that entities are put into, each in a commit of its own.
struct Raw {
    connection: Connection,
    number: u64,
    _folder: TempDir,
}

impl Raw {
    /// A new file with the table of entities as shards have it, but for the list of partitions.
    fn new() -> Result<Raw, Failure> {
        let folder = TempDir::with_prefix("polyshard-raw-")?;
        let connection = Connection::open(folder.path().join("raw.db"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        connection.execute_batch(
            "CREATE TABLE entity (dataset INTEGER NOT NULL, pk TEXT NOT NULL, rk TEXT NOT NULL, \
             placement BLOB NOT NULL, ts INTEGER NOT NULL, props TEXT NOT NULL, \
             PRIMARY KEY (dataset, placement, pk, rk)) STRICT",
        )?;
        Ok(Raw { connection, number: 0, _folder: folder })
    }

    /// Commits one entity after the other for a while: how many a second.
    fn round(&mut self, length: Duration) -> Result<f64, Failure> {
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

/// What was allowed in one round, each a second.
#[derive(Clone, Copy)]
pub struct Allowed {
    /// Questions and answers over loopback, with nothing done for them.
    answers: f64,
    /// Syncs of what a commit writes.
    syncs: f64,
    /// Commits of raw SQLite.
    commits: f64,
}

impl Allowed {
    /// How often something can be done that asks and syncs so often, one after the other.
    fn of_machine(&self, kind: Kind) -> f64 {
        1.0 / (kind.requests() as f64 / self.answers + kind.commits() as f64 / self.syncs)
    }
}

/// What it is found out with.
pub struct Bounds {
    raw: Raw,
    echo: Echo,
    file: File,
    _folder: TempDir,
}

impl Bounds {
    /// Lays everything ready.
    pub fn new() -> Result<Bounds, Failure> {
        let folder = TempDir::with_prefix("polyshard-raw-")?;
        let file = File::create_new(folder.path().join("same"))?;
        sync(&file, 0)?;
        Ok(Bounds { raw: Raw::new()?, echo: Echo::start()?, file, _folder: folder })
    }

    /// Measures everything, each for a while.
    pub fn round(&mut self, length: Duration) -> Result<Allowed, Failure> {
        let answers = rate(length, || self.echo.ask())?;
        let syncs = rate(length, || sync(&self.file, 0))?;
        Ok(Allowed { answers, syncs, commits: self.raw.round(length)? })
    }
}

/// A thread that sleeps until it is asked over a connection, and answers.
struct Echo {
    /// None when it is over: that ends the thread.
    stream: Option<TcpStream>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start() -> Result<Echo, Failure> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let thread = std::thread::spawn(move || {
            if let Err(error) = answer(&listener)
                && error.kind() != ErrorKind::UnexpectedEof
            {
                eprintln!("answering over loopback: {error}");
            }
        });
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Echo { stream: Some(stream), thread: Some(thread) })
    }

    fn ask(&mut self) -> Result<(), Failure> {
        let stream = self.stream.as_mut().ok_or("it is over")?;
        let mut unsent = ASK_BYTES;
        while unsent > 0 {
            unsent -= look(|| stream.write(&[7; ASK_BYTES][..unsent]))?;
        }
        let (mut left, mut room) = (ANSWER_BYTES, [0; ANSWER_BYTES]);
        while left > 0 {
            left -= match look(|| stream.read(&mut room[..left]))? {
                0 => return Err("the connection was closed".into()),
                read => read,
            };
        }
        Ok(())
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.stream.take());
        if let Some(thread) = self.thread.take() {
            // It has said what was wrong.
            let _ended = thread.join();
        }
    }
}

/// Answers one connection until it is closed, which is told as the end of what can be read.
fn answer(listener: &TcpListener) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut asked = [0; ASK_BYTES];
    loop {
        stream.read_exact(&mut asked)?;
        stream.write_all(&[7; ANSWER_BYTES])?;
    }
}

/// What one connection has that waits for each answer, beside what is allowed in the same rounds.
pub struct Alone {
    table: Table,
}

impl Alone {
    /// An empty table.
    pub fn new() -> Alone {
        let columns = [
            "operation",
            "requests",
            "commits",
            "ours/s",
            "answers/s",
            "syncs/s",
            "machine allows",
            "of that",
            "raw SQLite allows",
            "of that",
        ];
        let title = "One connection that waits for each answer, beside what machine and disk allow";
        Alone { table: Table::new("azure_raw", title, &columns) }
    }

    /// Adds an operation: its rates, and what was allowed in the same rounds.
    pub fn add(&mut self, kind: Kind, ours: &[f64], allowed: &[Allowed]) {
        let median = |of: &dyn Fn(&Allowed) -> f64| Spread::of(allowed.iter().map(of).collect()).median;
        let part = |of: &dyn Fn(&Allowed) -> f64| {
            Spread::of(ours.iter().zip(allowed).map(|(ours, allowed)| ours / of(allowed)).collect()).median
        };
        let of_machine = |allowed: &Allowed| allowed.of_machine(kind);
        let of_sqlite = |allowed: &Allowed| allowed.commits / kind.commits() as f64;
        let (of_sqlite, part_of_sqlite) = match kind.commits() {
            0 => (Cell::None, Cell::None),
            _ => (Cell::number(median(&of_sqlite)), Cell::number(part(&of_sqlite))),
        };
        self.table.row([
            kind.name().into(),
            Cell::Number(kind.requests() as f64, 0),
            Cell::Number(kind.commits() as f64, 0),
            Cell::number(Spread::of(ours.to_vec()).median),
            Cell::number(median(&|allowed| allowed.answers)),
            Cell::number(median(&|allowed| allowed.syncs)),
            Cell::number(median(&of_machine)),
            Cell::number(part(&of_machine)),
            of_sqlite,
            part_of_sqlite,
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
