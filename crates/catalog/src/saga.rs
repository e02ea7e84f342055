//! The order in which an operation's steps are done, and what follows from each outcome. Pure: the driver does
//! the I/O and reports; the simulation does the same with a faulty world.
//!
//! The rules (PROTOCOL §1, §5): record a step before doing it; before `departing` everything can be rolled
//! back, from there on only forward; an outcome that is not known is asked again, since every action may be
//! repeated; a driver that was superseded stops at once.

use std::sync::Arc;

use crate::carrier::CarryTask;
use crate::types::{OpRecord, Operation, Step};

/// Tries of one action before an operation that can still be rolled back is rolled back.
const PREPARE_TRIES_MAX: u32 = 5;
/// Fences raised in vain, because of long transactions, before an operation is rolled back.
const FENCE_TRIES_MAX: u32 = 20;
/// The same for a move: what was copied is worth waiting longer for, a few minutes.
const CARRY_FENCE_TRIES_MAX: u32 = 200;
/// Tries of carrying before a move is given up: a shard may be away for two minutes.
const CARRY_TRIES_MAX: u32 = 64;

/// What to do next. Numbers are indexes into the operation's edits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Record the step in the catalog.
    Record(Step),
    /// Record and lay ready on a shard.
    Prepare(usize),
    /// Copy the staged entries to a shard.
    Load(usize),
    /// Raise the fence on a shard.
    Raise(usize),
    /// Wait for the routers, cutting off those that are silent.
    AwaitAcks(usize, u64),
    /// See that the leaving ranges hold no data.
    CheckEmpty(usize),
    /// The point of no return on a shard.
    Depart(usize, u64),
    /// Put in force, at a gainer, what one loser has let go.
    ActivateFrom {
        /// Where it arrives.
        gainer: usize,
        /// Where it left.
        loser: usize,
    },
    /// Put in force.
    Activate(usize),
    /// Take the fence down.
    Release(usize),
    /// Undo on a shard.
    Undo(usize),
    /// Have the mover do a task.
    Carry(CarryTask),
    /// Publish in the catalog: the end, unless rows are to be cleaned.
    Publish,
    /// Rows are cleaned: the end.
    End,
    /// Give up in the catalog: the end.
    Discard,
    /// Wait a while, longer each time, then ask again.
    Wait(u32),
    /// Nothing left to do.
    Finished(Ending),
}

/// How a driver's work on an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// In force.
    Done,
    /// Undone.
    RolledBack,
    /// Somebody else's now.
    Superseded,
}

/// What an action gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// The fence stands, under this attempt number.
    Raised(u64),
    /// The ranges had departed before.
    AlreadyDeparted,
    /// Not all routers have answered yet.
    Waiting,
    /// A router cannot drain in time: let everybody go on, and try again later.
    CannotDrain(String),
    /// The fence was withdrawn.
    FenceBroken,
    /// Writers change rows faster than the mover carries them: they have to be held for a part of the time.
    Behind(String),
    /// Not known, or not possible just now.
    Retry(String),
    /// A definite no.
    Refused(String),
    /// Another driver owns the operation.
    Superseded,
}

/// One driver's position in one operation.
#[derive(Debug, Clone)]
pub struct Saga {
    op: Arc<Operation>,
    step: Step,
    plan: Vec<Action>,
    at: usize,
    attempts: Vec<Option<u64>>,
    departed: Vec<bool>,
    tries: u32,
    fence_tries: u32,
    waiting: bool,
    giving_up: bool,
    ending: Option<Ending>,
    message: Option<String>,
}

impl Saga {
    /// Takes up an operation where its record stands.
    pub fn new(record: &OpRecord) -> Saga {
        let op = Arc::new(record.op.clone());
        let mut saga = Saga {
            attempts: vec![None; op.edits.len()],
            departed: vec![false; op.edits.len()],
            op,
            step: record.step,
            plan: Vec::new(),
            at: 0,
            tries: 0,
            fence_tries: 0,
            waiting: false,
            giving_up: false,
            ending: None,
            message: record.message.clone(),
        };
        // The entries of a new map come from the caller; whoever takes it up later does not have them.
        if saga.step == Step::Staging {
            saga.message.get_or_insert_with(|| {
                "the process creating the map stopped before all entries were in".into()
            });
            saga.plan = vec![Action::Record(Step::RollingBack)];
        } else {
            saga.plan = saga.plan_for(saga.step);
        }
        // The driver before may have held writers while it caught up.
        if saga.step == Step::CatchingUp {
            let releases = saga.op.losers().into_iter().map(Action::Release);
            saga.plan = releases.chain(std::mem::take(&mut saga.plan)).collect();
        }
        saga
    }

    /// The operation.
    pub fn operation(&self) -> &Operation {
        &self.op
    }
    /// The recorded step.
    pub fn step(&self) -> Step {
        self.step
    }
    /// Why it is rolled back, or what it waits for.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// What to do next.
    pub fn next(&self) -> Action {
        if let Some(ending) = self.ending {
            return Action::Finished(ending);
        }
        if self.waiting {
            return Action::Wait(self.tries.max(self.fence_tries));
        }
        match self.plan[self.at] {
            Action::AwaitAcks(index, _) => Action::AwaitAcks(index, self.attempts[index].unwrap_or(0)),
            Action::Depart(index, _) => Action::Depart(index, self.attempts[index].unwrap_or(0)),
            action => action,
        }
    }

    /// What the last action gave.
    pub fn report(&mut self, outcome: Outcome) {
        if self.waiting {
            self.waiting = false;
            return;
        }
        let action = self.next();
        match outcome {
            Outcome::Superseded => self.ending = Some(Ending::Superseded),
            Outcome::Waiting => self.tries = 0,
            Outcome::Done => self.advance(action),
            Outcome::Raised(attempt) => {
                if let Action::Raise(index) = action {
                    self.attempts[index] = Some(attempt);
                }
                self.advance(action);
            }
            Outcome::AlreadyDeparted => {
                if std::mem::take(&mut self.giving_up) {
                    // Too late: somebody has let go already, so it goes on.
                    if let Action::Raise(index) = action {
                        self.departed[index] = true;
                    }
                    self.plan = self.plan_for(self.step);
                    self.at = 0;
                } else {
                    self.skip_to_after_departure(action);
                }
            }
            Outcome::CannotDrain(why) => self.lower_and_retry(why),
            Outcome::Behind(why) => self.hold_writers(action, why),
            Outcome::FenceBroken => self.lower_and_retry("a router withdrew from the fence".into()),
            Outcome::Retry(why) => self.retry(why),
            Outcome::Refused(why) if self.can_roll_back() => self.roll_back(why),
            Outcome::Refused(why) if self.step == Step::Departing => self.refused_to_depart(why),
            Outcome::Refused(why) => self.retry(why),
        }
    }

    /// A range that was to leave holds data after all, or cannot be left, or need not be any more. While nothing
    /// has left, the operation can still be given up, but only after every fence has been raised under this
    /// driver's token: then no earlier driver can let go any more. Once something has left, requests go on and it
    /// is tried again.
    fn refused_to_depart(&mut self, why: String) {
        if self.departed.contains(&true) {
            return self.lower_and_retry(why);
        }
        self.message = Some(why);
        self.giving_up = true;
        let raise = self.op.losers().into_iter().map(Action::Raise);
        self.plan = raise.chain([Action::Record(Step::RollingBack)]).collect();
        self.at = 0;
    }

    fn can_roll_back(&self) -> bool {
        matches!(self.step, Step::Preparing | Step::Copying | Step::CatchingUp | Step::Fencing)
    }

    fn advance(&mut self, action: Action) {
        self.tries = 0;
        match action {
            Action::Record(step) => {
                self.step = step;
                self.plan = self.plan_for(step);
                self.at = 0;
            }
            Action::Depart(index, _) => {
                self.departed[index] = true;
                self.at += 1;
            }
            Action::Publish if self.op.carry.is_some() => {
                self.step = Step::Keeping;
                self.plan = self.plan_for(Step::Keeping);
                self.at = 0;
            }
            Action::Publish | Action::End => self.ending = Some(Ending::Done),
            Action::Discard => self.ending = Some(Ending::RolledBack),
            _ => self.at += 1,
        }
    }

    fn retry(&mut self, why: String) {
        self.tries += 1;
        let tries_max = match self.step {
            Step::Copying | Step::CatchingUp => CARRY_TRIES_MAX,
            _ => PREPARE_TRIES_MAX,
        };
        if self.can_roll_back() && self.tries >= tries_max {
            return self.roll_back(why);
        }
        self.message = Some(why);
        self.waiting = true;
    }

    fn roll_back(&mut self, why: String) {
        self.message = Some(why);
        self.tries = 0;
        self.plan = vec![Action::Record(Step::RollingBack)];
        self.at = 0;
    }

    /// Lets held requests go on, waits, and begins the fence again. While departing, only the fences that
    /// are still to depart are lowered and raised again.
    fn lower_and_retry(&mut self, why: String) {
        self.fence_tries += 1;
        let tries_max = if self.op.carry.is_some() { CARRY_FENCE_TRIES_MAX } else { FENCE_TRIES_MAX };
        if self.can_roll_back() && self.fence_tries >= tries_max {
            return self.roll_back(why);
        }
        // A writer whom nobody can end, such as a forgotten prepared transaction, must not hold it for ever.
        if self.step == Step::Departing && self.fence_tries >= tries_max && !self.departed.contains(&true) {
            return self.refused_to_depart(why);
        }
        self.message = Some(why);
        let open: Vec<usize> = self.op.losers().into_iter().filter(|index| !self.departed[*index]).collect();
        for index in &open {
            self.attempts[*index] = None;
        }
        // Held requests go on before the pause, not after it.
        let releases = open.iter().map(|index| Action::Release(*index));
        let pause = [Action::Wait(self.fence_tries)];
        self.plan = releases.chain(pause).chain(self.plan_for(self.step)).collect();
        self.at = 0;
    }

    /// A move outruns its writers however fast they are: requests on the range are held while rows are carried, for a
    /// short time, then go on for a shorter one, again and again until little is left. No attempts are counted, since
    /// each of them carries something.
    fn hold_writers(&mut self, action: Action, why: String) {
        self.tries = 0;
        self.message = Some(why);
        let losers = self.op.losers();
        let open: Vec<usize> = losers.iter().copied().filter(|index| !self.departed[*index]).collect();
        let mut plan = Vec::new();
        match action {
            // They are held next anyway.
            Action::Carry(CarryTask::CatchUp) if self.step != Step::CatchingUp => {
                return self.advance(action);
            }
            Action::Carry(CarryTask::CatchUp | CarryTask::Verify) => {
                for index in &open {
                    plan.extend([Action::Raise(*index), Action::AwaitAcks(*index, 0)]);
                }
                plan.push(Action::Carry(CarryTask::Settle));
            }
            // They were held for long enough: they go on first.
            _ => {}
        }
        for index in &open {
            self.attempts[*index] = None;
        }
        plan.extend(open.iter().map(|index| Action::Release(*index)));
        plan.extend(self.plan_for(self.step));
        (self.plan, self.at) = (plan, 0);
    }

    fn skip_to_after_departure(&mut self, action: Action) {
        let Action::Raise(index) = action else { return self.advance(action) };
        self.departed[index] = true;
        let departure =
            self.plan[self.at..].iter().position(|a| matches!(a, Action::Depart(i, _) if *i == index));
        match departure {
            Some(offset) => self.at += offset + 1,
            None => self.at += 1,
        }
    }

    fn plan_for(&self, step: Step) -> Vec<Action> {
        let losers = self.op.losers();
        let gainers = self.op.gainers();
        let all = 0..self.op.edits.len();
        let carries = self.op.carry.is_some();
        let mut plan = Vec::new();
        match step {
            Step::Staging => plan.push(Action::Record(Step::Preparing)),
            Step::Preparing => {
                for index in all {
                    plan.push(Action::Prepare(index));
                    if self.op.is_staged() {
                        plan.push(Action::Load(index));
                    }
                }
                plan.push(Action::Record(match carries {
                    true => Step::Copying,
                    false if losers.is_empty() => Step::Activating,
                    false => Step::Fencing,
                }));
            }
            Step::Copying => {
                plan.extend([CarryTask::Begin, CarryTask::Copy].map(Action::Carry));
                plan.push(Action::Record(Step::CatchingUp));
            }
            Step::CatchingUp => {
                let tasks = [CarryTask::CatchUp, CarryTask::Verify, CarryTask::Reverse];
                plan.extend(tasks.map(Action::Carry));
                plan.push(Action::Record(Step::Fencing));
            }
            Step::Fencing => {
                if carries {
                    plan.push(Action::Carry(CarryTask::CatchUp));
                }
                for index in &losers {
                    plan.extend([Action::Raise(*index), Action::AwaitAcks(*index, 0)]);
                }
                match carries {
                    true => plan.push(Action::Carry(CarryTask::Settle)),
                    false => plan.extend(losers.iter().map(|index| Action::CheckEmpty(*index))),
                }
                plan.push(Action::Record(Step::Departing));
            }
            Step::Departing => {
                for index in &losers {
                    if self.attempts[*index].is_none() && !self.departed[*index] {
                        // Whoever comes to an operation here does not know what was written since the last looked.
                        if carries {
                            plan.push(Action::Carry(CarryTask::CatchUp));
                        }
                        plan.extend([Action::Raise(*index), Action::AwaitAcks(*index, 0)]);
                        if carries {
                            plan.push(Action::Carry(CarryTask::Settle));
                        }
                    }
                    if !self.departed[*index] {
                        plan.push(Action::Depart(*index, 0));
                    }
                    plan.extend(
                        gainers.iter().map(|gainer| Action::ActivateFrom { gainer: *gainer, loser: *index }),
                    );
                    plan.push(Action::Release(*index));
                }
                plan.push(Action::Record(Step::Activating));
            }
            Step::Activating => {
                plan.extend(all.map(Action::Activate));
                plan.extend(losers.iter().map(|index| Action::Release(*index)));
                plan.push(Action::Publish);
            }
            Step::Keeping => {
                plan.extend([Action::Carry(CarryTask::Keep), Action::Record(Step::Cleaning)]);
            }
            Step::Cleaning => plan.extend([Action::Carry(CarryTask::Clean), Action::End]),
            Step::RollingBack => {
                plan.extend(losers.iter().map(|index| Action::Release(*index)));
                plan.extend(all.map(Action::Undo));
                if carries {
                    plan.push(Action::Carry(CarryTask::Clear));
                }
                plan.push(Action::Discard);
            }
        }
        plan
    }
}
