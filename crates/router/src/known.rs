//! A change that makes an older view wrong counts as made when every process knows of it, or is cut off: one that did
//! not hear that a table was dropped, a queue deleted or a right taken would go on as before
//! ([why](../../../docs/decisions/0018-a-change-is-answered-when-all-know.md)). Requests pay nothing for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use polyshard_catalog::{CatalogError, DatasetRecord};
use polyshard_engine as engine;
use polyshard_engine::Target;
use polyshard_map::{Key, State};
use polyshard_shard::{RouterId, Shard, ShardError};
use tokio::time::Instant;

use crate::{Access, Router, RouterError, Ticket};

/// How long a process may be silent before it is cut off: far more than it takes to hear and to say so, also where
/// there is much to do.
pub(crate) const SILENT: Duration = Duration::from_secs(2);
/// The first pause between looks whether all have said so, and the longest; it doubles.
const LOOK: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// How often the sessions of one that is silent are ended, before it is given up.
const CUT_TRIES: u32 = 5;

impl Router {
    /// Reads what is published, and waits until no process goes by less: each has said that it knows, or has no session
    /// with a shard any more, and gets none before it has read the catalog. To be called after a change, and before its
    /// author is answered. The only error is [`RouterError::Unconfirmed`]: the change counts all the same.
    pub async fn everybody_knows(&self) -> Result<(), RouterError> {
        let all_know = Box::pin(self.wait_for_all()).await;
        all_know.map_err(|error| match error {
            RouterError::Unconfirmed(_) => error,
            error => RouterError::Unconfirmed(error.to_string()),
        })
    }

    async fn wait_for_all(&self) -> Result<(), RouterError> {
        Box::pin(self.refresh()).await?;
        let catalog = self.catalog();
        if matches!(catalog.target(), Target::Sqlite(_)) {
            // An embedded catalog is of one process, which knows now.
            return Ok(());
        }
        let (me, seq) = (self.status().router, self.view().seq);
        let (since, mut pause) = (Instant::now(), LOOK.0);
        loop {
            let heard = catalog.who_heard().await?;
            let behind: BTreeSet<RouterId> = heard
                .into_iter()
                .filter(|(router, heard)| *router != me && *heard < seq)
                .map(|(router, _)| router)
                .collect();
            if behind.is_empty() {
                return Ok(());
            }
            if since.elapsed() >= SILENT {
                Box::pin(self.cut_off(&behind, seq)).await?;
                for router in behind {
                    // It has no sessions, and reads the catalog before it gets some. The next change cuts it off again.
                    if let Err(error) = catalog.forget_router(router, seq).await {
                        tracing::warn!(%router, %error, "a process that was cut off is still listed in the catalog");
                    }
                }
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK.1);
        }
    }

    /// Refuses a dataset that is not in the list any more as it was found there. To be asked when the ticket is there:
    /// a process that was cut off because it had not heard of a change has its tickets of before voided, and tickets
    /// since are looked at by the list of since.
    pub fn check_dataset(&self, record: &DatasetRecord) -> Result<(), RouterError> {
        let view = self.state().view();
        match view.datasets.get(&(record.store.clone(), record.name.clone())) {
            Some(now) if std::ptr::eq(Arc::as_ptr(now), record) => Ok(()),
            Some(now)
                if now.id == record.id
                    && now.map == record.map
                    && now.rule == record.rule
                    // Access policies are part of it.
                    && now.body == record.body =>
            {
                Ok(())
            }
            Some(_) => Err(RouterError::Moving(record.map.clone())),
            None => Err(CatalogError::NoSuchDataset(format!("{} {}", record.store, record.name)).into()),
        }
    }

    /// As [`Router::call`], for rows of a dataset: not if it is gone by then, or made anew.
    pub async fn call_for<T>(
        &self,
        record: &DatasetRecord,
        keys: &[Key],
        access: Access,
        work: impl AsyncFn(&Ticket) -> Result<T, engine::Error>,
    ) -> Result<T, RouterError> {
        self.call_if(&record.map, keys, access, || self.check_dataset(record), work).await
    }

    /// Likewise for a dataset by what shards call it; nothing is known of other names.
    pub fn check_dataset_on_shards(&self, name: &str) -> Result<(), RouterError> {
        let Some((store, dataset, id)) = DatasetRecord::parts_on_shards(name) else { return Ok(()) };
        let view = self.state().view();
        match view.datasets.get(&(store.to_owned(), dataset.to_owned())) {
            Some(now) if now.id == id => Ok(()),
            Some(now) => Err(RouterError::Moving(now.map.clone())),
            None => Err(CatalogError::NoSuchDataset(format!("{store} {dataset}")).into()),
        }
    }

    /// Ends all sessions of these, and lets none begin before the catalog was read.
    async fn cut_off(&self, behind: &BTreeSet<RouterId>, seq: u64) -> Result<(), RouterError> {
        let names: Vec<String> = behind.iter().map(ToString::to_string).collect();
        tracing::warn!(
            routers = names.join(", "),
            "processes that do not say that they know of a change are cut off"
        );
        let view = self.view();
        let names = &names;
        let cut = view.shards.values().map(|record| async move {
            let cut = async { cut_off_from(&*self.administer(&record.id).await?, behind, seq).await };
            match cut.await {
                Ok(()) => Ok(()),
                // Nobody uses it, and it may be away for long.
                Err(error) if record.state == State::Offline => {
                    tracing::debug!(shard = %record.id, %error, "an offline shard was not told of a cut");
                    Ok(())
                }
                Err(error) => {
                    let shard = &record.id;
                    Err(RouterError::Unconfirmed(format!(
                        "{} cannot be cut off from shard {shard}: {error}",
                        names.join(", ")
                    )))
                }
            }
        });
        join_all(cut).await.into_iter().collect()
    }
}

async fn cut_off_from(shard: &Shard, behind: &BTreeSet<RouterId>, seq: u64) -> Result<(), ShardError> {
    if matches!(shard.dialect(), engine::Dialect::Sqlite) {
        // A file belongs to one process, and others have no sessions with it.
        return Ok(());
    }
    // First the demand: a session that is not in the list below reads it.
    shard.demand(seq, behind).await?;
    let present = shard.routers().await?;
    for router in behind.intersection(&present) {
        let mut tries = 0;
        while !shard.cut_off(*router).await? {
            tries += 1;
            if tries >= CUT_TRIES {
                let message = format!("the sessions of {router} cannot be ended; end that process");
                return Err(engine::Error::Unavailable { message }.into());
            }
        }
    }
    Ok(())
}
