//! Aggregates computed in two steps: a part on each shard, put together in the combine step.

use std::ops::ControlFlow;

use crate::ast::{
    Cte, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, GroupByExpr, Ident, Query, Select, SelectItem, SetExpr, VisitMut, VisitorMut,
};

use super::fast::{column_names, with};
use super::scope::Scope;
use super::shape::{Block, order_items};
use super::tree::{self, Facts, arguments, bare, folded, function_name, quoted};
use super::{Planner, Source, functions, names, types};
use crate::error::SqlError;
use crate::schema::TypeOid;

impl Planner<'_> {
    /// GROUP BY on each shard, and again over the shards' groups.
    ///
    /// Proof: a group's rows are the union of its rows on each shard. count, sum, min, max and the boolean and bit
    /// aggregates of a union are the sum, sum, min, … of those of the parts; avg is sum through count, by the very
    /// division that PostgreSQL's own avg ends with. For agg(DISTINCT x) the shards group by x too: every distinct
    /// value arrives, and the other aggregates' parts add up over these finer groups just the same.
    pub(super) fn aggregate(
        &mut self,
        query: &Query,
        select: &Select,
        block: &Block,
        commons: &[Cte],
    ) -> Result<Option<Query>, SqlError> {
        let Some(items) = order_items(query.order_by.as_ref()) else { return Ok(None) };
        let Some(groups) = self.groups(select, &block.scope) else { return Ok(None) };
        let order_facts = items.iter().map(|item| &item.expr);
        if !Facts::of_all(order_facts).functions.iter().all(|function| self.analyzer.is_safe(function)) {
            return Ok(None);
        }
        let temp = self.next_temp();
        let mut replacing = Replacing {
            scope: &block.scope,
            groups: groups.iter().map(|(canonical, _)| canonical.clone()).collect(),
            extras: Vec::new(),
            partials: Vec::new(),
            temp: temp.clone(),
        };
        let Some(mut combined) = replacing.select(select, self) else { return Ok(None) };
        let mut out = query.clone();
        if let Some(order) = &mut out.order_by {
            let crate::ast::OrderByKind::Expressions(items) = &mut order.kind else { return Ok(None) };
            for item in items {
                if is_output(&item.expr, &combined) {
                    continue;
                }
                if item.expr.visit(&mut replacing).is_break() {
                    return Ok(None);
                }
            }
        }
        let Replacing { extras, partials, .. } = replacing;
        let grouped = groups.len() + extras.len();
        if grouped + partials.len() == 0 {
            return Ok(None);
        }
        let columns = groups.iter().map(|(_, expr)| expr.to_string());
        let columns =
            columns.chain(extras.iter().map(|(_, text)| text.clone())).chain(partials.iter().cloned());
        let mut part = Query {
            with: with(commons, query.with.as_ref()),
            ..tree::query(&format!("SELECT {}", columns.collect::<Vec<_>>().join(", ")))?
        };
        let SetExpr::Select(inner) = part.body.as_mut() else { return Ok(None) };
        inner.from = select.from.clone();
        inner.selection = select.selection.clone();
        let places: Vec<String> = (1..=grouped).map(|place| place.to_string()).collect();
        let grouping =
            if places.is_empty() { String::new() } else { format!(" GROUP BY {}", places.join(", ")) };
        let names: Vec<String> = column_names("g", groups.len())
            .chain(column_names("d", extras.len()))
            .chain(column_names("a", partials.len()))
            .collect();
        let sql = format!("SELECT * FROM ({part}{grouping}) AS ps ({})", names.join(", "));
        self.fragment(&temp, sql, Source::EveryShard);
        if grouped == 0 {
            self.limit_rows(Some(1));
        }
        combined.from = tree::query(&format!("SELECT 1 FROM pg_temp.{temp}"))?
            .body
            .as_select()
            .map(|select| select.from.clone())
            .unwrap_or_default();
        combined.selection = None;
        out.with = None;
        out.body = Box::new(SetExpr::Select(Box::new(combined)));
        Ok(Some(out))
    }

    /// The expressions that are grouped by, without repetition.
    fn groups(&self, select: &Select, scope: &Scope) -> Option<Vec<(String, Expr)>> {
        let GroupByExpr::Expressions(items, modifiers) = &select.group_by else { return None };
        if !modifiers.is_empty() {
            return None;
        }
        let mut groups: Vec<(String, Expr)> = Vec::new();
        let mut add = |item: &Expr| {
            let expr = self.analyzer.grouped(select, item, scope)?;
            let facts = Facts::of(expr);
            if facts.columns.is_empty() || !facts.queries.is_empty() {
                return None;
            }
            let canonical = scope.canonical(expr)?;
            if !groups.iter().any(|(known, _)| *known == canonical) {
                groups.push((canonical, expr.clone()));
            }
            Some(())
        };
        for item in items {
            match bare(item) {
                Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => {
                    for item in sets.iter().flatten() {
                        add(item)?;
                    }
                }
                Expr::Tuple(items) => {
                    for item in items {
                        add(item)?;
                    }
                }
                _ => add(item)?,
            }
        }
        Some(groups)
    }
}

/// Whether an ORDER BY item means an output column, by place or by name.
fn is_output(expr: &Expr, select: &Select) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::Identifier(ident) => {
            select.projection.iter().any(|item| names::item(item).is_some_and(|name| name == folded(ident)))
        }
        _ => false,
    }
}

/// Rewrites expressions over rows as expressions over the shards' groups.
struct Replacing<'r> {
    scope: &'r Scope,
    groups: Vec<String>,
    /// Columns by which the shards group too, for DISTINCT aggregates: canonical and own text.
    extras: Vec<(String, String)>,
    partials: Vec<String>,
    temp: String,
}

impl Replacing<'_> {
    fn select(&mut self, select: &Select, planner: &Planner<'_>) -> Option<Select> {
        let mut combined = select.clone();
        for item in &mut combined.projection {
            let name = names::item(item)?;
            let expr = match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => expr,
                _ => return None,
            };
            expr.visit(self).is_continue().then_some(())?;
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', name) };
        }
        if let GroupByExpr::Expressions(items, _) = &mut combined.group_by {
            for item in items {
                self.group_item(item, select, planner)?;
            }
        }
        combined.having.visit(self).is_continue().then_some(())?;
        combined.named_window.visit(self).is_continue().then_some(())?;
        if let Some(distinct) = &mut combined.distinct {
            distinct.visit(self).is_continue().then_some(())?;
        }
        Some(combined)
    }

    fn group_item(&mut self, item: &mut Expr, select: &Select, planner: &Planner<'_>) -> Option<()> {
        match item {
            Expr::Nested(inner) => self.group_item(inner, select, planner),
            Expr::GroupingSets(sets) | Expr::Cube(sets) | Expr::Rollup(sets) => {
                sets.iter_mut().flatten().try_for_each(|item| self.group_item(item, select, planner))
            }
            Expr::Tuple(items) => {
                items.iter_mut().try_for_each(|item| self.group_item(item, select, planner))
            }
            other => {
                let meant = planner.analyzer.grouped(select, other, self.scope)?;
                let canonical = self.scope.canonical(meant)?;
                let at = self.groups.iter().position(|known| *known == canonical)?;
                *other = self.column("g", at)?;
                Some(())
            }
        }
    }

    fn column(&self, prefix: &str, at: usize) -> Option<Expr> {
        tree::expression(&format!("{}.{prefix}{at}", self.temp)).ok()
    }

    fn is_ours(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::CompoundIdentifier(parts) if parts.first().is_some_and(|part| part.value == self.temp))
    }

    fn partial(&mut self, text: String) -> String {
        let at = self.partials.iter().position(|known| *known == text).unwrap_or_else(|| {
            self.partials.push(text);
            self.partials.len() - 1
        });
        format!("{}.a{at}", self.temp)
    }

    /// A column that the shards group by for a DISTINCT aggregate.
    fn extra(&mut self, expr: &Expr) -> Option<Expr> {
        let canonical = self.scope.canonical(expr)?;
        let at = self.extras.iter().position(|(known, _)| *known == canonical).unwrap_or_else(|| {
            self.extras.push((canonical, format!("({expr})")));
            self.extras.len() - 1
        });
        self.column("d", at)
    }

    /// The aggregate over the shards' parts.
    fn merged(&mut self, function: &Function) -> Option<Expr> {
        let name = function_name(function)?;
        let plain = function.within_group.is_empty()
            && function.null_treatment.is_none()
            && matches!(function.parameters, FunctionArguments::None);
        let FunctionArguments::List(list) = &function.args else { return None };
        if !plain {
            return None;
        }
        if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
            return self.distinct(function);
        }
        if !list.clauses.is_empty() {
            return None;
        }
        let filter =
            function.filter.as_ref().map_or_else(String::new, |filter| format!(" FILTER (WHERE {filter})"));
        let all = arguments(function)?;
        let [argument] = all.as_slice() else { return None };
        let text = match argument {
            FunctionArgExpr::Wildcard if name == "count" => {
                let part = self.partial(format!("count(*){filter}"));
                format!("(COALESCE(sum({part}), 0)::bigint)")
            }
            FunctionArgExpr::Expr(argument) => self.over(&name, argument, &filter)?,
            _ => return None,
        };
        tree::expression(&text).ok()
    }

    fn over(&mut self, name: &str, argument: &Expr, filter: &str) -> Option<String> {
        let kind = types::of(argument, self.scope);
        Some(match name {
            "count" => {
                let part = self.partial(format!("count({argument}){filter}"));
                format!("(COALESCE(sum({part}), 0)::bigint)")
            }
            "sum" => {
                let part = |this: &mut Self| this.partial(format!("sum({argument}){filter}"));
                match kind? {
                    // The sum of bigints is numeric; that of ints is bigint, as are its parts.
                    TypeOid::INT2 | TypeOid::INT4 => format!("(sum({})::bigint)", part(self)),
                    TypeOid::INT8
                    | TypeOid::NUMERIC
                    | TypeOid::FLOAT4
                    | TypeOid::FLOAT8
                    | TypeOid::INTERVAL => {
                        format!("sum({})", part(self))
                    }
                    _ => return None,
                }
            }
            "avg" => match kind? {
                TypeOid::INT2 | TypeOid::INT4 | TypeOid::INT8 | TypeOid::NUMERIC => {
                    let sum = self.partial(format!("sum({argument}){filter}"));
                    let count = self.partial(format!("count({argument}){filter}"));
                    format!("(sum({sum}) / sum({count}))")
                }
                TypeOid::FLOAT4 | TypeOid::FLOAT8 => {
                    let sum = self.partial(format!("sum(({argument})::double precision){filter}"));
                    let count = self.partial(format!("count({argument}){filter}"));
                    format!("(sum({sum}) / sum({count})::double precision)")
                }
                _ => return None,
            },
            "min" | "max" | "bool_and" | "bool_or" | "every" | "bit_and" | "bit_or" => {
                let part = self.partial(format!("{name}({argument}){filter}"));
                format!("{name}({part})")
            }
            _ => return None,
        })
    }

    fn distinct(&mut self, function: &Function) -> Option<Expr> {
        let mut function = function.clone();
        if let Some(filter) = &mut function.filter {
            **filter = self.extra(filter)?;
        }
        let FunctionArguments::List(list) = &mut function.args else { return None };
        for argument in &mut list.args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument else { return None };
            self.distinct_part(expr)?;
        }
        for clause in &mut list.clauses {
            let FunctionArgumentClause::OrderBy(items) = clause else { return None };
            for item in items {
                self.distinct_part(&mut item.expr)?;
            }
        }
        Some(Expr::Function(function))
    }

    fn distinct_part(&mut self, expr: &mut Expr) -> Option<()> {
        let facts = Facts::of(&*expr);
        if !facts.queries.is_empty() {
            return None;
        }
        if !facts.columns.is_empty() {
            *expr = self.extra(expr)?;
        } else if !facts.functions.is_empty() {
            return None;
        }
        Some(())
    }
}

impl VisitorMut for Replacing<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.is_ours(expr) {
            return ControlFlow::Continue(());
        }
        if let Some(canonical) = self.scope.canonical(expr)
            && let Some(at) = self.groups.iter().position(|known| *known == canonical)
            && let Some(column) = self.column("g", at)
        {
            *expr = column;
            return ControlFlow::Continue(());
        }
        match &*expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => ControlFlow::Break(()),
            Expr::Function(function) if function.over.is_none() => {
                let name = function_name(function).unwrap_or_default();
                let facts = Facts::of(&function.args);
                let merged =
                    !facts.columns.is_empty() && facts.columns.iter().all(|column| self.is_ours(column));
                if !functions::is_aggregate(&name) || name == "grouping" || merged {
                    return ControlFlow::Continue(());
                }
                match self.merged(function) {
                    Some(new) => {
                        *expr = new;
                        ControlFlow::Continue(())
                    }
                    None => ControlFlow::Break(()),
                }
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// The names of columns, quoted, for a list.
pub(super) fn quoted_list<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    names.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}
