//! What SQLite shards are asked beside rows: LOCK TABLE, sizes of tables, transactions that only read.

use std::collections::BTreeSet;

use polyshard_lite::SIZE_FUNCTIONS;
use polyshard_router::Access;
use polyshard_sql::{Kind, Route, SqlError, SqlState, Statement};

use crate::reply;
use crate::session::{Done, Session, Wanted};

impl Session {
    /// A transaction that may write has the writer of its file alone, and with it everything that it can see: that is
    /// what a lock is. Tables on other shards it can neither read nor write until it ends.
    pub(super) async fn lock_lite(&mut self, route: &Route) -> Done {
        if !self.transaction.is_explicit() {
            let message = "LOCK TABLE can only be used in transaction blocks";
            return Err(SqlError::new(SqlState("25P01"), message).into());
        }
        let schema = self.current_schema().await?;
        let has_writer = self.lite.as_ref().is_some_and(|lite| lite.transaction.is_some());
        match Wanted::of(route) {
            Some(wanted) => self.enter_lite(&wanted, Access::Write).await?,
            None if has_writer => {}
            None => {
                return Err(SqlError::unsupported(
                    "a transaction locks tables on one SQLite shard, and this table has rows on several",
                    "Lock rows of one key with SELECT … FOR UPDATE: the transaction then has that shard to itself.",
                )
                .into());
            }
        }
        if self.transaction.lite_turn.is_none() {
            self.begin_lite(&schema, true).await?;
        }
        reply::complete(&mut self.client.out, "LOCK TABLE");
        Ok(())
    }

    /// Refuses a write in a transaction that was begun to read only.
    pub(super) fn check_not_read_only(&self, what: &str) -> Done {
        if !self.transaction.read_only {
            return Ok(());
        }
        let message = format!("cannot execute {what} in a read-only transaction");
        Err(SqlError::new(reply::state::READ_ONLY, message).into())
    }

    /// The shards of a query for sizes, which are those of all files together.
    pub(super) fn sized_on(&self, statement: &Statement, route: &Route) -> Option<Route> {
        let anywhere = matches!(route, Route::Anywhere | Route::ReferenceRead | Route::Nowhere { .. });
        if !anywhere || self.under.is_some() || *statement.kind() != Kind::Select {
            return None;
        }
        let text = statement.text().to_ascii_lowercase();
        if !SIZE_FUNCTIONS.iter().any(|name| text.contains(name)) {
            return None;
        }
        let shards: BTreeSet<_> = match &self.own.shard {
            Some(only) => [only.clone()].into(),
            None => self.door.router.view().shards.keys().cloned().collect(),
        };
        (shards.len() > 1).then(|| Route::Many { shards, ranges: Vec::new() })
    }
}
