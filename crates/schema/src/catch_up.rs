//! Brings a shard to what was decided: it was away, or new, or whoever decided could not tell it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use polyshard_catalog::JournalEntry;
use polyshard_engine as engine;
use polyshard_engine::{Dialect, Statement};
use polyshard_map::ShardId;
use polyshard_shard::Shard;

use crate::JournalError;
use crate::entry::Entry;
use crate::journal::Inner;
use crate::run::Rows;
use crate::tables::{self, Lock};

/// Entries read at once.
const ENTRIES_PAGE: u32 = 64;
/// How often an entry is tried again because others are in the way on the shard, and the pause between: the transaction
/// of whoever decided may still be open there.
pub(crate) const TRIES: (u32, Duration) = (40, Duration::from_millis(100));

impl Inner {
    /// Brings a shard to the last position in the catalog.
    #[boxed]
    pub(crate) async fn catch_up(&self, id: &ShardId) -> Result<(), JournalError> {
        if self.is_ready(id) {
            return Ok(());
        }
        let one = self.shards.lock().expect("no panic while held").entry(id.clone()).or_default().clone();
        let _one = one.lock().await;
        if self.is_ready(id) {
            return Ok(());
        }
        // Whatever is missed while it is looked at is looked at again.
        loop {
            let missed = self.missed.load(Ordering::SeqCst);
            if self.catch_up_once(id, missed).await? {
                return Ok(());
            }
        }
    }

    /// Likewise; false if a shard has missed something meanwhile.
    async fn catch_up_once(&self, id: &ShardId, missed: u64) -> Result<bool, JournalError> {
        let shard = self.shard(id).await?;
        let mut position = match self.applied_on(&shard).await? {
            Some(position) => {
                // Before the schema changes that were decided after them.
                self.complete_on(id, position).await?;
                position
            }
            None => self.bring_up(&shard).await?,
        };
        let before = position;
        loop {
            let entries = self.catalog.journal_entries(position, ENTRIES_PAGE).await?;
            let Some(first) = entries.first() else { break };
            if first.position != position + 1 {
                // Rows were written that nobody remembers one by one any more.
                position = self.bring_up(&shard).await?;
                continue;
            }
            for entry in &entries {
                if entry.position != position + 1 {
                    break;
                }
                self.replay(&shard, entry).await?;
                position = entry.position;
            }
        }
        let last = self.catalog.journal_position().await?;
        if position > last {
            return Err(JournalError::Stuck {
                shard: id.clone(),
                position,
                why: format!("the catalog has only {last} entries; it was restored from an older copy"),
            });
        }
        self.learn_position(position);
        if position > before {
            self.complete_on(id, position).await?;
        }
        // Whoever hears that the shard has everything writes to its tables: a move must know of them by then.
        let bound = self.bind_tables(&shard).await;
        // What lasts is told to the one who met it: until it is mended, no range of the map moves.
        let mut all = true;
        if !bound.as_ref().is_err_and(JournalError::is_retryable) {
            all = self.learn_brought(id, position, missed);
        }
        bound.map(|()| all)
    }

    /// How far a shard is; nothing if it is new here.
    pub(crate) async fn applied_on(&self, shard: &Arc<Shard>) -> Result<Option<u64>, JournalError> {
        let id = shard.id();
        let mut tx = shard.control_snapshot().await.map_err(|error| JournalError::on(id, error))?;
        let fail = |error: engine::Error| JournalError::on(id, error);
        if !exists(&mut tx, shard.dialect()).await.map_err(fail)? {
            return Ok(None);
        }
        let rows = tx.run(tables::select_applied(shard.dialect(), Lock::No)).await.map_err(fail)?;
        tx.rollback().await.map_err(fail)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let cluster = self.catalog.cluster().await?;
        let theirs = row.text(1).map_err(fail)?;
        if theirs != cluster.to_string() {
            return Err(JournalError::Stuck {
                shard: id.clone(),
                position: row.int(0).map_err(fail)? as u64,
                why: format!("its tables were made by cluster {theirs}, and this is {cluster}"),
            });
        }
        Ok(Some(row.int(0).map_err(fail)? as u64))
    }

    /// Whether the journal's tables are on a shard.
    pub(crate) async fn has_own_tables(&self, shard: &Arc<Shard>) -> Result<bool, JournalError> {
        let id = shard.id();
        let mut tx = shard.control_snapshot().await.map_err(|error| JournalError::on(id, error))?;
        let fail = |error: engine::Error| JournalError::on(id, error);
        let there = exists(&mut tx, shard.dialect()).await.map_err(fail)?;
        tx.rollback().await.map_err(fail)?;
        Ok(there)
    }

    /// Runs one entry on a shard that lacks it.
    async fn replay(&self, shard: &Arc<Shard>, stored: &JournalEntry) -> Result<(), JournalError> {
        let entry = Entry::of(stored)?;
        let mut tries = 0;
        loop {
            let error = match self.replay_once(shard, stored.position, &entry).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            tries += 1;
            // What is unknown is looked at again: the entry's own mark tells.
            if !error.is_retryable() {
                return Err(match error {
                    JournalError::Shard { shard, error } => {
                        JournalError::Stuck { shard, position: stored.position, why: error.to_string() }
                    }
                    JournalError::Refused(error) => JournalError::Stuck {
                        shard: shard.id().clone(),
                        position: stored.position,
                        why: error.to_string(),
                    },
                    other => other,
                });
            }
            if tries >= TRIES.0 {
                return Err(error);
            }
            tokio::time::sleep(TRIES.1).await;
        }
    }

    async fn replay_once(
        &self,
        shard: &Arc<Shard>,
        position: u64,
        entry: &Entry,
    ) -> Result<(), JournalError> {
        let (id, dialect) = (shard.id(), shard.dialect());
        self.pass(&format!("replay:{id}.before"))?;
        let mut tx = shard.patient_transaction().await.map_err(|error| JournalError::on(id, error))?;
        let fail = |error: engine::Error| JournalError::on(id, error);
        // Whoever else does the same waits here, and then sees that it is done.
        let rows = tx.run(tables::select_applied(dialect, Lock::Yes)).await.map_err(fail)?;
        let now = rows.first().map(|row| row.int(0)).transpose().map_err(fail)?.unwrap_or(0) as u64;
        if now >= position {
            return Ok(());
        }
        self.run(id, dialect, &mut tx, &entry.statements, &entry.settings, Rows::Has).await?;
        tx.run(tables::mark(dialect, position)).await.map_err(fail)?;
        tx.commit().await.map_err(fail)?;
        self.pass(&format!("replay:{id}.after"))?;
        tracing::info!(shard = %id, position, "brought up from the journal");
        Ok(())
    }
}

/// Whether the journal's tables are on the shard.
async fn exists(tx: &mut engine::Transaction, dialect: Dialect) -> Result<bool, engine::Error> {
    let sql = match dialect {
        Dialect::Sqlite => "SELECT 1 FROM sqlite_schema WHERE name = 'polyshard_journal_applied'",
        Dialect::Postgres => "SELECT 1 WHERE to_regclass('polyshard.journal_applied') IS NOT NULL",
    };
    Ok(!tx.run(Statement::new(sql)).await?.is_empty())
}
