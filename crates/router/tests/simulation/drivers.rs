//! Operators who wish, drivers who carry out, and the resolver who takes over: the saga on a faulty world.

use std::collections::BTreeSet;
use std::time::Duration;

use polyshard_catalog::fence::{self, Verdict};
use polyshard_catalog::saga::{Action, Outcome, Saga};
use polyshard_catalog::{CatalogError, FenceLimits, LEASE, OpRecord, OpState, Step, moving, protocol};
use polyshard_map::{Entry, KeyRange, ShardId, State};
use polyshard_shard::{LocalTx, OpId, RouterId, ShardError, protocol as local};
use rand::RngExt;
use uuid::Uuid;

use crate::database::{Trouble, now};
use crate::model::{UNITS, Units, Wish};
use crate::moves::Moving;
use crate::world::World;

/// The first and the longest pause before an action is tried again.
const BACKOFF_MS: (i64, i64) = (20, 2_000);

/// One driver of one operation.
pub struct SimDriver {
    name: String,
    record: OpRecord,
    saga: Saga,
    /// Entries of a new map that are still to be staged.
    staging: Option<Vec<Entry>>,
    pub paused_until: i64,
    wake_at: i64,
    renewed: i64,
    /// What it was about to do when it was stopped; its lease may have lapsed since.
    decided: Option<Action>,
    /// While it waits for acknowledgements: since when, and the sessions it has just listed.
    waiting_since: Option<i64>,
    listed: Option<BTreeSet<RouterId>>,
    /// How far it is with carrying rows.
    moving: Moving,
}

impl SimDriver {
    /// Whether it does nothing for now.
    pub fn is_waiting(&self, now_ms: i64) -> bool {
        now_ms < self.paused_until.max(self.wake_at)
    }
}

/// What a driver's step came to.
enum Progress {
    Outcome(Outcome),
    /// The same action goes on.
    Same,
    /// The driver is done with it.
    Ended,
}

impl World {
    /// An operator wishes something of a map.
    pub fn operate(&mut self) {
        let map = self.rng.random_range(0..self.spaces.len());
        let name = self.spaces[map].name().clone();
        let from = self.rng.random_range(0..UNITS);
        let to = self.rng.random_range(from + 1..=UNITS.min(from + 5));
        let shard = self.any_shard();
        let exists = self.catalog.state.maps.contains_key(&name);
        let wish = match self.rng.random_range(0..100) {
            _ if !exists => Wish::Create((0..UNITS).map(|_| self.any_shard()).collect()),
            0..45 => Wish::Assign(from, to, shard),
            45..55 => Wish::SetState(from, to, State::ReadOnly),
            55..60 => Wish::SetState(from, to, State::Offline),
            60..72 => Wish::SetState(from, to, State::Online),
            72..80 => Wish::Remove(from, to),
            80..88 => Wish::Add(from, to, shard),
            88..92 => Wish::Split(from),
            92..97 => Wish::Merge(from),
            _ => Wish::Drop,
        };
        let id = OpId::new(Uuid::from_u128(u128::from(self.number())));
        let driver = protocol::Driver { owner: format!("d{}", self.number()), id };
        let request = wish.request(&self.spaces[map]);
        let definition = self.spaces[map].definition.clone();
        self.catalog.decide(&mut self.rng);
        let effect = Units::read(&self.spaces[map], &self.entries(&name)).effect(&wish);
        self.effects.insert(id, (map, effect));
        let begun = self.on_catalog(|tx| match (&wish, &request) {
            (_, Some(request)) => now(protocol::intend(tx, request, &driver)),
            (Wish::Create(owners), None) => {
                let shards: BTreeSet<ShardId> = owners.iter().cloned().collect();
                let shards: Vec<ShardId> = shards.into_iter().collect();
                now(protocol::intend_create(tx, &definition, &shards, &driver))
            }
            (_, None) => now(protocol::intend_drop(tx, &name, None, false, &driver)),
        });
        match begun {
            Ok(record) => {
                self.note(format!("{} begins {} of {name}: {wish:?}", driver.owner, short(id)));
                let staging = match &wish {
                    Wish::Create(owners) => {
                        let epoch = record.op.epoch;
                        let stamped = |entry: Entry| Entry { epoch, ..entry };
                        Some(self.spaces[map].entries(owners).into_iter().map(stamped).collect())
                    }
                    _ => None,
                };
                self.employ(driver.owner, record, staging);
            }
            Err(Trouble::Unknown) => self.note(format!("an operator does not know what became of {wish:?}")),
            Err(Trouble::Refused(_)) => {}
        }
    }

    pub fn employ(&mut self, name: String, record: OpRecord, staging: Option<Vec<Entry>>) {
        let driver = SimDriver {
            name,
            saga: Saga::new(&record),
            record,
            staging,
            paused_until: 0,
            wake_at: 0,
            renewed: self.now_ms,
            decided: None,
            waiting_since: None,
            listed: None,
            moving: Moving::default(),
        };
        self.drivers.push(driver);
    }

    /// The resolver looks for operations that nobody drives.
    pub fn resolve(&mut self) {
        if self.catalog_is_down() {
            return;
        }
        let operations = self.catalog.state.operations.values();
        let running: Vec<OpId> =
            operations.filter(|record| record.state == OpState::Running).map(|record| record.op.id).collect();
        for id in running {
            let owner = format!("d{}", self.number());
            if let Ok(Some(record)) = self.on_catalog(|tx| now(protocol::take_over(tx, id, &owner))) {
                self.note(format!("{owner} takes over {} at {:?}", short(id), record.step));
                self.employ(owner, record, None);
            }
        }
    }

    /// One driver does one thing.
    pub fn drive(&mut self, index: usize) {
        let mut driver = self.drivers.swap_remove(index);
        let goes_on = self.drive_one(&mut driver);
        if goes_on {
            self.drivers.push(driver);
        }
    }

    fn drive_one(&mut self, driver: &mut SimDriver) -> bool {
        if driver.is_waiting(self.now_ms) {
            return true;
        }
        if let Some(entries) = driver.staging.take() {
            return self.stage(driver, entries);
        }
        let resumed = driver.decided.take();
        let action = resumed.unwrap_or_else(|| driver.saga.next());
        if let Action::Finished(ending) = action {
            self.note(format!("{} ends {}: {ending:?}", driver.name, short(driver.record.op.id)));
            return false;
        }
        if resumed.is_none() && self.now_ms - driver.renewed > LEASE.as_millis() as i64 / 3 {
            let record = driver.record.clone();
            match self.on_catalog(|tx| now(protocol::renew(tx, &record))) {
                Ok(()) => driver.renewed = self.now_ms,
                Err(Trouble::Refused(CatalogError::Superseded(_))) => return false,
                Err(_) => {}
            }
        }
        if resumed.is_none() && self.mishap(0.04) {
            driver.decided = Some(action);
            driver.paused_until = self.now_ms + self.rng.random_range(500..9_000);
            self.note(format!("{} is stopped before {action:?}", driver.name));
            return true;
        }
        match self.execute(driver, action) {
            Progress::Same => true,
            Progress::Ended => false,
            Progress::Outcome(outcome) => {
                if !matches!(action, Action::Wait(_)) {
                    let op = short(driver.record.op.id);
                    self.note(format!("{} {op} {}: {outcome:?}", driver.name, place(driver, action)));
                }
                driver.saga.report(outcome);
                true
            }
        }
    }

    /// Writes a new map's entries, one transaction each, as its creator does. A failure leaves the rest to the
    /// resolver.
    fn stage(&mut self, driver: &mut SimDriver, mut entries: Vec<Entry>) -> bool {
        let record = driver.record.clone();
        let Some(entry) = entries.pop() else {
            let done = self.on_catalog(|tx| now(protocol::record(tx, &record, Step::Preparing, None)));
            driver.record.step = Step::Preparing;
            driver.saga = Saga::new(&driver.record);
            return done.is_ok();
        };
        driver.staging = Some(entries);
        self.on_catalog(|tx| now(protocol::stage(tx, &record, vec![entry]))).is_ok()
    }

    fn execute(&mut self, driver: &mut SimDriver, action: Action) -> Progress {
        let record = driver.record.clone();
        let message = driver.saga.message().map(str::to_owned);
        let done = match action {
            Action::Record(step) => self.on_catalog(|tx| {
                if step == Step::Departing {
                    now(moving::refuse_cancelled(tx, record.op.id))?;
                }
                now(protocol::record(tx, &record, step, message.as_deref()))
            }),
            Action::End => self.on_catalog(|tx| now(protocol::end(tx, &record))),
            Action::Carry(task) => {
                let mut moving = std::mem::take(&mut driver.moving);
                let outcome = self.carry(&record, &mut moving, task);
                driver.moving = moving;
                return outcome.map_or(Progress::Same, Progress::Outcome);
            }
            Action::Publish => self.on_catalog(|tx| now(protocol::publish(tx, &record))),
            Action::Discard => self.on_catalog(|tx| now(protocol::discard(tx, &record))),
            Action::Wait(tries) => {
                if driver.wake_at == 0 {
                    driver.wake_at = self.now_ms + (BACKOFF_MS.0 << tries.min(10)).min(BACKOFF_MS.1);
                    return Progress::Same;
                }
                driver.wake_at = 0;
                return Progress::Outcome(Outcome::Done);
            }
            Action::AwaitAcks(index, attempt) => return self.await_acks(driver, index, attempt),
            Action::Finished(_) => return Progress::Ended,
            _ => return Progress::Outcome(self.execute_on_shard(&record, action)),
        };
        self.settle();
        Progress::Outcome(match done {
            Ok(()) => Outcome::Done,
            Err(trouble) => failure(trouble, |error| matches!(error, CatalogError::Superseded(_))),
        })
    }

    fn execute_on_shard(&mut self, record: &OpRecord, action: Action) -> Outcome {
        let op = record.op_ref();
        let (Action::Prepare(index)
        | Action::Load(index)
        | Action::Raise(index)
        | Action::CheckEmpty(index)
        | Action::Depart(index, _)
        | Action::Activate(index)
        | Action::Release(index)
        | Action::Undo(index)
        | Action::ActivateFrom { gainer: index, .. }) = action
        else {
            unreachable!("only actions on shards come here")
        };
        let (id, edit) = record.op.edits[index].clone();
        let shard = self.shard_index(&id);
        let staged: Vec<Entry> = match action {
            Action::Load(_) if self.catalog_is_down() => return Outcome::Retry("the catalog is down".into()),
            Action::Load(_) => {
                self.entries(&record.op.map).into_iter().filter(|entry| entry.shard == id).collect()
            }
            _ => vec![],
        };
        // The switch waits for those who have written and not committed: they share the move's lock.
        let shared = edit.carried.is_some_and(|capture| self.is_shared(shard, capture));
        if shared && matches!(action, Action::Depart(..)) {
            return Outcome::CannotDrain("somebody is still writing".into());
        }
        let done = self.on_shard(shard, |tx| match action {
            Action::Prepare(_) => now(local::prepare(tx, op, &edit)).map(|()| Outcome::Done),
            Action::Load(_) => now(local::load(tx, op, &edit, &staged)).map(|()| Outcome::Done),
            Action::CheckEmpty(_) => now(local::check_empty(tx, op)).map(|()| Outcome::Done),
            Action::Depart(_, attempt) => now(local::depart(tx, op, attempt)).map(|()| Outcome::Done),
            Action::Activate(_) => now(local::activate(tx, op, None)).map(|()| Outcome::Done),
            Action::ActivateFrom { loser, .. } => {
                let left: Vec<KeyRange> =
                    record.op.edits[loser].1.lost.iter().map(|(range, _, _)| range.clone()).collect();
                now(local::activate(tx, op, Some(&left))).map(|()| Outcome::Done)
            }
            Action::Release(_) => now(local::release(tx, op)).map(|()| Outcome::Done),
            Action::Undo(_) => now(local::undo(tx, op)).map(|()| Outcome::Done),
            _ => now(local::raise_fence(tx, op)).map(|fence| match fence {
                Some(fence) => Outcome::Raised(fence.attempt),
                None => Outcome::AlreadyDeparted,
            }),
        });
        // The promise: where a newer driver has been, an older one does nothing.
        let row = self.shards[shard].db.state.ops.get(&op.id);
        let late = done.is_ok() && row.is_some_and(|row| row.token > op.token);
        assert!(!late, "{action:?} of {} was done for a driver that is no longer its own", short(op.id));
        match done {
            Ok(outcome) => outcome,
            Err(Trouble::Refused(ShardError::FenceBroken(_))) => Outcome::FenceBroken,
            Err(Trouble::Refused(ShardError::TailLeft(_))) => Outcome::CannotDrain("a tail is left".into()),
            Err(trouble) => failure(trouble, |error| matches!(error, ShardError::Superseded(_))),
        }
    }

    /// Lists the sessions in one step, and judges the acknowledgements in the next.
    fn await_acks(&mut self, driver: &mut SimDriver, index: usize, attempt: u64) -> Progress {
        let op = driver.record.op.id;
        let shard = self.shard_index(&driver.record.op.edits[index].0);
        let since = *driver.waiting_since.get_or_insert(self.now_ms);
        let Some(listed) = driver.listed.take() else {
            driver.listed = Some(self.sessions_of(shard));
            return Progress::Same;
        };
        let local = &mut self.shards[shard].db.state;
        let acks = now(local.acks(op)).expect("memory answers");
        let stands = local.fences.get(&op).is_some_and(|fence| fence.stands(attempt));
        let waited = Duration::from_millis((self.now_ms - since) as u64);
        let outcome = match fence::verdict(&listed, &acks, waited, FenceLimits::default()) {
            Verdict::Clear => Outcome::Done,
            Verdict::Wait => return Progress::Same,
            Verdict::GiveUp(_) => Outcome::CannotDrain("too slow".into()),
            Verdict::CutOff(_) if !stands => Outcome::FenceBroken,
            Verdict::CutOff(silent) if self.mishap(0.1) => {
                Outcome::CannotDrain(format!("sessions of {silent:?} are still there"))
            }
            Verdict::CutOff(silent) => {
                self.note(format!("{} cuts {silent:?} off s{shard}", driver.name));
                self.shards[shard].sessions.retain(|_, session| !silent.contains(&session.router));
                return Progress::Same;
            }
        };
        driver.waiting_since = None;
        Progress::Outcome(outcome)
    }

    /// Brings the model up to the operations that have come to their end.
    pub fn settle(&mut self) {
        let operations = &self.catalog.state.operations;
        let ended: Vec<(OpId, OpState)> = self
            .effects
            .keys()
            .filter_map(|id| operations.get(id).map(|record| (*id, record.state)))
            .filter(|(_, state)| *state != OpState::Running)
            .collect();
        for (id, state) in ended {
            let Some((map, effect)) = self.effects.remove(&id) else { continue };
            self.note(format!("{} is {state:?}", short(id)));
            if state == OpState::Done {
                self.model[map].apply(effect);
            }
        }
    }
}

fn failure<E: std::fmt::Display>(trouble: Trouble<E>, is_superseded: impl Fn(&E) -> bool) -> Outcome {
    match trouble {
        Trouble::Unknown => Outcome::Retry("unknown".into()),
        Trouble::Refused(error) if is_superseded(&error) => Outcome::Superseded,
        Trouble::Refused(error) => Outcome::Refused(error.to_string()),
    }
}

fn place(driver: &SimDriver, action: Action) -> String {
    let on = |index: usize| &driver.record.op.edits[index].0;
    match action {
        Action::Prepare(index) => format!("prepare on {}", on(index)),
        Action::Raise(index) => format!("raise on {}", on(index)),
        Action::AwaitAcks(index, attempt) => format!("await acks of {attempt} on {}", on(index)),
        Action::Depart(index, attempt) => format!("depart from {} under {attempt}", on(index)),
        Action::ActivateFrom { gainer, loser } => format!("activate on {} from {}", on(gainer), on(loser)),
        Action::Activate(index) => format!("activate on {}", on(index)),
        Action::Release(index) => format!("release on {}", on(index)),
        Action::Undo(index) => format!("undo on {}", on(index)),
        other => format!("{other:?}"),
    }
}

/// The number that an operation's name is made of.
pub fn short(id: OpId) -> String {
    let text = id.to_string();
    let number = u64::from_str_radix(&text[text.len() - 12..], 16).unwrap_or_default();
    format!("op{number}")
}
