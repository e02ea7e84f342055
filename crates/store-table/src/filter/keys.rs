//! What a filter says of the keys: the part of it that the database can carry out exactly. The rest is asked of each
//! row afterwards, so everything here may let more rows through than the filter, and never fewer.

use super::{Expr, Filter, Op, Operand, pushed};
use crate::edm::EdmValue;

/// Texts from `lo` to `hi`, both included; none is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval {
    pub lo: Option<String>,
    pub hi: Option<String>,
}

impl Interval {
    fn point(text: &str) -> Interval {
        Interval { lo: Some(text.to_owned()), hi: Some(text.to_owned()) }
    }

    /// Whether no text is in it.
    pub fn is_empty(&self) -> bool {
        matches!((&self.lo, &self.hi), (Some(lo), Some(hi)) if lo > hi)
    }

    /// Whether all of it comes before a text.
    pub fn is_before(&self, text: &str) -> bool {
        self.hi.as_deref().is_some_and(|hi| hi < text)
    }

    /// The only text in it, if there is just one.
    pub fn only(&self) -> Option<&str> {
        match (&self.lo, &self.hi) {
            (Some(lo), Some(hi)) if lo == hi => Some(lo),
            _ => None,
        }
    }

    fn intersect(self, other: Interval) -> Interval {
        let lo = self.lo.max(other.lo);
        let hi = match (self.hi, other.hi) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Interval { lo, hi }
    }

    /// The least interval that has both.
    fn hull(self, other: Interval) -> Interval {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let hi = match (self.hi, other.hi) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        };
        Interval { lo: self.lo.min(other.lo), hi }
    }
}

/// Intervals in order with something between each two: what a scan need not look at.
pub(crate) type Spans = Vec<Interval>;

/// What both have.
fn common(left: &[Interval], right: &[Interval]) -> Spans {
    let mut out = Vec::new();
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let both = Interval::clone(a).intersect(Interval::clone(b));
        if !both.is_empty() {
            out.push(both);
        }
        // The one that ends first has nothing more to give.
        let a_first = match (&a.hi, &b.hi) {
            (Some(a), Some(b)) => a <= b,
            (a, _) => a.is_some(),
        };
        if a_first {
            left.next()
        } else {
            right.next()
        };
    }
    out
}

/// What either has.
fn together(left: Spans, right: Spans) -> Spans {
    let mut all = left;
    all.extend(right);
    all.sort_by(|a, b| a.lo.cmp(&b.lo));
    let mut out: Spans = Vec::with_capacity(all.len());
    for next in all {
        match out.last_mut() {
            Some(last) if !next.lo.as_deref().is_some_and(|lo| last.is_before(lo)) => {
                *last = std::mem::take(last).hull(next);
            }
            _ => out.push(next),
        }
    }
    out
}

/// Where the entities that fulfil a filter can be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyBounds {
    pub partition: Interval,
    pub row: Interval,
}

impl KeyBounds {
    /// Whether no entity can be there.
    pub fn is_empty(&self) -> bool {
        self.partition.is_empty() || self.row.is_empty()
    }
}

/// A condition on the columns of a row, with the texts of its parameters in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    sql: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Sql(&'static str),
    Param(String),
}

impl Condition {
    /// The SQL with parameters numbered from `first`, and their values.
    pub fn to_sql(&self, first: usize) -> (String, Vec<&str>) {
        let (mut sql, mut values) = (String::new(), Vec::new());
        for piece in &self.sql {
            match piece {
                Piece::Sql(text) => sql.push_str(text),
                Piece::Param(value) => {
                    sql.push_str(&format!("${}", first + values.len()));
                    values.push(value.as_str());
                }
            }
        }
        (sql, values)
    }
}

/// The two columns of keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Partition,
    Row,
}

impl Filter {
    /// Where the entities that fulfil it can be.
    pub(crate) fn bounds(&self) -> KeyBounds {
        bounds(&self.root)
    }

    /// The partition keys that entities which fulfil it can have.
    pub(crate) fn partition_spans(&self) -> Spans {
        spans(&self.root, Column::Partition)
    }

    /// The row keys that entities which fulfil it can have.
    pub(crate) fn row_spans(&self) -> Spans {
        spans(&self.root, Column::Row)
    }

    /// The condition on the keys, where [`Filter::bounds`] does not say all that the filter says of them.
    pub(crate) fn condition(&self) -> Option<Condition> {
        if is_plain(&self.root) {
            return None;
        }
        weaken(&self.root, Sense::Kept, &|_, _| None).map(|sql| Condition { sql })
    }

    /// Whether it says anything of row keys.
    pub(crate) fn names_rows(&self) -> bool {
        names_rows(&self.root)
    }

    /// The condition on keys and properties, for PostgreSQL; none if it says nothing of properties.
    pub(crate) fn pushed_condition(&self) -> Option<Condition> {
        let names_more = |name: &String| !matches!(name.as_str(), "PartitionKey" | "RowKey");
        if !self.properties().iter().any(names_more) {
            return None;
        }
        weaken(&self.root, Sense::Kept, &pushed::property).map(|sql| Condition { sql })
    }

    /// The condition on the keys, whatever the bounds say.
    pub(crate) fn whole_condition(&self) -> Option<Condition> {
        weaken(&self.root, Sense::Kept, &|_, _| None).map(|sql| Condition { sql })
    }
}

/// A comparison of a key with a text, the key on the left.
fn key_comparison(expr: &Expr) -> Option<(Column, Op, &EdmValue)> {
    let Expr::Compare { left, op, right } = expr else { return None };
    let (name, op, value) = match (left, right) {
        (Operand::Property(name), Operand::Literal(value)) => (name, *op, value),
        (Operand::Literal(value), Operand::Property(name)) => (name, op.mirrored(), value),
        _ => return None,
    };
    let column = match name.as_str() {
        "PartitionKey" => Column::Partition,
        "RowKey" => Column::Row,
        _ => return None,
    };
    Some((column, op, value))
}

fn bounds(expr: &Expr) -> KeyBounds {
    match expr {
        Expr::And(left, right) => {
            let (left, right) = (bounds(left), bounds(right));
            KeyBounds {
                partition: left.partition.intersect(right.partition),
                row: left.row.intersect(right.row),
            }
        }
        Expr::Or(left, right) => {
            let (left, right) = (bounds(left), bounds(right));
            if left.is_empty() {
                return right;
            }
            if right.is_empty() {
                return left;
            }
            KeyBounds { partition: left.partition.hull(right.partition), row: left.row.hull(right.row) }
        }
        Expr::Compare { .. } => match key_interval(expr) {
            Some((Column::Partition, partition)) => KeyBounds { partition, row: Interval::default() },
            Some((Column::Row, row)) => KeyBounds { partition: Interval::default(), row },
            None => KeyBounds::default(),
        },
        Expr::Truth(_) | Expr::Not(_) => KeyBounds::default(),
    }
}

/// Which keys a comparison leaves; none if it says nothing of keys.
fn key_interval(expr: &Expr) -> Option<(Column, Interval)> {
    let Some((column, op, EdmValue::String(text))) = key_comparison(expr) else { return None };
    // No key has this character, and PostgreSQL has no text with it: it is left to the rows.
    if text.contains('\0') {
        return None;
    }
    let interval = match op {
        Op::Eq => Interval::point(text),
        Op::Gt | Op::Ge => Interval { lo: Some(text.clone()), hi: None },
        Op::Lt | Op::Le => Interval { lo: None, hi: Some(text.clone()) },
        Op::Ne => return None,
    };
    Some((column, interval))
}

/// The keys of a column that an expression leaves.
fn spans(expr: &Expr, column: Column) -> Spans {
    match expr {
        Expr::And(left, right) => common(&spans(left, column), &spans(right, column)),
        Expr::Or(left, right) => together(spans(left, column), spans(right, column)),
        Expr::Compare { .. } => match key_interval(expr) {
            Some((own, interval)) if own == column => vec![interval],
            _ => vec![Interval::default()],
        },
        Expr::Truth(_) | Expr::Not(_) => vec![Interval::default()],
    }
}

/// Whether all that a filter says of keys are comparisons, other than `ne`, joined by `and`: its bounds say it, too.
fn is_plain(expr: &Expr) -> bool {
    match expr {
        Expr::And(left, right) => is_plain(left) && is_plain(right),
        Expr::Compare { .. } => !matches!(key_comparison(expr), Some((_, Op::Ne, _))),
        Expr::Or(left, right) => !names_keys(left) && !names_keys(right),
        Expr::Not(inner) => !names_keys(inner),
        Expr::Truth(_) => true,
    }
}

fn names_keys(expr: &Expr) -> bool {
    any_comparison(expr, &|expr| key_comparison(expr).is_some())
}

fn names_rows(expr: &Expr) -> bool {
    any_comparison(expr, &|expr| matches!(key_comparison(expr), Some((Column::Row, ..))))
}

fn any_comparison(expr: &Expr, test: &dyn Fn(&Expr) -> bool) -> bool {
    match expr {
        Expr::And(left, right) | Expr::Or(left, right) => {
            any_comparison(left, test) || any_comparison(right, test)
        }
        Expr::Not(inner) => any_comparison(inner, test),
        Expr::Compare { .. } => test(expr),
        Expr::Truth(_) => false,
    }
}

/// Whether a condition is asked for, or its contrary.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sense {
    Kept,
    Negated,
}

/// What is made of a comparison that is not one of keys.
type Other<'a> = &'a dyn Fn(&Expr, Sense) -> Option<Vec<Piece>>;

/// The condition that holds wherever the expression (or its contrary) does; none is no condition.
fn weaken(expr: &Expr, sense: Sense, other: Other<'_>) -> Option<Vec<Piece>> {
    match expr {
        Expr::Not(inner) => {
            let contrary = if sense == Sense::Kept { Sense::Negated } else { Sense::Kept };
            weaken(inner, contrary, other)
        }
        Expr::And(left, right) => {
            let parts = (weaken(left, sense, other), weaken(right, sense, other));
            if sense == Sense::Kept { both(parts) } else { either(parts) }
        }
        Expr::Or(left, right) => {
            let parts = (weaken(left, sense, other), weaken(right, sense, other));
            if sense == Sense::Kept { either(parts) } else { both(parts) }
        }
        Expr::Compare { .. } => {
            let Some((column, op, value)) = key_comparison(expr) else { return other(expr, sense) };
            // A key is a text and is always there, so the contrary of a comparison is a comparison.
            let EdmValue::String(text) = value else {
                // A comparison with another type never holds.
                return (sense == Sense::Kept).then(|| vec![Piece::Sql("1 = 0")]);
            };
            if text.contains('\0') {
                return None;
            }
            let op = if sense == Sense::Kept { op } else { op.negated() };
            let column = if column == Column::Partition { "pk " } else { "rk " };
            let pieces =
                [Piece::Sql(column), Piece::Sql(op.sql()), Piece::Sql(" "), Piece::Param(text.clone())];
            Some(pieces.into())
        }
        Expr::Truth(_) => other(expr, sense),
    }
}

fn both((left, right): (Option<Vec<Piece>>, Option<Vec<Piece>>)) -> Option<Vec<Piece>> {
    match (left, right) {
        (Some(left), Some(right)) => Some(joined(left, " AND ", right)),
        (left, right) => left.or(right),
    }
}

fn either((left, right): (Option<Vec<Piece>>, Option<Vec<Piece>>)) -> Option<Vec<Piece>> {
    Some(joined(left?, " OR ", right?))
}

fn joined(left: Vec<Piece>, with: &'static str, right: Vec<Piece>) -> Vec<Piece> {
    let mut all = vec![Piece::Sql("(")];
    all.extend(left);
    all.push(Piece::Sql(with));
    all.extend(right);
    all.push(Piece::Sql(")"));
    all
}
