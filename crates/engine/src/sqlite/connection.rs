//! One SQLite connection: how it is set up, and how a statement runs on it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::OpenFlags;
use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};

use super::error::translate;
use super::seen::Seen;
use crate::{Error, Options, Row, Rows, Value};

/// How often a running statement looks at its time limit, in steps of SQLite's virtual machine: often enough
/// to stop within a millisecond, seldom enough not to be felt.
const PROGRESS_STEPS: i32 = 10_000;

/// How long the writer waits for the checkpointer, the only other one to take the write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Reader,
    Checkpointer,
}

pub(crate) struct Connection {
    pub raw: rusqlite::Connection,
    /// The column names of statements seen, so that an answer shares them and does not build them.
    columns: HashMap<Arc<str>, Arc<[String]>>,
    columns_max: usize,
    clock: Arc<Clock>,
}

/// Until when the running statement may run; read by the progress handler.
struct Clock {
    start: Instant,
    deadline_ms: AtomicU64,
    /// Which use of the connection this is, and the last one that nobody waits for any more.
    turn: AtomicU64,
    stopped: AtomicU64,
    /// The use that was begun last for a statement of a transaction.
    statement: AtomicU64,
}

/// Stops what a connection does in one use of it, and nothing that comes later.
pub(crate) struct Stopper {
    clock: Arc<Clock>,
    turn: u64,
}

impl Stopper {
    pub fn stop(&self) {
        self.clock.stopped.fetch_max(self.turn, Ordering::Relaxed);
    }
}

/// Stops the statement that a transaction runs at the moment, if it runs one, and nothing else.
pub(crate) struct StatementStopper(Arc<Clock>);

impl StatementStopper {
    pub fn stop(&self) {
        let turn = self.0.statement.load(Ordering::Relaxed);
        self.0.stopped.fetch_max(turn, Ordering::Relaxed);
    }
}

impl Connection {
    pub fn open(path: &Path, role: Role, options: &Options) -> Result<Connection, Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let raw = match role {
            Role::Writer => {
                let gathering = polyshard_sqlite_wal::register().map_err(|code| Error::Unavailable {
                    message: format!("SQLite does not take the file system for logs (code {code})"),
                })?;
                rusqlite::Connection::open_with_flags_and_vfs(path, flags, gathering)
            }
            Role::Reader | Role::Checkpointer => rusqlite::Connection::open_with_flags(path, flags),
        };
        let raw = raw.map_err(translate)?;
        let mut connection = Connection {
            raw,
            columns: HashMap::new(),
            columns_max: options.statement_cache_max,
            clock: Arc::new(Clock {
                start: Instant::now(),
                deadline_ms: AtomicU64::new(u64::MAX),
                turn: AtomicU64::new(1),
                stopped: AtomicU64::new(0),
                statement: AtomicU64::new(0),
            }),
        };
        connection.set_up(role, options).map_err(translate)?;
        Ok(connection)
    }

    fn set_up(&mut self, role: Role, options: &Options) -> rusqlite::Result<()> {
        let raw = &mut self.raw;
        raw.busy_timeout(BUSY_TIMEOUT)?;
        raw.set_prepared_statement_cache_capacity(options.statement_cache_max);
        if role == Role::Writer {
            raw.pragma_update(None, "journal_mode", "WAL")?;
        }
        // Otherwise a cached statement is compiled again on every use, in case other values want another plan.
        raw.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        raw.pragma_update(None, "synchronous", "FULL")?;
        raw.pragma_update(None, "foreign_keys", true)?;
        // Otherwise REPLACE deletes rows without firing delete triggers.
        raw.pragma_update(None, "recursive_triggers", true)?;
        raw.pragma_update(None, "mmap_size", options.sqlite_mmap_bytes as i64)?;
        // A log that grew under load is cut back to this when it starts over. It is started over a little late.
        let wal_bytes_max = i64::from(options.sqlite_wal_pages_max) * 4096 * 2;
        raw.pragma_update(None, "journal_size_limit", wal_bytes_max)?;
        let cache_kib = match role {
            Role::Writer => options.sqlite_writer_cache_kib,
            Role::Reader | Role::Checkpointer => options.sqlite_reader_cache_kib,
        };
        // A negative number is KiB, a positive one pages.
        raw.pragma_update(None, "cache_size", -i64::from(cache_kib))?;
        match role {
            // Checkpoints are the checkpointer's, never the writer's: p99 of a write 43 ms → 9 ms.
            Role::Writer => raw.pragma_update(None, "wal_autocheckpoint", 0)?,
            Role::Reader => raw.pragma_update(None, "query_only", true)?,
            Role::Checkpointer => {}
        }
        super::register::register(raw, options)?;
        let clock = self.clock.clone();
        raw.progress_handler(PROGRESS_STEPS, Some(move || clock.has_passed()))
    }

    /// Opens further files beside this one, each under a name, and starts a read transaction that has its
    /// snapshot of every one of them.
    pub fn attach(&mut self, others: &[(String, PathBuf)]) -> Result<(), Error> {
        for (name, path) in others {
            self.attach_one(name, path)?;
        }
        self.control("BEGIN").map_err(translate)?;
        let names = std::iter::once("main").chain(others.iter().map(|(name, _)| name.as_str()));
        for name in names {
            // BEGIN alone takes no snapshot; the first read of each file does.
            let touch = format!("SELECT count(*) FROM {}.sqlite_schema", quoted(name));
            self.raw.query_row(&touch, [], |_| Ok(())).map_err(translate)?;
        }
        Ok(())
    }

    /// Opens another file beside this one under a name.
    pub fn attach_one(&self, name: &str, path: &Path) -> Result<(), Error> {
        let path = path.to_str().ok_or_else(|| {
            Error::invalid(format!("the path {} is not UTF-8 and cannot be attached", path.display()))
        })?;
        let attach = format!("ATTACH DATABASE ?1 AS {}", quoted(name));
        self.raw.execute(&attach, [path]).map(drop).map_err(translate)
    }

    /// Closes a file that was opened beside this one.
    pub fn detach(&self, name: &str) -> Result<(), Error> {
        self.raw.execute(&format!("DETACH DATABASE {}", quoted(name)), []).map(drop).map_err(translate)
    }

    /// Bytes of a page of the file.
    pub fn page_bytes(&self) -> Result<u64, Error> {
        let bytes: i64 = self.raw.query_row("PRAGMA page_size", [], |row| row.get(0)).map_err(translate)?;
        u64::try_from(bytes).map_err(|_| Error::invalid("the file's pages have no size"))
    }

    /// Limits every statement from now on until the next call.
    pub fn limit(&self, limit: Option<Duration>) {
        let deadline = match limit {
            Some(limit) => (self.clock.start.elapsed() + limit).as_millis() as u64,
            None => u64::MAX,
        };
        self.clock.deadline_ms.store(deadline, Ordering::Relaxed);
    }

    /// Begins another use of the connection, which can be stopped from elsewhere; who stopped an earlier one does not
    /// stop this.
    pub fn begin_turn(&self) -> Stopper {
        let turn = self.clock.turn.fetch_add(1, Ordering::Relaxed) + 1;
        Stopper { clock: self.clock.clone(), turn }
    }

    /// Likewise for statements of a transaction: what [`Connection::statement_stopper`] gives stops them.
    pub fn begin_statements(&self) {
        self.clock.statement.store(self.begin_turn().turn, Ordering::Relaxed);
    }

    pub fn statement_stopper(&self) -> StatementStopper {
        StatementStopper(self.clock.clone())
    }

    /// Runs a statement that returns nothing, such as BEGIN.
    pub fn control(&self, sql: &str) -> rusqlite::Result<()> {
        self.raw.prepare_cached(sql)?.raw_execute().map(drop)
    }

    pub fn run(&mut self, text: &Arc<str>, params: &[Value]) -> Result<Rows, Error> {
        self.run_wanted(text, params, |_| true)
    }

    /// The rows that are wanted; all are counted.
    pub fn run_wanted(
        &mut self,
        text: &Arc<str>,
        params: &[Value],
        look: impl FnMut(&Seen<'_>) -> bool,
    ) -> Result<Rows, Error> {
        let mut rows = None;
        self.run_pages(text, params, look, usize::MAX, |page| {
            rows = Some(page);
            Go::On
        })?;
        Ok(rows.unwrap_or_else(Rows::none))
    }

    /// Hands out the rows in pages; there is always at least one page, which may be empty.
    pub fn run_pages(
        &mut self,
        text: &Arc<str>,
        params: &[Value],
        mut look: impl FnMut(&Seen<'_>) -> bool,
        page_rows: usize,
        mut page: impl FnMut(Rows) -> Go,
    ) -> Result<(), Error> {
        let changes_before = self.raw.total_changes();
        let mut statement = self.raw.prepare_cached(text).map_err(translate)?;
        bind(&mut statement, params)?;

        // Read after the first step, which prepares the statement anew if the schema has changed.
        let mut columns: Option<Arc<[String]>> = None;
        let mut pending: Vec<Row> = Vec::new();
        let mut count = 0u64;
        let mut cursor = statement.raw_query();
        while let Some(row) = cursor.next().map_err(translate)? {
            count += 1;
            if !look(&Seen(row)) {
                continue;
            }
            let columns = match &columns {
                Some(columns) => columns,
                None => {
                    columns.insert(column_names(&mut self.columns, self.columns_max, text, row.as_ref())?)
                }
            };
            let mut values = Vec::with_capacity(columns.len());
            for index in 0..columns.len() {
                values.push(value(row.get_ref(index).map_err(translate)?)?);
            }
            pending.push(Row { columns: columns.clone(), values });
            if pending.len() == page_rows {
                let rows = std::mem::take(&mut pending);
                let affected = rows.len() as u64;
                if let Go::Stop = page(Rows { columns: columns.clone(), rows, affected }) {
                    return Ok(());
                }
            }
        }
        drop(cursor);
        let columns = match columns {
            Some(columns) => columns,
            None => column_names(&mut self.columns, self.columns_max, text, &statement)?,
        };
        let affected = if !columns.is_empty() {
            count
        } else if self.raw.total_changes() != changes_before {
            self.raw.changes()
        } else {
            // `changes` still holds the count of an earlier statement.
            0
        };
        page(Rows { columns, rows: pending, affected });
        Ok(())
    }
}

/// Whether the receiver of pages wants more.
pub(crate) enum Go {
    On,
    Stop,
}

impl Clock {
    fn has_passed(&self) -> bool {
        if self.stopped.load(Ordering::Relaxed) >= self.turn.load(Ordering::Relaxed) {
            return true;
        }
        let deadline = self.deadline_ms.load(Ordering::Relaxed);
        deadline != u64::MAX && self.start.elapsed().as_millis() as u64 > deadline
    }
}

/// `$2` is a name to SQLite, numbered by first appearance: each is bound to the value its digits say.
fn bind(statement: &mut rusqlite::Statement<'_>, params: &[Value]) -> Result<(), Error> {
    let count = statement.parameter_count();
    let mut highest = 0;
    for index in 1..=count {
        let number = match statement.parameter_name(index) {
            None => index,
            Some(name) => name
                .get(1..)
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| Error::invalid(format!("parameter {name} has no number: write $1, $2, …")))?,
        };
        let value = number.checked_sub(1).and_then(|position| params.get(position)).ok_or_else(|| {
            Error::invalid(format!("the statement uses ${number}, but {} values are bound", params.len()))
        })?;
        highest = highest.max(number);
        statement.raw_bind_parameter(index, Bound(value)).map_err(translate)?;
    }
    if highest != params.len() {
        return Err(Error::invalid(format!(
            "{} values are bound, but the statement uses only {highest}",
            params.len()
        )));
    }
    Ok(())
}

fn column_names(
    known: &mut HashMap<Arc<str>, Arc<[String]>>,
    known_max: usize,
    text: &Arc<str>,
    statement: &rusqlite::Statement<'_>,
) -> Result<Arc<[String]>, Error> {
    let count = statement.column_count();
    if let Some(columns) = known.get(text) {
        // `SELECT *` follows a changed table, so the names are compared, not trusted.
        let same = columns.len() == count
            && columns.iter().enumerate().all(|(index, name)| statement.column_name(index) == Ok(name));
        if same {
            return Ok(columns.clone());
        }
    }
    let mut names = Vec::with_capacity(count);
    for index in 0..count {
        names.push(statement.column_name(index).map_err(translate)?.to_owned());
    }
    if known.len() >= known_max {
        known.clear();
    }
    let columns: Arc<[String]> = names.into();
    known.insert(text.clone(), columns.clone());
    Ok(columns)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A borrowed parameter.
struct Bound<'a>(&'a Value);

impl rusqlite::ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            Value::Null => ValueRef::Null,
            Value::Bool(value) => ValueRef::Integer((*value).into()),
            Value::Int(value) => ValueRef::Integer(*value),
            Value::Real(value) => ValueRef::Real(*value),
            Value::Text(value) => ValueRef::Text(value.as_bytes()),
            Value::Blob(value) => ValueRef::Blob(value),
        }))
    }
}

pub(super) fn value(value: ValueRef<'_>) -> Result<Value, Error> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(bytes) => Value::Text(
            std::str::from_utf8(bytes)
                .map_err(|_| Error::invalid("a text in the database is not UTF-8: read it as a blob"))?
                .to_owned(),
        ),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    })
}
