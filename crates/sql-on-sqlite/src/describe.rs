//! What SQLite does not keep of a table's definition, kept in tables of our own: PostgreSQL's types and defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polyshard_engine::{Rows, Value};
use polyshard_sql::{
    Collation, Column, Enum, ForeignKey, Generated, NamedIndex, Placement, Schema, SqlError, Table,
    TableName, TypeOid, View,
};

use crate::fail::fail;
use crate::functions::index_parts;
use crate::types;
use crate::value::json::Json;

/// Makes the tables that the descriptions are kept in; to be run on every shard before the first [`crate::ddl`].
pub const BOOKKEEPING: [&str; 12] = [
    "CREATE TABLE IF NOT EXISTS polyshard_sql_table (name TEXT PRIMARY KEY NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS polyshard_sql_column (table_name TEXT NOT NULL, name TEXT NOT NULL, position INTEGER \
     NOT NULL, type_oid INTEGER NOT NULL, type_mod INTEGER NOT NULL, type_name TEXT NOT NULL, not_null INTEGER NOT \
     NULL, default_text TEXT, generated TEXT NOT NULL, PRIMARY KEY (table_name, name)) STRICT",
    "CREATE TABLE IF NOT EXISTS polyshard_sql_constraint (table_name TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT \
     NULL, columns TEXT NOT NULL, target TEXT, target_columns TEXT, definition TEXT NOT NULL, PRIMARY KEY \
     (table_name, name)) STRICT",
    "CREATE TABLE IF NOT EXISTS polyshard_sql_index (name TEXT PRIMARY KEY NOT NULL, table_name TEXT NOT NULL, \
     is_unique INTEGER NOT NULL, columns TEXT NOT NULL, definition TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS polyshard_sql_view (name TEXT PRIMARY KEY NOT NULL, columns TEXT NOT NULL, types \
     TEXT NOT NULL, definition TEXT NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS polyshard_sql_schema (name TEXT PRIMARY KEY NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS polyshard_sql_enum (name TEXT PRIMARY KEY NOT NULL, labels TEXT NOT NULL) STRICT",
    // A table's own comment is one of no column. Comments go with what they are about.
    "CREATE TABLE IF NOT EXISTS polyshard_sql_comment (relation TEXT NOT NULL, column_name TEXT NOT NULL, \
     description TEXT NOT NULL, PRIMARY KEY (relation, column_name)) STRICT",
    "CREATE TRIGGER IF NOT EXISTS polyshard_sql_comment_dropped AFTER DELETE ON polyshard_sql_table BEGIN DELETE FROM \
     polyshard_sql_comment WHERE relation = OLD.name; END",
    "CREATE TRIGGER IF NOT EXISTS polyshard_sql_comment_renamed AFTER UPDATE OF name ON polyshard_sql_table BEGIN \
     UPDATE polyshard_sql_comment SET relation = NEW.name WHERE relation = OLD.name; END",
    "CREATE TRIGGER IF NOT EXISTS polyshard_sql_comment_column_dropped AFTER DELETE ON polyshard_sql_column BEGIN \
     DELETE FROM polyshard_sql_comment WHERE relation = OLD.table_name AND column_name = OLD.name; END",
    "CREATE TRIGGER IF NOT EXISTS polyshard_sql_comment_column_renamed AFTER UPDATE OF name ON polyshard_sql_column \
     BEGIN UPDATE polyshard_sql_comment SET column_name = NEW.name WHERE relation = OLD.table_name AND \
     column_name = OLD.name; END",
];

/// The queries whose answers, in this order, [`schema_from`] makes a schema of.
pub const DESCRIPTION_QUERIES: [&str; 6] = [
    "SELECT table_name, name, type_oid, type_mod, type_name, not_null, default_text, generated \
     FROM polyshard_sql_column ORDER BY table_name, position",
    "SELECT table_name, name, kind, columns, target, target_columns, definition \
     FROM polyshard_sql_constraint ORDER BY table_name, name",
    "SELECT name, table_name, is_unique, columns, definition FROM polyshard_sql_index ORDER BY name",
    "SELECT name, columns, definition FROM polyshard_sql_view ORDER BY name",
    "SELECT name FROM polyshard_sql_schema ORDER BY name",
    "SELECT name, labels FROM polyshard_sql_enum ORDER BY name",
];

/// A schema of the answers to [`DESCRIPTION_QUERIES`]. Every table is an undeclared reference table in it: where
/// rows are is known elsewhere.
pub fn schema_from(answers: &[Rows; 6]) -> Result<Schema, SqlError> {
    let [columns, constraints, indexes, views, schemas, enums] = answers;
    let schemas: BTreeSet<String> = schemas.iter().map(|row| text(row.get(0))).collect::<Result<_, _>>()?;
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for row in columns {
        let name = text(row.get(0))?;
        let table = tables.entry(name.clone()).or_insert_with(|| Table {
            name: full_name(&name, &schemas),
            columns: Vec::new(),
            primary_key: Vec::new(),
            unique: Vec::new(),
            foreign_keys: Vec::new(),
            row_security: false,
            triggers: false,
            placement: Placement::Reference { declared: false },
        });
        let generated = text(row.get(7))?;
        table.columns.push(Column {
            name: text(row.get(1))?,
            type_oid: TypeOid(u32::try_from(int(row.get(2))?).map_err(|_| damaged("a type"))?),
            type_mod: i32::try_from(int(row.get(3))?).map_err(|_| damaged("a type's modifier"))?,
            type_name: text(row.get(4))?,
            // Earlier versions noted a larger number for columns that were added to a table, and may be NULL.
            not_null: int(row.get(5))? == 1,
            default: match row.get(6) {
                // What a generated column is computed by is the file's own business.
                _ if generated == "stored" => None,
                Value::Null => None,
                value => Some(text(value)?),
            },
            generated: match generated.as_str() {
                "no" => Generated::No,
                "default" | "identity" => Generated::ByDefault,
                "always" => Generated::Always,
                "stored" => Generated::Stored,
                _ => return Err(damaged("a generated column")),
            },
            collation: Collation::C,
        });
    }
    let mut named: BTreeMap<TableName, Vec<NamedIndex>> = BTreeMap::new();
    for row in constraints {
        let Some(table) = tables.get_mut(&text(row.get(0))?) else {
            return Err(damaged("a constraint of no table"));
        };
        let names = names(row.get(3))?;
        let places = || -> Result<Vec<usize>, SqlError> {
            names
                .iter()
                .map(|name| table.column(name).ok_or_else(|| damaged("a constraint's column")))
                .collect()
        };
        match text(row.get(2))?.as_str() {
            "p" => table.primary_key = places()?,
            "u" => {
                let places = places()?;
                table.unique.push(places);
                let (name, is_unique) = (text(row.get(1))?, true);
                let (columns, parts) = (names.clone(), names);
                let index = NamedIndex { name, columns, parts, is_unique, is_constraint: true };
                named.entry(table.name.clone()).or_default().push(index);
            }
            "f" => {
                let key = ForeignKey {
                    name: text(row.get(1))?,
                    columns: places()?,
                    target: full_name(&text(row.get(4))?, &schemas),
                    target_columns: self::names(row.get(5))?,
                };
                table.foreign_keys.push(key);
            }
            _ => {}
        }
    }
    for row in indexes {
        let Some(table) = tables.get_mut(&text(row.get(1))?) else {
            return Err(damaged("an index of no table"));
        };
        let is_unique = int(row.get(2))? != 0;
        let name = full_name(&text(row.get(0))?, &schemas).name;
        let (columns, parts) = (self::names(row.get(3))?, index_parts(&text(row.get(4))?));
        let index = NamedIndex { name, columns, parts, is_unique, is_constraint: false };
        named.entry(table.name.clone()).or_default().push(index);
        if !is_unique {
            continue;
        }
        let places: Option<Vec<usize>> = names(row.get(3))?.iter().map(|name| table.column(name)).collect();
        // An index on expressions or on some rows says nothing of columns.
        if let Some(places) = places
            && !places.is_empty()
        {
            table.unique.push(places);
        }
    }
    let mut schema = Schema { indexes: named, ..Schema::default() };
    for (_, table) in tables {
        schema.tables.insert(table.name.clone(), Arc::new(table));
    }
    for row in views {
        let name = full_name(&text(row.get(0))?, &schemas);
        let view = View { name: name.clone(), columns: names(row.get(1))?, definition: text(row.get(2))? };
        schema.views.insert(name, Arc::new(view));
    }
    for row in enums {
        let name = full_name(&text(row.get(0))?, &schemas);
        let type_oid = types::enum_type(&name)?;
        let made = Enum { name, type_oid, labels: names(row.get(1))? };
        schema.enums.insert(type_oid, Arc::new(made));
    }
    schema.schemas = schemas;
    Ok(schema)
}

/// The relation that a file has under this name: see [`crate::file_name`].
fn full_name(file: &str, schemas: &BTreeSet<String>) -> TableName {
    match file.split_once('.') {
        Some((schema, name)) if schemas.contains(schema) => {
            TableName { schema: schema.to_owned(), name: name.to_owned() }
        }
        _ => TableName::public(file),
    }
}

pub(crate) fn text(value: &Value) -> Result<String, SqlError> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        _ => Err(damaged("a text")),
    }
}

fn int(value: &Value) -> Result<i64, SqlError> {
    match value {
        Value::Int(value) => Ok(*value),
        _ => Err(damaged("a number")),
    }
}

/// A JSON array of names.
pub(crate) fn names(value: &Value) -> Result<Vec<String>, SqlError> {
    let Ok(Json::Array(names)) = Json::parse(&text(value)?) else {
        return Err(damaged("a list of names"));
    };
    let name = |name: Json| match name {
        Json::String(name) => Ok(name),
        _ => Err(damaged("a name")),
    };
    names.into_iter().map(name).collect()
}

fn damaged(what: &str) -> SqlError {
    fail(
        "XX001",
        format!("{what} in the polyshard_sql tables of a shard cannot be read: restore it from a backup"),
    )
}
