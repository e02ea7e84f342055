//! The writer: drains the queue into one transaction, commits it, answers everybody. It has a thread of its own; a
//! caller may use it in place while that has nothing to do.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, mpsc, oneshot};

use super::checkpoint::Signal;
use super::connection::{Connection, StatementStopper};
use super::error::{leaves_commit_open, translate};
use super::gather::Gathering;
use super::room::LogRoom;
use super::transaction::{Ask, Notices, run_all};
use crate::group::{self, Answer, Counters, Op};
use crate::{Batch, Durable, Error, Event, Options, guard};

/// How long a group waits at most for those who are about to join it: no longer than the last commit took, and as long
/// as it takes to receive as many requests as there were. With several files fewer come, since callers change between
/// them, and with few callers nobody has anything to do meanwhile.
const GATHER_EACH: Duration = Duration::from_micros(15);
const GATHER_MIN: Duration = Duration::from_micros(150);
const GATHER_MAX: Duration = Duration::from_micros(500);

/// What the queue carries.
pub(crate) enum Command {
    Write(Op),
    Begin(oneshot::Sender<Result<Lent, Error>>),
    /// A batch by itself that is durable with the next one that is.
    WriteLazily(Op),
    /// A batch that reads another file, which is there under a name meanwhile.
    WriteBeside {
        op: Op,
        other: (String, PathBuf),
        durable: Durable,
    },
    Close,
}

/// What whoever begins a transaction gets: the way to ask the writer, and to stop what it runs for him.
pub(crate) type Lent = (std::sync::mpsc::SyncSender<Ask>, StatementStopper);

/// The channels somebody has listened to.
pub(crate) type Channels = Mutex<HashMap<String, broadcast::Sender<Event>>>;

/// Where the writer is for its thread and for callers, one at a time; gone when the database is closed.
pub(crate) type Seat = Mutex<Option<Writer>>;

pub(crate) struct Writer {
    connection: Connection,
    options: Arc<Options>,
    counters: Arc<Counters>,
    channels: Arc<Channels>,
    gathering: Arc<Gathering>,
    room: LogRoom,
    signal: Arc<Signal>,
    company: Company,
}

/// What the last group tells of the next one.
#[derive(Default)]
struct Company {
    /// Batches in it, and those that came while it was committed.
    batches: usize,
    /// How long it took.
    took: Duration,
}

/// How much a group is shielded from its own batches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shield {
    /// Savepoints only where a batch has several statements; SQLite undoes a single failed one itself.
    Light,
    /// A savepoint for every batch.
    Full,
}

/// Where the pages are kept that a batch or statement has changed, as they were before, so that it alone can be undone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Undo {
    /// For batches, which are short: writing their pages to a file took a third of the time of a batch of 100 inserts.
    Memory,
    /// For transactions of callers, whose statements may change any number of pages: beyond 64 KiB, a temporary file.
    File,
}

/// How an attempt at a group ended.
enum Attempt {
    /// Committed; each batch has its own answer.
    Done(Vec<Answer>),
    /// Undone because of one batch: try again with more care.
    Undone,
    /// Nobody's batch can be applied now.
    Failed(Error),
}

/// The writer's thread: serves the queue until it is closed and empty.
pub(crate) fn run(seat: &Seat, mut queue: mpsc::Receiver<Command>, gathering: &Gathering) {
    gathering.begin();
    let mut next = None;
    while let Some(command) = next.take().or_else(|| queue.blocking_recv()) {
        // Nobody may go on with what somebody left who panicked: the queue ends, and callers are told so.
        let Ok(mut taken) = seat.lock() else { break };
        let Some(writer) = taken.as_mut() else { break };
        next = writer.serve(command, &mut queue);
    }
    // Its file is closed before others are told that the thread has ended.
    drop(seat.lock().unwrap_or_else(PoisonError::into_inner).take());
}

impl Writer {
    pub fn new(
        connection: Connection,
        options: Arc<Options>,
        counters: Arc<Counters>,
        channels: Arc<Channels>,
        gathering: Arc<Gathering>,
        room: LogRoom,
        signal: Arc<Signal>,
    ) -> Writer {
        let company = Company::default();
        let writer = Writer { connection, options, counters, channels, gathering, room, signal, company };
        writer.keep_undo(Undo::Memory);
        writer
    }

    /// Does what a command asks; answers with the one that comes next, if it is there already.
    fn serve(&mut self, command: Command, queue: &mut mpsc::Receiver<Command>) -> Option<Command> {
        match command {
            Command::Write(op) => {
                let mut ops = vec![op];
                let next = self.gather(&mut ops, queue);
                let (batches, began) = (ops.len(), Instant::now());
                self.write(ops);
                self.company = Company { batches: batches + queue.len(), took: began.elapsed() };
                return next;
            }
            Command::Begin(reply) => {
                self.keep_undo(Undo::File);
                self.lend(reply);
                self.keep_undo(Undo::Memory);
            }
            Command::WriteLazily(op) => self.write_lazily(op),
            Command::WriteBeside { op, other, durable } => self.write_beside(op, &other, durable),
            // What was queued before is still answered.
            Command::Close => queue.close(),
        }
        None
    }

    /// Whether the last batch was by itself, and so the next one may be: in company it would rather join a group.
    pub fn is_lone(&self) -> bool {
        self.company.batches <= 1
    }

    /// Applies a batch by itself, for a caller on its own thread. `waiting` tells how many are queued when it is done.
    pub fn write_in_place(&mut self, batch: &Batch, waiting: impl FnOnce() -> usize) -> Answer {
        Counters::add(&self.counters.writes, 1);
        guard::check(batch.guard.as_ref())?;
        let began = Instant::now();
        let answer = self.begin().and_then(|()| self.write_within(batch));
        self.company = Company { batches: 1 + waiting(), took: began.elapsed() };
        answer
    }

    /// Takes the batches that wait, and gives those time to come that were answered a moment ago: callers who write one
    /// thing after the other would otherwise go in many small groups, each with a sync of its own. A lone caller never
    /// waits. Answers with the command that comes after the group, if there is one already.
    fn gather(&self, ops: &mut Vec<Op>, queue: &mut mpsc::Receiver<Command>) -> Option<Command> {
        let wanted = self.company.batches.min(self.options.group_ops_max);
        let receive = GATHER_EACH * u32::try_from(wanted).unwrap_or(u32::MAX);
        let end = Instant::now() + self.company.took.min(receive.clamp(GATHER_MIN, GATHER_MAX));
        loop {
            while ops.len() < self.options.group_ops_max {
                match queue.try_recv() {
                    Ok(Command::Write(op)) => ops.push(op),
                    Ok(other) => return Some(other),
                    Err(_) => break,
                }
            }
            if ops.len() >= wanted || Instant::now() >= end {
                return None;
            }
            self.gathering.wait(wanted - ops.len(), || queue.len(), end);
        }
    }

    /// Sets where undo pages are kept, between transactions. Not by a cached statement: it takes effect when it is
    /// compiled.
    fn keep_undo(&self, undo: Undo) {
        let store = match undo {
            Undo::Memory => "MEMORY",
            Undo::File => "DEFAULT",
        };
        if let Err(error) = self.connection.raw.pragma_update(None, "temp_store", store) {
            tracing::warn!(%error, "an SQLite writer keeps its undo pages where it kept them before");
        }
    }

    fn write(&mut self, mut ops: Vec<Op>) {
        Counters::add(&self.counters.writes, ops.len());
        ops = group::refuse_void(ops);
        if ops.is_empty() {
            return;
        }
        group::sort(&mut ops);
        let mut attempt = self.attempt(&ops, Shield::Light);
        if let Attempt::Undone = attempt {
            Counters::add(&self.counters.groups_rerun, 1);
            attempt = self.attempt(&ops, Shield::Full);
        }
        match attempt {
            Attempt::Done(answers) => group::reply_all(ops, answers),
            Attempt::Failed(error) => group::reply_error(ops, &error),
            // A batch that undoes everything (RAISE(ROLLBACK), a deferred foreign key) may only hurt itself.
            Attempt::Undone => {
                for op in ops {
                    let answer = self.begin().and_then(|()| self.write_within(&op.batch));
                    group::reply_all(vec![op], vec![answer]);
                }
            }
        }
    }

    fn attempt(&mut self, ops: &[Op], shield: Shield) -> Attempt {
        if let Err(error) = self.begin() {
            return Attempt::Failed(error);
        }
        let mut answers = Vec::with_capacity(ops.len());
        let mut notices = Notices::new();
        for op in ops {
            match self.run_op(op, shield) {
                Ok(Ok((rows, mut sent))) => {
                    notices.append(&mut sent);
                    answers.push(Ok(rows));
                }
                Ok(Err(error)) => answers.push(Err(error)),
                Err(ended) => {
                    self.roll_back();
                    return ended;
                }
            }
        }
        match self.commit() {
            Ok(()) => {
                self.send(notices);
                Attempt::Done(answers)
            }
            Err(Error::Constraint { .. }) => Attempt::Undone,
            Err(error) => Attempt::Failed(error),
        }
    }

    /// Runs one batch within the group: its own success or failure, or the end of the attempt.
    fn run_op(
        &mut self,
        op: &Op,
        shield: Shield,
    ) -> Result<Result<(Vec<crate::Rows>, Notices), Error>, Attempt> {
        let statements = &op.batch.statements;
        let shielded = shield == Shield::Full || statements.len() > 1;
        if shielded && let Err(error) = self.connection.control("SAVEPOINT batch") {
            return Err(Attempt::Failed(translate(error)));
        }
        let changes_before = self.connection.raw.total_changes();
        let limit = self.options.statement_timeout;
        let result = run_all(&mut self.connection, statements, |connection| connection.limit(Some(limit)));
        self.connection.limit(None);
        if self.connection.raw.is_autocommit() {
            // SQLite has rolled back the whole transaction.
            return Err(match result {
                Err(error @ (Error::Full { .. } | Error::Unavailable { .. })) => Attempt::Failed(error),
                _ => Attempt::Undone,
            });
        }
        let end = match (&result, shielded) {
            (Ok(_), true) => self.connection.control("RELEASE batch"),
            (Err(_), true) => self
                .connection
                .control("ROLLBACK TO batch")
                .and_then(|()| self.connection.control("RELEASE batch")),
            // It failed, yet changed something: a missed expectation, or INSERT OR FAIL.
            (Err(_), false) if self.connection.raw.total_changes() != changes_before => {
                return Err(Attempt::Undone);
            }
            (_, false) => Ok(()),
        };
        end.map_err(|error| Attempt::Failed(translate(error)))?;
        Ok(result)
    }

    /// Runs a batch by itself, without a sync: whoever syncs next does it for this one, too, which is before his in the
    /// log.
    fn write_lazily(&mut self, op: Op) {
        Counters::add(&self.counters.writes, 1);
        let Some(op) = group::refuse_void(vec![op]).pop() else { return };
        self.set_durable(Durable::WithTheNext);
        let answer = self.begin().and_then(|()| self.write_within(&op.batch));
        self.set_durable(Durable::Now);
        group::reply_all(vec![op], vec![answer]);
    }

    /// Runs a batch by itself with another file attached.
    fn write_beside(&mut self, op: Op, (name, path): &(String, PathBuf), durable: Durable) {
        Counters::add(&self.counters.writes, 1);
        let Some(op) = group::refuse_void(vec![op]).pop() else { return };
        let answer = self.connection.attach_one(name, path).and_then(|()| {
            self.set_durable(durable);
            // Not immediate: that would keep the other file's writer out, too.
            let begun = self.connection.control("BEGIN").map_err(translate);
            let answer = begun.and_then(|()| self.write_within(&op.batch));
            self.set_durable(Durable::Now);
            // The next batch must not see it, and the file may be closed.
            self.connection.detach(name)?;
            answer
        });
        group::reply_all(vec![op], vec![answer]);
    }

    fn set_durable(&self, durable: Durable) {
        let synchronous = match durable {
            Durable::Now => "FULL",
            Durable::WithTheNext => "NORMAL",
        };
        // What cannot be set stays as it is; `FULL` is set again before anything else is written.
        if let Err(error) = self.connection.raw.pragma_update(Some("main"), "synchronous", synchronous) {
            tracing::error!(%error, "an SQLite writer syncs as it did before");
        }
    }

    /// Begins a transaction that nobody else can write beside.
    fn begin(&mut self) -> Result<(), Error> {
        self.signal.await_restart();
        self.connection.control("BEGIN IMMEDIATE").map_err(translate)?;
        self.room.make();
        Ok(())
    }

    /// Runs a batch in a transaction of its own, which was begun, and ends it.
    fn write_within(&mut self, batch: &Batch) -> Answer {
        let limit = self.options.statement_timeout;
        let result =
            run_all(&mut self.connection, &batch.statements, |connection| connection.limit(Some(limit)));
        self.connection.limit(None);
        match result {
            Ok((rows, notices)) => {
                self.commit()?;
                self.send(notices);
                Ok(rows)
            }
            Err(error) => {
                self.roll_back();
                Err(error)
            }
        }
    }

    fn commit(&mut self) -> Result<(), Error> {
        Counters::add(&self.counters.groups, 1);
        match polyshard_sqlite_wal::commit(&self.connection.raw) {
            Ok(()) => Ok(()),
            Err(error) => {
                let open = leaves_commit_open(&error);
                let error = translate(error);
                self.roll_back();
                Err(if open { Error::OutcomeUnknown { message: error.to_string() } } else { error })
            }
        }
    }

    fn roll_back(&mut self) {
        if !self.connection.raw.is_autocommit()
            && let Err(error) = self.connection.control("ROLLBACK")
        {
            // The next BEGIN fails and says so to its callers.
            tracing::error!(%error, "an SQLite transaction could not be rolled back");
        }
    }

    fn send(&self, notices: Notices) {
        if notices.is_empty() {
            return;
        }
        let channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        for (channel, payload) in notices {
            if let Some(sender) = channels.get(&channel) {
                // An error means that nobody listens any more.
                let _ = sender.send(Event::Notice(payload));
            }
        }
    }

    /// Serves one interactive transaction until it ends, is dropped, or sits idle too long.
    fn lend(&mut self, reply: oneshot::Sender<Result<Lent, Error>>) {
        if reply.is_closed() {
            return;
        }
        if let Err(error) = self.begin() {
            let _ = reply.send(Err(error));
            return;
        }
        let (sender, asks) = sync_channel(1);
        if reply.send(Ok((sender, self.connection.statement_stopper()))).is_err() {
            self.roll_back();
            return;
        }
        let mut notices = Notices::new();
        loop {
            match asks.recv_timeout(self.options.transaction_idle_max) {
                Ok(Ask::Run(statements, reply)) => {
                    let limit = self.options.statement_timeout;
                    self.connection.begin_statements();
                    let result = run_all(&mut self.connection, &statements, |connection| {
                        connection.limit(Some(limit));
                    });
                    // Whoever stops it from here on stops nothing that comes later.
                    drop(self.connection.begin_turn());
                    self.connection.limit(None);
                    let answer = result.map(|(rows, mut sent)| {
                        notices.append(&mut sent);
                        rows
                    });
                    let _ = reply.send(answer);
                }
                Ok(Ask::Commit(reply)) => {
                    let result = if self.connection.raw.is_autocommit() {
                        Err(Error::invalid("the transaction was rolled back by one of its statements"))
                    } else {
                        self.commit()
                    };
                    if result.is_ok() {
                        self.send(notices);
                    }
                    let _ = reply.send(result);
                    return;
                }
                Ok(Ask::Rollback(reply)) => {
                    self.roll_back();
                    let _ = reply.send(Ok(()));
                    return;
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.roll_back();
                    return;
                }
            }
        }
    }
}
