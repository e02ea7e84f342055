//! What is laid ready before a statement runs: the rows of writes within its WITH, and of a query each row of which
//! gets an id; in temporary tables, within one transaction with the statement.
//!
//! SQLite counts no ids, and nobody knows how many a query needs before its rows are there. They are kept in the order
//! in which the query gives them, which is the order of their ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_engine::{Rows, Statement, Value};
use polyshard_sql::{Param, SqlError};

use crate::fail::unsupported;
use crate::prepared::{Moment, Prepared, Source};
use crate::value::array;

/// The most rows that get ids in one statement: the ids are in memory, some 20 bytes each.
pub const HELD_ROWS_MAX: usize = 1_000_000;
/// The most rows that a write within WITH may return: they are in memory as they are.
pub const WITH_ROWS_MAX: usize = 100_000;

const ROWS: &str = "temp.\"polyshard_held\"";
const IDS: &str = "temp.\"polyshard_ids\"";

/// What is laid ready, while the statement is translated.
#[derive(Default)]
pub(crate) struct Holding {
    /// Writes, and how many columns each returns.
    writes: Vec<(String, usize)>,
    /// The query whose rows get ids, and how many columns it gives.
    query: Option<(String, usize)>,
    /// The sequences of which each row gets an id.
    sequences: Vec<String>,
}

impl Holding {
    /// How many sequences there are of which each row gets an id.
    pub fn sequences(&self) -> usize {
        self.sequences.len()
    }

    /// The id of a sequence for the row at hand.
    pub fn id(&mut self, sequence: &str) -> String {
        self.sequences.push(sequence.to_owned());
        let place = self.sequences.len();
        let own = format!("\"i\".\"of\" = {place} AND \"i\".\"n\" = \"s\".\"n\"");
        format!("(SELECT \"i\".\"id\" FROM {IDS} AS \"i\" WHERE {own})")
    }

    /// Has the rows of a query laid ready, and selects from them.
    pub fn rows(&mut self, query: String, columns: usize, items: &str) -> String {
        self.query = Some((query, columns));
        format!("SELECT {items} FROM {ROWS} AS \"s\" WHERE true ORDER BY \"s\".\"n\"")
    }

    /// Has a write carried out; the name of the table that its rows are in then.
    pub fn write(&mut self, sql: String, columns: usize) -> String {
        self.writes.push((sql, columns));
        with_table(self.writes.len())
    }

    /// Puts WITH before the query.
    pub fn begin_with(&mut self, with: &str) {
        if let Some((query, _)) = &mut self.query {
            *query = format!("{with}SELECT * FROM ({query})");
        }
    }

    /// With the parameters of its statements numbered.
    pub fn finished(self, finish: impl Fn(String) -> (String, Vec<Source>)) -> Held {
        let writes = self.writes.into_iter().map(|(sql, columns)| {
            let (sql, sources) = finish(sql);
            Step { sql: sql.into(), sources, columns }
        });
        let query = self.query.map(|(query, columns)| {
            let (query, sources) = finish(query);
            // A query that begins with WITH is one as it is.
            let rows = if query.starts_with("WITH ") { query } else { format!("SELECT * FROM ({query})") };
            let sql = format!("INSERT INTO {ROWS} ({}) {rows}", column_names(columns));
            Step { sql: sql.into(), sources, columns }
        });
        Held { writes: writes.collect(), query, sequences: self.sequences }
    }
}

/// One statement before the statement.
#[derive(Debug)]
struct Step {
    sql: Arc<str>,
    sources: Vec<Source>,
    columns: usize,
}

/// What is laid ready.
#[derive(Debug)]
pub struct Held {
    writes: Vec<Step>,
    query: Option<Step>,
    sequences: Vec<String>,
}

/// The statements of one execution, to be run in one transaction in the order of these fields.
pub struct Steps {
    /// For each write: makes the table for its rows, and then writes. What this answers is for [`Held::put`].
    pub writes: Vec<[Statement; 2]>,
    /// Lays the rows of the query ready. The last of them affects as many rows as there are, each of which needs an id
    /// of every one of [`Held::sequences`]: they are given by [`Held::give`].
    pub lay: Vec<Statement>,
    /// The statement itself.
    pub main: Statement,
    /// Takes everything away again.
    pub clear: Vec<Statement>,
}

impl Held {
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.writes.iter().chain(&self.query).flat_map(|step| &step.sources)
    }

    /// The sequences of which each row gets an id.
    pub fn sequences(&self) -> &[String] {
        &self.sequences
    }

    /// The statements of one execution.
    pub fn steps(
        &self,
        prepared: &Prepared,
        params: &[Param<'_>],
        moment: &Moment,
    ) -> Result<Steps, SqlError> {
        // Each takes its ids behind those of the ones before.
        let mut used = BTreeMap::new();
        let mut bound = |sql: &Arc<str>, sources: &[Source]| {
            let values = prepared.bind_all(sources, params, moment, &mut used)?;
            Ok::<_, SqlError>(values.into_iter().fold(Statement::new(sql.clone()), Statement::bind))
        };
        let (mut writes, mut lay, mut clear) = (Vec::new(), Vec::new(), Vec::new());
        for (place, write) in self.writes.iter().enumerate() {
            let table = format!("temp.\"{}\"", with_table(place + 1));
            writes.push([make(&table, write.columns), bound(&write.sql, &write.sources)?]);
            clear.push(table);
        }
        if let Some(query) = &self.query {
            let key = "PRIMARY KEY (\"of\", \"n\")";
            let ids = format!("CREATE TABLE {IDS} (\"of\" INT, \"n\" INT, \"id\" INT, {key}) WITHOUT ROWID");
            lay = vec![make(ROWS, query.columns), Statement::new(ids), bound(&query.sql, &query.sources)?];
            clear.extend([ROWS.to_owned(), IDS.to_owned()]);
        }
        let main = bound(&prepared.sql, &prepared.sources)?;
        let clear = clear.iter().map(|table| Statement::new(format!("DROP TABLE {table}"))).collect();
        Ok(Steps { writes, lay, main, clear })
    }

    /// Lays ready what the write at this place has returned.
    pub fn put(&self, place: usize, returned: &Rows) -> Vec<Statement> {
        let Some(columns) = self.writes.get(place).map(|write| write.columns).filter(|columns| *columns > 0)
        else {
            return Vec::new();
        };
        let values: Vec<String> = (1..=columns).map(|number| format!("${number}")).collect();
        let (table, names) = (with_table(place + 1), column_names(columns));
        let sql: Arc<str> =
            format!("INSERT INTO temp.\"{table}\" ({names}) VALUES ({})", values.join(", ")).into();
        let row =
            |values: &[Value]| values.iter().cloned().fold(Statement::new(sql.clone()), Statement::bind);
        returned.iter().map(|returned| row(returned.values())).collect()
    }

    /// Gives the rows of the query their ids: those of the sequence at this place.
    pub fn give(&self, place: usize, ids: &[i64]) -> Statement {
        let ids = array::pack(&ids.iter().map(|id| Value::Int(*id)).collect::<Vec<_>>());
        let text =
            format!("INSERT INTO {IDS} SELECT {}, \"key\" + 1, \"value\" FROM json_each($1)", place + 1);
        Statement::new(text).bind(ids)
    }
}

/// The table that the rows of a write are in, by its place from 1.
fn with_table(number: usize) -> String {
    format!("polyshard_with_{number}")
}

fn column_names(count: usize) -> String {
    (1..=count).map(|place| format!("\"c{place}\"")).collect::<Vec<_>>().join(", ")
}

/// Makes a table that counts its rows. Columns without a type keep values as they are.
fn make(table: &str, columns: usize) -> Statement {
    let names: String = (1..=columns).map(|place| format!(", \"c{place}\"")).collect();
    Statement::new(format!("CREATE TABLE {table} (\"n\" INTEGER PRIMARY KEY{names})"))
}

/// Where nothing can be laid ready.
pub(crate) fn not_here() -> SqlError {
    unsupported("an id for each row of a query, or a write within WITH, at this place").hint(
        "insert rows with VALUES, give the ids yourself, or send the parts as statements of one transaction",
    )
}
