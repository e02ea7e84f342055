//! Which columns of an INSERT would be filled differently on each shard, and with what instead.

use polyshard_sql::ast;
use polyshard_sql::{Column, Generated, Schema, SqlError, Table};

/// Whether a column that is left out may be filled differently from shard to shard.
pub(crate) fn differs(column: &Column, schema: &Schema) -> bool {
    match column.generated {
        Generated::Stored => false,
        Generated::ByDefault | Generated::Always => true,
        Generated::No => column.default.as_ref().is_some_and(|default| calls_unstable(default, schema)),
    }
}

/// Whether an expression calls a function that is not known to be immutable.
fn calls_unstable(default: &str, schema: &Schema) -> bool {
    let lower = default.to_lowercase();
    let words = lower.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    const TIMES: [&str; 5] =
        ["current_timestamp", "current_date", "current_time", "localtimestamp", "localtime"];
    let users = |word: &str| schema.functions.keys().any(|function| function.name == word);
    words
        .into_iter()
        .any(|word| TIMES.contains(&word) || schema.unstable_builtins.contains_key(word) || users(word))
}

/// The expression that fills a column.
pub(crate) fn default_of(column: &Column, table: &Table) -> String {
    match (&column.default, column.generated) {
        (Some(default), _) => format!("({default})::text"),
        (None, _) => {
            let name = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
            let table = format!("{}.{}", name(&table.name.schema), name(&table.name.name));
            format!(
                "nextval(pg_get_serial_sequence({}, {}))::text",
                crate::settings::quoted(&table),
                crate::settings::quoted(&column.name)
            )
        }
    }
}

/// Refuses forms of INSERT whose defaults cannot be seen: no list of columns, or the word DEFAULT.
pub(crate) fn check_positions(
    insert: &ast::Insert,
    table: &Table,
    given: &[String],
    schema: &Schema,
    uses_default: bool,
) -> Result<(), SqlError> {
    let mut insert = insert.clone();
    let width = rows_of(&mut insert).and_then(|rows| rows.iter().map(|row| row.content.len()).min());
    let unseen = table.columns.iter().enumerate().any(|(at, column)| {
        let left_out = given.is_empty() && width.is_none_or(|width| at >= width);
        (left_out || uses_default) && differs(column, schema)
    });
    if !unseen {
        return Ok(());
    }
    Err(SqlError::unsupported(
        format!("a default of {} would differ from shard to shard", table.name),
        "Name the columns in INSERT, and leave out those that are to have their default.",
    ))
}

/// The rows of INSERT … VALUES.
pub(crate) fn rows_of(insert: &mut ast::Insert) -> Option<&mut Vec<ast::Parens<Vec<ast::Expr>>>> {
    let source = insert.source.as_mut()?;
    match source.body.as_mut() {
        ast::SetExpr::Values(values) => Some(&mut values.rows),
        _ => None,
    }
}

/// A column's name in the list of an INSERT.
pub(crate) fn object_name(name: &str) -> ast::ObjectName {
    ast::ObjectName::from(vec![ast::Ident::with_quote('"', name)])
}
