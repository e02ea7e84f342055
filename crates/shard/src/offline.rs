//! Rows of ranges that are offline: removed and put back by the one who has claimed them, while nobody reads or writes
//! them.

use polyshard_engine::{Dialect, Statement, Transaction};
use polyshard_map::{KeyRange, MapName, State};
use uuid::Uuid;

use crate::sql_local::SqlLocal;
use crate::{LocalTx, OpId, Shard, ShardError};

/// The first half of the advisory lock that every write under a claim shares, so that whoever claims next finds the
/// session of one that has stopped in the middle. The second half is of the claim's name.
const OFFLINE_LOCK_CLASS: i32 = 0x7073_4d58;

/// Who may write rows of an offline range: a name for what is written, and the rank of the driver who does it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfflineClaim {
    /// What is written; kept among the notes of what was taken, which no shard is called by.
    name: String,
    /// The driver: a later one has a higher one.
    mark: OpId,
}

impl OfflineClaim {
    /// The rank of a driver: of what it does by the map's version that it has seen, and of those who do the same by its
    /// token.
    pub fn rank(version: u64, token: u64) -> OpId {
        OpId::new(Uuid::from_u64_pair(version, token))
    }

    /// The second half of its lock (FNV-1a).
    fn lock_number(&self) -> u32 {
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        self.name.bytes().fold(0x811c_9dc5, step)
    }
}

/// Whether a mark that is kept is of a later driver. One that is no rank is of an earlier program.
fn is_later(kept: &str, mark: OpId) -> bool {
    let is_rank = kept.starts_with("00000000-");
    is_rank && kept.parse().is_ok_and(|kept: OpId| kept > mark)
}

impl Shard {
    /// Makes a driver the only one who may write these rows of an offline range. One that had it before and has paused
    /// since is refused from now on, and one that sleeps in the middle of a write has its session ended. A driver of a
    /// lower rank than somebody before is refused: it has slept through all that was done since. So a claim is kept
    /// when its work is done.
    pub async fn claim_offline(&self, what: &str, rank: OpId) -> Result<OfflineClaim, ShardError> {
        self.ensure_move_tables().await?;
        let claim = OfflineClaim { name: format!("offline/{what}"), mark: rank };
        self.end_former(&claim).await?;
        let mut local = SqlLocal::begin(self.carrier().await?).await?;
        local.lock_meta().await?;
        let (direct, taken) = (local.direct().await?, self.own("taken"));
        let sql = format!("SELECT row_digest FROM {taken} WHERE shard = $1 AND tab = '' AND key_digest = ''");
        let kept = direct.run(Statement::new(sql).bind(claim.name.clone())).await?;
        if let Some(row) = kept.first()
            && is_later(row.text(0)?, rank)
        {
            return Err(ShardError::Superseded(rank));
        }
        let sql = format!(
            "INSERT INTO {taken} (shard, tab, key_digest, pk, row_digest) VALUES ($1, '', '', '', $2) \
             ON CONFLICT (shard, tab, key_digest) DO UPDATE SET row_digest = excluded.row_digest"
        );
        direct.run(Statement::new(sql).bind(claim.name.clone()).bind(rank.to_string())).await?;
        local.tx.commit().await?;
        Ok(claim)
    }

    /// Ends the sessions of those who write under an earlier mark: they would hold the local map for as long as they
    /// sleep. An SQLite shard has one process.
    async fn end_former(&self, claim: &OfflineClaim) -> Result<(), ShardError> {
        if self.dialect() != Dialect::Postgres {
            return Ok(());
        }
        let wait_ms = self.options().terminate_wait.as_millis();
        let sql = format!(
            "SELECT row_digest, (SELECT count(*) FROM pg_locks WHERE {held}) FROM {taken} \
             WHERE shard = $1 AND tab = '' AND key_digest = '' AND row_digest <> $2",
            held = self.held_by(claim),
            taken = self.own("taken")
        );
        let asked = Statement::new(sql).bind(claim.name.clone()).bind(claim.mark.to_string());
        let kept = self.control().read(asked).await?;
        let Some(row) = kept.first() else { return Ok(()) };
        if row.int(1)? == 0 || is_later(row.text(0)?, claim.mark) {
            return Ok(());
        }
        let end = format!(
            "SELECT count(pg_terminate_backend(pid, {wait_ms})) FROM pg_locks WHERE {}",
            self.held_by(claim)
        );
        let ended = self.control().read(Statement::new(end)).await?.one()?.int(0)?;
        tracing::info!(shard = %self.id(), of = claim.name, ended, "sessions of a driver that sleeps were ended");
        Ok(())
    }

    /// The condition of the locks of those who write under a claim of this name.
    fn held_by(&self, claim: &OfflineClaim) -> String {
        format!(
            "locktype = 'advisory' AND objsubid = 2 AND classid::bigint = {OFFLINE_LOCK_CLASS} \
             AND objid::bigint = {} \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            claim.lock_number()
        )
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
        if self.dialect() == Dialect::Postgres {
            // Before anything that others wait for.
            let number = claim.lock_number() as i32;
            let sql = format!("SELECT pg_advisory_xact_lock_shared({OFFLINE_LOCK_CLASS}, {number})::text");
            local.direct().await?.run(Statement::new(sql)).await?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    // D8: whoever slept through a takeover, or through all of an archive and its restoration, comes too late.
    #[test]
    fn a_later_driver_has_a_higher_rank_whatever_an_earlier_program_kept() {
        let rank = OfflineClaim::rank;
        let later = |kept: OpId, mark: OpId| is_later(&kept.to_string(), mark);
        assert!(later(rank(7, 2), rank(7, 1)) && later(rank(8, 1), rank(7, 9)));
        assert!(!later(rank(7, 1), rank(7, 1)) && !later(rank(7, 9), rank(8, 1)));
        let random: OpId = "8f14e45f-ceea-467f-9a8b-0d6e5b0a7c11".parse().unwrap();
        assert!(!later(random, rank(7, 1)));
    }
}
