//! A translated statement with its values.

use polyshard_engine::{Statement, Value};
use polyshard_sql_on_sqlite::Prepared;

/// As the engine runs it.
pub(super) fn statement_of(prepared: &Prepared, values: Vec<Value>) -> Statement {
    values.into_iter().fold(Statement::new(prepared.sql.clone()), Statement::bind)
}
