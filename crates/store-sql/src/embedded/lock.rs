//! What SQLite shards are asked beside rows: LOCK TABLE, sizes of tables, transactions that only read.

use std::collections::BTreeSet;
use std::sync::Arc;

use polyshard_map::State;
use polyshard_router::Access;
use polyshard_sql::{Kind, Route, SqlError, SqlState, Statement};
use polyshard_sql_on_sqlite::SIZE_FUNCTIONS;

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

    /// The shards of a query for sizes, which are those of all files together; sizes are NULL if not all can be seen.
    pub(super) fn sized_on(&mut self, statement: &Statement, route: &Route) -> Option<Route> {
        if self.under.is_some() || *statement.kind() != Kind::Select {
            return None;
        }
        let text = statement.text().to_ascii_lowercase();
        if !SIZE_FUNCTIONS.iter().any(|name| text.contains(name)) {
            return None;
        }
        let view = self.door.router.view();
        let shards: BTreeSet<_> = match &self.own.shard {
            Some(only) => [only.clone()].into(),
            None => view.shards.keys().cloned().collect(),
        };
        let several = shards.len() > 1;
        let away = view.shards.values().any(|record| record.state == State::Offline);
        // Such a transaction sees one file alone.
        let bound = self.transaction.has_one_snapshot()
            || self.transaction.lite_turn.is_some()
            || self.lite.as_ref().is_some_and(|lite| lite.transaction.is_some());
        let anywhere = matches!(route, Route::Anywhere | Route::ReferenceRead | Route::Nowhere { .. });
        let across = several && anywhere && !bound && !away;
        let sizes_unknown = several && !across;
        if self.lite_settings.sizes_unknown != sizes_unknown {
            let settings =
                polyshard_sql_on_sqlite::Settings { sizes_unknown, ..(*self.lite_settings).clone() };
            self.lite_settings = Arc::new(settings);
        }
        across.then(|| Route::Many { shards, ranges: Vec::new() })
    }
}
