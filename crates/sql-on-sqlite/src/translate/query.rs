//! Queries: WITH, SELECT, VALUES, set operations, ORDER BY and LIMIT.

use polyshard_sql::ast::{
    Expr, LimitClause, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, OrderBySort, Query, SetExpr,
    SetOperator, SetQuantifier, Value, Values,
};
use polyshard_sql::{SqlError, TypeOid};

use super::body::Body;
use super::expr::Literal;
use super::scope::Aggregates;
use super::{Ex, How, Scope, Translator, check_ordered, fold};
use crate::fail::{fail, unsupported};
use crate::prepared::OutColumn;

/// A query in SQLite's words; its columns are called c1, c2, ….
pub(crate) struct Made {
    pub sql: String,
    pub columns: Vec<OutColumn>,
    /// What it uses of the queries around it.
    pub uses: Ex,
    /// Whether it gives one row at most.
    pub one_row: bool,
}

impl Translator<'_> {
    /// A query; columns of no type yet become those of `targets`.
    pub fn query(&mut self, query: &Query, targets: Option<&[TypeOid]>) -> Result<Made, SqlError> {
        self.deeper(|this| {
            let ctes_before = this.ctes.len();
            let ids_before = this.ids;
            let made = this.query_inner(query, targets);
            this.ctes.truncate(ctes_before);
            this.ids = ids_before;
            made
        })
    }

    fn query_inner(&mut self, query: &Query, targets: Option<&[TypeOid]>) -> Result<Made, SqlError> {
        if query.for_clause.is_some()
            || query.settings.is_some()
            || query.format_clause.is_some()
            || !query.pipe_operators.is_empty()
        {
            return Err(unsupported("a clause of this query"));
        }
        check_once(query)?;
        let is_top = std::mem::replace(&mut self.is_top, false);
        let level = self.scopes.len();
        let mut uses = Ex::of("", TypeOid::UNKNOWN);
        let with = self.with_parts(query, is_top, &mut uses)?;
        let order_by: &[OrderByExpr] = match &query.order_by {
            None => &[],
            Some(OrderBy { kind: OrderByKind::Expressions(parts), interpolate: None }) => parts,
            Some(_) => return Err(unsupported("ORDER BY ALL")),
        };
        let (mut body, names, mut order) = self.body(&query.body, order_by, &mut uses)?;
        let given = body.types();
        let wanted: Vec<TypeOid> = given
            .iter()
            .enumerate()
            .map(|(place, given)| match (*given, targets.and_then(|targets| targets.get(place))) {
                (TypeOid::UNKNOWN, Some(target)) => *target,
                (TypeOid::UNKNOWN, None) => TypeOid::TEXT,
                (given, _) => given,
            })
            .collect();
        body.coerce(self, &wanted)?;
        if is_top {
            body.shown(self)?;
        }
        let mods = body.type_mods();
        let columns: Vec<OutColumn> = names
            .into_iter()
            .zip(wanted)
            .zip(mods)
            .map(|((name, type_oid), type_mod)| OutColumn { name, type_oid, type_mod })
            .collect();
        if !matches!(query.body.as_ref(), SetExpr::Select(_)) {
            order = set_order(order_by, &columns)?;
        }
        let one_row_body = body.one_row();
        let mut sql = body.text();
        if !order.is_empty() {
            sql = format!("{sql} ORDER BY {}", order.join(", "));
        }
        let (limit, few) = self.limit(query)?;
        sql.push_str(&limit);
        if !with.is_empty() {
            sql = format!("WITH RECURSIVE {} {sql}", with.join(", "));
        }
        uses.ungrouped.retain(|(own, _)| *own < level);
        uses.level = uses
            .level
            .filter(|own| *own < level)
            .or_else(|| uses.ungrouped.iter().map(|(own, _)| *own).max());
        Ok(Made { sql, columns, uses, one_row: one_row_body || few })
    }

    /// A query whose columns do not matter.
    pub fn subquery_text(&mut self, query: &Query) -> Result<(String, Ex), SqlError> {
        let made = self.query(query, None)?;
        Ok((made.sql, made.uses))
    }

    fn limit(&mut self, query: &Query) -> Result<(String, bool), SqlError> {
        let (mut limit, mut offset) = match &query.limit_clause {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(_) => return Err(unsupported("this form of LIMIT")),
        };
        let one = Expr::Value(Value::Number("1".to_owned(), false).with_empty_span());
        if let Some(fetch) = &query.fetch {
            if fetch.with_ties || fetch.percent || limit.is_some() {
                return Err(unsupported("this form of FETCH"));
            }
            limit = Some(fetch.quantity.as_ref().unwrap_or(&one));
        }
        let part = |this: &mut Self, expr: &Expr, function: &str| -> Result<(String, bool), SqlError> {
            // No column is in sight here.
            this.scopes.push(Scope::new());
            let ex = this.expr(expr);
            this.scopes.pop();
            let ex = ex?;
            let few = matches!(ex.literal, Literal::Number(0 | 1));
            let ex = this.coerce(ex, TypeOid::INT8, -1, How::Assignment)?;
            Ok((format!("{function}({})", ex.sql), few))
        };
        let mut text = String::new();
        let mut few = false;
        if let Some(limit) = limit.take() {
            let (sql, is_few) = part(self, limit, "pg_limit_rows")?;
            text.push_str(&format!(" LIMIT {sql}"));
            few = is_few;
        } else if offset.is_some() {
            text.push_str(" LIMIT -1");
        }
        if let Some(offset) = offset.take() {
            text.push_str(&format!(" OFFSET {}", part(self, offset, "pg_offset_rows")?.0));
        }
        Ok((text, few))
    }

    /// A query's inner part, its columns' names and, for a SELECT, its order.
    pub(super) fn body(
        &mut self,
        body: &SetExpr,
        order_by: &[OrderByExpr],
        uses: &mut Ex,
    ) -> Result<(Body, Vec<String>, Vec<String>), SqlError> {
        match body {
            SetExpr::Select(select) => self.select(select, order_by, uses),
            SetExpr::Query(query) => {
                let made = self.query(query, None)?;
                uses.uses(&made.uses);
                let names = made.columns.iter().map(|column| column.name.clone()).collect();
                Ok((Body::Made(made), names, Vec::new()))
            }
            SetExpr::Values(values) => self.values(values, uses),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let (name, all) = match (op, set_quantifier) {
                    (SetOperator::Union, SetQuantifier::All) => ("UNION ALL", true),
                    (SetOperator::Union, SetQuantifier::None | SetQuantifier::Distinct) => ("UNION", false),
                    (SetOperator::Intersect, SetQuantifier::None | SetQuantifier::Distinct) => {
                        ("INTERSECT", false)
                    }
                    (SetOperator::Except, SetQuantifier::None | SetQuantifier::Distinct) => ("EXCEPT", false),
                    (SetOperator::Intersect, SetQuantifier::All) => ("INTERSECT ALL", false),
                    (SetOperator::Except, SetQuantifier::All) => ("EXCEPT ALL", false),
                    _ => return Err(unsupported(format!("{op} {set_quantifier}"))),
                };
                let (mut left, names, _) = self.body(left, &[], uses)?;
                let (mut right, ..) = self.body(right, &[], uses)?;
                let (a, b) = (left.types(), right.types());
                if a.len() != b.len() {
                    let what = op.to_string();
                    return Err(fail(
                        "42601",
                        format!("each {what} query must have the same number of columns"),
                    ));
                }
                let mut wanted = Vec::new();
                for (a, b) in a.iter().zip(&b) {
                    let both_unknown = *a == TypeOid::UNKNOWN && *b == TypeOid::UNKNOWN;
                    let common = self.common_type(&[*a, *b], &op.to_string())?;
                    if !all {
                        check_ordered(common, name)?;
                    }
                    // Two literals may still become what a third part says; text if nothing does.
                    wanted.push(if both_unknown { TypeOid::TEXT } else { common });
                }
                left.coerce(self, &wanted)?;
                right.coerce(self, &wanted)?;
                Ok((Body::Set { left: Box::new(left), right: Box::new(right), op: name }, names, Vec::new()))
            }
            SetExpr::Table(table) => {
                let name = table.table_name.clone().unwrap_or_default();
                Err(unsupported(format!("TABLE {name}")).hint("write SELECT * FROM"))
            }
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                Err(unsupported("a write within a query"))
            }
        }
    }

    fn values(
        &mut self,
        values: &Values,
        uses: &mut Ex,
    ) -> Result<(Body, Vec<String>, Vec<String>), SqlError> {
        let mut rows: Vec<Vec<Ex>> = Vec::with_capacity(values.rows.len());
        self.scopes.push(Scope { aggregates: Aggregates::Forbidden("VALUES"), ..Scope::new() });
        let made: Result<(), SqlError> = (|| {
            for row in &values.rows {
                let row: Vec<Ex> =
                    row.content.iter().map(|value| self.expr(value)).collect::<Result<_, _>>()?;
                if rows.first().is_some_and(|first| first.len() != row.len()) {
                    return Err(fail("42601", "VALUES lists must all be the same length"));
                }
                row.iter().for_each(|value| uses.uses(value));
                rows.push(row);
            }
            Ok(())
        })();
        self.scopes.pop();
        made?;
        let count = rows.first().map_or(0, Vec::len);
        // A column is of one type: that of all its values together.
        for place in 0..count {
            let given: Vec<TypeOid> = rows.iter().map(|row| row[place].type_oid).collect();
            if given.iter().all(|oid| *oid == TypeOid::UNKNOWN) {
                continue;
            }
            let common = self.common_type(&given, "VALUES")?;
            for row in &mut rows {
                row[place] = self.coerce(row[place].clone(), common, -1, How::Implicit)?;
            }
        }
        let names = (1..=count).map(|place| format!("column{place}")).collect();
        Ok((Body::Values(rows), names, Vec::new()))
    }
}

impl Ex {
    /// A value of no type yet will be text.
    pub fn type_oid_or_text(&self) -> TypeOid {
        known_type(self.type_oid)
    }
}

pub(super) fn known_type(oid: TypeOid) -> TypeOid {
    if oid == TypeOid::UNKNOWN { TypeOid::TEXT } else { oid }
}

/// Refuses clauses that a query in parentheses has already, as PostgreSQL's grammar does.
fn check_once(query: &Query) -> Result<(), SqlError> {
    let mut body = query.body.as_ref();
    while let SetExpr::Query(inner) = body {
        let limited = |query: &Query| query.limit_clause.is_some() || query.fetch.is_some();
        let twice = [
            ("ORDER BY", query.order_by.is_some() && inner.order_by.is_some()),
            ("LIMIT", limited(query) && limited(inner)),
            ("WITH", query.with.is_some() && inner.with.is_some()),
        ];
        if let Some((clause, _)) = twice.iter().find(|(_, twice)| *twice) {
            return Err(fail("42601", format!("multiple {clause} clauses not allowed")));
        }
        body = inner.body.as_ref();
    }
    Ok(())
}

/// `x ASC NULLS LAST`: PostgreSQL has NULLs last going up and first going down, SQLite the other way round.
pub(super) fn sort_text(sql: &str, options: &OrderByOptions, not_null: bool) -> Result<String, SqlError> {
    let down = match &options.sort {
        None | Some(OrderBySort::Asc) => false,
        Some(OrderBySort::Desc) => true,
        Some(OrderBySort::Using(_)) => return Err(unsupported("ORDER BY … USING")),
    };
    let direction = if down { " DESC" } else { "" };
    if not_null {
        return Ok(format!("{sql}{direction}"));
    }
    let nulls = if options.nulls_first.unwrap_or(down) { "FIRST" } else { "LAST" };
    Ok(format!("{sql}{direction} NULLS {nulls}"))
}

/// The order of a set operation, which knows its columns alone.
fn set_order(order_by: &[OrderByExpr], columns: &[OutColumn]) -> Result<Vec<String>, SqlError> {
    let mut order = Vec::new();
    for part in order_by {
        let place = match &part.expr {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => {
                    digits.parse::<usize>().ok().and_then(|place| place.checked_sub(1))
                }
                _ => None,
            },
            Expr::Identifier(ident) => columns.iter().position(|column| column.name == fold(ident)),
            _ => None,
        };
        let Some(column) = place.and_then(|place| columns.get(place).map(|column| (place, column))) else {
            return Err(match &part.expr {
                Expr::Identifier(ident) => {
                    fail("42703", format!("column \"{}\" does not exist", fold(ident)))
                }
                Expr::Value(_) => fail("42P10", "ORDER BY position is not in select list"),
                _ => fail("0A000", "invalid UNION/INTERSECT/EXCEPT ORDER BY clause"),
            });
        };
        check_ordered(column.1.type_oid, "ORDER BY")?;
        order.push(sort_text(&(column.0 + 1).to_string(), &part.options, false)?);
    }
    Ok(order)
}
