//! What SQLite refuses, in PostgreSQL's terms.

use polyshard_engine::{ConstraintKind, Error};
use polyshard_sql::{About, Schema, SqlError, TableName};

use crate::fail::{fail, unpack};
use crate::translate::file_name;

/// An error of an SQLite shard as PostgreSQL would say it.
pub fn error(error: &Error, schema: &Schema) -> SqlError {
    match error {
        Error::Constraint { kind, constraint, message } => {
            if let Some(own) = unpack(message) {
                return own;
            }
            violation(*kind, constraint, message, schema)
        }
        Error::Conflict { message } => {
            fail("40001", format!("another transaction was in the way: {message}"))
        }
        Error::Timeout { message } => fail("57014", message.clone()),
        Error::Full { message } => fail("53100", message.clone()),
        Error::ReadOnly { message } => fail("25006", message.clone()),
        Error::Busy { message } => fail("53300", message.clone()).hint("try again"),
        Error::Unavailable { message } => fail("57P03", message.clone()),
        Error::OutcomeUnknown { message } => fail("08007", message.clone()),
        Error::Closed => fail("57P01", "the shard is closing"),
        Error::Invalid { message, .. } => match unpack(message) {
            Some(own) => own,
            None if message.contains("integer overflow") => fail("22003", "bigint out of range"),
            None if message.contains("string or blob too big") => fail("54000", "the value is too large"),
            None if message.contains("too many")
                || message.contains("too large")
                || message.contains("parser stack") =>
            {
                fail("54001", format!("the statement is too complex ({message})"))
            }
            None if message.contains("frame starting offset") || message.contains("frame ending offset") => {
                fail("22013", "frame starting or ending offset must not be negative")
            }
            None if message.contains("argument of ntile") => {
                fail("22014", "argument of ntile must be greater than zero")
            }
            None if message.contains("nth_value") => {
                fail("22016", "argument of nth_value must be greater than zero")
            }
            None => in_the_way(message)
                .unwrap_or_else(|| fail("XX000", format!("SQLite refused the statement: {message}"))),
        },
        other => fail("XX000", other.to_string()),
    }
}

/// What SQLite says of indexes that are missing, or stay behind.
fn in_the_way(message: &str) -> Option<SqlError> {
    if let Some((_, index)) = message.split_once("no such index: ") {
        return Some(fail("42704", format!("index \"{index}\" does not exist")));
    }
    if let Some((before, _)) = message.split_once(" already exists")
        && let Some((_, index)) = before.split_once("index ")
    {
        return Some(fail("42P07", format!("relation \"{index}\" already exists")));
    }
    if message.contains("error in table ") && message.contains(" after drop column") {
        let hint = "Drop the generated columns and checks that use it first.";
        return Some(
            fail("2BP01", "cannot drop the column, because other columns or checks use it").hint(hint),
        );
    }
    let (_, rest) = message.split_once("error in index ")?;
    let (index, _) = rest.split_once(" after drop column")?;
    let message = format!("cannot drop the column, because index {index} depends on it");
    Some(fail("2BP01", message).hint(format!("DROP INDEX {index}, and then the column.")))
}

fn violation(kind: ConstraintKind, constraint: &str, message: &str, schema: &Schema) -> SqlError {
    // A table of another schema than public has a dot in its name.
    let known = constraint.split_once(", ").map_or(constraint, |(first, _)| first);
    let known = schema.tables.keys().find(|name| {
        name.schema != "public"
            && known.strip_prefix(&file_name(name)).is_some_and(|rest| rest.starts_with('.'))
    });
    let within = known.map_or_else(String::new, |name| format!("{}.", name.schema));
    let parts = constraint.split(", ").map(|part| part.strip_prefix(&within).unwrap_or(part));
    let columns: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('.')).collect();
    let table = columns.first().map_or("", |(table, _)| *table);
    let full = known.cloned().unwrap_or_else(|| TableName::public(table));
    let names: Vec<&str> = columns.iter().map(|(_, column)| *column).collect();
    match kind {
        ConstraintKind::NotNull => {
            let column = names.first().copied().unwrap_or("");
            let message = format!(
                "null value in column \"{column}\" of relation \"{table}\" violates not-null constraint"
            );
            fail("23502", message).about(About { column: Some(column.to_owned()), ..about(&full, None) })
        }
        ConstraintKind::Unique => {
            // An index on expressions is called by its name in the file.
            if let Some(index) = constraint.strip_prefix("index '") {
                let index = index.trim_end_matches('\'');
                let indexes = schema.indexes.iter();
                let mut named = indexes.flat_map(|(table, own)| own.iter().map(move |index| (table, index)));
                let found = named.find(|(table, own)| {
                    let name = TableName { schema: table.schema.clone(), name: own.name.clone() };
                    file_name(&name) == index
                });
                let name = found.map_or(index, |(_, own)| own.name.as_str());
                let error = duplicate(name);
                return match found {
                    Some((table, _)) => error.about(about(table, Some(name))),
                    None => error,
                };
            }
            let name = unique_name(&full, &names, schema);
            duplicate(&name)
                .detail(format!("Key ({}) already exists.", names.join(", ")))
                .about(about(&full, Some(&name)))
        }
        ConstraintKind::ForeignKey => {
            fail("23503", "insert, update or delete violates a foreign key constraint")
        }
        ConstraintKind::Check => fail("23514", format!("new row violates check constraint \"{constraint}\"")),
        ConstraintKind::Raised | ConstraintKind::Other => fail("23000", message.to_owned()),
    }
}

fn duplicate(name: &str) -> SqlError {
    fail("23505", format!("duplicate key value violates unique constraint \"{name}\""))
}

fn about(table: &TableName, constraint: Option<&str>) -> About {
    let (schema, table) = (table.schema.clone(), table.name.clone());
    About { schema, table, column: None, constraint: constraint.map(str::to_owned) }
}

fn unique_name(table: &TableName, columns: &[&str], schema: &Schema) -> String {
    let known = schema.tables.get(table);
    let mut indexes = schema.indexes.get(table).into_iter().flatten();
    if let Some(index) = indexes.find(|index| index.is_unique && index.columns == *columns) {
        return index.name.clone();
    }
    let table = &table.name;
    let is_key = known.is_some_and(|known| {
        known.primary_key.len() == columns.len()
            && known.primary_key.iter().all(|place| columns.contains(&known.columns[*place].name.as_str()))
    });
    if is_key { format!("{table}_pkey") } else { format!("{table}_{}_key", columns.join("_")) }
}
