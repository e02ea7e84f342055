//! The mover of the simulation, cut into steps that anything may come between; and operators who steer moves.
//!
//! What it reads and writes, and in which order, is the mover's; the saga and the transactions of catalog and shards
//! are the real ones.

use polyshard_catalog::saga::Outcome;
use polyshard_catalog::{Carry, CarryTask, MoveRequest, OpState, Step, Wish, moving, protocol};
use polyshard_shard::{OpId, OpRef, Phase, ShardError, protocol as local};
use rand::RngExt;
use uuid::Uuid;

use crate::database::{Trouble, now};
use crate::drivers::short;
use crate::model::{UNITS, Units, Wish as MapWish};
use crate::rows::{Capture, Carried, RowId};
use crate::world::World;

/// Rows of one page, notes of one batch.
const PAGE: usize = 2;
/// Batches while requests are held.
const SETTLE_BATCHES_MAX: usize = 8;

/// How far a driver is with one task.
#[derive(Debug, Clone, Default)]
pub struct Moving {
    task: Option<CarryTask>,
    stage: usize,
    /// Rows read from the source.
    page: Vec<(RowId, Option<u64>)>,
    /// Notes read from the source.
    notes: Vec<(u64, RowId)>,
    batches: usize,
    /// How many of the two shards know that it is this driver's.
    claimed: usize,
    keeping_since: Option<i64>,
}

/// What one step came to.
enum Part {
    To(usize),
    Done,
    /// Nothing to do yet.
    Wait,
    Out(Outcome),
}

type Stepped = Result<Part, Trouble<ShardError>>;

/// A move's two sides, and what it carries.
struct Sides {
    op: OpRef,
    carry: Carry,
    from: usize,
    to: usize,
    map: usize,
    units: Vec<usize>,
}

impl World {
    /// An operator begins a move of neighbouring units on one shard.
    pub fn begin_move(&mut self) {
        let map = self.rng.random_range(0..self.spaces.len());
        let from = self.rng.random_range(0..UNITS);
        let to = self.rng.random_range(from + 1..=UNITS.min(from + 3));
        let shard = self.any_shard();
        let keep_ms = if self.chance(0.4) { self.rng.random_range(1_000..20_000) } else { 0 };
        let name = self.spaces[map].name().clone();
        let request = MoveRequest {
            map: name.clone(),
            range: self.spaces[map].units(from, to),
            to: shard.clone(),
            keep_ms,
            if_version: None,
            by: None,
        };
        let [id, forward, reverse] = [(); 3].map(|()| OpId::new(Uuid::from_u128(u128::from(self.number()))));
        let driver = protocol::Driver { owner: format!("d{}", self.number()), id };
        self.catalog.decide(&mut self.rng);
        let wish = MapWish::Assign(from, to, shard);
        let effect = Units::read(&self.spaces[map], &self.entries(&name)).effect(&wish);
        self.effects.insert(id, (map, effect));
        let begun =
            self.on_catalog(|tx| now(moving::intend_move(tx, &request, None, &driver, [forward, reverse])));
        if let Ok(record) = begun {
            self.note(format!("{} begins to move {} of {name}: {wish:?}", driver.owner, short(id)));
            self.employ(driver.owner, record, None);
        }
    }

    /// An operator wants something of a move, or takes one back. What he heard of it may be old.
    pub fn steer(&mut self) {
        if let Some((id, wish, has_left)) = self.steering.take() {
            let said = self.on_catalog(|tx| now(moving::put_wish(tx, id, wish, has_left)));
            self.note(format!(
                "{wish:?} of {} is {}",
                short(id),
                if said.is_ok() { "said" } else { "refused" }
            ));
            return;
        }
        let operations = self.catalog.state.operations.values();
        let moves: Vec<_> = operations
            .filter(|record| record.state == OpState::Running && record.op.carry.is_some())
            .map(|record| (record.op.id, record.step, record.op.losers(), record.op.edits.clone()))
            .collect();
        if moves.is_empty() || self.catalog_is_down() {
            return;
        }
        if self.chance(0.5) && self.take_back_one() {
            return;
        }
        let (id, step, losers, edits) = moves[self.rng.random_range(0..moves.len())].clone();
        let wish = match self.rng.random_range(0..10) {
            0..2 => Wish::Cancel,
            2..6 => Wish::Pause,
            6..9 => Wish::Run,
            _ => Wish::Clean,
        };
        let shard = self.shard_index(&edits[losers[0]].0);
        let left = |row: &polyshard_shard::OpRow| row.phase == Phase::Departed;
        let asked = self.look_into(shard, |store| store.local.ops.get(&id).is_some_and(left));
        if let Ok(has_left) = asked {
            self.steering = Some((id, wish, step == Step::Departing && has_left));
        }
    }

    /// Undoes a move that keeps its old rows, if there is one.
    pub fn take_back_one(&mut self) -> bool {
        let operations = self.catalog.state.operations.values();
        let keeps = |record: &&polyshard_catalog::OpRecord| {
            record.step == Step::Keeping && record.op.carry.as_ref().is_some_and(|carry| carry.keep_ms > 0)
        };
        let running = operations.filter(|record| record.state == OpState::Running);
        match running.filter(keeps).map(|record| record.op.id).next() {
            Some(id) => {
                self.take_back(id);
                true
            }
            None => false,
        }
    }

    /// Undoes a move.
    fn take_back(&mut self, undone: OpId) {
        let [id, reverse] = [(); 2].map(|()| OpId::new(Uuid::from_u128(u128::from(self.number()))));
        let driver = protocol::Driver { owner: format!("d{}", self.number()), id };
        self.catalog.decide(&mut self.rng);
        let record = self.catalog.state.operations[&undone].clone();
        let carry = record.op.carry.clone().expect("it is a move");
        let map = self.map_index(&record.op.map);
        let units = self.units_of(map, &carry);
        let back = units.into_iter().map(|unit| {
            let owner =
                Units::read(&self.spaces[map], &self.entries(&record.op.map)).0.expect("there is a map");
            let (_, state) = owner[unit].clone().expect("it was moved");
            (unit, Some((carry.from.clone(), state)))
        });
        self.effects.insert(id, (map, crate::model::Effect::Some(back.collect())));
        if let Ok(record) = self.on_catalog(|tx| now(moving::intend_undo(tx, undone, &driver, reverse))) {
            self.note(format!("{} undoes {} by {}", driver.owner, short(undone), short(id)));
            self.undone += 1;
            self.employ(driver.owner, record, None);
        }
    }

    fn map_index(&self, name: &polyshard_map::MapName) -> usize {
        self.spaces.iter().position(|space| space.name() == name).expect("one of the maps")
    }

    pub fn units_of(&self, map: usize, carry: &Carry) -> Vec<usize> {
        let space = &self.spaces[map];
        let inside =
            |unit: &usize| carry.ranges.iter().any(|range| range.contains(space.bound(*unit).as_slice()));
        (0..UNITS).filter(inside).collect()
    }

    /// The next step of a task. None while it goes on.
    pub fn carry(
        &mut self,
        record: &polyshard_catalog::OpRecord,
        moving: &mut Moving,
        task: CarryTask,
    ) -> Option<Outcome> {
        let id = record.op.id;
        // Not while requests are held: nothing is asked then that can wait.
        if task != CarryTask::Settle && !self.catalog_is_down() {
            match (self.catalog.state.wishes.get(&id).copied().unwrap_or(Wish::Run), task) {
                (Wish::Cancel, task) if !task.ends() => {
                    return Some(Outcome::Refused("cancelled by an operator".into()));
                }
                (Wish::Pause, task) if task.can_pause() => return None,
                (Wish::Clean, CarryTask::Keep) => return Some(Outcome::Done),
                _ => {}
            }
        }
        if moving.task != Some(task) {
            let (claimed, keeping_since) = (moving.claimed, moving.keeping_since);
            *moving = Moving { task: Some(task), claimed, keeping_since, ..Moving::default() };
        }
        let carry = record.op.carry.clone().expect("it is a move");
        let map = self.map_index(&record.op.map);
        let sides = Sides {
            op: record.op_ref(),
            from: self.shard_index(&carry.from),
            to: self.shard_index(&carry.to),
            units: self.units_of(map, &carry),
            map,
            carry,
        };
        let outcome = match self.carry_part(&sides, moving, task) {
            Ok(Part::To(stage)) => {
                moving.stage = stage;
                return None;
            }
            Ok(Part::Wait) => return None,
            Ok(Part::Done) => Outcome::Done,
            Ok(Part::Out(outcome)) => outcome,
            Err(Trouble::Unknown) if task == CarryTask::Settle => Outcome::CannotDrain("unknown".into()),
            Err(Trouble::Unknown) => Outcome::Retry("unknown".into()),
            Err(Trouble::Refused(ShardError::Superseded(_))) => Outcome::Superseded,
            Err(Trouble::Refused(error)) => panic!("{task:?} of {}: {error}", short(id)),
        };
        moving.task = None;
        Some(outcome)
    }

    fn carry_part(&mut self, sides: &Sides, moving: &mut Moving, task: CarryTask) -> Stepped {
        if moving.claimed < 2 {
            let (shard, op) = ([sides.from, sides.to][moving.claimed], sides.op);
            self.on_store(shard, |store| now(local::claim(&mut store.local, op)))?;
            moving.claimed += 1;
            return Ok(Part::Wait);
        }
        match task {
            CarryTask::Begin => self.begin_part(sides, moving),
            CarryTask::Copy if sides.carry.filled => Ok(Part::Done),
            CarryTask::Copy => self.copy_part(sides, moving),
            CarryTask::CatchUp | CarryTask::Settle => self.catch_up_part(sides, moving, task),
            CarryTask::Verify => self.verify_part(sides, moving),
            CarryTask::Reverse if sides.carry.keep_ms == 0 => Ok(Part::Done),
            CarryTask::Reverse => self.open_capture(sides, sides.to, sides.carry.reverse, Part::Done),
            CarryTask::Keep => self.keep_part(sides, moving),
            CarryTask::Clean => self.clean_part(sides, moving),
            CarryTask::Clear => self.clear_part(sides, moving),
        }
    }

    fn begin_part(&mut self, sides: &Sides, moving: &Moving) -> Stepped {
        let (op, carry) = (sides.op, &sides.carry);
        match moving.stage {
            0 => self.announce(sides, Part::To(1)),
            1 => match carry.replaces {
                Some(replaced) => self.remove_capture(sides, sides.to, replaced, Part::To(2)),
                None => Ok(Part::To(2)),
            },
            2 => {
                let (map, units) = (sides.map, sides.units.clone());
                let (marked, rows) = self.look_into(sides.to, |store| {
                    (store.carried.contains_key(&op.id), store.of(map, &units).count())
                })?;
                if !marked && !carry.filled && rows > 0 {
                    // A second move waits for the cleaning of the first.
                    return Ok(self.is_wrong(op, &format!("s{} has rows of {units:?} already", sides.to)));
                }
                Ok(Part::To(if marked { 4 } else { 3 }))
            }
            3 => {
                self.on_store(sides.to, |store| {
                    store.check_token(op)?;
                    store.carried.entry(op.id).or_default();
                    Ok(())
                })?;
                Ok(Part::To(4))
            }
            _ => self.open_capture(sides, sides.from, carry.forward, Part::Done),
        }
    }

    fn announce(&mut self, sides: &Sides, then: Part) -> Stepped {
        let (op, reverse, map, units) = (sides.op, sides.carry.reverse, sides.map, sides.units.clone());
        self.on_store(sides.to, |store| {
            store.check_token(op)?;
            let resting = Capture { map, units, open: false, ready: false, notes: Default::default() };
            store.captures.entry(reverse).or_insert(resting);
            Ok(())
        })?;
        Ok(then)
    }

    /// Triggers are made when nobody has written to the table without committing.
    fn open_capture(&mut self, sides: &Sides, shard: usize, capture: OpId, then: Part) -> Stepped {
        if self.is_written(shard, sides.map) {
            return Ok(Part::Out(Outcome::Retry("writers are in the way".into())));
        }
        let (op, map, units) = (sides.op, sides.map, sides.units.clone());
        self.on_store(shard, |store| {
            store.check_token(op)?;
            let new = Capture { map, units, open: true, ready: false, notes: Default::default() };
            store.captures.entry(capture).or_insert(new).open = true;
            Ok(())
        })?;
        Ok(then)
    }

    fn remove_capture(&mut self, sides: &Sides, shard: usize, capture: OpId, then: Part) -> Stepped {
        if self.is_written(shard, sides.map) {
            return Ok(Part::Out(Outcome::Retry("writers are in the way".into())));
        }
        let op = sides.op;
        self.on_store(shard, |store| {
            store.check_token(op)?;
            store.captures.remove(&capture);
            Ok(())
        })?;
        Ok(then)
    }

    fn copy_part(&mut self, sides: &Sides, moving: &mut Moving) -> Stepped {
        let (op, map, units) = (sides.op, sides.map, sides.units.clone());
        match moving.stage {
            0 => {
                let carried = self.look_into(sides.to, |store| store.carried.get(&op.id).copied())?;
                let carried = carried.unwrap_or_default();
                if carried.done {
                    return Ok(Part::Done);
                }
                moving.notes = carried.after.map(|row| (0, row)).into_iter().collect();
                Ok(Part::To(1))
            }
            1 => {
                let after = moving.notes.first().map(|(_, row)| *row);
                moving.page = self.look_into(sides.from, |store| {
                    let rows =
                        store.of(map, &units).filter(|(row, _)| after.is_none_or(|after| *row > after));
                    rows.take(PAGE).map(|(row, value)| (row, Some(value))).collect()
                })?;
                Ok(Part::To(2))
            }
            _ => {
                let page = moving.page.clone();
                self.on_store(sides.to, |store| {
                    store.check_token(op)?;
                    for (row, value) in &page {
                        store.rows.insert(*row, value.expect("a page has rows"));
                    }
                    let carried = store.carried.entry(op.id).or_insert_with(Carried::default);
                    carried.after = page.last().map(|(row, _)| *row).or(carried.after);
                    carried.done = page.len() < PAGE;
                    Ok(())
                })?;
                Ok(Part::To(0))
            }
        }
    }

    fn catch_up_part(&mut self, sides: &Sides, moving: &mut Moving, task: CarryTask) -> Stepped {
        let (op, forward) = (sides.op, sides.carry.forward);
        match moving.stage {
            0 => {
                moving.notes = self.look_into(sides.from, |store| {
                    let notes = store.captures.get(&forward).map(|capture| capture.notes.clone());
                    notes.unwrap_or_default().into_iter().take(PAGE).collect()
                })?;
                if moving.notes.is_empty() {
                    return Ok(Part::Done);
                }
                moving.batches += 1;
                if task == CarryTask::Settle && moving.batches > SETTLE_BATCHES_MAX {
                    return Ok(Part::Out(Outcome::CannotDrain("too much changed at the last moment".into())));
                }
                Ok(Part::To(1))
            }
            // Read after the notes: what they are about is then seen.
            1 => {
                let rows: Vec<RowId> = moving.notes.iter().map(|(_, row)| *row).collect();
                moving.page = self.look_into(sides.from, |store| {
                    rows.iter().map(|row| (*row, store.rows.get(row).copied())).collect()
                })?;
                Ok(Part::To(2))
            }
            2 => {
                let page = moving.page.clone();
                self.on_store(sides.to, |store| {
                    store.check_token(op)?;
                    for (row, value) in &page {
                        match value {
                            Some(value) => drop(store.rows.insert(*row, *value)),
                            None => drop(store.rows.remove(row)),
                        }
                    }
                    Ok(())
                })?;
                Ok(Part::To(3))
            }
            _ => {
                let notes = moving.notes.clone();
                self.on_store(sides.from, |store| {
                    store.check_token(op)?;
                    if let Some(capture) = store.captures.get_mut(&forward) {
                        capture.notes.retain(|note, _| !notes.iter().any(|(read, _)| read == note));
                    }
                    Ok(())
                })?;
                // Little was left: that is enough while writers go on.
                Ok(if task == CarryTask::CatchUp && notes.len() < PAGE { Part::Done } else { Part::To(0) })
            }
        }
    }

    fn verify_part(&mut self, sides: &Sides, moving: &mut Moving) -> Stepped {
        let (op, forward, map, units) = (sides.op, sides.carry.forward, sides.map, sides.units.clone());
        match moving.stage {
            0 => {
                let seen = self.look_into(sides.from, |store| {
                    let rows = store.of(map, &units).map(|(row, value)| (row, Some(value))).collect();
                    let notes = store.captures.get(&forward).map(|capture| capture.notes.clone());
                    (rows, notes.unwrap_or_default().into_iter().collect())
                })?;
                (moving.page, moving.notes) = seen;
                Ok(Part::To(1))
            }
            1 => {
                let there: Vec<(RowId, Option<u64>)> = self.look_into(sides.to, |store| {
                    store.of(map, &units).map(|(row, value)| (row, Some(value))).collect()
                })?;
                let pending =
                    |(row, _): &&(RowId, Option<u64>)| !moving.notes.iter().any(|(_, noted)| noted == row);
                let here: Vec<_> = moving.page.iter().filter(pending).collect();
                let there: Vec<_> = there.iter().filter(pending).collect();
                if here != there {
                    return Ok(self.is_wrong(op, &format!("rows differ: {here:?}, {there:?}")));
                }
                Ok(Part::To(2))
            }
            _ => {
                self.on_store(sides.from, |store| {
                    store.check_token(op)?;
                    store.captures.get_mut(&forward).expect("it is open for whoever has the token").ready =
                        true;
                    Ok(())
                })?;
                Ok(Part::Done)
            }
        }
    }

    /// What must not be found; but a driver that was superseded sees what the next one does.
    fn is_wrong(&self, op: OpRef, what: &str) -> Part {
        let token = self.catalog.state.operations[&op.id].token;
        assert!(token > op.token, "{}: {what}", short(op.id));
        Part::Out(Outcome::Refused(what.to_owned()))
    }

    fn keep_part(&mut self, sides: &Sides, moving: &mut Moving) -> Stepped {
        let Some(since) = moving.keeping_since else {
            self.forget_carried(sides)?;
            moving.keeping_since = Some(self.now_ms);
            return Ok(Part::Wait);
        };
        let over = self.now_ms - since >= sides.carry.keep_ms as i64;
        Ok(if over { Part::Done } else { Part::Wait })
    }

    fn forget_carried(&mut self, sides: &Sides) -> Result<(), Trouble<ShardError>> {
        let op = sides.op;
        // The one that is undone may have ended before it came to this.
        if let Some(undone) = sides.carry.undoes {
            self.on_store(sides.from, |store| {
                store.check_token(op)?;
                store.carried.remove(&undone);
                Ok(())
            })?;
        }
        self.on_store(sides.to, |store| {
            store.check_token(op)?;
            store.carried.remove(&op.id);
            Ok(())
        })
    }

    fn clean_part(&mut self, sides: &Sides, moving: &Moving) -> Stepped {
        let (op, forward) = (sides.op, sides.carry.forward);
        match moving.stage {
            0 => {
                self.on_store(sides.from, |store| {
                    store.check_token(op)?;
                    if let Some(capture) = store.captures.get_mut(&forward) {
                        capture.open = false;
                    }
                    Ok(())
                })?;
                Ok(Part::To(1))
            }
            1 => self.remove_rows(sides, sides.from, 2),
            stage => self.drop_captures(sides, stage - 2, 2),
        }
    }

    fn clear_part(&mut self, sides: &Sides, moving: &Moving) -> Stepped {
        let op = sides.op;
        match moving.stage {
            0 => {
                let marked = self.look_into(sides.to, |store| store.carried.contains_key(&op.id))?;
                Ok(Part::To(if marked || sides.carry.filled { 1 } else { 4 }))
            }
            1 => self.announce(sides, Part::To(2)),
            2 => match sides.carry.replaces {
                Some(replaced) => self.remove_capture(sides, sides.to, replaced, Part::To(3)),
                None => Ok(Part::To(3)),
            },
            3 => self.remove_rows(sides, sides.to, 4),
            stage => self.drop_captures(sides, stage - 4, 4),
        }
    }

    /// Removes some rows, if the shard neither owns the units nor is about to.
    fn remove_rows(&mut self, sides: &Sides, shard: usize, then: usize) -> Stepped {
        let (op, map, units, ranges) = (sides.op, sides.map, sides.units.clone(), sides.carry.ranges.clone());
        let name = self.placements[map].0.clone();
        let left = self.on_store(shard, |store| {
            now(local::claim(&mut store.local, op))?;
            let here = store.local.ranges.iter().any(|((of, _), entry)| {
                *of == name && ranges.iter().any(|range| range.overlaps(&entry.entry.range))
            });
            assert!(!here, "rows of what is on s{shard} are cleaned away by {}", short(op.id));
            let some: Vec<RowId> = store.of(map, &units).take(PAGE).map(|(row, _)| row).collect();
            store.rows.retain(|row, _| !some.contains(row));
            Ok(store.of(map, &units).count())
        })?;
        Ok(if left > 0 { Part::Wait } else { Part::To(then) })
    }

    fn drop_captures(&mut self, sides: &Sides, stage: usize, base: usize) -> Stepped {
        let carry = &sides.carry;
        let next = Part::To(base + stage + 1);
        match (stage, carry.replaces) {
            (0, _) => self.remove_capture(sides, sides.from, carry.forward, next),
            (1, _) => self.remove_capture(sides, sides.to, carry.reverse, next),
            (2, Some(replaced)) => self.remove_capture(sides, sides.to, replaced, next),
            (2, None) => Ok(next),
            _ => {
                self.forget_carried(sides)?;
                Ok(Part::Done)
            }
        }
    }
}
