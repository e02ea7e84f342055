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
use crate::table::rows_of;

/// Rows compared at once.
const CHUNK_ROWS: usize = 512;
/// How long one part of comparing may take.
const PART: Duration = Duration::from_millis(300);

impl Session {
    /// Compares for a while. True when all is compared, and the same but for what is in the capture.
    pub(crate) async fn verify(&mut self) -> Result<bool> {
        self.refresh().await?;
        let until = Instant::now() + PART;
        while self.verify.unit < self.units.len() {
            if self.verify_chunk().await? {
                self.verify.unit += 1;
                self.verify.after = None;
            }
            if Instant::now() >= until && self.verify.unit < self.units.len() {
                return Ok(false);
            }
        }
        self.source.mark_ready(self.op, self.carry.forward).await.map_err(MoveError::on(self.source.id()))?;
        Ok(true)
    }

    /// Compares the next rows of a dataset. True after the last.
    async fn verify_chunk(&mut self) -> Result<bool> {
        let unit = &self.units[self.verify.unit];
        let (table, number, after) = (unit.table, unit.number, self.verify.after.clone());
        let pair = &self.tables[table];
        let here =
            self.page_of(true, pair.from.page(number, after.as_ref(), None, CHUNK_ROWS), CHUNK_ROWS).await?;
        let last = here.len() < CHUNK_ROWS;
        let upto = if last { None } else { here.last().map(|row| pair.from.position(row)) };
        // Twice as many: there may be rows that the source has no more.
        let room = CHUNK_ROWS * 2;
        let there =
            self.page_of(false, pair.to.page(number, after.as_ref(), upto.as_ref(), room), room).await?;
        if there.len() == room {
            return Err(MoveError::Refused(format!(
                "{} has far more rows on the target than on the source; the move is given up, and nothing has \
                 changed for requests",
                unit.dataset.name
            )));
        }
        let count = here.len();
        let suspects = self.different(table, here, there);
        let different = self.without_captured(table, suspects).await?;
        if let Some(key) = different.first() {
            return Err(self.differs(table, key, different.len()));
        }
        self.progress.verified_rows += count as u64;
        self.verify.after = upto;
        Ok(last)
    }

    /// The keys of rows that are not the same.
    fn different(&self, table: usize, here: Vec<Vec<Value>>, there: Vec<Vec<Value>>) -> Vec<RowKey> {
        let pair = &self.tables[table];
        let keyed = |rows: Vec<Vec<Value>>| -> BTreeMap<String, Vec<Value>> {
            rows.into_iter().map(|row| (pair.from.key_of(&row).to_text(), row)).collect()
        };
        let (here, mut there) = (keyed(here), keyed(there));
        let mut keys = Vec::new();
        for (key, row) in &here {
            if !self.is_same(table, Some(row), there.remove(key).as_deref()) {
                keys.push(pair.from.key_of(row));
            }
        }
        keys.extend(there.values().map(|row| pair.from.key_of(row)));
        keys
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
            captured.insert(key.map_err(MoveError::on(self.source.id()))?.to_text());
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
