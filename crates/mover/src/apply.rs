//! Carries rows by key: reads them anew on the source, in one snapshot, and makes the target the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use polyshard_engine::{Access, Statement, Value};
use polyshard_shard::{Captured, RowKey};

use crate::error::{MoveError, Result};
use crate::session::Session;
use crate::table::{canonical, rows_of};

/// Notes carried at once.
pub(crate) const BATCH_NOTES: usize = 512;
/// Notes that may be left when a move goes on to its switch: what is carried within a few milliseconds. Where writers
/// are so quick that less never is left, so many more with every part of catching up, and so many at most.
const LAG_NOTES: usize = 64;
const LAG_NOTES_MORE: usize = 16;
const LAG_NOTES_MAX: usize = BATCH_NOTES;
/// How long one part of catching up may take.
const PART_MS: u64 = 300;
/// Parts of catching up in which the lag has to fall by a quarter. If it does not, writers are held for a while.
const OUTRUN_PARTS: usize = 8;
/// How long one part may take once writers had to be held: they go on meanwhile.
const PART_HELD_MS: u64 = 50;
/// How long requests are held while rows are carried, before they go on: as long as each attempt to fence, and twice
/// as long if that was not enough. Routers hold them for two seconds at most. So a fast writer gets a twentieth of
/// the time.
const HOLD_MS: u64 = 500;
const HOLD_DOUBLINGS_MAX: u32 = 1;
/// Notes that may be left while rows are compared that were written meanwhile: each of these is looked up in them.
const VERIFY_LAG_MAX: u64 = 8 * BATCH_NOTES as u64;

/// Rows by table and key: as the source has them now.
pub(crate) type Fresh = BTreeMap<(usize, String), (RowKey, Option<Vec<Value>>)>;

/// Which tables notes may be carried of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tables {
    All,
    /// Those before this one: the others are not copied yet.
    Before(usize),
}

impl Tables {
    pub(crate) fn include(self, table: usize) -> bool {
        match self {
            Tables::All => true,
            Tables::Before(first) => table < first,
        }
    }
}

/// Whether what was carried is compared at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    Later,
    Now,
}

impl Session {
    /// Carries what was captured until little is left. True when that is so.
    pub(crate) async fn catch_up(&mut self) -> Result<bool> {
        self.refresh().await?;
        self.changed_tables().await?;
        let began = tokio::time::Instant::now();
        let part_ms = if self.holds > 0 { PART_HELD_MS } else { PART_MS };
        loop {
            let notes = self.carry_batch(Tables::All, Proof::Later).await?;
            if notes < (LAG_NOTES + LAG_NOTES_MORE * self.catch_up_parts).min(LAG_NOTES_MAX) {
                (self.progress.lag_rows, self.lag_before, self.catch_up_parts) = (0, 0, 0);
                return Ok(true);
            }
            if began.elapsed().as_millis() as u64 >= part_ms {
                let lag = self.lag().await?;
                self.progress.lag_rows = lag;
                self.catch_up_parts += 1;
                return if self.is_outrun(lag) { Err(MoveError::Behind) } else { Ok(false) };
            }
        }
    }

    /// Whether the lag does not fall. Where writers had to be held before they are held again at once.
    fn is_outrun(&mut self, lag: u64) -> bool {
        if self.holds > 0 {
            return true;
        }
        if self.catch_up_parts % OUTRUN_PARTS != 1 {
            return false;
        }
        let before = std::mem::replace(&mut self.lag_before, lag);
        before > 0 && lag > before - before / 4
    }

    async fn lag(&self) -> Result<u64> {
        self.source.tail_length(self.carry.forward).await.map_err(MoveError::on(self.source.id()))
    }

    /// Stops comparing rows that writers add ahead of it while so many of their changes are left to be carried that
    /// each comparison takes longer than the one before.
    pub(crate) async fn refuse_to_fall_behind(&self) -> Result<()> {
        if self.lag().await? > VERIFY_LAG_MAX { Err(MoveError::Behind) } else { Ok(()) }
    }

    /// Carries all that is left while requests are held, and compares it on both sides.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        let hold = Duration::from_millis(HOLD_MS << self.holds.min(HOLD_DOUBLINGS_MAX));
        let until = tokio::time::Instant::now() + hold;
        // A column that came since would be left behind. Looked at beside the rest: requests wait.
        let unchanged = self.changed_tables();
        let settled = async {
            loop {
                // Where much is left only the last of it is compared: the rest is carried the sooner.
                let is_much = self.holds > 0 && self.lag().await? > BATCH_NOTES as u64;
                let proof = if is_much { Proof::Later } else { Proof::Now };
                // Whoever bypasses the routers may still add some: the departure sees to it that nothing is left.
                if self.carry_batch(Tables::All, proof).await? < BATCH_NOTES {
                    return Ok(());
                }
                if tokio::time::Instant::now() >= until {
                    return Err(MoveError::Behind);
                }
            }
        };
        let (unchanged, settled) = tokio::join!(unchanged, settled);
        if matches!(settled, Err(MoveError::Behind)) {
            self.holds += 1;
        }
        unchanged.and(settled)
    }

    /// Carries what was captured by now of the tables that are copied: rows that are copied now may refer to it. Not
    /// what comes meanwhile: writers might see to it that there always is something.
    pub(crate) async fn catch_up_before(&mut self, table: usize) -> Result<()> {
        let notes = self.source.tail_length(self.carry.forward).await;
        let notes = notes.map_err(MoveError::on(self.source.id()))?;
        for _ in 0..=notes / BATCH_NOTES as u64 {
            if self.carry_batch(Tables::Before(table), Proof::Later).await? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Carries some notes; answers how many.
    async fn carry_batch(&mut self, tables: Tables, proof: Proof) -> Result<usize> {
        match self.try_batch(tables, proof).await {
            // A row needs what the note of another is about, which may come later: all together, then.
            Err(error) if error.is_rule() => self.carry_whole(tables, proof).await,
            other => other,
        }
    }

    async fn try_batch(&mut self, tables: Tables, proof: Proof) -> Result<usize> {
        let capture = self.carry.forward;
        let notes = self.source.tail(capture, BATCH_NOTES).await.map_err(MoveError::on(self.source.id()))?;
        let notes = self.of_tables(notes, tables).await?;
        if notes.is_empty() {
            return Ok(0);
        }
        let keys = notes.iter().map(|(table, note)| (*table, note.key.clone()));
        // Read after the notes: what they are about is then seen.
        let fresh = self.read_fresh(keys).await?;
        self.write_fresh(&fresh).await?;
        let ids: Vec<i64> = notes.iter().map(|(_, note)| note.id).collect();
        let forgotten = self.source.forget_tail(self.op, capture, &ids);
        let proven = async {
            match proof {
                Proof::Later => Ok(()),
                Proof::Now => self.prove(&fresh).await,
            }
        };
        let (forgotten, proven) = tokio::join!(forgotten, proven);
        forgotten.map_err(MoveError::on(self.source.id()))?;
        proven?;
        Ok(notes.len())
    }

    /// Those notes that are of these tables, with the number of the table. Some may be of a table that got its first
    /// dataset just now. Asked after the notes were read, and so for all of them.
    pub(crate) async fn of_tables(
        &mut self,
        notes: Vec<Captured>,
        tables: Tables,
    ) -> Result<Vec<(usize, Captured)>> {
        if !notes.is_empty() && self.refresh().await? && tables != Tables::All {
            // Tables have other numbers now than those that the copy goes by.
            return Err(MoveError::Later("a dataset got its first rows; copying goes on".into()));
        }
        let numbered = notes.into_iter().filter_map(|note| {
            let table = self.table(&note.table)?;
            let key = self.tables[table].from.noted(note.key);
            Some((table, Captured { key, ..note }))
        });
        Ok(numbered.filter(|(table, _)| tables.include(*table)).collect())
    }

    /// Sees that the target has these rows as they are.
    pub(crate) async fn prove(&self, fresh: &Fresh) -> Result<()> {
        let different = self.compare(fresh).await?;
        match different.first() {
            Some((table, key)) => Err(self.differs(*table, key, different.len())),
            None => Ok(()),
        }
    }

    /// The rows of these keys, in one snapshot of the source.
    pub(crate) async fn read_fresh(&self, keys: impl Iterator<Item = (usize, RowKey)>) -> Result<Fresh> {
        let mut fresh: Fresh = keys.map(|(table, key)| ((table, key.to_text()), (key, None))).collect();
        let on_source = MoveError::engine(self.source.id());
        let statements: Vec<Statement> =
            fresh.iter().map(|((table, _), (key, _))| self.tables[*table].from.by_key(key)).collect();
        let db = self.source.carrier().await.map_err(MoveError::on(self.source.id()))?;
        let mut tx = db.begin(Access::Read).await.map_err(&on_source)?;
        let answers = tx.run_known(statements).await.map_err(&on_source)?;
        tx.rollback().await.map_err(&on_source)?;
        for ((_, row), answer) in fresh.values_mut().zip(answers) {
            *row = rows_of(answer).into_iter().next();
        }
        Ok(fresh)
    }

    /// Makes the target the same: what is gone is deleted, from those that refer to those referred to; what is there
    /// is put, the other way round. Never deleted and put again: that would take with it what refers to it.
    async fn write_fresh(&self, fresh: &Fresh) -> Result<()> {
        for table in fresh.keys().map(|(table, _)| *table).collect::<BTreeSet<usize>>() {
            let rows = fresh.range((table, String::new())..(table + 1, String::new()));
            self.register(table, rows.filter_map(|(_, (_, row))| row.as_deref())).await?;
        }
        let mut statements = Vec::with_capacity(fresh.len());
        for ((table, _), (key, row)) in fresh.iter().rev() {
            if row.is_none() {
                statements.push(self.tables[*table].to.delete(key));
            }
        }
        for ((table, _), (_, row)) in fresh {
            if let Some(row) = row {
                self.refuse_unkeepable(*table, std::slice::from_ref(row))?;
                statements.push(self.tables[*table].to.upsert(row));
            }
        }
        self.write_target(statements).await
    }

    /// Writes statements on rows of the range to the target.
    pub(crate) async fn write_target(&self, statements: Vec<Statement>) -> Result<()> {
        let written = self.target.carry_write(self.op, self.carry.reverse, statements).await;
        written.map(drop).map_err(|error| self.taken(error))
    }

    /// An upsert that touches no row has met another tenant's.
    fn taken(&self, error: polyshard_shard::ShardError) -> MoveError {
        use polyshard_engine::Error::Expectation;
        match error {
            polyshard_shard::ShardError::Engine(Expectation { .. }) => MoveError::Refused(format!(
                "shard {} has a row with the same primary key that is not in the moving range; primary keys must be \
                 unique over the shards",
                self.target.id()
            )),
            error => MoveError::on(self.target.id())(error),
        }
    }

    /// Which of these rows the target has otherwise.
    pub(crate) async fn compare(&self, fresh: &Fresh) -> Result<Vec<(usize, RowKey)>> {
        let on_target = MoveError::engine(self.target.id());
        let db = self.target.carrier().await.map_err(MoveError::on(self.target.id()))?;
        let mut tx = db.begin(Access::Read).await.map_err(&on_target)?;
        let statements =
            fresh.iter().map(|((table, _), (key, _))| self.tables[*table].to.by_key(key)).collect();
        let answers = tx.run_known(statements).await.map_err(&on_target)?;
        tx.rollback().await.map_err(&on_target)?;
        let mut different = Vec::new();
        for (((table, _), (key, row)), answer) in fresh.iter().zip(answers) {
            let there = rows_of(answer).into_iter().next();
            if !self.is_same(*table, row.as_deref(), there.as_deref()) {
                different.push((*table, key.clone()));
            }
        }
        Ok(different)
    }

    /// Whether two rows are the same, in the one form that both engines give.
    pub(crate) fn is_same(&self, table: usize, here: Option<&[Value]>, there: Option<&[Value]>) -> bool {
        let pair = &self.tables[table];
        let columns = [pair.from.columns.as_slice(), pair.to.columns.as_slice()];
        match (here, there) {
            (None, None) => true,
            (Some(here), Some(there)) => canonical(columns, here) == canonical(columns, there),
            _ => false,
        }
    }

    /// Whether a row of the source is still what it was.
    pub(crate) fn is_same_here(&self, table: usize, was: &[Value], is: &[Value]) -> bool {
        let columns = [self.tables[table].from.columns.as_slice(); 2];
        canonical(columns, was) == canonical(columns, is)
    }

    /// What is said of rows that differ for good.
    pub(crate) fn differs(&self, table: usize, key: &RowKey, count: usize) -> MoveError {
        MoveError::Refused(format!(
            "source and target differ in {count} row{}, such as ({}) of {}; the move is given up, and nothing has \
             changed for requests",
            if count == 1 { "" } else { "s" },
            self.tables[table].from.shown(key),
            self.tables[table].from.table
        ))
    }
}
