//! The plan that fits every query: the rows of each table it needs are fetched, and the query itself runs over them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::ast::{
    Expr, FunctionArg, FunctionArgExpr, GroupByExpr, Ident, JoinConstraint, JoinOperator, ObjectName, Query,
    Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins,
    Visit, VisitMut, Visitor, VisitorMut, visit_relations,
};

use super::aggregate::quoted_list;
use super::from::{self, Kind, Tree};
use super::scope::{Found, Scope};
use super::tree::{Facts, conjuncts, folded, is_untyped, quoted, relation};
use super::{Planner, Source};
use crate::error::SqlError;
use crate::schema::{Placement, Table};

impl Planner<'_> {
    /// Puts temporary tables in place of everything that is not whole on the combine session.
    pub(super) fn rewrite(&mut self, query: &mut Query, parent: &Scope) -> Result<(), SqlError> {
        if let Some(fast) = self.fast(query, parent)? {
            *query = fast;
            return Ok(());
        }
        let scope = self.analyzer.commons(query.with.as_ref(), parent);
        self.rewrite_body(&mut query.body, &scope, false)?;
        self.rewrite_inside(&mut query.order_by, &scope)?;
        self.rewrite_inside(&mut query.limit_clause, &scope)?;
        self.rewrite_inside(&mut query.fetch, &scope)?;
        let Some(mut with) = query.with.take() else { return Ok(()) };
        // Those that nothing refers to any more are never computed, by PostgreSQL as by us.
        let recursive = with.recursive;
        let mut kept: Vec<crate::ast::Cte> = Vec::new();
        let mut seen = vec![parent.clone()];
        for at in 0..with.cte_tables.len() {
            let before = crate::ast::With { cte_tables: with.cte_tables[..=at].to_vec(), ..with.clone() };
            seen.push(self.analyzer.commons(Some(&before), parent));
        }
        while let Some(mut cte) = with.cte_tables.pop() {
            let name = folded(&cte.alias.name);
            let referred = recursive
                || refers(&*query, &name)
                || kept.iter().any(|later| refers(later.query.as_ref(), &name));
            if referred {
                // In WITH RECURSIVE each sees all of them, itself too.
                let scope = if recursive { seen.last() } else { seen.get(with.cte_tables.len()) };
                self.rewrite(&mut cte.query, scope.unwrap_or(parent))?;
                kept.insert(0, cte);
            }
        }
        with.cte_tables = kept;
        query.with = (!with.cte_tables.is_empty()).then_some(with);
        Ok(())
    }

    fn rewrite_body(&mut self, body: &mut SetExpr, scope: &Scope, branch: bool) -> Result<(), SqlError> {
        match body {
            SetExpr::Select(select) => {
                if branch && !has_untyped(select) {
                    // Each side of a set operation is a query of its own. But a bare 'x' or NULL takes its type
                    // from the other side, so it must stay where it is.
                    let mut alone = super::tree::query("SELECT 1")?;
                    *alone.body = SetExpr::Select(select.clone());
                    if let Some(fast) = self.fast(&alone, scope)? {
                        *body = *fast.body;
                        return Ok(());
                    }
                }
                self.rewrite_select(select, scope)
            }
            SetExpr::Query(query) => self.rewrite(query, scope),
            SetExpr::SetOperation { left, right, .. } => {
                self.rewrite_body(left, scope, true)?;
                self.rewrite_body(right, scope, true)
            }
            SetExpr::Values(values) => self.rewrite_inside(values, scope),
            _ => {
                Err(SqlError::unsupported("this form of SELECT is not planned across shards", "Give a key."))
            }
        }
    }

    fn rewrite_select(&mut self, select: &mut Select, parent: &Scope) -> Result<(), SqlError> {
        let read = from::read(&self.analyzer, select, parent);
        let filters = self.filters(select, &read.scope, read.tree.as_ref());
        let mut next = 0;
        let mut items = std::mem::take(&mut select.from);
        for item in &mut items {
            self.rewrite_joins(item, &read.scope, parent, &filters, &mut next)?;
        }
        // FROM is done; what is left are the sub-queries in expressions, also those in join conditions.
        self.rewrite_inside(select, &read.scope)?;
        for item in &mut items {
            self.rewrite_conditions(item, &read.scope)?;
        }
        select.from = items;
        Ok(())
    }

    fn rewrite_joins(
        &mut self,
        item: &mut TableWithJoins,
        scope: &Scope,
        parent: &Scope,
        filters: &[Vec<Expr>],
        next: &mut usize,
    ) -> Result<(), SqlError> {
        self.rewrite_factor(&mut item.relation, scope, parent, filters, next)?;
        for join in &mut item.joins {
            self.rewrite_factor(&mut join.relation, scope, parent, filters, next)?;
        }
        Ok(())
    }

    fn rewrite_factor(
        &mut self,
        factor: &mut TableFactor,
        scope: &Scope,
        parent: &Scope,
        filters: &[Vec<Expr>],
        next: &mut usize,
    ) -> Result<(), SqlError> {
        if let TableFactor::NestedJoin { table_with_joins, alias: None } = factor {
            return self.rewrite_joins(table_with_joins, scope, parent, filters, next);
        }
        let at = *next;
        *next += 1;
        match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => {
                // An alias hides the names inside; such a join is one relation to the others.
                self.rewrite_joins(table_with_joins, scope, parent, &[], &mut 0)
            }
            TableFactor::Derived { lateral, subquery, .. } => {
                self.rewrite(subquery, if *lateral { scope } else { parent })
            }
            TableFactor::Table { name, alias, args: None, .. } => {
                let found =
                    self.table(name, alias.as_ref(), parent, filters.get(at).map_or(&[], Vec::as_slice))?;
                if let Some((temp, shown)) = found {
                    let shown = alias.take().unwrap_or(TableAlias {
                        explicit: true,
                        name: shown,
                        columns: Vec::new(),
                        at: None,
                    });
                    *alias = Some(shown);
                    *name = ObjectName::from(vec![Ident::new("pg_temp"), Ident::new(temp)]);
                }
                Ok(())
            }
            other => self.rewrite_inside(other, scope),
        }
    }

    /// Join conditions may have sub-queries too.
    fn rewrite_conditions(&mut self, item: &mut TableWithJoins, scope: &Scope) -> Result<(), SqlError> {
        if let TableFactor::NestedJoin { table_with_joins, .. } = &mut item.relation {
            self.rewrite_conditions(table_with_joins, scope)?;
        }
        for join in &mut item.joins {
            if let TableFactor::NestedJoin { table_with_joins, .. } = &mut join.relation {
                self.rewrite_conditions(table_with_joins, scope)?;
            }
            if let Some(JoinConstraint::On(condition)) = constraint(&mut join.join_operator) {
                self.rewrite_inside(condition, scope)?;
            }
        }
        Ok(())
    }

    /// Rewrites the sub-queries inside a piece of the tree.
    fn rewrite_inside<T: VisitMut>(&mut self, piece: &mut T, scope: &Scope) -> Result<(), SqlError> {
        match piece.visit(&mut Inside { planner: self, scope, depth: 0 }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    /// A fragment that fetches a table, unless the table is whole everywhere; with the name it is known by here.
    fn table(
        &mut self,
        name: &ObjectName,
        alias: Option<&TableAlias>,
        parent: &Scope,
        filters: &[Expr],
    ) -> Result<Option<(String, Ident)>, SqlError> {
        let Some((schema, short)) = relation(name) else { return Ok(None) };
        if schema.is_none() && parent.common(&short).is_some() {
            return Ok(None);
        }
        let context = self.analyzer.context;
        if context.schema.view(schema.as_deref(), &short, context.search_path).is_some() {
            return Err(SqlError::unsupported(
                format!("the view \"{short}\" has the name of a WITH query"),
                "Give the WITH query another name.",
            ));
        }
        let Some(table) = context.schema.table(schema.as_deref(), &short, context.search_path) else {
            return Ok(None);
        };
        let source = match &table.placement {
            Placement::Reference { .. } => return Ok(None),
            Placement::Sharded { .. } => Source::EveryShard,
            Placement::Local(shard) => Source::Shard(shard.clone()),
        };
        let table = table.clone();
        let shown = alias.map_or_else(|| Ident::with_quote('"', short.clone()), |alias| alias.name.clone());
        let columns = self.needed(&table, alias, &folded(&shown));
        let mut sql = format!(
            "SELECT {} FROM {}.{} AS {shown}",
            quoted_list(columns.iter().map(String::as_str)),
            quoted(&table.name.schema),
            quoted(&table.name.name),
        );
        let conditions: Vec<String> = filters.iter().map(|filter| format!("({filter})")).collect();
        if !conditions.is_empty() {
            sql = format!("{sql} WHERE {}", conditions.join(" AND "));
        }
        let key: Vec<String> = table.primary_key.iter().map(|at| table.columns[*at].name.clone()).collect();
        let unique = !key.is_empty()
            && key.iter().all(|name| columns.contains(name) && self.usage.grouped.contains(name));
        Ok(Some((self.fetch(sql, source, if unique { key } else { Vec::new() }), shown)))
    }

    /// The columns of a table that the statement might refer to, in the table's order.
    fn needed(&self, table: &Table, alias: Option<&TableAlias>, shown: &str) -> Vec<String> {
        let all = table.columns.iter().map(|column| column.name.clone());
        let renamed = alias.is_some_and(|alias| !alias.columns.is_empty());
        if renamed || self.usage.everything || self.usage.rows.contains(shown) {
            return all.collect();
        }
        let named: Vec<String> = all.filter(|name| self.usage.names.contains(name)).collect();
        if !named.is_empty() {
            return named;
        }
        let first = match &table.placement {
            Placement::Sharded { column, .. } => *column,
            _ => 0,
        };
        table.columns.get(first).map(|column| column.name.clone()).into_iter().collect()
    }

    /// For each relation, the conditions that its rows must meet to matter.
    ///
    /// Proof: a condition of WHERE, or of an inner join, over one relation alone, which no outer join may replace by
    /// NULLs, holds for its row in every row of the answer; so a row for which it does not hold can be left out. The
    /// same goes for a left join's condition over its right side. The combine step checks them all again. The
    /// expressions are immutable, so they come out alike twice.
    fn filters(&self, select: &Select, scope: &Scope, tree: Option<&Tree>) -> Vec<Vec<Expr>> {
        let mut filters = vec![Vec::new(); scope.relations().len()];
        if let Some(selection) = &select.selection {
            self.push_down(selection, scope, &mut filters, &|at| !scope.relations()[at].nullable);
        }
        if let Some(tree) = tree {
            self.join_filters(tree, scope, &mut filters);
        }
        filters
    }

    fn join_filters(&self, tree: &Tree, scope: &Scope, filters: &mut [Vec<Expr>]) {
        let Tree::Join { left, right, kind, on, .. } = tree else { return };
        if let Some(on) = on {
            match (kind, left.as_ref(), right.as_ref()) {
                (Kind::Inner, _, _) => {
                    self.push_down(on, scope, filters, &|at| !scope.relations()[at].nullable);
                }
                (Kind::Left, _, Tree::Leaf(only)) | (Kind::Right, Tree::Leaf(only), _) => {
                    self.push_down(on, scope, filters, &|at| at == *only);
                }
                _ => {}
            }
        }
        self.join_filters(left, scope, filters);
        self.join_filters(right, scope, filters);
    }

    fn push_down(
        &self,
        condition: &Expr,
        scope: &Scope,
        filters: &mut [Vec<Expr>],
        may: &dyn Fn(usize) -> bool,
    ) {
        let mut all = Vec::new();
        conjuncts(condition, &mut all);
        for condition in all {
            let facts = Facts::of(condition);
            let demand = self.analyzer.demand(&facts, scope);
            let nodes: Option<BTreeSet<usize>> = facts
                .columns
                .iter()
                .map(|column| match scope.resolve(column) {
                    Found::Column((depth, at, _)) if depth == scope.depth() => Some(at),
                    _ => None,
                })
                .collect();
            let Some(nodes) = nodes else { continue };
            let only = nodes.iter().next().copied().filter(|_| nodes.len() == 1);
            let Some(at) = only.filter(|at| may(*at)) else { continue };
            let is_table = scope.relations()[at].table.is_some();
            let plain =
                facts.queries.is_empty() && facts.functions.iter().all(|function| function.over.is_none());
            if demand.pushable && is_table && plain && !super::shape::aggregates(&facts) {
                filters[at].push(condition.clone());
            }
        }
    }
}

fn constraint(operator: &mut JoinOperator) -> Option<&mut JoinConstraint> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint)
        | JoinOperator::CrossJoin(constraint) => Some(constraint),
        _ => None,
    }
}

fn refers<T: Visit>(tree: &T, name: &str) -> bool {
    visit_relations(tree, |relation| match super::tree::relation(relation) {
        Some((None, short)) if short == name => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .is_break()
}

fn has_untyped(select: &Select) -> bool {
    select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => is_untyped(expr),
        _ => false,
    })
}

struct Inside<'i, 'r> {
    planner: &'i mut Planner<'r>,
    scope: &'i Scope,
    depth: usize,
}

impl VisitorMut for Inside<'_, '_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if self.depth == 0
            && let Err(error) = self.planner.rewrite(query, self.scope)
        {
            return ControlFlow::Break(error);
        }
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

/// Which names a statement uses: more than it needs, never less.
#[derive(Debug, Default)]
pub(super) struct Usage {
    /// Every identifier.
    pub(super) names: BTreeSet<String>,
    /// Relations of which a whole row, or all columns, are used.
    rows: BTreeSet<String>,
    /// Column names in some GROUP BY.
    grouped: BTreeSet<String>,
    /// There is a `*` whose relations we do not look for, or a NATURAL JOIN.
    everything: bool,
}

impl Usage {
    pub(super) fn of(query: &Query) -> Usage {
        let mut usage = Usage::default();
        let _ = query.visit(&mut usage);
        usage
    }

    fn in_from(&mut self, items: &[TableWithJoins]) {
        for item in items {
            let factors = std::iter::once(&item.relation).chain(item.joins.iter().map(|join| &join.relation));
            for factor in factors {
                match factor {
                    TableFactor::NestedJoin { table_with_joins, .. } => {
                        self.in_from(std::slice::from_ref(table_with_joins));
                    }
                    TableFactor::Table { name, alias, .. } => {
                        let shown = alias.as_ref().map(|alias| folded(&alias.name));
                        self.rows.extend(shown.or_else(|| relation(name).map(|(_, short)| short)));
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Visitor for Usage {
    type Break = ();

    fn pre_visit_ident(&mut self, ident: &Ident) -> ControlFlow<()> {
        self.names.insert(folded(ident));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(_) => self.in_from(&select.from),
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    match relation(name) {
                        Some((None, short)) => {
                            self.rows.insert(short);
                        }
                        _ => self.everything = true,
                    }
                }
                SelectItem::QualifiedWildcard(..) => self.everything = true,
                _ => {}
            }
        }
        for join in select.from.iter().flat_map(|item| &item.joins) {
            let natural = |operator: &JoinOperator| {
                let mut operator = operator.clone();
                matches!(constraint(&mut operator), Some(JoinConstraint::Natural) | None)
            };
            self.everything |= natural(&join.join_operator);
        }
        if let GroupByExpr::Expressions(exprs, _) = &select.group_by {
            for column in Facts::of_all(exprs).columns {
                match column {
                    Expr::Identifier(ident) => self.grouped.insert(folded(&ident)),
                    Expr::CompoundIdentifier(parts) => {
                        parts.last().is_some_and(|last| self.grouped.insert(folded(last)))
                    }
                    _ => false,
                };
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(ident) => {
                self.rows.insert(folded(ident));
            }
            Expr::CompoundFieldAccess { .. } | Expr::QualifiedWildcard(..) => self.everything = true,
            Expr::Function(function) => {
                let args = match &function.args {
                    crate::ast::FunctionArguments::List(list) => list.args.as_slice(),
                    _ => &[],
                };
                let plain = |argument: &FunctionArg| {
                    matches!(
                        argument,
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(_) | FunctionArgExpr::Wildcard)
                    )
                };
                self.everything |= !args.iter().all(plain);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
