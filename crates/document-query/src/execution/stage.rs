//! One query of the chain: rows in, projected rows or groups out.

use std::collections::BTreeSet;

use super::position::Position;
use crate::error::QueryError;
use crate::plan::SelectPlan;
use crate::run::{Context, Flow, Groups, evaluate, rows, too_much_state};
use crate::value::{Ordered, Value};

/// A projected row.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub value: Value,
    pub position: Position,
}

/// The state of one query of the chain.
pub(super) struct Stage {
    groups: Option<Groups>,
    /// The rows of a DISTINCT that feeds another query. The DISTINCT of the result is sorted instead.
    seen: Option<BTreeSet<Ordered>>,
    seen_bytes: usize,
}

impl Stage {
    pub fn new(plan: &SelectPlan) -> Self {
        let groups = plan.grouping.as_ref().map(|_| Groups::default());
        let seen = plan.distinct.then(BTreeSet::new);
        Stage { groups, seen, seen_bytes: 0 }
    }

    /// Runs the query on the context's root. Returns at most `wanted` rows.
    pub fn run(
        &mut self,
        plan: &SelectPlan,
        context: &mut Context,
        wanted: Option<u64>,
        bytes_max: usize,
    ) -> Result<Vec<Item>, QueryError> {
        if let (Some(groups), Some(grouping)) = (&mut self.groups, &plan.grouping) {
            rows(plan, context, &mut |context| {
                groups.add(grouping, context, bytes_max)?;
                Ok(Flow::Continue)
            })?;
            return Ok(Vec::new());
        }
        let mut items = Vec::new();
        rows(plan, context, &mut |context| {
            let Some(item) = project(plan, context)? else { return Ok(Flow::Continue) };
            context.charge_bytes(item.value.own_bytes())?;
            items.push(item);
            let enough = wanted.is_some_and(|wanted| items.len() as u64 >= wanted);
            Ok(if enough { Flow::Stop } else { Flow::Continue })
        })?;
        Ok(items)
    }

    /// There are no more rows.
    pub fn finish(&mut self, plan: &SelectPlan) {
        if let (Some(groups), Some(grouping)) = (&mut self.groups, &plan.grouping) {
            groups.finish(grouping);
        }
    }

    /// The next projected group.
    pub fn next_group(
        &mut self,
        plan: &SelectPlan,
        context: &mut Context,
    ) -> Result<Option<Item>, QueryError> {
        let (Some(groups), Some(grouping)) = (&mut self.groups, &plan.grouping) else { return Ok(None) };
        while let Some(keys) = groups.next_into(grouping, context) {
            context.start(Value::Undefined);
            if let Some(mut item) = project(plan, context)? {
                item.position.sort_keys.extend(keys);
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// For a query that feeds another: false for a row of DISTINCT that was seen before.
    pub fn is_new(&mut self, value: &Value, bytes_max: usize) -> Result<bool, QueryError> {
        let Some(seen) = &mut self.seen else { return Ok(true) };
        if seen.contains(&Ordered(value.clone())) {
            return Ok(false);
        }
        seen.insert(Ordered(value.clone()));
        self.seen_bytes += value.state_bytes();
        if self.seen_bytes > bytes_max { Err(too_much_state()) } else { Ok(true) }
    }

    /// An estimate of the memory used.
    pub fn bytes(&self) -> usize {
        self.seen_bytes + self.groups.as_ref().map_or(0, Groups::bytes)
    }
}

/// The projection of the current row or group with its sort keys; none for SELECT VALUE of nothing.
fn project(plan: &SelectPlan, context: &mut Context) -> Result<Option<Item>, QueryError> {
    let value = evaluate(&plan.projection, context)?;
    if value.is_undefined() && plan.skip_undefined {
        return Ok(None);
    }
    let mut sort_keys = Vec::with_capacity(plan.order.len());
    for order in &plan.order {
        sort_keys.push(evaluate(&order.node, context)?);
    }
    Ok(Some(Item { value, position: Position { sort_keys, ..Position::default() } }))
}
