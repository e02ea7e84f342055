//! Savepoints: what a transaction goes back to, on every shard that it is on.

use std::sync::Arc;

use polyshard_schema::EntryKind;
use polyshard_sql::{Kind, Schema, SqlError, Statement};

use super::transaction::{Remembered, Transaction, failed_transaction};
use super::{Done, Session, Stop};
use crate::reply::{self, state};

/// How much a transaction on every shard has recorded so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Statements.
    pub statements: usize,
    /// What they change.
    pub kind: EntryKind,
}

/// A savepoint, and what the session and the transaction had when it was made.
pub(super) struct Mark {
    name: String,
    settings: Remembered,
    /// What the session's search path is once the transaction is committed.
    search_path_after: Option<Arc<[String]>>,
    /// Where its statement stands among those that begin the transaction on a shard.
    prelude: usize,
    /// The schema as the transaction itself had made it.
    schema: Option<Arc<Schema>>,
    /// Declarations that were left for the end.
    declared: usize,
    /// Temporary tables that there were.
    temporary: usize,
    /// What was recorded for every shard; none if the transaction was not on all of them.
    extent: Option<Extent>,
    /// How much was noted of a write on several shards.
    lasting: usize,
    /// Whether sessions of shards worked for the transaction.
    on_backends: bool,
}

/// What is asked of a savepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Make,
    Release,
    GoBack,
}

impl Verb {
    /// As PostgreSQL answers it.
    fn tag(self) -> &'static str {
        match self {
            Verb::Make => "SAVEPOINT",
            Verb::Release => "RELEASE",
            Verb::GoBack => "ROLLBACK",
        }
    }

    fn in_full(self) -> &'static str {
        match self {
            Verb::Make => "SAVEPOINT",
            Verb::Release => "RELEASE SAVEPOINT",
            Verb::GoBack => "ROLLBACK TO SAVEPOINT",
        }
    }

    /// As SQLite has it.
    fn words(self) -> &'static str {
        match self {
            Verb::GoBack => "ROLLBACK TO",
            verb => verb.tag(),
        }
    }
}

impl Transaction {
    /// Its savepoints, the oldest first.
    pub fn savepoint_names(&self) -> Vec<String> {
        self.marks.iter().map(|mark| mark.name.clone()).collect()
    }

    fn extent(&self) -> Option<Extent> {
        let global = self.global.as_ref().map(|global| global.extent());
        global.or_else(|| self.lite_turn.as_ref().map(|turn| turn.extent()))
    }

    fn make(&mut self, name: &str, text: &Arc<str>, settings: Remembered, on_backends: bool) {
        let mark = Mark {
            name: name.to_owned(),
            settings,
            search_path_after: self.search_path_after.clone(),
            prelude: self.prelude.len(),
            schema: self.schema.clone(),
            declared: self.after.len(),
            temporary: self.temporary.len(),
            extent: self.extent(),
            lasting: self.lasting.as_ref().map_or(0, |lasting| lasting.extent()),
            on_backends,
        };
        self.marks.push(mark);
        // For shards that the transaction comes to later.
        self.prelude.push(text.clone());
    }

    /// Forgets a savepoint and those after it; what was done since stays.
    fn release(&mut self, at: usize) {
        for mark in self.marks.drain(at..).rev() {
            self.prelude.remove(mark.prelude);
        }
    }

    /// Is again what it was at a savepoint, which stays; what the session had then.
    fn go_back(&mut self, at: usize) -> Option<Remembered> {
        self.marks.truncate(at + 1);
        let mark = self.marks.last()?;
        self.prelude.truncate(mark.prelude + 1);
        self.search_path_after.clone_from(&mark.search_path_after);
        self.schema.clone_from(&mark.schema);
        self.after.truncate(mark.declared);
        self.temporary.truncate(mark.temporary);
        if let Some(lasting) = &mut self.lasting {
            lasting.cut_to(mark.lasting);
        }
        if let Some(extent) = mark.extent {
            if let Some(global) = &mut self.global {
                global.cut_to(extent);
            }
            if let Some(turn) = &mut self.lite_turn {
                turn.cut_to(extent);
            }
        }
        Some(mark.settings.clone())
    }
}

impl Session {
    /// SAVEPOINT, RELEASE and ROLLBACK TO.
    pub(super) async fn savepoint(&mut self, statement: &Statement) -> Done {
        let (verb, name) = match statement.kind() {
            Kind::Savepoint(name) => (Verb::Make, name),
            Kind::Release(name) => (Verb::Release, name),
            Kind::RollbackTo(name) => (Verb::GoBack, name),
            _ => return Ok(()),
        };
        let known = self.check_savepoint(verb, name)?;
        let left = match known {
            Some(at) if verb == Verb::GoBack => self.leave_every_shard(at).await,
            _ => false,
        };
        if !left {
            let failed = std::mem::replace(&mut self.transaction.failed, false);
            let said = if self.embedded && !self.is_on_backends() {
                self.savepoint_lite(verb.words(), name).await
            } else {
                self.say_on_all(statement.text()).await
            };
            if let Err(stop) = said {
                self.transaction.failed |= failed;
                return Err(stop);
            }
        }
        self.transaction.failed = false;
        match (verb, known) {
            (Verb::Make, _) => {
                let settings = self.remembered();
                let on_backends = self.is_on_backends();
                self.transaction.make(name, statement.text(), settings, on_backends);
            }
            (Verb::Release, Some(at)) => {
                self.transaction.release(at);
                self.held.released(at);
            }
            (Verb::GoBack, Some(at)) => {
                self.close_held_after(at).await?;
                if let Some(settings) = self.transaction.go_back(at) {
                    self.remember(settings);
                }
                self.undo_recorded(at).await;
            }
            _ => {}
        }
        if verb == Verb::GoBack {
            self.settings_rolled_back().await?;
        }
        reply::complete(&mut self.client.out, verb.tag());
        Ok(())
    }

    /// Where the savepoint is, if there is one; or why it cannot be.
    fn check_savepoint(&self, verb: Verb, name: &str) -> Result<Option<usize>, Stop> {
        if !self.transaction.is_explicit() {
            let message = format!("{} can only be used in transaction blocks", verb.in_full());
            return Err(SqlError::new(state::NO_ACTIVE_TRANSACTION, message).into());
        }
        if self.transaction.failed && verb != Verb::GoBack {
            return Err(failed_transaction().into());
        }
        let known = self.transaction.marks.iter().rposition(|known| known.name == *name);
        if verb == Verb::Make {
            return Ok(known);
        }
        if known.is_none() {
            let message = format!("savepoint \"{name}\" does not exist");
            return Err(SqlError::new(state::INVALID_SAVEPOINT, message).into());
        }
        if self.transaction.lost {
            return Err(failed_transaction().into());
        }
        Ok(known)
    }

    /// If the transaction came to every shard only after the savepoint, all that it did there is undone, and it may
    /// go anywhere again: before, it had done nothing that binds it.
    async fn leave_every_shard(&mut self, at: usize) -> bool {
        if self.transaction.marks[at].extent.is_some() {
            return false;
        }
        if let Some(global) = self.transaction.global.take() {
            self.roll_back_global(global).await;
        } else if let Some(turn) = self.transaction.lite_turn.take() {
            self.roll_back_lite_turn(turn).await;
            self.lite = None;
        } else {
            return false;
        }
        self.transaction.movable = !self.transaction.has_one_snapshot();
        true
    }

    /// What shards have written since is not written. Those of files that came after the savepoint are left: they were
    /// told of settings that were made after it, perhaps.
    async fn undo_recorded(&mut self, at: usize) {
        if let Some(lasting) = &self.transaction.lasting {
            for backend in self.backend.iter_mut().chain(self.parked.values_mut()) {
                backend.wrote &= lasting.has(&backend.shard);
            }
        }
        let came_after = self.transaction.marks.get(at).is_some_and(|mark| !mark.on_backends);
        let leaves = self.embedded && came_after && !self.transaction.has_one_snapshot();
        if leaves && self.is_on_backends() && self.park() {
            self.transaction.lasting = None;
            self.transaction.wrote = false;
            self.roll_back_parked().await;
        }
    }

    /// Says something on all shards that the transaction is on; only a failure is shown.
    async fn say_on_all(&mut self, text: &str) -> Done {
        if let Some(backend) = &mut self.backend {
            backend.query(text, true);
            self.drain().await?;
            if let Some(body) = self.backend.as_mut().and_then(|backend| backend.take_quiet_error()) {
                self.show_error(&body);
                self.transaction.failed = true;
                return Err(Stop::Told);
            }
        }
        self.run_on_parked(text).await
    }
}
