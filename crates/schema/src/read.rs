//! Reads the schema: what a shard has, and what was declared of it, of one position.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_catalog::JournalState;
use polyshard_engine::{Dialect, Row, Statement, Transaction};
use polyshard_map::{KeyType, MapName, ShardId};
use polyshard_sql::{Function, NamedIndex, Placement, Schema, Table, TableName, Volatility};

use crate::JournalError;
use crate::changing::{CHANGING, declarations};
use crate::declaration::Declared;
use crate::introspect::{self, Details, Found};
use crate::journal::{Inner, Known};
use crate::tables::{self, Lock};

/// How often shard and catalog are read again because one of them has moved on meanwhile, and the pause between.
const LOOKS: (u32, Duration) = (50, Duration::from_millis(20));

/// Functions of PostgreSQL that SQLite shards know too and that may answer otherwise each time, as PostgreSQL says.
const VOLATILE: &[&str] = &[
    "clock_timestamp",
    "currval",
    "gen_random_uuid",
    "lastval",
    "nextval",
    "pg_sleep",
    "random",
    "set_config",
    "setseed",
    "setval",
    "timeofday",
    "uuid_generate_v4",
];

/// Those that answer the same within a statement only, since they depend on settings or on the time.
const STABLE: &[&str] = &[
    "age",
    "array_to_string",
    "concat",
    "concat_ws",
    "current_database",
    "current_schema",
    "current_schemas",
    "current_setting",
    "date_part",
    "date_trunc",
    "extract",
    "format",
    "json_build_array",
    "json_build_object",
    "jsonb_build_array",
    "jsonb_build_object",
    "now",
    "row_to_json",
    "statement_timestamp",
    "timezone",
    "to_char",
    "to_date",
    "to_json",
    "to_jsonb",
    "to_timestamp",
    "transaction_timestamp",
    "version",
];

/// Who tells what tables are like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Teller {
    /// A PostgreSQL shard if there is one, or else a file.
    Any,
    /// An SQLite file.
    File,
}

impl Inner {
    /// Reads the schema of a position or a later one.
    pub(crate) async fn read_schema(&self, want: u64) -> Result<Arc<Known>, JournalError> {
        self.read_schema_as(want, Teller::Any).await
    }

    /// Likewise, as SQLite files tell it: in their words, whatever PostgreSQL makes of them.
    pub(crate) async fn read_schema_of_files(&self, want: u64) -> Result<Arc<Known>, JournalError> {
        self.read_schema_as(want, Teller::File).await
    }

    #[boxed]
    pub(crate) async fn read_schema_as(&self, want: u64, teller: Teller) -> Result<Arc<Known>, JournalError> {
        let (reading, kept) = match teller {
            Teller::Any => (&self.reading, &self.known),
            Teller::File => (&self.reading_of_files, &self.known_of_files),
        };
        let _one = reading.lock().await;
        for _ in 0..LOOKS.0 {
            let of_postgres = teller == Teller::Any && self.has_postgres();
            if let Some(known) = kept.load_full()
                && known.schema.position >= want
                && known.of_postgres == of_postgres
            {
                return Ok(known);
            }
            let state = self.catalog.journal_state().await?;
            self.learn_position(state.position);
            let serving = self.serving();
            let found = match self.told(teller, &state).await {
                Ok(found) => found,
                // One that is being taken out says so.
                Err(_) if self.serving() != serving => continue,
                Err(error) => return Err(error),
            };
            let of_nobody = found.is_none();
            let (at, found) = found.unwrap_or_else(|| (state.position, Found::default()));
            // A decision in between: both must be of the same position.
            if at == state.position && (of_postgres == self.has_postgres() || teller == Teller::File) {
                let known = self.join(found, &state).await?;
                let known = Arc::new(Known { of_postgres, of_nobody, ..known });
                self.register().await?;
                // The first shard that comes does so at no other position: it is to be asked then.
                if !of_nobody {
                    kept.store(Some(known.clone()));
                }
                return Ok(known);
            }
            tokio::time::sleep(LOOKS.1).await;
        }
        Err(JournalError::Busy)
    }

    /// Has the schema read anew by whoever needs it next.
    pub(crate) fn forget_schema(&self) {
        self.known.store(None);
        self.known_of_files.store(None);
    }

    /// What the first shard has that can be asked, and at which position: all have the same, and one that is down is
    /// not to keep the others from being read. Nor is one from which somebody has dropped a table past Polyshard: that
    /// would be asked of one shard alone, as what was never declared. Nothing if there is none.
    ///
    /// One that has everything is read as it is. Whoever brings it up, or has its tables known to moves, may wait for a
    /// client's transaction on it, which may wait for this.
    async fn told(&self, teller: Teller, state: &JournalState) -> Result<Option<(u64, Found)>, JournalError> {
        let of_files = teller == Teller::File || !self.has_postgres();
        let (want, everywhere) = (state.position, everywhere(state)?);
        let (mut failed, mut lacking) = (None, None);
        for id in self.serving().into_iter().filter(|id| self.is_file(id) == of_files) {
            let asked = async {
                let lacks = |has: Option<u64>| has.is_none_or(|has| has < want);
                if !self.is_ready(&id) && lacks(self.applied_on(&self.shard(&id).await?).await?) {
                    self.catch_up(&id).await?;
                }
                self.read_shard(&id).await
            };
            match asked.await {
                Ok((at, found)) => {
                    match everywhere.iter().find(|name| at == want && !found.schema.tables.contains_key(name))
                    {
                        None => return Ok(Some((at, found))),
                        Some(table) => {
                            tracing::warn!(shard = %id, %table, "it lacks a declared table; see 'polyshard check'");
                            lacking.get_or_insert((at, found));
                        }
                    }
                }
                Err(error) if error.is_retryable() => {
                    tracing::warn!(shard = %id, %error, "tables are read from another shard");
                    failed.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        match (lacking, failed) {
            // It is gone from all of them.
            (Some(found), None) => Ok(Some(found)),
            (_, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    /// What one shard has, and at which position.
    pub(crate) async fn read_shard(&self, id: &ShardId) -> Result<(u64, Found), JournalError> {
        let shard = self.shard(id).await?;
        let fail = |error| JournalError::on(id, error);
        let mut tx = shard.control_snapshot().await.map_err(fail)?;
        let wrong = |error: polyshard_engine::Error| JournalError::on(id, error);
        let dialect = shard.dialect();
        if dialect == Dialect::Postgres {
            tx.run_all(introspect::preamble()).await.map_err(wrong)?;
        }
        let rows = tx.run(tables::select_applied(dialect, Lock::No)).await.map_err(wrong)?;
        let position = rows.first().map(|row| row.int(0)).transpose().map_err(wrong)?.unwrap_or(0) as u64;
        let found = match dialect {
            Dialect::Postgres => introspect::read(&mut tx).await?,
            Dialect::Sqlite => self.read_embedded(&mut tx).await?,
        };
        tx.rollback().await.map_err(wrong)?;
        Ok((position, found))
    }

    /// The tables that a shard has and their numbers, without what open transactions do to them; waits for nobody's
    /// locks.
    pub(crate) async fn tables_on(
        &self,
        id: &ShardId,
    ) -> Result<BTreeMap<TableName, Option<i64>>, JournalError> {
        let shard = self.shard(id).await?;
        let mut tx = shard.control_snapshot().await.map_err(|error| JournalError::on(id, error))?;
        let wrong = |error: polyshard_engine::Error| JournalError::on(id, error);
        let names = match shard.dialect() {
            Dialect::Postgres => {
                let sql = "SELECT n.nspname::text, c.relname::text, c.oid::bigint FROM pg_catalog.pg_class c \
                    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p')";
                let rows = tx.run(Statement::new(sql)).await.map_err(wrong)?;
                let table = |row: &Row| {
                    let (schema, name) = (row.text(0)?.to_owned(), row.text(1)?.to_owned());
                    Ok((TableName { schema, name }, Some(row.int(2)?)))
                };
                rows.iter().map(table).collect::<Result<_, _>>().map_err(wrong)?
            }
            Dialect::Sqlite => {
                let schema = self.embedded().schema(&mut tx).await?;
                schema.tables.keys().map(|name| (name.clone(), None)).collect()
            }
        };
        tx.rollback().await.map_err(wrong)?;
        Ok(names)
    }

    pub(crate) async fn read_embedded(&self, tx: &mut Transaction) -> Result<Found, JournalError> {
        let mut schema = self.embedded().schema(tx).await?;
        let known = |names: &[&str], volatility| -> Vec<(String, Volatility)> {
            names.iter().map(|name| ((*name).to_owned(), volatility)).collect()
        };
        schema.unstable_builtins.extend(known(STABLE, Volatility::Stable));
        schema.unstable_builtins.extend(known(VOLATILE, Volatility::Volatile));
        let details = |table: &Table| embedded_details(table, schema.indexes.get(&table.name));
        let details = schema.tables.values().map(|table| (table.name.clone(), details(table))).collect();
        Ok(Found { schema, details })
    }

    pub(crate) fn embedded(&self) -> &dyn crate::Embedded {
        self.options.embedded.as_ref()
    }

    /// Puts what was declared to what was found.
    async fn join(&self, found: Found, state: &JournalState) -> Result<Known, JournalError> {
        let mut schema = found.schema;
        schema.position = state.position;
        let mut types: BTreeMap<MapName, KeyType> = BTreeMap::new();
        for (name, body) in declarations(&state.declarations) {
            match Declared::read(name, body)? {
                (name, Declared::TableFree) => declare_function(&mut schema, &name),
                (name, declared) => {
                    if let Declared::Sharded { map, .. } = &declared
                        && !types.contains_key(map)
                    {
                        types.insert(map.clone(), self.key_type(map).await?);
                    }
                    declare_table(&mut schema, &name, declared, &types);
                }
            }
        }
        let changing = state.declarations.iter().any(|(name, _)| name == CHANGING);
        Ok(Known {
            schema: Arc::new(schema),
            details: found.details,
            changing,
            of_postgres: false,
            of_nobody: false,
        })
    }

    pub(crate) async fn key_type(&self, map: &MapName) -> Result<KeyType, JournalError> {
        if let Some(known) = self.router.view().maps.get(map) {
            return Ok(known.map.definition().key_type().clone());
        }
        Ok(self.catalog.map(map).await?.definition.key_type().clone())
    }
}

/// The declared tables that every shard has.
fn everywhere(state: &JournalState) -> Result<Vec<TableName>, JournalError> {
    let mut names = Vec::new();
    for (name, body) in declarations(&state.declarations) {
        if let (name, Declared::Sharded { .. } | Declared::Reference) = Declared::read(name, body)? {
            names.push(name);
        }
    }
    Ok(names)
}

fn declare_table(
    schema: &mut Schema,
    name: &TableName,
    declared: Declared,
    types: &BTreeMap<MapName, KeyType>,
) {
    // A table that is gone from the shards has nothing to be placed.
    let Some(table) = schema.tables.get(name) else { return };
    let placement = match declared {
        Declared::Reference => Placement::Reference { declared: true },
        Declared::Local { shard } => Placement::Local(shard),
        Declared::Sharded { map, column } => match (table.column(&column), types.get(&map)) {
            (Some(column), Some(key_type)) => Placement::Sharded { map, column, key_type: key_type.clone() },
            _ => return,
        },
        Declared::TableFree => return,
    };
    let table = Table { placement, ..Table::clone(table) };
    schema.tables.insert(name.clone(), Arc::new(table));
}

fn declare_function(schema: &mut Schema, name: &TableName) {
    if let Some(function) = schema.functions.get(name) {
        let function = Function { table_free: true, ..Function::clone(function) };
        schema.functions.insert(name.clone(), Arc::new(function));
    }
}

/// On SQLite the schema tells all there is.
fn embedded_details(table: &Table, indexes: Option<&Vec<NamedIndex>>) -> Details {
    let names = |columns: &[usize]| -> Vec<String> {
        columns.iter().map(|at| table.columns[*at].name.clone()).collect()
    };
    let mut unique: Vec<(String, Vec<String>)> = Vec::new();
    if !table.primary_key.is_empty() {
        unique.push((format!("{}_pkey", table.name.name), names(&table.primary_key)));
    }
    unique.extend(table.unique.iter().map(|columns| {
        let columns: Vec<String> = names(columns);
        (format!("({})", columns.join(", ")), columns)
    }));
    // Those on expressions or on some rows say nothing of columns, but two rows may break them as well.
    let others = indexes.into_iter().flatten().filter(|index| index.is_unique && index.columns.is_empty());
    unique.extend(others.map(|index| (index.name.clone(), index.parts.clone())));
    Details { unique, ..Details::default() }
}
