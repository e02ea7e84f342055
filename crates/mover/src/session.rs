//! One driver's work on one move: the two shards, the tables that move, and how far each task is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures_util::{StreamExt, TryStreamExt, stream};
use polyshard_catalog::{Carry, OpRecord, Progress, ShardSource};
use polyshard_engine::{Dialect, Value};
use polyshard_map::MapDefinition;
use polyshard_shard::{Column, Dataset, OpRef, RowKey, Shard};
use tokio::time::Instant;

use crate::ending::{carried, take_up};
use crate::error::{MoveError, Result, shard};
use crate::pace::{Bite, Pace};
use crate::table::Side;

/// Tables looked at at once: they take sessions from those who carry rows.
const LOOKS_AT_ONCE: usize = 4;

/// A table that moves, on both sides.
pub(crate) struct Pair {
    pub from: Side,
    pub to: Side,
    /// What the source calls it: other tables refer to it so.
    pub identity: String,
    /// The tables that it refers to.
    pub references: Vec<String>,
    /// Whether a table on the target refers to it.
    pub is_referred_to: bool,
    /// What both looked like when the move took them up.
    shapes: [polyshard_shard::Shape; 2],
}

/// A dataset that moves.
pub(crate) struct Unit {
    pub dataset: Dataset,
    /// Which table it is in.
    pub table: usize,
    /// The number of its rows in a table that several share; none if it stands for all of the map's datasets there.
    pub number: Option<i64>,
}

/// How far comparing is. It goes by the names of datasets: one that is bound meanwhile may come before others.
#[derive(Default)]
pub(crate) struct Compared {
    pub done: BTreeSet<String>,
    /// The last row of those that are compared in part.
    pub after: BTreeMap<String, RowKey>,
}

/// One driver's work on one move.
pub(crate) struct Session {
    pub op: OpRef,
    pub carry: Carry,
    pub definition: MapDefinition,
    pub source: Arc<Shard>,
    pub target: Arc<Shard>,
    /// Tables, those that others refer to first.
    pub tables: Vec<Pair>,
    /// Datasets, in the order of their tables.
    pub units: Vec<Unit>,
    /// The names of the datasets that are known here.
    pub known: Vec<Dataset>,
    /// What the target calls the tables of the datasets that it knows already, where its engine is another.
    there: BTreeMap<String, String>,
    /// Datasets that the target was found to have no rows of.
    pub looked_at: BTreeSet<String>,
    /// By table of the source, the numbers of datasets that the target knows.
    pub registered: Mutex<BTreeMap<String, BTreeSet<i64>>>,
    /// The dataset whose rows are copied now: those before it are done.
    pub copied_units: usize,
    pub copy_rows: usize,
    pub copying_since: Option<(Instant, u64)>,
    pub compared: Compared,
    pub verify_rows: usize,
    /// Parts of catching up that have not been enough.
    pub catch_up_parts: usize,
    /// Changes that were left to be carried when it was last looked whether they become fewer.
    pub lag_before: u64,
    /// How often writers were held for a while, and that was not enough.
    pub holds: u32,
    pub progress: Progress,
    pace: Arc<Pace>,
    /// Not used while it copies or compares what was there before it began.
    hurry: Pace,
    is_late: bool,
    pub copy_bite: Bite,
    pub verify_bite: Bite,
}

impl Session {
    /// Takes a move up: from now on no earlier driver can do anything for it.
    pub(crate) async fn begin(
        shards: &dyn ShardSource,
        record: &OpRecord,
        pace: Arc<Pace>,
    ) -> Result<Session> {
        let (carry, definition) = carried(record)?;
        let mut session = Session::new(shards, record.op_ref(), carry, definition).await?;
        // A first look: by the time there is something to copy, it is known whether anybody is served.
        pace.is_busy();
        session.pace = pace;
        for side in [&session.source, &session.target] {
            take_up(side, session.op).await?;
        }
        Ok(session)
    }

    /// The same, with nothing claimed: it may look, and nothing else.
    pub(crate) async fn new(
        shards: &dyn ShardSource,
        op: OpRef,
        carry: Carry,
        definition: MapDefinition,
    ) -> Result<Session> {
        let (source, target) = (shard(shards, &carry.from).await?, shard(shards, &carry.to).await?);
        let mut session = Session {
            op,
            carry,
            definition,
            source,
            target,
            tables: Vec::new(),
            units: Vec::new(),
            known: Vec::new(),
            there: BTreeMap::new(),
            looked_at: BTreeSet::new(),
            registered: Mutex::default(),
            copied_units: 0,
            copy_rows: crate::copy::FIRST_ROWS,
            copying_since: None,
            compared: Compared::default(),
            verify_rows: crate::verify::FIRST_ROWS,
            catch_up_parts: 0,
            lag_before: 0,
            holds: 0,
            progress: Progress::default(),
            pace: Arc::new(Pace::unhindered()),
            hurry: Pace::unhindered(),
            is_late: false,
            copy_bite: Bite::new(crate::copy::BESIDE_ROWS_MAX),
            verify_bite: Bite::new(crate::verify::CHUNK_ROWS_MAX),
        };
        session.look_there().await?;
        Ok(session)
    }

    /// How much it steps back now.
    pub(crate) fn pace(&self) -> &Pace {
        if self.is_late { &self.hurry } else { &self.pace }
    }

    /// So many rows are copied or compared, of so many that there were: if it is more, writers add rows ahead of it.
    /// From there on it does not rest, or else it might never come to the last one.
    pub(crate) fn keep_ahead(&mut self, done: u64, of: u64) {
        self.is_late = done > of;
    }

    /// Whether writers add rows ahead of it.
    pub(crate) fn is_late(&self) -> bool {
        self.is_late
    }

    /// Asks the target what it calls the tables that it knows.
    async fn look_there(&mut self) -> Result<()> {
        if self.source.dialect() != self.target.dialect() {
            let known = self.target.tables(self.definition.name()).await;
            let known = known.map_err(MoveError::on(self.target.id()))?;
            self.there = known.into_iter().map(|dataset| (dataset.name, dataset.table)).collect();
        }
        Ok(())
    }

    /// Sees to it that every table with rows on the source is known here, and to the target. A table may get its
    /// first rows during the move. True if there is a new one. It costs the same however many datasets share a table:
    /// which of them have rows in the ranges is seen when these come ([`Session::register`]).
    pub(crate) async fn refresh(&mut self) -> Result<bool> {
        let found = self.source.tables(self.definition.name()).await;
        self.adopt(found.map_err(MoveError::on(self.source.id()))?).await
    }

    /// Sees to it that these are known here, and to the target.
    pub(crate) async fn adopt(&mut self, found: Vec<Dataset>) -> Result<bool> {
        if found == self.known {
            return Ok(false);
        }
        // A table that was declared meanwhile is known to the target by its own name for it.
        self.look_there().await?;
        for dataset in &found {
            self.target
                .ensure_table(&self.on_target(dataset).table)
                .await
                .map_err(MoveError::on(self.target.id()))?;
            if !dataset.is_of_map() {
                self.target.bind(&self.on_target(dataset)).await.map_err(MoveError::on(self.target.id()))?;
            }
        }
        self.read_tables(found).await?;
        Ok(true)
    }

    /// Reads what the tables of these datasets look like on both sides, and whether they can be moved.
    pub(crate) async fn read_tables(&mut self, found: Vec<Dataset>) -> Result<()> {
        let mut tables: BTreeMap<String, Pair> = BTreeMap::new();
        for dataset in &found {
            let there = self.on_target(dataset);
            if !tables.contains_key(&dataset.table) {
                tables.insert(dataset.table.clone(), self.pair(dataset, &there).await?);
            }
        }
        let tables = parents_first(tables)?;
        let at = |dataset: &Dataset| tables.iter().position(|pair| pair.from.table == dataset.table);
        let mut units: Vec<Unit> = found
            .iter()
            .filter_map(|dataset| {
                Some(Unit { dataset: dataset.clone(), table: at(dataset)?, number: dataset.number() })
            })
            .collect();
        units.sort_by_key(|unit| unit.table);
        (self.tables, self.units, self.known) = (tables, units, found);
        // They may be in another order now. The target knows which ones are done.
        self.copied_units = 0;
        Ok(())
    }

    /// The dataset as it is on the target, whose engine may be another.
    pub(crate) fn on_target(&self, dataset: &Dataset) -> Dataset {
        let table = self.there.get(&dataset.name).cloned().unwrap_or_else(|| {
            // Not known there yet.
            table_in(self.source.dialect(), self.target.dialect(), &dataset.table)
        });
        Dataset { table, ..dataset.clone() }
    }

    async fn pair(&self, dataset: &Dataset, there: &Dataset) -> Result<Pair> {
        let refuse = |why: String| MoveError::Refused(format!("{} cannot be moved: {why}", dataset.name));
        let mut shapes = Vec::new();
        for (side, table) in [(&self.source, &dataset.table), (&self.target, &there.table)] {
            let shape = side.shape(table).await.map_err(MoveError::on(side.id()))?;
            let shape = shape.ok_or_else(|| {
                refuse(format!(
                    "shard {} has no table {table}; if it was dropped, 'polyshard check --repair' forgets it, \
                     otherwise create it there first",
                    side.id()
                ))
            })?;
            if let Some(trigger) = shape.triggers.first() {
                return Err(refuse(format!(
                    "table {table} on shard {} has the trigger {trigger}, which would act on carried rows; drop it \
                     for the time of the move",
                    side.id()
                )));
            }
            shapes.push(shape);
        }
        let (from, to) = (&shapes[0], &shapes[1]);
        if from.primary_key.is_empty() {
            let why = "its table has no primary key, so that changed rows cannot be told apart; add one";
            return Err(refuse(why.into()));
        }
        // A file that an earlier version made may have a table of ours with another key; its rows are the same.
        let is_own = dataset.table.starts_with("polyshard");
        let same_engine = self.source.dialect() == self.target.dialect();
        if same_engine && (columns_differ(from, to) || !is_own && keys_differ(from, to)) {
            return Err(refuse(format!(
                "table {} is not the same on both shards; make its columns and key the same",
                dataset.table
            )));
        }
        let facing = match (self.source.dialect(), self.target.dialect()) {
            (Dialect::Postgres, Dialect::Sqlite) => [from.facing_file(to).map_err(refuse)?, to.clone()],
            (Dialect::Sqlite, Dialect::Postgres) => [from.clone(), to.facing_file(from).map_err(refuse)?],
            _ => [from.clone(), to.clone()],
        };
        let side = |dialect: Dialect, dataset: &Dataset, shape| {
            Side::new(dialect, dataset, shape, &facing[0], &self.definition, &self.carry.ranges)
        };
        Ok(Pair {
            from: side(self.source.dialect(), dataset, &facing[0])?,
            to: side(self.target.dialect(), there, &facing[1])?,
            identity: from.identity.clone(),
            references: from.references.clone(),
            is_referred_to: to.is_referred_to,
            shapes: [from.clone(), to.clone()],
        })
    }

    /// Stops the move if a row has a value that the target, a file, cannot keep.
    pub(crate) fn refuse_unkeepable(&self, table: usize, rows: &[Vec<Value>]) -> Result<()> {
        if (self.source.dialect(), self.target.dialect()) != (Dialect::Postgres, Dialect::Sqlite) {
            return Ok(());
        }
        let side = &self.tables[table].from;
        for row in rows {
            let found = side.columns.iter().zip(row).find(|(column, value)| column.is_unkeepable(value));
            if let Some((column, _)) = found {
                return Err(unkeepable(&side.table, column, Some(side.shown(&side.key_of(row)))));
            }
        }
        Ok(())
    }

    /// A table of a user's that was altered since the move took it up stops the move: what is new in it would be left
    /// behind. All are looked at at once.
    pub(crate) fn changed_tables(&self) -> impl Future<Output = Result<()>> + use<> {
        let mut looks = Vec::new();
        for pair in self.tables.iter().filter(|pair| !pair.from.table.starts_with("polyshard")) {
            let sides = [(&self.source, &pair.from.table), (&self.target, &pair.to.table)];
            for ((side, table), before) in sides.into_iter().zip(&pair.shapes) {
                looks.push(is_unchanged(side.clone(), table.clone(), before.clone()));
            }
        }
        async move { stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE).try_collect().await }
    }

    /// The table of this name on the source.
    pub(crate) fn table(&self, name: &str) -> Option<usize> {
        self.tables.iter().position(|pair| pair.from.table == name)
    }
}

/// What is said of a value that no file can keep.
pub(crate) fn unkeepable(table: &str, column: &Column, key: Option<String>) -> MoveError {
    let row = key.map_or_else(String::new, |key| format!(" of the row ({key})"));
    MoveError::Refused(format!(
        "{table} cannot be moved: column {}{row} has a value that a file cannot keep, such as NaN or an array of more \
         than one dimension; change it, or move the table to a PostgreSQL database",
        column.name.trim_matches('"')
    ))
}

async fn is_unchanged(side: Arc<Shard>, table: String, before: polyshard_shard::Shape) -> Result<()> {
    match side.shape(&table).await.map_err(MoveError::on(side.id()))? {
        Some(now) if now == before => Ok(()),
        _ => Err(MoveError::Refused(format!(
            "table {table} on shard {} was changed during the move; move again",
            side.id()
        ))),
    }
}

/// Whether rows of one table do not fit into the other. Columns may be in another order.
fn columns_differ(from: &polyshard_shard::Shape, to: &polyshard_shard::Shape) -> bool {
    let sorted = |shape: &polyshard_shard::Shape| {
        let mut columns = shape.fingerprint();
        columns.sort();
        columns
    };
    sorted(from) != sorted(to)
}

/// Whether rows that are apart in one table may be one in the other.
fn keys_differ(from: &polyshard_shard::Shape, to: &polyshard_shard::Shape) -> bool {
    let key = |shape: &polyshard_shard::Shape| -> Vec<String> {
        shape.key().map(|column| column.name.clone()).collect()
    };
    key(from) != key(to)
}

/// Tables in an order in which each comes after those that it refers to.
fn parents_first(tables: BTreeMap<String, Pair>) -> Result<Vec<Pair>> {
    let mut left: Vec<Pair> = tables.into_values().collect();
    let mut sorted: Vec<Pair> = Vec::new();
    while !left.is_empty() {
        let waits = |pair: &Pair, left: &[Pair]| {
            left.iter()
                .any(|other| other.identity != pair.identity && pair.references.contains(&other.identity))
        };
        let Some(next) = (0..left.len()).find(|place| !waits(&left[*place], &left)) else {
            return Err(MoveError::Refused(format!(
                "the tables {} refer to each other in a circle, so that no order of carrying their rows is safe; drop \
                 one of the foreign keys for the time of the move",
                left.iter().map(|pair| pair.from.table.as_str()).collect::<Vec<_>>().join(", ")
            )));
        };
        sorted.push(left.remove(next));
    }
    Ok(sorted)
}

/// What a table is called on the other engine.
pub(crate) fn table_in(from: Dialect, to: Dialect, table: &str) -> String {
    match (from, to) {
        (Dialect::Sqlite, Dialect::Postgres) => match table.strip_prefix("polyshard_") {
            Some(own) => to.own_table(own),
            None => table.to_owned(),
        },
        (Dialect::Postgres, Dialect::Sqlite) => match table.strip_prefix("polyshard.") {
            Some(own) => to.own_table(own),
            None => match table.split_once("\".\"") {
                // A file has no schemas, and calls tables of others than public by both names.
                Some((schema, name)) if schema != "\"public" => format!("{schema}.{name}"),
                Some((_, name)) => format!("\"{name}"),
                None => table.rsplit_once('.').map_or(table, |(_, name)| name).to_owned(),
            },
        },
        _ => table.to_owned(),
    }
}
