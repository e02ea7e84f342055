//! Transactions over several shards that nobody is left to end: they end as was decided, or are rolled back.

use std::sync::Arc;
use std::time::Duration;

use polyshard_engine::Dialect;
use polyshard_map::ShardId;
use polyshard_router::Access;
use polyshard_store::PeriodicTask;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::door::Door;
use crate::session::PREPARED_PREFIX;
use crate::settings::quoted;

/// How often shards are asked for prepared transactions.
const EVERY: Duration = Duration::from_secs(5);

impl Door {
    /// Starts the task that ends what is left; stop it before the router is closed.
    pub fn keep_outcomes(self: &Arc<Door>) -> PeriodicTask {
        let door = self.clone();
        PeriodicTask::start("ends prepared transactions", EVERY, Arc::new(Notify::new()), move || {
            let door = door.clone();
            async move { door.end_prepared().await }
        })
    }

    /// Looks at every shard once.
    pub async fn end_prepared(&self) {
        let shards: Vec<ShardId> = self.router.view().shards.keys().cloned().collect();
        for shard in shards {
            if let Err(error) = self.end_prepared_on(&shard).await {
                tracing::debug!(%shard, %error, "prepared transactions cannot be looked at now");
            }
        }
    }

    async fn end_prepared_on(&self, shard: &ShardId) -> Result<(), String> {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let ticket = self.router.enter_unmapped(shard, Access::Write).await.map_err(|error| said(&error))?;
        if ticket.dialect() != Dialect::Postgres {
            return Ok(());
        }
        let cluster = self.router.view().cluster;
        let prefix = format!("{PREPARED_PREFIX}{cluster}:");
        let mut lent = ticket.raw().await.map_err(|error| said(&error))?;
        let select = format!(
            "SELECT gid, extract(epoch FROM now() - prepared)::bigint FROM pg_prepared_xacts \
             WHERE database = current_database() AND starts_with(gid, {})",
            quoted(&prefix)
        );
        let rows = lent.run_simple(&select).await.map_err(|error| said(&error))?;
        for row in rows {
            let [Some(gid), Some(age)] = row.as_slice() else { continue };
            let id = gid.strip_prefix(&prefix).and_then(|rest| rest.split(':').next()?.parse::<Uuid>().ok());
            let Some(id) = id else { continue };
            let outcome = self.catalog.outcome(id).await.map_err(|error| said(&error))?;
            let old = age.parse::<u64>().is_ok_and(|age| age >= self.limits.prepared_patience.as_secs());
            let commit = match outcome {
                Some(commit) => commit,
                // Whoever prepared it may still be about to decide.
                None if !old => continue,
                None => self.catalog.decide_outcome(id, false).await.map_err(|error| said(&error))?,
            };
            let verb = if commit { "COMMIT" } else { "ROLLBACK" };
            match lent.run_simple(&format!("{verb} PREPARED {}", quoted(gid))).await {
                Ok(_) => tracing::info!(%shard, gid, verb, "a prepared transaction that was left has ended"),
                // Another process was first, or is at it.
                Err(error) => {
                    tracing::debug!(%shard, gid, %error, "a prepared transaction was not ended here")
                }
            }
        }
        lent.finish();
        Ok(())
    }
}
