//! Names: folded as PostgreSQL does, quoted as SQLite reads them.

use polyshard_sql::SqlError;
use polyshard_sql::ast::{Ident, ObjectName, ObjectNamePart};

use crate::fail::unsupported;

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
