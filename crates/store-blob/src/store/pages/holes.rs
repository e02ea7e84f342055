//! Large ranges that are cleared by a note in the blob's row, a hole, instead of one write for each unit.

use std::ops::Range;

use polyshard_store::{Error, ErrorKind};

use super::bits::Unit;
use super::rows::{View, find_states, put, read_history};
use crate::model::{Blob, Hole};
use crate::store::home::{Change, Home};
use crate::store::rows::Step;
use crate::store::{BlobStore, StoreError};

/// Holes of a blob at most: they are in its row.
const HOLES_MAX: usize = 256;
/// Rows of a hole that are settled in one transaction.
const SETTLED_ROWS_MAX: usize = 256;
/// Transactions of one request at most that settle a hole.
const SETTLE_STEPS_MAX: u32 = 40;

/// Hides the rows of units in generations before the blob's. Of earlier holes only what is outside of the units stays.
pub(super) fn add(blob: &mut Blob, units: &Range<u64>) {
    let generation = blob.generation;
    let holes = &mut blob.props.holes;
    for hole in holes.iter_mut() {
        if units.contains(&hole.from) {
            hole.from = units.end.min(hole.to);
        } else if hole.to > units.start && hole.to <= units.end {
            hole.to = units.start;
        }
    }
    holes.retain(|hole| hole.from < hole.to);
    holes.push(Hole { generation, from: units.start, to: units.end });
}

impl BlobStore {
    /// Makes room for another hole, if the blob has as many as fit into its row: the rows that one of them hides are
    /// cleared one by one, which changes nothing that a client sees. Answers whether the row has to be read again.
    pub(super) async fn settle_hole(&self, home: &Home, found: &Blob) -> Result<bool, StoreError> {
        let mut blob = found.clone();
        for _ in 0..SETTLE_STEPS_MAX {
            if blob.props.holes.len() < HOLES_MAX {
                return Ok(blob.version != found.version);
            }
            let change = self.settled(home, &blob).await?;
            match self.put_row(home, Some(&blob), change).await? {
                Some(changed) => blob = changed,
                None => return Ok(true),
            }
        }
        let message =
            format!("blob {} has many large cleared ranges, which are being joined; try again", home.name);
        Err(StoreError::Kit(Error::new(ErrorKind::Busy, message)))
    }

    /// The next step of settling the smallest hole. It begins after the rows of that step then, so that another request
    /// goes on from there.
    async fn settled(&self, home: &Home, blob: &Blob) -> Result<Change, StoreError> {
        let (view, mut changed) = (View::of(blob), blob.clone());
        let holes = &mut changed.props.holes;
        let smallest = (0..holes.len()).min_by_key(|at| holes[*at].to - holes[*at].from);
        let smallest = smallest.expect("there is no room, so there are holes");
        let units = holes[smallest].from..holes[smallest].to;
        let rows = self.read(home, find_states(home, &view, &units, SETTLED_ROWS_MAX)).await?;
        let states = read_history(&rows)?;
        match states.last().filter(|_| states.len() == SETTLED_ROWS_MAX) {
            Some(last) if last.unit + 1 < units.end => holes[smallest].from = last.unit + 1,
            _ => drop(holes.remove(smallest)),
        }
        let hidden = states.iter().filter(|state| !view.sees(state.unit, state.generation));
        let shown = hidden.filter(|state| !state.valid.is_empty());
        let clear = |unit| put(home, blob.content, blob.generation, unit, &Unit::default());
        let steps: Vec<Step> = shown.map(|state| clear(state.unit)).collect();
        Ok(Change::new(changed).after(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BlobKind;
    use crate::name::{BlobName, ContainerName};
    use crate::store::items::fresh;

    #[test]
    fn a_hole_takes_over_what_it_covers_of_others() {
        let name = BlobName::new(ContainerName::new("acct", "box").unwrap(), "disk").unwrap();
        let mut blob = fresh(&name, BlobKind::Page, None, 1);
        for units in [0..10, 20..30, 40..50, 5..25, 41..49, 45..50] {
            blob.generation += 1;
            add(&mut blob, &units);
        }
        let holes: Vec<_> =
            blob.props.holes.iter().map(|hole| (hole.generation, hole.from..hole.to)).collect();
        assert_eq!(holes, [(1, 0..5), (2, 25..30), (3, 40..45), (4, 5..25), (5, 41..45), (6, 45..50)]);
    }
}
