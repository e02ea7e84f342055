//! What SQLite refuses, in PostgreSQL's terms.

use polyshard_engine::{ConstraintKind, Error};
use polyshard_sql::{Schema, SqlError, TableName};

use crate::fail::{fail, unpack};

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
    let (_, rest) = message.split_once("error in index ")?;
    let (index, _) = rest.split_once(" after drop column")?;
    let message = format!("cannot drop the column, because index {index} depends on it");
    Some(fail("2BP01", message).hint(format!("DROP INDEX {index}, and then the column.")))
}

fn violation(kind: ConstraintKind, constraint: &str, message: &str, schema: &Schema) -> SqlError {
    let columns: Vec<(&str, &str)> = constraint.split(", ").filter_map(|part| part.split_once('.')).collect();
    let table = columns.first().map_or("", |(table, _)| *table);
    let names: Vec<&str> = columns.iter().map(|(_, column)| *column).collect();
    match kind {
        ConstraintKind::NotNull => {
            let column = names.first().copied().unwrap_or("");
            let message = format!(
                "null value in column \"{column}\" of relation \"{table}\" violates not-null constraint"
            );
            fail("23502", message)
        }
        ConstraintKind::Unique => {
            let name = match constraint.strip_prefix("index '") {
                Some(index) => index.trim_end_matches('\'').to_owned(),
                None => unique_name(table, &names, schema),
            };
            fail("23505", format!("duplicate key value violates unique constraint \"{name}\""))
                .detail(format!("Key ({}) already exists.", names.join(", ")))
        }
        ConstraintKind::ForeignKey => {
            fail("23503", "insert, update or delete violates a foreign key constraint")
        }
        ConstraintKind::Check => fail("23514", format!("new row violates check constraint \"{constraint}\"")),
        ConstraintKind::Raised | ConstraintKind::Other => fail("23000", message.to_owned()),
    }
}

fn unique_name(table: &str, columns: &[&str], schema: &Schema) -> String {
    let known = schema.tables.get(&TableName::public(table));
    let is_key = known.is_some_and(|known| {
        known.primary_key.len() == columns.len()
            && known.primary_key.iter().all(|place| columns.contains(&known.columns[*place].name.as_str()))
    });
    if is_key { format!("{table}_pkey") } else { format!("{table}_{}_key", columns.join("_")) }
}
