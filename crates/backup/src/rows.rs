//! The rows of one shardlet in a database: found, read in pages, removed, added.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_engine::{Dialect, Statement, Transaction, Value};
use polyshard_map::{Key, KeyRange, MapDefinition, Scheme};
use polyshard_shard::{Column, Dataset, Placement, Shape, Shard};

use crate::{BackupError, notation};

/// Rows read at once.
pub(crate) const PAGE_ROWS: usize = 1_000;
/// Rows of one insert, and parameters of one statement: SQLite takes 32766, PostgreSQL 65535.
const INSERT_ROWS: usize = 64;
const PARAMETERS_MAX: usize = 32_000;

/// Which rows belong to a shardlet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Those of the key alone.
    Key,
    /// Those of its bucket: of a hash map, where rows may not tell their key.
    Bucket,
}

/// The rows of one shardlet in one dataset's table.
pub(crate) struct Rows {
    pub(crate) dataset: Dataset,
    pub(crate) shape: Shape,
    dialect: Dialect,
    condition: String,
    values: Vec<Value>,
    /// Whether the condition holds for the key alone.
    of_key: bool,
    /// Whether they are read as SQLite files keep them, though they are on PostgreSQL.
    pub(crate) is_filed: bool,
}

/// The tables of a map on a shard that may hold rows of a key, those that others refer to first.
pub(crate) async fn tables(
    shard: &Shard,
    definition: &MapDefinition,
    key: &Key,
    extent: Extent,
) -> Result<Vec<Rows>, BackupError> {
    let wrong = |error: polyshard_shard::ShardError| BackupError::of_shard(shard.id(), error);
    let mut found = Vec::new();
    for dataset in shard.datasets(definition.name()).await.map_err(wrong)? {
        // A table that a user has dropped has no rows.
        if let Some(shape) = shard.shape(&dataset.table).await.map_err(wrong)?.map(Shape::in_own_notation) {
            found.push(Rows::new(dataset, shape, shard.dialect(), definition, key, extent)?);
        }
    }
    Ok(parents_first(found))
}

/// The tables of a map on a shard that may hold rows of a range, those that others refer to first.
pub(crate) async fn tables_of_range(
    shard: &Shard,
    definition: &MapDefinition,
    range: &KeyRange,
) -> Result<Vec<Rows>, BackupError> {
    let wrong = |error: polyshard_shard::ShardError| BackupError::of_shard(shard.id(), error);
    let mut found = Vec::new();
    for dataset in shard.datasets(definition.name()).await.map_err(wrong)? {
        if let Some(shape) = shard.shape(&dataset.table).await.map_err(wrong)?.map(Shape::in_own_notation) {
            found.push(Rows::of_range(dataset, shape, shard.dialect(), definition, range)?);
        }
    }
    Ok(parents_first(found))
}

/// Tables in an order in which each comes after those that it refers to; those that refer to each other in a circle
/// stay as they are.
fn parents_first(mut left: Vec<Rows>) -> Vec<Rows> {
    let mut sorted: Vec<Rows> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let waits = |one: &Rows| {
            let others = left.iter().filter(|other| other.shape.identity != one.shape.identity);
            others.into_iter().any(|other| one.shape.references.contains(&other.shape.identity))
        };
        let next = left.iter().position(|one| !waits(one)).unwrap_or(0);
        sorted.push(left.remove(next));
    }
    sorted
}

impl Rows {
    pub(crate) fn new(
        dataset: Dataset,
        shape: Shape,
        dialect: Dialect,
        definition: &MapDefinition,
        key: &Key,
        extent: Extent,
    ) -> Result<Rows, BackupError> {
        let refuse = |why: String| BackupError::Refused(format!("{}: {why}", dataset.name));
        let placement = definition.placement(key).map_err(|error| refuse(error.to_string()))?;
        let ranges = [KeyRange::point(placement)];
        let condition = dataset.placement.in_ranges(dialect, definition, &ranges, "");
        let mut condition = condition.map_err(|error| refuse(error.to_string()))?;
        let hashes = !matches!(definition.scheme(), Scheme::List | Scheme::Range);
        let (mut of_key, mut values) = (!hashes, Vec::new());
        if let (Placement::Key(columns), true, Extent::Key) = (&dataset.placement, hashes, extent)
            && let Some(equal) = equal(columns, key, dialect, &mut values)
        {
            condition = format!("{condition} AND {equal}");
            of_key = true;
        }
        condition.push_str(&dataset.and_own_rows(dialect));
        let of_key = of_key || extent == Extent::Bucket;
        Ok(Rows { dataset, shape, dialect, condition, values, of_key, is_filed: false })
    }

    /// The rows of a range, where rows tell their place: not of a map that hashes.
    pub(crate) fn of_range(
        dataset: Dataset,
        shape: Shape,
        dialect: Dialect,
        definition: &MapDefinition,
        range: &KeyRange,
    ) -> Result<Rows, BackupError> {
        let condition = dataset.placement.in_ranges(dialect, definition, std::slice::from_ref(range), "");
        let mut condition =
            condition.map_err(|error| BackupError::Refused(format!("{}: {error}", dataset.name)))?;
        condition.push_str(&dataset.and_own_rows(dialect));
        Ok(Rows { dataset, shape, dialect, condition, values: Vec::new(), of_key: true, is_filed: false })
    }

    /// Has them read as SQLite files keep them, so that either engine can take them.
    pub(crate) fn read_as_files_keep(&mut self) {
        if self.dialect == Dialect::Postgres {
            notation::as_files_keep(&mut self.shape);
            self.is_filed = true;
        }
    }

    /// Leaves a column out; one of the primary key stays.
    pub(crate) fn leave_out(&mut self, name: &str) -> Result<(), BackupError> {
        let is = |column: &Column| column.name == name || column.name.trim_matches('"') == name;
        let at = self.shape.columns.iter().position(is);
        let refuse = |why: &str| BackupError::Refused(format!("{}: column {name} {why}", self.dataset.name));
        let at = at.ok_or_else(|| refuse("is not there"))?;
        if self.shape.primary_key.contains(&at) {
            return Err(refuse("is of the primary key, and cannot be left out"));
        }
        self.shape.columns.remove(at);
        for place in self.shape.primary_key.iter_mut().filter(|place| **place > at) {
            *place -= 1;
        }
        Ok(())
    }

    /// How many there are.
    pub(crate) async fn count(&self, tx: &mut Transaction) -> Result<u64, BackupError> {
        let sql = format!("SELECT count(*) FROM {} WHERE {}", self.dataset.table, self.condition);
        Ok(tx.run(self.statement(sql)).await?.one()?.int(0)? as u64)
    }

    /// The keys of the first so many, in their order. It may have to read the whole table.
    pub(crate) fn first_keys(&self, limit: usize) -> Result<Statement, BackupError> {
        let key: Vec<&Column> = self.shape.key().collect();
        if key.is_empty() {
            return Err(BackupError::Refused(format!(
                "{} has no primary key, by which its rows could be told apart; add one",
                self.dataset.name
            )));
        }
        let read: Vec<String> = key.iter().map(|column| column.read()).collect();
        let order: Vec<String> = key.iter().map(|column| column.ordered(self.dialect)).collect();
        Ok(self.statement(format!(
            "SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT {limit}",
            read.join(", "),
            self.dataset.table,
            self.condition,
            order.join(", ")
        )))
    }

    /// Removes those between two keys, both included.
    pub(crate) fn remove_between(&self, first: &[Value], last: &[Value]) -> Statement {
        self.between("DELETE", first, last)
    }

    /// All columns of those.
    pub(crate) fn read_between(&self, first: &[Value], last: &[Value]) -> Statement {
        let columns: Vec<String> = self.shape.columns.iter().map(Column::read).collect();
        self.between(&format!("SELECT {}", columns.join(", ")), first, last)
    }

    fn between(&self, verb: &str, first: &[Value], last: &[Value]) -> Statement {
        let key: Vec<&Column> = self.shape.key().collect();
        let order: Vec<String> = key.iter().map(|column| column.ordered(self.dialect)).collect();
        let order = order.join(", ");
        let side = |from: usize| {
            let parts = key.iter().enumerate().map(|(at, column)| column.parameter(from + at));
            parts.collect::<Vec<_>>().join(", ")
        };
        let begin = self.values.len() + 1;
        let sql = format!(
            "{verb} FROM {} WHERE {} AND ({order}) >= ({}) AND ({order}) <= ({})",
            self.dataset.table,
            self.condition,
            side(begin),
            side(begin + key.len())
        );
        first.iter().chain(last).cloned().fold(self.statement(sql), Statement::bind)
    }

    /// Removes all of them, by one statement.
    pub(crate) fn remove_all(&self) -> Statement {
        self.statement(format!("DELETE FROM {} WHERE {}", self.dataset.table, self.condition))
    }

    fn statement(&self, sql: String) -> Statement {
        self.values.iter().cloned().fold(Statement::new(sql), Statement::bind)
    }

    /// Whether there are any.
    pub(crate) async fn any(&self, tx: &mut Transaction) -> Result<bool, BackupError> {
        let sql = format!("SELECT 1 FROM {} WHERE {} LIMIT 1", self.dataset.table, self.condition);
        Ok(!tx.run(self.statement(sql)).await?.is_empty())
    }

    /// Whether rows of other keys would be taken for this one's.
    pub(crate) async fn check_apart(&self, tx: &mut Transaction) -> Result<(), BackupError> {
        if self.of_key || !self.any(tx).await? {
            return Ok(());
        }
        Err(BackupError::Refused(format!(
            "rows of {} do not tell their key, only the bucket that it shares with other keys; use --bucket to take \
             all keys of the bucket together",
            self.dataset.name
        )))
    }

    /// Removes them.
    pub(crate) async fn remove(&self, tx: &mut Transaction) -> Result<u64, BackupError> {
        let sql = format!("DELETE FROM {} WHERE {}", self.dataset.table, self.condition);
        Ok(tx.run(self.statement(sql)).await?.affected())
    }

    /// A page of them, in the order of the primary key, after a row.
    pub(crate) async fn page(
        &self,
        tx: &mut Transaction,
        after: Option<&[Value]>,
    ) -> Result<Vec<Vec<Value>>, BackupError> {
        let key: Vec<&Column> = self.shape.key().collect();
        if key.is_empty() {
            return Err(BackupError::Refused(format!(
                "{} has no primary key, by which its rows could be read in order; add one, or back up the shard",
                self.dataset.name
            )));
        }
        let list = |parts: Vec<String>| parts.join(", ");
        let order = list(key.iter().map(|column| column.ordered(self.dialect)).collect());
        let mut sql = format!(
            "SELECT {} FROM {} WHERE {}",
            list(self.shape.columns.iter().map(Column::read).collect()),
            self.dataset.table,
            self.condition
        );
        let mut values = self.values.clone();
        if let Some(row) = after {
            let first = values.len() + 1;
            let parameters = key.iter().enumerate().map(|(at, column)| column.bound(first + at));
            sql.push_str(&format!(" AND ({order}) > ({})", list(parameters.collect())));
            let places = self.shape.primary_key.iter();
            values.extend(
                places.zip(&key).map(|(place, column)| notation::taken_by(column, row[*place].clone())),
            );
        }
        sql.push_str(&format!(" ORDER BY {order} LIMIT {PAGE_ROWS}"));
        let statement = values.into_iter().fold(Statement::new(sql), Statement::bind);
        let rows = tx.run(statement).await?.into_rows();
        Ok(rows.into_iter().map(polyshard_engine::Row::into_values).collect())
    }
}

/// A condition that the key's columns have its values, for the kinds of keys that both engines compare alike.
fn equal(columns: &[String], key: &Key, dialect: Dialect, values: &mut Vec<Value>) -> Option<String> {
    let parts: Vec<&Key> = match key {
        Key::Tuple(parts) => parts.iter().collect(),
        single => vec![single],
    };
    if parts.len() != columns.len() {
        return None;
    }
    let mut conditions = Vec::new();
    for (column, part) in columns.iter().zip(parts) {
        let (value, kind) = match part {
            Key::BigInt(number) => (Value::Int(*number), "bigint"),
            Key::Int(number) => (Value::Int((*number).into()), "bigint"),
            Key::Text(text) => (Value::Text(text.clone()), "text"),
            _ => return None,
        };
        values.push(value);
        let at = values.len();
        conditions.push(match dialect {
            Dialect::Sqlite => format!("{column} = ${at}"),
            Dialect::Postgres if kind == "text" => format!("({column})::text COLLATE \"C\" = ${at}::text"),
            Dialect::Postgres => format!("{column} = ${at}::{kind}"),
        });
    }
    Some(format!("({})", conditions.join(" AND ")))
}

/// Adds rows to a table, whose columns are named.
pub(crate) struct Adding {
    table: String,
    columns: Vec<Column>,
    dialect: Dialect,
    texts: BTreeMap<usize, Arc<str>>,
    rows: Vec<Vec<Value>>,
    at_once: usize,
}

impl Adding {
    pub(crate) fn new(table: &str, columns: Vec<Column>, dialect: Dialect) -> Adding {
        let at_once = INSERT_ROWS.min(PARAMETERS_MAX / columns.len().max(1)).max(1);
        Adding {
            table: table.to_owned(),
            columns,
            dialect,
            texts: BTreeMap::new(),
            rows: Vec::new(),
            at_once,
        }
    }

    /// Adds a row, sooner or later.
    pub(crate) async fn push(&mut self, tx: &mut Transaction, row: Vec<Value>) -> Result<(), BackupError> {
        self.rows.push(row);
        if self.rows.len() >= self.at_once { self.flush(tx).await } else { Ok(()) }
    }

    /// Adds what is left.
    pub(crate) async fn flush(&mut self, tx: &mut Transaction) -> Result<(), BackupError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        let text = match self.texts.get(&rows.len()) {
            Some(text) => text.clone(),
            None => {
                let text: Arc<str> = self.text(rows.len()).into();
                self.texts.insert(rows.len(), text.clone());
                text
            }
        };
        let columns = &self.columns;
        let values = rows
            .into_iter()
            .flat_map(|row| columns.iter().zip(row).map(|(column, value)| notation::taken_by(column, value)));
        tx.run(values.fold(Statement::new(text), Statement::bind)).await?;
        Ok(())
    }

    fn text(&self, rows: usize) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        let tuple = |row: usize| {
            let first = row * self.columns.len() + 1;
            let parts = self.columns.iter().enumerate().map(|(at, column)| column.parameter(first + at));
            format!("({})", parts.collect::<Vec<_>>().join(", "))
        };
        // Numbers that the database gave stay as they are.
        let identity = match self.dialect {
            Dialect::Postgres => " OVERRIDING SYSTEM VALUE",
            Dialect::Sqlite => "",
        };
        let tuples: Vec<String> = (0..rows).map(tuple).collect();
        format!("INSERT INTO {} ({}){identity} VALUES {}", self.table, names.join(", "), tuples.join(", "))
    }
}
