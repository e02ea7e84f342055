//! A shard that is new here: the schema is made as the journal tells it, and the rows of reference tables are copied
//! from another shard as they are then.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use polyshard_engine as engine;
use polyshard_engine::{Dialect, Statement, Transaction};
use polyshard_map::ShardId;
use polyshard_shard::{Dataset, Placement as Placing, Shard, ShardError};
use polyshard_sql::{Generated, Schema, Table, TableName};

use crate::JournalError;
use crate::catch_up::TRIES;
use crate::declaration::key;
use crate::entry::{Entry, EntryKind};
use crate::introspect;
use crate::journal::Inner;
use crate::quote::{identifier, literal, table_name, text as quote_text};
use crate::run::Rows;
use crate::tables::{self, Lock};

/// Entries read at once.
const ENTRIES_PAGE: u32 = 256;
/// Rows in one INSERT, and in one page of the copy.
const COPY_ROWS: usize = 500;

/// What becomes of tables that a database has of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    /// There may be none.
    Refused,
    /// They stay, with their rows.
    Kept,
}

impl Inner {
    /// Gives a shard the schema and the reference rows of some position; answers which. In one transaction, so that
    /// there is nothing half-made.
    pub(crate) async fn bring_up(&self, shard: &Arc<Shard>) -> Result<u64, JournalError> {
        self.bring_up_with(shard, Own::Refused).await
    }

    /// Likewise, for a database that keeps its own tables with their rows.
    pub(crate) async fn bring_up_beside_its_own(&self, shard: &Arc<Shard>) -> Result<u64, JournalError> {
        self.bring_up_with(shard, Own::Kept).await
    }

    #[boxed]
    async fn bring_up_with(&self, shard: &Arc<Shard>, own: Own) -> Result<u64, JournalError> {
        let (id, dialect) = (shard.id().clone(), shard.dialect());
        let fail = |error: engine::Error| JournalError::on(&id, error);
        let open =
            || async { shard.patient_transaction().await.map_err(|error| JournalError::on(&id, error)) };
        self.make_own_tables(shard).await?;
        let number = self.catalog.shard_number(&id).await?;
        let cluster = self.catalog.cluster().await?.to_string();

        let mut tx = open().await?;
        if dialect == Dialect::Postgres {
            // One at a time: there may be no row to lock yet.
            let lock = "SELECT pg_advisory_xact_lock(1886603852, 2)";
            tx.run(Statement::new(lock)).await.map_err(fail)?;
        }
        let rows = tx.run(tables::select_applied(dialect, Lock::Yes)).await.map_err(fail)?;
        let begun = rows.first().map(|row| row.int(0)).transpose().map_err(fail)?.map(|at| at as u64);
        let last = self.catalog.journal_position().await?;
        if begun.is_none() && last == 0 {
            tx.run(tables::begin(dialect, &cluster, 0, number)).await.map_err(fail)?;
            tx.commit().await.map_err(fail)?;
            return Ok(0);
        }
        let after = begun.unwrap_or(0);
        // It may have been done while this one waited.
        let next = self.catalog.journal_entries(after, 1).await?;
        if begun.is_some() && next.first().is_none_or(|entry| entry.position == after + 1) {
            return Ok(after);
        }
        if begun.is_some() {
            return Err(JournalError::Stuck {
                shard: id.clone(),
                position: after,
                why:
                    "it was away for longer than the journal remembers writes to reference tables; empty the \
                      database and add it as a new shard"
                        .to_owned(),
            });
        }
        let source = self.source(&id, dialect).await?;
        let position = match &source {
            None => last,
            Some((_, _, position)) => *position,
        };
        let before = self.tables_in(dialect, &mut tx).await?;
        // They would be emptied with those that the journal makes.
        if let (Some(first), Own::Refused) = (before.first(), own) {
            let why = format!(
                "its database has tables of its own, such as {}; empty it and add it again, or take it in with \
                 'polyshard adopt'",
                first.name
            );
            return Err(JournalError::Stuck { shard: id, position: after, why });
        }
        self.make_schema(&id, dialect, &mut tx, after, position).await?;
        if dialect == Dialect::Postgres {
            self.blocks_on_new(&id, position, &mut tx).await?;
        }
        self.empty_tables(&id, dialect, &mut tx, &before).await?;
        if let Some((from, mut from_tx, _)) = source {
            if (from.dialect(), dialect) == (Dialect::Postgres, Dialect::Sqlite) {
                self.align_counts(&mut from_tx, &mut tx).await?;
            }
            self.copy_reference(&from, &mut from_tx, &id, dialect, &mut tx, position).await?;
        }
        tx.run(tables::begin(dialect, &cluster, position, number)).await.map_err(fail)?;
        self.pass(&format!("bring_up:{id}.before"))?;
        tx.commit().await.map_err(fail)?;
        tracing::info!(shard = %id, position, "a new shard has the schema and the reference tables");
        Ok(position)
    }

    /// Makes the journal's own tables with those of the stores, which are made when a shard is first used: maybe at
    /// this moment, by somebody else. PostgreSQL refuses who makes a table that another is making: all take one lock.
    async fn make_own_tables(&self, shard: &Arc<Shard>) -> Result<(), JournalError> {
        let id = shard.id();
        let mut tries = 0;
        while let Err(error) = shard.ensure_tables().await {
            tries += 1;
            match error {
                // Somebody else is still at it.
                ShardError::Engine(engine::Error::Timeout { .. } | engine::Error::Conflict { .. })
                    if tries < TRIES.0 =>
                {
                    tokio::time::sleep(TRIES.1).await;
                }
                error => return Err(JournalError::on(id, error)),
            }
        }
        if self.has_own_tables(shard).await? {
            return Ok(());
        }
        // The stores do not have them among theirs.
        let fail = |error: engine::Error| JournalError::on(id, error);
        let mut tx = shard.patient_transaction().await.map_err(|error| JournalError::on(id, error))?;
        tx.run_all(tables::creation(shard.dialect())).await.map_err(fail)?;
        tx.commit().await.map_err(fail)
    }

    /// Another shard, of the same engine if there is one, with a snapshot of it open and the position that it is of.
    /// None if there is none: then no row of a reference table can have been written either.
    async fn source(
        &self,
        not: &ShardId,
        dialect: Dialect,
    ) -> Result<Option<(Arc<Shard>, Transaction, u64)>, JournalError> {
        let mut why = None;
        let (mut alike, mut others) = (Vec::new(), Vec::new());
        for id in self.serving().into_iter().filter(|id| id != not) {
            match self.shard(&id).await {
                Ok(shard) if shard.dialect() == dialect => alike.push(shard),
                Ok(shard) => others.push(shard),
                Err(error) => why = Some(error),
            }
        }
        for shard in alike.into_iter().chain(others) {
            let position = match self.applied_on(&shard).await {
                Ok(Some(_)) => self.snapshot(&shard).await,
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            match position {
                Ok((tx, position)) => return Ok(Some((shard, tx, position))),
                Err(error) => why = Some(error),
            }
        }
        match why {
            Some(error) => Err(error),
            None => Ok(None),
        }
    }

    /// What a shard has at one moment, and the position that it is of. A file's only writer is left to whoever has it:
    /// he may be waiting for what is copied from here.
    pub(crate) async fn snapshot(&self, shard: &Arc<Shard>) -> Result<(Transaction, u64), JournalError> {
        let id = shard.id();
        let fail = |error: engine::Error| JournalError::on(id, error);
        let opened = match shard.dialect() {
            Dialect::Sqlite => shard.control_snapshot().await,
            Dialect::Postgres => shard.patient_transaction().await,
        };
        let mut tx = opened.map_err(|error| JournalError::on(id, error))?;
        if shard.dialect() == Dialect::Postgres {
            tx.run_all(introspect::preamble()).await.map_err(fail)?;
        }
        let rows = tx.run(tables::select_applied(shard.dialect(), Lock::No)).await.map_err(fail)?;
        let position = rows.first().map(|row| row.int(0)).transpose().map_err(fail)?.unwrap_or(0);
        Ok((tx, position as u64))
    }

    /// Runs what entries say of the schema; rows come otherwise.
    async fn make_schema(
        &self,
        id: &ShardId,
        dialect: Dialect,
        tx: &mut Transaction,
        after: u64,
        upto: u64,
    ) -> Result<(), JournalError> {
        let mut position = after;
        loop {
            let entries = self.catalog.journal_entries(position, ENTRIES_PAGE).await?;
            let Some(last) = entries.last() else { return Ok(()) };
            for stored in entries.iter().filter(|stored| stored.position <= upto) {
                let entry = Entry::of(stored)?;
                if entry.kind == EntryKind::Rows {
                    continue;
                }
                let run = self.run(id, dialect, tx, &entry.statements, &entry.settings, Rows::Lacks).await;
                if let Err(JournalError::Shard { shard, error }) = run {
                    let why = error.to_string();
                    return Err(JournalError::Stuck { shard, position: stored.position, why });
                }
                run?;
            }
            position = last.position;
            if position >= upto {
                return Ok(());
            }
        }
    }

    async fn tables_in(
        &self,
        dialect: Dialect,
        tx: &mut Transaction,
    ) -> Result<Vec<Arc<Table>>, JournalError> {
        let found = match dialect {
            Dialect::Postgres => introspect::read_tables(tx).await?.schema,
            Dialect::Sqlite => self.embedded().schema(tx).await?,
        };
        Ok(found.tables.into_values().collect())
    }

    /// Removes the rows that came with the schema: some changes make a table and fill it at once.
    async fn empty_tables(
        &self,
        id: &ShardId,
        dialect: Dialect,
        tx: &mut Transaction,
        kept: &[Arc<Table>],
    ) -> Result<(), JournalError> {
        let fail = |error: engine::Error| JournalError::on(id, error);
        let mut tables = self.tables_in(dialect, tx).await?;
        tables.retain(|table| !kept.iter().any(|kept| kept.name == table.name));
        let names: Vec<String> = tables.iter().map(|table| table_name(dialect, &table.name)).collect();
        if dialect == Dialect::Postgres && !names.is_empty() {
            tx.run(Statement::new(format!("TRUNCATE {}", names.join(", ")))).await.map_err(fail)?;
            return Ok(());
        }
        for table in in_order(&tables)?.iter().rev() {
            let sql = format!("DELETE FROM {}", table_name(dialect, &table.name));
            tx.run(Statement::new(sql)).await.map_err(fail)?;
        }
        Ok(())
    }

    /// Copies all rows of all reference tables, in the order of their foreign keys.
    #[boxed]
    async fn copy_reference(
        &self,
        from: &Shard,
        from_tx: &mut Transaction,
        to: &ShardId,
        dialect: Dialect,
        tx: &mut Transaction,
        position: u64,
    ) -> Result<(), JournalError> {
        let found = match from.dialect() {
            Dialect::Postgres => introspect::read(from_tx).await?.schema,
            Dialect::Sqlite => self.embedded().schema(from_tx).await?,
        };
        let state = self.catalog.journal_state().await?;
        if state.position < position {
            return Err(JournalError::Busy);
        }
        let reference = self.reference_tables(&found, &state.declarations)?;
        let order = in_order(&reference)?;
        if from.dialect() != dialect {
            return self.copy_between_engines((from, from_tx), (to, dialect, tx), &found, &order).await;
        }
        let from = from.id();
        for table in order {
            self.copy_table((from, from_tx), (to, tx), dialect, table, position).await?;
        }
        if dialect == Dialect::Postgres {
            copy_sequences(from, from_tx, to, tx).await?;
        }
        Ok(())
    }

    /// The tables whose rows are on every shard.
    fn reference_tables(
        &self,
        found: &Schema,
        declarations: &[(String, String)],
    ) -> Result<Vec<Arc<Table>>, JournalError> {
        let mut elsewhere = Vec::new();
        for (name, body) in crate::changing::declarations(declarations) {
            match crate::declaration::Declared::read(name, body)? {
                (_, crate::declaration::Declared::Reference | crate::declaration::Declared::TableFree) => {}
                (name, _) => elsewhere.push(name),
            }
        }
        Ok(found.tables.values().filter(|table| !elsewhere.contains(&table.name)).cloned().collect())
    }

    async fn copy_table(
        &self,
        (from, from_tx): (&ShardId, &mut Transaction),
        (to, tx): (&ShardId, &mut Transaction),
        dialect: Dialect,
        table: &Table,
        position: u64,
    ) -> Result<(), JournalError> {
        let name = table_name(dialect, &table.name);
        let columns: Vec<String> = table
            .columns
            .iter()
            .filter(|column| column.generated != Generated::Stored)
            .map(|column| identifier(&column.name))
            .collect();
        let read_fail = |error: engine::Error| JournalError::on(from, error);
        let fail = |error: engine::Error| JournalError::on(to, error);
        let (list, overriding) = (columns.join(", "), overriding(dialect));
        let read: Vec<String> = match dialect {
            Dialect::Postgres => columns.iter().map(|column| format!("{column}::text")).collect(),
            Dialect::Sqlite => columns.clone(),
        };
        let cursor = "SELECT".to_owned() + " " + &read.join(", ") + " FROM " + &name;
        // A session remembers statements by their text, and what they answer: no two cursors may be called alike.
        let copy = identifier(&format!("polyshard copy {position} {}", table.name));
        let mut offset = 0;
        if dialect == Dialect::Postgres && table.triggers {
            tx.run(Statement::new(format!("ALTER TABLE {name} DISABLE TRIGGER USER"))).await.map_err(fail)?;
        }
        if dialect == Dialect::Postgres {
            let declare = format!("DECLARE {copy} NO SCROLL CURSOR FOR {cursor}");
            from_tx.run(Statement::new(declare)).await.map_err(read_fail)?;
        }
        loop {
            let page = match dialect {
                Dialect::Postgres => format!("FETCH {COPY_ROWS} FROM {copy}"),
                Dialect::Sqlite => format!("{cursor} LIMIT {COPY_ROWS} OFFSET {offset}"),
            };
            let rows = from_tx.run(Statement::new(page)).await.map_err(read_fail)?;
            if rows.is_empty() {
                break;
            }
            offset += rows.len();
            let values: Vec<String> = rows
                .iter()
                .map(|row| {
                    let row: Vec<String> = row.values().iter().map(|value| literal(dialect, value)).collect();
                    format!("({})", row.join(", "))
                })
                .collect();
            let insert = format!("INSERT INTO {name} ({list}) {overriding}VALUES {}", values.join(", "));
            tx.run(Statement::new(insert)).await.map_err(fail)?;
        }
        if dialect == Dialect::Postgres {
            from_tx.run(Statement::new(format!("CLOSE {copy}"))).await.map_err(read_fail)?;
            if table.triggers {
                tx.run(Statement::new(format!("ALTER TABLE {name} ENABLE TRIGGER USER")))
                    .await
                    .map_err(fail)?;
            }
        }
        Ok(())
    }
}

/// How the protocol knows a sharded table.
pub(crate) fn dataset_of(
    record: &polyshard_catalog::DatasetRecord,
    dialect: Dialect,
) -> Result<Dataset, JournalError> {
    let damaged = || JournalError::Damaged { what: "dataset of a table", detail: record.name.clone() };
    let (schema, name) = record.name.split_once('.').ok_or_else(damaged)?;
    let table = TableName { schema: schema.to_owned(), name: name.to_owned() };
    debug_assert_eq!(key(&table), record.name);
    Ok(Dataset {
        name: record.name_on_shards(),
        map: record.map.clone(),
        table: table_name(dialect, &table),
        placement: Placing::Key(vec![identifier(&record.rule.attribute)]),
        rows: polyshard_shard::TableRows::All,
    })
}

/// Sequences go on where the other shard's are, so that ids made here from now on are new ones.
async fn copy_sequences(
    from: &ShardId,
    from_tx: &mut Transaction,
    to: &ShardId,
    tx: &mut Transaction,
) -> Result<(), JournalError> {
    // Those of sharded tables count from the beginning on each shard, through blocks of its own.
    let sql = "SELECT format('%I.%I', schemaname, sequencename), last_value FROM pg_sequences \
               WHERE schemaname <> 'polyshard' AND last_value IS NOT NULL \
               AND format('%I.%I', schemaname, sequencename) NOT IN (SELECT sequence FROM polyshard.id_block)";
    let rows = from_tx.run(Statement::new(sql)).await.map_err(|error| JournalError::on(from, error))?;
    for row in rows.iter() {
        let fail = |error: engine::Error| JournalError::on(to, error);
        let (name, last) = (row.text(0).map_err(fail)?, row.int(1).map_err(fail)?);
        let set = format!("SELECT setval({}, {last})", quote_text(name));
        tx.run(Statement::new(set)).await.map_err(fail)?;
    }
    Ok(())
}

pub(crate) fn overriding(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "OVERRIDING SYSTEM VALUE ",
        Dialect::Sqlite => "",
    }
}

/// Tables so that each comes after those that it refers to.
pub(crate) fn in_order(tables: &[Arc<Table>]) -> Result<Vec<&Arc<Table>>, JournalError> {
    let mut left: Vec<&Arc<Table>> = tables.iter().collect();
    let mut order: Vec<&Arc<Table>> = Vec::new();
    while !left.is_empty() {
        let free = |table: &&Arc<Table>| {
            table.foreign_keys.iter().all(|foreign| {
                foreign.target == table.name || !left.iter().any(|other| other.name == foreign.target)
            })
        };
        let (now, later): (Vec<_>, Vec<_>) = left.iter().copied().partition(free);
        if now.is_empty() {
            let names: Vec<String> = later.iter().map(|table| table.name.to_string()).collect();
            let message = format!("the tables {} refer to each other in a circle", names.join(", "));
            let hint = "drop one of the foreign keys while a shard is added, and add it again";
            return Err(polyshard_sql::SqlError::unsupported(message, hint).into());
        }
        order.extend(now);
        left = later;
    }
    Ok(order)
}
