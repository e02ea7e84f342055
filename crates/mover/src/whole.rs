//! Carries everything that was captured, of one snapshot of the source. So every row that another refers to comes
//! along, and every unique value has one owner: what cannot be done note by note can be done like this.

use std::collections::BTreeMap;

use polyshard_engine::{Access, Transaction, Value};
use polyshard_shard::RowKey;

use crate::apply::{BATCH_NOTES, Proof, Tables};
use crate::error::{MoveError, Result};
use crate::session::Session;
use crate::table::rows_of;

/// Notes carried by one snapshot: their keys are kept in memory.
const WHOLE_NOTES_MAX: usize = 262_144;

/// How rows are put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Care {
    /// Those that others refer to first, and what is gone is deleted afterwards.
    Plain,
    /// What is gone or changed gives its unique values free before others take them.
    Vacate,
}

/// What has changed, by table: the keys of rows, each once.
type Changed = BTreeMap<usize, BTreeMap<String, RowKey>>;

impl Session {
    /// Carries all notes; answers how many.
    pub(crate) async fn carry_whole(&mut self, tables: Tables, proof: Proof) -> Result<usize> {
        match self.try_whole(tables, proof, Care::Plain).await {
            Err(error) if error.is_rule() => self.try_whole(tables, proof, Care::Vacate).await,
            other => other,
        }
    }

    async fn try_whole(&mut self, tables: Tables, proof: Proof, care: Care) -> Result<usize> {
        let (source, capture) = (self.source.clone(), self.carry.forward);
        let on_source = MoveError::engine(source.id());
        let db = source.carrier().await.map_err(MoveError::on(source.id()))?;
        let mut snapshot = db.begin(Access::Read).await.map_err(&on_source)?;
        let notes = source.tail_within(&mut snapshot, capture, WHOLE_NOTES_MAX).await;
        let notes = self.of_tables(notes.map_err(MoveError::on(source.id()))?, tables).await?;
        let mut changed = Changed::new();
        for (table, note) in &notes {
            changed.entry(*table).or_default().insert(note.key.to_text(), note.key.clone());
        }
        let carried = self.carry_changed(&mut snapshot, &changed, care).await;
        snapshot.rollback().await.map_err(&on_source)?;
        carried?;
        let ids: Vec<i64> = notes.iter().map(|(_, note)| note.id).collect();
        source.forget_tail(self.op, capture, &ids).await.map_err(MoveError::on(source.id()))?;
        if proof == Proof::Now {
            let keys =
                changed.iter().flat_map(|(table, keys)| keys.values().map(|key| (*table, key.clone())));
            let keys: Vec<(usize, RowKey)> = keys.collect();
            for chunk in keys.chunks(BATCH_NOTES) {
                // Nobody writes them: requests are held.
                let fresh = self.read_fresh(chunk.iter().cloned()).await?;
                self.prove(&fresh).await?;
            }
        }
        Ok(notes.len())
    }

    /// Makes the target's rows of these keys what they are in the snapshot. A move that stops in between still has the
    /// notes of all of them.
    async fn carry_changed(&self, snapshot: &mut Transaction, changed: &Changed, care: Care) -> Result<()> {
        let mut gone: Vec<(usize, RowKey)> = Vec::new();
        if care == Care::Vacate {
            for (table, keys) in changed {
                for chunk in keys.values().collect::<Vec<_>>().chunks(BATCH_NOTES) {
                    let rows = self.read_in(snapshot, *table, chunk).await?;
                    gone.extend(absent(*table, chunk, &rows));
                }
            }
            self.delete_what_may_go(&gone).await?;
        }
        for (table, keys) in changed {
            let keys: Vec<&RowKey> = keys.values().collect();
            // Deleted and put again, where that takes nothing else with it.
            if care == Care::Vacate && !self.tables[*table].is_referred_to {
                for chunk in keys.chunks(BATCH_NOTES) {
                    let deletes = chunk.iter().map(|key| self.tables[*table].to.delete(key)).collect();
                    self.write_target(deletes).await?;
                }
            }
            for chunk in keys.chunks(BATCH_NOTES) {
                let rows = self.read_in(snapshot, *table, chunk).await?;
                if care == Care::Plain {
                    gone.extend(absent(*table, chunk, &rows));
                }
                let rows: Vec<Vec<Value>> = rows.into_iter().flatten().collect();
                match self.put(*table, &rows).await {
                    Err(error) if error.is_rule() && care == Care::Vacate => {
                        self.put_in_rounds(*table, rows).await?;
                    }
                    other => other?,
                }
            }
        }
        // Those that refer to others go first.
        gone.reverse();
        for chunk in gone.chunks(BATCH_NOTES) {
            let deletes = chunk.iter().map(|(table, key)| self.tables[*table].to.delete(key)).collect();
            self.write_target(deletes).await?;
        }
        Ok(())
    }

    /// The rows of some keys of a table, in a snapshot of the source.
    async fn read_in(
        &self,
        snapshot: &mut Transaction,
        table: usize,
        keys: &[&RowKey],
    ) -> Result<Vec<Option<Vec<Value>>>> {
        let statements = keys.iter().map(|key| self.tables[table].from.by_key(key)).collect();
        let answers = snapshot.run_known(statements).await.map_err(MoveError::engine(self.source.id()))?;
        Ok(answers.into_iter().map(|answer| rows_of(answer).into_iter().next()).collect())
    }

    async fn put(&self, table: usize, rows: &[Vec<Value>]) -> Result<()> {
        self.refuse_unkeepable(table, rows)?;
        self.register(table, rows.iter().map(Vec::as_slice)).await?;
        self.write_target(rows.iter().map(|row| self.tables[table].to.upsert(row)).collect()).await
    }

    /// Puts rows one by one, and again those that had to wait for others of them.
    async fn put_in_rounds(&self, table: usize, mut rows: Vec<Vec<Value>>) -> Result<()> {
        while !rows.is_empty() {
            let (before, mut last) = (rows.len(), None);
            let mut left = Vec::new();
            for row in rows {
                match self.put(table, std::slice::from_ref(&row)).await {
                    Err(error) if error.is_rule() => {
                        last = Some(error);
                        left.push(row);
                    }
                    other => other?,
                }
            }
            match last {
                Some(error) if left.len() == before => return Err(error),
                _ => rows = left,
            }
        }
        Ok(())
    }

    /// Deletes rows that are gone, but for those that rows refer to which are yet to be changed.
    async fn delete_what_may_go(&self, gone: &[(usize, RowKey)]) -> Result<()> {
        for chunk in gone.rchunks(BATCH_NOTES) {
            let delete = |(table, key): &(usize, RowKey)| self.tables[*table].to.delete(key);
            match self.write_target(chunk.iter().rev().map(delete).collect()).await {
                Err(error) if error.is_rule() => {
                    for one in chunk.iter().rev() {
                        match self.write_target(vec![delete(one)]).await {
                            Err(error) if error.is_rule() => {}
                            other => other?,
                        }
                    }
                }
                other => other?,
            }
        }
        Ok(())
    }
}

/// The keys that there are no rows of.
fn absent(table: usize, keys: &[&RowKey], rows: &[Option<Vec<Value>>]) -> Vec<(usize, RowKey)> {
    let missing = keys.iter().zip(rows).filter(|(_, row)| row.is_none());
    missing.map(|(key, _)| (table, (*key).clone())).collect()
}
