//! The tasks by which the checker's findings are put right.

use polyshard_catalog::CatalogError;
use polyshard_map::{MapName, ShardId};
use polyshard_mover::{MoveError, Mover, Repair, Repaired};
use polyshard_shard::{OpId, ShardError};

use super::adopt::of_journal;
use super::{Inner, Outcome};
use crate::procedure::Procedure;

impl Inner {
    pub(super) async fn repair_rows(
        &self,
        procedure: &mut Procedure,
        map: &MapName,
        shard: &ShardId,
        how: Repair,
    ) -> Result<Outcome, CatalogError> {
        let (driver, router) = (&self.options.driver, &self.options.router);
        let catalog = driver.catalog();
        let record = match catalog.map(map).await {
            Err(CatalogError::NoSuchMap(_)) => return Ok(Outcome::Done),
            other => other?,
        };
        // Those under way are looked up first: one that begins later changes the entries, and the shards say so.
        let busy = driver.busy(map).await?;
        let entries = catalog.entries(map).await?;
        let shards: Vec<ShardId> = catalog.shards().await?.into_iter().map(|shard| shard.id).collect();
        let mark = OpId::new(catalog.fresh_id());
        let mover = Mover::new(router.shard_source()).failing(self.options.failpoint.clone());
        match mover.repair(&record.definition, (&entries, &busy, &shards), shard, how, mark).await {
            Ok(done) => {
                for (dataset, of) in done.iter().filter(|(_, of)| **of != Repaired::default()) {
                    procedure.say(format!("{dataset} on shard {shard}: {of}"));
                }
                Ok(Outcome::Done)
            }
            Err(MoveError::Catalog(error)) => Err(error),
            // A range has gone elsewhere since: the next look is at who owns it then.
            Err(MoveError::Shard { shard, error: error @ ShardError::LocalMapDiffers { .. } }) => {
                Ok(Outcome::Retry(format!("shard {shard}: {error}")))
            }
            // Another has begun it: if this one is not to go on, the catalog says so when it is tried again.
            Err(MoveError::Shard { shard, error: error @ ShardError::Superseded(_) }) => {
                Ok(Outcome::Retry(format!("shard {shard}: {error}")))
            }
            Err(MoveError::Shard { shard, error }) => Err(CatalogError::Shard { shard, error }),
            Err(MoveError::Refused(why)) => Ok(Outcome::Refused(why)),
            Err(MoveError::Later(why)) => Ok(Outcome::Retry(why)),
            Err(error @ MoveError::Behind) => Ok(Outcome::Retry(error.to_string())),
        }
    }

    pub(super) async fn repair_reference(
        &self,
        procedure: &mut Procedure,
        like: Option<&ShardId>,
        confirmed: bool,
    ) -> Result<Outcome, CatalogError> {
        match self.options.journal.mend(like, false, confirmed).await {
            Ok(mended) => {
                for one in mended {
                    let (table, shard) = (&one.table, &one.shard);
                    procedure.say(match &one.refused {
                        Some(why) => format!("{table} on shard {shard} stays as it is: {why}"),
                        None => format!(
                            "{table} on shard {shard}: {} rows added, {} changed, {} removed",
                            one.inserted, one.updated, one.deleted
                        ),
                    });
                }
                Ok(Outcome::Done)
            }
            Err(error) => of_journal(error),
        }
    }
}
