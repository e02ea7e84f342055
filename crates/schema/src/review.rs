//! Looks at the schema as a change has left it, before it is decided: what was declared must still hold, whatever words
//! the change was made with. Tables that are gone are forgotten, those that have another name keep their declaration.

use std::collections::BTreeMap;
use std::future::Future;

use polyshard_catalog::{DatasetOfTable, Decision, KeyPart, KeyRule};
use polyshard_engine::{Dialect, Transaction};
use polyshard_map::{MapDefinition, MapName};
use polyshard_sql::{Kind, Placement, SqlError, SqlState, Statement, Table, TableName};
use serde_json::json;

use crate::JournalError;
use crate::blocks::{block_sequence, forget_blocks};
use crate::checks::{self, Occasion, Sharding};
use crate::declaration::{Declared, STORE, key};
use crate::entry::Recorded;
use crate::introspect::{self, Details, Found};
use crate::journal::{Journal, Known};
use crate::names::Names;
use crate::quote::text;
use crate::triggers::{self, Acts};
use crate::turn::Turn;

/// What follows from a change of the schema.
#[derive(Debug, Default)]
pub(crate) struct Review {
    pub decision: Decision,
    pub statements: Vec<Recorded>,
}

/// A table before and after, which may have another name now.
struct Kept<'a> {
    before: &'a Table,
    after: &'a Table,
    details: &'a Details,
}

impl Journal {
    /// Refuses a schema change that cannot be made on all shards at once.
    pub fn check_ddl(&self, statement: &Statement) -> Result<(), SqlError> {
        let Kind::Ddl(ddl) = statement.kind() else { return Ok(()) };
        if ddl.outside_transaction {
            return Err(SqlError::unsupported(
                format!(
                    "{} cannot run inside a transaction, and all shards change together or not at all",
                    ddl.tag
                ),
                "leave CONCURRENTLY out; what concerns a whole database is done on each one",
            ));
        }
        Ok(())
    }
}

impl Turn {
    /// To be called after a schema change has run on the first shard, in its open transaction: `ask` runs a query there
    /// and answers the texts of its only column. Answers statements that are to be run on every shard (of the engine
    /// they name) before the mark; [`Turn::decide`] records them.
    pub async fn review<A, F>(&mut self, mut ask: A) -> Result<Vec<Recorded>, JournalError>
    where
        A: FnMut(String) -> F,
        F: Future<Output = Result<Vec<String>, JournalError>>,
    {
        let rows = ask(introspect::tables_alone()).await?;
        let found = introspect::from_tables(&rows)?;
        let acts = triggers::read(&ask(triggers::QUESTION.to_owned()).await?)?;
        self.take_in(found, &acts, &self.names(&[], &[])).await
    }

    /// What its statements have called tables: for shards that have no numbers for them.
    fn names(&self, statements: &[Recorded], search_path: &[String]) -> Names {
        Names::after(self.schema(), statements, search_path)
    }

    /// The schema as it is within a transaction of this turn on the first shard: `ask` as for [`Turn::review`]. Its
    /// position is still the one before.
    pub async fn schema_within<A, F>(&self, mut ask: A) -> Result<polyshard_sql::Schema, JournalError>
    where
        A: FnMut(String) -> F,
        F: Future<Output = Result<Vec<String>, JournalError>>,
    {
        let mut answers = [Vec::new(), Vec::new(), Vec::new()];
        for (query, answer) in introspect::all_queries().into_iter().zip(&mut answers) {
            *answer = ask(query).await?;
        }
        self.placed(introspect::from_all(answers)?, &self.names(&[], &[]))
    }

    /// Likewise, for a transaction of the engine on the first shard, in which these statements were run.
    pub async fn schema_within_on(
        &self,
        dialect: Dialect,
        tx: &mut Transaction,
        (statements, search_path): (&[Recorded], &[String]),
    ) -> Result<polyshard_sql::Schema, JournalError> {
        let found = match dialect {
            Dialect::Postgres => introspect::read(tx).await?,
            Dialect::Sqlite => self.inner().read_embedded(tx).await?,
        };
        self.placed(found, &self.names(statements, search_path))
    }

    /// What was found, with what is known of tables that were there before.
    fn placed(&self, found: Found, names: &Names) -> Result<polyshard_sql::Schema, JournalError> {
        let known = self.schema();
        let mut schema = polyshard_sql::Schema::clone(known);
        schema.tables = found.schema.tables.clone();
        // A view or function that the transaction has made is as little to be taken for a part of the engine as others.
        schema.views = found.schema.views.clone();
        schema.functions = found.schema.functions.clone();
        (schema.schemas, schema.enums) = (found.schema.schemas.clone(), found.schema.enums.clone());
        schema.indexes = found.schema.indexes.clone();
        for (name, function) in &mut schema.functions {
            if known.functions.get(name).is_some_and(|before| before.table_free) {
                *function =
                    std::sync::Arc::new(polyshard_sql::Function { table_free: true, ..(**function).clone() });
            }
        }
        // By their numbers: a table that is called otherwise is placed as before, and its key is where it is now.
        let kept = kept(self.known(), &found, names).0;
        let is_kept = |name: &TableName| kept.iter().any(|table| table.after.name == *name);
        self.note_made(found.schema.tables.keys().filter(|name| !is_kept(name)).cloned().collect());
        for table in kept {
            let placement = placement_after(&table, self.known())?;
            let placed = Table { placement, ..table.after.clone() };
            schema.tables.insert(placed.name.clone(), std::sync::Arc::new(placed));
        }
        Ok(schema)
    }

    /// Likewise, for a transaction of the engine on the first shard, in which these statements were run.
    pub async fn review_on(
        &mut self,
        dialect: Dialect,
        tx: &mut Transaction,
        (statements, search_path): (&[Recorded], &[String]),
    ) -> Result<Vec<Recorded>, JournalError> {
        let (found, acts) = match dialect {
            Dialect::Postgres => {
                (introspect::read_tables(tx).await?, introspect::rows(tx, triggers::QUESTION).await?)
            }
            // SQLite shards have no triggers of the user's.
            Dialect::Sqlite => (self.inner().read_embedded(tx).await?, Vec::new()),
        };
        self.take_in(found, &acts, &self.names(statements, search_path)).await
    }

    async fn take_in(
        &mut self,
        found: Found,
        acts: &[Acts],
        names: &Names,
    ) -> Result<Vec<Recorded>, JournalError> {
        let mut maps = BTreeMap::new();
        for table in self.schema().tables.values() {
            if let Placement::Sharded { map, .. } = &table.placement
                && !maps.contains_key(map)
            {
                maps.insert(map.clone(), self.inner().catalog.map(map).await?.definition);
            }
        }
        let view = self.inner().router.view();
        let on_shards: BTreeMap<String, String> =
            view.datasets_of(STORE).map(|record| (record.name.clone(), record.name_on_shards())).collect();
        self.check_gone(&found, names).await?;
        let review = review(self.known(), &found, names, (&maps, &on_shards), acts)?;
        let statements = review.statements.clone();
        self.reviewed(review);
        Ok(statements)
    }

    /// A declared table that is not on the first shard after the change was dropped by it, if it was there before.
    /// Otherwise somebody has dropped it there past Polyshard: it would be forgotten, and its rows on the other shards
    /// with it.
    async fn check_gone(&self, found: &Found, names: &Names) -> Result<(), JournalError> {
        let is_everywhere = |table: &&Table| {
            matches!(table.placement, Placement::Sharded { .. } | Placement::Reference { declared: true })
        };
        let Some(first) = self.shards().first() else { return Ok(()) };
        let gone: Vec<&Table> =
            kept(self.known(), found, names).1.into_iter().filter(is_everywhere).collect();
        if gone.is_empty() {
            return Ok(());
        }
        // By its name alone it seems to be gone: whatever was done with it, its declaration is not to be lost.
        let is_dropped = |table: &&Table| {
            number_of(self.known(), &table.name).is_some() || names.now(&table.name).is_none()
        };
        if let Some(Table { name, .. }) = gone.iter().find(|table| !is_dropped(table)) {
            return Err(SqlError::unsupported(
                format!(
                    "table {name} is declared, and is not there after this change, which does not drop it"
                ),
                "drop it by DROP TABLE, or call it otherwise by ALTER TABLE … RENAME TO",
            )
            .into());
        }
        let before = self.inner().tables_on(first).await?;
        let mut declared = self.schema().tables.values().map(|table| &**table).filter(is_everywhere);
        if let Some(Table { name, .. }) = declared.find(|table| !before.contains_key(&table.name)) {
            let message =
                format!("table {name} is not on shard {first}: somebody has dropped it there past Polyshard");
            let hint =
                "make it there again as it is on the other shards, then try again; see 'polyshard check'";
            return Err(SqlError::new(SqlState("55000"), message).hint(hint).into());
        }
        let number = |table: &Table| number_of(self.known(), &table.name);
        if let Some(Table { name, .. }) = gone.into_iter().find(|table| before[&table.name] != number(table))
        {
            self.inner().forget_schema();
            let message = format!(
                "what was known of table {name} is not what shard {first} has: it was made anew there past \
                 Polyshard, or another shard was asked"
            );
            return Err(SqlError::new(SqlState("40001"), message).hint("try again: it is known now").into());
        }
        Ok(())
    }
}

/// What follows from the tables as they are now. `on_shards` says what shards call the datasets of sharded tables.
fn review(
    known: &Known,
    found: &Found,
    names: &Names,
    (maps, on_shards): (&BTreeMap<MapName, MapDefinition>, &BTreeMap<String, String>),
    acts: &[Acts],
) -> Result<Review, SqlError> {
    let mut out = Review::default();
    // The schema as it will be, with what is declared under the new names.
    let mut after = found.schema.clone();
    let (kept, gone) = kept(known, found, names);
    for before in gone {
        out.forget(&before.name, &before.placement, on_shards);
        out.forget_blocks(before);
    }
    for table in &kept {
        let placement = placement_after(table, known)?;
        let placed = Table { placement, ..table.after.clone() };
        after.tables.insert(placed.name.clone(), std::sync::Arc::new(placed));
    }
    for table in &kept {
        let now = &after.tables[&table.after.name];
        match &now.placement {
            Placement::Sharded { map, column, .. } => {
                let Some(definition) = maps.get(map) else { continue };
                // What was there before is not refused now: nothing could be changed any more.
                let before = known.details.get(&table.before.name);
                let is_new = |index: &(String, Vec<String>)| {
                    before.is_none_or(|before| !before.unique.contains(index))
                };
                let unique = table.details.unique.iter().filter(|index| is_new(index)).cloned().collect();
                let details = &Details { unique, ..table.details.clone() };
                let (occasion, column) = (Occasion::Changed, *column);
                let sharding = Sharding { occasion, schema: &after, table: now, details, definition, column };
                sharding.check()?;
            }
            Placement::Reference { declared: true } | Placement::Local(_) => {
                checks::check_whole(&after, now, table.details, &now.placement)?;
            }
            Placement::Reference { declared: false } => {}
        }
        if let Placement::Sharded { map, .. } = &now.placement
            && (**now != *table.before || known.details.get(&table.before.name) != Some(table.details))
        {
            // Its rows may be on their way to another shard, which would not know what they look like now.
            out.decision.quiet.push(map.clone());
        }
        out.follow(table.before, now, on_shards);
    }
    triggers::check(acts, &after)?;
    Ok(out)
}

/// The number by which the first shard knows a table.
fn number_of(known: &Known, name: &TableName) -> Option<i64> {
    known.details.get(name)?.number
}

/// The tables that are still there, by their numbers or by what they were called, and those that are not.
fn kept<'a>(known: &'a Known, found: &'a Found, names: &Names) -> (Vec<Kept<'a>>, Vec<&'a Table>) {
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for before in known.schema.tables.values() {
        let now = match number_of(known, &before.name) {
            Some(number) => found.details.iter().find(|(_, details)| details.number == Some(number)),
            None => names.now(&before.name).and_then(|name| found.details.get_key_value(name)),
        };
        match now.and_then(|(name, details)| Some((found.schema.tables.get(name)?, details))) {
            Some((after, details)) => kept.push(Kept { before, after, details }),
            None => gone.push(&**before),
        }
    }
    (kept, gone)
}

/// The same placement with the key column wherever it is now.
fn placement_after(table: &Kept<'_>, known: &Known) -> Result<Placement, SqlError> {
    let Placement::Sharded { map, column, key_type } = &table.before.placement else {
        return Ok(table.before.placement.clone());
    };
    let name = &table.before.columns[*column].name;
    let numbers = known.details.get(&table.before.name).map(|details| &details.columns);
    let number = numbers.and_then(|numbers| numbers.get(*column));
    let now = match number {
        Some(number) => table.details.columns.iter().position(|other| other == number),
        None => table.after.column(name),
    };
    let column = now.ok_or_else(|| {
        let message =
            format!("column {name} of {} is the key that its rows are placed by", table.before.name);
        SqlError::new(SqlState("2BP01"), message).hint("it cannot be dropped; drop the table instead")
    })?;
    Ok(Placement::Sharded { map: map.clone(), column, key_type: key_type.clone() })
}

impl Review {
    fn forget(&mut self, name: &TableName, placement: &Placement, on_shards: &BTreeMap<String, String>) {
        if *placement == (Placement::Reference { declared: false }) {
            return;
        }
        let name = key(name);
        if let Placement::Sharded { map, .. } = placement {
            self.decision.quiet.push(map.clone());
            self.decision.forget.push((STORE.to_owned(), name.clone()));
            // First: whoever binds it at this moment has then done so, and it is forgotten, or finds it dropped.
            self.statements.push(Recorded::own(
                Dialect::Postgres,
                "UPDATE polyshard.journal_applied SET position = position",
            ));
            for dialect in [Dialect::Postgres, Dialect::Sqlite] {
                if let Some(known) = on_shards.get(&name) {
                    let table = dialect.own_table("dataset");
                    let sql = format!("DELETE FROM {table} WHERE name = {}", text(known));
                    self.statements.push(Recorded { rows: true, ..Recorded::own(dialect, sql) });
                }
            }
        }
        self.decision.declare.push((name, None));
    }

    /// The blocks of ids of a table that is dropped: another one of its name counts from the beginning.
    fn forget_blocks(&mut self, table: &Table) {
        for sequence in table.columns.iter().filter_map(block_sequence) {
            let recorded = Recorded::own(Dialect::Postgres, forget_blocks(&sequence));
            self.statements.push(Recorded { rows: true, ..recorded });
        }
    }

    /// What was declared of a table goes with it when it, or its key column, is called otherwise.
    fn follow(&mut self, before: &Table, now: &Table, on_shards: &BTreeMap<String, String>) {
        let column = |table: &Table| match &table.placement {
            Placement::Sharded { column, .. } => Some(table.columns[*column].name.clone()),
            _ => None,
        };
        if before.name == now.name && column(before) == column(now) {
            return;
        }
        self.forget(&before.name, &before.placement, on_shards);
        let declared = match &now.placement {
            Placement::Reference { declared: false } => return,
            Placement::Reference { declared: true } => Declared::Reference,
            Placement::Local(shard) => Declared::Local { shard: shard.clone() },
            Placement::Sharded { map, column, .. } => {
                let column = now.columns[*column].name.clone();
                self.decision.datasets.push(DatasetOfTable {
                    store: STORE.to_owned(),
                    name: key(&now.name),
                    map: map.clone(),
                    rule: KeyRule { attribute: column.clone(), part: KeyPart::Whole },
                    body: json!({ "format": 1 }),
                });
                self.decision.depends_on.push(map.clone());
                Declared::Sharded { map: map.clone(), column }
            }
        };
        self.decision.declare.push((key(&now.name), Some(declared.write())));
    }
}
