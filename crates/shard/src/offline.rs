//! Rows of ranges that are offline: removed and put back by the one who has claimed them, while nobody reads or writes
//! them.

use polyshard_engine::{Statement, Transaction};
use polyshard_map::{KeyRange, MapName, State};

use crate::sql_local::SqlLocal;
use crate::{LocalTx, OpId, Shard, ShardError};

/// Who may write rows of an offline range: a name for what is done, and a mark of the driver who does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfflineClaim {
    /// What is done; kept among the notes of what was taken, which no shard is called by.
    name: String,
    /// The driver: a later one has another.
    mark: OpId,
}

impl Shard {
    /// Makes a driver the only one who may write rows of an offline range for this purpose. One that had it before and
    /// has paused since is refused from now on.
    pub async fn claim_offline(&self, purpose: &str, mark: OpId) -> Result<OfflineClaim, ShardError> {
        self.ensure_move_tables().await?;
        let claim = OfflineClaim { name: format!("offline/{purpose}"), mark };
        let sql = format!(
            "INSERT INTO {} (shard, tab, key_digest, pk, row_digest) VALUES ($1, '', '', '', $2) \
             ON CONFLICT (shard, tab, key_digest) DO UPDATE SET row_digest = excluded.row_digest",
            self.own("taken")
        );
        let put = Statement::new(sql).bind(claim.name.clone()).bind(mark.to_string());
        self.carrier().await?.write(put.into()).await?;
        Ok(claim)
    }

    /// Takes a claim back, if it is still this driver's.
    pub async fn release_offline(&self, claim: &OfflineClaim) -> Result<(), ShardError> {
        let sql = format!(
            "DELETE FROM {} WHERE shard = $1 AND tab = '' AND key_digest = '' AND row_digest = $2",
            self.own("taken")
        );
        let gone = Statement::new(sql).bind(claim.name.clone()).bind(claim.mark.to_string());
        self.carrier().await?.write(gone.into()).await?;
        Ok(())
    }

    /// Begins a transaction in which rows of a range may be written: the local map is locked in it, and all of the
    /// range is here, is offline, and does not just arrive; and nobody has claimed it since. Others' protocol waits for
    /// it, so it must be short.
    pub async fn offline_transaction(
        &self,
        claim: &OfflineClaim,
        map: &MapName,
        range: &KeyRange,
    ) -> Result<Transaction, ShardError> {
        let mut local = SqlLocal::begin(self.carrier().await?).await?;
        local.lock_meta().await?;
        let mut left = vec![range.clone()];
        for found in local.ranges(map, range).await? {
            if found.incoming.is_none() && found.entry.state == State::Offline {
                left = left.iter().flat_map(|range| range.subtract(&found.entry.range)).collect();
            }
        }
        if !left.is_empty() {
            let detail =
                format!("not all of {range:?} is here and offline, so that its rows stay as they are");
            return Err(ShardError::LocalMapDiffers { map: map.clone(), detail });
        }
        let sql = format!(
            "UPDATE {} SET pk = '' WHERE shard = $1 AND tab = '' AND key_digest = '' AND row_digest = $2 RETURNING 1",
            self.own("taken")
        );
        let direct = local.direct().await?;
        let mine = Statement::new(sql).bind(claim.name.clone()).bind(claim.mark.to_string());
        if direct.run(mine).await?.is_empty() {
            return Err(ShardError::Superseded(claim.mark));
        }
        Ok(local.tx)
    }
}
