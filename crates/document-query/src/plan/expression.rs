//! Syntax tree to plan: expressions.

use std::sync::Arc;

use super::compile::Compiler;
use super::walk::has_aggregate_or_query;
use super::{AggregatePlan, Node, PathStep};
use crate::error::{ErrorCode, QueryError};
use crate::functions::{self, Function};
use crate::run::AggregateKind;
use crate::syntax::tree::*;
use crate::value::Value;

impl Compiler<'_> {
    pub(super) fn expression(&mut self, expr: &Expr) -> Result<Node, QueryError> {
        if let Some(slot) = self.group_key(expr) {
            return Ok(Node::Slot(slot));
        }
        Ok(match &expr.kind {
            Kind::Constant(value) => Node::Constant(value.clone()),
            Kind::Parameter(name) => Node::Parameter(place_of(&mut self.parameters, name)),
            Kind::Name(name) => self.name(name, expr.span)?,
            Kind::Path(base, members) => self.path(expr.span, base, members)?,
            Kind::Array(items) => Node::Array(self.expressions(items)?),
            Kind::Object(properties) => {
                let mut nodes = Vec::with_capacity(properties.len());
                for (key, value) in properties {
                    nodes.push((Arc::from(key.as_str()), self.expression(value)?));
                }
                Node::Object(nodes)
            }
            Kind::Unary(operator, operand) => Node::Unary(*operator, Box::new(self.expression(operand)?)),
            Kind::Binary(first, rest) => {
                let first = Box::new(self.expression(first)?);
                let mut nodes = Vec::with_capacity(rest.len());
                for (operator, operand) in rest {
                    nodes.push((*operator, self.expression(operand)?));
                }
                Node::Binary(first, nodes)
            }
            Kind::And(items) => Node::And(self.expressions(items)?),
            Kind::Or(items) => Node::Or(self.expressions(items)?),
            Kind::Coalesce(items) => Node::Coalesce(self.expressions(items)?),
            Kind::Conditional(parts) => Node::Conditional(self.three(parts)?),
            Kind::In { value, list, negated } => {
                let value = Box::new(self.expression(value)?);
                negate(Node::In(value, self.expressions(list)?), *negated)
            }
            Kind::Between { operands, negated } => negate(Node::Between(self.three(operands)?), *negated),
            Kind::Like { operands, escape, negated } => {
                let [value, pattern] = &**operands;
                let nodes = Box::new([self.expression(value)?, self.expression(pattern)?]);
                negate(Node::Like(nodes, *escape), *negated)
            }
            Kind::Call { name, arguments } => self.call(expr.span, name, arguments)?,
            Kind::UserCall { name, arguments } => {
                place_of(&mut self.user_functions, name);
                Node::UserCall(name.as_str().into(), self.expressions(arguments)?)
            }
            Kind::Query(form, select) => {
                let mut plan = self.inner_select(select)?;
                if *form == Form::All {
                    // ALL(q) holds when no row fails the filter of q.
                    let filter = plan.filter.take();
                    plan.filter = Some(
                        filter.map_or(Node::Constant(Value::Bool(false)), |filter| negate(filter, true)),
                    );
                }
                Node::Query(*form, Box::new(plan))
            }
        })
    }

    fn expressions(&mut self, exprs: &[Expr]) -> Result<Vec<Node>, QueryError> {
        exprs.iter().map(|expr| self.expression(expr)).collect()
    }

    fn three(&mut self, exprs: &[Expr; 3]) -> Result<Box<[Node; 3]>, QueryError> {
        let [first, second, third] = exprs;
        Ok(Box::new([self.expression(first)?, self.expression(second)?, self.expression(third)?]))
    }

    /// The slot of an expression that the query groups by.
    fn group_key(&self, expr: &Expr) -> Option<usize> {
        let group = self.group.as_ref().filter(|group| !group.keys.is_empty())?;
        if matches!(expr.kind, Kind::Constant(_) | Kind::Parameter(_)) {
            return None;
        }
        let printed = expr.to_string();
        group.keys.iter().find(|(key, _)| *key == printed).map(|(_, slot)| *slot)
    }

    fn name(&mut self, name: &str, span: Span) -> Result<Node, QueryError> {
        match (self.resolve(name, span), name) {
            (Ok(slot), _) => Ok(Node::Slot(slot)),
            (Err(_), "NaN") => Ok(Node::Constant(Value::Number(f64::NAN))),
            (Err(_), "Infinity") => Ok(Node::Constant(Value::Number(f64::INFINITY))),
            (Err(error), _) => Err(error),
        }
    }

    fn path(&mut self, span: Span, base: &Expr, members: &[Member]) -> Result<Node, QueryError> {
        let (mut node, rest) = match self.grouped_prefix(base, members) {
            Some((slot, length)) => (Node::Slot(slot), &members[length..]),
            None => match &base.kind {
                // The whole path is the property that an error names.
                Kind::Name(name) => (
                    self.name(name, Span { start: base.span.start, ..span }).map_err(|error| {
                        if error.code() == ErrorCode::UnresolvedName {
                            return error.at(self.text, base.span.start, base.span.end);
                        }
                        error
                    })?,
                    members,
                ),
                _ => (self.expression(base)?, members),
            },
        };
        for member in rest {
            node = match member {
                Member::Key(key) => extend(node, PathStep::Key(key.as_str().into())),
                Member::Computed(step) => match &step.kind {
                    Kind::Constant(Value::Number(index)) if *index >= 0.0 && index.fract() == 0.0 => {
                        extend(node, PathStep::Index(*index as u64))
                    }
                    _ => Node::Index(Box::new(node), Box::new(self.expression(step)?)),
                },
            };
        }
        Ok(node)
    }

    /// The longest beginning of a path that the query groups by.
    fn grouped_prefix(&self, base: &Expr, members: &[Member]) -> Option<(usize, usize)> {
        self.group.as_ref().filter(|group| !group.keys.is_empty())?;
        (0..members.len()).rev().find_map(|length| {
            if length == 0 {
                return self.group_key(base).map(|slot| (slot, length));
            }
            let kind = Kind::Path(Box::new(base.clone()), members[..length].to_vec());
            self.group_key(&Expr { span: base.span, kind }).map(|slot| (slot, length))
        })
    }

    fn call(&mut self, span: Span, name: &str, arguments: &[Expr]) -> Result<Node, QueryError> {
        if let Some(kind) = AggregateKind::from_name(name) {
            return self.aggregate(span, name, kind, arguments);
        }
        let Some(function) = functions::find(name) else {
            let name_span = Span { start: span.start, end: span.start + name.len() };
            return Err(match functions::is_known_unsupported(name) {
                true => self.error(
                    ErrorCode::Unsupported,
                    format!("The function {name} is not supported."),
                    name_span,
                ),
                false => {
                    let message = format!("'{name}' is not a recognized built-in function name.");
                    self.error(ErrorCode::UnknownFunction, message, name_span)
                }
            });
        };
        let Function { arguments_min: min, arguments_max: max, .. } = *function;
        if arguments.len() < min || max.is_some_and(|max| arguments.len() > max) {
            return Err(self.argument_count(span, name, min, max));
        }
        Ok(Node::Call(function, self.expressions(arguments)?))
    }

    fn argument_count(&self, span: Span, name: &str, min: usize, max: Option<usize>) -> QueryError {
        let count = match max {
            None => format!("at least {min}"),
            Some(max) if max == min => min.to_string(),
            Some(max) => format!("{min} to {max}"),
        };
        let message = format!("The {} function requires {count} argument(s).", name.to_uppercase());
        self.error(ErrorCode::ArgumentCount, message, span)
    }

    fn aggregate(
        &mut self,
        span: Span,
        name: &str,
        kind: AggregateKind,
        arguments: &[Expr],
    ) -> Result<Node, QueryError> {
        let [argument] = arguments else { return Err(self.argument_count(span, name, 1, Some(1))) };
        if has_aggregate_or_query(argument) {
            let message = "Cannot perform an aggregate function on an expression containing an aggregate or a \
                           subquery.";
            return Err(self.error(ErrorCode::NestedAggregate, message, span));
        }
        if self.group.is_none() {
            let message =
                format!("The aggregate function {name} is only allowed in the SELECT and ORDER BY clauses.");
            return Err(self.error(ErrorCode::MisplacedAggregate, message, span));
        }
        let argument = self.with_rows(|compiler| compiler.expression(argument))?;
        let slot = self.new_slot();
        if let Some(group) = &mut self.group {
            group.aggregates.push(AggregatePlan { kind, argument, slot });
        }
        Ok(Node::Slot(slot))
    }
}

fn negate(node: Node, negated: bool) -> Node {
    if negated { Node::Unary(Unary::Not, Box::new(node)) } else { node }
}

fn extend(node: Node, step: PathStep) -> Node {
    match node {
        Node::Path(base, mut steps) => {
            steps.push(step);
            Node::Path(base, steps)
        }
        base => Node::Path(Box::new(base), vec![step]),
    }
}

/// The position of a name in the list, to which it is added when missing.
fn place_of(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}
