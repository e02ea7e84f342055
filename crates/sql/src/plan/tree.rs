//! Small helpers over the parser's tree: names, conjunctions, what an expression is made of.

use std::ops::ControlFlow;

use crate::ast::{
    BinaryOperator, CastKind, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, Query, SetExpr, Statement as Tree, UnaryOperator, Value, ValueWithSpan,
    Visit, VisitMut, Visitor, VisitorMut,
};

use crate::error::SqlError;
use crate::statement;

/// A name as PostgreSQL stores it.
pub fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// A name that keeps its letters.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The parts of a dotted name; none if it has something else in it.
pub(super) fn parts(name: &ObjectName) -> Option<Vec<String>> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => Some(folded(ident)),
        ObjectNamePart::Function(_) => None,
    };
    name.0.iter().map(part).collect()
}

/// Schema and name; none for a name of other length.
pub(super) fn relation(name: &ObjectName) -> Option<(Option<String>, String)> {
    let mut parts = parts(name)?;
    let last = parts.pop()?;
    match parts.len() {
        0 => Some((None, last)),
        1 => Some((parts.pop(), last)),
        _ => None,
    }
}

/// Reads a query that we wrote, or that a view is made of.
pub(super) fn query(text: &str) -> Result<Query, SqlError> {
    let statement = statement::nested(text)?;
    match (statement.ast(), statement.failure()) {
        (Some(Tree::Query(query)), _) => {
            let mut query = (**query).clone();
            let _ = VisitMut::visit(&mut query, &mut Quotes);
            Ok(query)
        }
        (_, Some(failure)) => Err(failure.clone()),
        _ => Err(SqlError::unsupported("this query cannot be planned across shards", "Query one key.")),
    }
}

/// The parser's printer takes two quotes in a row for one that is already doubled; texts with quotes are therefore
/// written in the other form, `E'…'`.
pub(super) struct Quotes;

impl VisitorMut for Quotes {
    type Break = std::convert::Infallible;

    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<Self::Break> {
        if let Value::SingleQuotedString(text) = &value.value
            && text.contains('\'')
        {
            value.value = Value::EscapedStringLiteral(text.clone());
        }
        ControlFlow::Continue(())
    }
}

/// Reads an expression that we wrote.
pub(super) fn expression(text: &str) -> Result<Expr, SqlError> {
    let query = query(&format!("SELECT {text}"))?;
    if let SetExpr::Select(select) = *query.body
        && let Some(crate::ast::SelectItem::UnnamedExpr(expr)) = select.projection.into_iter().next()
    {
        return Ok(expr);
    }
    Err(SqlError::unsupported("this value cannot be used across shards", "Query one key."))
}

/// Without the parentheses around it.
pub(super) fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => bare(inner),
        other => other,
    }
}

/// The conditions of which all must hold.
pub(super) fn conjuncts<'e>(expr: &'e Expr, into: &mut Vec<&'e Expr>) {
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            conjuncts(left, into);
            conjuncts(right, into);
        }
        Expr::Nested(inner) => conjuncts(inner, into),
        other => into.push(other),
    }
}

/// A literal whole number, also with a cast to a whole type or as text with such a cast.
pub(super) fn whole(expr: &Expr) -> Option<u64> {
    match bare(expr) {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        Expr::Cast { kind: CastKind::DoubleColon | CastKind::Cast, expr, data_type, .. } => {
            let name = data_type.to_string().to_lowercase();
            let is_whole =
                matches!(name.as_str(), "bigint" | "int8" | "int" | "int4" | "integer" | "smallint");
            match bare(expr) {
                Expr::Value(value) if is_whole => match &value.value {
                    Value::Number(digits, _) | Value::SingleQuotedString(digits) => {
                        digits.trim().parse().ok()
                    }
                    _ => None,
                },
                _ => None,
            }
        }
        _ => None,
    }
}

/// A literal without a type of its own: `'x'` or NULL.
pub(super) fn is_untyped(expr: &Expr) -> bool {
    match bare(expr) {
        Expr::Value(value) => !matches!(value.value, Value::Number(..) | Value::Boolean(_)),
        Expr::UnaryOp { op: UnaryOperator::Plus | UnaryOperator::Minus, expr } => is_untyped(expr),
        _ => false,
    }
}

/// The last part of a function's name, if it is one of pg_catalog as far as it can be told from the name.
pub(super) fn function_name(function: &Function) -> Option<String> {
    let mut parts = parts(&function.name)?;
    let last = parts.pop()?;
    match parts.as_slice() {
        [] => Some(last),
        [schema] if schema == "pg_catalog" => Some(last),
        _ => None,
    }
}

/// The expressions among a function's arguments.
pub(super) fn arguments(function: &Function) -> Option<Vec<&FunctionArgExpr>> {
    match &function.args {
        FunctionArguments::None => Some(Vec::new()),
        FunctionArguments::Subquery(_) => None,
        FunctionArguments::List(list) => list
            .args
            .iter()
            .map(|argument| match argument {
                FunctionArg::Unnamed(inner) => Some(inner),
                _ => None,
            })
            .collect(),
    }
}

/// What an expression is made of, sub-queries left closed.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) functions: Vec<Function>,
    /// Column references, as written.
    pub(super) columns: Vec<Expr>,
    pub(super) queries: Vec<Query>,
    /// Something that we do not know to be harmless.
    pub(super) odd: bool,
    depth: usize,
}

impl Facts {
    pub(super) fn of<V: Visit>(tree: &V) -> Facts {
        let mut facts = Facts::default();
        let _ = tree.visit(&mut facts);
        facts
    }

    pub(super) fn of_all<'e>(trees: impl IntoIterator<Item = &'e Expr>) -> Facts {
        let mut facts = Facts::default();
        for tree in trees {
            let _ = tree.visit(&mut facts);
        }
        facts
    }
}

impl Visitor for Facts {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        if self.depth == 0 {
            self.queries.push(query.clone());
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => self.columns.push(expr.clone()),
            Expr::Function(function) => {
                let list = match &function.args {
                    FunctionArguments::List(list) => list.args.as_slice(),
                    FunctionArguments::None => &[],
                    // `array(select …)`: the query itself is visited.
                    FunctionArguments::Subquery(_) => &[],
                };
                let plain = |argument: &FunctionArg| {
                    matches!(
                        argument,
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(_) | FunctionArgExpr::Wildcard)
                    )
                };
                self.odd |= !list.iter().all(plain);
                self.functions.push(function.clone());
            }
            Expr::BinaryOp { op: BinaryOperator::PGCustomBinaryOperator(_), .. }
            | Expr::CompoundFieldAccess { .. }
            | Expr::JsonAccess { .. }
            | Expr::Convert { .. }
            | Expr::Struct { .. }
            | Expr::Named { .. }
            | Expr::Dictionary(_)
            | Expr::Map(_)
            | Expr::MatchAgainst { .. }
            | Expr::Wildcard(_)
            | Expr::QualifiedWildcard(..)
            | Expr::OuterJoin(_)
            | Expr::Prior(_)
            | Expr::Lambda(_)
            | Expr::MemberOf(_)
            | Expr::InUnnest { .. } => self.odd = true,
            Expr::Cast { data_type, .. } => self.odd |= is_catalog_type(&data_type.to_string()),
            Expr::TypedString(typed) => self.odd |= is_catalog_type(&typed.data_type.to_string()),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Types whose values are numbers of one database's catalog, or that may have a meaning of the user's own.
fn is_catalog_type(name: &str) -> bool {
    let name = name.to_lowercase();
    let base = name.split(['(', '[']).next().unwrap_or_default().trim();
    base.starts_with("reg") || base == "oid" || base.contains('.')
}
