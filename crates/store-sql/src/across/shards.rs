//! The sessions that work on one statement across shards: lent together under one view, given back together.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_router::{Access, RouterError, Ticket};
use polyshard_sql::{Fragment, Mode, SqlError};

use super::motion::{self, Motion};
use super::worker::{Trouble, Worker, lost};
use crate::backend::Backend;
use crate::client::{Client, Gone};
use crate::reply;
use crate::session::{Session, Stop};

/// Tries to get leave for all shards at once.
const TRIES_MAX: u32 = 8;

/// Sessions by shard.
pub(crate) struct Shards {
    workers: Vec<Worker>,
    /// Shards that are left out of the answer, and why.
    pub missing: Vec<(ShardId, SqlError)>,
    /// The shard of the transaction's current session, and how many sessions the transaction has.
    own: (Option<ShardId>, usize),
}

impl Shards {
    /// Lends a session of every shard that has a part of the ranges, and of those that are named.
    ///
    /// They are asked for in the order of their ids by everybody, so that no two statements wait for each other.
    pub async fn open(
        session: &mut Session,
        ranges: &[(MapName, Vec<KeyRange>)],
        named: &BTreeSet<ShardId>,
    ) -> Result<Shards, Stop> {
        let tickets = enter(session, ranges, named).await?;
        let mut own = session.take_backends()?;
        let mut shards =
            Shards { workers: Vec::new(), missing: Vec::new(), own: (own.current, own.all.len()) };
        let mut refused = None;
        for (id, tickets) in tickets {
            let lent = match own.all.remove(&id) {
                Some(mut backend) => {
                    backend.hold(tickets);
                    Ok(Worker::new(backend, true))
                }
                // It came since the snapshots were opened.
                None if session.transaction.has_one_snapshot() => Err(crate::session::moved()),
                None => lend(session, &id, tickets).await,
            };
            match lent {
                Ok(worker) => {
                    session.working_on(worker.cancel()).await;
                    shards.workers.push(worker);
                }
                Err(error) if session.partial_results() => shards.missing.push((id, error)),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        // The transaction is also on shards that this statement has nothing to do with.
        shards.workers.extend(own.all.into_values().map(Worker::idle));
        match refused {
            None => Ok(shards),
            Some(error) => {
                shards.close(session).await?;
                Err(error.into())
            }
        }
    }

    /// Makes sure that there is a session to combine on: one that is not the client's own.
    pub async fn need_combine(&mut self, session: &mut Session) -> Result<(), SqlError> {
        if self.combine_at().is_some() {
            return Ok(());
        }
        let nobody = || SqlError::new(reply::state::CANNOT_CONNECT_NOW, "no shard is there to answer");
        let first = self.workers.iter().find(|worker| !worker.idle && !worker.is_inside());
        let id = match first {
            Some(worker) => worker.shard().clone(),
            None if self.workers.is_empty() => return Err(nobody()),
            None => session.door.home()?,
        };
        let ticket = session.router().enter_unmapped(&id, Access::Read).await;
        let ticket = ticket.map_err(|error| reply::of_router(&error))?;
        let mut worker = lend(session, &id, vec![ticket]).await?;
        worker.rowless = true;
        session.working_on(worker.cancel()).await;
        self.workers.push(worker);
        Ok(())
    }

    /// The sessions whose rows are to be fetched.
    pub fn all(&mut self) -> impl Iterator<Item = &mut Worker> {
        self.workers.iter_mut().filter(|worker| !worker.idle && !worker.rowless)
    }

    /// Waits until every session has begun to answer, or one has failed: the place of that one among them. The others
    /// may have work for hours.
    pub async fn begun(&mut self, client: &mut Client) -> Result<Option<usize>, Trouble> {
        loop {
            let mut silent = Vec::new();
            for (at, worker) in self.all().enumerate() {
                if has_error(worker.raw().incoming()) {
                    return Ok(Some(at));
                }
                if worker.raw().incoming().is_empty() {
                    silent.push(Box::pin(worker.raw().fill()));
                }
            }
            if silent.is_empty() {
                return Ok(None);
            }
            let some = poll_fn(|context| {
                let mut polled = silent.iter_mut().map(|filling| filling.as_mut().poll(context));
                polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
            });
            tokio::select! {
                biased;
                filled = some => filled.map_err(lost)?,
                gone = client.gone() => return Err(Trouble::Gone(gone)),
            }
        }
    }

    /// The time of the client's transaction, or of this statement.
    pub async fn now(&mut self, client: &mut Client) -> Result<String, Trouble> {
        let borrowed = self.workers.iter().position(|worker| worker.borrowed);
        let server = || self.workers.iter().position(|worker| !worker.is_inside());
        let at = borrowed.or_else(server).unwrap_or(0);
        let nobody = || SqlError::new(reply::state::CANNOT_CONNECT_NOW, "no shard is there to answer");
        let worker = self.workers.get_mut(at).ok_or_else(nobody)?;
        worker.ask("SELECT pg_catalog.now()");
        worker.send().await?;
        let answer = worker.answer(client).await?;
        answer.into_iter().flatten().next().flatten().ok_or_else(|| nobody().into())
    }

    /// The names of a fragment's columns, as a PostgreSQL shard has them: not every fragment can run on an SQLite file.
    /// [`Shards::need_combine`] has seen to one.
    pub async fn columns_of(
        &mut self,
        client: &mut Client,
        fragment: &Fragment,
    ) -> Result<Vec<String>, Trouble> {
        let nobody = || SqlError::new(reply::state::CANNOT_CONNECT_NOW, "no shard is there to answer");
        let server = self.workers.iter_mut().find(|worker| !worker.idle && !worker.is_inside());
        let worker = server.ok_or_else(nobody)?;
        worker.ask_columns_of(&fragment.sql_on(&worker.shard().clone()));
        worker.send().await?;
        let columns = worker.columns(client).await?;
        worker.rest(client).await?;
        Ok(columns.map_or_else(Vec::new, |columns| super::columns::names(&columns)))
    }

    /// The session that answers for a shard that is an SQLite file.
    pub fn inside(&mut self, shard: &ShardId) -> Option<&mut Worker> {
        self.all().find(|worker| worker.is_inside() && worker.shard() == shard)
    }

    /// Whether some of them are SQLite files.
    pub fn has_inside(&self) -> bool {
        self.workers.iter().any(|worker| !worker.idle && worker.is_inside())
    }

    /// Their shards.
    pub fn ids(&self) -> Vec<ShardId> {
        let working = self.workers.iter().filter(|worker| !worker.idle && !worker.rowless);
        working.map(|worker| worker.shard().clone()).collect()
    }

    /// Begins one snapshot on each shard, and learns in it which ranges are being moved. The transaction's own
    /// session goes on in its own.
    pub async fn share_snapshot(&mut self, client: &mut Client, mode: Mode) -> Result<Motion, Trouble> {
        let combine = self.combine_at().filter(|_| mode == Mode::Combine);
        for (at, worker) in self.workers.iter_mut().enumerate().filter(|(_, worker)| !worker.idle) {
            let modes = if Some(at) == combine { "READ WRITE" } else { "READ ONLY" };
            let question = motion::question();
            if worker.borrowed {
                worker.ask(&question);
            } else {
                worker.ask(&format!("BEGIN ISOLATION LEVEL REPEATABLE READ, {modes}; {question}"));
                worker.open = true;
            }
            worker.send().await?;
        }
        let mut motion = Motion::default();
        for worker in self.workers.iter_mut().filter(|worker| worker.is_waiting()) {
            motion.learn(worker.answer(client).await?)?;
        }
        Ok(motion)
    }

    fn combine_at(&self) -> Option<usize> {
        // Only PostgreSQL can: it has everybody's types, and temporary tables that spill.
        self.workers.iter().position(|worker| !worker.idle && !worker.borrowed && !worker.is_inside())
    }

    /// The shard of a session that is there to combine alone, and has no part in the statement.
    pub fn combine_elsewhere(&self) -> Option<ShardId> {
        let rowless = self.workers.iter().find(|worker| worker.rowless)?;
        Some(rowless.shard().clone()).filter(|shard| !self.ids().contains(shard))
    }

    /// Takes out the session on which the answer is combined, which [`Shards::need_combine`] has seen to.
    pub fn take_combine(&mut self) -> Result<Worker, SqlError> {
        let nobody = || SqlError::new(reply::state::CANNOT_CONNECT_NOW, "no shard is there to answer");
        Ok(self.workers.remove(self.combine_at().ok_or_else(nobody)?))
    }

    pub fn put_back(&mut self, combine: Worker) {
        self.workers.push(combine);
    }

    /// Takes out the sessions whose rows are to be fetched, in their order.
    pub fn take_all(&mut self) -> Vec<Worker> {
        let (taken, left) =
            self.workers.drain(..).partition::<Vec<_>, _>(|worker| !worker.idle && !worker.rowless);
        self.workers = left;
        taken
    }

    pub fn put_all_back(&mut self, workers: Vec<Worker>) {
        self.workers.splice(0..0, workers);
    }

    /// An answer of nobody is none.
    pub fn check_failed(&self, failed: &[(ShardId, SqlError)]) -> Result<(), SqlError> {
        let working = self.workers.iter().filter(|worker| !worker.idle).count();
        match failed.first() {
            Some((_, error)) if failed.len() >= working => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Gives all sessions back, the transaction's own to it.
    pub async fn close(self, session: &mut Session) -> Result<(), Gone> {
        let (mut gone, mut kept) = (Ok(()), Vec::new());
        let (borrowed, others): (Vec<_>, Vec<_>) =
            self.workers.into_iter().partition(|worker| worker.borrowed);
        for worker in borrowed {
            match worker.give_back(session.client()).await {
                Ok(own) => kept.extend(own),
                Err(error) => gone = Err(error),
            }
        }
        // A word to stop must not reach whoever has these next.
        session.working_on_nothing().await;
        for worker in others {
            if let Err(error) = worker.give_back(session.client()).await {
                gone = Err(error);
            }
        }
        session.keep_backends(kept, self.own.0.as_ref(), self.own.1).await;
        gone
    }

    /// Whether the transaction has sessions of its own here.
    pub fn has_own(&self) -> bool {
        self.own.1 > 0
    }
}

/// Whether an error is among messages that have come.
fn has_error(mut messages: &[u8]) -> bool {
    while let Some((kind, after)) = messages.split_first() {
        let Some(length) = after.first_chunk::<4>() else { return false };
        if *kind == b'E' {
            return true;
        }
        messages = after.get(u32::from_be_bytes(*length) as usize..).unwrap_or_default();
    }
    false
}

/// Leave for all ranges under one view.
async fn enter(
    session: &Session,
    ranges: &[(MapName, Vec<KeyRange>)],
    named: &BTreeSet<ShardId>,
) -> Result<BTreeMap<ShardId, Vec<Ticket>>, Stop> {
    let router = session.router();
    let mut tries = 0;
    loop {
        let entered = async {
            let mut tickets = router.enter_ranges(ranges, Access::Read).await?;
            tickets.retain(|shard, _| session.own.shard.as_ref().is_none_or(|only| only == shard));
            for shard in named {
                if !tickets.contains_key(shard) {
                    tickets.insert(shard.clone(), vec![router.enter_unmapped(shard, Access::Read).await?]);
                }
            }
            Ok::<_, RouterError>(tickets)
        };
        let error = match entered.await {
            Ok(tickets) => return Ok(tickets),
            Err(error) => error,
        };
        tries += 1;
        let waited = matches!(error, RouterError::Moving(_));
        if tries >= TRIES_MAX || waited || !router.heal(&error).await {
            return Err(reply::of_router(&error).into());
        }
        tokio::time::sleep(Duration::from_millis(5 << tries.min(6))).await;
    }
}

/// A session of a shard, with the client's settings, and up to date with what all shards have alike.
async fn lend(session: &mut Session, id: &ShardId, tickets: Vec<Ticket>) -> Result<Worker, SqlError> {
    session.journal().ready(id).await.map_err(|error| error.to_sql())?;
    let backend = Backend::open(&session.door, tickets, Vec::new()).await;
    let mut worker = Worker::new(backend.map_err(|error| reply::of_engine(&error))?, false);
    worker.take_settings(session).await?;
    Ok(worker)
}
