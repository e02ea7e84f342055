//! Declaring tables: each is checked where the user can still act, and the rows that are there already are put where
//! they belong, all or none.

use std::collections::BTreeMap;

use async_recursion::async_recursion as boxed;
use polyshard_catalog::{CatalogError, DatasetOfTable, Decision, KeyPart, KeyRule};
use polyshard_engine::{self as engine, Dialect, Statement};
use polyshard_map::{
    Epoch, HashSpec, KeyRange, KeyType, MapDefinition, MapName, NewEntry, Scheme, ShardId, State,
    spread_buckets,
};
use polyshard_shard::Placement as Placing;
use polyshard_sql::{Placement, SqlError, SqlState, Table, TableName};
use serde_json::json;

use crate::JournalError;
use crate::changing;
use crate::checks::{self, Occasion, Sharding};
use crate::declaration::{Declaration, Declared, STORE, function_key, key};
use crate::entry::{EntryKind, Recorded};
use crate::journal::{Inner, Journal};
use crate::quote::{identifier, table_name};
use crate::run::{Open, Told};
use crate::sequences;
use crate::turn::{Change, Turn};

/// Ranges of a shard that rows are spread by in one statement: above it the statement itself becomes a burden.
const RANGES_MAX: usize = 10_000;

/// What the names begin with under which ranges are held whose rows are in an archive, or go there, or come back.
const ARCHIVING: [&str; 4] = ["archive:", "archived:", "restore:", "drop:"];

/// What a declaration comes to.
#[derive(Default)]
pub(crate) struct Plan {
    pub statements: Vec<Recorded>,
    pub decision: Decision,
    /// A table whose rows must be as many on all shards together as they are on one now.
    pub conserve: Option<TableName>,
}

impl Journal {
    /// Declares how a table is placed, with all checks. Repeating a declaration is fine.
    #[boxed]
    pub async fn declare(&self, declaration: Declaration) -> Result<(), JournalError> {
        let turn = self.turn().await?;
        let plan = match self.inner.plan(&turn, &declaration).await {
            Ok(Some(plan)) => plan,
            Ok(None) => {
                turn.give_up().await;
                return Ok(());
            }
            Err(error) => {
                turn.give_up().await;
                return Err(error);
            }
        };
        if plan.conserve.is_none() {
            let told = self.carry_out(turn, plan).await?;
            return self.finish_or_leave().await.and(told);
        }
        // Rows leave shards: first nobody may believe any more that they are there.
        turn.give_up().await;
        let body = self.inner.begin_changing(self).await?;
        let declared = self.declare_changing(&declaration, &body).await;
        if declared.as_ref().is_err_and(|error| !matches!(error, JournalError::Failpoint(_))) {
            self.inner.end_changing(self, &body).await;
        }
        let told = declared?;
        self.finish_or_leave().await.and(told)
    }

    /// It is declared; what a shard cannot be told now, because it is away or offline, it is told when it is back, and
    /// until then the map stays as it is.
    pub(crate) async fn finish_or_leave(&self) -> Result<(), JournalError> {
        match self.finish().await {
            Err(error @ JournalError::Failpoint(_)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "a declaration is finished when every shard is there");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Declares a table that everybody knows is changing.
    async fn declare_changing(&self, declaration: &Declaration, body: &str) -> Result<Told, JournalError> {
        let turn = self.turn().await?;
        let planned = self.inner.plan(&turn, declaration).await;
        let mut plan = match planned {
            Ok(Some(plan)) => plan,
            // Somebody else has done it meanwhile.
            Ok(None) => {
                turn.give_up().await;
                self.inner.end_changing(self, body).await;
                return Ok(Ok(()));
            }
            Err(error) => {
                turn.give_up().await;
                return Err(error);
            }
        };
        let Decision { declare, require, .. } = changing::taking_down(body);
        plan.decision.declare.extend(declare);
        plan.decision.require = require;
        self.carry_out(turn, plan).await
    }

    pub(crate) async fn carry_out(&self, turn: Turn, plan: Plan) -> Result<Told, JournalError> {
        let settings = BTreeMap::new();
        let change = Change { kind: EntryKind::Placement, statements: plan.statements, settings };
        match self.inner.open_checked(&turn, &change, plan.conserve.as_ref()).await {
            Ok(open) => {
                let (_, told) = self.inner.decide_and_commit(turn, change, plan.decision, open).await?;
                Ok(told)
            }
            Err(error) => {
                turn.give_up().await;
                Err(error)
            }
        }
    }

    /// Sees that every shard has what was decided, and lets go the maps that this depended on. Anybody may do it.
    pub async fn finish(&self) -> Result<(), JournalError> {
        let depends = self.inner.catalog.journal_depends().await?;
        let Some(last) = depends.iter().map(|(_, position)| *position).max() else { return Ok(()) };
        self.inner.router.refresh().await?;
        for id in self.inner.router.view().shards.keys() {
            self.inner.catch_up(id).await?;
            self.inner.bind_tables(&self.inner.shard(id).await?).await?;
        }
        Ok(self.inner.catalog.release_depends(last).await?)
    }

    /// Creates a map: hash maps are spread over all shards that are online; list and range maps begin empty.
    pub async fn create_map(&self, name: &str, scheme: &str, key_type: &str) -> Result<(), JournalError> {
        let name = MapName::new(name).map_err(|error| invalid(&error))?;
        let key_type: KeyType = key_type.parse().map_err(|error| invalid(&error))?;
        let (scheme, entries) = match scheme {
            "list" => (Scheme::List, Vec::new()),
            "range" => (Scheme::Range, self.inner.one_range().await?),
            "hash" => {
                let hash = HashSpec::standard();
                let online = self.inner.online().await?;
                let entries = spread_buckets(&hash, &online).map_err(|error| invalid(&error))?;
                (Scheme::Hash(hash), entries)
            }
            other => {
                let message = format!("there is no scheme {other}: hash, list and range can be made here");
                let hint = "composite maps are made with 'polyshard map create'";
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).hint(hint).into());
            }
        };
        let definition = MapDefinition::new(name, key_type, scheme).map_err(|error| invalid(&error))?;
        let entries = entries.into_iter().map(|entry| entry.at(Epoch::ZERO)).collect();
        self.inner.driver.create_map(&definition, entries).await?;
        Ok(self.inner.router.refresh().await?)
    }
}

fn invalid(error: &dyn std::fmt::Display) -> JournalError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, error.to_string()).into()
}

impl Inner {
    async fn online(&self) -> Result<Vec<ShardId>, JournalError> {
        let shards = self.catalog.shards().await?;
        Ok(shards.into_iter().filter(|shard| shard.state == State::Online).map(|shard| shard.id).collect())
    }

    /// A range map begins with everything on the first shard; it is then split and moved.
    async fn one_range(&self) -> Result<Vec<NewEntry>, JournalError> {
        let online = self.online().await?;
        Ok(online.into_iter().take(1).map(|shard| NewEntry::new(KeyRange::all(), shard)).collect())
    }

    /// What is to be done; nothing if it is so already.
    async fn plan(&self, turn: &Turn, declaration: &Declaration) -> Result<Option<Plan>, JournalError> {
        match declaration {
            Declaration::Sharded { table, map, column } => self.plan_sharded(turn, table, map, column).await,
            Declaration::Reference { table } => {
                let plan = plan_reference(turn, table)?;
                if plan.is_some() {
                    self.check_triggers(turn, table, Placement::Reference { declared: true }).await?;
                }
                Ok(plan)
            }
            Declaration::Local { table, shard } => self.plan_local(turn, table, shard).await,
            Declaration::TableFree { function } => plan_function(turn, function),
        }
    }

    #[boxed]
    async fn plan_sharded(
        &self,
        turn: &Turn,
        name: &TableName,
        map: &MapName,
        column: &str,
    ) -> Result<Option<Plan>, JournalError> {
        let known = turn.known();
        let (table, details) = checks::find(&known.schema, &known.details, name)?;
        check_name(name)?;
        let definition = self.catalog.map(map).await.map_err(|error| no_map(error, map))?.definition;
        let at = table.column(column).ok_or_else(|| {
            let message = format!("column {column} of table {name} does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })?;
        match &table.placement {
            Placement::Sharded { map: now, column: is, .. } if now == map && *is == at => return Ok(None),
            Placement::Reference { .. } => {}
            Placement::Sharded { .. } | Placement::Local(_) => return Err(placed_already(table).into()),
        }
        let schema = &known.schema;
        let occasion = Occasion::Declared;
        let sharding = Sharding { occasion, schema, table, details, definition: &definition, column: at };
        sharding.check()?;
        let key_type = definition.key_type().clone();
        let placement = Placement::Sharded { map: map.clone(), column: at, key_type };
        self.check_triggers(turn, name, placement).await?;
        let mut statements = sequences::blocks_instead(self, turn, table, details).await?;
        let held = self.rows_on_first(turn, name).await?;
        if held > 0 {
            self.check_all_there(turn)?;
            self.check_not_archived(&definition).await?;
            for shard in turn.shards() {
                statements.push(self.keep_own(shard, name, column, &definition).await?);
            }
        }
        statements.extend(find_by_key(name, column, table, &definition)?);
        let declared = Declared::Sharded { map: map.clone(), column: column.to_owned() };
        let rule = KeyRule { attribute: column.to_owned(), part: KeyPart::Whole };
        let dataset = DatasetOfTable {
            store: STORE.to_owned(),
            name: key(name),
            map: map.clone(),
            rule,
            body: json!({ "format": 1 }),
        };
        let decision = Decision {
            declare: vec![(key(name), Some(declared.write()))],
            datasets: vec![dataset],
            // Until every shard has spread its rows and knows the table, its ranges stay where they are.
            depends_on: vec![map.clone()],
            ..Decision::default()
        };
        Ok(Some(Plan { statements, decision, conserve: (held > 0).then(|| name.clone()) }))
    }

    async fn plan_local(
        &self,
        turn: &Turn,
        name: &TableName,
        shard: &ShardId,
    ) -> Result<Option<Plan>, JournalError> {
        let known = turn.known();
        let (table, details) = checks::find(&known.schema, &known.details, name)?;
        check_name(name)?;
        match &table.placement {
            Placement::Local(now) if now == shard => return Ok(None),
            Placement::Reference { .. } => {}
            _ => return Err(placed_already(table).into()),
        }
        if !turn.shards().contains(shard) {
            return Err(CatalogError::NoSuchShard(shard.clone()).into());
        }
        checks::check_whole(&known.schema, table, details, &Placement::Local(shard.clone()))?;
        self.check_triggers(turn, name, Placement::Local(shard.clone())).await?;
        let empty = |other: &ShardId| {
            Recorded::new(format!("DELETE FROM {}", table_name(Dialect::Postgres, name))).only(other)
        };
        let statements = turn.shards().iter().filter(|other| *other != shard).map(empty).collect();
        let declared = Declared::Local { shard: shard.clone() };
        let decision = Decision { declare: vec![(key(name), Some(declared.write()))], ..Decision::default() };
        let held = self.rows_on_first(turn, name).await?;
        if held > 0 {
            self.check_all_there(turn)?;
        }
        Ok(Some(Plan { statements, decision, conserve: (held > 0).then(|| name.clone()) }))
    }

    /// A shard that is offline could not be told which of its rows are to go.
    fn check_all_there(&self, turn: &Turn) -> Result<(), SqlError> {
        let view = self.router.view();
        match view.shards.keys().find(|id| !turn.shards().contains(id)) {
            None => Ok(()),
            Some(id) => {
                let message =
                    format!("shard {id} is offline, and the rows of the table are to be put elsewhere");
                let hint = "bring it back first, or declare the table while it is empty";
                Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).hint(hint))
            }
        }
    }

    /// Rows of a range that is in an archive, or on its way there or back, would be out of sight, and in no archive.
    async fn check_not_archived(&self, definition: &MapDefinition) -> Result<(), JournalError> {
        let entries = self.catalog.entries(definition.name()).await?;
        let held = entries.iter().find_map(|entry| {
            let owner = entry.lock.as_ref()?.owner();
            ARCHIVING.iter().any(|word| owner.starts_with(word)).then_some((entry, owner))
        });
        let Some((entry, owner)) = held else { return Ok(()) };
        let message = format!(
            "{} of map {} is held as {owner}, and the table has rows",
            definition.describe_range(&entry.range),
            definition.name()
        );
        let hint =
            "restore the archive first ('polyshard archive restore'), or declare the table while it is empty";
        Err(SqlError::new(SqlState("55006"), message).hint(hint).into())
    }

    /// How many rows the first shard has of a table that is on all of them.
    async fn rows_on_first(&self, turn: &Turn, table: &TableName) -> Result<i64, JournalError> {
        let Some(first) = turn.shards().first() else { return Ok(0) };
        let shard = self.shard(first).await?;
        let mut tx = shard.control_snapshot().await.map_err(|error| JournalError::on(first, error))?;
        let sql = format!("SELECT count(*) FROM {}", table_name(shard.dialect(), table));
        let count = tx.run(Statement::new(sql)).await.and_then(|rows| rows.one()?.int(0));
        count.map_err(|error| JournalError::on(first, error))
    }

    /// The statement by which a shard keeps only the rows that are its own.
    async fn keep_own(
        &self,
        id: &ShardId,
        table: &TableName,
        column: &str,
        definition: &MapDefinition,
    ) -> Result<Recorded, JournalError> {
        let shard = self.shard(id).await?;
        let dialect = shard.dialect();
        let fail = |error| JournalError::on(id, error);
        let local = shard.local_entries(definition.name()).await.map_err(fail)?;
        if let Some(entry) = local.iter().find(|entry| entry.incoming.is_some()) {
            let message = format!(
                "{} of map {} is on its way to shard {id}",
                definition.describe_range(&entry.entry.range),
                definition.name()
            );
            return Err(SqlError::new(SqlState("55006"), message)
                .hint("try again when it has arrived")
                .into());
        }
        let ranges = merged(local.into_iter().map(|entry| entry.entry.range));
        if ranges.len() > RANGES_MAX {
            let message = format!("shard {id} has {} ranges of map {}", ranges.len(), definition.name());
            let hint = "declare the table while it is empty, and load its rows then";
            return Err(SqlError::unsupported(message, hint).into());
        }
        let placing = Placing::Key(vec![identifier(column)]);
        let own = placing.in_ranges(dialect, definition, &ranges, "").map_err(fail)?;
        let sql = format!("DELETE FROM {} WHERE NOT {own}", table_name(dialect, table));
        Ok(Recorded::own(dialect, sql).only(id))
    }

    /// Runs a change everywhere, and sees that no row of a table got lost or doubled.
    async fn open_checked(
        &self,
        turn: &Turn,
        change: &Change,
        conserve: Option<&TableName>,
    ) -> Result<Vec<Open>, JournalError> {
        let Some(table) = conserve else { return self.open_everywhere(turn, change).await };
        let before = self.rows_on_first(turn, table).await?;
        let mut open = self.open_everywhere(turn, change).await?;
        let mut after = 0;
        for on in &mut open {
            let sql = format!("SELECT count(*) FROM {}", table_name(on.dialect, table));
            let count = on.tx.run(Statement::new(sql)).await.and_then(|rows| rows.one()?.int(0));
            after += count.map_err(|error: engine::Error| JournalError::on(&on.shard, error))?;
        }
        if before != after {
            let message = format!(
                "of the {before} rows of {table} the shards would keep {after}: some keys have no shard, or the \
                 shards do not have the same rows"
            );
            let hint = "add the missing keys to the map, see 'polyshard map show'; compare shards with \
                        'polyshard schema check'";
            return Err(SqlError::new(SqlState("23514"), message).hint(hint).into());
        }
        Ok(open)
    }
}

fn plan_reference(turn: &Turn, name: &TableName) -> Result<Option<Plan>, JournalError> {
    let known = turn.known();
    let (table, details) = checks::find(&known.schema, &known.details, name)?;
    check_name(name)?;
    match &table.placement {
        Placement::Reference { declared: true } => return Ok(None),
        Placement::Reference { declared: false } => {}
        _ => return Err(placed_already(table).into()),
    }
    checks::check_whole(&known.schema, table, details, &table.placement)?;
    let declare = vec![(key(name), Some(Declared::Reference.write()))];
    let decision = Decision { declare, ..Decision::default() };
    Ok(Some(Plan { statements: Vec::new(), decision, conserve: None }))
}

fn plan_function(turn: &Turn, name: &TableName) -> Result<Option<Plan>, JournalError> {
    check_name(name)?;
    match turn.schema().functions.get(name) {
        None => {
            let message = format!("function {name} does not exist");
            Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).into())
        }
        Some(function) if function.table_free => Ok(None),
        Some(_) => {
            let declare = vec![(function_key(name), Some(Declared::TableFree.write()))];
            let decision = Decision { declare, ..Decision::default() };
            Ok(Some(Plan { statements: Vec::new(), decision, conserve: None }))
        }
    }
}

/// The index by which the rows of a range are found when they move: users' tables get no column of ours.
pub(crate) fn find_by_key(
    name: &TableName,
    column: &str,
    table: &Table,
    definition: &MapDefinition,
) -> Result<Vec<Recorded>, JournalError> {
    let leads = table.primary_key.first().is_some_and(|first| table.columns[*first].name == column);
    let index = identifier(&format!("{}_polyshard_key", cut(&name.name)));
    let mut out = Vec::new();
    let placing = Placing::Key(vec![identifier(column)]);
    let by_bucket = matches!(definition.scheme(), Scheme::Hash(_));
    if by_bucket || !leads {
        let target = match definition.scheme() {
            Scheme::Hash(_) => {
                let expression = placing.expression(Dialect::Postgres, definition, "");
                format!("({})", expression.map_err(|error| invalid(&error))?)
            }
            _ => identifier(column),
        };
        let on = table_name(Dialect::Postgres, name);
        out.push(Recorded::own(
            Dialect::Postgres,
            format!("CREATE INDEX IF NOT EXISTS {index} ON {on} ({target})"),
        ));
    }
    if !leads {
        // An index on a function of ours would make plain sqlite3 fail on the file.
        let on = table_name(Dialect::Sqlite, name);
        // All indexes of a file are called differently, whatever their schema.
        let index = identifier(&format!("{}_polyshard_key", cut(&polyshard_sql_on_sqlite::file_name(name))));
        let column = identifier(column);
        out.push(Recorded::own(
            Dialect::Sqlite,
            format!("CREATE INDEX IF NOT EXISTS {index} ON {on} ({column})"),
        ));
    }
    Ok(out)
}

/// A name that leaves room for what is put behind it: PostgreSQL's names have 63 bytes.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(48);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Neighbouring ranges as one.
fn merged(ranges: impl Iterator<Item = KeyRange>) -> Vec<KeyRange> {
    let mut out: Vec<KeyRange> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.hi() == Some(range.lo()) => {
                let joined = KeyRange::new(last.lo().clone(), range.hi().cloned());
                *last = joined.expect("a range that goes on where another ends has its bounds in order");
            }
            _ => out.push(range),
        }
    }
    out
}

fn check_name(name: &TableName) -> Result<(), SqlError> {
    // The declaration's name joins both with a dot.
    if name.schema.contains('.') {
        let message = format!("the schema {} has a dot in its name", name.schema);
        return Err(SqlError::unsupported(message, "rename the schema"));
    }
    Ok(())
}

fn placed_already(table: &Table) -> SqlError {
    let how = match &table.placement {
        Placement::Sharded { map, column, .. } => {
            format!("sharded by map {map} on column {}", table.columns[*column].name)
        }
        Placement::Local(shard) => format!("local to shard {shard}"),
        Placement::Reference { .. } => "a reference table".to_owned(),
    };
    SqlError::unsupported(
        format!("table {} is {how} already", table.name),
        "make a new table, declare that, take the rows over with COPY ... TO and COPY ... FROM, and drop the old one",
    )
}

fn no_map(error: CatalogError, map: &MapName) -> JournalError {
    match error {
        CatalogError::NoSuchMap(_) => {
            let message = format!("there is no map {map}");
            let hint = format!("create it: SELECT polyshard.create_map('{map}', 'hash', 'bigint')");
            SqlError::new(SqlState("42704"), message).hint(hint).into()
        }
        other => other.into(),
    }
}
