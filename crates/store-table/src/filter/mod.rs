//! `$filter`: the OData version 3 subset that the table service knows. Pure: parsed once, then asked row by row.

mod keys;
mod lex;
mod parse;
mod pushed;

use std::cmp::Ordering;

use crate::edm::{EdmValue, Relation, Scalar};

pub(crate) use keys::{Condition, Interval, KeyBounds, Spans};

/// Comparisons in one filter. The service documents 15; a few more cost little, and clients do send them.
pub const COMPARISONS_MAX: usize = 100;
/// Parentheses and `not` inside each other: more than any person or SDK writes, and far from the stack's end.
const DEPTH_MAX: usize = 50;

/// Why a filter was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// It is not a filter.
    #[error("The $filter cannot be read: {problem} at character {at}.")]
    Syntax {
        /// What is wrong.
        problem: String,
        /// Where, counted from 1.
        at: usize,
    },
    /// It is more than is carried out for one request.
    #[error("The $filter is too long: it may have {COMPARISONS_MAX} comparisons, {DEPTH_MAX} deep.")]
    TooLong,
    /// It is OData, but the table service does not know it.
    #[error(
        "The requested operation is not implemented on the specified resource: $filter has the function '{0}'."
    )]
    Function(String),
}

/// A parsed filter.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    root: Expr,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    Compare {
        left: Operand,
        op: Op,
        right: Operand,
    },
    /// A truth value by itself: a property or a literal.
    Truth(Operand),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    Property(String),
    Literal(EdmValue),
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Eq,
    Ne,
    Gt,
    Ge,
    Lt,
    Le,
}

impl Op {
    /// Whether two values that relate so fulfil it. Values of types that are never compared fulfil none.
    fn holds(self, relation: Relation) -> bool {
        match relation {
            Relation::Mismatched => false,
            Relation::Unordered => self == Op::Ne,
            Relation::Ordered(ordering) => match self {
                Op::Eq => ordering == Ordering::Equal,
                Op::Ne => ordering != Ordering::Equal,
                Op::Gt => ordering == Ordering::Greater,
                Op::Ge => ordering != Ordering::Less,
                Op::Lt => ordering == Ordering::Less,
                Op::Le => ordering != Ordering::Greater,
            },
        }
    }

    /// The same with the sides changed.
    fn mirrored(self) -> Op {
        match self {
            Op::Eq | Op::Ne => self,
            Op::Gt => Op::Lt,
            Op::Ge => Op::Le,
            Op::Lt => Op::Gt,
            Op::Le => Op::Ge,
        }
    }

    /// What holds where it does not.
    fn negated(self) -> Op {
        match self {
            Op::Eq => Op::Ne,
            Op::Ne => Op::Eq,
            Op::Gt => Op::Le,
            Op::Ge => Op::Lt,
            Op::Lt => Op::Ge,
            Op::Le => Op::Gt,
        }
    }

    fn sql(self) -> &'static str {
        match self {
            Op::Eq => "=",
            Op::Ne => "<>",
            Op::Gt => ">",
            Op::Ge => ">=",
            Op::Lt => "<",
            Op::Le => "<=",
        }
    }
}

impl Filter {
    /// Reads a filter.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        parse::parse(text).map(|root| Filter { root })
    }

    /// Whether a row fulfils it. `value` gives the row's properties by name; where there is none, every comparison
    /// with it is false.
    pub fn matches<'a>(&self, value: &dyn Fn(&str) -> Option<Scalar<'a>>) -> bool {
        self.root.matches(value)
    }

    /// The names of the properties that it compares.
    pub(crate) fn properties(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.root.collect_properties(&mut names);
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Both this and the other.
    pub fn and(self, other: Filter) -> Filter {
        Filter { root: Expr::And(Box::new(self.root), Box::new(other.root)) }
    }

    /// The entities from one key to another, both included; no key is no limit. A row key counts only beside its
    /// partition key.
    pub fn between(start: (Option<&str>, Option<&str>), end: (Option<&str>, Option<&str>)) -> Option<Filter> {
        let bound = |(partition, row): (Option<&str>, Option<&str>), beyond: Op, or_at: Op| {
            let partition = partition?;
            Some(match row {
                None => Expr::key("PartitionKey", or_at, partition),
                Some(row) => {
                    let at = Expr::key("PartitionKey", Op::Eq, partition);
                    let at = Expr::And(Box::new(at), Box::new(Expr::key("RowKey", or_at, row)));
                    Expr::Or(Box::new(Expr::key("PartitionKey", beyond, partition)), Box::new(at))
                }
            })
        };
        let root = match (bound(start, Op::Gt, Op::Ge), bound(end, Op::Lt, Op::Le)) {
            (Some(start), Some(end)) => Expr::And(Box::new(start), Box::new(end)),
            (start, end) => start.or(end)?,
        };
        Some(Filter { root })
    }
}

impl Expr {
    fn key(property: &str, op: Op, text: &str) -> Expr {
        let left = Operand::Property(property.to_owned());
        Expr::Compare { left, op, right: Operand::Literal(EdmValue::String(text.to_owned())) }
    }

    fn collect_properties(&self, names: &mut Vec<String>) {
        let mut take = |operand: &Operand| {
            if let Operand::Property(name) = operand {
                names.push(name.clone());
            }
        };
        match self {
            Expr::Compare { left, right, .. } => {
                take(left);
                take(right);
            }
            Expr::Truth(operand) => take(operand),
            Expr::And(left, right) | Expr::Or(left, right) => {
                left.collect_properties(names);
                right.collect_properties(names);
            }
            Expr::Not(inner) => inner.collect_properties(names),
        }
    }

    fn matches<'a>(&self, value: &dyn Fn(&str) -> Option<Scalar<'a>>) -> bool {
        match self {
            Expr::Compare { left, op, right } => match (left.scalar(value), right.scalar(value)) {
                (Some(left), Some(right)) => op.holds(left.relation(right)),
                _ => false,
            },
            Expr::Truth(operand) => matches!(operand.scalar(value), Some(Scalar::Boolean(true))),
            Expr::And(left, right) => left.matches(value) && right.matches(value),
            Expr::Or(left, right) => left.matches(value) || right.matches(value),
            Expr::Not(inner) => !inner.matches(value),
        }
    }
}

impl Operand {
    fn scalar<'v, 'a: 'v>(&'v self, value: &dyn Fn(&str) -> Option<Scalar<'a>>) -> Option<Scalar<'v>> {
        match self {
            Operand::Property(name) => value(name),
            Operand::Literal(literal) => Some(literal.scalar()),
        }
    }
}

#[cfg(test)]
mod tests;
