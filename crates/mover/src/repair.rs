//! Puts rows right that are on shards which do not own them: what the owner lacks is carried to it, what it has is
//! removed, and what cannot be decided stays, hidden from requests, and is counted.
//!
//! Nothing is removed that the owner does not have or has not taken, unless the operator says so. Each write proves in
//! its own transaction who owns the range and that no other repair has begun, and the owner notes what it takes
//! together with the rows: so it can be stopped anywhere and begun again, and brings nothing back that was deleted
//! meanwhile.

use std::collections::BTreeMap;

use async_recursion::async_recursion as boxed;
use polyshard_catalog::Carry;
use polyshard_engine::{Access, Rows, Statement, Value};
use polyshard_map::{Entry, Epoch, KeyRange, MapDefinition, ShardId};
use polyshard_shard::{Dataset, OpId, OpRef, RowKey, Shard, StrayKind, StrayRow, Taken, whole_name};
use serde::{Deserialize, Serialize};

use crate::carry::Mover;
use crate::error::{MoveError, Result, shard};
use crate::misplaced::{Owners, point, strays};
use crate::session::Session;
use crate::table::rows_of;
use crate::taken::{Holder, Notes};

/// Rows looked at at once, and written by one transaction: others' protocol waits for it.
const PAGE_ROWS: usize = 256;
/// Placements that are looked at together: each is a condition of every statement.
const PLACEMENTS_AT_ONCE: usize = 64;
/// Keys of old rows that are shown of each dataset: enough to look some up.
const EXAMPLES_MAX: usize = 10;

/// How rows are put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repair {
    /// Only look, and count.
    pub dry_run: bool,
    /// Where it cannot be decided, the owner is right: rows that differ from its own, and those that a move has left
    /// and that it has no more, are removed.
    pub owner_wins: bool,
    /// What becomes of rows from before their range went elsewhere, where the owner has none.
    pub old: OldRows,
}

/// What becomes of rows that are from before their range went elsewhere, if the owner has no row of their key: it was
/// deleted there, or has never come there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OldRows {
    /// They stay where they are, hidden.
    #[default]
    Leave,
    /// They are carried to the owner.
    Carry,
    /// They are removed.
    Remove,
}

/// What was done, or would be, with the rows of a dataset on a shard that does not own them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Carried to the owner, which lacked them, and removed here.
    pub moved: u64,
    /// Removed here: the owner has the same.
    pub removed: u64,
    /// Removed here because the owner is right.
    pub discarded: u64,
    /// Left: the owner has another row of that key.
    pub differs: u64,
    /// Left: they are from before their range went elsewhere, and the owner has no row of that key.
    pub old: u64,
    /// Left: no shard owns their key.
    pub homeless: u64,
    /// Left: the owner refuses them, or other rows that stay refer to them.
    pub stuck: u64,
    /// Left: an operation under way has to do with their range.
    pub moving: u64,
    /// The keys of some of the old rows that are left, for people.
    pub examples: Vec<String>,
}

impl Repaired {
    /// Rows that stay where they are, but for those of operations under way.
    pub fn left(&self) -> u64 {
        self.differs + self.old + self.homeless + self.stuck
    }
}

impl std::fmt::Display for Repaired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = [
            (self.moved, "moved to their owner"),
            (self.removed, "removed, since the owner has the same"),
            (self.discarded, "removed, since the owner is right"),
            (self.differs, "left: the owner has them otherwise"),
            (self.old, "left: from before their range went elsewhere, and the owner has none"),
            (self.homeless, "left: no shard owns their key"),
            (self.stuck, "left: the owner refuses them, or others refer to them"),
            (self.moving, "left to the operation under way"),
        ];
        let mut first = true;
        for (rows, what) in words.into_iter().filter(|(rows, _)| *rows > 0) {
            let comma = if std::mem::take(&mut first) { "" } else { ", " };
            write!(f, "{comma}{rows} {what}")?;
        }
        Ok(())
    }
}

/// What a row is, compared with the owner's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Same,
    Missing,
    Differs,
    /// It was carried to the owner, whatever its client has made of it there since.
    Taken,
}

impl Mover {
    /// Puts the rows of a map right that one shard has and does not own; answers what was done with each dataset's.
    /// `busy` are the ranges of operations under way, `shards` all there are, and `mark` a fresh name: whatever was
    /// begun before by another is refused from then on.
    #[boxed]
    pub async fn repair(
        &self,
        definition: &MapDefinition,
        (entries, busy, shards): (&[Entry], &[KeyRange], &[ShardId]),
        on: &ShardId,
        how: Repair,
        mark: OpId,
    ) -> Result<BTreeMap<String, Repaired>> {
        let opened = shard(self.shards(), on).await?;
        let wrong = MoveError::on(on);
        let owners = Owners::new(entries);
        let claim = (!how.dry_run).then_some(mark);
        // Before anything is read.
        let holders = Notes { on: &opened, definition, claim }.holders(self.shards(), shards).await?;
        let mut tally: BTreeMap<String, Repaired> = BTreeMap::new();
        let mut todo: BTreeMap<Vec<u8>, KeyRange> = BTreeMap::new();
        let mut is_all = true;
        // All tables, since one may refer to another; and of a table that several datasets share those that have any.
        let mut datasets = Vec::new();
        let mut all_found = Vec::new();
        for table in opened.tables(definition.name()).await.map_err(&wrong)? {
            let found = strays(&opened, &table, definition, &owners).await?;
            match table.is_of_map() {
                true => datasets.extend(found.iter().map(|(dataset, _)| dataset.clone())),
                false => datasets.push(table),
            }
            all_found.extend(found);
        }
        for (dataset, found) in all_found {
            is_all &= found.rows == found.placements.values().sum::<u64>();
            for (placement, rows) in found.placements {
                let of = tally.entry(whole_name(&dataset.name).to_owned()).or_default();
                if busy.iter().any(|range| range.contains(&placement)) {
                    of.moving += rows;
                } else if owners.of(&placement).is_none() {
                    of.homeless += rows;
                    todo.insert(placement.clone(), point(&placement));
                } else {
                    todo.insert(placement.clone(), point(&placement));
                }
            }
        }
        let marked = opened.strays(definition.name()).await.map_err(&wrong)?;
        let ranges: Vec<KeyRange> = todo.values().cloned().collect();
        if !how.dry_run && !ranges.is_empty() {
            opened.hide_strays(mark, definition.name(), &ranges).await.map_err(&wrong)?;
            self.pass("repair_hide.after")?;
        }
        let job = Job { mover: self, definition, on, how, mark, holders, datasets };
        for ((owner, kind), ranges) in by_owner(&todo, &owners, &marked) {
            for ranges in ranges.chunks(PLACEMENTS_AT_ONCE) {
                let mut part = Part::new(&job, &owner, ranges, kind).await?;
                part.go(&mut tally).await?;
            }
        }
        let is_clean = is_all && tally.values().all(|of| of.left() + of.moving == 0);
        if !how.dry_run && is_clean && !(marked.is_empty() && ranges.is_empty()) {
            opened.unmark_strays(mark, definition.name()).await.map_err(&wrong)?;
        }
        Ok(tally)
    }
}

/// Ranges by their owner, and by what is known of them: the most careful of what is.
fn by_owner(
    todo: &BTreeMap<Vec<u8>, KeyRange>,
    owners: &Owners<'_>,
    marked: &[(StrayKind, KeyRange)],
) -> BTreeMap<(ShardId, StrayKind), Vec<KeyRange>> {
    let mut out: BTreeMap<(ShardId, StrayKind), Vec<KeyRange>> = BTreeMap::new();
    for (placement, range) in todo {
        let Some(owner) = owners.of(placement) else { continue };
        let is = |kind| marked.iter().any(|(other, range)| *other == kind && range.contains(placement));
        let known = [StrayKind::Stale, StrayKind::Left].into_iter().find(|kind| is(*kind));
        out.entry((owner.clone(), known.unwrap_or(StrayKind::Unknown))).or_default().push(range.clone());
    }
    out
}

/// What is put right on one shard.
struct Job<'a> {
    mover: &'a Mover,
    definition: &'a MapDefinition,
    on: &'a ShardId,
    how: Repair,
    mark: OpId,
    /// Those who have taken rows of the shard and not forgotten them.
    holders: Vec<Holder>,
    /// The datasets that have rows to be put right, and the tables that these may refer to.
    datasets: Vec<Dataset>,
}

/// Some ranges of one shard that another owns.
struct Part<'a> {
    job: &'a Job<'a>,
    session: Session,
    /// What is known of the ranges. What the owner lacks of those that a move has left was deleted there; of stale ones
    /// nobody knows whether it was or has never come there.
    kind: StrayKind,
}

impl<'a> Part<'a> {
    async fn new(
        job: &'a Job<'a>,
        owner: &ShardId,
        ranges: &[KeyRange],
        kind: StrayKind,
    ) -> Result<Part<'a>> {
        let none = OpId::new(Default::default());
        let carry = Carry {
            from: job.on.clone(),
            to: owner.clone(),
            ranges: ranges.to_vec(),
            forward: none,
            reverse: none,
            keep_ms: 0,
            filled: false,
            undoes: None,
            replaces: None,
        };
        let op = OpRef { id: none, epoch: Epoch::ZERO, token: 0 };
        let mut session = Session::new(job.mover.shards(), op, carry, job.definition.clone()).await?;
        match job.how.dry_run {
            true => session.read_what_is_there(job.datasets.clone()).await?,
            false => drop(session.adopt(job.datasets.clone()).await?),
        }
        // One of an earlier version has no place for the notes.
        session.target.ensure_move_tables().await.map_err(MoveError::on(owner))?;
        Ok(Part { job, session, kind })
    }

    /// Whether what the owner lacks may have been deleted there, and is not carried to it.
    fn is_old(&self) -> bool {
        self.kind != StrayKind::Unknown && self.job.how.old != OldRows::Carry
    }

    /// Whether what the owner lacks is removed.
    fn drops_old(&self) -> bool {
        let told =
            self.job.how.owner_wins && self.kind == StrayKind::Left || self.job.how.old == OldRows::Remove;
        self.is_old() && told
    }

    /// Whether rows of a table may refer to others of it.
    fn is_its_own_parent(&self, table: usize) -> bool {
        let pair = &self.session.tables[table];
        pair.references.contains(&pair.identity)
    }

    /// Whether nothing refers to a table, so that its rows can go as they are.
    fn is_leaf(&self, table: usize) -> bool {
        let pair = &self.session.tables[table];
        !pair.is_referred_to
            && !self.session.tables.iter().any(|other| other.references.contains(&pair.identity))
    }

    /// What a unit is of, to people.
    fn dataset(&self, unit: usize) -> String {
        whole_name(&self.session.units[unit].dataset.name).to_owned()
    }

    async fn go(&mut self, tally: &mut BTreeMap<String, Repaired>) -> Result<()> {
        // Rows that others refer to come first, and go last.
        for unit in 0..self.session.units.len() {
            let of = tally.entry(self.dataset(unit)).or_default();
            self.give(unit, of).await?;
        }
        let mut stays: Vec<String> = Vec::new();
        for unit in (0..self.session.units.len()).rev() {
            let number = self.session.units[unit].table;
            let table = &self.session.tables[number];
            let (identity, references) = (table.identity.clone(), table.references.clone());
            // What is removed may take along, by a cascade, what refers to it and should stay.
            let is_needed =
                stays.contains(&identity) || self.is_its_own_parent(number) && self.keeps_any(number).await?;
            let of = tally.entry(self.dataset(unit)).or_default();
            let before = of.left();
            self.take_away(unit, is_needed, of).await?;
            if of.left() > before {
                stays.extend(references);
            }
        }
        Ok(())
    }

    /// Whether any row of a table is one that stays.
    async fn keeps_any(&self, table: usize) -> Result<bool> {
        let (dry, wins) = (self.job.how.dry_run, self.job.how.owner_wins);
        let stays = |verdict: Verdict| match verdict {
            Verdict::Same | Verdict::Taken => false,
            Verdict::Differs => !wins,
            Verdict::Missing if self.is_old() => !self.drops_old(),
            Verdict::Missing => !dry,
        };
        let units = &self.session.units;
        for unit in (0..units.len()).filter(|unit| units[*unit].table == table) {
            let mut after = None;
            while let Some(page) = self.page(unit, &mut after).await? {
                if page.iter().any(|(_, verdict)| stays(*verdict)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Carries what the owner lacks to it.
    async fn give(&self, unit: usize, of: &mut Repaired) -> Result<()> {
        if self.job.how.dry_run || self.is_old() {
            return Ok(());
        }
        loop {
            let given = self.give_once(unit, of).await?;
            // A row that comes before the one it refers to is taken when that is there.
            if given == 0 || !self.is_its_own_parent(self.session.units[unit].table) {
                return Ok(());
            }
        }
    }

    /// Likewise, in one pass; answers how many rows were given.
    async fn give_once(&self, unit: usize, of: &mut Repaired) -> Result<u64> {
        let (session, mut given) = (&self.session, 0);
        let table = session.units[unit].table;
        let mut after = None;
        while let Some(page) = self.page(unit, &mut after).await? {
            let missing: Vec<Vec<Value>> = page
                .into_iter()
                .filter(|(_, verdict)| *verdict == Verdict::Missing)
                .map(|(row, _)| row)
                .collect();
            if missing.is_empty() {
                continue;
            }
            self.job.mover.pass("repair_put.before")?;
            let put = match self.put(table, &missing).await {
                Ok(()) => missing,
                // One by one: those that fit come, the others stay where they are.
                Err(error) if error.is_rule() => {
                    let mut put = Vec::new();
                    for row in missing {
                        match self.put(table, std::slice::from_ref(&row)).await {
                            Err(error) if error.is_rule() => {}
                            other => other.map(|()| put.push(row))?,
                        }
                    }
                    put
                }
                Err(error) => return Err(error),
            };
            self.job.mover.pass("repair_put.after")?;
            given += put.len() as u64;
            // Rows that others refer to go when those have gone.
            if self.is_leaf(table) {
                let put: Vec<(Vec<Value>, Verdict)> =
                    put.into_iter().map(|row| (row, Verdict::Taken)).collect();
                let kept = self.remove(unit, &put).await?.len();
                of.moved += (put.len() - kept) as u64;
            }
        }
        Ok(given)
    }

    /// Writes rows to the owner, and with them that it has taken them.
    async fn put(&self, table: usize, rows: &[Vec<Value>]) -> Result<()> {
        let session = &self.session;
        let (owner, side) = (&session.target, &session.tables[table].to);
        let statements = side.inserts(rows);
        let taken: Vec<Taken> = rows.iter().map(|row| session.note_of(table, row)).collect();
        let ranges = (session.definition.name(), session.carry.ranges.as_slice());
        let taken = (session.source.id(), side.table.as_str(), taken.as_slice());
        owner.take_strays(self.job.mark, ranges, statements, taken).await.map_err(MoveError::on(owner.id()))
    }

    /// Removes what the owner has, and counts the rest.
    async fn take_away(&self, unit: usize, is_needed: bool, of: &mut Repaired) -> Result<()> {
        let (dry, wins) = (self.job.how.dry_run, self.job.how.owner_wins);
        let side = &self.session.tables[self.session.units[unit].table].from;
        let mut after = None;
        while let Some(page) = self.page(unit, &mut after).await? {
            let mut goes: Vec<(Vec<Value>, Verdict)> = Vec::new();
            for (row, verdict) in page {
                match verdict {
                    _ if is_needed => of.stuck += 1,
                    Verdict::Same | Verdict::Taken => goes.push((row, verdict)),
                    Verdict::Missing if dry && !self.is_old() => of.moved += 1,
                    Verdict::Differs if wins => goes.push((row, verdict)),
                    Verdict::Missing if self.drops_old() => goes.push((row, verdict)),
                    Verdict::Differs => of.differs += 1,
                    Verdict::Missing if self.is_old() => {
                        of.old += 1;
                        if of.examples.len() < EXAMPLES_MAX {
                            of.examples.push(side.shown(&side.key_of(&row)));
                        }
                    }
                    Verdict::Missing => of.stuck += 1,
                }
            }
            let kept = match dry {
                true => Vec::new(),
                false => self.remove(unit, &goes).await?,
            };
            for (place, (_, verdict)) in goes.iter().enumerate() {
                match verdict {
                    _ if kept.contains(&place) => of.stuck += 1,
                    Verdict::Taken => of.moved += 1,
                    Verdict::Same => of.removed += 1,
                    Verdict::Missing | Verdict::Differs => of.discarded += 1,
                }
            }
        }
        Ok(())
    }

    /// Removes rows here that are still what they were; answers the places of those that stay. When they are gone,
    /// nobody needs to know any more that the owner has taken them.
    async fn remove(&self, unit: usize, rows: &[(Vec<Value>, Verdict)]) -> Result<Vec<usize>> {
        let kept = self.remove_all(unit, rows).await?;
        self.job.mover.pass("repair_remove.after")?;
        let gone = rows
            .iter()
            .enumerate()
            .filter(|(place, (_, verdict))| *verdict == Verdict::Taken && !kept.contains(place));
        let gone: Vec<&[Value]> = gone.map(|(_, (row, _))| row.as_slice()).collect();
        let (session, mark, table) = (&self.session, self.job.mark, self.session.units[unit].table);
        session.forget_taken(mark, table, &gone).await?;
        for holder in self.job.holders.iter().filter(|_| !gone.is_empty()) {
            holder.forget(session, mark, table, &gone).await?;
        }
        Ok(kept)
    }

    async fn remove_all(&self, unit: usize, rows: &[(Vec<Value>, Verdict)]) -> Result<Vec<usize>> {
        let on = &self.session.source;
        let places: Vec<usize> = (0..rows.len()).collect();
        match self.remove_some(unit, rows, &places).await {
            Ok(kept) => Ok(kept),
            // Rows of a table may refer to each other: one by one, as far as it goes.
            Err(error) if error.is_rule() => {
                let mut kept = Vec::new();
                for place in places.into_iter().rev() {
                    match self.remove_some(unit, rows, &[place]).await {
                        Err(error) if error.is_rule() => kept.push(place),
                        other => kept.extend(other?),
                    }
                }
                tracing::debug!(shard = %on.id(), kept = kept.len(), "rows that others refer to stay");
                Ok(kept)
            }
            Err(error) => Err(error),
        }
    }

    async fn remove_some(
        &self,
        unit: usize,
        rows: &[(Vec<Value>, Verdict)],
        places: &[usize],
    ) -> Result<Vec<usize>> {
        let session = &self.session;
        let (on, table) = (&session.source, session.units[unit].table);
        let side = &session.tables[table].from;
        let strays = places.iter().map(|place| {
            let key = side.key_of(&rows[*place].0);
            StrayRow { read: side.by_key_locked(&key), delete: side.delete(&key) }
        });
        let ranges = (session.definition.name(), session.carry.ranges.as_slice());
        let is_same = |index: usize, now: &[Value]| session.is_same_here(table, &rows[places[index]].0, now);
        let kept = on.remove_strays(self.job.mark, ranges, strays.collect(), is_same).await;
        let kept = kept.map_err(MoveError::on(on.id()))?;
        Ok(kept.into_iter().map(|index| places[index]).collect())
    }

    /// The next rows here, each compared with the owner's; none when there are no more.
    async fn page(
        &self,
        unit: usize,
        after: &mut Option<RowKey>,
    ) -> Result<Option<Vec<(Vec<Value>, Verdict)>>> {
        let session = &self.session;
        let (table, number) = (session.units[unit].table, session.units[unit].number);
        let pair = &session.tables[table];
        let page = pair.from.page(number, after.as_ref(), None, Some(PAGE_ROWS));
        let here = session.page_of(true, page, PAGE_ROWS).await?;
        let Some(last) = here.last() else { return Ok(None) };
        *after = Some(pair.from.position(last));
        let owner: &Shard = &session.target;
        let wrong = MoveError::engine(owner.id());
        let mut statements: Vec<Statement> =
            here.iter().map(|row| pair.to.by_key(&pair.from.key_of(row))).collect();
        statements.extend(here.iter().map(|row| session.select_taken(table, row)));
        let db = owner.carrier().await.map_err(MoveError::on(owner.id()))?;
        let mut tx = db.begin(Access::Read).await.map_err(&wrong)?;
        let mut answers = tx.run_all(statements).await.map_err(&wrong)?;
        tx.rollback().await.map_err(&wrong)?;
        let noted = answers.split_off(here.len());
        let mut taken: Vec<bool> =
            here.iter().zip(&noted).map(|(row, noted)| session.is_taken(table, row, noted)).collect();
        for holder in &self.job.holders {
            for (place, is) in holder.taken(session, table, &here).await?.into_iter().flatten().enumerate() {
                taken[place] |= is;
            }
        }
        // The shard may have got rows of old ranges by right after they were taken: they may be the only ones.
        let counts = self.kind == StrayKind::Unknown || self.job.how.old == OldRows::Carry;
        let judge = |row: Vec<Value>, (answer, taken): (Rows, bool)| {
            let there: Option<Vec<Value>> = rows_of(answer).into_iter().next();
            let verdict = match &there {
                _ if taken && counts => Verdict::Taken,
                None => Verdict::Missing,
                Some(there) if session.is_same(table, Some(&row), Some(there)) => Verdict::Same,
                Some(_) => Verdict::Differs,
            };
            (row, verdict)
        };
        let answers = answers.into_iter().zip(taken);
        Ok(Some(here.into_iter().zip(answers).map(|(row, answer)| judge(row, answer)).collect()))
    }
}
