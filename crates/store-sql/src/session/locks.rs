//! Locks on rows of reference tables: taken where writes to them are put in order, and kept until the transaction ends.
//!
//! A lock on one shard keeps writers out, since they come to every shard; but not those who lock the same rows on
//! another shard. And a transaction that writes a reference table works on every shard: it would have to leave the one
//! where it had locked. So a transaction that locks for itself alone first is one on every shard from then on. One that
//! locks FOR SHARE stays on its shard, where it may write rows of its own.

use polyshard_sql::{Analysis, ReferenceLock, SqlError};

use super::place::Wanted;
use super::{Done, Session};

impl Session {
    /// Sees that what a statement locks of reference tables is locked against everybody, before it runs.
    pub(super) async fn order_locks(&mut self, wanted: &Wanted<'_>, analysis: &Analysis) -> Done {
        let Some(lock) = analysis.locks_reference() else { return Ok(()) };
        // Writers come to every shard, so that it keeps them out wherever it is, as long as the transaction stays.
        if lock == ReferenceLock::Shared || !self.keeps_locks() || self.transaction.global.is_some() {
            return Ok(());
        }
        if matches!(wanted, Wanted::Anywhere) && !self.transaction.wrote && self.can_leave() {
            return Box::pin(self.go_global()).await;
        }
        Err(locks_elsewhere().into())
    }

    /// The same on SQLite shards, where such locks are on the file that all go to who have no other yet.
    pub(crate) fn check_lite_locks(&self, wanted: &Wanted<'_>, analysis: &Analysis) -> Result<(), SqlError> {
        if analysis.locks_reference() != Some(ReferenceLock::Alone)
            || !self.keeps_locks()
            || self.transaction.lite_turn.is_some()
        {
            return Ok(());
        }
        let is_bound = self.is_on_backends() || self.lite.as_ref().is_some_and(|lite| !lite.anywhere);
        match matches!(wanted, Wanted::Anywhere) && !is_bound {
            true => Ok(()),
            false => Err(locks_elsewhere()),
        }
    }

    /// Whether a lock outlives its statement.
    fn keeps_locks(&self) -> bool {
        !self.transaction.is_none() && !self.transaction.is_in_series() && self.under.is_none()
    }
}

/// A transaction that works on one shard would lock rows of a reference table there alone.
fn locks_elsewhere() -> SqlError {
    SqlError::unsupported(
        "a transaction that works on one shard cannot lock rows of a reference table for itself alone",
        "Lock them in a transaction of their own, name the tables that are meant (FOR UPDATE OF orders), or say FOR \
         SHARE, which keeps writers out.",
    )
}
