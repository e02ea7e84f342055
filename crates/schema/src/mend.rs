//! Puts reference tables right on shards that differ from the others: as most shards have them, or as a named one has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polyshard_engine::{self as engine, Dialect, Statement, Transaction, Value};
use polyshard_map::ShardId;
use polyshard_sql::{ForeignKey, Generated, Placement, Schema, Table, TableName};

use crate::JournalError;
use crate::bring_up::{in_order, overriding};
use crate::drift::Seen;
use crate::journal::{Inner, Journal};
use crate::quote::{identifier, literal, table_name};
use crate::tables::{self, Lock};

/// Rows of a reference table that are compared one by one: they are in memory twice.
const ROWS_MAX: usize = 200_000;

/// What was done, or would be, with a reference table of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    /// The shard.
    pub shard: ShardId,
    /// The table.
    pub table: String,
    /// The shard that it is made like; none if nobody can say which is right.
    pub like: Option<ShardId>,
    /// Rows that were missing.
    pub inserted: u64,
    /// Rows that were otherwise.
    pub updated: u64,
    /// Rows that the others do not have.
    pub deleted: u64,
    /// Why nothing was done.
    pub refused: Option<String>,
}

impl Mended {
    pub(crate) fn nothing(shard: &ShardId, table: String, like: Option<&ShardId>) -> Mended {
        let (shard, like) = (shard.clone(), like.cloned());
        Mended { shard, table, like, inserted: 0, updated: 0, deleted: 0, refused: None }
    }
}

/// Statements that make a table like another.
#[derive(Default)]
struct Changes {
    inserts: Vec<String>,
    updates: Vec<String>,
    deletes: Vec<String>,
    /// What would bring rows back that go or are overwritten.
    kept: Vec<String>,
    /// The conditions of the rows that go, and of those of which columns change.
    gone: Vec<(String, Option<Vec<String>>)>,
}

/// A table's rows by their primary keys, as they are written in SQL.
type Contents = BTreeMap<Vec<String>, Vec<String>>;

impl Journal {
    /// Makes reference tables that differ what most shards have, or what a named one has; only looks, if asked to. A
    /// table with rows that the others lack, which may be acknowledged ones, stays as it is unless their removal is
    /// confirmed; what is removed or overwritten is kept on its shard in any case.
    pub async fn mend(
        &self,
        like: Option<&ShardId>,
        dry_run: bool,
        confirmed: bool,
    ) -> Result<Vec<Mended>, JournalError> {
        let schema = self.schema().await?;
        let mut seen = Vec::new();
        for id in self.inner.serving() {
            let dialect = self.inner.shard(&id).await?.dialect();
            seen.push((dialect, self.inner.look_at(&id, &schema).await?));
        }
        // Each engine writes rows in its own way.
        let (files, servers): (Vec<_>, Vec<_>) =
            seen.into_iter().partition(|(dialect, _)| *dialect == Dialect::Sqlite);
        let mut out = Vec::new();
        for seen in [files, servers] {
            let seen: Vec<Seen> = seen.into_iter().map(|(_, one)| one).collect();
            let (wrong, unknown) = judge(&seen, &schema, like);
            out.extend(unknown);
            for ((shard, right), tables) in wrong {
                out.extend(
                    self.inner.mend_shard(&schema, (&shard, &right), &tables, dry_run, confirmed).await?,
                );
            }
        }
        for id in self.inner.serving() {
            out.extend(self.inner.forget_left(&id, dry_run).await?);
        }
        Ok(out)
    }
}

/// Which tables of which shard are to be made like those of which other; and those that nobody can judge.
#[expect(clippy::type_complexity, reason = "used once, right above")]
fn judge(
    seen: &[Seen],
    schema: &Schema,
    like: Option<&ShardId>,
) -> (BTreeMap<(ShardId, ShardId), Vec<Arc<Table>>>, Vec<Mended>) {
    let (mut wrong, mut unknown) = (BTreeMap::<_, Vec<Arc<Table>>>::new(), Vec::new());
    for table in schema.tables.values() {
        if !matches!(table.placement, Placement::Reference { .. }) {
            continue;
        }
        let object = format!("rows of {}", table.name);
        let sums: Vec<(&ShardId, Option<&String>)> =
            seen.iter().map(|one| (&one.shard, one.objects.get(&object))).collect();
        if sums.windows(2).all(|pair| pair[0].1 == pair[1].1) {
            continue;
        }
        let has = |sum: Option<&String>| sums.iter().filter(|(_, other)| *other == sum).count();
        let right = match like {
            Some(like) => sums.iter().find(|(shard, sum)| *shard == like && sum.is_some()),
            None => sums.iter().find(|(_, sum)| sum.is_some() && has(*sum) * 2 > sums.len()),
        };
        for (shard, sum) in &sums {
            match right {
                Some((_, right)) if right == sum => {}
                Some((like, _)) => {
                    let key = ((*shard).clone(), (*like).clone());
                    wrong.entry(key).or_default().push(table.clone());
                }
                None => unknown.push(Mended {
                    refused: Some(format!("{}; name the shard that is right with --like", no_majority(like))),
                    ..Mended::nothing(shard, table.name.to_string(), None)
                }),
            }
        }
    }
    (wrong, unknown)
}

fn no_majority(like: Option<&ShardId>) -> String {
    match like {
        Some(like) => format!("shard {like} does not have it"),
        None => "no rows are on most of the shards".to_owned(),
    }
}

impl Inner {
    /// Makes tables of one shard what another has, in one transaction. Neither may go on in the journal meanwhile: both
    /// are at one position, and this one's is locked.
    async fn mend_shard(
        &self,
        schema: &Schema,
        (id, right): (&ShardId, &ShardId),
        tables: &[Arc<Table>],
        dry_run: bool,
        confirmed: bool,
    ) -> Result<Vec<Mended>, JournalError> {
        let (target, source) = (self.shard(id).await?, self.shard(right).await?);
        let dialect = target.dialect();
        let fail = |error: engine::Error| JournalError::on(id, error);
        let mut tx = target.patient_transaction().await.map_err(|error| JournalError::on(id, error))?;
        let rows = tx.run(tables::select_applied(dialect, Lock::Yes)).await.map_err(fail)?;
        let position = rows.first().map(|row| row.int(0)).transpose().map_err(fail)?;
        let (mut from, at) = self.snapshot(&source).await?;
        if position != Some(at as i64) {
            return Err(JournalError::Busy);
        }
        let (mut out, mut all) = (Vec::new(), Vec::new());
        for table in in_order(tables)? {
            let mut mended = Mended::nothing(id, table.name.to_string(), Some(right));
            let there = read(right, &mut from, dialect, table).await?;
            let here = read(id, &mut tx, dialect, table).await?;
            match (there, here) {
                (Ok(there), Ok(here)) => {
                    let changes = changes(dialect, table, &there, &here);
                    mended.inserted = changes.inserts.len() as u64;
                    mended.updated = changes.updates.len() as u64;
                    mended.deleted = changes.deletes.len() as u64;
                    match mended.deleted {
                        0 => all.push((table, changes)),
                        _ if confirmed => all.push((table, changes)),
                        more => mended.refused = Some(unconfirmed(more)),
                    }
                }
                (Err(why), _) | (_, Err(why)) => mended.refused = Some(why),
            }
            out.push(mended);
        }
        from.rollback().await.map_err(|error| JournalError::on(right, error))?;
        // Those that others refer to last: one that stays as it is keeps what it refers to.
        for place in (0..all.len()).rev() {
            let (table, changes): &(&Arc<Table>, Changes) = &all[place];
            let mended: Vec<&TableName> = all.iter().map(|(table, _)| &table.name).collect();
            let Some(by) =
                referring((&mut tx, dialect), schema, table, changes, &mended).await.map_err(fail)?
            else {
                continue;
            };
            let name = table.name.to_string();
            let mut told = out.iter_mut().filter(|one| one.table == name);
            if let Some(told) = told.next() {
                told.refused = Some(format!("rows of {by} refer to it"));
            }
            all.remove(place);
        }
        if dry_run {
            tx.rollback().await.map_err(fail)?;
            return Ok(out);
        }
        match apply(&mut tx, dialect, &all).await {
            Ok(()) => tx.commit().await.map_err(fail)?,
            // Rows of others refer to one that should go, for example: it is for a human to say what they are.
            Err(error @ (engine::Error::Constraint { .. } | engine::Error::Invalid { .. })) => {
                for mended in out.iter_mut().filter(|mended| mended.refused.is_none()) {
                    mended.refused = Some(error.to_string());
                }
            }
            Err(error) => return Err(fail(error)),
        }
        Ok(out)
    }
}

/// A table with rows that refer to one that should go or be called otherwise, and that are not put right with it: they
/// might go along, by a cascade. Nobody can refer to such a row from then on.
async fn referring(
    (tx, dialect): (&mut Transaction, Dialect),
    schema: &Schema,
    table: &Table,
    changes: &Changes,
    mended: &[&TableName],
) -> Result<Option<TableName>, engine::Error> {
    let name = table_name(dialect, &table.name);
    let others = schema.tables.values().filter(|other| !mended.contains(&&other.name));
    let keys: Vec<(&Arc<Table>, &ForeignKey)> = others
        .flat_map(|other| other.foreign_keys.iter().map(move |key| (other, key)))
        .filter(|(_, key)| key.target == table.name)
        .collect();
    if keys.is_empty() {
        return Ok(None);
    }
    for (gone, changed) in &changes.gone {
        let touches = |key: &ForeignKey| {
            let columns = changed.as_ref();
            columns.is_none_or(|columns| key.target_columns.iter().any(|to| columns.contains(to)))
        };
        let keys: Vec<_> = keys.iter().filter(|(_, key)| touches(key)).collect();
        if keys.is_empty() {
            continue;
        }
        let lock = format!("SELECT 1 FROM {name} AS parent WHERE {gone}{}", dialect.for_update());
        tx.run(Statement::new(lock)).await?;
        for (other, key) in keys {
            // None are named if they are the primary key.
            let to: Vec<&String> = match key.target_columns.as_slice() {
                [] => table.primary_key.iter().map(|place| &table.columns[*place].name).collect(),
                named => named.iter().collect(),
            };
            let pairs = key.columns.iter().zip(to).map(|(place, to)| {
                let column = identifier(&other.columns[*place].name);
                format!("child.{column} = parent.{}", identifier(to))
            });
            let sql = format!(
                "SELECT 1 FROM {name} AS parent JOIN {} AS child ON {} WHERE {gone} LIMIT 1",
                table_name(dialect, &other.name),
                pairs.collect::<Vec<_>>().join(" AND ")
            );
            if !tx.run(Statement::new(sql)).await?.is_empty() {
                return Ok(Some(other.name.clone()));
            }
        }
    }
    Ok(None)
}

fn unconfirmed(rows: u64) -> String {
    let rows = if rows == 1 { "a row".to_owned() } else { format!("{rows} rows") };
    format!(
        "it has {rows} that the others lack, and somebody may count on them: write them again through Polyshard, or \
         say --confirm to have them removed; a copy is kept in polyshard.mended_row of the shard"
    )
}

/// Keeps what is removed or overwritten, with it: as the statements that would bring it back.
async fn keep(
    tx: &mut Transaction,
    dialect: Dialect,
    all: &[(&Arc<Table>, Changes)],
) -> Result<(), engine::Error> {
    if all.iter().all(|(_, changes)| changes.kept.is_empty()) {
        return Ok(());
    }
    let (table, text, int) = (dialect.own_table("mended_row"), dialect.text(), dialect.bigint());
    let make = format!(
        "CREATE TABLE IF NOT EXISTS {table} (tab {text} NOT NULL, at_ms {int} NOT NULL, statement {text} NOT NULL)"
    );
    tx.run(Statement::new(make)).await?;
    let sql: Arc<str> =
        format!("INSERT INTO {table} (tab, at_ms, statement) VALUES ($1, {}, $2)", dialect.now_ms()).into();
    for (of, changes) in all {
        for statement in &changes.kept {
            tx.run(Statement::new(sql.clone()).bind(of.name.to_string()).bind(statement.clone())).await?;
        }
    }
    Ok(())
}

/// Parents come before those that refer to them, and go after.
async fn apply(
    tx: &mut Transaction,
    dialect: Dialect,
    all: &[(&Arc<Table>, Changes)],
) -> Result<(), engine::Error> {
    let triggers = |table: &Table, word: &str| {
        let name = table_name(dialect, &table.name);
        Statement::new(format!("ALTER TABLE {name} {word} TRIGGER USER"))
    };
    let with_triggers = || all.iter().filter(|(table, _)| dialect == Dialect::Postgres && table.triggers);
    keep(tx, dialect, all).await?;
    for (table, _) in with_triggers() {
        tx.run(triggers(table, "DISABLE")).await?;
    }
    for (_, changes) in all {
        for sql in changes.updates.iter().chain(&changes.inserts) {
            tx.run(Statement::new(sql.clone())).await?;
        }
    }
    for (_, changes) in all.iter().rev() {
        for sql in &changes.deletes {
            tx.run(Statement::new(sql.clone())).await?;
        }
    }
    for (table, _) in with_triggers() {
        tx.run(triggers(table, "ENABLE")).await?;
    }
    Ok(())
}

/// All rows of a table; or why they cannot be compared one by one.
async fn read(
    id: &ShardId,
    tx: &mut Transaction,
    dialect: Dialect,
    table: &Table,
) -> Result<Result<Contents, String>, JournalError> {
    if table.primary_key.is_empty() {
        return Ok(Err("it has no primary key to tell its rows apart by".to_owned()));
    }
    let columns = stored(table);
    let list: Vec<String> = columns
        .iter()
        .map(|place| {
            let name = identifier(&table.columns[*place].name);
            if dialect == Dialect::Postgres { format!("{name}::text") } else { name }
        })
        .collect();
    let name = table_name(dialect, &table.name);
    let sql = format!("SELECT {} FROM {name} LIMIT {}", list.join(", "), ROWS_MAX + 1);
    let rows = tx.run(Statement::new(sql)).await.map_err(|error| JournalError::on(id, error))?;
    if rows.len() > ROWS_MAX {
        return Ok(Err(format!("it has more than {ROWS_MAX} rows; write them again through Polyshard")));
    }
    let write = |value: &Value| literal(dialect, value);
    let contents = rows.iter().map(|row| {
        let row: Vec<String> = row.values().iter().map(write).collect();
        let at = |place: &usize| columns.iter().position(|column| column == place);
        let key = table.primary_key.iter().filter_map(at).map(|at| row[at].clone()).collect();
        (key, row)
    });
    Ok(Ok(contents.collect()))
}

/// The columns that are stored as they are given.
fn stored(table: &Table) -> Vec<usize> {
    (0..table.columns.len()).filter(|place| table.columns[*place].generated != Generated::Stored).collect()
}

fn changes(dialect: Dialect, table: &Table, there: &Contents, here: &Contents) -> Changes {
    let name = table_name(dialect, &table.name);
    let columns: Vec<String> =
        stored(table).iter().map(|place| identifier(&table.columns[*place].name)).collect();
    let key: Vec<String> =
        table.primary_key.iter().map(|place| identifier(&table.columns[*place].name)).collect();
    let is_of = |row: &str, values: &[String]| {
        let parts = key.iter().zip(values).map(|(column, value)| format!("{row}{column} = {value}"));
        parts.collect::<Vec<_>>().join(" AND ")
    };
    let is = |values: &[String]| is_of("", values);
    let insert = |row: &[String]| {
        format!(
            "INSERT INTO {name} ({}) {}VALUES ({})",
            columns.join(", "),
            overriding(dialect),
            row.join(", ")
        )
    };
    let mut changes = Changes::default();
    let keys: BTreeSet<&Vec<String>> = there.keys().chain(here.keys()).collect();
    for of in keys {
        match (there.get(of), here.get(of)) {
            (Some(right), None) => changes.inserts.push(insert(right)),
            (Some(right), Some(wrong)) if right != wrong => {
                changes.kept.push(insert(wrong));
                let pairs = columns.iter().zip(right.iter().zip(wrong)).filter(|(_, (a, b))| a != b);
                let set: Vec<String> =
                    pairs.map(|(column, (value, _))| format!("{column} = {value}")).collect();
                changes.updates.push(format!("UPDATE {name} SET {} WHERE {}", set.join(", "), is(of)));
                let names = stored(table).into_iter().map(|place| table.columns[place].name.clone());
                let changed = names.zip(right.iter().zip(wrong)).filter(|(_, (a, b))| a != b);
                let changed = changed.map(|(column, _)| column).collect();
                changes.gone.push((is_of("parent.", of), Some(changed)));
            }
            (None, Some(row)) => {
                changes.kept.push(insert(row));
                changes.deletes.push(format!("DELETE FROM {name} WHERE {}", is(of)));
                changes.gone.push((is_of("parent.", of), None));
            }
            _ => {}
        }
    }
    changes
}
