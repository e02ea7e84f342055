//! Removes, in the background, the entities of tables that are gone.

use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{CatalogError, DatasetRecord};
use polyshard_engine::{Batch, Statement};
use polyshard_map::KeyRange;
use polyshard_router::Access;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::statements::texts;
use super::{STORE, StoreError, TableStore, broken, number};

/// What the catalog calls tables that are gone and may still have entities.
const GONE_STORE: &str = "table-gone";
/// How often to look. Nobody sees these entities, so only their room is at stake.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Entities removed by one write, so that others' writes are not held up for long.
const REMOVE_ROWS_MAX: i64 = 500;
/// How long a table that is gone is remembered, in ticks: a process that has not heard of it yet may still insert.
const GONE_KEPT_TICKS: i64 = 5 * 60 * 10_000_000;

/// What the catalog keeps about a table that is gone.
#[derive(Debug, Serialize, Deserialize)]
struct Gone {
    format: u32,
    /// The number of its rows.
    dataset: u64,
    /// When it was deleted, in ticks of 100 ns since 1970.
    gone_at: i64,
}

/// The task that removes what nobody can see any more.
pub struct Sweeper {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Sweeper {
    /// Starts it.
    pub fn start(store: Arc<TableStore>) -> Sweeper {
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = stopped.changed() => return,
                    swept = store.sweep() => {
                        if let Err(error) = swept {
                            tracing::warn!(%error, "entities of deleted tables could not all be removed; trying later");
                        }
                    }
                }
                tokio::select! {
                    _ = stopped.changed() => return,
                    () = store.deleted.notified() => {}
                    () = tokio::time::sleep(SWEEP_EVERY) => {}
                }
            }
        });
        Sweeper { task, stop }
    }

    /// Stops it, and waits until it has. What is left to remove is removed when one is started again.
    pub async fn stop(self) {
        // Nobody listening means that it has ended.
        let _ = self.stop.send(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the task that removes entities of deleted tables failed");
        }
    }
}

impl TableStore {
    /// Records that a table is about to go.
    pub(super) async fn remember_gone(&self, record: &DatasetRecord) -> Result<(), StoreError> {
        let gone = Gone { format: 1, dataset: record.id, gone_at: (self.clock)() };
        let body = serde_json::to_value(&gone).expect("plain values");
        let name = format!("{}#{}", record.name, record.id);
        match self.driver.create_dataset(GONE_STORE, &name, &record.map, record.rule.clone(), body).await {
            // One that was left by an attempt that failed serves as well.
            Ok(_) | Err(CatalogError::Exists(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the entities of all tables that are gone; forgets those that are gone for long.
    pub(super) async fn sweep(&self) -> Result<(), StoreError> {
        let view = self.router.view();
        let of = |store: &str| {
            let from = (store.to_owned(), String::new());
            let records = view.datasets.range(from..).take_while(move |((own, _), _)| own == store);
            records.map(|(_, record)| record.clone()).collect::<Vec<_>>()
        };
        for record in of(GONE_STORE) {
            let damaged = |error: serde_json::Error| StoreError::Damaged {
                what: "record of a deleted table",
                detail: error.to_string(),
            };
            let gone = Gone::deserialize(&record.body).map_err(damaged)?;
            // Its deletion is under way, or was given up: the table itself is the last word.
            if of(STORE).iter().any(|table| table.id == gone.dataset) {
                continue;
            }
            let mut failed = None;
            for shard in view.shards.keys() {
                // A shard that is away does not keep the others from being cleaned.
                failed = self.remove_all(&record, shard, number(gone.dataset)).await.err().or(failed);
            }
            if let Some(error) = failed {
                return Err(error);
            }
            if gone.gone_at.saturating_add(GONE_KEPT_TICKS) <= (self.clock)() {
                match self.driver.delete_dataset(GONE_STORE, &record.name).await {
                    // Another process was quicker.
                    Ok(_) | Err(CatalogError::NoSuchDataset(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Removes a dataset's rows from one shard, whatever brought them there. A ticket is taken for each batch, so that
    /// no move waits for long.
    async fn remove_all(
        &self,
        record: &DatasetRecord,
        shard: &polyshard_map::ShardId,
        dataset: i64,
    ) -> Result<(), StoreError> {
        loop {
            let all = KeyRange::all();
            let ticket = self.router.enter_shard(&record.map, &all, shard, Access::Write).await?;
            let remove = Statement::new(texts(ticket.dialect()).remove_some.clone());
            let remove = Batch::from(remove.bind(dataset).bind(REMOVE_ROWS_MAX));
            let removed = ticket.write(remove).await.map_err(broken)?;
            if removed.iter().all(|rows| rows.affected() < REMOVE_ROWS_MAX as u64) {
                return Ok(());
            }
        }
    }
}
