//! The shard's side of carrying rows to another shard: captures, what they caught, and writes under the mover's token.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_engine::{
    self as engine, Access, Batch, Database, Dialect, Durable, Expect, Options, SessionHook, Statement,
    Target,
};
use polyshard_map::{KeyRange, MapDefinition, MapName};

use crate::capture::{self, MOVER_SETTING, Watch, lock_number};
use crate::keys::RowKey;
use crate::notation::Carrying;
use crate::shape::{self, Shape};
use crate::sql_local::{self, SqlLocal};
use crate::{Dataset, LocalTx, OpId, OpRef, Shard, ShardError, protocol, registered, schema};

/// How long making or removing a trigger may hold up the writers of a table: they queue behind it.
const TRIGGER_WAIT_MS: u32 = 50;
/// How often a table that is bound during a move is tried to be watched, and the pause after a try in vain: its writers
/// go on meanwhile. More than a second in all, in which a short transaction ends.
const WATCH_TRIES: u32 = 16;
const WATCH_PAUSE: Duration = Duration::from_millis(40);
/// The first half of the advisory lock that every write of a mover shares, so that whoever takes over finds the session
/// of one that has stopped in the middle. The second half is of the operation's name.
const MOVER_LOCK_CLASS: i32 = 0x7073_4d57;
/// Triggers taken away at once on an embedded shard, whose statements are all compiled anew after each time. On
/// PostgreSQL they go table by table.
const TRIGGERS_AT_ONCE: usize = 12;
/// Numbers of datasets that are asked for by one statement.
const NAMED_AT_ONCE: usize = 500;
/// Notes of a capture deleted by one statement.
const FORGET_ROWS: usize = 64;

/// Datasets that are recorded by one transaction.
const BOUND_AT_ONCE: usize = 64;

/// A row that has changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Captured {
    /// The number of the note.
    pub id: i64,
    /// The row's table.
    pub table: String,
    /// Its primary key.
    pub key: RowKey,
}

/// Writes a batch, and waits for the disk or not: on PostgreSQL sessions are set up for that.
async fn write_as(
    carrier: &Database,
    batch: Batch,
    durable: Durable,
) -> Result<Vec<engine::Rows>, engine::Error> {
    match durable {
        Durable::Now => carrier.write(batch).await,
        Durable::WithTheNext => carrier.write_lazily(batch).await,
    }
}

impl Shard {
    /// The sessions that rows are carried on: apart from those of requests and of the protocol, so that neither waits
    /// for a long copy. An embedded shard has one database for all.
    pub async fn carrier(&self) -> Result<&Database, ShardError> {
        self.carrier_as(Durable::Now).await
    }

    /// Likewise. Those whose writes are durable with the next one are apart: nobody else's commit may be of their kind.
    async fn carrier_as(&self, durable: Durable) -> Result<&Database, ShardError> {
        let open = || async {
            match self.target() {
                Target::Sqlite(_) => Ok(self.control().clone()),
                Target::Postgres(_) => {
                    let options = Options {
                        application_name: format!("{} mover", self.options().data.application_name),
                        postgres_readers: 1,
                        postgres_pool_max: 4,
                        ..self.options().data.clone()
                    };
                    let hook: Arc<dyn SessionHook> = Arc::new(Carrying { durable });
                    Ok(Database::open(self.target().clone(), options, Some(hook)).await?)
                }
            }
        };
        self.carrier_cell(durable).get_or_try_init(open).await
    }

    /// Makes the tables that a move needs, which a shard of an earlier version lacks.
    pub async fn ensure_move_tables(&self) -> Result<(), ShardError> {
        schema::create_stores(self.control(), &[]).await
    }

    /// Makes these tables and those of the stores, if they are missing.
    pub async fn ensure_tables(&self) -> Result<(), ShardError> {
        schema::create_stores(self.control(), &self.options().stores).await
    }

    /// Makes the tables of the stores, if this one is missing.
    pub async fn ensure_table(&self, table: &str) -> Result<(), ShardError> {
        match self.shape(table).await? {
            Some(_) => Ok(()),
            None => self.ensure_tables().await,
        }
    }

    /// The datasets that a map places here.
    pub async fn datasets(&self, map: &MapName) -> Result<Vec<Dataset>, ShardError> {
        let rows = self.control().read(registered::select_datasets(self.dialect(), map)).await?;
        rows.rows().iter().map(|row| registered::read_dataset(row, map)).collect()
    }

    /// The tables that hold rows which a map places here: one for all datasets that share it.
    pub async fn tables(&self, map: &MapName) -> Result<Vec<Dataset>, ShardError> {
        let rows = self.control().read(registered::select_tables(self.dialect(), map)).await?;
        rows.rows().iter().map(|row| registered::read_table(row, map)).collect()
    }

    /// The same, behind whoever binds a dataset just now.
    pub async fn settled_tables(&self, map: &MapName) -> Result<Vec<Dataset>, ShardError> {
        let mut tx = SqlLocal::begin(self.control()).await?;
        tx.lock_meta().await?;
        let tables = tx.tables(map).await?;
        tx.commit().await?;
        Ok(tables)
    }

    /// Those of some datasets of a table that are registered here, by their numbers.
    pub async fn named(&self, table: &Dataset, numbers: &[i64]) -> Result<Vec<Dataset>, ShardError> {
        let mut named = Vec::new();
        for some in numbers.chunks(NAMED_AT_ONCE) {
            let rows = self.control().read(registered::select_named(self.dialect(), table, some)).await?;
            for row in rows.rows() {
                named.push(registered::read_dataset(row, &table.map)?);
            }
        }
        Ok(named)
    }

    /// The shape of a table; none if it is not there.
    #[boxed]
    pub async fn shape(&self, table: &str) -> Result<Option<Shape>, ShardError> {
        let mut tx = self.carrier().await?.begin(Access::Read).await?;
        let shape = shape::read(&mut tx, self.dialect(), table).await?;
        tx.rollback().await?;
        Ok(shape)
    }

    /// Makes the driver of this token the only one who may carry for an operation from now on. A former one that has
    /// stopped in the middle of a write has its session ended first: it would hold the operation's record.
    pub async fn claim(&self, op: OpRef) -> Result<(), ShardError> {
        if self.dialect() == Dialect::Postgres {
            let wait_ms = self.options().terminate_wait.as_millis();
            let sql = format!(
                "SELECT count(pg_terminate_backend(pid, {wait_ms})) FROM pg_locks WHERE locktype = 'advisory' \
                 AND objsubid = 2 AND classid::bigint = {MOVER_LOCK_CLASS} AND objid::bigint = {} \
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND EXISTS (SELECT 1 FROM {} WHERE id = $1 AND token < $2)",
                lock_number(op.id) as u32,
                self.own("local_op")
            );
            let statement = Statement::new(sql).bind(op.id.to_string()).bind(op.token as i64);
            let ended = self.control().read(statement).await?.one()?.int(0)?;
            if ended > 0 {
                tracing::info!(shard = %self.id(), op = %op.id, ended, "sessions of a former mover were ended");
            }
        }
        let mut tx = SqlLocal::begin(self.control()).await?;
        protocol::claim(&mut tx, op).await?;
        tx.commit().await
    }

    /// Begins to note which rows of the ranges change. Each table in a transaction of its own, so that its writers wait
    /// for no other; repeating it goes on where it stopped.
    pub async fn open_capture(
        &self,
        op: OpRef,
        capture: OpId,
        definition: &MapDefinition,
        ranges: &[KeyRange],
    ) -> Result<(), ShardError> {
        // One that was only announced begins now, and one of a move that is undone is of the move that undoes it.
        let again = "DO UPDATE SET op = excluded.op, \
                     state = CASE had.state WHEN 'resting' THEN 'open' ELSE had.state END";
        let insert = self.put_capture(op, capture, (definition.name(), ranges), "open", again);
        self.carry_write(op, capture, vec![insert]).await?;
        let watch = Watch { capture, definition, ranges };
        // Listed after the capture is recorded, and behind whoever binds one just now: later ones find the record.
        for dataset in self.settled_tables(definition.name()).await? {
            let mut tx = self.trigger_transaction(op).await?;
            watch.install(&mut tx, self.dialect(), &dataset).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    /// Says that rows of the ranges may be here that are not this shard's, from before the first comes until the
    /// last is cleared away: whoever reads all shards leaves them out. Nothing is noted yet.
    pub async fn announce_capture(
        &self,
        op: OpRef,
        capture: OpId,
        map: &MapName,
        ranges: &[KeyRange],
    ) -> Result<(), ShardError> {
        let insert = self.put_capture(op, capture, (map, ranges), "resting", "DO NOTHING");
        self.carry_write(op, capture, vec![insert]).await.map(drop)
    }

    fn put_capture(
        &self,
        op: OpRef,
        capture: OpId,
        (map, ranges): (&MapName, &[KeyRange]),
        state: &str,
        again: &str,
    ) -> Statement {
        let sql = format!(
            "INSERT INTO {} AS had (capture, op, map, ranges, state, ready) VALUES ($1, $2, $3, $4, '{state}', 0) \
             ON CONFLICT (capture) {again}",
            self.own("capture")
        );
        Statement::new(sql)
            .bind(capture.to_string())
            .bind(op.id.to_string())
            .bind(map.to_string())
            .bind(serde_json::to_string(ranges).expect("ranges are texts"))
    }

    /// Takes the triggers of a capture away. On PostgreSQL each table in a transaction of its own, so that its writers
    /// wait for no other; repeating it goes on where it stopped.
    async fn remove_triggers(&self, op: OpRef, capture: OpId) -> Result<(), ShardError> {
        let mut tx = self.trigger_transaction(op).await?;
        let at_once = match self.dialect() {
            Dialect::Sqlite => TRIGGERS_AT_ONCE,
            Dialect::Postgres => 1,
        };
        for parts in capture::parts(&mut tx, self.dialect(), capture).await?.chunks(at_once) {
            tx.run_all(parts.iter().map(|part| Statement::new(part.as_str())).collect()).await?;
            tx.commit().await?;
            tx = self.trigger_transaction(op).await?;
        }
        tx.rollback().await?;
        Ok(())
    }

    /// Takes a capture away, with what it caught; repeating it goes on where it stopped.
    pub async fn remove_capture(&self, op: OpRef, capture: OpId) -> Result<(), ShardError> {
        loop {
            self.remove_triggers(op, capture).await?;
            // A dataset may have been bound meanwhile, and is watched, too: behind whoever binds one just now.
            let mut tx = SqlLocal::begin(self.carrier().await?).await?;
            tx.lock_meta().await?;
            let direct = tx.direct().await?;
            if direct.run(self.token_check(op).expect(Expect::Any)).await?.is_empty() {
                return Err(ShardError::Superseded(op.id));
            }
            if capture::parts(direct, self.dialect(), capture).await?.is_empty() {
                capture::forget(direct, self.dialect(), capture).await?;
                return tx.commit().await;
            }
        }
    }

    /// Says that everything the capture's ranges held was carried and compared; only then may they leave.
    pub async fn mark_ready(&self, op: OpRef, capture: OpId) -> Result<(), ShardError> {
        let sql = format!("UPDATE {} SET ready = 1 WHERE capture = $1", self.own("capture"));
        let statement = Statement::new(sql).bind(capture.to_string()).expect(Expect::Rows(1));
        self.carry_write(op, capture, vec![statement]).await.map(drop)
    }

    /// Lets the mover delete rows of ranges that have left: embedded shards cannot tell him from others, and their
    /// triggers have nothing to do any more.
    pub async fn rest_capture(&self, op: OpRef, capture: OpId) -> Result<(), ShardError> {
        let sql = format!("UPDATE {} SET state = 'resting' WHERE capture = $1", self.own("capture"));
        let statement = Statement::new(sql).bind(capture.to_string());
        self.carry_write(op, capture, vec![statement]).await?;
        match self.dialect() {
            Dialect::Sqlite => self.remove_triggers(op, capture).await,
            Dialect::Postgres => Ok(()),
        }
    }

    /// The oldest notes of a capture.
    pub async fn tail(&self, capture: OpId, limit: usize) -> Result<Vec<Captured>, ShardError> {
        let rows = self.carrier().await?.read(self.select_tail(capture, limit)).await?;
        rows.rows().iter().map(read_note).collect()
    }

    /// The same in a transaction on this shard: as they were at its moment.
    pub async fn tail_within(
        &self,
        tx: &mut engine::Transaction,
        capture: OpId,
        limit: usize,
    ) -> Result<Vec<Captured>, ShardError> {
        let rows = tx.run(self.select_tail(capture, limit)).await?;
        rows.rows().iter().map(read_note).collect()
    }

    fn select_tail(&self, capture: OpId, limit: usize) -> Statement {
        let sql = format!(
            "SELECT id, tab, pk FROM {} WHERE capture = $1 ORDER BY id LIMIT $2",
            self.own("capture_log")
        );
        Statement::new(sql).bind(capture.to_string()).bind(limit as i64)
    }

    /// Notes rows as if they had changed: they are carried later.
    pub async fn note(
        &self,
        op: OpRef,
        capture: OpId,
        table: &str,
        keys: &[RowKey],
    ) -> Result<(), ShardError> {
        let sql: Arc<str> =
            format!("INSERT INTO {} (capture, tab, pk) VALUES ($1, $2, $3)", self.own("capture_log")).into();
        let note = |key: &RowKey| {
            Statement::new(sql.clone()).bind(capture.to_string()).bind(table.to_owned()).bind(key.to_text())
        };
        self.carry_write(op, capture, keys.iter().map(note).collect()).await.map(drop)
    }

    /// How many notes a capture has.
    pub async fn tail_length(&self, capture: OpId) -> Result<u64, ShardError> {
        let sql = format!("SELECT count(*) FROM {} WHERE capture = $1", self.own("capture_log"));
        let rows = self.carrier().await?.read(Statement::new(sql).bind(capture.to_string())).await?;
        Ok(rows.one()?.int(0)? as u64)
    }

    /// Deletes just these notes, after the target has what they are about.
    pub async fn forget_tail(&self, op: OpRef, capture: OpId, ids: &[i64]) -> Result<(), ShardError> {
        let places: Vec<String> = (1..=FORGET_ROWS).map(|place| format!("${place}")).collect();
        let sql: Arc<str> =
            format!("DELETE FROM {} WHERE id IN ({})", self.own("capture_log"), places.join(", ")).into();
        let statement = |chunk: &[i64]| {
            let last = chunk[chunk.len() - 1];
            let padded = chunk.iter().copied().chain(std::iter::repeat(last)).take(FORGET_ROWS);
            padded.fold(Statement::new(sql.clone()), Statement::bind)
        };
        let statements: Vec<Statement> = ids.chunks(FORGET_ROWS).map(statement).collect();
        if statements.is_empty() {
            return Ok(());
        }
        self.carry_write(op, capture, statements).await.map(drop)
    }

    /// Writes for a move, if this driver still owns it: its record here is locked and looked at in the same
    /// transaction.
    /// On PostgreSQL the capture of that name does not note or refuse these changes.
    pub async fn carry_write(
        &self,
        op: OpRef,
        capture: OpId,
        statements: Vec<Statement>,
    ) -> Result<Vec<engine::Rows>, ShardError> {
        self.carry_write_as(op, capture, statements, Durable::Now).await
    }

    /// As [`Shard::carry_write`]. Nobody waits for the disk if it need not be durable yet, neither the mover nor
    /// whoever commits at the same time.
    pub async fn carry_write_as(
        &self,
        op: OpRef,
        capture: OpId,
        statements: Vec<Statement>,
        durable: Durable,
    ) -> Result<Vec<engine::Rows>, ShardError> {
        let mut batch = Batch::new().push(self.token_check(op));
        let mut skip = 1;
        if self.dialect() == Dialect::Postgres {
            batch = batch.push(self.mover_name(capture));
            skip += 1;
        }
        for statement in statements {
            batch = batch.push(statement);
        }
        match write_as(self.carrier_as(durable).await?, batch, durable).await {
            Ok(answers) => Ok(answers.into_iter().skip(skip).collect()),
            Err(engine::Error::Expectation { statement: 0, .. }) => Err(ShardError::Superseded(op.id)),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`Shard::carry_write`], on an SQLite file, with that of another shard beside it under the name `source`.
    pub async fn carry_write_beside(
        &self,
        op: OpRef,
        other: &Shard,
        statements: Vec<Statement>,
        durable: Durable,
    ) -> Result<Vec<engine::Rows>, ShardError> {
        let batch: Batch = std::iter::once(self.token_check(op)).chain(statements).collect();
        let other = ("source", other.carrier().await?);
        match self.carrier().await?.write_beside(other, batch, durable).await {
            Ok(answers) => Ok(answers.into_iter().skip(1).collect()),
            Err(engine::Error::Expectation { statement: 0, .. }) => Err(ShardError::Superseded(op.id)),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes rows of ranges that are not of this shard: in the same transaction the local map is locked and looked
    /// at. All of it is one batch, so that nobody waits for more than the deletes on an embedded shard.
    pub async fn clean(
        &self,
        op: OpRef,
        capture: OpId,
        (map, ranges): (&MapName, &[KeyRange]),
        statements: Vec<Statement>,
        durable: Durable,
    ) -> Result<u64, ShardError> {
        let mut all = Vec::new();
        if self.dialect() == Dialect::Postgres {
            // Whoever takes over finds this session by it, also while it holds no more than the local map.
            let number = lock_number(op.id);
            let sql = format!("SELECT pg_advisory_xact_lock_shared({MOVER_LOCK_CLASS}, {number})::text");
            all.extend([Statement::new(sql), self.mover_name(capture)]);
        }
        // The local map is locked before the operation's record, as in every other transaction that takes both.
        let meta = all.len();
        let lock = format!("SELECT one FROM {}{}", self.own("meta"), self.dialect().for_update());
        all.extend([Statement::new(lock).expect(Expect::Rows(1)), self.token_check(op)]);
        let here = |range| sql_local::select_ranges(self.dialect(), map, range, None).expect(Expect::None);
        all.extend(ranges.iter().map(here));
        let first = all.len();
        all.extend(statements);
        let wrong = match self.write_alone(all, durable).await {
            Ok(answers) => return Ok(answers.iter().skip(first).map(engine::Rows::affected).sum()),
            Err(ShardError::Engine(engine::Error::Expectation { statement, .. })) if statement < first => {
                statement - meta
            }
            Err(error) => return Err(error),
        };
        Err(match wrong {
            0 => ShardError::NotAShard,
            1 => ShardError::Superseded(op.id),
            place => ShardError::LocalMapDiffers {
                map: map.clone(),
                detail: format!(
                    "a part of {:?} is here, so that its rows may not be cleaned away",
                    ranges[place - 2]
                ),
            },
        })
    }

    /// Writes in a transaction of its own. On PostgreSQL a batch may share one with those of other moves, which have
    /// locked their records before, and would wait for what this one waits for.
    async fn write_alone(
        &self,
        statements: Vec<Statement>,
        durable: Durable,
    ) -> Result<Vec<engine::Rows>, ShardError> {
        let carrier = self.carrier_as(durable).await?;
        if self.dialect() == Dialect::Sqlite {
            return Ok(write_as(carrier, statements.into_iter().collect(), durable).await?);
        }
        let mut tx = carrier.begin(Access::Write).await?;
        let answers = tx.run_known(statements).await?;
        tx.commit().await?;
        Ok(answers)
    }

    /// Says in a transaction on PostgreSQL that it is the mover's: this capture does not note or refuse its changes.
    fn mover_name(&self, capture: OpId) -> Statement {
        Statement::new(format!("SELECT set_config('{MOVER_SETTING}', $1, true)")).bind(capture.to_string())
    }

    /// What every write of a mover begins with: it locks the operation's record and finds that no later driver has it.
    pub fn token_check(&self, op: OpRef) -> Statement {
        let named = match self.dialect() {
            Dialect::Sqlite => String::new(),
            Dialect::Postgres => {
                format!(", pg_advisory_xact_lock_shared({MOVER_LOCK_CLASS}, {})::text", lock_number(op.id))
            }
        };
        let sql = format!(
            "SELECT token{named} FROM {} WHERE id = $1 AND token <= $2{}",
            self.own("local_op"),
            self.dialect().for_update()
        );
        Statement::new(sql).bind(op.id.to_string()).bind(op.token as i64).expect(Expect::Rows(1))
    }

    /// A transaction that makes or removes triggers: it gives up soon rather than hold up the writers of a table.
    async fn trigger_transaction(&self, op: OpRef) -> Result<engine::Transaction, ShardError> {
        let mut tx = self.carrier().await?.begin(Access::Write).await?;
        if tx.run(self.token_check(op).expect(Expect::Any)).await?.is_empty() {
            return Err(ShardError::Superseded(op.id));
        }
        if self.dialect() == Dialect::Postgres {
            tx.run(impatient()).await?;
        }
        Ok(tx)
    }

    /// Records a dataset that a map places here, before its first row comes. One that stands for several cannot be.
    pub async fn bind(&self, dataset: &Dataset) -> Result<(), ShardError> {
        self.bind_some(std::slice::from_ref(dataset), None).await.map(drop)
    }

    /// The same, if a statement changes a row here just before; false, and nothing is done, if it does not. So whoever
    /// changes that row too comes before or after the whole of it.
    pub async fn bind_if(&self, dataset: &Dataset, condition: &Statement) -> Result<bool, ShardError> {
        self.bind_some(std::slice::from_ref(dataset), Some(condition)).await
    }

    /// The same for many datasets. Few of them, such as the tables of one dataset, are recorded all or none.
    pub async fn bind_all(&self, datasets: &[Dataset]) -> Result<(), ShardError> {
        for some in datasets.chunks(BOUND_AT_ONCE) {
            self.bind_some(some, None).await?;
        }
        Ok(())
    }

    async fn bind_some(
        &self,
        datasets: &[Dataset],
        condition: Option<&Statement>,
    ) -> Result<bool, ShardError> {
        let mut tries = 0;
        loop {
            match self.try_bind(datasets, condition).await {
                // Somebody writes the table: he goes on, and so do those behind him, before it is tried again.
                Err(ShardError::Engine(engine::Error::Timeout { .. } | engine::Error::Conflict { .. }))
                    if tries < WATCH_TRIES =>
                {
                    tries += 1;
                    tokio::time::sleep(WATCH_PAUSE).await;
                }
                other => return other,
            }
        }
    }

    #[boxed]
    async fn try_bind(
        &self,
        datasets: &[Dataset],
        condition: Option<&Statement>,
    ) -> Result<bool, ShardError> {
        let mut tx = SqlLocal::begin(self.control()).await?;
        // First, since it may wait for a change of tables: nobody else's is to wait for the shard's lock meanwhile.
        if !tx.holds(condition).await? {
            return Ok(false);
        }
        // Before it is recorded, no move may begin without it; after, none that has begun may miss it.
        tx.lock_meta().await?;
        tx.put_watched(datasets).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Takes the registration of a deleted dataset away, if no row of it is here and no move may bring one. True if it
    /// was gone before: whoever deletes it asks all shards until all say so. One with several tables has a name for
    /// each.
    pub async fn forget_dataset(&self, names: &[String]) -> Result<bool, ShardError> {
        let mut tx = SqlLocal::begin(self.control()).await?;
        tx.lock_meta().await?;
        let mut was_gone = true;
        for name in names {
            was_gone &= tx.forget_dataset(name).await?;
        }
        tx.commit().await?;
        Ok(was_gone)
    }

    pub(crate) fn own(&self, table: &str) -> String {
        self.dialect().own_table(table)
    }
}

impl SqlLocal {
    /// Records datasets, and has moves under way know of them.
    pub(crate) async fn put_watched(&mut self, datasets: &[Dataset]) -> Result<(), ShardError> {
        for same_table in datasets.chunk_by(|one, next| one.table == next.table) {
            self.put_watched_of_table(same_table).await?;
        }
        Ok(())
    }

    async fn put_watched_of_table(&mut self, datasets: &[Dataset]) -> Result<(), ShardError> {
        let mut new = Vec::new();
        for dataset in datasets {
            if !self.is_registered(dataset).await? {
                new.push(dataset);
            }
        }
        self.refuse_unnoted(&new).await?;
        for dataset in datasets {
            self.put_dataset(dataset).await?;
        }
        if let Some(one) = datasets.first() {
            self.watch(one).await?;
        }
        // Making the triggers has waited for those who wrote before; now it is seen what they wrote.
        self.refuse_unnoted(&new).await
    }

    /// Refuses datasets that have rows already in a range which a move has to do with. Where they leave, nobody has
    /// noted them; where they arrive, they are not the move's, and would be taken for its own.
    async fn refuse_unnoted(&mut self, datasets: &[&Dataset]) -> Result<(), ShardError> {
        let Some(first) = datasets.first() else { return Ok(()) };
        let dialect = self.dialect();
        let ranges = self.captured_ranges(&first.map, "op <> capture").await?;
        if ranges.is_empty() {
            return Ok(());
        }
        let Some(definition) = self.definition(&first.map).await? else { return Ok(()) };
        let tx = self.direct().await?;
        if shape::read(tx, dialect, &first.table).await?.is_none() {
            return Ok(());
        }
        let inside = first.placement.in_ranges(dialect, &definition, &ranges, "")?;
        let numbers: Vec<String> =
            datasets.iter().filter_map(|dataset| dataset.number()).map(|number| number.to_string()).collect();
        // All at once: a range may have to be read for it.
        let (column, rows) = match first.rows_column() {
            Some(column) => (column, format!(" AND {column} IN ({})", numbers.join(", "))),
            None => ("NULL", String::new()),
        };
        let sql = format!("SELECT {column} FROM {} WHERE {inside}{rows} LIMIT 1", first.table);
        let found = tx.run(Statement::new(sql)).await?;
        let Some(row) = found.first() else { return Ok(()) };
        let number = if rows.is_empty() { None } else { Some(row.int(0)?) };
        let dataset = datasets.iter().find(|dataset| dataset.number() == number).unwrap_or(first);
        Err(ShardError::CannotMove {
            dataset: dataset.name.clone(),
            why: "this shard has rows of it, from before it was bound, in a range that is moving; bind it when the \
                  move has ended, or look at the rows with 'polyshard check'"
                .to_owned(),
        })
    }

    /// Has the open captures of a dataset's map watch its table, too: it may get its first rows during a move.
    pub(crate) async fn watch(&mut self, dataset: &Dataset) -> Result<(), ShardError> {
        let dialect = self.dialect();
        let sql = format!(
            "SELECT capture, ranges FROM {} WHERE map = $1 AND state = 'open'",
            dialect.own_table("capture")
        );
        let statement = Statement::new(sql).bind(dataset.map.to_string());
        let captures = self.direct().await?.run(statement).await?;
        if captures.is_empty() {
            return Ok(());
        }
        let Some(definition) = self.definition(&dataset.map).await? else { return Ok(()) };
        if dialect == Dialect::Postgres {
            self.direct().await?.run(impatient()).await?;
        }
        let damaged = |detail: String| ShardError::Damaged { what: "capture", detail };
        for row in captures {
            let capture = row.text(0)?.parse().map_err(|error| damaged(format!("{error}")))?;
            let ranges: Vec<KeyRange> =
                serde_json::from_str(row.text(1)?).map_err(|error| damaged(error.to_string()))?;
            let watch = Watch { capture, definition: &definition, ranges: &ranges };
            watch.install(self.direct().await?, dialect, dataset).await?;
        }
        Ok(())
    }
}

/// Has the transaction wait for a table's lock no longer than its writers can bear to queue behind it.
fn impatient() -> Statement {
    Statement::new(format!("SET LOCAL lock_timeout = {TRIGGER_WAIT_MS}"))
}

fn read_note(row: &engine::Row) -> Result<Captured, ShardError> {
    Ok(Captured { id: row.int(0)?, table: row.text(1)?.to_owned(), key: RowKey::from_text(row.text(2)?)? })
}
