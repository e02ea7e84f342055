//! What statements across shards need of a session.

use std::collections::BTreeMap;
use std::sync::Arc;

use polyshard_engine::RawCancel;
use polyshard_map::ShardId;
use polyshard_router::Router;
use polyshard_schema::Journal;
use polyshard_sql::{Param, Schema, SqlError};

use super::{Done, Session, Stop};
use crate::backend::Backend;
use crate::client::Client;
use crate::settings::Settings;

/// The sessions that a transaction runs on, lent to a statement across shards.
pub(crate) struct OwnSessions {
    /// The shard of the one that works at the moment.
    pub current: Option<ShardId>,
    pub all: BTreeMap<ShardId, Backend>,
}

impl Session {
    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings_now()
    }

    pub(crate) fn router(&self) -> Arc<Router> {
        self.door.router.clone()
    }

    pub(crate) fn journal(&self) -> Arc<Journal> {
        self.door.journal.clone()
    }

    pub(crate) async fn schema(&self) -> Result<Arc<Schema>, SqlError> {
        self.current_schema().await
    }

    pub(crate) fn search_path(&self) -> Arc<[String]> {
        self.search_path.clone()
    }

    /// Whether an answer may leave out shards that failed.
    pub(crate) fn partial_results(&self) -> bool {
        self.own.partial_results
    }

    /// The forms that the client wants columns in, and whether it was told what they are.
    pub(crate) fn wanted_forms(&self) -> (Vec<bool>, bool) {
        if self.extended { (self.formats.clone(), true) } else { (Vec::new(), false) }
    }

    /// Whether values written as texts are read again as the same ones under the client's settings.
    pub(crate) fn texts_are_exact(&self) -> bool {
        let settings = self.settings_now();
        let digits = settings.statement("extra_float_digits");
        let exact =
            |said: &str| ["1", "2", "3"].iter().any(|digit| said.trim_end_matches('\'').ends_with(digit));
        let intervals = settings.statement("intervalstyle");
        // Names of time zones that other forms write mean several.
        let dates = settings.statement("datestyle");
        let exact_dates = dates.is_none_or(|said| said.to_lowercase().contains("iso"));
        // Beside the signs of SQL's own form, PostgreSQL reads back every form that it writes.
        exact_dates
            && digits.is_none_or(exact)
            && intervals.is_none_or(|said| !said.to_lowercase().contains("sql_standard"))
    }

    /// Each parameter as an SQL literal with its type.
    pub(crate) async fn literals_of(&mut self, params: &[Param<'_>]) -> Result<Vec<String>, Stop> {
        self.literals(params).await
    }

    /// Ends what is under way, so that several shards can be asked. Only a transaction keeps its shard's session.
    pub(crate) async fn prepare_across(&mut self) -> Done {
        if self.transaction.global.is_some() {
            return Err(SqlError::unsupported(
                "a transaction that changes what every shard has cannot query across shards",
                "End the transaction first.",
            )
            .into());
        }
        if let Some(backend) = &mut self.backend
            && backend.in_series
        {
            backend.sync();
        }
        self.told = false;
        self.drain().await?;
        if self.told {
            return Err(Stop::Told);
        }
        self.share_configs().await?;
        if self.transaction.is_none() {
            self.release().await;
        } else if self.transaction.has_one_snapshot() {
            self.open_snapshots().await?;
        }
        Ok(())
    }

    /// The sessions that the transaction runs on; they come back by [`Session::keep_backends`].
    pub(crate) fn take_backends(&mut self) -> Result<OwnSessions, SqlError> {
        let current = self.backend.as_ref().map(|backend| backend.shard.clone());
        if !self.park() {
            return Err(super::global::two_sessions());
        }
        Ok(OwnSessions { current, all: std::mem::take(&mut self.parked) })
    }

    /// Takes the transaction's own sessions back, of which one was the current one; if there were more, one is lost.
    pub(crate) async fn keep_backends(&mut self, kept: Vec<Backend>, current: Option<&ShardId>, had: usize) {
        if kept.len() < had {
            self.transaction.failed = true;
            self.transaction.lost = true;
            self.portals.clear();
        }
        self.cancel.running.clear().await;
        for backend in kept {
            self.cancel.running.add(backend.cancel());
            self.transaction.failed |= backend.status == b'E';
            self.parked.insert(backend.shard.clone(), backend);
        }
        if let Some(current) = current {
            self.switch_to(current);
        }
    }

    /// How many cursors on the transaction's own sessions are to outlive it.
    pub(crate) fn own_cursors(&self) -> usize {
        self.backend.iter().chain(self.parked.values()).map(|backend| backend.cursors.len()).sum()
    }

    /// Notes that only the transaction's own session works for this one.
    pub(crate) async fn working_on_own_alone(&self) {
        self.cancel.running.clear().await;
        for backend in self.backend.iter().chain(self.parked.values()) {
            self.cancel.running.add(backend.cancel());
        }
    }

    /// The portal that is run for at most so many rows, if it is.
    pub(crate) fn portal_asked(&self) -> Option<(String, i32)> {
        self.asked.clone().filter(|(_, rows_max)| *rows_max > 0 && self.extended)
    }

    /// Notes that no session works for this one any more.
    pub(crate) async fn working_on_nothing(&self) {
        self.cancel.running.clear().await;
    }

    /// Notes a session that works for this one, so that it can be stopped.
    /// Who is told when the client wants its statement stopped.
    pub(crate) fn running(&self) -> std::sync::Arc<crate::cancel::Running> {
        self.cancel.running.clone()
    }

    pub(crate) async fn working_on(&self, cancel: RawCancel) {
        self.cancel.running.add(cancel);
    }
}
