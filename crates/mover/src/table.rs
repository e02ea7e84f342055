//! One table on one shard, as rows are carried from or to it: the statements, made once.

mod partitions;

use std::sync::Arc;

use polyshard_engine::{Dialect, Expect, Row, Statement, Value};
use polyshard_map::{KeyRange, MapDefinition};
use polyshard_shard::{Column, Dataset, Native, Placement, RowKey, Shape, Travel};

use crate::error::{MoveError, Result};

/// Rows of one multi-row insert; and of those that come after as many as fit, while more than one row is left.
const INSERT_ROWS: usize = 64;
const INSERT_ROWS_FEW: usize = 8;
/// Rows deleted by one statement on PostgreSQL: one statement each takes it five times as long.
const DELETE_ROWS: usize = 32;
/// Parameters of one statement: SQLite takes 32766, PostgreSQL 65535.
const PARAMETERS_MAX: usize = 32_000;

/// A table on one side of a move, with its columns in the order of the source's.
pub(crate) struct Side {
    pub dialect: Dialect,
    /// As it is written in SQL.
    pub table: String,
    pub columns: Vec<Column>,
    /// Places of the columns of the source's primary key.
    pub key: Vec<usize>,
    /// Places of the columns of this side's own, which may be of other columns on another engine.
    own_key: Vec<usize>,
    /// Places of the columns that rows are read in the order of.
    pub order: Vec<usize>,
    /// The condition that a row is in the move's ranges.
    inside: String,
    /// Whether it compares the very column that rows are read in the order of.
    leads: bool,
    /// The condition that a row is below the end of the ranges, if so and if they have an end.
    below: Option<String>,
    /// The same, of a row called `kept`.
    inside_kept: String,
    /// The condition that it is of a dataset of the map.
    scope: String,
    /// The column that tells datasets apart.
    rows_column: Option<String>,
    /// Statements that add so many rows, the largest first; the last one adds one.
    inserts: Vec<(usize, Arc<str>)>,
    upsert: Arc<str>,
    delete: Arc<str>,
    /// Deletes several rows: on PostgreSQL.
    delete_many: Option<Arc<str>>,
    by_key: Arc<str>,
}

impl Side {
    /// A side of a dataset's table. `like` is the shape whose order of columns counts.
    pub(crate) fn new(
        dialect: Dialect,
        dataset: &Dataset,
        shape: &Shape,
        like: &Shape,
        definition: &MapDefinition,
        ranges: &[KeyRange],
    ) -> Result<Side> {
        let refuse = |why: String| MoveError::Refused(format!("{} cannot be moved: {why}", dataset.name));
        let find = |column: &Column| {
            let name = column.name.trim_matches('"').to_owned();
            shape
                .column(&column.name)
                .cloned()
                .ok_or_else(|| refuse(format!("column {name} is not on both shards")))
        };
        let columns: Vec<Column> = like.columns.iter().map(find).collect::<Result<_>>()?;
        if shape.columns.len() != columns.len() {
            return Err(refuse("its table has other columns on the target; make both the same".into()));
        }
        let place = |name: &str| {
            let plain = name.trim_matches('"');
            columns.iter().position(|column| column.name.trim_matches('"') == plain)
        };
        let key = like.primary_key.clone();
        let own_key: Vec<usize> = shape.key().filter_map(|column| place(&column.name)).collect();
        let mut order = Vec::new();
        if let Placement::Column(column) = &dataset.placement {
            order.push(place(column).ok_or_else(|| refuse(format!("it has no column {column}")))?);
        }
        order.extend(key.iter().copied().filter(|column| !order.contains(column)).collect::<Vec<_>>());
        let placed = |row: &str| dataset.placement.in_ranges(dialect, definition, ranges, row);
        let wrong = |error: polyshard_shard::ShardError| refuse(error.to_string());
        let (inside, inside_kept) = (placed("").map_err(wrong)?, placed("kept").map_err(wrong)?);
        let compared = dataset.placement.compared(dialect, definition, &outer(ranges));
        let leads = compared.as_ref().is_some_and(|(column, _)| {
            order.first().is_some_and(|first| place(column).is_some_and(|place| place == *first))
        });
        let below = compared.and_then(|(_, below)| below).filter(|_| leads);
        let scope =
            dataset.rows_of_map(dialect, "").map_or_else(String::new, |of_map| format!(" AND {of_map}"));
        let table = dataset.table.clone();
        let rows_column = dataset.rows_column().map(str::to_owned);
        let rows_max = (PARAMETERS_MAX / columns.len().max(1)).max(1);
        let led = match dialect {
            Dialect::Sqlite => partitions::lead(dataset, &columns, &key, &own_key),
            Dialect::Postgres => String::new(),
        };
        let mut side = Side {
            dialect,
            table,
            columns,
            key,
            own_key,
            order,
            inside,
            leads,
            below,
            inside_kept,
            scope,
            rows_column,
            inserts: Vec::new(),
            upsert: "".into(),
            delete: "".into(),
            delete_many: None,
            by_key: "".into(),
        };
        let counts = [INSERT_ROWS, INSERT_ROWS_FEW, 1].map(|rows| rows.min(rows_max));
        side.inserts = counts.map(|rows| (rows, side.insert(rows, "").into())).into();
        side.upsert = side.upsert_text().into();
        side.delete = format!(
            "DELETE FROM {} WHERE {}{led} AND {}{}",
            side.table,
            side.key_is(1),
            side.beside_key(),
            side.scope
        )
        .into();
        if dialect == Dialect::Postgres {
            let keys: Vec<String> =
                (0..DELETE_ROWS).map(|row| format!("({})", side.key_is(row * side.key.len() + 1))).collect();
            let (table, keys) = (&side.table, keys.join(" OR "));
            let text = format!("DELETE FROM {table} WHERE ({keys}) AND {}{}", side.beside_key(), side.scope);
            side.delete_many = Some(text.into());
        }
        side.by_key = format!(
            "SELECT {} FROM {} WHERE {}{led} AND {}{}",
            side.read_list(),
            side.table,
            side.key_is(1),
            side.beside_key(),
            side.scope
        )
        .into();
        Ok(side)
    }

    fn read_list(&self) -> String {
        self.columns.iter().map(Column::read).collect::<Vec<_>>().join(", ")
    }

    fn key_is(&self, first: usize) -> String {
        let parts = self.key.iter().enumerate().map(|(number, place)| {
            let column = &self.columns[*place];
            format!("{} = {}", column.name, column.parameter(first + number))
        });
        parts.collect::<Vec<_>>().join(" AND ")
    }

    /// That a row is in the ranges, for a statement that names its key. PostgreSQL is not shown that it compares a
    /// column: the estimate of a key in a range is so small that any index on that column looks as good as the primary
    /// key, and then each key costs as much as all rows of its tenant.
    fn beside_key(&self) -> String {
        match self.dialect {
            Dialect::Postgres => format!("({} IS TRUE)", self.inside),
            Dialect::Sqlite => self.inside.clone(),
        }
    }

    fn insert(&self, rows: usize, alias: &str) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let tuple = |row: usize| {
            let first = row * self.columns.len() + 1;
            let parts = self.columns.iter().enumerate().map(|(n, column)| column.parameter(first + n));
            format!("({})", parts.collect::<Vec<_>>().join(", "))
        };
        // Numbers that the source gave stay as they are.
        let identity = match self.dialect {
            Dialect::Postgres => " OVERRIDING SYSTEM VALUE",
            Dialect::Sqlite => "",
        };
        let tuples: Vec<String> = (0..rows).map(tuple).collect();
        format!(
            "INSERT INTO {}{alias} ({}){identity} VALUES {}",
            self.table,
            names.join(", "),
            tuples.join(", ")
        )
    }

    /// Replaces what is there only if it is in the ranges, too: another tenant's row is never touched.
    fn upsert_text(&self) -> String {
        let key: Vec<&str> = self.own_key.iter().map(|place| self.columns[*place].name.as_str()).collect();
        // Numbers and the like may be equal and yet be written in two ways: 1.0 and 1.00.
        let is_one = |place: &usize| self.columns[*place].travel != Travel::Cast;
        let is_key = |place: &usize| self.key.contains(place) || self.own_key.contains(place);
        let mut set: Vec<String> = (0..self.columns.len())
            .filter(|place| !(is_key(place) && is_one(place)))
            .map(|place| format!("{0} = excluded.{0}", self.columns[place].name))
            .collect();
        if set.is_empty() {
            set.push(format!("{0} = excluded.{0}", key[0]));
        }
        format!(
            "{} ON CONFLICT ({}) DO UPDATE SET {} WHERE {}",
            self.insert(1, " AS kept"),
            key.join(", "),
            set.join(", "),
            self.inside_kept
        )
    }

    /// The condition of one dataset's rows, or of all of the map's.
    fn rows_of(&self, number: Option<i64>) -> String {
        match (&self.rows_column, number) {
            (Some(column), Some(number)) => format!(" AND {column} = {number}"),
            _ => self.scope.clone(),
        }
    }

    /// The columns that one dataset's rows are put in order by. Its number is the same in all of them, and stands
    /// between the others where an index has it in front.
    fn order_of(&self, number: Option<i64>) -> impl Iterator<Item = (usize, &Column)> {
        let fixed = number.and(self.rows_column.as_deref()).map(|column| column.trim_matches('"'));
        let columns = self.order.iter().map(|place| &self.columns[*place]).enumerate();
        columns.filter(move |(_, column)| fixed != Some(column.name.trim_matches('"')))
    }

    /// Rows after one position, up to and with another, in order.
    pub(crate) fn page(
        &self,
        number: Option<i64>,
        after: Option<&RowKey>,
        upto: Option<&RowKey>,
        limit: Option<usize>,
    ) -> Statement {
        let (sql, values) = self.select(&self.read_list(), &self.table, number, (after, upto));
        let limit = limit.map(|limit| format!(" LIMIT {limit}")).unwrap_or_default();
        bound(format!("{sql}{limit}"), values)
    }

    /// How many of some rows after a position there are, and their length: on SQLite.
    pub(crate) fn length(&self, number: Option<i64>, after: Option<&RowKey>, limit: usize) -> Statement {
        let lengths = self.columns.iter().map(|column| format!("COALESCE(octet_length({}), 0)", column.name));
        let length = format!("{} AS length", lengths.collect::<Vec<_>>().join(" + "));
        let (sql, values) = self.select(&length, &self.table, number, (after, None));
        // Added up where they are: as rows they would take longer than the copy.
        bound(format!("SELECT count(*), COALESCE(sum(length), 0) FROM ({sql} LIMIT {limit})"), values)
    }

    /// The position that is so many rows after another: on SQLite.
    pub(crate) fn end(&self, number: Option<i64>, after: Option<&RowKey>, rows: usize) -> Statement {
        let position: Vec<&str> = self.order.iter().map(|place| self.columns[*place].name.as_str()).collect();
        let (sql, values) = self.select(&position.join(", "), &self.table, number, (after, None));
        bound(format!("{sql} LIMIT 1 OFFSET {}", rows.saturating_sub(1)), values)
    }

    /// Adds the rows after one position, up to and with another, that the file `source` beside this one has: on SQLite.
    pub(crate) fn insert_beside(
        &self,
        number: Option<i64>,
        after: Option<&RowKey>,
        upto: Option<&RowKey>,
    ) -> Statement {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let names = names.join(", ");
        let from = format!("source.{}", self.table);
        let (select, values) = self.select(&names, &from, number, (after, upto));
        bound(format!("INSERT INTO main.{} ({names}) {select}", self.table), values)
    }

    /// A query for the rows after one position, up to and with another, in order; and the values of its parameters.
    fn select(
        &self,
        list: &str,
        table: &str,
        number: Option<i64>,
        (after, upto): (Option<&RowKey>, Option<&RowKey>),
    ) -> (String, Vec<Value>) {
        let columns: Vec<(usize, &Column)> = self.order_of(number).collect();
        let order: Vec<String> = columns.iter().map(|(_, column)| column.ordered(self.dialect)).collect();
        let order = order.join(", ");
        let mut values: Vec<Value> = Vec::new();
        let mut conditions: Vec<String> = Vec::new();
        for (bound, comparison) in [(after, ">"), (upto, "<=")] {
            if let Some(RowKey(bound)) = bound {
                let first = values.len() + 1;
                let parameters = columns.iter().zip(first..).map(|((_, column), at)| column.bound(at));
                let parameters = parameters.collect::<Vec<_>>().join(", ");
                conditions.push(format!("({order}) {comparison} ({parameters})"));
                values.extend(columns.iter().map(|(at, column)| travelling(column, &bound[*at])));
            }
        }
        if after.is_some() && self.leads {
            // Both engines would go by the beginning of the range, and pass over what was read before: again with
            // every page. So they are not shown that it is a comparison of the same column.
            conditions.push(format!("({} IS TRUE)", self.inside));
            conditions.extend(self.below.clone().filter(|_| upto.is_none()));
        } else {
            conditions.push(self.inside.clone());
        }
        let (conditions, rows) = (conditions.join(" AND "), self.rows_of(number));
        (format!("SELECT {list} FROM {table} WHERE {conditions}{rows} ORDER BY {order}"), values)
    }

    /// The place of the column that tells datasets apart, in a table that several share.
    pub(crate) fn number_place(&self) -> Option<usize> {
        let plain = self.rows_column.as_deref()?.trim_matches('"');
        self.columns.iter().position(|column| column.name.trim_matches('"') == plain)
    }

    /// The numbers of the datasets of the rows after one position, up to and with another.
    pub(crate) fn numbers(&self, after: Option<&RowKey>, upto: Option<&RowKey>) -> Option<Statement> {
        let column = self.rows_column.as_deref()?;
        let (sql, values) = self.select(column, &self.table, None, (after, upto));
        Some(bound(format!("SELECT DISTINCT {column} FROM ({sql}) AS some"), values))
    }

    /// How many rows there are of each dataset, by its number.
    pub(crate) fn count_by_number(&self) -> Option<Statement> {
        let column = self.rows_column.as_deref()?;
        Some(Statement::new(format!(
            "SELECT {column}, count(*) FROM {} WHERE {}{} GROUP BY {column} ORDER BY {column}",
            self.table, self.inside, self.scope
        )))
    }

    /// How many rows there are.
    pub(crate) fn count(&self, number: Option<i64>) -> Statement {
        Statement::new(format!(
            "SELECT count(*) FROM {} WHERE {}{}",
            self.table,
            self.inside,
            self.rows_of(number)
        ))
    }

    /// The number of a row's dataset, if there is a row; nothing where a table has but one dataset.
    pub(crate) fn any(&self, number: Option<i64>) -> Statement {
        Statement::new(format!(
            "SELECT {} FROM {} WHERE {}{} LIMIT 1",
            self.rows_column.as_deref().unwrap_or("NULL"),
            self.table,
            self.inside,
            self.rows_of(number)
        ))
    }

    /// Whether there is a row that a condition is true of.
    pub(crate) fn any_with(&self, number: Option<i64>, condition: &str) -> Statement {
        let (table, inside, rows) = (&self.table, &self.inside, self.rows_of(number));
        Statement::new(format!("SELECT 1 FROM {table} WHERE {inside}{rows} AND {condition} LIMIT 1"))
    }

    /// The keys of some rows, in no order.
    pub(crate) fn keys(&self, number: Option<i64>, limit: usize) -> Statement {
        let key: Vec<String> = self.key.iter().map(|place| self.columns[*place].read()).collect();
        let (key, rows) = (key.join(", "), self.rows_of(number));
        Statement::new(format!("SELECT {key} FROM {} WHERE {}{rows} LIMIT {limit}", self.table, self.inside))
    }

    /// The row of a key, if it is in the ranges.
    pub(crate) fn by_key(&self, key: &RowKey) -> Statement {
        self.bind_key(&self.by_key, key)
    }

    /// Likewise; nobody else changes it until the transaction ends.
    pub(crate) fn by_key_locked(&self, key: &RowKey) -> Statement {
        let text: Arc<str> = format!("{}{}", self.by_key, self.dialect.for_update()).into();
        self.bind_key(&text, key)
    }

    /// Removes the row of a key, if it is in the ranges.
    pub(crate) fn delete(&self, key: &RowKey) -> Statement {
        self.bind_key(&self.delete, key)
    }

    /// Removes the rows of keys, as far as they are in the ranges.
    pub(crate) fn deletes(&self, keys: &[&RowKey]) -> Vec<Statement> {
        let Some(text) = self.delete_many.as_ref().filter(|_| keys.len() > 1) else {
            return keys.iter().map(|key| self.delete(key)).collect();
        };
        let statement = |chunk: &[&RowKey]| {
            // The last one again and again: so one text will do, which is prepared once.
            let padded = (0..DELETE_ROWS).map(|place| chunk[place.min(chunk.len() - 1)]);
            let values = padded.flat_map(|key| self.key_values(key));
            values.fold(Statement::with_room(text.clone(), DELETE_ROWS * self.key.len()), Statement::bind)
        };
        keys.chunks(DELETE_ROWS).map(statement).collect()
    }

    fn bind_key(&self, text: &Arc<str>, key: &RowKey) -> Statement {
        self.key_values(key).fold(Statement::new(text.clone()), Statement::bind)
    }

    fn key_values(&self, RowKey(key): &RowKey) -> impl Iterator<Item = Value> {
        let columns = self.key.iter().map(|place| &self.columns[*place]);
        columns.zip(key).map(|(column, value)| travelling(column, value))
    }

    /// Adds a row that may be there already.
    pub(crate) fn upsert(&self, row: &[Value]) -> Statement {
        self.bind_row(Statement::new(self.upsert.clone()), row).expect(Expect::Rows(1))
    }

    /// Adds rows that are not there.
    pub(crate) fn inserts(&self, rows: &[Vec<Value>]) -> Vec<Statement> {
        let (mut statements, mut left) = (Vec::new(), rows);
        for (count, text) in &self.inserts {
            let whole = left.chunks_exact(*count);
            left = whole.remainder();
            statements.extend(whole.map(|chunk| {
                let empty = Statement::with_room(text.clone(), count * self.columns.len());
                chunk.iter().fold(empty, |statement, row| self.bind_row(statement, row))
            }));
        }
        statements
    }

    fn bind_row(&self, statement: Statement, row: &[Value]) -> Statement {
        let values = self.columns.iter().zip(row).map(|(column, value)| travelling(column, value));
        values.fold(statement, Statement::bind)
    }

    /// Where a row is in the order.
    pub(crate) fn position(&self, row: &[Value]) -> RowKey {
        RowKey(self.order.iter().map(|place| row[*place].clone()).collect())
    }

    /// The key that a capture has noted, as rows have it.
    pub(crate) fn noted(&self, RowKey(key): RowKey) -> RowKey {
        let columns = self.key.iter().map(|place| &self.columns[*place]);
        RowKey(columns.zip(key).map(|(column, value)| column.noted(value)).collect())
    }

    /// A key as people read it.
    pub(crate) fn shown(&self, RowKey(key): &RowKey) -> String {
        let columns = self.key.iter().map(|place| &self.columns[*place]);
        let shown: Vec<String> = columns.zip(key).map(|(column, value)| column.shown(value)).collect();
        shown.join(", ")
    }

    /// The key of a row.
    pub(crate) fn key_of(&self, row: &[Value]) -> RowKey {
        RowKey(self.key.iter().map(|place| row[*place].clone()).collect())
    }
}

/// The least range that has all of these in it.
fn outer(ranges: &[KeyRange]) -> KeyRange {
    let ends: Option<Vec<_>> = ranges.iter().map(KeyRange::hi).collect();
    let end = ends.and_then(|ends| ends.into_iter().max().cloned());
    KeyRange::new(Default::default(), end).unwrap_or_else(|_| KeyRange::all())
}

fn bound(sql: String, values: Vec<Value>) -> Statement {
    values.into_iter().fold(Statement::new(sql), Statement::bind)
}

/// A value as the column takes it.
fn travelling(column: &Column, value: &Value) -> Value {
    match (column.travel, value) {
        (_, Value::Null) => Value::Null,
        (Travel::Filed, Value::Blob(bytes)) if column.native == Native::Uuid => {
            Value::Text(polyshard_map::KeyBytes::from(bytes.as_slice()).to_hex())
        }
        (Travel::Cast | Travel::Filed, value) => Value::Text(as_text(value)),
        (_, value) => value.clone(),
    }
}

fn as_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Real(number) => format!("{number:?}"),
        Value::Text(text) => text.clone(),
        Value::Blob(bytes) => format!("\\x{}", polyshard_map::KeyBytes::from(bytes.as_slice()).to_hex()),
    }
}

/// A row in the one form that both engines give for the same row: what is compared.
pub(crate) fn canonical(columns: [&[Column]; 2], row: &[Value]) -> Vec<Value> {
    let value = |place: usize, value: &Value| {
        let cast = columns.iter().any(|columns| columns[place].travel == Travel::Cast);
        match value {
            Value::Null => Value::Null,
            Value::Bool(truth) if !cast => Value::Int((*truth).into()),
            value if cast => Value::Text(as_text(value)),
            // Neither equal nor unequal to itself otherwise. Files have one zero, which has no sign.
            Value::Real(number) => Value::Blob((number + 0.0).to_bits().to_be_bytes().to_vec()),
            value => value.clone(),
        }
    };
    row.iter().enumerate().map(|(place, found)| value(place, found)).collect()
}

/// Whether two rows are the same to the bit, and so in any form. Cheaper than to compare that.
pub(crate) fn is_identical(one: &[Value], other: &[Value]) -> bool {
    let same = |pair: (&Value, &Value)| match pair {
        (Value::Real(one), Value::Real(other)) => one.to_bits() == other.to_bits(),
        (one, other) => one == other,
    };
    one.len() == other.len() && one.iter().zip(other).all(same)
}

/// The bytes of a row, roughly, as they travel.
pub(crate) fn bytes_of(row: &[Value]) -> u64 {
    let bytes = |value: &Value| match value {
        Value::Null | Value::Bool(_) => 1,
        Value::Int(_) | Value::Real(_) => 8,
        Value::Text(text) => text.len() as u64,
        Value::Blob(bytes) => bytes.len() as u64,
    };
    row.iter().map(bytes).sum()
}

/// The rows of an answer.
pub(crate) fn rows_of(rows: impl IntoIterator<Item = Row>) -> Vec<Vec<Value>> {
    rows.into_iter().map(Row::into_values).collect()
}

#[cfg(test)]
mod tests;
