//! Answers across shards that the client takes in parts: portals with a fetch size, and cursors.
//!
//! Such an answer is in temporary tables of one session, and a portal or cursor of PostgreSQL's own there; the sessions
//! of the other shards are given back once they have sent their rows.

use std::collections::BTreeMap;

use polyshard_sql::{Declare, Fetch, Kind, SqlError, Statement};

use super::worker::{Passed, Sink, Trouble, Worker};
use super::{PORTAL_SUSPENDED, columns};
use crate::reply::{self, state};
use crate::session::{Done, Session, Stop};

/// Answers that one session may have in part: each keeps a session of a shard from others.
const HELD_MAX: usize = 8;
/// What a portal is called on the session that has the answer.
pub(super) const PORTAL: &str = "ps";

/// An answer of which the client has a part.
struct Held {
    /// The session that it is on; none once all of it was taken.
    worker: Option<Box<Worker>>,
    /// How many savepoints there were when it began: it ends with those that came before it.
    savepoints: usize,
}

/// The answers of one client that it takes in parts, by name. Portals and cursors share their names, as PostgreSQL's
/// do.
#[derive(Default)]
pub(crate) struct HeldAnswers(BTreeMap<String, Held>);

impl HeldAnswers {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Notes that the savepoints from the one at this place on are forgotten: what began after them began before.
    pub fn released(&mut self, at: usize) {
        for held in self.0.values_mut() {
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
}

impl Session {
    /// Refuses what cannot be a cursor across shards; DECLARE up to the query.
    pub(super) fn check_declare<'s>(
        &self,
        statement: &'s Statement,
        cursor: &Declare,
    ) -> Result<&'s str, SqlError> {
        if self.transaction.is_none() {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(SqlError::new(state::NO_ACTIVE_TRANSACTION, message));
        }
        if cursor.hold {
            return Err(SqlError::unsupported(
                "a cursor across shards cannot outlive its transaction",
                "Leave out WITH HOLD, and fetch its rows before the transaction ends.",
            ));
        }
        if self.held.has(&cursor.name) {
            let message = format!("cursor \"{}\" already exists", cursor.name);
            return Err(SqlError::new(state::DUPLICATE_CURSOR, message));
        }
        statement.text().strip_suffix(&**cursor.query.text()).ok_or_else(|| {
            SqlError::unsupported(
                "this form of DECLARE is not offered across shards",
                "Write it in one line.",
            )
        })
    }

    /// Refuses one more answer that is taken in parts, if there are too many.
    pub(super) fn check_room(&self) -> Result<(), SqlError> {
        if self.held.0.values().filter(|held| held.worker.is_some()).count() < HELD_MAX {
            return Ok(());
        }
        let message = format!("the session has {HELD_MAX} cursors or portals across shards already");
        Err(SqlError::new(state::PROGRAM_LIMIT, message).hint("Close those that are not needed."))
    }

    /// Keeps an answer for later.
    pub(super) fn hold(&mut self, name: &str, worker: Worker) {
        let savepoints = self.transaction.savepoint_names().len();
        self.held.0.insert(name.to_owned(), Held { worker: Some(Box::new(worker)), savepoints });
    }

    /// Notes that a portal's rows were all taken: asked again, it has none.
    pub(super) fn note_taken(&mut self, name: &str) {
        let savepoints = self.transaction.savepoint_names().len();
        self.held.0.insert(name.to_owned(), Held { worker: None, savepoints });
    }

    /// More rows of a portal.
    pub(crate) async fn more_of_portal(&mut self, name: &str, rows_max: i32) -> Done {
        let Some(held) = self.held.0.get_mut(name) else { return Ok(()) };
        let Some(mut worker) = held.worker.take() else {
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

    /// FETCH or MOVE of a cursor.
    pub(crate) async fn fetch_cursor(&mut self, fetch: &Fetch, statement: &Statement) -> Done {
        let name = fetch.name.as_str();
        let Some(mut worker) = self.held.0.get_mut(name).and_then(|held| held.worker.take()) else {
            let message = format!("cursor \"{name}\" does not exist");
            return Err(SqlError::new(state::INVALID_CURSOR_NAME, message).into());
        };
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
        if let Some(held) = self.held.0.get_mut(name) {
            held.worker = Some(worker);
        }
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
        self.held.0.remove(name);
        self.end_held(worker).await?;
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
        let Some(mut worker) = self.held.0.get_mut(name).and_then(|held| held.worker.take()) else {
            return Ok(None);
        };
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
        let Some(held) = self.held.0.remove(name) else { return Ok(false) };
        if let Some(worker) = held.worker {
            self.end_held(worker).await?;
        }
        Ok(true)
    }

    /// Closes all that began after so many savepoints.
    pub(crate) async fn close_held_after(&mut self, savepoints: usize) -> Done {
        let after: Vec<String> = self
            .held
            .0
            .iter()
            .filter(|(_, held)| held.savepoints > savepoints)
            .map(|(name, _)| name.clone())
            .collect();
        for name in after {
            self.close_held(&name).await?;
        }
        Ok(())
    }

    /// Closes all.
    pub(crate) async fn close_all_held(&mut self) -> Done {
        while let Some((_, held)) = self.held.0.pop_first() {
            if let Some(worker) = held.worker {
                self.end_held(worker).await?;
            }
        }
        Ok(())
    }
}
