//! Rows on the simulated shards: who writes them, the captures that note it, and what they should be.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use polyshard_catalog::OpState;
use polyshard_map::{MapName, State};
use polyshard_shard::memory::MemoryLocal;
use polyshard_shard::{OpId, OpRef, ShardError};
use rand::RngExt;

use crate::database::{Fault, Trouble};
use crate::model::{Space, UNITS};
use crate::world::World;

/// Rows that each unit may have.
const ROWS: u8 = 3;

/// A row: its map, its unit, its number.
pub type RowId = (usize, usize, u8);

/// Notes which rows of some units change.
#[derive(Debug, Clone)]
pub struct Capture {
    pub map: usize,
    pub units: Vec<usize>,
    /// It notes; else it was only announced, or rests.
    pub open: bool,
    /// What its units held was carried and compared.
    pub ready: bool,
    pub notes: BTreeMap<u64, RowId>,
}

/// How far copying has come.
#[derive(Debug, Clone, Copy, Default)]
pub struct Carried {
    pub after: Option<RowId>,
    pub done: bool,
}

/// All that one shard keeps: the protocol's state, rows, and what moves keep beside them.
#[derive(Debug, Clone)]
pub struct Store {
    pub local: MemoryLocal,
    pub rows: BTreeMap<RowId, u64>,
    pub captures: BTreeMap<OpId, Capture>,
    pub carried: BTreeMap<OpId, Carried>,
    notes: u64,
}

/// A write that is not committed yet.
#[derive(Debug, Clone)]
pub struct OpenWrite {
    /// Its session; strangers have one that no router knows.
    session: Option<u64>,
    row: RowId,
    value: Option<u64>,
    /// The captures whose lock it shares.
    noted_by: Vec<OpId>,
}

impl Deref for Store {
    type Target = MemoryLocal;
    fn deref(&self) -> &MemoryLocal {
        &self.local
    }
}

impl DerefMut for Store {
    fn deref_mut(&mut self) -> &mut MemoryLocal {
        &mut self.local
    }
}

impl Store {
    pub fn new(local: MemoryLocal) -> Store {
        Store { local, rows: BTreeMap::new(), captures: BTreeMap::new(), carried: BTreeMap::new(), notes: 0 }
    }

    /// Tells the protocol what it asks of rows and captures.
    pub fn sync(&mut self, spaces: &[(MapName, Vec<Vec<u8>>)]) {
        let sealed = |id: &OpId| self.local.captures.get(id).is_some_and(|(_, sealed)| *sealed);
        let left =
            |capture: &Capture| capture.notes.len() as u64 + u64::from(!capture.ready || !capture.open);
        let captures = self.captures.iter().map(|(id, capture)| (*id, (left(capture), sealed(id)))).collect();
        self.local.captures = captures;
        let placement = |(map, unit, _): &RowId| (spaces[*map].0.clone(), spaces[*map].1[*unit].clone());
        self.local.held = self.rows.keys().map(placement).collect();
    }

    /// Whether the capture has been closed for good: what it watches has left.
    pub fn is_sealed(&self, capture: OpId) -> bool {
        self.local.captures.get(&capture).is_some_and(|(_, sealed)| *sealed)
    }

    /// What every write of a mover begins with.
    pub fn check_token(&self, op: OpRef) -> Result<(), ShardError> {
        match self.local.ops.get(&op.id) {
            Some(row) if row.token <= op.token => Ok(()),
            _ => Err(ShardError::Superseded(op.id)),
        }
    }

    /// The rows of some units of a map.
    pub fn of<'a>(&'a self, map: usize, units: &'a [usize]) -> impl Iterator<Item = (RowId, u64)> + 'a {
        let inside = move |row: &RowId| row.0 == map && units.contains(&row.1);
        self.rows.iter().filter(move |(row, _)| inside(row)).map(|(row, value)| (*row, *value))
    }

    fn put(&mut self, row: RowId, value: Option<u64>, noted_by: &[OpId]) {
        match value {
            Some(value) => drop(self.rows.insert(row, value)),
            None => drop(self.rows.remove(&row)),
        }
        for capture in noted_by {
            self.notes += 1;
            let capture = self.captures.get_mut(capture).expect("whoever takes it away waits for writers");
            capture.notes.insert(self.notes, row);
        }
    }
}

impl World {
    /// Names and placements of the units, for [`Store::sync`].
    pub fn placements(spaces: &[Space]) -> Vec<(MapName, Vec<Vec<u8>>)> {
        let bounds = |space: &Space| (0..UNITS).map(|unit| space.bound(unit).as_slice().to_vec()).collect();
        spaces.iter().map(|space| (space.name().clone(), bounds(space))).collect()
    }

    /// Puts the first rows of a map on its shards.
    pub fn fill(&mut self, map: usize) {
        for unit in 0..UNITS {
            let placement = self.spaces[map].bound(unit).as_slice().to_vec();
            let name = self.spaces[map].name().clone();
            let owner = |shard: &crate::world::SimShard| shard.db.state.owned(&name, &placement).is_some();
            let Some(shard) = self.shards.iter().position(owner) else { continue };
            for number in 0..ROWS {
                let value = self.number();
                self.shards[shard].db.state.rows.insert((map, unit, number), value);
                self.truth.insert((map, unit, number), value);
            }
            self.shards[shard].db.state.sync(&self.placements);
        }
    }

    /// A transaction on all that a shard keeps.
    pub fn on_store<R>(
        &mut self,
        shard: usize,
        work: impl FnOnce(&mut Store) -> Result<R, ShardError>,
    ) -> Result<R, Trouble<ShardError>> {
        let fault = self.shard_fault(shard);
        let placements = self.placements.clone();
        let reply = self.shards[shard].db.transact(&mut self.rng, fault, |store| {
            let reply = work(store)?;
            store.sync(&placements);
            Ok(reply)
        });
        if fault != Fault::None {
            self.note(format!("  fault at s{shard}: {fault:?}"));
        }
        reply
    }

    /// What a mover reads of a shard.
    pub fn look_into<R>(
        &mut self,
        shard: usize,
        work: impl FnOnce(&mut Store) -> R,
    ) -> Result<R, Trouble<ShardError>> {
        let fault = self.shard_fault(shard);
        self.shards[shard].db.look(&mut self.rng, fault, work).ok_or(Trouble::Unknown)
    }

    /// Whether somebody has written to a map's table on a shard and not committed yet: triggers are neither made nor
    /// removed then.
    pub fn is_written(&self, shard: usize, map: usize) -> bool {
        self.shards[shard].writes.iter().any(|write| write.row.0 == map)
    }

    /// Whether somebody shares the lock of a capture.
    pub fn is_shared(&self, shard: usize, capture: OpId) -> bool {
        self.shards[shard].writes.iter().any(|write| write.noted_by.contains(&capture))
    }

    /// A statement changes a row, if nobody else is at it. False if it has to wait.
    pub fn write_row(&mut self, shard: usize, session: Option<u64>, map: usize, unit: usize) -> bool {
        let row = (map, unit, self.rng.random_range(0..ROWS));
        // Strangers change rows that they have seen; else nothing could keep them from filling what has just been left.
        let is_there = self.shards[shard].db.state.rows.contains_key(&row);
        let delete = session.is_some() && self.chance(0.3);
        if session.is_none() && !is_there {
            return true;
        }
        let value = if delete { None } else { Some(self.number()) };
        self.shards[shard].db.decide(&mut self.rng);
        let other = |write: &OpenWrite| write.row == row && write.session != session;
        if self.shards[shard].writes.iter().any(other) {
            return false;
        }
        let store = &self.shards[shard].db.state;
        let watching: Vec<OpId> = store
            .captures
            .iter()
            .filter(|(_, capture)| capture.open && capture.map == map && capture.units.contains(&unit))
            .map(|(id, _)| *id)
            .collect();
        if watching.iter().any(|id| store.is_sealed(*id)) {
            assert!(session.is_none(), "a router's client writes what has left s{shard}");
            return true;
        }
        self.shards[shard].writes.push(OpenWrite { session, row, value, noted_by: watching });
        true
    }

    /// A session commits what it has written.
    pub fn commit_rows(&mut self, shard: usize, session: Option<u64>) {
        if !self.shards[shard].writes.iter().any(|write| write.session == session) {
            return;
        }
        self.shards[shard].db.decide(&mut self.rng);
        let all = std::mem::take(&mut self.shards[shard].writes);
        let (mine, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|write| write.session == session);
        self.shards[shard].writes = others;
        for write in mine {
            let OpenWrite { row, value, noted_by, .. } = write;
            let store = &mut self.shards[shard].db.state;
            let late = noted_by.iter().any(|capture| store.is_sealed(*capture));
            assert!(!late, "{row:?} is changed on s{shard} after it has left");
            store.put(row, value, &noted_by);
            match value {
                Some(value) => drop(self.truth.insert(row, value)),
                None => drop(self.truth.remove(&row)),
            }
        }
        self.shards[shard].db.state.sync(&self.placements);
        self.shards[shard].db.commits += 1;
    }

    /// Sessions that are gone take what they have not committed with them.
    pub fn forget_writes(&mut self) {
        for shard in &mut self.shards {
            let sessions = &shard.sessions;
            shard.writes.retain(|write| write.session.is_none_or(|id| sessions.contains_key(&id)));
        }
    }

    /// Somebody whom no router knows, with `psql`: he begins to write a row, or commits, or gives up.
    pub fn stray(&mut self) {
        let any = (
            self.rng.random_range(0..self.shards.len()),
            self.rng.random_range(0..self.spaces.len()),
            self.rng.random_range(0..UNITS),
        );
        // Mostly where a move is under way: a write racing its fence.
        let (shard, map, unit) = match self.moving_unit() {
            Some(moving) if self.chance(0.7) => moving,
            _ => any,
        };
        if self.now_ms < self.shards[shard].down_until {
            return;
        }
        if self.shards[shard].writes.iter().any(|write| write.session.is_none()) {
            match self.chance(0.8) {
                true => self.commit_rows(shard, None),
                false => self.shards[shard].writes.retain(|write| write.session.is_some()),
            }
            return;
        }
        let (name, placement) = &self.placements[map];
        let owned = self.shards[shard].db.state.owned(name, &placement[unit]);
        if owned.is_some_and(|entry| entry.state == State::Online) {
            self.write_row(shard, None, map, unit);
        }
    }

    /// The source of a move under way, with a unit that is to leave it.
    fn moving_unit(&mut self) -> Option<(usize, usize, usize)> {
        let operations = self.catalog.state.operations.values();
        let mut moving = Vec::new();
        for record in operations.filter(|record| record.state == OpState::Running) {
            let Some(carry) = &record.op.carry else { continue };
            let map = self.spaces.iter().position(|space| *space.name() == record.op.map)?;
            let units = self.units_of(map, carry).into_iter();
            moving.extend(units.map(|unit| (self.shard_index(&carry.from), map, unit)));
        }
        let at = self.rng.random_range(0..moving.len().max(1));
        moving.get(at).copied()
    }

    /// Whoever owns a unit has all its rows, as they were last committed.
    pub fn check_rows(&self) {
        for (index, shard) in self.shards.iter().enumerate() {
            for (map, (name, placements)) in self.placements.iter().enumerate() {
                for (unit, placement) in placements.iter().enumerate() {
                    if shard.db.state.owned(name, placement).is_none() {
                        continue;
                    }
                    let rows: Vec<(RowId, u64)> = shard.db.state.of(map, &[unit]).collect();
                    let wanted: Vec<(RowId, u64)> = self
                        .truth
                        .range((map, unit, 0)..=(map, unit, u8::MAX))
                        .map(|(row, value)| (*row, *value))
                        .collect();
                    assert_eq!(rows, wanted, "rows of unit {unit} of {name} on its owner s{index}");
                }
            }
        }
    }

    /// Nothing is left of any move, and no row is anywhere but on its owner.
    pub fn check_rows_end(&self) {
        self.check_rows();
        for (index, shard) in self.shards.iter().enumerate() {
            let store = &shard.db.state;
            assert!(store.captures.is_empty(), "captures are left on s{index}: {:?}", store.captures);
            assert!(store.carried.is_empty(), "a position is left on s{index}: {:?}", store.carried);
            for (map, unit, number) in store.rows.keys() {
                let (name, placements) = &self.placements[*map];
                let owned = store.owned(name, &placements[*unit]).is_some();
                assert!(owned, "row {number} of unit {unit} of {name} is left on s{index}");
            }
        }
    }
}
