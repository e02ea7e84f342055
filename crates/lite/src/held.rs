//! What is laid ready before a statement runs: the rows of a query in a temporary table, and an id for each of them.
//!
//! SQLite counts no ids, and nobody knows how many a query needs before its rows are there. They are kept in the order in
//! which the query gives them, which is the order of their ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_engine::{Statement, Value};
use polyshard_sql::{Param, SqlError};

use crate::fail::unsupported;
use crate::prepared::{Moment, Prepared, Source};
use crate::value::array;

/// The most rows that get ids in one statement: the ids are in memory, some 20 bytes each.
pub const HELD_ROWS_MAX: usize = 1_000_000;

const ROWS: &str = "temp.\"polyshard_held\"";
const IDS: &str = "temp.\"polyshard_ids\"";

/// What is laid ready, while the statement is translated.
#[derive(Default)]
pub(crate) struct Holding {
    /// The query, and how many columns it gives.
    query: String,
    columns: usize,
    /// The sequences of which each row gets an id.
    sequences: Vec<String>,
}

impl Holding {
    /// The id of a sequence for the row at hand.
    pub fn id(&mut self, sequence: &str) -> String {
        self.sequences.push(sequence.to_owned());
        let place = self.sequences.len();
        let own = format!("\"i\".\"of\" = {place} AND \"i\".\"n\" = \"s\".\"n\"");
        format!("(SELECT \"i\".\"id\" FROM {IDS} AS \"i\" WHERE {own})")
    }

    /// Has the rows of a query laid ready, and selects from them.
    pub fn rows(&mut self, query: String, columns: usize, items: &str) -> String {
        (self.query, self.columns) = (query, columns);
        format!("SELECT {items} FROM {ROWS} AS \"s\" WHERE true ORDER BY \"s\".\"n\"")
    }

    /// Puts WITH before the query.
    pub fn begin_with(&mut self, with: &str) {
        self.query = format!("{with}SELECT * FROM ({})", self.query);
    }

    /// With its parameters numbered.
    pub fn finished(self, finish: impl FnOnce(String) -> (String, Vec<Source>)) -> Held {
        let names: Vec<String> = (1..=self.columns).map(|place| format!("\"c{place}\"")).collect();
        let (query, sources) = finish(self.query);
        // Columns without a type keep values as they are.
        let fill = match query.strip_prefix("WITH ") {
            Some(_) => format!("INSERT INTO {ROWS} ({}) {query}", names.join(", ")),
            None => format!("INSERT INTO {ROWS} ({}) SELECT * FROM ({query})", names.join(", ")),
        };
        let make = format!("CREATE TABLE {ROWS} (\"n\" INTEGER PRIMARY KEY, {})", names.join(", "));
        Held { make, fill: fill.into(), sources, sequences: self.sequences }
    }
}

/// What is laid ready: to be run in one transaction with the statement, in the order of these functions.
#[derive(Debug)]
pub struct Held {
    make: String,
    fill: Arc<str>,
    sources: Vec<Source>,
    sequences: Vec<String>,
}

impl Held {
    pub(crate) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The sequences of which each row gets an id.
    pub fn sequences(&self) -> &[String] {
        &self.sequences
    }

    /// Lays the rows ready. The last of these statements affects as many rows as there are.
    pub fn lay(
        &self,
        prepared: &Prepared,
        params: &[Param<'_>],
        moment: &Moment,
    ) -> Result<Vec<Statement>, SqlError> {
        let values = prepared.bind_all(&self.sources, params, moment, &mut BTreeMap::new())?;
        let key = "PRIMARY KEY (\"of\", \"n\")";
        let ids = format!("CREATE TABLE {IDS} (\"of\" INT, \"n\" INT, \"id\" INT, {key}) WITHOUT ROWID");
        let fill = values.into_iter().fold(Statement::new(self.fill.clone()), Statement::bind);
        Ok(vec![Statement::new(self.make.as_str()), Statement::new(ids), fill])
    }

    /// Gives the rows their ids: those of the sequence at this place.
    pub fn give(&self, place: usize, ids: &[i64]) -> Statement {
        let ids = array::pack(&ids.iter().map(|id| Value::Int(*id)).collect::<Vec<_>>());
        let text =
            format!("INSERT INTO {IDS} SELECT {}, \"key\" + 1, \"value\" FROM json_each($1)", place + 1);
        Statement::new(text).bind(ids)
    }

    /// The values of the statement itself.
    pub fn bind(
        &self,
        prepared: &Prepared,
        params: &[Param<'_>],
        moment: &Moment,
    ) -> Result<Vec<Value>, SqlError> {
        // The ids of single values come after those that the query has taken.
        let mut used = BTreeMap::new();
        prepared.bind_all(&self.sources, params, moment, &mut used)?;
        prepared.bind_all(&prepared.sources, params, moment, &mut used)
    }

    /// Takes everything away again.
    pub fn clear(&self) -> Vec<Statement> {
        [ROWS, IDS].map(|table| Statement::new(format!("DROP TABLE {table}"))).into()
    }
}

/// Where nothing can be laid ready.
pub(crate) fn not_here() -> SqlError {
    unsupported("an id for each row of a query").hint("insert rows with VALUES, or give the ids yourself")
}
