//! Which sharded tables the protocol knows of on a shard. A table is bound and dropped in one order: whoever binds
//! proves in the same transaction that the shard has no change that he has not heard of.

use std::sync::Arc;

use polyshard_map::ShardId;
use polyshard_shard::Shard;
use uuid::Uuid;

use crate::JournalError;
use crate::bring_up::dataset_of;
use crate::declaration::STORE;
use crate::drift::Difference;
use crate::journal::Inner;
use crate::mend::Mended;
use crate::tables;

/// How often the list of tables is read again because a shard was further, before the caller tries again.
const LOOKS: u32 = 20;

impl Inner {
    /// Sees that the protocol knows of the sharded tables on a shard: what a range holds.
    pub(crate) async fn bind_tables(&self, shard: &Arc<Shard>) -> Result<(), JournalError> {
        if self.router.view().journal < self.position() {
            self.router.refresh().await?;
        }
        for _ in 0..LOOKS {
            if self.bind_tables_once(shard).await? {
                return Ok(());
            }
            // The shard has a change that this list lacks: a table in it may be dropped by now.
            self.router.refresh().await?;
        }
        Err(JournalError::Busy)
    }

    /// Likewise; false if the shard has heard of more than this process.
    async fn bind_tables_once(&self, shard: &Arc<Shard>) -> Result<bool, JournalError> {
        let view = self.router.view();
        let incarnation = view.shards.get(shard.id()).map_or(Uuid::nil(), |record| record.incarnation);
        for record in view.datasets_of(STORE) {
            let dataset = dataset_of(record, shard.dialect())?;
            let key = (incarnation, dataset.name.clone());
            if self.bound.lock().expect("no panic while held").contains(&key) {
                continue;
            }
            self.pass(&format!("bind:{}.before", shard.id()))?;
            let known = tables::stay_upto(shard.dialect(), view.journal);
            let bound = shard.bind_if(&dataset, &known).await;
            if !bound.map_err(|error| JournalError::on(shard.id(), error))? {
                return Ok(false);
            }
            self.bound.lock().expect("no panic while held").insert(key);
        }
        Ok(true)
    }

    /// What a shard still takes for a sharded table and the catalog does not: it was dropped. No range could leave the
    /// shard, whose mover would look for the table.
    pub(crate) async fn left_bound(&self, shard: &Arc<Shard>) -> Result<Vec<String>, JournalError> {
        let found = shard.registered(&format!("{STORE}:")).await;
        let found = found.map_err(|error| JournalError::on(shard.id(), error))?;
        if found.is_empty() {
            return Ok(found);
        }
        // After the shard: what was declared meanwhile is not taken for dropped.
        self.router.refresh().await?;
        let view = self.router.view();
        let is_known = |name: &String| view.datasets_of(STORE).any(|record| record.name_on_shards() == *name);
        Ok(found.into_iter().filter(|name| !is_known(name)).collect())
    }

    /// The same as differences.
    pub(crate) async fn left_differences(&self, id: &ShardId) -> Result<Vec<Difference>, JournalError> {
        let left = self.left_bound(&self.shard(id).await?).await?;
        let difference = |name: String| Difference {
            shard: id.clone(),
            object: format!("registration of {name}"),
            found: Some("a table that was dropped".to_owned()),
            expected: None,
        };
        Ok(left.into_iter().map(difference).collect())
    }

    /// Has a shard forget them; only looks, if asked to.
    pub(crate) async fn forget_left(&self, id: &ShardId, dry_run: bool) -> Result<Vec<Mended>, JournalError> {
        let shard = self.shard(id).await?;
        let mut out = Vec::new();
        for name in self.left_bound(&shard).await? {
            let known = tables::stay_upto(shard.dialect(), self.router.view().journal);
            let mut refused = None;
            if !dry_run {
                let done = shard.unregister_if(&name, &known).await;
                if !done.map_err(|error| JournalError::on(id, error))? {
                    refused =
                        Some("a move or a change of a table is under way; try again after it".to_owned());
                }
            }
            out.push(Mended {
                deleted: u64::from(refused.is_none()),
                refused,
                ..Mended::nothing(id, format!("registration of {name}"), None)
            });
        }
        Ok(out)
    }
}
