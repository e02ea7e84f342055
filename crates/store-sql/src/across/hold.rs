//! Answers that the client takes in parts: portals with a fetch size and cursors across shards, cursors that outlive
//! their transaction, and all of these on SQLite shards.
//!
//! An answer across PostgreSQL shards is in temporary tables of one session, and a portal or cursor of PostgreSQL's own
//! there; the sessions of the other shards are given back once they have sent their rows. One that only goes forward,
//! and whose order is known here, stays with all of them (see `held_merge`). A cursor WITH HOLD keeps the session that
//! it was declared on, on which PostgreSQL has its rows from COMMIT on; keys and ranges are free again.

use std::collections::BTreeMap;

use polyshard_router::Access;
use polyshard_sql::{Declare, Fetch, Kind, SqlError, Statement, quoted};

use super::held_merge::HeldMerge;
use super::worker::{Passed, Sink, Trouble, Worker};
use super::{PORTAL_SUSPENDED, columns};
use crate::backend::{Backend, field};
use crate::embedded::Kept;
use crate::reply::{self, state};
use crate::session::{Done, Session, Stop};

/// Answers that one session may have in part: each keeps a session of a shard from others, or takes room here.
const HELD_MAX: usize = 8;
/// What a portal is called on the session that has the answer.
pub(super) const PORTAL: &str = "ps";

/// An answer of which the client has a part.
struct Held {
    source: Source,
    /// How many savepoints there were when it began: it ends with those that came before it.
    savepoints: usize,
    /// Whether it is to outlive its transaction.
    hold: bool,
    /// Whether it has done so.
    settled: bool,
}

/// Where the rest of an answer is.
enum Source {
    /// All of it was taken, or it is being taken.
    Taken,
    /// On a session of its own.
    Session(Box<Worker>),
    /// On the session of this number, beside others that were declared in the same transaction.
    Shared(u64),
    /// With the door.
    Kept(Box<Kept>),
    /// Sorted, on a session of every shard.
    Merge(Box<HeldMerge>),
}

/// The answers of one client that it takes in parts, by name. Portals and cursors share their names, as PostgreSQL's
/// do.
#[derive(Default)]
pub(crate) struct HeldAnswers {
    by_name: BTreeMap<String, Held>,
    /// Sessions that have several of them, by number.
    shared: BTreeMap<u64, Box<Worker>>,
    last_shared: u64,
}

impl HeldAnswers {
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether some of them end with the transaction, or the series, that is under way.
    pub fn are_under_way(&self) -> bool {
        self.by_name.values().any(|held| !held.settled)
    }

    /// The names of those that outlive their transactions.
    pub fn lasting(&self) -> Vec<String> {
        let lasting = self.by_name.iter().filter(|(_, held)| held.hold);
        lasting.map(|(name, _)| name.clone()).collect()
    }

    /// Whether some of them keep sessions of shards from others.
    pub fn keeps_sessions(&self) -> bool {
        let keeps = |held: &Held| matches!(held.source, Source::Session(_) | Source::Merge(_));
        !self.shared.is_empty() || self.by_name.values().any(keeps)
    }

    /// Notes that the savepoints from the one at this place on are forgotten: what began after them began before.
    pub fn released(&mut self, at: usize) {
        for held in self.by_name.values_mut() {
            held.savepoints = held.savepoints.min(at);
        }
    }

    /// Whether a statement is about a cursor of these.
    pub fn concerns(&self, kind: &Kind) -> bool {
        match kind {
            Kind::Fetch(fetch) => self.has(&fetch.name),
            Kind::Close(Some(name)) => self.has(name),
            _ => false,
        }
    }

    fn count(&self) -> usize {
        self.by_name.values().filter(|held| !matches!(held.source, Source::Taken)).count()
    }

    /// Takes the session out that an answer is on.
    fn take_session(&mut self, name: &str) -> Option<Box<Worker>> {
        let held = self.by_name.get_mut(name)?;
        match &held.source {
            Source::Shared(number) => self.shared.remove(number),
            Source::Session(_) => match std::mem::replace(&mut held.source, Source::Taken) {
                Source::Session(worker) => Some(worker),
                _ => None,
            },
            Source::Taken | Source::Kept(_) | Source::Merge(_) => None,
        }
    }

    fn put_session(&mut self, name: &str, worker: Box<Worker>) {
        let Some(held) = self.by_name.get_mut(name) else { return };
        match held.source {
            Source::Shared(number) => drop(self.shared.insert(number, worker)),
            _ => held.source = Source::Session(worker),
        }
    }

    /// How many keep a session of every shard.
    pub(super) fn merges(&self) -> usize {
        self.by_name.values().filter(|held| matches!(held.source, Source::Merge(_))).count()
    }

    /// Takes out an answer that has a session of every shard.
    fn take_merge(&mut self, name: &str) -> Option<Box<HeldMerge>> {
        let held = self.by_name.get_mut(name)?;
        if !matches!(held.source, Source::Merge(_)) {
            return None;
        }
        match std::mem::replace(&mut held.source, Source::Taken) {
            Source::Merge(merge) => Some(merge),
            _ => None,
        }
    }

    pub(super) fn put_merge(&mut self, name: &str, merge: Box<HeldMerge>) {
        if let Some(held) = self.by_name.get_mut(name) {
            held.source = Source::Merge(merge);
        }
    }

    /// Forgets an answer; the number of the session that it shares, if others are on it too.
    pub(super) fn forget(&mut self, name: &str) -> Option<u64> {
        let Source::Shared(number) = self.by_name.remove(name)?.source else { return None };
        let is_there = |held: &Held| matches!(held.source, Source::Shared(other) if other == number);
        self.by_name.values().any(is_there).then_some(number)
    }
}

impl Session {
    /// Refuses what cannot be a cursor.
    pub(crate) fn check_cursor(&self, cursor: &Declare) -> Result<(), SqlError> {
        if self.transaction.is_none() {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(state::NO_ACTIVE_TRANSACTION, message));
        }
        if self.embedded && cursor.binary {
            return Err(SqlError::unsupported(
                "BINARY cursors are not offered on SQLite shards",
                "Leave out BINARY; drivers ask for binary rows by themselves.",
            ));
        }
        if self.held.has(&cursor.name) {
            let message = format!("cursor \"{}\" already exists", cursor.name);
            return Err(SqlError::new(state::DUPLICATE_CURSOR, message));
        }
        self.check_room()
    }

    /// Likewise, across shards; DECLARE up to the query.
    pub(super) fn check_declare<'s>(
        &self,
        statement: &'s Statement,
        cursor: &Declare,
    ) -> Result<&'s str, SqlError> {
        self.check_cursor(cursor)?;
        statement.text().strip_suffix(&**cursor.query.text()).ok_or_else(|| {
            SqlError::unsupported(
                "this form of DECLARE is not offered across shards",
                "Write it in one line.",
            )
        })
    }

    /// Refuses one more answer that is taken in parts, if there are too many.
    pub(crate) fn check_room(&self) -> Result<(), SqlError> {
        if self.held.count() + self.own_cursors() < HELD_MAX {
            return Ok(());
        }
        let message = format!("the session has {HELD_MAX} cursors or portals that are not closed already");
        Err(SqlError::new(state::PROGRAM_LIMIT, message).hint("Close those that are not needed."))
    }

    fn hold_source(&mut self, name: &str, source: Source, hold: bool) {
        let savepoints = self.transaction.savepoint_names().len();
        let held = Held { source, savepoints, hold, settled: false };
        self.held.by_name.insert(name.to_owned(), held);
    }

    /// Keeps an answer for later.
    pub(super) fn hold(&mut self, name: &str, worker: Worker, hold: bool) {
        self.hold_source(name, Source::Session(Box::new(worker)), hold);
    }

    /// Likewise, one whose rows are on a session of every shard.
    pub(super) fn hold_merge(&mut self, name: &str, merge: HeldMerge) {
        self.hold_source(name, Source::Merge(Box::new(merge)), false);
    }

    /// Likewise, one that the door has.
    pub(crate) fn hold_kept(&mut self, name: &str, kept: Box<Kept>, hold: bool) {
        self.hold_source(name, Source::Kept(kept), hold);
    }

    /// Notes that a portal's rows were all taken: asked again, it has none.
    pub(super) fn note_taken(&mut self, name: &str) {
        self.hold_source(name, Source::Taken, false);
    }

    /// Keeps the session of a transaction that is committed, for the cursors that outlive it.
    pub(crate) async fn hold_backend(&mut self, mut backend: Backend) {
        backend.cursors.clear();
        // What was noted is not what is there: DECLARE, or the COMMIT itself, may have failed, or been taken back.
        let asked = backend.ask_openly(super::motion::HELD_CURSORS).await;
        let names: Vec<String> = match asked {
            Ok(Ok(rows)) => rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect(),
            refused => {
                tracing::debug!(?refused, shard = %backend.shard, "cursors were closed with their transaction");
                return backend.abandon().await;
            }
        };
        if names.is_empty() {
            return backend.finish();
        }
        // PostgreSQL has their rows by themselves now: what the transaction touched is free.
        match self.router().enter_unmapped(&backend.shard, Access::Read).await {
            Ok(ticket) => backend.keep_only(ticket),
            Err(error) => {
                tracing::debug!(%error, shard = %backend.shard, "cursors were closed with their transaction");
                return backend.abandon().await;
            }
        }
        self.held.last_shared += 1;
        let number = self.held.last_shared;
        let mut worker = Box::new(Worker::new(backend, false));
        worker.cursors = true;
        self.held.shared.insert(number, worker);
        for name in names {
            self.hold_source(&name, Source::Shared(number), true);
            if let Some(held) = self.held.by_name.get_mut(&name) {
                held.settled = true;
            }
        }
    }

    /// More rows of a portal.
    pub(crate) async fn more_of_portal(&mut self, name: &str, rows_max: i32) -> Done {
        if let Some(mut kept) = self.take_kept(name) {
            let done = self.put_part(&mut kept, rows_max).await;
            self.put_back_kept(name, kept);
            return done;
        }
        if let Some(merge) = self.held.take_merge(name) {
            return self.more_of_merge(name, merge, rows_max).await;
        }
        let Some(mut worker) = self.held.take_session(name) else {
            reply::complete(&mut self.client().out, "SELECT 0");
            return Ok(());
        };
        worker.ask_more(PORTAL, rows_max);
        self.working_on(worker.cancel()).await;
        let passed = self.pass_held(&mut worker, false).await;
        match passed {
            Ok(passed) if passed.suspended => {
                self.client().out.extend_from_slice(PORTAL_SUSPENDED);
                self.put_back_held(name, worker).await
            }
            Ok(passed) => {
                reply::complete(&mut self.client().out, &passed.tag);
                self.end_held(worker).await
            }
            Err(trouble) => self.fail_held(name, worker, trouble).await,
        }
    }

    fn take_kept(&mut self, name: &str) -> Option<Box<Kept>> {
        let held = self.held.by_name.get_mut(name)?;
        if !matches!(held.source, Source::Kept(_)) {
            return None;
        }
        match std::mem::replace(&mut held.source, Source::Taken) {
            Source::Kept(kept) => Some(kept),
            _ => None,
        }
    }

    fn put_back_kept(&mut self, name: &str, kept: Box<Kept>) {
        if let Some(held) = self.held.by_name.get_mut(name) {
            held.source = Source::Kept(kept);
        }
    }

    /// FETCH or MOVE of a cursor.
    pub(crate) async fn fetch_cursor(&mut self, fetch: &Fetch, statement: &Statement) -> Done {
        self.check_still_there()?;
        let name = fetch.name.as_str();
        if let Some(mut kept) = self.take_kept(name) {
            // Like the extended protocol, which has columns told before.
            let done = self.fetch_kept(&mut kept, fetch).await;
            self.put_back_kept(name, kept);
            return done;
        }
        if let Some(merge) = self.held.take_merge(name) {
            return self.fetch_merge(fetch, merge).await;
        }
        let Some(mut worker) = self.held.take_session(name) else {
            let message = format!("cursor \"{name}\" does not exist");
            return Err(SqlError::new(state::INVALID_CURSOR_NAME, message).into());
        };
        if self.held.by_name.get(name).is_some_and(|held| held.settled)
            && let Err(error) = worker.take_settings(self).await
        {
            return self.fail_held(name, worker, Trouble::Lost(error)).await;
        }
        let (forms, _) = self.wanted_forms();
        worker.ask_rows(statement.text(), &forms);
        self.working_on(worker.cancel()).await;
        match self.pass_held(&mut worker, true).await {
            Ok(passed) => {
                reply::complete(&mut self.client().out, &passed.tag);
                self.put_back_held(name, worker).await
            }
            Err(trouble) => self.fail_held(name, worker, trouble).await,
        }
    }

    async fn pass_held(&mut self, worker: &mut Worker, described: bool) -> Result<Passed, Trouble> {
        worker.send().await?;
        let (_, told) = self.wanted_forms();
        if described
            && let Some(description) = worker.columns(self.client()).await?
            && !told
        {
            columns::tell(&mut self.client().out, &description);
        }
        worker.pass(self.client(), Sink::Client, u64::MAX).await
    }

    async fn put_back_held(&mut self, name: &str, worker: Box<Worker>) -> Done {
        self.held.put_session(name, worker);
        self.working_on_own_alone().await;
        Ok(())
    }

    async fn end_held(&mut self, worker: Box<Worker>) -> Done {
        // A word to stop must not reach whoever has it next.
        self.working_on_own_alone().await;
        worker.give_back(self.client()).await.map_err(Stop::Gone)?;
        Ok(())
    }

    async fn fail_held(&mut self, name: &str, worker: Box<Worker>, trouble: Trouble) -> Done {
        if let Trouble::Said(body) = &trouble
            && self.held.by_name.get(name).is_some_and(|held| held.settled)
            && field(body, b'C') != Some(state::INVALID_CURSOR_NAME.0)
        {
            // It is in no transaction that has failed by this: as with PostgreSQL, it is there until it is closed.
            self.put_back_held(name, worker).await?;
            self.show_error(body);
            return Err(Stop::Told);
        }
        match (&trouble, self.held.forget(name)) {
            // Others are on the same session, which is fine.
            (Trouble::Said(_), Some(number)) => {
                self.held.shared.insert(number, worker);
                self.working_on_own_alone().await;
            }
            (_, Some(number)) => {
                let is_there = |held: &Held| matches!(held.source, Source::Shared(other) if other == number);
                self.held.by_name.retain(|_, held| !is_there(held));
                self.end_held(worker).await?;
            }
            (_, None) => self.end_held(worker).await?,
        }
        self.told_trouble(trouble)
    }

    /// What becomes of the client's request after that.
    pub(super) fn told_trouble(&mut self, trouble: Trouble) -> Done {
        match trouble {
            Trouble::Said(body) => {
                self.show_error(&body);
                Err(Stop::Told)
            }
            Trouble::Refused(error) | Trouble::Lost(error) => Err(Stop::Refused(error)),
            Trouble::Gone(gone) => Err(Stop::Gone(gone)),
        }
    }

    /// What the columns of a cursor are, as the message's body; nothing if it is not one of these.
    pub(crate) async fn columns_of_held(&mut self, name: &str) -> Result<Option<Vec<u8>>, Stop> {
        if let Some(Held { source: Source::Kept(kept), .. }) = self.held.by_name.get(name) {
            let mut out = bytes::BytesMut::new();
            reply::row_description(&mut out, &kept.fields(), |_| false);
            return Ok(Some(out.to_vec()));
        }
        if let Some(Held { source: Source::Merge(merge), .. }) = self.held.by_name.get(name) {
            let mut out = bytes::BytesMut::new();
            columns::tell(&mut out, merge.description());
            return Ok(Some(out.to_vec()));
        }
        let Some(mut worker) = self.held.take_session(name) else { return Ok(None) };
        worker.ask_columns(name);
        let described = async {
            worker.send().await?;
            let columns = worker.columns(self.client()).await?;
            worker.rest(self.client()).await?;
            Ok(columns)
        };
        match described.await {
            Ok(described) => {
                self.put_back_held(name, worker).await?;
                let mut out = bytes::BytesMut::new();
                if let Some(description) = described {
                    columns::tell(&mut out, &description);
                }
                Ok(Some(out.to_vec()))
            }
            Err(trouble) => self.fail_held(name, worker, trouble).await.map(|()| None),
        }
    }

    /// Closes a cursor or portal of these; false if there is none of this name.
    pub(crate) async fn close_held(&mut self, name: &str) -> Result<bool, Stop> {
        if !self.held.has(name) {
            return Ok(false);
        }
        if let Some(merge) = self.held.take_merge(name) {
            self.held.forget(name);
            self.end_merge(merge).await?;
            return Ok(true);
        }
        let shared = matches!(self.held.by_name[name].source, Source::Shared(_));
        let Some(mut worker) = self.held.take_session(name) else {
            self.held.forget(name);
            return Ok(true);
        };
        if shared {
            worker.ask(&format!("CLOSE {}", quoted(name)));
            let closed = async {
                worker.send().await?;
                worker.answer(self.client()).await
            };
            if let Err(trouble) = closed.await {
                return self.fail_held(name, worker, trouble).await.map(|()| true);
            }
        }
        match self.held.forget(name) {
            Some(number) => drop(self.held.shared.insert(number, worker)),
            None => self.end_held(worker).await?,
        }
        Ok(true)
    }

    /// Closes all that began after so many savepoints.
    pub(crate) async fn close_held_after(&mut self, savepoints: usize) -> Done {
        self.close_those(|held| !held.settled && held.savepoints > savepoints).await
    }

    /// The transaction has ended: what was not to outlive it is closed, and everything if it is rolled back.
    pub(crate) async fn end_cursors(&mut self, commit: bool) -> Done {
        self.close_those(|held| !(held.settled || commit && held.hold)).await?;
        for held in self.held.by_name.values_mut() {
            held.settled = true;
        }
        Ok(())
    }

    /// Has the rows of cursors across shards kept that are to outlive the transaction, before it is committed.
    pub(crate) async fn settle_cursors(&mut self) -> Done {
        let to_settle = |held: &Held| held.hold && !held.settled && matches!(held.source, Source::Session(_));
        let names: Vec<String> = self
            .held
            .by_name
            .iter()
            .filter(|(_, held)| to_settle(held))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            let Some(mut worker) = self.held.take_session(&name) else { continue };
            let ticket = self.router().enter_unmapped(worker.shard(), Access::Read).await;
            let ticket = ticket.map_err(|error| Trouble::Lost(reply::of_router(&error)));
            let settled = match ticket {
                Ok(ticket) => {
                    self.working_on(worker.cancel()).await;
                    worker.keep_cursor(ticket, self.client()).await
                }
                Err(trouble) => Err(trouble),
            };
            match settled {
                Ok(()) => self.put_back_held(&name, worker).await?,
                Err(trouble) => return self.fail_held(&name, worker, trouble).await,
            }
        }
        Ok(())
    }

    /// Closes all.
    pub(crate) async fn close_all_held(&mut self) -> Done {
        self.close_those(|_| true).await
    }

    async fn close_those(&mut self, which: impl Fn(&Held) -> bool) -> Done {
        let found = self.held.by_name.iter().filter(|(_, held)| which(held));
        let names: Vec<String> = found.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.close_held(&name).await?;
        }
        Ok(())
    }
}
