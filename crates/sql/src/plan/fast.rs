//! Faster plans than fetching whole tables: parts of the query that the shards compute side by side.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::ast::helpers::attached_token::AttachedToken;
use crate::ast::{
    Cte, Distinct, Expr, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query, SelectItem, SetExpr, With,
    visit_relations,
};

use super::merge::Sorted;
use super::scope::{Place, Scope};
use super::shape::{Block, Output, aggregates, order_items};
use super::tree::{self, Facts, bare, folded, quoted, relation, whole};
use super::{Planner, Source};
use crate::error::SqlError;

impl Planner<'_> {
    /// The query with the shards' work taken out of it, if a fast plan fits. It refers to nothing outside itself.
    pub(super) fn fast(&mut self, query: &Query, parent: &Scope) -> Result<Option<Query>, SqlError> {
        let scope = self.analyzer.commons(query.with.as_ref(), parent);
        let limit_facts = Facts::of(&query.limit_clause);
        let fetch_facts = Facts::of(&query.fetch);
        if !limit_facts.queries.is_empty() || !fetch_facts.queries.is_empty() {
            return Ok(None);
        }
        let Some(commons) = needed_commons(query, parent) else { return Ok(None) };
        match query.body.as_ref() {
            SetExpr::Select(select) => {
                let block = self.analyzer.block(select, &scope);
                let sharded = matches!(block.core, Place::Sharded(_));
                if !sharded || !block.pushable || block.lowest <= parent.depth() {
                    return Ok(None);
                }
                let by_key = matches!(block.full, Place::Sharded(_));
                if by_key || (!block.aggregated && !block.windows) {
                    let Some(outputs) = &block.outputs else { return Ok(None) };
                    return self.ordered(query, outputs, Some(&block), &commons);
                }
                if block.aggregated { self.aggregate(query, select, &block, &commons) } else { Ok(None) }
            }
            SetExpr::SetOperation { .. } => {
                let shape = self.analyzer.body(&query.body, &scope);
                let sharded = matches!(shape.place, Place::Sharded(_));
                if !sharded || shape.lowest <= parent.depth() {
                    return Ok(None);
                }
                let Some(columns) = shape.columns else { return Ok(None) };
                let output = |column| Output { column, canonical: None };
                let outputs: Vec<Output> = columns.into_iter().map(output).collect();
                self.ordered(query, &outputs, None, &commons)
            }
            _ => Ok(None),
        }
    }

    /// Rows computed by the shards; sorted, made distinct and limited here.
    ///
    /// Proof: the block's rows are those of all shards together. DISTINCT of a union is DISTINCT of the DISTINCTs.
    /// The first n + m rows of the whole in an order are among each shard's own first n + m in that order, since a
    /// shard's row that has n + m of its own before it has at least as many of the whole before it. DISTINCT ON
    /// keeps the first row of each group; the first of the whole is the first of its shard.
    fn ordered(
        &mut self,
        query: &Query,
        outputs: &[Output],
        block: Option<&Block>,
        commons: &[Cte],
    ) -> Result<Option<Query>, SqlError> {
        let scope = block.map(|block| &block.scope);
        let Some(items) = order_items(query.order_by.as_ref()) else { return Ok(None) };
        if outputs.is_empty() {
            return Ok(None);
        }
        let distinct = match query.body.as_ref() {
            SetExpr::Select(select) => select.distinct.clone(),
            _ => None,
        };
        let is_distinct = matches!(distinct, Some(Distinct::Distinct));
        let temp = self.next_temp();
        let mut hidden = Hidden { outputs, scope, exprs: Vec::new(), temp: temp.clone() };
        let mut order = Vec::new();
        for item in items {
            let Some(column) = hidden.column(&item.expr, true) else { return Ok(None) };
            order.push(OrderByExpr { expr: column, ..item.clone() });
        }
        let mut on = Vec::new();
        if let Some(Distinct::On(exprs)) = &distinct {
            for expr in exprs {
                let Some(column) = hidden.column(expr, true) else { return Ok(None) };
                on.push(column);
            }
        }
        let hidden = hidden.exprs;
        if (is_distinct && !hidden.is_empty()) || !self.may_hide(&hidden, block) {
            return Ok(None);
        }
        let mut inner = Query { with: with(commons, query.with.as_ref()), ..query.clone() };
        inner.fetch = None;
        inner.limit_clause = None;
        match first_rows(query) {
            Some(rows) => inner.limit_clause = Some(limit(rows)),
            None if on.is_empty() => inner.order_by = None,
            None => {}
        }
        if let SetExpr::Select(select) = inner.body.as_mut() {
            select.projection.extend(hidden.iter().cloned().map(SelectItem::UnnamedExpr));
        }
        if !on.is_empty() {
            // A LIMIT counts what DISTINCT ON leaves; without one each shard sends its first row of each group.
            inner.limit_clause = None;
        }
        let names: Vec<String> =
            column_names("c", outputs.len()).chain(column_names("h", hidden.len())).collect();
        self.fragment(
            &temp,
            format!("SELECT * FROM ({inner}) AS ps ({})", names.join(", ")),
            Source::EveryShard,
        );
        if on.is_empty() {
            self.limit_rows(first_rows(query));
        }
        let by_key = block.is_none_or(|block| matches!(block.full, Place::Sharded(_)));
        let distinct = match &distinct {
            Some(Distinct::On(_)) => {
                format!("DISTINCT ON ({}) ", on.iter().map(Expr::to_string).collect::<Vec<_>>().join(", "))
            }
            Some(Distinct::Distinct) if !by_key => "DISTINCT ".to_owned(),
            _ => String::new(),
        };
        let list: Vec<String> = outputs
            .iter()
            .enumerate()
            .map(|(at, output)| format!("{temp}.c{at} AS {}", quoted(&output.column.name)))
            .collect();
        let mut combined = tree::query(&format!("SELECT {distinct}{} FROM pg_temp.{temp}", list.join(", ")))?;
        if !order.is_empty() {
            let kind = OrderByKind::Expressions(order.clone());
            combined.order_by = Some(OrderBy { kind, interpolate: None });
        }
        combined.limit_clause = query.limit_clause.clone();
        combined.fetch = query.fetch.clone();
        if distinct.is_empty() {
            // Rows that are not made distinct once more need only be put in their order.
            let (temp, list, order) = (&temp, &list, &order[..]);
            let sorted = Sorted { inner: &inner, names: &names, temp, list, order, combine: &combined };
            self.note_merge(query, &sorted);
        }
        Ok(Some(combined))
    }

    /// Whether these expressions of ORDER BY may be computed by the shards beside the select list.
    fn may_hide(&self, hidden: &[Expr], block: Option<&Block>) -> bool {
        if hidden.is_empty() {
            return true;
        }
        let Some(block) = block else { return false };
        let facts = Facts::of_all(hidden);
        let demand = self.analyzer.demand(&facts, &block.scope);
        demand.pushable
            && demand.lowest >= block.scope.depth()
            && facts.queries.is_empty()
            && facts.functions.iter().all(|function| function.over.is_none())
            && (block.aggregated || !aggregates(&facts))
    }
}

/// Columns that are not in the select list and yet needed after the shards' work.
struct Hidden<'h> {
    outputs: &'h [Output],
    scope: Option<&'h Scope>,
    exprs: Vec<Expr>,
    temp: String,
}

impl Hidden<'_> {
    /// The column of the temporary table that has this expression's value. A number is an output column's place.
    fn column(&mut self, expr: &Expr, numbered: bool) -> Option<Expr> {
        let at = |prefix: &str, at: usize| tree::expression(&format!("{}.{prefix}{at}", self.temp)).ok();
        if let Expr::Value(_) = bare(expr) {
            let place = usize::try_from(whole(expr)?).ok()?.checked_sub(1)?;
            return (numbered && place < self.outputs.len()).then(|| at("c", place))?;
        }
        if let Expr::Identifier(ident) = expr {
            let name = folded(ident);
            let mut named = self.outputs.iter().enumerate().filter(|(_, output)| output.column.name == name);
            match (named.next(), named.next()) {
                (Some((place, _)), None) => return at("c", place),
                (Some(_), Some(_)) => return None,
                _ => {}
            }
        }
        let canonical = self.scope?.canonical(expr)?;
        let known = self.outputs.iter().position(|output| output.canonical.as_ref() == Some(&canonical));
        if let Some(place) = known {
            return at("c", place);
        }
        let scope = self.scope?;
        let place = self.exprs.iter().position(|other| scope.canonical(other).as_ref() == Some(&canonical));
        let place = place.unwrap_or(self.exprs.len());
        let column = at("h", place);
        if place == self.exprs.len() {
            self.exprs.push(expr.clone());
        }
        column
    }
}

pub(super) fn column_names(prefix: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |at| format!("{prefix}{at}"))
}

fn limit(rows: u64) -> LimitClause {
    let value = crate::ast::Value::Number(rows.to_string(), false);
    LimitClause::LimitOffset { limit: Some(Expr::Value(value.into())), offset: None, limit_by: Vec::new() }
}

/// How many rows from the first on the query's LIMIT and OFFSET look at, if that is a known number.
fn first_rows(query: &Query) -> Option<u64> {
    let (limit, offset) = match (&query.limit_clause, &query.fetch) {
        (Some(LimitClause::LimitOffset { limit, offset, limit_by }), None) if limit_by.is_empty() => {
            (limit.as_ref().and_then(whole)?, offset.as_ref())
        }
        (clause, Some(fetch)) if !fetch.with_ties && !fetch.percent => {
            let limit = fetch.quantity.as_ref().map_or(Some(1), whole)?;
            match clause {
                None => (limit, None),
                Some(LimitClause::LimitOffset { limit: None, offset, limit_by }) if limit_by.is_empty() => {
                    (limit, offset.as_ref())
                }
                Some(_) => return None,
            }
        }
        _ => return None,
    };
    let rows = limit.checked_add(offset.map_or(Some(0), |offset| whole(&offset.value))?)?;
    // PostgreSQL takes no larger LIMIT.
    i64::try_from(rows).is_ok().then_some(rows)
}

/// The WITH of a fragment: the enclosing queries' CTEs that it needs, then its own.
pub(super) fn with(commons: &[Cte], own: Option<&With>) -> Option<With> {
    let own = own.iter().flat_map(|with| with.cte_tables.iter());
    let cte_tables: Vec<Cte> = commons.iter().chain(own).cloned().collect();
    (!cte_tables.is_empty()).then(|| With {
        with_token: AttachedToken::empty(),
        recursive: false,
        cte_tables,
    })
}

/// The CTEs of enclosing queries that this one refers to, in order; none if names would be mistaken.
fn needed_commons(query: &Query, parent: &Scope) -> Option<Vec<Cte>> {
    if query.with.as_ref().is_some_and(|with| with.recursive) {
        return None;
    }
    let mut own = OwnNames::default();
    let _ = crate::ast::Visit::visit(query, &mut own);
    let mut found = Vec::new();
    let mut names = BTreeSet::new();
    collect(query, parent, &mut names, &mut found);
    let clash = names.iter().any(|name| own.0.contains(name));
    (!clash).then_some(found)
}

fn collect(query: &Query, scope: &Scope, names: &mut BTreeSet<String>, found: &mut Vec<Cte>) {
    let mut referred = Vec::new();
    let _ = visit_relations(query, |name| {
        if let Some((None, short)) = relation(name) {
            referred.push(short);
        }
        ControlFlow::<()>::Continue(())
    });
    for name in referred {
        if names.contains(&name) {
            continue;
        }
        let (Some(common), Some(defined)) = (scope.common(&name), scope.common_scope(&name)) else {
            continue;
        };
        collect(&common.definition.query, &defined, names, found);
        names.insert(name);
        found.push(common.definition.clone());
    }
}

/// The names of the CTEs inside a query.
#[derive(Default)]
struct OwnNames(BTreeSet<String>);

impl crate::ast::Visitor for OwnNames {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let names = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| folded(&cte.alias.name));
        self.0.extend(names);
        ControlFlow::Continue(())
    }
}
