//! Walks over syntax trees that the compiler needs.

use crate::run::AggregateKind;
use crate::syntax::tree::{Expr, Form, Kind, Member, Projection, Select};

/// Calls `visit` for each direct part of an expression; parts of sub-queries are not visited.
fn for_each_part(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    match &expr.kind {
        Kind::Constant(_) | Kind::Parameter(_) | Kind::Name(_) | Kind::Query(..) => {}
        Kind::Path(base, members) => {
            visit(base);
            for member in members {
                if let Member::Computed(part) = member {
                    visit(part);
                }
            }
        }
        Kind::Array(parts) | Kind::And(parts) | Kind::Or(parts) | Kind::Coalesce(parts) => {
            parts.iter().for_each(visit);
        }
        Kind::Call { arguments: parts, .. } | Kind::UserCall { arguments: parts, .. } => {
            parts.iter().for_each(visit)
        }
        Kind::Object(properties) => properties.iter().for_each(|(_, part)| visit(part)),
        Kind::Unary(_, part) => visit(part),
        Kind::Binary(first, rest) => {
            visit(first);
            rest.iter().for_each(|(_, part)| visit(part));
        }
        Kind::Conditional(parts) | Kind::Between { operands: parts, .. } => parts.iter().for_each(visit),
        Kind::Like { operands, .. } => operands.iter().for_each(visit),
        Kind::In { value, list, .. } => {
            visit(value);
            list.iter().for_each(visit);
        }
    }
}

fn any(expr: &Expr, test: &dyn Fn(&Expr) -> bool) -> bool {
    if test(expr) {
        return true;
    }
    let mut found = false;
    for_each_part(expr, &mut |part| found = found || any(part, test));
    found
}

fn is_aggregate(expr: &Expr) -> bool {
    matches!(&expr.kind, Kind::Call { name, .. } if AggregateKind::from_name(name).is_some())
}

/// True when the expression has an aggregate of its own query.
pub(super) fn has_aggregate(expr: &Expr) -> bool {
    any(expr, &is_aggregate)
}

/// True when the expression may not be the argument of an aggregate.
pub(super) fn has_aggregate_or_query(expr: &Expr) -> bool {
    any(expr, &|part| is_aggregate(part) || matches!(&part.kind, Kind::Query(Form::Scalar, _)))
}

/// True when the select list or ORDER BY has aggregates.
pub(super) fn aggregates(select: &Select) -> bool {
    let projected = match &select.projection {
        Projection::Star(_) => false,
        Projection::Value(expr) => has_aggregate(expr),
        Projection::List(items) => items.iter().any(|(expr, _)| has_aggregate(expr)),
    };
    projected || select.order_by.iter().any(|item| has_aggregate(&item.expr))
}
