//! Removes rows of pages that neither the blob nor one of its snapshots sees any more, while others of the same content
//! are still in use: those of a deleted snapshot that were written again since, and those below a hole.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::bits::Bits;
use super::rows::{UnitState, View, find_history, is_any_below, read_history, remove, set_written};
use crate::model::{Blob, BlobKind};
use crate::store::home::{Change, Home};
use crate::store::rows::{Step, read_blob};
use crate::store::statements::texts;
use crate::store::{BlobStore, StoreError};

/// Rows that are looked at together, and removed in one transaction.
const ROWS_MAX: usize = 500;
/// Steps of one content in one round: 32 GiB of pages.
const STEPS_MAX: u32 = 1000;
/// Snapshots of a blob at most: with more, its rows stay until some of them are deleted.
const VIEWS_MAX: usize = 2000;
/// How often a step is tried while others write the blob.
const TRIES_MAX: u32 = 5;

/// The unit and generation of a row.
pub(in crate::store) type Place = (u64, i64);
/// Before the first row.
pub(in crate::store) const START: Place = (0, -1);

impl BlobStore {
    /// Removes what nobody sees, in bounded steps, after a row. Answers the row after which the next round goes on, or
    /// none if all rows were looked at.
    pub(in crate::store) async fn prune_pages(
        &self,
        home: &Home,
        content: i64,
        mut after: Place,
    ) -> Result<Option<Place>, StoreError> {
        let mut tries = 0;
        for _ in 0..STEPS_MAX {
            match self.prune_step(home, content, after).await? {
                Some(ControlFlow::Break(())) => return Ok(None),
                Some(ControlFlow::Continue(next)) => (after, tries) = (next, 0),
                None if tries == TRIES_MAX => break,
                None => tries += 1,
            }
        }
        Ok(Some(after))
    }

    /// One step. None if the blob was changed meanwhile, so that nothing was removed.
    async fn prune_step(
        &self,
        home: &Home,
        content: i64,
        after: Place,
    ) -> Result<Option<ControlFlow<(), Place>>, StoreError> {
        let seers = self.seers(home, content).await?;
        if seers.len() > VIEWS_MAX || seers.iter().any(|seer| seer.kind != BlobKind::Page) {
            return Ok(Some(ControlFlow::Break(())));
        }
        let all = View { content, generation: i64::MAX, holes: &[] };
        let rows = self.read(home, find_history(home, &all, after, i64::MAX as u64, ROWS_MAX)).await?;
        let rows = read_history(&rows)?;
        let is_last = rows.len() < ROWS_MAX;
        let plan = Plan::of(&rows, is_last, &seers);
        let base = seers.iter().find(|seer| seer.snapshot == 0);
        if !self.write_pruned(home, base, plan.steps(home, content)).await? {
            return Ok(None);
        }
        if !is_last {
            // The last row is looked at again: what follows decides whether it is seen.
            let before_last = &rows[rows.len() - 2];
            return Ok(Some(ControlFlow::Continue((before_last.unit, before_last.generation))));
        }
        self.drop_holes(home, content).await?;
        Ok(Some(ControlFlow::Break(())))
    }

    /// All rows of the name that have this content, also deleted ones.
    async fn seers(&self, home: &Home, content: i64) -> Result<Vec<Blob>, StoreError> {
        let step = Step::new(home, |dialect| texts(dialect).of_content.clone());
        let rows = self.read(home, step.bind(content).bind(VIEWS_MAX as i64 + 1)).await?;
        Ok(rows.iter().map(read_blob).collect::<Result<_, _>>()?)
    }

    /// Writes together with the blob's row, if it has the content: then no snapshot was taken and no page written since
    /// it was read. Without it, snapshots of this content can only be deleted.
    async fn write_pruned(
        &self,
        home: &Home,
        base: Option<&Blob>,
        steps: Vec<Step>,
    ) -> Result<bool, StoreError> {
        if steps.is_empty() {
            return Ok(true);
        }
        match base {
            Some(base) => {
                let _turn = self.turn(home).await;
                let change = Change::new(base.clone()).after(steps);
                Ok(self.put_row(home, Some(base), change).await?.is_some())
            }
            None => Ok(self.write(home, steps).await?.is_some()),
        }
    }

    /// Forgets the holes of a blob that hide nothing any more. One that is written meanwhile keeps them for now.
    async fn drop_holes(&self, home: &Home, content: i64) -> Result<(), StoreError> {
        let seers = self.seers(home, content).await?;
        let Some(base) = seers.into_iter().find(|seer| seer.snapshot == 0) else { return Ok(()) };
        let mut blob = base.clone();
        blob.props.holes.clear();
        for hole in &base.props.holes {
            if !self.read(home, is_any_below(home, content, hole)).await?.is_empty() {
                blob.props.holes.push(hole.clone());
            }
        }
        if blob.props.holes.len() < base.props.holes.len() {
            self.put_row(home, Some(&base), Change::new(blob)).await?;
        }
        Ok(())
    }
}

/// What becomes of some rows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Rows that go.
    unseen: Vec<Place>,
    /// Rows that take over what those before them say was written: a later list of changes asks for it.
    written: BTreeMap<Place, Bits>,
}

impl Plan {
    /// Of rows in order. The one after the last of them is not known unless there is none.
    fn of(rows: &[UnitState], is_last: bool, seers: &[Blob]) -> Plan {
        let mut plan = Plan::default();
        let mut taken = Bits::NONE;
        for (at, row) in rows.iter().enumerate() {
            let place = (row.unit, row.generation);
            let next = rows.get(at + 1);
            let follower = next.filter(|next| next.unit == row.unit);
            let written = row.written.or(std::mem::take(&mut taken));
            let is_known = next.is_some() || is_last;
            if is_known && !is_seen(row, follower.map(|next| next.generation), seers) {
                plan.unseen.push(place);
                taken = if follower.is_some() { written } else { Bits::NONE };
            } else if written != row.written {
                plan.written.insert(place, written);
            }
        }
        plan
    }

    fn steps(&self, home: &Home, content: i64) -> Vec<Step> {
        let removed = self.unseen.iter().map(|place| remove(home, content, *place));
        let written = self.written.iter().map(|(place, bits)| set_written(home, content, *place, *bits));
        removed.chain(written).collect()
    }
}

/// Whether a row is the last one of its unit for somebody, and is not hidden there.
fn is_seen(row: &UnitState, next: Option<i64>, seers: &[Blob]) -> bool {
    let is_last_for = |seer: &&Blob| next.is_none_or(|next| seer.generation < next);
    seers.iter().filter(is_last_for).any(|seer| View::of(seer).sees(row.unit, row.generation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Hole;
    use crate::name::{BlobName, ContainerName};
    use crate::store::items::fresh;

    fn row(unit: u64, generation: i64, written: (u32, u32)) -> UnitState {
        let bits = Bits::range(written.0, written.1);
        UnitState { unit, generation, valid: bits, written: bits }
    }

    fn seer(generation: i64, holes: &[(i64, u64, u64)]) -> Blob {
        let name = BlobName::new(ContainerName::new("acct", "box").unwrap(), "disk").unwrap();
        let mut blob = fresh(&name, BlobKind::Page, None, 1);
        blob.generation = generation;
        let hole =
            |(generation, from, to): &(i64, u64, u64)| Hole { generation: *generation, from: *from, to: *to };
        blob.props.holes = holes.iter().map(hole).collect();
        blob
    }

    #[test]
    fn rows_that_nobody_sees_go_and_what_they_say_of_writes_stays() {
        let rows =
            [row(1, 0, (0, 1)), row(1, 2, (1, 2)), row(1, 3, (2, 3)), row(1, 5, (3, 4)), row(2, 1, (0, 1))];
        let plan = Plan::of(&rows, true, &[seer(1, &[]), seer(5, &[])]);
        assert_eq!(plan.unseen, [(1, 2), (1, 3)]);
        assert_eq!(plan.written, BTreeMap::from([((1, 5), Bits::range(1, 4))]));
        let all_seen = Plan::of(&rows, true, &[0, 2, 4, 5].map(|generation| seer(generation, &[])));
        assert_eq!(all_seen, Plan::default());
    }

    #[test]
    fn rows_below_a_hole_go_unless_a_snapshot_sees_them() {
        let rows = [row(1, 0, (0, 1)), row(1, 3, (1, 2)), row(4, 2, (0, 1)), row(9, 0, (0, 1))];
        let hole = [(3, 0, 5)];
        assert_eq!(Plan::of(&rows, true, &[seer(3, &hole)]).unseen, [(1, 0), (4, 2)]);
        assert_eq!(Plan::of(&rows, true, &[seer(1, &[]), seer(3, &hole)]).unseen, [(4, 2)]);
        assert_eq!(Plan::of(&rows, true, &[seer(2, &[]), seer(3, &hole)]).unseen, []);
    }

    #[test]
    fn the_last_row_of_a_part_waits_for_the_next_part() {
        let rows = [row(1, 0, (0, 1)), row(1, 1, (1, 2))];
        let plan = Plan::of(&rows, false, &[seer(7, &[])]);
        assert_eq!(plan.unseen, [(1, 0)]);
        assert_eq!(plan.written, BTreeMap::from([((1, 1), Bits::range(0, 2))]));
    }
}
