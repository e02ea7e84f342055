//! Reference rows for a shard that is new, from one of the other engine: carried as texts, which both read alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_engine::{self as engine, Dialect, Statement, Transaction, Value};
use polyshard_map::ShardId;
use polyshard_shard::Shard;
use polyshard_sql::{Column, Generated, Schema, SqlError, SqlState, Table};
use polyshard_sql_on_sqlite as lite;

use crate::JournalError;
use crate::bring_up::overriding;
use crate::journal::Inner;
use crate::quote::{identifier, table_name, text as quoted};

/// Rows read, and written by one INSERT, at a time.
const PAGE_ROWS: usize = 500;

/// A row's values as texts.
type Texts = Vec<Option<String>>;

impl Inner {
    /// Copies all rows of these tables, which are in the order of their foreign keys.
    pub(crate) async fn copy_between_engines(
        &self,
        (from, from_tx): (&Shard, &mut Transaction),
        (to, dialect, tx): (&ShardId, Dialect, &mut Transaction),
        schema: &Schema,
        tables: &[&Arc<Table>],
    ) -> Result<(), JournalError> {
        let fail = |error: engine::Error| JournalError::on(to, error);
        for table in tables {
            let columns: Vec<&Column> =
                table.columns.iter().filter(|column| column.generated != Generated::Stored).collect();
            let name = table_name(Dialect::Postgres, &table.name);
            if dialect == Dialect::Postgres && table.triggers {
                let disable = format!("ALTER TABLE {name} DISABLE TRIGGER USER");
                tx.run(Statement::new(disable)).await.map_err(fail)?;
            }
            let mut offset = 0;
            loop {
                let page = read_page((from, from_tx), table, &columns, offset).await?;
                if page.is_empty() {
                    break;
                }
                offset += page.len();
                let insert = insert(&name, &columns, overriding(dialect), &page);
                let statements = match dialect {
                    Dialect::Postgres => vec![Statement::new(insert)],
                    Dialect::Sqlite => self.embedded().translate(&insert, schema, &BTreeMap::new())?,
                };
                tx.run_all(statements).await.map_err(fail)?;
            }
            if dialect == Dialect::Postgres {
                count_on(tx, table, &columns).await.map_err(fail)?;
                if table.triggers {
                    let enable = format!("ALTER TABLE {name} ENABLE TRIGGER USER");
                    tx.run(Statement::new(enable)).await.map_err(fail)?;
                }
            }
        }
        Ok(())
    }
}

/// Some rows of a table; the snapshot that is open has them in one order.
async fn read_page(
    (from, tx): (&Shard, &mut Transaction),
    table: &Table,
    columns: &[&Column],
    offset: usize,
) -> Result<Vec<Texts>, JournalError> {
    let dialect = from.dialect();
    let list: Vec<String> = columns
        .iter()
        .map(|column| match dialect {
            Dialect::Postgres => format!("{}::text", identifier(&column.name)),
            Dialect::Sqlite => identifier(&column.name),
        })
        .collect();
    // A page of a table without an order could miss rows where the server may read them in another one.
    let order = match dialect {
        Dialect::Postgres => "ctid",
        Dialect::Sqlite => "rowid",
    };
    let name = table_name(dialect, &table.name);
    let sql =
        format!("SELECT {} FROM {name} ORDER BY {order} LIMIT {PAGE_ROWS} OFFSET {offset}", list.join(", "));
    let rows = tx.run(Statement::new(sql)).await.map_err(|error| JournalError::on(from.id(), error))?;
    let settings = lite::Settings::default();
    let text = |(value, column): (&Value, &&Column)| -> Result<Option<String>, SqlError> {
        match (dialect, value) {
            (_, Value::Null) => Ok(None),
            (Dialect::Postgres, Value::Text(text)) => Ok(Some(text.clone())),
            _ => {
                let mut bytes = Vec::new();
                lite::encode(column.type_oid, value, lite::Format::Text, &settings, &mut bytes)?;
                let text = String::from_utf8(bytes);
                let wrong = |_| SqlError::new(SqlState::INTERNAL_ERROR, "a value is no text");
                Ok(Some(text.map_err(wrong)?))
            }
        }
    };
    let row = |row: &engine::Row| row.values().iter().zip(columns).map(text).collect::<Result<Texts, _>>();
    Ok(rows.iter().map(row).collect::<Result<_, SqlError>>()?)
}

/// An INSERT of these rows, in words that both engines are given.
fn insert(name: &str, columns: &[&Column], overriding: &str, rows: &[Texts]) -> String {
    let names: Vec<String> = columns.iter().map(|column| identifier(&column.name)).collect();
    let value = |value: &Option<String>| value.as_deref().map_or_else(|| "NULL".to_owned(), quoted);
    let rows: Vec<String> = rows
        .iter()
        .map(|row| format!("({})", row.iter().map(value).collect::<Vec<_>>().join(", ")))
        .collect();
    format!("INSERT INTO {name} ({}) {overriding}VALUES {}", names.join(", "), rows.join(", "))
}

/// Has the sequences of a table's columns go on after its rows: an SQLite file has none that could be copied.
async fn count_on(tx: &mut Transaction, table: &Table, columns: &[&Column]) -> Result<(), engine::Error> {
    let name = table_name(Dialect::Postgres, &table.name);
    for column in columns {
        let (quoted_name, plain) = (quoted(&name), quoted(&column.name));
        let sequence = format!("pg_catalog.pg_get_serial_sequence({quoted_name}, {plain})");
        let known = tx.run(Statement::new(format!("SELECT {sequence}"))).await?;
        if known.first().is_none_or(|row| row.values().first().is_none_or(Value::is_null)) {
            continue;
        }
        let last = format!("SELECT pg_catalog.max({}) AS last FROM {name}", identifier(&column.name));
        let set =
            format!("SELECT pg_catalog.setval({sequence}, last) FROM ({last}) AS x WHERE last IS NOT NULL");
        tx.run(Statement::new(set)).await?;
    }
    Ok(())
}
