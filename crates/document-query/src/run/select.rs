//! The rows of a SELECT: sources, filter, and for sub-queries also groups, projection and DISTINCT.

use std::collections::BTreeSet;

use super::context::Context;
use super::expression::{evaluate, follow};
use super::group::Groups;
use crate::error::QueryError;
use crate::plan::{Origin, SelectPlan, SourcePlan};
use crate::value::{Ordered, Value};

/// Whether more rows are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    Stop,
}

/// Receives the rows of a SELECT, whose values stand in the slots.
type RowSink<'s> = &'s mut dyn FnMut(&mut Context) -> Result<Flow, QueryError>;
/// Receives the results of a SELECT.
type ValueSink<'s> = &'s mut dyn FnMut(&mut Context, Value) -> Result<Flow, QueryError>;

/// Enumerates the rows of one of the chained outer queries. Its first source is the context's root, even where that is
/// the row of the query before it.
pub(crate) fn rows(plan: &SelectPlan, context: &mut Context, sink: RowSink<'_>) -> Result<Flow, QueryError> {
    match plan.sources.split_first() {
        Some((SourcePlan { origin: Origin::Query(_), iterate, slot }, rest)) => {
            let row = context.root.clone();
            spread(row, *iterate, context, &mut |context, value| {
                context.slots[*slot] = value;
                join(plan, rest, context, sink)
            })
        }
        _ => join(plan, &plan.sources, context, sink),
    }
}

fn join(
    plan: &SelectPlan,
    sources: &[SourcePlan],
    context: &mut Context,
    sink: RowSink<'_>,
) -> Result<Flow, QueryError> {
    let Some((source, rest)) = sources.split_first() else {
        let accepted = match &plan.filter {
            Some(filter) => evaluate(filter, context)?.as_bool() == Some(true),
            None => true,
        };
        return if accepted { sink(context) } else { Ok(Flow::Continue) };
    };
    let mut each = |context: &mut Context, value: Value| {
        context.step(1)?;
        context.slots[source.slot] = value;
        join(plan, rest, context, sink)
    };
    let value = match &source.origin {
        Origin::Root(steps) => follow(&context.root, steps).cloned().unwrap_or_default(),
        Origin::Slot(slot, steps) => follow(&context.slots[*slot], steps).cloned().unwrap_or_default(),
        Origin::Query(query) => {
            return run_query(query, context, &mut |context, value| {
                context.charge(&value)?;
                spread(value, source.iterate, context, &mut each)
            });
        }
    };
    spread(value, source.iterate, context, &mut each)
}

/// Hands on a value that exists, or its items.
fn spread(
    value: Value,
    iterate: bool,
    context: &mut Context,
    each: ValueSink<'_>,
) -> Result<Flow, QueryError> {
    match value {
        Value::Undefined => Ok(Flow::Continue),
        Value::Array(items) if iterate => {
            for item in items.iter() {
                if each(context, item.clone())? == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
            Ok(Flow::Continue)
        }
        _ if iterate => Ok(Flow::Continue),
        value => each(context, value),
    }
}

/// Runs a sub-query on the current row.
pub(super) fn run_query(
    plan: &SelectPlan,
    context: &mut Context,
    sink: ValueSink<'_>,
) -> Result<Flow, QueryError> {
    let mut seen = BTreeSet::new();
    let mut result = |context: &mut Context| {
        let value = evaluate(&plan.projection, context)?;
        if value.is_undefined() && plan.skip_undefined {
            return Ok(Flow::Continue);
        }
        if plan.distinct {
            if seen.contains(&Ordered(value.clone())) {
                return Ok(Flow::Continue);
            }
            context.charge(&value)?;
            seen.insert(Ordered(value.clone()));
        }
        sink(context, value)
    };
    let Some(grouping) = &plan.grouping else { return join(plan, &plan.sources, context, &mut result) };
    let mut groups = Groups::default();
    join(plan, &plan.sources, context, &mut |context| {
        groups.add(grouping, context, usize::MAX)?;
        Ok(Flow::Continue)
    })?;
    groups.finish(grouping);
    while groups.next_into(grouping, context).is_some() {
        if result(context)? == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    Ok(Flow::Continue)
}
