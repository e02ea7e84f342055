//! The group writer: drains the queue into one transaction on one session, commits it, answers everybody. A batch that
//! meets another transaction's lock is set aside, and waits for it on a session of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::connect::{Connector, Purpose};
use super::error::{Failure, Fitness};
use super::outcome::{self, Mark, TRANSACTION_ID};
use super::session::{Prepared, Sent, Session};
use crate::group::{self, Answer, Counters, Op};
use crate::{Error, Rows, Statement};

/// How long a group waits for another transaction's lock: longer than somebody needs who changes a table for a move,
/// since all would be set aside then.
const GROUP_LOCK_WAIT: Duration = Duration::from_millis(100);
/// How long each batch of a group waits that is run anew because of a lock, to find out which of them it was.
const EACH_LOCK_WAIT: Duration = Duration::from_millis(10);
/// Batches that wait for locks at once, each on a session of its own, and those that wait to do so: with more the group
/// waits for them.
const ASIDE_SESSIONS: usize = 4;
const ASIDE_MAX: usize = 256;

/// What the queue carries.
pub(crate) enum Command {
    Write(Op),
    Close,
}

pub(crate) struct Writer {
    connector: Arc<Connector>,
    session: Option<Session>,
    transaction_id: Statement,
    /// The batches that wait for locks by themselves.
    aside: JoinSet<()>,
    sessions: Arc<Semaphore>,
}

/// What became of one batch of a group that was committed.
enum Outcome {
    Answered(Answer),
    /// Nothing was done: another transaction has a lock that it needs.
    Waits(Error),
}

impl Outcome {
    /// For whoever does not wait any longer.
    fn answer(self) -> Answer {
        match self {
            Outcome::Answered(answer) => answer,
            Outcome::Waits(error) => Err(error),
        }
    }
}

/// How an attempt at a group ended.
enum Attempt {
    /// Committed; each batch has its own outcome.
    Done(Vec<Outcome>),
    /// Undone because of one batch: try again with more care. The failure is that batch's.
    Undone(Failure),
    /// Nobody's batch was applied, or nobody knows.
    Failed(Error),
}

impl Writer {
    pub fn new(connector: Arc<Connector>, session: Session) -> Writer {
        Writer {
            connector,
            session: Some(session),
            transaction_id: Statement::new(TRANSACTION_ID),
            aside: JoinSet::new(),
            sessions: Arc::new(Semaphore::new(ASIDE_SESSIONS)),
        }
    }

    pub async fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        if let Some(session) = self.session.take() {
            self.session = self.for_groups(session).await.ok();
        }
        let ops_max = self.connector.options.group_ops_max;
        while let Some(command) = queue.recv().await {
            let mut closing = false;
            let mut ops = Vec::new();
            let mut next = Some(command);
            while let Some(command) = next {
                match command {
                    Command::Write(op) => ops.push(op),
                    Command::Close => closing = true,
                }
                next = if ops.len() < ops_max { queue.try_recv().ok() } else { None };
            }
            if closing {
                // What was queued before is still answered.
                queue.close();
            }
            if !ops.is_empty() {
                self.write(ops).await;
            }
        }
        while self.aside.join_next().await.is_some() {}
    }

    async fn write(&mut self, mut ops: Vec<Op>) {
        Counters::add(&self.connector.counters.writes, ops.len());
        group::sort(&mut ops);
        let reused = self.session.is_some();
        let mut session = match self.take_session().await {
            Ok(session) => session,
            Err(error) => return group::reply_error(ops, &error),
        };
        ops = group::refuse_void(ops);
        if ops.is_empty() {
            self.session = Some(session);
            return;
        }
        let mut attempt = self.attempt(&session, &ops).await;
        if reused && matches!(attempt, Attempt::Failed(Error::Unavailable { .. })) {
            // The session was lost, as by a restart of the server, and nothing was applied: a new one may
            // succeed, and is tried once.
            session = match self.take_session().await {
                Ok(session) => session,
                Err(error) => return group::reply_error(ops, &error),
            };
            ops = group::refuse_void(ops);
            attempt = self.attempt(&session, &ops).await;
        }
        match attempt {
            Attempt::Done(outcomes) => self.settle(ops, outcomes).await,
            Attempt::Failed(error) => group::reply_error(ops, &error),
            Attempt::Undone(failure) if ops.len() == 1 => group::reply_error(ops, &failure.error),
            // A batch that fails only at COMMIT (a deferred constraint) may only hurt itself.
            Attempt::Undone(_) => {
                for op in ops {
                    let attempt = self.attempt_one_by_one(&session, std::slice::from_ref(&op), None).await;
                    self.settle(vec![op], vec![attempt.outcome_of_one()]).await;
                }
            }
        }
        self.session = Some(session);
    }

    /// Answers batches, and sets those aside that wait for a lock.
    async fn settle(&mut self, ops: Vec<Op>, outcomes: Vec<Outcome>) {
        debug_assert_eq!(ops.len(), outcomes.len());
        let mut waiting = Vec::new();
        for (op, outcome) in ops.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Answered(answer) => group::reply_all(vec![op], vec![answer]),
                Outcome::Waits(error) => waiting.push((op, error)),
            }
        }
        for (op, error) in waiting {
            self.set_aside(op, error).await;
        }
    }

    /// Has a batch wait for a lock by itself, so that nobody else waits for it. One for which there is no session in
    /// the time that it may wait gets the error.
    async fn set_aside(&mut self, op: Op, error: Error) {
        while self.aside.try_join_next().is_some() {}
        if self.aside.len() >= ASIDE_MAX {
            self.aside.join_next().await;
        }
        let (connector, sessions) = (self.connector.clone(), self.sessions.clone());
        self.aside.spawn(async move {
            let permit = tokio::time::timeout(connector.options.lock_timeout, sessions.acquire_owned()).await;
            let Ok(Ok(_permit)) = permit else { return group::reply_error(vec![op], &error) };
            if op.reply.is_closed() {
                return;
            }
            let session = match connector.connect(Purpose::Writing).await {
                Ok(session) => session,
                Err(error) => return group::reply_error(vec![op], &error),
            };
            let Some(op) = group::refuse_void(vec![op]).pop() else { return };
            let alone = Writer::new(connector, session);
            let Some(session) = &alone.session else { return };
            let attempt = alone.attempt_one_by_one(session, std::slice::from_ref(&op), None).await;
            group::reply_all(vec![op], vec![attempt.outcome_of_one().answer()]);
        });
    }

    async fn attempt(&self, session: &Session, ops: &[Op]) -> Attempt {
        if ops.is_empty() {
            return Attempt::Done(Vec::new());
        }
        match self.attempt_pipelined(session, ops).await {
            Attempt::Undone(failure) => {
                Counters::add(&self.connector.counters.groups_rerun, 1);
                let lock_wait = (failure.session == Fitness::Waited).then_some(EACH_LOCK_WAIT);
                self.attempt_one_by_one(session, ops, lock_wait).await
            }
            attempt => attempt,
        }
    }

    async fn take_session(&mut self) -> Result<Session, Error> {
        match self.session.take() {
            Some(session) if self.connector.is_current(&session) => Ok(session),
            _ => self.for_groups(self.connector.connect(Purpose::Writing).await?).await,
        }
    }

    /// A session on which groups wait for locks no longer than they may, also to prepare a statement.
    async fn for_groups(&self, session: Session) -> Result<Session, Error> {
        session.simple(&format!("SET lock_timeout = {}", self.lock_ms(GROUP_LOCK_WAIT))).await?;
        Ok(session)
    }

    /// In milliseconds, and no longer than anybody waits; 0 would be for ever.
    fn lock_ms(&self, wait: Duration) -> u128 {
        wait.min(self.connector.options.lock_timeout).as_millis().max(1)
    }

    /// Everything in two round trips: BEGIN and all statements, then COMMIT.
    async fn attempt_pipelined(&self, session: &Session, ops: &[Op]) -> Attempt {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(ops.len());
        let mut plans: Vec<Vec<Prepared>> = Vec::with_capacity(ops.len());
        for op in ops {
            match prepare_all(session, &op.batch.statements).await {
                Ok(plan) => plans.push(plan),
                Err(failure) if failure.session == Fitness::Lost => return Attempt::Failed(failure.error),
                // It may need what its own earlier statements make, such as a table; or it is wrong.
                Err(failure) => return Attempt::Undone(failure),
            }
        }
        let transaction_id = match session.prepare(&self.transaction_id).await {
            Ok(prepared) => prepared,
            Err(failure) => return Attempt::Failed(failure.error),
        };

        let begin = session.send(Box::pin(control(session, "BEGIN"))).await;
        let mut sent: Vec<Sent<'_>> = Vec::with_capacity(ops.len());
        for (op, plan) in ops.iter().zip(&plans) {
            for (statement, prepared) in op.batch.statements.iter().zip(plan) {
                sent.push(session.send(Box::pin(session.run_prepared_untimed(prepared, statement))).await);
            }
        }
        let id = session.run_prepared_untimed(&transaction_id, &self.transaction_id);
        let id = session.send(Box::pin(id)).await;

        if let Err(failure) = session.answer(begin).await {
            return self.give_up(session, failure).await;
        }
        let mut sent = sent.into_iter();
        for op in ops {
            let mut rows = Vec::with_capacity(op.batch.len());
            for _ in &op.batch.statements {
                // There is one for each statement.
                let Some(next) = sent.next() else { break };
                match session.answer(next).await {
                    Ok(answer) => rows.push(answer),
                    Err(failure) => return self.give_up(session, failure).await,
                }
            }
            match check_all(&op.batch.statements, rows) {
                Ok(rows) => outcomes.push(Outcome::Answered(Ok(rows))),
                Err(error) if had_no_effect(op, &error) => outcomes.push(Outcome::Answered(Err(error))),
                Err(error) => return self.give_up(session, Failure::fit(error)).await,
            }
        }
        let mark = match session.answer(id).await {
            Ok(rows) => {
                let id = rows.first().and_then(|row| row.opt_text(0).ok().flatten().map(str::to_owned));
                Mark::new(session, id)
            }
            Err(failure) => return self.give_up(session, failure).await,
        };
        match self.commit(session, &mark).await {
            Ok(()) => Attempt::Done(outcomes),
            Err(attempt) => attempt,
        }
    }

    /// One transaction, a savepoint for each batch, waiting for each statement; and for each lock that long, or as
    /// long as the session does.
    async fn attempt_one_by_one(
        &self,
        session: &Session,
        ops: &[Op],
        lock_wait: Option<Duration>,
    ) -> Attempt {
        let begin = match lock_wait {
            Some(wait) => format!("BEGIN; SET LOCAL lock_timeout = {}", self.lock_ms(wait)),
            None => "BEGIN".to_owned(),
        };
        if let Err(failure) = session.simple(&begin).await {
            return Attempt::Failed(failure.error);
        }
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(ops.len());
        for op in ops {
            let result = self.run_in_savepoint(session, &op.batch.statements).await;
            match result {
                Ok(outcome) => outcomes.push(outcome),
                Err(failure) => return self.give_up_for_all(session, failure).await,
            }
        }
        let mark = match outcome::mark(session).await {
            Ok(mark) => mark,
            Err(failure) => return self.give_up_for_all(session, failure).await,
        };
        match self.commit(session, &mark).await {
            Ok(()) => Attempt::Done(outcomes),
            Err(attempt) => attempt,
        }
    }

    async fn run_in_savepoint(
        &self,
        session: &Session,
        statements: &[Statement],
    ) -> Result<Outcome, Failure> {
        session.simple("SAVEPOINT batch").await?;
        let mut rows = Vec::with_capacity(statements.len());
        for (index, statement) in statements.iter().enumerate() {
            let mut result = session.run(index, statement).await;
            if matches!(&result, Err(failure) if failure.session == Fitness::Stale) && index == 0 {
                // The schema has changed since the statement was prepared; nothing has been done yet.
                session.forget_prepared();
                session.simple("ROLLBACK TO batch").await?;
                result = session.run(index, statement).await;
            }
            match result {
                Ok(answer) => rows.push(answer),
                Err(failure) if failure.session == Fitness::Lost => return Err(failure),
                Err(failure) => {
                    if failure.session == Fitness::Stale {
                        session.forget_prepared();
                    }
                    session.simple("ROLLBACK TO batch; RELEASE batch").await?;
                    return Ok(match failure.session {
                        Fitness::Waited => Outcome::Waits(failure.error),
                        _ => Outcome::Answered(Err(failure.error)),
                    });
                }
            }
        }
        session.simple("RELEASE batch").await?;
        Ok(Outcome::Answered(Ok(rows)))
    }

    /// Commits; an error says how the attempt ended.
    async fn commit(&self, session: &Session, mark: &Mark) -> Result<(), Attempt> {
        Counters::add(&self.connector.counters.groups, 1);
        // What waits for a lock only here, a deferred trigger or a notification, cannot be set aside.
        let wait = self.lock_ms(Duration::MAX);
        match session.simple(&format!("SET LOCAL lock_timeout = {wait}; COMMIT")).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.session == Fitness::Lost => {
                session.kill();
                outcome::decide(&self.connector, mark, failure.error).await.map_err(Attempt::Failed)
            }
            // The server says that it has rolled back.
            Err(failure) => Err(Attempt::Undone(failure)),
        }
    }

    /// Before COMMIT was sent: nothing was applied.
    async fn give_up(&self, session: &Session, failure: Failure) -> Attempt {
        match failure.session {
            Fitness::Lost => {
                session.kill();
                return Attempt::Failed(failure.error);
            }
            Fitness::Stale => session.forget_prepared(),
            Fitness::Fit | Fitness::Waited => {}
        }
        match session.simple("ROLLBACK").await {
            Ok(_) => Attempt::Undone(failure),
            Err(failure) => {
                session.kill();
                Attempt::Failed(failure.error)
            }
        }
    }

    async fn give_up_for_all(&self, session: &Session, failure: Failure) -> Attempt {
        match self.give_up(session, failure).await {
            Attempt::Undone(failure) => Attempt::Failed(failure.error),
            attempt => attempt,
        }
    }
}

impl Attempt {
    /// The outcome of the one batch that was attempted.
    fn outcome_of_one(self) -> Outcome {
        match self {
            Attempt::Done(mut outcomes) => outcomes.pop().unwrap_or(Outcome::Answered(Err(Error::Closed))),
            Attempt::Undone(failure) => Outcome::Answered(Err(failure.error)),
            Attempt::Failed(error) => Outcome::Answered(Err(error)),
        }
    }
}

async fn prepare_all(session: &Session, statements: &[Statement]) -> Result<Vec<Prepared>, Failure> {
    let mut plan = Vec::with_capacity(statements.len());
    for statement in statements {
        match session.prepared(statement) {
            Some(prepared) => plan.push(prepared),
            None => plan.push(session.prepare(statement).await?),
        }
    }
    Ok(plan)
}

async fn control(session: &Session, sql: &str) -> Result<Rows, Failure> {
    session.simple(sql).await.map(|_| Rows::none())
}

fn check_all(statements: &[Statement], rows: Vec<Rows>) -> Result<Vec<Rows>, Error> {
    for (index, (statement, rows)) in statements.iter().zip(&rows).enumerate() {
        group::check(index, statement.expect, rows.affected)?;
    }
    Ok(rows)
}

/// A lone INSERT, UPDATE or DELETE that touched no row has changed nothing, so the group need not be undone
/// for it. This keeps lost races for an etag, which are common, cheap. (A SELECT may call a function that
/// writes, and a WITH may write beside what it returns.)
fn had_no_effect(op: &Op, error: &Error) -> bool {
    let [statement] = op.batch.statements.as_slice() else { return false };
    let text = statement.text().trim_start();
    let is_plain = ["insert", "update", "delete"]
        .iter()
        .any(|word| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)));
    is_plain && matches!(error, Error::Expectation { got: 0, .. })
}
