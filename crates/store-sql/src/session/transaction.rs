//! A client's transaction: begun on a shard only when a statement says on which.

use std::collections::BTreeSet;
use std::sync::Arc;

use polyshard_map::ShardId;
use polyshard_router::View;
use polyshard_schema::Declaration;
use polyshard_sql::{Isolation, Schema, SqlError, Statement, TransactionModes};

use super::eventual::Lasting;
use super::global::Global;
use super::savepoint::Mark;
use super::{Done, Session, Stop};
use crate::embedded::LiteTurn;
use crate::reply::{self, Severity, state};
use crate::settings::{Own, Settings, is_one_snapshot, is_serializable};

/// How a transaction came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// There is none.
    Not,
    /// By several statements in one message.
    Implicitly,
    /// By a series of the extended protocol that writes on an SQLite shard; until its Sync.
    InSeries,
    /// By BEGIN.
    Explicitly,
}

/// The session's settings, the door's own, the search path, and those of SQLite shards.
pub(super) type Remembered = (Arc<Settings>, Own, Arc<[String]>, Arc<polyshard_sql_on_sqlite::Settings>);

/// What is known of the transaction.
pub(crate) struct Transaction {
    begun: Begun,
    /// A statement has failed: everything but its end is refused.
    pub failed: bool,
    /// The statement that begins it on a shard.
    begin: Arc<str>,
    /// What was said before a shard was chosen: savepoints, and settings of the transaction.
    pub(super) prelude: Vec<Arc<str>>,
    /// Its savepoints, the oldest first.
    pub(super) marks: Vec<Mark>,
    /// What the session had before, in case it is rolled back.
    pub(super) before: Option<Remembered>,
    /// Whether something was written.
    pub wrote: bool,
    /// The session that it ran on is lost.
    pub lost: bool,
    pub read_only: bool,
    /// If it is on every shard: what it has done.
    pub global: Option<Box<Global>>,
    /// Likewise, before SQLite shards.
    pub lite_turn: Option<Box<LiteTurn>>,
    /// If it is a write on several shards that is completed whatever happens: what it has done.
    pub(super) lasting: Option<Box<Lasting>>,
    /// The schema as the transaction itself has made it.
    pub schema: Option<Arc<Schema>>,
    /// The temporary tables that it has made.
    pub temporary: Vec<String>,
    /// Its number, if it has some: what statements mean is not remembered for others. 0 for none.
    pub apart: u64,
    /// When it began, once somebody has asked: microseconds since 2000.
    began_micros: Option<i64>,
    one_snapshot: bool,
    /// Whether it is to be as if no other ran beside it.
    pub(super) serializable: bool,
    /// Where everything was when its snapshot was taken.
    pub(super) places: Option<Arc<View>>,
    /// Whether it has a snapshot of every shard.
    pub(super) everywhere: bool,
    /// What is declared once it is committed.
    pub after: Vec<Declaration>,
    /// Whether it may still go on on another shard.
    pub movable: bool,
    /// Whether its search path was changed.
    search_path_set: bool,
    /// What the session's search path is once it is committed.
    pub(super) search_path_after: Option<Arc<[String]>>,
    /// What was set for it alone.
    local_names: BTreeSet<String>,
    /// What its statements have set by set_config, and on which shard: the value is known there alone.
    pub(super) configs: Vec<(ShardId, String)>,
}

/// What a transaction passes on to the one that AND CHAIN begins.
struct Again {
    begin: Arc<str>,
    read_only: bool,
    one_snapshot: bool,
    serializable: bool,
}

impl Again {
    fn of(transaction: &Transaction) -> Again {
        let Transaction { begin, read_only, one_snapshot, serializable, .. } = transaction;
        let (read_only, one_snapshot, serializable) = (*read_only, *one_snapshot, *serializable);
        Again { begin: begin.clone(), read_only, one_snapshot, serializable }
    }
}

impl Transaction {
    pub fn none() -> Transaction {
        Transaction {
            begun: Begun::Not,
            failed: false,
            begin: Arc::from("BEGIN"),
            prelude: Vec::new(),
            marks: Vec::new(),
            before: None,
            wrote: false,
            lost: false,
            read_only: false,
            global: None,
            lite_turn: None,
            lasting: None,
            schema: None,
            temporary: Vec::new(),
            apart: 0,
            began_micros: None,
            one_snapshot: false,
            serializable: false,
            places: None,
            everywhere: false,
            after: Vec::new(),
            movable: true,
            search_path_set: false,
            search_path_after: None,
            local_names: BTreeSet::new(),
            configs: Vec::new(),
        }
    }

    pub fn is_none(&self) -> bool {
        self.begun == Begun::Not
    }

    pub fn is_in_series(&self) -> bool {
        self.begun == Begun::InSeries
    }

    pub fn is_explicit(&self) -> bool {
        self.begun == Begun::Explicitly
    }

    pub fn status(&self) -> u8 {
        match (self.begun, self.failed) {
            (Begun::Explicitly, true) => b'E',
            (Begun::Explicitly, false) => b'T',
            _ => b'I',
        }
    }

    /// Whether there is none, or one that has done nothing anywhere so far.
    pub fn is_nowhere(&self) -> bool {
        let fresh = self.marks.is_empty() && self.prelude.is_empty() && self.schema.is_none();
        let alone = self.global.is_none() && self.lite_turn.is_none() && self.after.is_empty();
        self.is_none()
            || (fresh && alone && !self.wrote && !self.failed && !self.lost && self.places.is_none())
    }

    /// Whether all its statements see one moment.
    pub fn has_one_snapshot(&self) -> bool {
        self.one_snapshot && !self.is_none()
    }

    /// When it began: now, if nobody has asked before, or there is none.
    pub fn began(&mut self, now: i64) -> i64 {
        if self.is_none() { now } else { *self.began_micros.get_or_insert(now) }
    }

    /// Notes that the search path was set, for the transaction or for the session.
    pub fn note_search_path(&mut self, local: bool, path: &Arc<[String]>) {
        self.search_path_set = true;
        if !local {
            self.search_path_after = Some(path.clone());
        }
    }

    /// Notes that something was set for the transaction alone.
    pub fn note_local(&mut self, name: &str) {
        self.local_names.insert(name.to_owned());
    }

    /// What was set for the transaction alone.
    pub fn local_names(&self) -> impl Iterator<Item = &str> {
        self.local_names.iter().map(String::as_str)
    }

    pub fn search_path_changed(&self) -> bool {
        self.search_path_set
    }

    /// Whether this search path is the transaction's own, and ends with it.
    pub fn has_local_path(&self, path: &Arc<[String]>) -> bool {
        self.search_path_set && self.search_path_after.as_ref() != Some(path)
    }

    /// The statements that begin it on a shard; none outside a transaction.
    pub fn opening(&self) -> Option<(&Arc<str>, &[Arc<str>])> {
        (!self.is_none()).then_some((&self.begin, &self.prelude))
    }
}

impl Session {
    /// Begins a transaction of several statements in one message.
    pub(super) fn begin_implicitly(&mut self) {
        if self.transaction.is_none() {
            self.transaction = Transaction::none();
            self.transaction.begun = Begun::Implicitly;
            self.transaction.one_snapshot = self.is_by_default(is_one_snapshot);
            self.transaction.serializable = self.is_by_default(is_serializable);
            self.transaction.movable = !self.transaction.one_snapshot;
            self.transaction.before = Some(self.remembered());
        }
    }

    /// Begins a transaction for what a series does on SQLite shards up to its Sync.
    pub(crate) fn begin_in_series_lite(&mut self) {
        if self.transaction.is_none() {
            self.begin_implicitly();
            self.transaction.begun = Begun::InSeries;
        }
    }

    /// Commits what a series has done so far on an SQLite shard: what follows cannot be in one transaction with it.
    pub(crate) async fn commit_series(&mut self) -> Done {
        if !self.transaction.is_in_series() {
            return Ok(());
        }
        // The series goes on, and what it has bound.
        let portals = std::mem::take(&mut self.portals);
        let ended = Box::pin(self.end_transaction(true)).await;
        self.portals = portals;
        ended
    }

    /// Whether transactions are isolated so, unless they say otherwise.
    fn is_by_default(&self, so: fn(&str) -> bool) -> bool {
        const NAME: &str = "default_transaction_isolation";
        let named = || self.lite_settings.named.iter().find(|(name, _)| name == NAME);
        let said = match self.embedded {
            true => named().map(|(_, value)| value.as_str()),
            false => self.settings.statement(NAME),
        };
        // What the shards have by default may be either.
        said.map_or(self.one_snapshot, so)
    }

    pub(super) fn remembered(&self) -> Remembered {
        (self.settings.clone(), self.own.clone(), self.search_path.clone(), self.lite_settings.clone())
    }

    /// Has what was remembered again.
    pub(super) fn remember(&mut self, remembered: Remembered) {
        (self.settings, self.own, self.search_path, self.lite_settings) = remembered;
    }

    /// BEGIN.
    pub(super) async fn begin_explicitly(&mut self, statement: &Statement, modes: &TransactionModes) -> Done {
        match self.transaction.begun {
            Begun::Explicitly => {
                let warning =
                    SqlError::new(state::ACTIVE_TRANSACTION, "there is already a transaction in progress");
                self.notice(Severity::Warning, &warning);
            }
            Begun::Implicitly | Begun::InSeries => {
                self.transaction.begun = Begun::Explicitly;
                if self.backend.is_none() {
                    self.transaction.begin = statement.text().clone();
                }
            }
            Begun::Not => {
                // In the middle of a series: what it has done so far becomes part of the transaction.
                let joined = self.backend.is_some();
                if joined {
                    self.begin_in_series(statement.text()).await?;
                }
                let before = self.remembered();
                let wrote = joined && self.transaction.wrote;
                self.transaction = Transaction::none();
                self.transaction.wrote = wrote;
                self.transaction.begun = Begun::Explicitly;
                self.transaction.begin = statement.text().clone();
                self.transaction.read_only = modes.read_only.unwrap_or(false);
                let by_default = modes.isolation.is_none();
                self.transaction.one_snapshot =
                    !is_by_statement(modes) || (by_default && self.is_by_default(is_one_snapshot));
                self.transaction.serializable = modes.isolation == Some(Isolation::Serializable)
                    || (by_default && self.is_by_default(is_serializable));
                self.transaction.movable = !self.transaction.one_snapshot && !joined;
                self.transaction.before = Some(before);
            }
        }
        reply::complete(&mut self.client.out, "BEGIN");
        Ok(())
    }

    /// Begins the transaction on the shard's session that a series is on.
    async fn begin_in_series(&mut self, text: &str) -> Done {
        let Some(backend) = &mut self.backend else { return Ok(()) };
        backend.query(text, true);
        self.drain().await?;
        match self.backend.as_mut().and_then(|backend| backend.take_quiet_error()) {
            None => Ok(()),
            Some(body) => {
                self.show_error(&body);
                Err(Stop::Told)
            }
        }
    }

    /// COMMIT. True if the transaction was committed rather than rolled back.
    pub(super) async fn commit(&mut self, chain: bool) -> Done {
        if self.transaction.begun != Begun::Explicitly {
            let warning = SqlError::new(state::NO_ACTIVE_TRANSACTION, "there is no transaction in progress");
            self.notice(Severity::Warning, &warning);
        }
        let again = chain.then(|| Again::of(&self.transaction));
        let tag = if self.transaction.failed { "ROLLBACK" } else { "COMMIT" };
        let ended = if self.transaction.failed {
            self.end_transaction(false).await
        } else {
            self.end_transaction(true).await
        };
        ended?;
        reply::complete(&mut self.client.out, tag);
        self.begin_again(again);
        Ok(())
    }

    /// ROLLBACK.
    pub(super) async fn rollback(&mut self, chain: bool) -> Done {
        if self.transaction.begun != Begun::Explicitly {
            let warning = SqlError::new(state::NO_ACTIVE_TRANSACTION, "there is no transaction in progress");
            self.notice(Severity::Warning, &warning);
        }
        let again = chain.then(|| Again::of(&self.transaction));
        self.end_transaction(false).await?;
        reply::complete(&mut self.client.out, "ROLLBACK");
        self.begin_again(again);
        Ok(())
    }

    fn begin_again(&mut self, again: Option<Again>) {
        let Some(again) = again else { return };
        let before = self.remembered();
        self.transaction = Transaction::none();
        self.transaction.begun = Begun::Explicitly;
        self.transaction.begin = again.begin;
        self.transaction.read_only = again.read_only;
        self.transaction.one_snapshot = again.one_snapshot;
        self.transaction.serializable = again.serializable;
        self.transaction.movable = !again.one_snapshot;
        self.transaction.before = Some(before);
    }

    /// Ends the transaction on its shard, if it is on one. Afterwards there is none, whatever happened; and unless it
    /// is committed, the settings are what they were before.
    pub(super) async fn end_transaction(&mut self, commit: bool) -> Done {
        let before = self.transaction.before.clone();
        let ready = if commit { self.before_commit().await } else { Ok(Vec::new()) };
        let ended = match ready {
            Ok(placed) => {
                self.transaction.after.extend(placed);
                self.end_parts(commit).await
            }
            Err(stop) => self.end_parts(false).await.and(Err(stop)),
        };
        let closed = self.end_cursors(commit && ended.is_ok()).await;
        let ended = ended.and(closed);
        if ended.is_err()
            && let Some(before) = before
        {
            self.remember(before);
        }
        ended
    }

    /// What can still be undone: what follows from new tables, and the rows of cursors that outlive the transaction.
    async fn before_commit(&mut self) -> Result<Vec<Declaration>, Stop> {
        let placed = self.placed_by_default().await?;
        self.settle_cursors().await?;
        Ok(placed)
    }

    async fn end_parts(&mut self, commit: bool) -> Done {
        let transaction = std::mem::replace(&mut self.transaction, Transaction::none());
        self.portals.clear();
        match transaction.before {
            Some(before) if !commit => self.remember(before),
            Some((_, _, search_path, _)) if transaction.search_path_set => {
                self.search_path = transaction.search_path_after.unwrap_or(search_path);
            }
            _ => {}
        }
        let mut told = Ok(());
        if let Some(global) = transaction.global {
            if commit {
                // It is committed whatever comes of this, and the rest of it too.
                told = self.commit_global(global).await?;
            } else {
                self.roll_back_global(global).await;
            }
        }
        if let Some(turn) = transaction.lite_turn {
            if commit {
                self.commit_lite_turn(turn).await?;
            } else {
                self.roll_back_lite_turn(turn).await;
            }
        }
        self.end_lite(commit).await?;
        if commit {
            self.declare_after(transaction.after).await?;
        }
        told?;
        if !self.parked.is_empty() {
            if commit {
                return self.commit_several(transaction.lasting).await;
            }
            self.park();
            self.roll_back_parked().await;
            return Ok(());
        }
        if self.backend.is_none() {
            return Ok(());
        }
        if commit { self.commit_backend(transaction.wrote).await } else { self.roll_back_backend().await }
    }

    pub(super) async fn commit_backend(&mut self, wrote: bool) -> Done {
        let Some(backend) = &mut self.backend else { return Ok(()) };
        backend.query("COMMIT", true);
        match self.drain().await {
            Ok(()) => {}
            Err(Stop::Refused(error)) if wrote => {
                let message =
                    format!("it is not known whether the transaction was committed: {}", error.message);
                return Err(SqlError::new(state::OUTCOME_UNKNOWN, message)
                    .hint("Read the data before you try again.")
                    .into());
            }
            Err(stop) => return Err(stop),
        }
        let failure = self.backend.as_mut().and_then(|backend| backend.take_quiet_error());
        let undone = self.backend.as_ref().filter(|backend| backend.undone).map(|on| on.shard.clone());
        if let Some(backend) = &mut self.backend
            && failure.is_none()
            && undone.is_none()
        {
            backend.set_inside = false;
        }
        self.release().await;
        match failure {
            None => undone.map_or(Ok(()), |shard| Err(super::several::rolled_back(&shard).into())),
            Some(body) => {
                self.show_error(&body);
                Err(Stop::Told)
            }
        }
    }

    async fn roll_back_backend(&mut self) -> Done {
        let Some(backend) = &mut self.backend else { return Ok(()) };
        backend.cursors.clear();
        backend.query("ROLLBACK", true);
        match self.drain().await {
            // It is gone, and what it did with it.
            Err(Stop::Refused(_)) => return Ok(()),
            other => other?,
        }
        if let Some(backend) = &mut self.backend {
            backend.take_quiet_error();
        }
        self.release().await;
        Ok(())
    }

    /// Says something at the beginning of the transaction, once it is on a shard.
    pub(super) fn say_first(&mut self, text: &Arc<str>) {
        self.transaction.prelude.push(text.clone());
    }

    /// Notes the modes that SET TRANSACTION gives, which are part of its beginning.
    pub(super) fn note_modes(&mut self, modes: &TransactionModes) {
        if let Some(read_only) = modes.read_only {
            self.transaction.read_only = read_only;
        }
        self.transaction.movable &= is_by_statement(modes);
        self.transaction.one_snapshot |= !is_by_statement(modes);
        self.transaction.serializable |= modes.isolation == Some(Isolation::Serializable);
    }
}

/// Whether each statement sees what is there when it begins.
fn is_by_statement(modes: &TransactionModes) -> bool {
    !matches!(modes.isolation, Some(Isolation::RepeatableRead | Isolation::Serializable))
}

/// What everything but the end of a failed transaction is told.
pub(super) fn failed_transaction() -> SqlError {
    SqlError::new(
        state::IN_FAILED_TRANSACTION,
        "current transaction is aborted, commands ignored until end of transaction block",
    )
}
