//! What a table looks like, read from the database itself: columns, primary key, references, triggers.

use polyshard_engine::{Dialect, Row, Statement, Transaction, Value};

use crate::ShardError;
use crate::filed::Native;

/// A table, as far as carrying its rows needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Columns that are stored, in order; generated ones are left out.
    pub columns: Vec<Column>,
    /// Places of the primary key's columns, in its order; empty if there is none.
    pub primary_key: Vec<usize>,
    /// The tables it refers to: the database's own name for each.
    pub references: Vec<String>,
    /// The database's own name for it.
    pub identity: String,
    /// Triggers that are not ours.
    pub triggers: Vec<String>,
    /// Whether a table refers to it: deleting a row of it may then take others with it.
    pub is_referred_to: bool,
}

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, quoted for SQL.
    pub name: String,
    /// Its type, as the database writes it.
    pub kind: String,
    /// How its values travel.
    pub travel: Travel,
    /// Which of the types it is that files keep in another form.
    pub native: Native,
}

/// How the values of a column travel between databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Travel {
    /// As they are.
    Plain,
    /// Text that is compared byte by byte.
    Text,
    /// As text, in the database's own notation.
    Cast,
    /// As SQLite files keep them: of a column on PostgreSQL.
    Filed,
}

impl Column {
    /// The expression that reads it.
    pub fn read(&self) -> String {
        self.read_as(&self.name)
    }

    /// Likewise, where it goes by this name.
    pub(crate) fn read_as(&self, name: &str) -> String {
        match self.travel {
            Travel::Plain | Travel::Text => name.to_owned(),
            Travel::Cast => as_text(name),
            Travel::Filed => self.native.read(name),
        }
    }

    /// The parameter that writes it or is compared with it.
    pub fn parameter(&self, number: usize) -> String {
        match self.travel {
            Travel::Plain | Travel::Text => format!("${number}"),
            Travel::Cast => format!("CAST(${number}::text AS {})", self.kind),
            Travel::Filed => self.native.parameter(number, &self.kind),
        }
    }

    /// The column in an order that both engines agree on.
    pub fn ordered(&self, dialect: Dialect) -> String {
        match (dialect, self.travel, self.native) {
            (Dialect::Postgres, Travel::Text, _) | (Dialect::Postgres, _, Native::Char) => {
                format!("{} COLLATE \"C\"", self.name)
            }
            (Dialect::Postgres, Travel::Filed, Native::Enum) => {
                format!("({})::text COLLATE \"C\"", self.name)
            }
            _ => self.name.clone(),
        }
    }

    /// The parameter that is compared with the column in that order.
    pub fn bound(&self, number: usize) -> String {
        match (self.travel, self.native) {
            (Travel::Filed, Native::Enum) => format!("${number}::text"),
            _ => self.parameter(number),
        }
    }

    /// A value of a key that a capture has noted, as rows have it.
    pub fn noted(&self, value: Value) -> Value {
        match (self.travel, self.native, value) {
            (Travel::Filed, Native::Uuid, Value::Text(text)) => {
                let bytes = polyshard_map::KeyBytes::from_hex(&text.replace('-', ""));
                bytes.map_or(Value::Text(text), |bytes| Value::Blob(bytes.into_vec()))
            }
            (_, _, value) => value,
        }
    }

    /// A value of it, as it travels, for people to read.
    pub fn shown(&self, value: &Value) -> String {
        let filed = Some(value).filter(|_| self.travel == Travel::Filed);
        filed.and_then(|value| self.native.shown(value)).unwrap_or_else(|| match value {
            Value::Null => "NULL".to_owned(),
            Value::Bool(truth) => truth.to_string(),
            Value::Int(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Text(text) => text.clone(),
            Value::Blob(bytes) => format!("\\x{}", polyshard_map::KeyBytes::from(bytes.as_slice()).to_hex()),
        })
    }

    /// The condition that PostgreSQL has a value in it that no file can keep, if there are such.
    pub fn unkeepable(&self) -> Option<String> {
        self.native.unkeepable(&self.name, &self.kind)
    }

    /// Whether this is such a value, as it travels.
    pub fn is_unkeepable(&self, value: &Value) -> bool {
        match (self.native, value) {
            (Native::Float, Value::Real(number)) => number.is_nan(),
            (Native::Array | Native::Moments, Value::Text(text)) => {
                text.starts_with("{{")
                    || text.starts_with('[')
                    || self.kind == "double precision[]" && text.contains("NaN")
            }
            _ => false,
        }
    }
}

impl Shape {
    /// A column by its quoted or plain name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let plain = |name: &str| name.trim_matches('"').to_owned();
        self.columns.iter().find(|column| plain(&column.name) == plain(name))
    }

    /// The columns of the primary key.
    pub fn key(&self) -> impl Iterator<Item = &Column> {
        self.primary_key.iter().map(|place| &self.columns[*place])
    }

    /// The table as rows of it are kept in a copy for the same engine: each value as the database itself writes it.
    pub fn in_own_notation(mut self) -> Shape {
        for column in &mut self.columns {
            if column.travel == Travel::Filed {
                column.travel = Travel::Cast;
            }
        }
        self
    }

    /// A table on PostgreSQL as rows of it travel from and to a file, or which column of it cannot, and why not.
    pub fn facing_file(&self, file: &Shape) -> Result<Shape, String> {
        let mut faced = self.clone();
        for (place, column) in faced.columns.iter_mut().enumerate() {
            let is_key = self.primary_key.contains(&place);
            let name = column.name.trim_matches('"').to_owned();
            if is_key && !column.native.is_ordered_alike() {
                return Err(format!(
                    "column {name} of its primary key is of the type {}, which files put in another order",
                    column.kind
                ));
            }
            // One that is not there is told of by whoever looks for it.
            let Some(other) = file.column(&column.name) else { continue };
            let needs = match column.native {
                Native::Date | Native::Time | Native::Timestamp | Native::TimestampTz => "int",
                Native::Uuid => "blob",
                Native::Interval | Native::Char | Native::Enum | Native::Array | Native::Moments => "text",
                Native::Other | Native::Document | Native::Float => continue,
            };
            if other.kind.contains(needs) {
                column.travel = Travel::Filed;
            } else if is_key || other.travel != Travel::Text {
                return Err(format!(
                    "column {name} is of the type {} on PostgreSQL and of the type {} in the file; make a new column \
                     of one type for it",
                    column.kind, other.kind
                ));
            }
        }
        Ok(faced)
    }

    /// What must be the same on two shards of one engine for rows to be carried between them.
    pub fn fingerprint(&self) -> Vec<(String, String)> {
        self.columns.iter().map(|column| (column.name.clone(), column.kind.clone())).collect()
    }
}

/// Reads the shape of a table; none if there is no such table.
pub(crate) async fn read(
    tx: &mut Transaction,
    dialect: Dialect,
    table: &str,
) -> Result<Option<Shape>, ShardError> {
    match dialect {
        Dialect::Sqlite => read_sqlite(tx, table).await,
        Dialect::Postgres => read_postgres(tx, table).await,
    }
}

async fn read_sqlite(tx: &mut Transaction, table: &str) -> Result<Option<Shape>, ShardError> {
    let bare = unquoted(table);
    let ask = |sql: &str| Statement::new(sql).bind(bare.clone());
    let rows = tx.run(ask("SELECT name, type, pk, hidden FROM pragma_table_xinfo($1) ORDER BY cid")).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut columns = Vec::new();
    let mut key: Vec<(i64, usize)> = Vec::new();
    for row in rows.rows().iter().filter(|row| row.get(3) == &Value::Int(0)) {
        let kind = row.text(1)?.to_ascii_lowercase();
        let travel = if kind.contains("char") || kind.contains("text") || kind.contains("clob") {
            Travel::Text
        } else {
            Travel::Plain
        };
        if row.int(2)? > 0 {
            key.push((row.int(2)?, columns.len()));
        }
        columns.push(Column { name: quoted(row.text(0)?), kind, travel, native: Native::Other });
    }
    key.sort_unstable();
    let references = texts(
        &tx.run(ask("SELECT DISTINCT lower(\"table\") FROM pragma_foreign_key_list($1)")).await?.into_rows(),
    )?;
    let triggers = "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND lower(tbl_name) = lower($1) \
                    AND name NOT LIKE 'polyshard\\_%' ESCAPE '\\'";
    let triggers = texts(&tx.run(ask(triggers)).await?.into_rows())?;
    let primary_key = key.into_iter().map(|(_, place)| place).collect();
    let referring = "SELECT 1 FROM sqlite_schema t, pragma_foreign_key_list(t.name) f \
                     WHERE t.type = 'table' AND lower(f.\"table\") = lower($1) LIMIT 1";
    let is_referred_to = !tx.run(ask(referring)).await?.is_empty();
    let identity = bare.to_lowercase();
    Ok(Some(Shape { columns, primary_key, references, identity, triggers, is_referred_to }))
}

/// Types whose values the engine reads and writes as they are, and those that are text.
const PLAIN: &[&str] =
    &["bool", "int2", "int4", "int8", "float4", "float8", "bytea", "uuid", "json", "jsonb"];
const TEXT: &[&str] = &["text", "varchar"];

async fn read_postgres(tx: &mut Transaction, table: &str) -> Result<Option<Shape>, ShardError> {
    let columns = "SELECT quote_ident(a.attname), format_type(a.atttypid, a.atttypmod), \
                   CASE WHEN t.typtype = 'e' THEN 'an enum' WHEN t.typname = '_timestamptz' THEN t.typname::text \
                     WHEN t.typcategory = 'A' THEN 'an array' \
                     WHEN t.typnamespace <> 'pg_catalog'::regnamespace THEN 'made' ELSE t.typname::text END, \
                   COALESCE((SELECT k.ord FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, ord) \
                     WHERE i.indrelid = a.attrelid AND i.indisprimary AND k.attnum = a.attnum), 0)::bigint \
                   FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attrelid = to_regclass($1) \
                   AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum";
    let references = "SELECT DISTINCT confrelid::oid::text FROM pg_constraint \
                      WHERE conrelid = to_regclass($1) AND contype = 'f'";
    let triggers = "SELECT tgname::text FROM pg_trigger WHERE tgrelid = to_regclass($1) AND NOT tgisinternal \
                    AND tgname NOT LIKE 'polyshard\\_%'";
    let referring = "SELECT 1 FROM pg_constraint WHERE confrelid = to_regclass($1) AND contype = 'f' LIMIT 1";
    let asked = ["SELECT to_regclass($1)::oid::text", columns, references, triggers, referring];
    let asked = asked.map(|sql| Statement::new(sql).bind(table.to_owned()));
    let answers = tx.run_known(asked.into()).await?;
    let [identity, columns, references, triggers, referring] = answers.as_slice() else {
        return Err(ShardError::Damaged { what: "shape", detail: "an answer is missing".into() });
    };
    let Some(identity) = identity.first().map(|row| row.opt_text(0)).transpose()?.flatten() else {
        return Ok(None);
    };
    let mut shape = Shape {
        columns: Vec::new(),
        primary_key: Vec::new(),
        references: texts(references.rows())?,
        identity: identity.to_owned(),
        triggers: texts(triggers.rows())?,
        is_referred_to: !referring.is_empty(),
    };
    let mut key: Vec<(i64, usize)> = Vec::new();
    for row in columns.rows() {
        let (native, is_key) = (Native::of(row.text(2)?), row.int(3)? > 0);
        let travel = match row.text(2)? {
            // What captures note of a key must not depend on the settings of whoever writes.
            _ if is_key && native.is_counted() => Travel::Filed,
            name if PLAIN.contains(&name) => Travel::Plain,
            name if TEXT.contains(&name) => Travel::Text,
            _ => Travel::Cast,
        };
        if is_key {
            key.push((row.int(3)?, shape.columns.len()));
        }
        let (name, kind) = (row.text(0)?.to_owned(), row.text(1)?.to_owned());
        shape.columns.push(Column { name, kind, travel, native });
    }
    key.sort_unstable();
    shape.primary_key = key.into_iter().map(|(_, place)| place).collect();
    Ok(Some(shape))
}

fn texts(rows: &[Row]) -> Result<Vec<String>, ShardError> {
    rows.iter().map(|row| Ok(row.text(0)?.to_owned())).collect()
}

/// A value as PostgreSQL writes it. As a mere cast it would be called as the column is, and ORDER BY would take it for
/// that, and put numbers in the order of texts.
pub(crate) fn as_text(value: &str) -> String {
    format!("COALESCE(({value})::text)")
}

/// A name as it must be written in SQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A name as the database's own tables have it.
fn unquoted(name: &str) -> String {
    match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => inner.replace("\"\"", "\""),
        None => name.to_owned(),
    }
}
