//! The groups of a query with their aggregates, in the order of their keys.

use std::collections::BTreeMap;

use super::aggregate::Accumulator;
use super::context::{Context, too_much_state};
use super::expression::evaluate;
use crate::error::QueryError;
use crate::plan::Grouping;
use crate::value::{Ordered, Value};

/// What one group costs beside its keys and lists, in bytes.
const GROUP_BYTES: usize = 128;

/// Groups by their keys.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<Vec<Ordered>, Vec<Accumulator>>,
    bytes: usize,
}

impl Groups {
    /// Adds the current row. Fails when the groups take more than `bytes_max`.
    pub fn add(
        &mut self,
        grouping: &Grouping,
        context: &mut Context,
        bytes_max: usize,
    ) -> Result<(), QueryError> {
        let mut keys = Vec::with_capacity(grouping.keys.len());
        for (node, _) in &grouping.keys {
            keys.push(Ordered(evaluate(node, context)?));
        }
        if !self.groups.contains_key(&keys) {
            let key_bytes: usize = keys.iter().map(|key| key.0.state_bytes()).sum();
            for key in &keys {
                context.charge(&key.0)?;
            }
            self.bytes += key_bytes + GROUP_BYTES * (1 + grouping.aggregates.len());
        }
        let accumulators = self.groups.entry(keys).or_insert_with(|| new_group(grouping));
        for (plan, accumulator) in grouping.aggregates.iter().zip(accumulators) {
            let value = evaluate(&plan.argument, context)?;
            if plan.kind.keeps_values() {
                context.charge(&value)?;
            }
            self.bytes += accumulator.add(value);
        }
        if self.bytes > bytes_max { Err(too_much_state()) } else { Ok(()) }
    }

    /// There are no more rows. A query without keys has one group even then.
    pub fn finish(&mut self, grouping: &Grouping) {
        if grouping.keys.is_empty() && self.groups.is_empty() {
            self.groups.insert(Vec::new(), new_group(grouping));
        }
    }

    /// Puts the next group's keys and results into their slots, and returns the keys.
    pub fn next_into(&mut self, grouping: &Grouping, context: &mut Context) -> Option<Vec<Value>> {
        let (keys, accumulators) = self.groups.pop_first()?;
        for ((_, slot), key) in grouping.keys.iter().zip(&keys) {
            context.slots[*slot] = key.0.clone();
        }
        for (plan, accumulator) in grouping.aggregates.iter().zip(accumulators) {
            context.slots[plan.slot] = accumulator.result();
        }
        Some(keys.into_iter().map(|key| key.0).collect())
    }

    /// An estimate of the memory used.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn new_group(grouping: &Grouping) -> Vec<Accumulator> {
    grouping.aggregates.iter().map(|plan| Accumulator::new(plan.kind)).collect()
}
