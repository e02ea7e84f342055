//! Queries: WITH, SELECT, VALUES, set operations, ORDER BY and LIMIT.

use polyshard_sql::ast::{
    Cte as AstCte, Distinct, Expr, GroupByExpr, LimitClause, OrderBy, OrderByExpr, OrderByKind,
    OrderByOptions, OrderBySort, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    SetOperator, SetQuantifier, Value, Values,
};
use polyshard_sql::{SqlError, TypeOid};

use super::expr::Literal;
use super::scope::{Aggregates, check_grouped};
use super::{Cte, Ex, How, Scope, Translator, check_ordered, collated, fold, name_parts, quoted};
use crate::fail::{fail, unsupported};
use crate::prepared::OutColumn;
use crate::types;

/// A query in SQLite's words; its columns are called c1, c2, ….
pub(crate) struct Made {
    pub sql: String,
    pub columns: Vec<OutColumn>,
    /// What it uses of the queries around it.
    pub uses: Ex,
    /// Whether it gives one row at most.
    pub one_row: bool,
}

/// The inner part of a query, whose columns can still be given types.
enum Body {
    Select { items: Vec<Ex>, head: String, tail: String, one_row: bool },
    Values(Vec<Vec<Ex>>),
    Made(Made),
    Set { left: Box<Body>, right: Box<Body>, op: &'static str },
}

impl Translator<'_> {
    /// A query; columns of no type yet become those of `targets`.
    pub fn query(&mut self, query: &Query, targets: Option<&[TypeOid]>) -> Result<Made, SqlError> {
        self.deeper(|this| {
            let ctes_before = this.ctes.len();
            let ids_before = this.ids_allowed;
            let made = this.query_inner(query, targets);
            this.ctes.truncate(ctes_before);
            this.ids_allowed = ids_before;
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
        let is_top = std::mem::replace(&mut self.is_top, false);
        let level = self.scopes.len();
        let mut uses = Ex::of("", TypeOid::UNKNOWN);
        let mut with = Vec::new();
        if let Some(clause) = &query.with {
            for cte in &clause.cte_tables {
                with.push(self.cte(cte, clause.recursive, &mut uses)?);
            }
        }
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

    fn cte(&mut self, cte: &AstCte, recursive: bool, uses: &mut Ex) -> Result<String, SqlError> {
        let name = fold(&cte.alias.name);
        let alias = self.alias("w");
        let given: Vec<String> = cte.alias.columns.iter().map(|column| fold(&column.name)).collect();
        let rename = |columns: &mut Vec<OutColumn>| -> Result<(), SqlError> {
            if given.len() > columns.len() {
                return Err(fail(
                    "42P10",
                    format!("WITH query \"{name}\" has fewer columns than names are given"),
                ));
            }
            given.iter().zip(columns.iter_mut()).for_each(|(name, column)| column.name.clone_from(name));
            Ok(())
        };
        let ids_before = std::mem::replace(&mut self.ids_allowed, false);
        if recursive
            && let SetExpr::SetOperation { left, op: SetOperator::Union, set_quantifier, right } =
                cte.query.body.as_ref()
            && cte.query.with.is_none()
            && mentions(right, &name)
        {
            if cte.query.order_by.is_some() || cte.query.limit_clause.is_some() {
                return Err(fail("0A000", "ORDER BY or LIMIT in a recursive query is not implemented"));
            }
            let (mut first, names, _) = self.body(left, &[], uses)?;
            let wanted: Vec<TypeOid> = first.types().iter().map(|oid| known_type(*oid)).collect();
            first.coerce(self, &wanted)?;
            let mut columns: Vec<OutColumn> = names
                .into_iter()
                .zip(&wanted)
                .map(|(name, type_oid)| OutColumn { name, type_oid: *type_oid, type_mod: -1 })
                .collect();
            rename(&mut columns)?;
            self.ctes.push(Cte { name: name.clone(), alias: alias.clone(), columns: columns.clone() });
            let (mut next, ..) = self.body(right, &[], uses)?;
            let found = next.types();
            if found.len() != wanted.len() {
                return Err(fail("42601", "each UNION query must have the same number of columns"));
            }
            for (place, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                if found != wanted && *found != TypeOid::UNKNOWN {
                    let common = self.common_type(&[*wanted, *found], "UNION")?;
                    if common != *wanted {
                        return Err(fail(
                            "42804",
                            format!(
                                "recursive query \"{name}\" column {} has type {} in non-recursive term but type {} overall",
                                place + 1,
                                types::display(*wanted),
                                types::display(common)
                            ),
                        )
                        .hint("Cast the output of the non-recursive term to the correct type."));
                    }
                }
            }
            next.coerce(self, &wanted)?;
            let all = match set_quantifier {
                SetQuantifier::All => "UNION ALL",
                _ => {
                    for oid in &wanted {
                        check_ordered(*oid, "UNION")?;
                    }
                    "UNION"
                }
            };
            self.ids_allowed = ids_before;
            return Ok(format!(
                "{}{} AS ({} {all} {})",
                quoted(&alias),
                column_list(wanted.len()),
                first.text(),
                next.text()
            ));
        }
        let mut made = self.query(&cte.query, None)?;
        self.ids_allowed = ids_before;
        uses.uses(&made.uses);
        rename(&mut made.columns)?;
        let hint = match &cte.materialized {
            None => "",
            Some(polyshard_sql::ast::CteAsMaterialized::Materialized) => "MATERIALIZED ",
            Some(polyshard_sql::ast::CteAsMaterialized::NotMaterialized) => "NOT MATERIALIZED ",
        };
        let count = made.columns.len();
        self.ctes.push(Cte { name, alias: alias.clone(), columns: made.columns });
        Ok(format!("{}{} AS {hint}({})", quoted(&alias), column_list(count), made.sql))
    }

    /// A query's inner part, its columns' names and, for a SELECT, its order.
    fn body(
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

    fn select(
        &mut self,
        select: &Select,
        order_by: &[OrderByExpr],
        uses: &mut Ex,
    ) -> Result<(Body, Vec<String>, Vec<String>), SqlError> {
        if select.into.is_some() {
            return Err(unsupported("SELECT INTO").hint("use CREATE TABLE and INSERT … SELECT"));
        }
        if select.top.is_some()
            || select.qualify.is_some()
            || select.prewhere.is_some()
            || !select.lateral_views.is_empty()
            || !select.connect_by.is_empty()
            || !select.cluster_by.is_empty()
            || !select.sort_by.is_empty()
            || select.exclude.is_some()
        {
            return Err(unsupported("a clause of this SELECT"));
        }
        self.scopes.push(Scope::new());
        let made = self.select_inner(select, order_by, uses);
        self.scopes.pop();
        made
    }

    fn select_inner(
        &mut self,
        select: &Select,
        order_by: &[OrderByExpr],
        uses: &mut Ex,
    ) -> Result<(Body, Vec<String>, Vec<String>), SqlError> {
        let level = self.scopes.len() - 1;
        if !select.from.is_empty() {
            self.ids_allowed = false;
        }
        let from = self.from(&select.from, uses)?;
        let mut conditions = Vec::new();
        if let Some(selection) = &select.selection {
            self.scope().aggregates = Aggregates::Forbidden("WHERE");
            let condition = self.condition(selection, "WHERE")?;
            uses.uses(&condition);
            conditions.push(condition.sql);
        }
        let (grouped, group_text) = self.group_by(select, uses)?;
        self.scope().aggregates = Aggregates::Allowed;
        let mut window_text = Vec::new();
        for definition in &select.named_window {
            let polyshard_sql::ast::NamedWindowExpr::WindowSpec(spec) = &definition.1 else {
                return Err(unsupported("a window that is another's name"));
            };
            let spec = self.window_spec(spec)?;
            let alias = self.alias("v");
            window_text.push(format!("{} AS ({})", quoted(&alias), spec.sql));
            self.scope().windows.push((fold(&definition.0), alias));
        }
        self.scope().windows_allowed = true;
        let spread = self.spread_functions(&select.projection)?;
        let (mut items, names) = self.items(&select.projection)?;
        let has_aggregate_item = self.scope().saw_aggregate;
        self.scope().windows_allowed = false;
        let having = select.having.as_ref().map(|having| self.condition(having, "HAVING")).transpose()?;
        self.scope().windows_allowed = true;
        let distinct_on = match &select.distinct {
            Some(Distinct::On(exprs)) => Some(exprs),
            _ => None,
        };
        let mut order = Vec::new();
        let mut order_parts = Vec::new();
        for part in order_by {
            let (text, ex) = self.order_item(part, select, &items, &names)?;
            order.push(text);
            order_parts.push(ex);
        }
        self.scope().spread.clear();
        let is_grouped = grouped || having.is_some() || self.scope().saw_aggregate;
        if is_grouped {
            let all = items.iter().chain(&having).chain(order_parts.iter().flatten());
            for ex in all {
                check_grouped(ex, level)?;
            }
        }
        for ex in items.iter().chain(&having).chain(order_parts.iter().flatten()) {
            uses.uses(ex);
        }
        if !spread.is_empty() && (is_grouped || select.distinct.is_some()) {
            return Err(unsupported("a function that gives rows in a select list with groups"));
        }
        let mut tail = from;
        for (table, condition) in spread {
            tail.push_str(if tail.is_empty() { " FROM " } else { ", " });
            tail.push_str(&table);
            conditions.extend(condition);
        }
        if !conditions.is_empty() {
            tail.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
        }
        tail.push_str(&group_text);
        if let Some(having) = &having {
            if !grouped {
                // SQLite knows HAVING in a query of aggregates alone.
                if !has_aggregate_item {
                    return Err(unsupported("HAVING without GROUP BY or an aggregate in the select list"));
                }
            }
            tail.push_str(&format!(" HAVING {}", having.sql));
        }
        if !window_text.is_empty() {
            tail.push_str(&format!(" WINDOW {}", window_text.join(", ")));
        }
        let head = match &select.distinct {
            None | Some(Distinct::All) => "SELECT".to_owned(),
            Some(Distinct::Distinct) => {
                for item in &items {
                    check_ordered(item.type_oid_or_text(), "SELECT DISTINCT")?;
                }
                "SELECT DISTINCT".to_owned()
            }
            Some(Distinct::On(_)) => "SELECT".to_owned(),
        };
        if let Some(on) = distinct_on {
            if is_grouped {
                return Err(unsupported("DISTINCT ON with GROUP BY or aggregates"));
            }
            return self.distinct_on(on, items, names, tail, order_by, order);
        }
        for item in &mut items {
            if let Literal::Number(_) = item.literal {
                // Known to be no ordinal from here on.
                item.literal = Literal::None;
            }
        }
        let one_row = (is_grouped && !grouped) || (tail.is_empty() && !grouped);
        Ok((Body::Select { items, head, tail, one_row }, names, order))
    }

    /// The first row of each group in the given order.
    fn distinct_on(
        &mut self,
        on: &[Expr],
        items: Vec<Ex>,
        names: Vec<String>,
        tail: String,
        order_by: &[OrderByExpr],
        order: Vec<String>,
    ) -> Result<(Body, Vec<String>, Vec<String>), SqlError> {
        let mut keys = Vec::new();
        for (place, key) in on.iter().enumerate() {
            let key = self.expr(key)?;
            let key = self.known(key)?;
            check_ordered(key.type_oid, "DISTINCT ON")?;
            let key = collated(&key.sql, key.type_oid);
            let sorted = match order_by.get(place) {
                None => true,
                Some(part) => {
                    let part = self.expr(&part.expr)?;
                    collated(&part.sql, part.type_oid) == key
                }
            };
            if !sorted {
                return Err(unsupported("DISTINCT ON in another order than ORDER BY begins with"));
            }
            keys.push(key);
        }
        let mut sorts = Vec::new();
        for part in order_by {
            let ex = self.expr(&part.expr)?;
            let ex = self.known(ex)?;
            sorts.push(sort_text(&collated(&ex.sql, ex.type_oid), &part.options, ex.not_null)?);
        }
        let over = if sorts.is_empty() { String::new() } else { format!(" ORDER BY {}", sorts.join(", ")) };
        // Every order key rides along, so that the outer query can sort by it again.
        let mut inner: Vec<String> = Vec::new();
        let mut outer = Vec::new();
        for (place, item) in items.into_iter().enumerate() {
            let item = self.known(item)?;
            inner.push(format!("{} AS \"i{place}\"", collated(&item.sql, item.type_oid)));
            let mut column = Ex::made(format!("\"d\".\"i{place}\""), item.type_oid, &[]);
            column.type_mod = item.type_mod;
            column.name = item.name.clone();
            outer.push(column);
        }
        let mut order_out = Vec::new();
        for (place, part) in order_by.iter().enumerate() {
            let ex = self.expr(&part.expr)?;
            let ex = self.known(ex)?;
            inner.push(format!("{} AS \"o{place}\"", collated(&ex.sql, ex.type_oid)));
            let sql = collated(&format!("\"d\".\"o{place}\""), ex.type_oid);
            order_out.push(sort_text(&sql, &part.options, ex.not_null)?);
        }
        drop(order);
        let tail = format!(
            " FROM (SELECT {}, row_number() OVER (PARTITION BY {}{over}) AS \"n\"{tail}) AS \"d\" WHERE \"d\".\"n\" = 1",
            inner.join(", "),
            keys.join(", ")
        );
        Ok((Body::Select { items: outer, head: "SELECT".to_owned(), tail, one_row: false }, names, order_out))
    }

    fn group_by(&mut self, select: &Select, uses: &mut Ex) -> Result<(bool, String), SqlError> {
        let exprs = match &select.group_by {
            GroupByExpr::Expressions(exprs, modifiers) if modifiers.is_empty() => exprs,
            other => return Err(unsupported(format!("{other}"))),
        };
        if exprs.is_empty() {
            return Ok((false, String::new()));
        }
        self.scope().aggregates = Aggregates::Forbidden("GROUP BY");
        let mut keys = Vec::new();
        let mut texts = Vec::new();
        for expr in exprs {
            if matches!(expr, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_)) {
                return Err(unsupported("ROLLUP, CUBE and GROUPING SETS"));
            }
            let expr = self.group_target(expr, select)?;
            let ex = self.expr(expr)?;
            let ex = self.known(ex)?;
            check_ordered(ex.type_oid, "GROUP BY")?;
            uses.uses(&ex);
            if ex.level.is_none() {
                // A constant: one group, and never a column's number.
                texts.push("NULL".to_owned());
            } else {
                texts.push(collated(&ex.sql, ex.type_oid));
            }
            keys.push(ex.sql);
        }
        let scope = self.scope();
        scope.determined = scope
            .relations
            .iter()
            .filter(|relation| !relation.key.is_empty() && relation.key.iter().all(|key| keys.contains(key)))
            .map(|relation| relation.name.clone())
            .collect();
        scope.groups = Some(keys);
        Ok((true, format!(" GROUP BY {}", texts.join(", "))))
    }

    /// GROUP BY 1, and GROUP BY an alias that no column has.
    fn group_target<'a>(&mut self, expr: &'a Expr, select: &'a Select) -> Result<&'a Expr, SqlError> {
        if let Expr::Value(value) = expr
            && let Value::Number(digits, _) = &value.value
        {
            let place: usize = digits.parse().unwrap_or(0);
            let item = place.checked_sub(1).and_then(|place| select.projection.get(place));
            return match item {
                Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => Ok(expr),
                Some(_) => Err(unsupported("GROUP BY a number beside *")),
                None => Err(fail("42P10", format!("GROUP BY position {digits} is not in select list"))),
            };
        }
        if let Expr::Identifier(ident) = expr
            && self.column(None, &fold(ident)).is_err_and(|error| error.state.0 == "42703")
        {
            let aliased = select.projection.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if fold(alias) == fold(ident) => Some(expr),
                _ => None,
            });
            return Ok(aliased.unwrap_or(expr));
        }
        Ok(expr)
    }

    /// The select list, `*` spread out.
    pub(super) fn items(&mut self, projection: &[SelectItem]) -> Result<(Vec<Ex>, Vec<String>), SqlError> {
        let (mut items, mut names) = (Vec::new(), Vec::new());
        let level = self.scopes.len() - 1;
        for item in projection {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    let ex = self.expr(expr)?;
                    names.push(ex.name.clone().unwrap_or_else(|| "?column?".to_owned()));
                    items.push(ex);
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let ex = self.expr(expr)?;
                    let name = fold(alias);
                    items.push(ex.named(name.clone()));
                    names.push(name);
                }
                SelectItem::Wildcard(_) => {
                    let columns: Vec<_> =
                        self.scope().columns.iter().filter(|column| column.bare).cloned().collect();
                    if self.scope().relations.is_empty() {
                        return Err(fail("42601", "SELECT * with no tables specified is not valid"));
                    }
                    for column in columns {
                        items.push(self.reference(level, &column));
                        names.push(column.name);
                    }
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let (_, relation) = name_parts(name)?;
                    if !self.scope().relations.iter().any(|known| known.name == relation) {
                        return Err(fail(
                            "42P01",
                            format!("missing FROM-clause entry for table \"{relation}\""),
                        ));
                    }
                    let columns: Vec<_> = self
                        .scope()
                        .columns
                        .iter()
                        .filter(|column| column.relation.as_deref() == Some(relation.as_str()))
                        .cloned()
                        .collect();
                    for column in columns {
                        items.push(self.reference(level, &column));
                        names.push(column.name);
                    }
                }
                other => return Err(unsupported(format!("{other} in a select list"))),
            }
        }
        Ok((items, names))
    }

    /// One ORDER BY expression: a column of the result by number or name, or any expression.
    fn order_item(
        &mut self,
        part: &OrderByExpr,
        select: &Select,
        items: &[Ex],
        names: &[String],
    ) -> Result<(String, Option<Ex>), SqlError> {
        if part.with_fill.is_some() {
            return Err(unsupported("WITH FILL"));
        }
        let by_place = |place: usize| -> Result<(String, Option<Ex>), SqlError> {
            let item = &items[place];
            check_ordered(item.type_oid_or_text(), "ORDER BY")?;
            Ok((sort_text(&(place + 1).to_string(), &part.options, item.not_null)?, None))
        };
        if let Expr::Value(value) = &part.expr
            && let Value::Number(digits, _) = &value.value
        {
            let place = digits.parse::<usize>().ok().and_then(|place| place.checked_sub(1));
            return match place.filter(|place| *place < items.len()) {
                Some(place) => by_place(place),
                None => Err(fail("42P10", format!("ORDER BY position {digits} is not in select list"))),
            };
        }
        if let Expr::Identifier(ident) = &part.expr {
            let name = fold(ident);
            let mut found = (0..items.len()).filter(|place| names[*place] == name);
            if let Some(place) = found.next() {
                if found.any(|other| items[other].sql != items[place].sql) {
                    return Err(fail("42702", format!("ORDER BY \"{name}\" is ambiguous")));
                }
                return by_place(place);
            }
        }
        let ex = self.expr(&part.expr)?;
        let ex = self.known(ex)?;
        check_ordered(ex.type_oid, "ORDER BY")?;
        if let Some(place) = items.iter().position(|item| item.sql == ex.sql && item.type_oid == ex.type_oid)
        {
            return by_place(place);
        }
        if let Some(Distinct::Distinct) = select.distinct {
            return Err(fail(
                "42P10",
                "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
            ));
        }
        if ex.level.is_none() && !ex.has_window && ex.literal != Literal::None {
            return Err(fail("42601", "non-integer constant in ORDER BY"));
        }
        // Never a bare number, which SQLite would take for a column's place.
        let sql = collated(&ex.sql, ex.type_oid);
        let sql = if sql.bytes().all(|byte| byte.is_ascii_digit()) { format!("(+{sql})") } else { sql };
        Ok((sort_text(&sql, &part.options, ex.not_null)?, Some(ex)))
    }
}

impl Ex {
    /// A value of no type yet will be text.
    pub fn type_oid_or_text(&self) -> TypeOid {
        known_type(self.type_oid)
    }
}

fn is_shown_otherwise(oid: TypeOid, type_mod: i32) -> bool {
    (oid == TypeOid::BPCHAR && type_mod > 4) || crate::system::is_named(oid)
}

fn known_type(oid: TypeOid) -> TypeOid {
    if oid == TypeOid::UNKNOWN { TypeOid::TEXT } else { oid }
}

impl Body {
    fn types(&self) -> Vec<TypeOid> {
        match self {
            Body::Select { items, .. } => items.iter().map(|item| item.type_oid).collect(),
            Body::Values(rows) => {
                rows.first().map_or_else(Vec::new, |row| row.iter().map(|value| value.type_oid).collect())
            }
            Body::Made(made) => made.columns.iter().map(|column| column.type_oid).collect(),
            Body::Set { left, .. } => left.types(),
        }
    }

    fn type_mods(&self) -> Vec<i32> {
        match self {
            Body::Select { items, .. } => items.iter().map(|item| item.type_mod).collect(),
            Body::Made(made) => made.columns.iter().map(|column| column.type_mod).collect(),
            Body::Values(rows) => vec![-1; rows.first().map_or(0, Vec::len)],
            Body::Set { left, right, .. } => left
                .type_mods()
                .into_iter()
                .zip(right.type_mods())
                .map(|(a, b)| if a == b { a } else { -1 })
                .collect(),
        }
    }

    fn one_row(&self) -> bool {
        match self {
            Body::Select { one_row, .. } => *one_row,
            Body::Values(rows) => rows.len() <= 1,
            Body::Made(made) => made.one_row,
            Body::Set { .. } => false,
        }
    }

    fn coerce(&mut self, this: &mut Translator<'_>, wanted: &[TypeOid]) -> Result<(), SqlError> {
        let fit = |this: &mut Translator<'_>, value: &mut Ex, wanted: TypeOid| -> Result<(), SqlError> {
            if value.type_oid != wanted {
                let name = value.name.clone();
                let made = this.coerce(value.clone(), wanted, -1, How::Implicit)?;
                *value = Ex { name, ..made };
            }
            Ok(())
        };
        match self {
            Body::Select { items, .. } => {
                for (item, wanted) in items.iter_mut().zip(wanted) {
                    fit(this, item, *wanted)?;
                }
            }
            Body::Values(rows) => {
                for row in rows {
                    for (value, wanted) in row.iter_mut().zip(wanted) {
                        fit(this, value, *wanted)?;
                    }
                }
            }
            Body::Set { left, right, .. } => {
                left.coerce(this, wanted)?;
                right.coerce(this, wanted)?;
            }
            Body::Made(made) => {
                if made.columns.iter().zip(wanted).any(|(column, wanted)| column.type_oid != *wanted) {
                    let mut items = Vec::new();
                    for (place, (column, wanted)) in made.columns.iter_mut().zip(wanted).enumerate() {
                        let own = Ex::of(format!("\"s\".\"c{}\"", place + 1), column.type_oid);
                        items.push(this.coerce(own, *wanted, -1, How::Implicit)?);
                        column.type_oid = *wanted;
                    }
                    made.sql = format!("SELECT {} FROM ({}) AS \"s\"", listed(&items), made.sql);
                }
            }
        }
        Ok(())
    }

    /// As a client sees the values: the names of system objects, `character(n)` with its blanks.
    fn shown(&mut self, this: &mut Translator<'_>) -> Result<(), SqlError> {
        if let Body::Set { .. } | Body::Values(_) = self {
            let types = self.types();
            let mods = self.type_mods();
            if !types.iter().zip(&mods).any(|(oid, type_mod)| is_shown_otherwise(*oid, *type_mod)) {
                return Ok(());
            }
            let columns = types
                .iter()
                .zip(mods)
                .map(|(type_oid, type_mod)| OutColumn { name: String::new(), type_oid: *type_oid, type_mod })
                .collect();
            let uses = Ex::of("", TypeOid::UNKNOWN);
            *self = Body::Made(Made { sql: self.text(), columns, uses, one_row: false });
        }
        match self {
            Body::Select { items, .. } => {
                for item in items {
                    item.sql = this.shown_value(&item.sql, item.type_oid, item.type_mod)?;
                }
            }
            Body::Made(made) => {
                if !made.columns.iter().any(|column| is_shown_otherwise(column.type_oid, column.type_mod)) {
                    return Ok(());
                }
                let mut items = Vec::new();
                for (place, column) in made.columns.iter().enumerate() {
                    let own = format!("\"s\".\"c{}\"", place + 1);
                    items.push(Ex::of(
                        this.shown_value(&own, column.type_oid, column.type_mod)?,
                        column.type_oid,
                    ));
                }
                made.sql = format!("SELECT {} FROM ({}) AS \"s\"", listed(&items), made.sql);
            }
            Body::Set { .. } | Body::Values(_) => {}
        }
        Ok(())
    }

    fn text(&self) -> String {
        match self {
            Body::Select { items, head, tail, .. } => {
                // A table without columns still has rows.
                let list = if items.is_empty() { "NULL".to_owned() } else { listed(items) };
                format!("{head} {list}{tail}")
            }
            Body::Values(rows) => {
                let count = rows.first().map_or(0, Vec::len);
                let row = |row: &Vec<Ex>| {
                    let values: Vec<String> = row.iter().map(|value| value.sql.clone()).collect();
                    format!("({})", values.join(", "))
                };
                let types = self.types();
                let columns: Vec<String> = (1..=count)
                    .map(|place| {
                        format!(
                            "{} AS \"c{place}\"",
                            collated(&format!("\"column{place}\""), types[place - 1])
                        )
                    })
                    .collect();
                let rows: Vec<String> = rows.iter().map(row).collect();
                format!("SELECT {} FROM (VALUES {})", columns.join(", "), rows.join(", "))
            }
            Body::Made(made) => format!("SELECT * FROM ({})", made.sql),
            Body::Set { left, right, op } => {
                let side = |body: &Body| match body {
                    Body::Set { .. } => format!("SELECT * FROM ({})", body.text()),
                    other => other.text(),
                };
                format!("{} {op} {}", side(left), side(right))
            }
        }
    }
}

fn listed(items: &[Ex]) -> String {
    let items = items.iter().enumerate();
    let items: Vec<String> = items
        .map(|(place, item)| format!("{} AS \"c{}\"", collated(&item.sql, item.type_oid), place + 1))
        .collect();
    items.join(", ")
}

fn column_list(count: usize) -> String {
    let names: Vec<String> = (1..=count).map(|place| format!("\"c{place}\"")).collect();
    format!("({})", names.join(", "))
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

/// Whether a part of a recursive query names the query itself.
fn mentions(body: &SetExpr, name: &str) -> bool {
    use polyshard_sql::ast::visit_relations;
    let mut found = false;
    let _ = visit_relations(body, |relation| {
        if name_parts(relation).is_ok_and(|(schema, own)| schema.is_none() && own == name) {
            found = true;
            return std::ops::ControlFlow::Break(());
        }
        std::ops::ControlFlow::Continue(())
    });
    found
}
