//! Compares source and target row by row, chunk by chunk, while writers go on.
//!
//! Only the mover writes the target's rows of the range. So a row that differs is right only if its change is still in
//! the capture: that is looked at together with the row, in one snapshot of the source.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use polyshard_engine::{Access, Statement, Value};
use polyshard_shard::RowKey;
use tokio::time::Instant;

use crate::error::{MoveError, Result};
use crate::session::Session;
use crate::table::{bytes_of, is_identical, rows_of};

/// Rows compared at once: of the first chunk, and at most. To find a chunk the whole table may have to be read.
pub(crate) const FIRST_ROWS: usize = 512;
pub(crate) const CHUNK_ROWS_MAX: usize = 8192;
/// Bytes compared at once, about.
const CHUNK_BYTES: u64 = 2 * 1024 * 1024;
/// How long one part of comparing may take.
const PART: Duration = Duration::from_millis(300);

impl Session {
    /// Compares for a while. True when all is compared, and the same but for what is in the capture.
    pub(crate) async fn verify(&mut self) -> Result<bool> {
        self.refresh().await?;
        if self.progress.total_rows == 0 {
            // Another driver has counted them.
            self.progress.total_rows = self.count_source().await?;
        }
        let due = self.progress.total_rows.max(self.progress.copied_rows);
        let until = Instant::now() + PART;
        let mut unit = 0;
        while unit < self.units.len() {
            let name = self.units[unit].dataset.name.clone();
            if self.compared.done.contains(&name) {
                unit += 1;
                continue;
            }
            let (began, before) = (Instant::now(), self.progress.verified_rows);
            self.keep_ahead(before, due);
            let is_last = self.verify_chunk(unit).await?;
            self.verify_bite.learn((self.progress.verified_rows - before) as usize, began.elapsed());
            if is_last {
                // Without a rest: there may be many tables with few rows each.
                self.compared.after.remove(&name);
                self.compared.done.insert(name);
            } else {
                self.pace().rest(began).await;
            }
            if Instant::now() >= until {
                if self.progress.verified_rows > due {
                    self.refuse_to_fall_behind().await?;
                }
                return Ok(false);
            }
        }
        self.source.mark_ready(self.op, self.carry.forward).await.map_err(MoveError::on(self.source.id()))?;
        Ok(true)
    }

    /// Compares the next rows of a dataset. True after the last.
    async fn verify_chunk(&mut self, unit: usize) -> Result<bool> {
        let unit = &self.units[unit];
        let (table, number, name) = (unit.table, unit.number, unit.dataset.name.clone());
        let after = self.compared.after.get(&name).cloned();
        let most = self.verify_bite.rows(self.pace());
        let (pair, count) = (&self.tables[table], self.verify_rows.min(most));
        let here =
            self.page_of(true, pair.from.page(number, after.as_ref(), None, Some(count)), count).await?;
        let last = here.len() < count;
        let upto = if last { None } else { here.last().map(|row| pair.from.position(row)) };
        let (rows, bytes) = (here.len() as u64, here.iter().map(|row| bytes_of(row)).sum::<u64>());
        let page = pair.to.page(number, after.as_ref(), upto.as_ref(), Some(count));
        let mut there = self.page_of(false, page, count).await?;
        // As a rule all are the same, in the same order.
        let same = here.iter().zip(&there).take_while(|(here, there)| is_identical(here, there)).count();
        let key = |row: &[Value]| pair.from.key_of(row).to_text();
        let mut here: BTreeMap<String, Vec<Value>> =
            here.into_iter().skip(same).map(|row| (key(&row), row)).collect();
        // The target may have more: rows that the source has no more, whose notes are still to be carried.
        let mut skip = same;
        loop {
            let is_full = there.len() == count;
            let at = there.last().map(|row| pair.to.position(row));
            let mut suspects = Vec::new();
            for row in there.into_iter().skip(std::mem::take(&mut skip)) {
                let mine = here.remove(&key(&row));
                if !self.is_same(table, mine.as_deref(), Some(&row)) {
                    suspects.push(pair.from.key_of(&row));
                }
            }
            self.refuse_different(table, suspects).await?;
            if !is_full {
                break;
            }
            let page = pair.to.page(number, at.as_ref(), upto.as_ref(), Some(count));
            there = self.page_of(false, page, count).await?;
        }
        let missing = here.values().map(|row| pair.from.key_of(row)).collect();
        self.refuse_different(table, missing).await?;
        if let Some(length) = bytes.checked_div(rows) {
            self.verify_rows = (CHUNK_BYTES / length.max(1)).clamp(1, CHUNK_ROWS_MAX as u64) as usize;
        }
        self.progress.verified_rows += rows;
        if let Some(upto) = upto {
            self.compared.after.insert(name, upto);
        }
        Ok(last)
    }

    /// Stops the move if a row differs for good.
    async fn refuse_different(&self, table: usize, suspects: Vec<RowKey>) -> Result<()> {
        let different = self.without_captured(table, suspects).await?;
        match different.first() {
            Some(key) => Err(self.differs(table, key, different.len())),
            None => Ok(()),
        }
    }

    /// Those of the rows that differ although no change of theirs is left to be carried.
    async fn without_captured(&self, table: usize, keys: Vec<RowKey>) -> Result<Vec<RowKey>> {
        if keys.is_empty() {
            return Ok(keys);
        }
        let on_source = MoveError::engine(self.source.id());
        let pair = &self.tables[table];
        let pending = format!(
            "SELECT pk FROM {} WHERE capture = $1 AND tab = $2",
            self.source.dialect().own_table("capture_log")
        );
        let pending =
            Statement::new(pending).bind(self.carry.forward.to_string()).bind(pair.from.table.clone());
        let mut statements = vec![pending];
        statements.extend(keys.iter().map(|key| pair.from.by_key(key)));
        let db = self.source.carrier().await.map_err(MoveError::on(self.source.id()))?;
        let mut tx = db.begin(Access::Read).await.map_err(&on_source)?;
        let answers = tx.run_all(statements).await.map_err(&on_source)?;
        tx.rollback().await.map_err(&on_source)?;
        let mut answers = answers.into_iter();
        let mut captured: BTreeSet<String> = BTreeSet::new();
        for row in answers.next().into_iter().flatten() {
            // Read and written again: the engines write the same key in different ways.
            let key = RowKey::from_text(row.text(0).map_err(&on_source)?);
            captured.insert(pair.from.noted(key.map_err(MoveError::on(self.source.id()))?).to_text());
        }
        let mut fresh = crate::apply::Fresh::new();
        for (key, rows) in keys.into_iter().zip(answers) {
            if !captured.contains(&key.to_text()) {
                fresh.insert((table, key.to_text()), (key, rows_of(rows).into_iter().next()));
            }
        }
        Ok(self.compare(&fresh).await?.into_iter().map(|(_, key)| key).collect())
    }
}
