//! Names: folded as PostgreSQL does, quoted as SQLite reads them.

use polyshard_sql::ast::{Ident, ObjectName, ObjectNamePart};
use polyshard_sql::{SqlError, TableName, TypeOid};

use crate::fail::unsupported;
use crate::types;

/// As it is stored: lower case unless it was quoted.
pub(crate) fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

/// An identifier of SQLite's.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A column's value as expressions have it: an array is kept in PostgreSQL's own text, which travels between engines.
pub(crate) fn column_value(sql: String, type_oid: TypeOid) -> String {
    if types::is_array(type_oid) { format!("pg_in({sql}, {}, -1, 'UTC')", type_oid.0) } else { sql }
}

/// A value as a column keeps it.
pub(crate) fn kept_value(sql: String, type_oid: TypeOid) -> String {
    if types::is_array(type_oid) && sql != "NULL" {
        return format!("pg_out({sql}, {}, 'UTC')", type_oid.0);
    }
    sql
}

/// What a relation is called in a file, which has no schemas: one of `public` by its name alone.
pub fn file_name(name: &TableName) -> String {
    if name.schema == "public" { name.name.clone() } else { format!("{}.{}", name.schema, name.name) }
}

/// Likewise, as SQLite reads it.
pub(crate) fn quoted_name(name: &TableName) -> String {
    quoted(&file_name(name))
}

/// Schema and name.
pub(crate) fn name_parts(name: &ObjectName) -> Result<(Option<String>, String), SqlError> {
    let mut parts = Vec::with_capacity(name.0.len());
    for part in &name.0 {
        match part {
            ObjectNamePart::Identifier(ident) => parts.push(fold(ident)),
            ObjectNamePart::Function(_) => return Err(unsupported(format!("the name {name}"))),
        }
    }
    match parts.len() {
        1 => Ok((None, parts.remove(0))),
        2 => Ok((Some(parts.remove(0)), parts.remove(0))),
        // A database's own name before the schema is let go.
        3 => Ok((Some(parts.remove(1)), parts.remove(1))),
        _ => Err(unsupported(format!("the name {name}"))),
    }
}
