//! Conditions: what must hold of which columns for a row to matter.

use crate::ast::{BinaryOperator, Expr, Query, Value};
use std::ops::Range;

use super::builder::Builder;
use super::cte::Env;
use super::formula::{Comparison, Formula, Operand};
use super::graph::{NodeId, Sequence};
use super::literal::Literal;
use super::scope::Scope;
use crate::error::SqlError;

/// What a condition says.
#[derive(Default)]
struct Said {
    /// It is never true.
    never: bool,
    formulas: Vec<(NodeId, Formula)>,
    equal: Vec<(NodeId, NodeId)>,
}

impl Said {
    fn never() -> Said {
        Said { never: true, ..Said::default() }
    }

    fn of(node: NodeId, formula: Formula) -> Said {
        match formula {
            Formula::All => Said::default(),
            formula => Said { formulas: vec![(node, formula)], ..Said::default() },
        }
    }

    fn and(mut self, other: Said) -> Said {
        self.never |= other.never;
        self.formulas.extend(other.formulas);
        self.equal.extend(other.equal);
        self
    }

    /// What both say, each in its own way: a column must be named by both. Equalities are lost.
    fn or(self, other: Said) -> Said {
        match (self.never, other.never) {
            (true, _) => return other,
            (_, true) => return self,
            (false, false) => {}
        }
        let theirs = other.gathered();
        let mut formulas = Vec::new();
        for (node, formula) in self.gathered() {
            if let Some((_, other)) = theirs.iter().find(|(known, _)| *known == node) {
                formulas.push((node, formula.or(other.clone())));
            }
        }
        Said { never: false, formulas, equal: Vec::new() }
    }

    /// One formula a column.
    fn gathered(self) -> Vec<(NodeId, Formula)> {
        let mut all: Vec<(NodeId, Formula)> = Vec::with_capacity(self.formulas.len());
        for (node, formula) in self.formulas {
            match all.iter_mut().find(|(known, _)| *known == node) {
                Some((_, known)) => *known = std::mem::replace(known, Formula::All).and(formula),
                None => all.push((node, formula)),
            }
        }
        all
    }
}

impl Builder<'_> {
    /// Takes a condition of WHERE or ON, without which the rows of this part do not matter.
    pub(super) fn condition(
        &mut self,
        condition: &Expr,
        scope: &Scope<'_>,
        env: &Env<'_>,
        about: Range<Sequence>,
    ) -> Result<(), SqlError> {
        for part in flat(condition, &BinaryOperator::And) {
            if self.semi_join(part, scope, env, &about)? {
                continue;
            }
            let said = self.said(part, scope);
            if said.never {
                self.graph.forget_rows(about.clone());
            }
            for (node, formula) in said.formulas {
                if about.contains(&self.graph.sequence(node)) {
                    self.graph.constrain(node, formula);
                }
            }
            for (one, other) in said.equal {
                self.equal(one, other, &about);
            }
            self.walk(part, scope, env)?;
        }
        Ok(())
    }

    /// `column IN (SELECT …)` and its like: the column equals one that the query gives.
    fn semi_join(
        &mut self,
        part: &Expr,
        scope: &Scope<'_>,
        env: &Env<'_>,
        about: &Range<Sequence>,
    ) -> Result<bool, SqlError> {
        let (left, query, is_list) = match part {
            Expr::InSubquery { expr, subquery, negated: false } => (expr, subquery.as_ref(), true),
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => match scalar(right) {
                Some(query) => (left, query, true),
                None => return Ok(false),
            },
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match (scalar(left), scalar(right)) {
                (None, Some(query)) => (left, query, false),
                (Some(query), None) => (right, query, false),
                _ => return Ok(false),
            },
            _ => return Ok(false),
        };
        self.walk(left.as_ref(), scope, env)?;
        let outputs = self.query(query, Some(scope), env)?;
        let outputs = self.settled(outputs);
        let columns: Vec<&Expr> = match left.as_ref() {
            Expr::Tuple(columns) => columns.iter().collect(),
            one => vec![one],
        };
        if outputs.complete && outputs.columns.len() == columns.len() {
            for (column, output) in columns.into_iter().zip(outputs.columns) {
                let (Some(outer), Some(inner)) = (self.column(column, scope), output.node) else { continue };
                if about.contains(&self.graph.sequence(outer)) {
                    self.graph.connect(inner, outer);
                }
                // A list may lose rows that equal nothing outside; a single value must stay what it is.
                if is_list {
                    self.graph.connect(outer, inner);
                }
            }
        }
        Ok(true)
    }

    fn said(&mut self, expr: &Expr, scope: &Scope<'_>) -> Said {
        match expr {
            Expr::Nested(inner) | Expr::IsTrue(inner) => self.said(inner, scope),
            Expr::Value(value) => match value.value {
                Value::Boolean(false) | Value::Null => Said::never(),
                _ => Said::default(),
            },
            Expr::BinaryOp { op: op @ BinaryOperator::And, .. } => {
                let parts = flat(expr, op);
                parts.into_iter().fold(Said::default(), |all, part| all.and(self.said(part, scope)))
            }
            Expr::BinaryOp { op: op @ BinaryOperator::Or, .. } => self.either(&flat(expr, op), scope),
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => self.equality(left, right, scope),
            Expr::BinaryOp { left, op, right } => match comparison(op) {
                Some(comparison) => self.comparison(left, comparison, right, scope),
                None => Said::default(),
            },
            Expr::IsNotDistinctFrom(left, right) => {
                // With a NULL on both sides it is true, and a parameter may be one.
                let known = |expr: &Expr| {
                    Literal::read(expr).is_some_and(|literal| !literal.is_null() && !literal.is_parameter())
                };
                if known(left) || known(right) { self.equality(left, right, scope) } else { Said::default() }
            }
            Expr::InList { expr, list, negated: false } => self.in_list(expr, list, scope),
            Expr::Between { expr, negated: false, low, high } => {
                let low = self.comparison(expr, Comparison::GreaterOrEqual, low, scope);
                low.and(self.comparison(expr, Comparison::LessOrEqual, high, scope))
            }
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => self.any(left, right, scope),
            _ => Said::default(),
        }
    }

    fn either(&mut self, parts: &[&Expr], scope: &Scope<'_>) -> Said {
        // The usual long OR is `k = 1 OR k = 2 OR …`: gathered at once, so that it stays linear.
        let mut said = parts.iter().map(|part| self.said(part, scope)).filter(|said| !said.never);
        let Some(first) = said.next() else { return Said::never() };
        let rest: Vec<Said> = said.collect();
        if let [(node, _)] = first.formulas.as_slice() {
            let node = *node;
            let same = |said: &Said| matches!(said.formulas.as_slice(), [(other, _)] if *other == node);
            if !rest.is_empty() && rest.iter().all(same) {
                let all = std::iter::once(first).chain(rest).flat_map(|said| said.formulas);
                let all = all.map(|(_, formula)| formula).collect();
                return Said { formulas: vec![(node, Formula::Or(all))], ..Said::default() };
            }
        }
        if rest.is_empty() {
            return first;
        }
        rest.into_iter().fold(first, Said::or)
    }

    fn equality(&mut self, left: &Expr, right: &Expr, scope: &Scope<'_>) -> Said {
        if let (Expr::Tuple(left), Expr::Tuple(right)) = (bare(left), bare(right)) {
            if left.len() != right.len() {
                return Said::default();
            }
            let pairs = left.iter().zip(right);
            return pairs
                .fold(Said::default(), |all, (one, other)| all.and(self.equality(one, other, scope)));
        }
        match (self.column(left, scope), self.column(right, scope)) {
            (Some(one), Some(other)) => Said { equal: vec![(one, other)], ..Said::default() },
            (Some(node), None) => self.equal_to(node, right),
            (None, Some(node)) => self.equal_to(node, left),
            (None, None) => {
                let number = |expr| Literal::read(expr).and_then(|literal| literal.number());
                match (number(left), number(right)) {
                    (Some(one), Some(other)) if one != other => Said::never(),
                    _ => Said::default(),
                }
            }
        }
    }

    fn equal_to(&mut self, node: NodeId, value: &Expr) -> Said {
        match Literal::read(value) {
            Some(literal) => Said::of(node, literal.equals(self.graph.family(node))),
            None => Said::default(),
        }
    }

    fn comparison(&mut self, left: &Expr, comparison: Comparison, right: &Expr, scope: &Scope<'_>) -> Said {
        let (node, value, comparison) = match (self.column(left, scope), self.column(right, scope)) {
            (Some(node), None) => (node, right, comparison),
            (None, Some(node)) => (node, left, comparison.reversed()),
            _ => return Said::default(),
        };
        let Some(literal) = Literal::read(value) else { return Said::default() };
        if literal.is_null() {
            return Said::of(node, Formula::Nothing);
        }
        if !self.graph.is_ordered(node) {
            return Said::default();
        }
        match literal.operand(self.graph.family(node)) {
            Some(operand) => Said::of(node, Formula::Compare(comparison, operand)),
            None => Said::default(),
        }
    }

    fn in_list(&mut self, expr: &Expr, list: &[Expr], scope: &Scope<'_>) -> Said {
        if let Expr::Tuple(columns) = bare(expr) {
            let mut all = Said::default();
            for (place, column) in columns.iter().enumerate() {
                let values = list.iter().map(|row| match bare(row) {
                    Expr::Tuple(values) => values.get(place),
                    _ => None,
                });
                if let Some(values) = values.collect::<Option<Vec<&Expr>>>() {
                    all = all.and(self.one_of(column, &values, scope));
                }
            }
            return all;
        }
        let values: Vec<&Expr> = list.iter().collect();
        self.one_of(expr, &values, scope)
    }

    fn one_of(&mut self, column: &Expr, values: &[&Expr], scope: &Scope<'_>) -> Said {
        let Some(node) = self.column(column, scope) else { return Said::default() };
        match self.operands(node, values) {
            Some(operands) => Said::of(node, Formula::one_of(operands)),
            None => Said::default(),
        }
    }

    /// The values, but for those that are NULL; none if one of them cannot be told.
    fn operands(&mut self, node: NodeId, values: &[&Expr]) -> Option<Vec<Operand>> {
        let family = self.graph.family(node);
        let mut operands = Vec::with_capacity(values.len());
        for value in values {
            let literal = Literal::read(value)?;
            if !literal.is_null() {
                operands.push(literal.operand(family)?);
            }
        }
        Some(operands)
    }

    /// `column = ANY (array)`.
    fn any(&mut self, left: &Expr, right: &Expr, scope: &Scope<'_>) -> Said {
        let Some(node) = self.column(left, scope) else { return Said::default() };
        let right = bare(right);
        if let Some(literal) = Literal::read(right) {
            return Said::of(node, literal.contains(self.graph.family(node)));
        }
        let (array, cast) = match right {
            Expr::Cast { expr, data_type, format: None, .. } => (bare(expr), Some(data_type)),
            other => (other, None),
        };
        let Expr::Array(array) = array else { return Said::default() };
        if let Some(cast) = cast {
            let family = super::literal::type_of(cast).and_then(super::array::element_type);
            if family.and_then(super::value::Family::of) != Some(self.graph.family(node)) {
                return Said::default();
            }
        }
        let values: Vec<&Expr> = array.elem.iter().collect();
        match self.operands(node, &values) {
            Some(operands) => Said::of(node, Formula::one_of(operands)),
            None => Said::default(),
        }
    }
}

/// The operands of a chain of the same operator, which leans to the left; parentheses around them do not count.
fn flat<'e>(expr: &'e Expr, operator: &BinaryOperator) -> Vec<&'e Expr> {
    let mut parts = Vec::new();
    let mut open = vec![expr];
    while let Some(next) = open.pop() {
        match next {
            Expr::Nested(inner) => open.push(inner),
            Expr::BinaryOp { left, op, right } if op == operator => {
                open.push(right);
                open.push(left);
            }
            other => parts.push(other),
        }
    }
    parts
}

fn bare(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

fn scalar(expr: &Expr) -> Option<&Query> {
    match bare(expr) {
        Expr::Subquery(query) => Some(query),
        _ => None,
    }
}

fn comparison(operator: &BinaryOperator) -> Option<Comparison> {
    match operator {
        BinaryOperator::Lt => Some(Comparison::Less),
        BinaryOperator::LtEq => Some(Comparison::LessOrEqual),
        BinaryOperator::Gt => Some(Comparison::Greater),
        BinaryOperator::GtEq => Some(Comparison::GreaterOrEqual),
        _ => None,
    }
}
