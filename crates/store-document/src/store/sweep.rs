//! Removes, in the background, what nobody can see any more: documents of deleted containers, documents that have come
//! to their end, containers of deleted databases.

use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::DatasetRecord;
use polyshard_engine::{Batch, Statement};
use polyshard_map::{KeyRange, ShardId};
use polyshard_router::Access;
use polyshard_store::{Error, PeriodicTask, Removal, Upkeep, read_body};
use tokio::sync::Notify;

use super::reader::is_in;
use super::records::ContainerBody;
use super::statements::texts;
use super::{DocumentStore, STORE};
use crate::failure::Failure;

/// How often to look. Nobody sees these documents, so only their room is at stake.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Rows removed by one write, so that others' writes are not held up for long.
const REMOVE_ROWS_MAX: usize = 500;
/// Writes for one container on one shard in one round, so that all get their turn.
const WRITES_MAX: usize = 100;

static UPKEEP: Upkeep = Upkeep {
    store: &STORE,
    removals: &[Removal {
        any: |dialect| texts(dialect).any.clone(),
        remove: |dialect| texts(dialect).remove_some.clone(),
    }],
};

impl DocumentStore {
    /// Starts the tasks that remove what nobody can see any more.
    pub(crate) fn keep_tidy(self: &Arc<DocumentStore>) -> Vec<PeriodicTask> {
        let store = self.clone();
        let expire = PeriodicTask::start(
            "removes documents that have come to their end",
            SWEEP_EVERY,
            Arc::<Notify>::default(),
            move || {
                let store = store.clone();
                async move { store.sweep().await }
            },
        );
        vec![UPKEEP.start(&self.kit, SWEEP_EVERY, self.deleted.clone()), expire]
    }

    /// One round. What cannot be done now is left for the next one.
    async fn sweep(&self) {
        let records: Vec<_> = {
            let view = self.kit.router().view();
            let all = self.kit.datasets(&view, &self.account, "");
            all.map(|(name, record)| (name.to_owned(), record.clone())).collect()
        };
        for (name, record) in records {
            let Some((database, _)) = name.split_once('/') else { continue };
            if let Err(failure) = self.tidy(database, &name, &record).await {
                if failure.status == 503 || failure.status == 429 {
                    tracing::debug!(
                        name,
                        message = failure.message,
                        "document cleanup postponed to the next round"
                    );
                } else {
                    tracing::warn!(name, message = failure.message, "document cleanup failed; retrying");
                }
            }
        }
    }

    async fn tidy(&self, database: &str, name: &str, record: &Arc<DatasetRecord>) -> Result<(), Failure> {
        let body: ContainerBody = read_body(record)?;
        let is_left_over = match self.database(database).await {
            Ok(database) => database.record.id != body.database,
            Err(failure) if failure.status == 404 => true,
            Err(failure) => return Err(failure),
        };
        if is_left_over {
            return self.remove(&self.dataset(name)?).await;
        }
        let Some(ttl) = body.default_ttl else { return Ok(()) };
        let shards: Vec<ShardId> = self.kit.router().view().shards.keys().cloned().collect();
        for shard in shards {
            self.expire(record, &shard, ttl).await?;
        }
        Ok(())
    }

    /// Removes the documents of a container on one shard that have come to their end.
    async fn expire(&self, record: &Arc<DatasetRecord>, shard: &ShardId, ttl: i64) -> Result<(), Failure> {
        let dataset = i64::try_from(record.id).unwrap_or(i64::MAX);
        for _ in 0..WRITES_MAX {
            // A ticket is taken for each write, so that no move waits for long.
            let router = self.kit.router();
            let ticket = router.enter_shard(&record.map, &KeyRange::all(), shard, Access::Write).await;
            let ticket = ticket.map_err(Error::from)?;
            let now = router.view().datasets.get(&(record.store.clone(), record.name.clone())).cloned();
            if ticket.ranges().is_empty() || now.is_none_or(|now| now.version != record.version) {
                return Ok(());
            }
            let texts = texts(ticket.dialect());
            let expired =
                Statement::new(texts.expired.clone()).bind(dataset).bind(ttl).bind(REMOVE_ROWS_MAX as i64);
            let rows = ticket.read(expired).await?;
            let mut batch = Batch::new();
            for row in &rows {
                if !is_in(ticket.ranges(), row.blob(0)?) {
                    continue;
                }
                let remove = Statement::new(texts.remove_expired.clone())
                    .bind(dataset)
                    .bind(row.blob(0)?)
                    .bind(row.blob(1)?)
                    .bind(row.blob(2)?)
                    .bind(row.text(3)?)
                    .bind(ttl)
                    .bind(row.int(4)?);
                batch = batch.push(remove);
            }
            if batch.is_empty() {
                return Ok(());
            }
            ticket.write(batch).await?;
            if rows.len() < REMOVE_ROWS_MAX {
                return Ok(());
            }
        }
        Ok(())
    }
}
