//! Takes in a PostgreSQL database that has tables and rows already (D10): what is there is looked at, the other shards
//! get the same tables, and how they are placed is declared, all in one decision.

mod statements;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polyshard_catalog::{DatasetOfTable, KeyPart, KeyRule};
use polyshard_engine::{self as engine, Dialect, Statement, Transaction};
use polyshard_map::{MapDefinition, ShardId};
use polyshard_shard::Shard;
use polyshard_sql::{Placement, Schema, SqlError, SqlState, Table, TableName};
use serde_json::json;

use crate::JournalError;
use crate::checks::{self, Occasion, Sharding};
use crate::declaration::{Declared, STORE, key};
use crate::declare::{Plan, find_by_key};
use crate::entry::Recorded;
use crate::introspect::{self, Details, Found};
use crate::journal::Journal;
use crate::quote::{identifier, table_name};
use crate::reference::REFERENCE_ROWS_MAX;
use crate::sequences;
use crate::tables::{self, Lock};

/// Keys that a list map is made with: each is an entry.
const KEYS_MAX: usize = 1_000_000;

/// Which column is the key of which tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumns {
    /// The column that is the key wherever a table has one of this name.
    pub everywhere: Option<String>,
    /// The key of single tables, which may be called otherwise.
    pub single: BTreeMap<TableName, String>,
    /// The tables that the database had before it was taken in; all that are there, if none are named. A shard has the
    /// other shards' tables, too, once it was taken in.
    pub only: BTreeSet<TableName>,
}

/// How a table is to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// By the map, on this column.
    Sharded(String),
    /// All rows on every shard.
    Reference,
}

/// A table of a database that is to be taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptTable {
    /// Its name.
    pub table: TableName,
    /// How it is to be placed.
    pub how: Adopted,
    /// Its rows.
    pub rows: u64,
}

/// What was found in a database that is to be taken in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Look {
    /// Its tables.
    pub tables: Vec<AdoptTable>,
    /// What must be changed there first, each with what to do.
    pub must_change: Vec<String>,
}

impl KeyColumns {
    fn of<'a>(&'a self, table: &Table) -> Option<&'a str> {
        if let Some(column) = self.single.get(&table.name) {
            return Some(column);
        }
        let column = self.everywhere.as_deref()?;
        table.column(column).map(|_| column)
    }

    /// Whether a table is one of the database's own.
    fn is_own(&self, name: &TableName) -> bool {
        self.only.is_empty() || self.only.contains(name)
    }
}

/// A database as it was read, with how its tables are to be placed.
struct Read {
    found: Found,
    schema: Schema,
    look: Look,
}

impl Journal {
    /// Looks at a database that is to be taken in as a shard whose rows a map places. Changes nothing.
    pub async fn look_at_database(
        &self,
        shard: &Shard,
        definition: &MapDefinition,
        columns: &KeyColumns,
    ) -> Result<Look, JournalError> {
        let known = self.schema().await?;
        let given = self.was_given(shard).await?;
        Ok(read(shard, definition, columns, &known, given).await?.look)
    }

    /// Whether an earlier attempt, which was given up, has brought this cluster's tables to the database.
    async fn was_given(&self, shard: &Shard) -> Result<bool, JournalError> {
        let fail = |error: engine::Error| JournalError::on(shard.id(), error);
        if shard.dialect() != Dialect::Postgres {
            return Ok(false);
        }
        let mut tx = snapshot(shard).await?;
        let there = "SELECT to_regclass('polyshard.journal_applied') IS NOT NULL";
        if !tx.run(Statement::new(there)).await.and_then(|rows| rows.one()?.bool(0)).map_err(fail)? {
            return Ok(false);
        }
        let rows = tx.run(tables::select_applied(Dialect::Postgres, Lock::No)).await.map_err(fail)?;
        let cluster = self.inner.catalog.cluster().await?.to_string();
        let mut of = rows.iter().map(|row| row.text(1).map(|of| of == cluster));
        of.next().transpose().map_err(fail).map(|of| of.unwrap_or(false))
    }

    /// Gives a database that is to become a shard what the others have, beside its own tables, which stay as they are.
    /// To be called before it is known as a shard; repeating it is fine.
    pub async fn take_in(&self, shard: &Arc<Shard>) -> Result<(), JournalError> {
        self.inner.bring_up_beside_its_own(shard).await.map(drop)
    }

    /// All keys that the sharded tables of a database have, as texts.
    pub async fn keys_of_database(
        &self,
        shard: &Shard,
        definition: &MapDefinition,
        columns: &KeyColumns,
    ) -> Result<BTreeSet<String>, JournalError> {
        let known = without(&*self.schema().await?, definition, columns);
        let read = read(shard, definition, columns, &known, false).await?;
        let mut tx = snapshot(shard).await?;
        let mut keys = BTreeSet::new();
        for table in &read.look.tables {
            let Adopted::Sharded(column) = &table.how else { continue };
            let (column, name) = (identifier(column), table_name(Dialect::Postgres, &table.table));
            let sql = format!("SELECT DISTINCT {column}::text FROM {name} LIMIT {}", KEYS_MAX + 1);
            keys.extend(statements::texts(shard.id(), &mut tx, &sql).await?);
            if keys.len() > KEYS_MAX {
                let message = format!("{name} has more than {KEYS_MAX} keys");
                return Err(SqlError::unsupported(message, "adopt it with a range or hash map").into());
            }
        }
        Ok(keys)
    }

    /// Has the tables of a shard that was taken in on every shard, and declares how they are placed. Repeating it is
    /// fine.
    pub async fn adopt_tables(
        &self,
        id: &ShardId,
        definition: &MapDefinition,
        columns: &KeyColumns,
    ) -> Result<(), JournalError> {
        let turn = self.turn().await?;
        let planned = async {
            let shard = self.inner.shard(id).await?;
            let known = turn.known();
            let rest = without(&known.schema, definition, columns);
            let mut read = read(&shard, definition, columns, &rest, false).await?;
            if read.look.tables.iter().all(|table| is_declared(&known.schema, &table.table, definition)) {
                return Ok(None);
            }
            if !read.look.must_change.is_empty() {
                let message = read.look.must_change.join("; ");
                return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message).into());
            }
            let mut plan = Plan::default();
            let mut tx = snapshot(&shard).await?;
            plan.statements = statements::of(id, &mut tx, &read.found).await?;
            for table in std::mem::take(&mut read.look.tables) {
                let name = &table.table;
                let (found, details) = (&read.schema.tables[name], &read.found.details[name]);
                let declared = match &table.how {
                    Adopted::Reference => {
                        plan.statements.extend(statements::rows(id, &mut tx, found).await?);
                        Declared::Reference
                    }
                    Adopted::Sharded(column) => {
                        let blocks =
                            sequences::blocks_instead_from(&self.inner, &turn, found, details, Some(id))
                                .await?;
                        plan.statements.extend(blocks);
                        plan.statements.extend(find_by_key(name, column, found, definition)?);
                        plan.decision.datasets.push(DatasetOfTable {
                            store: STORE.to_owned(),
                            name: key(name),
                            map: definition.name().clone(),
                            rule: KeyRule { attribute: column.clone(), part: KeyPart::Whole },
                            body: json!({ "format": 1 }),
                        });
                        Declared::Sharded { map: definition.name().clone(), column: column.clone() }
                    }
                };
                plan.decision.declare.push((key(name), Some(declared.write())));
            }
            plan.decision.depends_on = vec![definition.name().clone()];
            Ok::<Option<Plan>, JournalError>(Some(plan))
        };
        match planned.await {
            Ok(Some(plan)) => {
                if let Err(error) = self.carry_out(turn, plan).await? {
                    // The procedure goes on by what was decided; tried again, it would find nothing to do.
                    tracing::warn!(%error, "adopted tables are declared, which not every process may know yet");
                }
                self.finish_or_leave().await
            }
            Ok(None) => {
                turn.give_up().await;
                Ok(())
            }
            Err(error) => {
                turn.give_up().await;
                Err(error)
            }
        }
    }
}

/// The tables that are in the way of a new one of the same name: what an earlier try has declared is not, nor what
/// nobody has declared, which is what the adopted shard brought along.
fn without(schema: &Schema, definition: &MapDefinition, columns: &KeyColumns) -> Schema {
    let mut others = schema.clone();
    others.tables.retain(|name, table| {
        let undeclared = table.placement == Placement::Reference { declared: false };
        !columns.is_own(name) || !(undeclared || is_declared(schema, name, definition))
    });
    others
}

fn is_declared(schema: &Schema, name: &TableName, definition: &MapDefinition) -> bool {
    schema.tables.get(name).is_some_and(|table| match &table.placement {
        Placement::Sharded { map, .. } => map == definition.name(),
        Placement::Reference { declared } => *declared,
        Placement::Local(_) => false,
    })
}

async fn snapshot(shard: &Shard) -> Result<Transaction, JournalError> {
    let id = shard.id();
    let mut tx = shard.patient_transaction().await.map_err(|error| JournalError::on(id, error))?;
    tx.run_all(introspect::preamble()).await.map_err(|error| JournalError::on(id, error))?;
    Ok(tx)
}

async fn read(
    shard: &Shard,
    definition: &MapDefinition,
    columns: &KeyColumns,
    known: &Schema,
    given: bool,
) -> Result<Read, JournalError> {
    if shard.dialect() != Dialect::Postgres {
        let message = format!("{} is no PostgreSQL database", shard.id());
        return Err(SqlError::unsupported(message, "load its rows instead, through Polyshard").into());
    }
    let mut tx = snapshot(shard).await?;
    let mut found = introspect::read(&mut tx).await?;
    found.schema.tables.retain(|name, _| columns.is_own(name) && !(given && known.tables.contains_key(name)));
    let mut look = Look::default();
    let mut schema = known.clone();
    let mut own: BTreeSet<TableName> = BTreeSet::new();
    for (name, table) in &found.schema.tables {
        if schema.tables.contains_key(name) {
            look.must_change.push(format!("the cluster has a table {name} already: rename one of them"));
        }
        let mut placed = (**table).clone();
        if let Some(column) = columns.of(table) {
            match table.column(column) {
                Some(column) => {
                    let (map, key_type) = (definition.name().clone(), definition.key_type().clone());
                    placed.placement = Placement::Sharded { map, column, key_type };
                }
                None => look.must_change.push(format!("table {name} has no column {column}")),
            }
        } else {
            placed.placement = Placement::Reference { declared: true };
        }
        own.insert(name.clone());
        schema.tables.insert(name.clone(), Arc::new(placed));
    }
    for name in columns.single.keys().filter(|name| !own.contains(name)) {
        look.must_change.push(format!("there is no table {name}, whose key was named"));
    }
    for name in &own {
        let table = schema.tables[name].clone();
        let rows = count(shard.id(), &mut tx, name).await?;
        let details = &found.details[name];
        let (how, checked) = check(&schema, &table, details, definition, rows);
        look.must_change.extend(checked.into_iter().map(|refused| words(&refused)));
        look.tables.push(AdoptTable { table: name.clone(), how, rows });
    }
    // Later there are views and functions of the cluster, too; those of its own were looked for before.
    if columns.only.is_empty() {
        look.must_change.extend(statements::obstacles(shard.id(), &mut tx).await?);
    }
    if !look.tables.iter().any(|table| matches!(table.how, Adopted::Sharded(_))) {
        look.must_change.push("no table has the key column: name it with --key-column".to_owned());
    }
    Ok(Read { found, schema, look })
}

fn check(
    schema: &Schema,
    table: &Table,
    details: &Details,
    definition: &MapDefinition,
    rows: u64,
) -> (Adopted, Vec<SqlError>) {
    let name = &table.name;
    let mut refused = Vec::new();
    if table.triggers {
        refused.push(SqlError::unsupported(
            format!("table {name} has triggers, which would act on rows that are moved"),
            "drop them, or do their work in the application",
        ));
    }
    match &table.placement {
        Placement::Sharded { column, .. } => {
            let occasion = Occasion::Declared;
            let sharding = Sharding { occasion, schema, table, details, definition, column: *column };
            refused.extend(sharding.faults());
            (Adopted::Sharded(table.columns[*column].name.clone()), refused)
        }
        placement => {
            refused.extend(checks::check_whole(schema, table, details, placement).err());
            if rows > 0 && table.primary_key.is_empty() {
                let message = format!("table {name} has no key column, and no primary key to copy it by");
                refused.push(checks::wrong(message).hint("give it a primary key, or a key column"));
            }
            if rows > REFERENCE_ROWS_MAX as u64 {
                let message = format!(
                    "table {name} has no key column, and {rows} rows are more than the {REFERENCE_ROWS_MAX} that \
                     can be copied to every shard at once"
                );
                refused.push(checks::wrong(message).hint("give it a key column"));
            }
            (Adopted::Reference, refused)
        }
    }
}

fn words(refused: &SqlError) -> String {
    match &refused.hint {
        Some(hint) => format!("{}: {hint}", refused.message),
        None => refused.message.to_string(),
    }
}

async fn count(id: &ShardId, tx: &mut Transaction, name: &TableName) -> Result<u64, JournalError> {
    let sql = format!("SELECT count(*) FROM {}", table_name(Dialect::Postgres, name));
    let rows = tx.run(Statement::new(sql)).await.and_then(|rows| rows.one()?.int(0));
    let rows = rows.map_err(|error: engine::Error| JournalError::on(id, error))?;
    Ok(u64::try_from(rows).unwrap_or(0))
}
