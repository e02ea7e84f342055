//! Soft references: which columns of a table name rows of another, whose shard may be another too, and the look for
//! those that name nothing (C9, E4).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use polyshard_engine::{Dialect, Scan, Statement};
use polyshard_map::ShardId;
use polyshard_router::Router;
use polyshard_shard::{Shard, ShardError};
use polyshard_sql::{Placement, Schema, TableName, quoted};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The format this program writes.
const FORMAT: u64 = 1;
/// Keys that come from a shard at once.
const PAGE_ROWS: usize = 1024;
/// Keys without a row that are looked for once more, one by one: shards are not read at one moment.
const LOOKED_TWICE_MAX: usize = 1_000;
/// Keys that are named to people.
const EXAMPLES: usize = 5;
/// Columns that one soft reference may have, as in a key.
pub const COLUMNS_MAX: usize = 8;

/// A soft reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The schema and table that refers.
    table: (String, String),
    /// Its columns.
    columns: Vec<String>,
    /// The schema and table that is referred to.
    to: (String, String),
    /// Its columns, in the same order.
    to_columns: Vec<String>,
}

/// What is wrong with a soft reference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Broken {
    /// Rows that refer to none.
    pub rows: u64,
    /// Different keys that they have.
    pub keys: u64,
    /// Some of those, as texts.
    pub examples: Vec<String>,
}

/// Why a soft reference could not be looked into.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// It cannot be as it is: fix what is named.
    #[error("{0}")]
    Invalid(String),
    /// A shard could not be asked.
    #[error("shard {shard}: {error}")]
    Shard {
        /// Which.
        shard: ShardId,
        /// Why.
        error: ShardError,
    },
}

impl Link {
    /// A soft reference between columns that are there and of the same types.
    pub fn new(
        table: TableName,
        columns: Vec<String>,
        to: TableName,
        to_columns: Vec<String>,
        schema: &Schema,
    ) -> Result<Link, String> {
        if columns.is_empty() || columns.len() > COLUMNS_MAX || columns.len() != to_columns.len() {
            return Err(format!("it needs as many columns on both sides, and at most {COLUMNS_MAX}"));
        }
        let kind = |table: &TableName, column: &str| {
            let found = schema.tables.get(table).ok_or_else(|| format!("there is no table {table}"))?;
            let place =
                found.column(column).ok_or_else(|| format!("table {table} has no column {column}"))?;
            Ok::<_, String>((found.columns[place].type_oid, found.columns[place].type_name.clone()))
        };
        for (column, to_column) in columns.iter().zip(&to_columns) {
            let ((from_type, from), (other_type, other)) = (kind(&table, column)?, kind(&to, to_column)?);
            if from_type != other_type {
                return Err(format!(
                    "{table}.{column} is {from}, and {to}.{to_column} is {other}; they must be of one type"
                ));
            }
        }
        let pair = |name: TableName| (name.schema, name.name);
        Ok(Link { table: pair(table), columns, to: pair(to), to_columns })
    }

    /// The stored form.
    pub fn write(&self) -> Value {
        json!({ "format": FORMAT, "says": self })
    }

    /// Reads the stored form.
    pub fn read(body: &Value) -> Result<Link, String> {
        if body["format"].as_u64().is_none_or(|format| format > FORMAT) {
            return Err("a link is of a newer program; upgrade this process".to_owned());
        }
        serde_json::from_value(body["says"].clone())
            .map_err(|error| format!("a link cannot be read: {error}"))
    }

    /// Looks for rows that refer to none. All shards must answer: what is on one that does not would be missing.
    pub async fn check(&self, router: &Router, schema: &Schema) -> Result<Broken, LinkError> {
        let view = router.view();
        let mut shards = Vec::new();
        for id in view.shards.keys() {
            shards.push(router.administer(id).await.map_err(on(id))?);
        }
        let child = Side::new(schema, &self.table, &self.columns)?;
        let parent = Side::new(schema, &self.to, &self.to_columns)?;
        let (mut children, mut parents) = (Vec::new(), Vec::new());
        for shard in child.on(&shards) {
            children.push(Stream::open(shard, &child).await?);
        }
        for shard in parent.on(&shards) {
            parents.push(Stream::open(shard, &parent).await?);
        }
        let (mut children, mut parents) = (Merged::new(children), Merged::new(parents));
        let mut broken = Broken::default();
        let mut looked = 0;
        let mut have = parents.next().await?;
        while let Some((key, rows)) = children.next().await? {
            while have.as_ref().is_some_and(|(have, _)| *have < key) {
                have = parents.next().await?;
            }
            if have.as_ref().is_some_and(|(have, _)| *have == key) {
                continue;
            }
            looked += 1;
            if looked <= LOOKED_TWICE_MAX && !is_broken(&shards, (&child, &parent), &key).await? {
                continue;
            }
            broken.rows += rows;
            broken.keys += 1;
            if broken.examples.len() < EXAMPLES {
                broken.examples.push(key.join(", "));
            }
        }
        Ok(broken)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((schema, table), (to_schema, to)) = (&self.table, &self.to);
        let (columns, to_columns) = (self.columns.join(", "), self.to_columns.join(", "));
        write!(f, "{schema}.{table} ({columns}) names a row of {to_schema}.{to} ({to_columns})")
    }
}

fn on(shard: &ShardId) -> impl Fn(ShardError) -> LinkError + use<> {
    let shard = shard.clone();
    move |error| LinkError::Shard { shard: shard.clone(), error }
}

fn engine(shard: &Shard) -> impl Fn(polyshard_engine::Error) -> LinkError + use<> {
    let wrap = on(shard.id());
    move |error| wrap(error.into())
}

/// One table of a soft reference.
struct Side {
    table: TableName,
    /// Names and types.
    columns: Vec<(String, String)>,
    /// Whether every shard has all of its rows.
    is_everywhere: bool,
}

impl Side {
    fn new(
        schema: &Schema,
        (within, name): &(String, String),
        columns: &[String],
    ) -> Result<Side, LinkError> {
        let table = TableName { schema: within.clone(), name: name.clone() };
        let gone = |what: String| LinkError::Invalid(format!("{what} is gone; remove the link"));
        let found = schema.tables.get(&table).ok_or_else(|| gone(format!("table {table}")))?;
        let column = |column: &String| {
            let place = found.column(column).ok_or_else(|| gone(format!("column {column} of {table}")))?;
            Ok((column.clone(), found.columns[place].type_name.clone()))
        };
        let columns = columns.iter().map(column).collect::<Result<_, LinkError>>()?;
        let is_everywhere = matches!(found.placement, Placement::Reference { .. });
        Ok(Side { table, columns, is_everywhere })
    }

    /// The shards that its rows are read from: each row once.
    fn on<'a>(&self, shards: &'a [Arc<Shard>]) -> &'a [Arc<Shard>] {
        if self.is_everywhere { shards.get(..1).unwrap_or(shards) } else { shards }
    }

    fn name(&self, dialect: Dialect) -> String {
        match dialect {
            Dialect::Postgres => format!("{}.{}", quoted(&self.table.schema), quoted(&self.table.name)),
            Dialect::Sqlite => quoted(&self.table.name),
        }
    }

    /// The keys that there are, in the order of their bytes, and how many rows have each.
    fn keys(&self, dialect: Dialect) -> Statement {
        let texts: Vec<String> = self
            .columns
            .iter()
            .map(|(column, _)| match dialect {
                Dialect::Postgres => format!("({}::text) COLLATE \"C\"", quoted(column)),
                Dialect::Sqlite => format!("CAST({} AS TEXT)", quoted(column)),
            })
            .collect();
        let given: Vec<String> =
            self.columns.iter().map(|(column, _)| format!("{} IS NOT NULL", quoted(column))).collect();
        let places: Vec<String> = (1..=texts.len()).map(|place| place.to_string()).collect();
        let (texts, given, places) = (texts.join(", "), given.join(" AND "), places.join(", "));
        Statement::new(format!(
            "SELECT {texts}, count(*) FROM {} WHERE {given} GROUP BY {places} ORDER BY {places}",
            self.name(dialect)
        ))
    }

    /// Whether there is a row of a key.
    fn has(&self, dialect: Dialect, key: &[String]) -> Statement {
        let equal: Vec<String> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, (column, kind))| match dialect {
                Dialect::Postgres => format!("{} = CAST(${}::text AS {kind})", quoted(column), at + 1),
                Dialect::Sqlite => format!("CAST({} AS TEXT) = ${}", quoted(column), at + 1),
            })
            .collect();
        let sql = format!("SELECT 1 FROM {} WHERE {} LIMIT 1", self.name(dialect), equal.join(" AND "));
        key.iter().fold(Statement::new(sql), |statement, part| statement.bind(part.clone()))
    }
}

/// Whether a key still has rows that refer by it, and none that it names; looked for in this order, so that a row that
/// came in between counts.
async fn is_broken(
    shards: &[Arc<Shard>],
    (child, parent): (&Side, &Side),
    key: &[String],
) -> Result<bool, LinkError> {
    for (side, wanted) in [(parent, false), (child, true)] {
        let mut found = false;
        for shard in side.on(shards) {
            let db = shard.carrier().await.map_err(on(shard.id()))?;
            let rows = db.read(side.has(shard.dialect(), key)).await.map_err(engine(shard))?;
            found |= !rows.is_empty();
        }
        if found != wanted {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The keys of one shard.
struct Stream {
    shard: Arc<Shard>,
    scan: Option<Scan>,
    page: VecDeque<(Vec<String>, u64)>,
}

impl Stream {
    async fn open(shard: &Arc<Shard>, side: &Side) -> Result<Stream, LinkError> {
        let db = shard.carrier().await.map_err(on(shard.id()))?;
        let scan = db.scan(side.keys(shard.dialect()), PAGE_ROWS).await.map_err(engine(shard))?;
        Ok(Stream { shard: shard.clone(), scan: Some(scan), page: VecDeque::new() })
    }

    async fn fill(&mut self) -> Result<(), LinkError> {
        if !self.page.is_empty() {
            return Ok(());
        }
        let wrong = engine(&self.shard);
        let Some(scan) = &mut self.scan else { return Ok(()) };
        let Some(rows) = scan.next().await.map_err(&wrong)? else {
            self.scan = None;
            return Ok(());
        };
        for row in rows.rows() {
            let last = row.values().len() - 1;
            let key: Result<Vec<String>, _> = (0..last).map(|at| row.text(at).map(str::to_owned)).collect();
            self.page.push_back((key.map_err(&wrong)?, row.int(last).map_err(&wrong)? as u64));
        }
        Ok(())
    }
}

/// The keys of all shards, in one order, each once.
struct Merged(Vec<Stream>);

impl Merged {
    fn new(streams: Vec<Stream>) -> Merged {
        Merged(streams)
    }

    async fn next(&mut self) -> Result<Option<(Vec<String>, u64)>, LinkError> {
        for stream in &mut self.0 {
            stream.fill().await?;
        }
        // Texts are compared byte by byte here, as the shards were told to.
        let least = self.0.iter().filter_map(|stream| stream.page.front()).map(|(key, _)| key).min();
        let Some(least) = least.cloned() else { return Ok(None) };
        let mut rows = 0;
        for stream in &mut self.0 {
            if stream.page.front().is_some_and(|(key, _)| *key == least)
                && let Some((_, count)) = stream.page.pop_front()
            {
                rows += count;
            }
        }
        Ok(Some((least, rows)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_of_format_1_is_read_for_ever() {
        let link = Link {
            table: ("public".into(), "line".into()),
            columns: vec!["order_id".into()],
            to: ("public".into(), "orders".into()),
            to_columns: vec!["id".into()],
        };
        let text = r#"{"format":1,"says":{"table":["public","line"],"columns":["order_id"],"to":["public","orders"],
            "to_columns":["id"]}}"#;
        let stored: Value = serde_json::from_str(text).unwrap();
        assert_eq!(Link::read(&stored), Ok(link.clone()));
        assert_eq!(link.write(), stored);
        assert_eq!(link.to_string(), "public.line (order_id) names a row of public.orders (id)");
        assert!(Link::read(&json!({ "format": 2, "says": {} })).is_err());
    }
}
