//! The system catalog: what PostgreSQL's clients ask it, answered from the schema.

use polyshard_sql::{Context, SqlError, TypeOid};

use crate::fail::{fail, unsupported};
use crate::prepared::OutColumn;
use crate::translate::{Ex, Translator};
use crate::types::oid;

/// A table of the catalog.
pub(crate) struct Relation {
    /// The name of its CTE.
    pub name: String,
    pub columns: Vec<OutColumn>,
}

/// A table of the catalog by its name, noted for the statement's WITH.
pub(crate) fn relation(
    _translator: &mut Translator<'_>,
    _schema: Option<&str>,
    _name: &str,
) -> Result<Option<Relation>, SqlError> {
    Ok(None)
}

/// The number of an object by its name.
pub(crate) fn object_number(_context: &Context<'_>, kind: TypeOid, text: &str) -> Result<i64, SqlError> {
    if let Ok(number) = text.parse::<u32>() {
        return Ok(number.into());
    }
    match kind {
        oid::REGTYPE => crate::types::by_name(text)
            .map(|found| found.0.into())
            .ok_or_else(|| fail("42704", format!("type \"{text}\" does not exist"))),
        _ => Err(fail("42P01", format!("relation \"{text}\" does not exist"))),
    }
}

/// The name of an object by its number, as SQL.
pub(crate) fn object_name(_: &mut Translator<'_>, sql: &str, _: TypeOid) -> Result<String, SqlError> {
    Ok(format!("CAST({sql} AS TEXT)"))
}

/// The number of a table whose name is computed, as SQL.
pub(crate) fn relation_number(_: &mut Translator<'_>, _: &str) -> Result<String, SqlError> {
    Err(unsupported("the name of a table that is computed"))
}

/// Functions that know the schema.
pub(crate) fn function(_: &mut Translator<'_>, name: &str, _: Vec<Ex>) -> Result<Ex, SqlError> {
    Err(unsupported(format!("the function {name}")))
}
