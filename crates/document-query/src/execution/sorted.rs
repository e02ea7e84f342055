//! Rows that are sorted before they are given, the first ones of them when only those are wanted.

use super::directions;
use super::position::Position;
use super::stage::Item;
use crate::error::QueryError;
use crate::plan::SelectPlan;
use crate::value::Value;

/// What a row costs beside its values, in bytes.
const ROW_BYTES: usize = 96;
/// Rows that may come before the kept ones are sorted for the first time.
const UNSORTED_ROWS_MIN: usize = 1024;

/// The rows so far.
pub(super) struct Sorted {
    rows: Vec<Item>,
    descending: Vec<bool>,
    distinct: bool,
    rows_max: Option<usize>,
    bytes: usize,
    bytes_max: usize,
    /// How many rows the last compaction left.
    compacted: usize,
}

impl Sorted {
    pub fn new(plan: &SelectPlan, rows_max: Option<usize>, bytes_max: usize) -> Self {
        let descending = directions(plan);
        let (rows, distinct) = (Vec::new(), plan.distinct);
        Sorted { rows, descending, distinct, rows_max, bytes: 0, bytes_max, compacted: 0 }
    }

    /// Keeps a row, unless it stands at or before `after`.
    pub fn push(&mut self, mut item: Item, after: Option<&Position>) -> Result<(), QueryError> {
        if self.distinct {
            let Position { mut sort_keys, .. } = item.position;
            sort_keys.truncate(self.descending.len());
            sort_keys.push(item.value.clone());
            item.position = Position { sort_keys, ..Position::default() };
        }
        if after.is_some_and(|after| item.position.order(after, &self.descending).is_le()) {
            return Ok(());
        }
        self.bytes += bytes_of(&item);
        self.rows.push(item);
        if self.rows.len() >= 2 * self.compacted + UNSORTED_ROWS_MIN || self.bytes > self.bytes_max {
            self.compact();
            // Less room than this would mean a compaction for almost every further row.
            if self.bytes > self.bytes_max / 4 * 3 {
                return Err(crate::run::too_much_state());
            }
        }
        Ok(())
    }

    fn compact(&mut self) {
        let descending = &self.descending;
        self.rows.sort_by(|left, right| left.position.order(&right.position, descending));
        if self.distinct {
            self.rows.dedup_by(|later, earlier| later.position == earlier.position);
        }
        if let Some(rows_max) = self.rows_max {
            self.rows.truncate(rows_max);
        }
        self.compacted = self.rows.len();
        self.bytes = self.rows.iter().map(bytes_of).sum();
    }

    /// The kept rows in order.
    pub fn into_rows(mut self) -> Vec<Item> {
        self.compact();
        self.rows
    }

    /// An estimate of the memory used.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn bytes_of(item: &Item) -> usize {
    let keys: usize = item.position.sort_keys.iter().map(Value::state_bytes).sum();
    ROW_BYTES + keys + item.position.tie_breaker.len() + item.value.state_bytes()
}
