//! SELECT: its list, its groups, its order.

use polyshard_sql::ast::{
    Distinct, Expr, GroupByExpr, OrderByExpr, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, TableFactor, TableWithJoins, Value,
};
use polyshard_sql::{SqlError, TypeOid};

use super::body::Body;
use super::expr::Literal;
use super::query::sort_text;
use super::scope::{Aggregates, check_grouped};
use super::{Ex, How, Ids, Scope, Translator, check_ordered, collated, fold, name_parts, quoted, sort_value};
use crate::fail::{fail, unsupported};
use crate::types;

impl Translator<'_> {
    pub(super) fn select(
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
        // Ids can be taken for the rows of VALUES, whose number is known.
        let ids = match (self.ids, select.from.is_empty()) {
            (ids, true) => ids,
            (Ids::None, false) => Ids::None,
            (_, false) => rows_most(&select.from).map_or(Ids::None, Ids::Rows),
        };
        self.ids = Ids::None;
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
        self.ids = ids;
        let spread = self.spread_functions(&select.projection)?;
        let (mut items, names) = self.items(&select.projection)?;
        self.ids = Ids::None;
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
                for item in &mut items {
                    check_ordered(item.type_oid_or_text(), "SELECT DISTINCT")?;
                    if item.type_oid == TypeOid::UNKNOWN {
                        // To be compared it needs a type, whatever a UNION around it would make of it.
                        let name = item.name.clone();
                        *item = Ex { name, ..self.coerce(item.clone(), TypeOid::TEXT, -1, How::Implicit)? };
                    }
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
        let one_row = !grouped && (is_grouped || tail.is_empty());
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
            sorts.push(sort_text(&sort_value(self.context, &ex)?, &part.options, ex.not_null)?);
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
            inner.push(format!("{} AS \"o{place}\"", sort_value(self.context, &ex)?));
            let sql = collated(&format!("\"d\".\"o{place}\""), ex.type_oid);
            order_out.push(sort_text(&sql, &part.options, ex.not_null)?);
        }
        drop(order);
        let tail = format!(
            " FROM (SELECT {}, row_number() OVER (PARTITION BY {}{over}) AS \"n\"{tail}) AS \"d\" \
             WHERE \"d\".\"n\" = 1",
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
        let context = self.context;
        let by_place = |place: usize| -> Result<(String, Option<Ex>), SqlError> {
            let item = &items[place];
            if types::is_enum(item.type_oid) {
                let sql = sort_value(context, item)?;
                return Ok((sort_text(&sql, &part.options, item.not_null)?, None));
            }
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
        if !types::is_enum(ex.type_oid) {
            check_ordered(ex.type_oid, "ORDER BY")?;
        }
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
        let sql = sort_value(context, &ex)?;
        let sql = if sql.bytes().all(|byte| byte.is_ascii_digit()) { format!("(+{sql})") } else { sql };
        Ok((sort_text(&sql, &part.options, ex.not_null)?, Some(ex)))
    }
}

/// The most rows for which ids are taken at once: a lease from the catalog should stay small.
const IDS_ROWS_MAX: usize = 10_000;

/// How many rows a FROM gives at most, if its text tells: those of VALUES.
fn rows_most(from: &[TableWithJoins]) -> Option<usize> {
    match from {
        [TableWithJoins { relation: TableFactor::Derived { subquery, .. }, joins }] if joins.is_empty() => {
            query_rows_most(subquery)
        }
        [TableWithJoins { relation: TableFactor::UNNEST { array_exprs, .. }, joins }] if joins.is_empty() => {
            let elements: Option<Vec<usize>> = array_exprs.iter().map(elements_most).collect();
            elements?.into_iter().max()
        }
        _ => None,
    }
}

/// How many elements an array has at most, if it is written down.
fn elements_most(array: &Expr) -> Option<usize> {
    match array {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => elements_most(inner),
        Expr::Array(array) => Some(array.elem.len()),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.matches(',').count() + 1),
            Value::Null => Some(0),
            _ => None,
        },
        _ => None,
    }
}

/// The same of a query.
pub(super) fn query_rows_most(query: &Query) -> Option<usize> {
    let most = match query.body.as_ref() {
        SetExpr::Values(values) => values.rows.len(),
        SetExpr::Select(select) if select.from.is_empty() => 1,
        SetExpr::Select(select) => rows_most(&select.from)?,
        _ => return None,
    };
    (most <= IDS_ROWS_MAX).then_some(most)
}
