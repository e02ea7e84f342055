//! What COPY copies into, where the door itself reads the rows.

use std::sync::Arc;

use polyshard_sql::{Copy, CopyWhat, RelationName, Schema, SqlError, SqlState, Statement, Table, quoted};

use super::load::given_columns;
use super::spool::Spool;
use super::{Session, Stop};
use crate::cache::Analysed;
use crate::reply::state;
use crate::rows::Form;

/// Rows of a reference table in one statement of the journal.
const REFERENCE_ROWS_AT_ONCE: usize = 200;
/// What a reference table takes at once: it is one entry of the journal, kept in memory by whoever applies it.
const REFERENCE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What rows are copied into.
pub(crate) struct CopyTarget {
    /// As errors name it.
    pub table: String,
    pub insert: Analysed,
    /// The words before the values.
    words: String,
    pub types: Vec<u32>,
    pub names: Vec<String>,
}

impl Session {
    /// What a COPY is into.
    pub(crate) async fn copy_target(&mut self, copy: &Copy) -> Result<CopyTarget, Stop> {
        let CopyWhat::Table { name, columns } = &copy.what else {
            return Err(SqlError::new(SqlState::INTERNAL_ERROR, "COPY into no table").into());
        };
        let schema = self.current_schema().await?;
        let table = table_called(&schema, name, &self.search_path)?;
        let names: Vec<String> = given_columns(table, columns).into_iter().map(str::to_owned).collect();
        let mut types = Vec::new();
        for name in &names {
            let column = table.columns.iter().find(|column| column.name == *name).ok_or_else(|| {
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name.name);
                SqlError::new(SqlState::UNDEFINED_COLUMN, message)
            })?;
            types.push(column.type_oid.0);
        }
        let words = insert_words(table, &names);
        let marks: Vec<String> = (1..=names.len()).map(|at| format!("${at}")).collect();
        let text = format!("{words} ({})", marks.join(", "));
        let statement = only(polyshard_sql::statements(&text)?)?;
        let table = table.name.name.clone();
        Ok(CopyTarget { table, insert: Analysed::new(statement), words, types, names })
    }

    /// COPY into a reference table on PostgreSQL shards: journalled, on every shard or none.
    pub(super) async fn copy_reference(&mut self, copy: &Copy) -> Result<Option<String>, Stop> {
        super::load::check_client(copy)?;
        check_plain(copy)?;
        let form = Form::of(copy)?;
        let into = self.copy_target(copy).await?;
        let mut spool = self.receive(into.names.len(), form).await?;
        let mut count = 0;
        for (rows, insert) in into.inserts(&mut spool)? {
            let extended = std::mem::take(&mut self.extended);
            let done = self.write_reference(&insert, &[]).await;
            self.extended = extended;
            done?;
            count += rows;
        }
        Ok(Some(format!("COPY {count}")))
    }
}

impl CopyTarget {
    /// A row with as many fields as there are columns.
    pub fn checked(&self, fields: Vec<Option<Vec<u8>>>, line: u64) -> Result<Vec<Option<Vec<u8>>>, SqlError> {
        let message = match self.names.get(fields.len()) {
            Some(missing) => format!("missing data for column \"{missing}\""),
            None if fields.len() > self.names.len() => "extra data after last expected column".to_owned(),
            None => return Ok(fields),
        };
        Err(self.at(SqlError::new(state::BAD_COPY, message), line))
    }

    pub fn at(&self, error: SqlError, line: u64) -> SqlError {
        error.context(format!("COPY {}, line {line}", self.table))
    }

    /// INSERTs of some rows each, with the values in their words; how many rows each has.
    pub fn inserts(&self, spool: &mut Spool) -> Result<Vec<(u64, Analysed)>, SqlError> {
        let mut found: Vec<(u64, String)> = Vec::new();
        let mut bytes = 0;
        let mut rows = spool.rows()?;
        while let Some((line, fields)) = rows.next()? {
            let fields = self.checked(fields, line)?;
            let mut values = Vec::new();
            for field in fields {
                values.push(match field {
                    None => "NULL".to_owned(),
                    Some(bytes) => {
                        let text = String::from_utf8(bytes).map_err(|_| {
                            let error = SqlError::new(
                                SqlState("22021"),
                                "invalid byte sequence for encoding \"UTF8\"",
                            );
                            self.at(error, line)
                        })?;
                        crate::settings::quoted(&text)
                    }
                });
            }
            let values = format!("({})", values.join(", "));
            bytes += values.len();
            if bytes > REFERENCE_BYTES_MAX {
                let message =
                    "COPY into a reference table takes at most 16 MiB at once: every shard gets it as one";
                return Err(SqlError::new(SqlState("54000"), message).hint("Copy it in parts."));
            }
            match found.last_mut() {
                Some((count, text)) if (*count as usize) < REFERENCE_ROWS_AT_ONCE => {
                    text.push_str(", ");
                    text.push_str(&values);
                    *count += 1;
                }
                _ => found.push((1, format!("{} {values}", self.words))),
            }
        }
        let parsed = found
            .into_iter()
            .map(|(count, text)| Ok((count, Analysed::new(only(polyshard_sql::statements(&text)?)?))));
        parsed.collect()
    }
}

/// Refuses what only a server that reads the rows itself can do with them.
pub(crate) fn check_plain(copy: &Copy) -> Result<(), SqlError> {
    if !copy.has_filter && copy.option("force_null").is_none() && copy.option("force_not_null").is_none() {
        return Ok(());
    }
    Err(SqlError::unsupported(
        "COPY with WHERE, FORCE_NULL or FORCE_NOT_NULL is not offered on SQLite shards or into a reference table",
        "Leave the option out, or INSERT the rows that are wanted.",
    ))
}

/// The table that a COPY names.
pub(crate) fn table_called<'s>(
    schema: &'s Schema,
    name: &RelationName,
    search_path: &[String],
) -> Result<&'s Table, SqlError> {
    schema.table(name.schema.as_deref(), &name.name, search_path).map(Arc::as_ref).ok_or_else(|| {
        SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
    })
}

fn insert_words(table: &Table, names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    let (schema, name) = (quoted(&table.name.schema), quoted(&table.name.name));
    format!("INSERT INTO {schema}.{name} ({}) VALUES", names.join(", "))
}

/// The only statement of a text.
pub(crate) fn only(statements: Vec<Arc<Statement>>) -> Result<Arc<Statement>, SqlError> {
    statements.into_iter().next().ok_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "no statement"))
}
