//! Names and values as they are written in SQL.

use polyshard_engine::{Dialect, Value};
use polyshard_sql::TableName;

/// A name in quotes.
pub(crate) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table's name: with its schema, where the engine has schemas.
pub(crate) fn table_name(dialect: Dialect, table: &TableName) -> String {
    match dialect {
        Dialect::Postgres => format!("{}.{}", identifier(&table.schema), identifier(&table.name)),
        Dialect::Sqlite => identifier(&polyshard_sql_on_sqlite::file_name(table)),
    }
}

/// A text in quotes that PostgreSQL and SQLite read alike, whatever PostgreSQL's settings.
pub(crate) fn text(value: &str) -> String {
    let quoted = value.replace('\'', "''");
    if value.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// A value that was read from one shard, to be written to another of the same engine. PostgreSQL's are all texts, and
/// take the type of their column.
pub(crate) fn literal(dialect: Dialect, value: &Value) -> String {
    match (dialect, value) {
        (_, Value::Null) => "NULL".to_owned(),
        (Dialect::Postgres, Value::Text(value)) => text(value),
        (_, Value::Text(value)) => format!("'{}'", value.replace('\'', "''")),
        (_, Value::Int(value)) => value.to_string(),
        (_, Value::Bool(value)) => u8::from(*value).to_string(),
        (_, Value::Real(value)) => format!("{value:?}"),
        (_, Value::Blob(bytes)) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("x'{hex}'")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_keep_their_quotes() {
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(text("it's"), "'it''s'");
        assert_eq!(text("a\\'b"), "E'a\\\\''b'");
        let table = TableName { schema: "s".into(), name: "T".into() };
        assert_eq!(table_name(Dialect::Postgres, &table), "\"s\".\"T\"");
        assert_eq!(table_name(Dialect::Sqlite, &table), "\"s.T\"");
        assert_eq!(table_name(Dialect::Sqlite, &TableName::public("T")), "\"T\"");
        assert_eq!(literal(Dialect::Sqlite, &Value::Text("a\\b'".into())), "'a\\b'''");
    }
}
