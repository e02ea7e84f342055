//! Where each part of a query can be computed: on any shard, on all of them side by side, or only in the combine step.

use std::cell::Cell;

use crate::ast::{
    Distinct, Expr, GroupByExpr, OrderBy, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, SetOperator, SetQuantifier, With,
};

use super::from::{self, From};
use super::scope::{Column, Common, Found, Place, Scope};
use super::tree::{Facts, bare, folded, function_name, relation, whole};
use super::{functions, names, types};
use crate::route::Context;
use crate::schema::{TableName, Volatility};

/// Where a query's answer can be computed, and its columns.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) place: Place,
    pub(super) columns: Option<Vec<Column>>,
    /// The outermost level it refers to.
    pub(super) lowest: usize,
}

impl Shape {
    pub(super) fn unknown() -> Shape {
        Shape { place: Place::Nowhere, columns: None, lowest: 0 }
    }
}

/// One SELECT without its ORDER BY and LIMIT.
pub(super) struct Block {
    pub(super) scope: Scope,
    /// Where the rows of FROM and WHERE can be computed.
    pub(super) core: Place,
    /// Where its answer can be computed.
    pub(super) full: Place,
    pub(super) outputs: Option<Vec<Output>>,
    pub(super) lowest: usize,
    pub(super) aggregated: bool,
    /// Window functions other than those that stay within one key.
    pub(super) windows: bool,
    /// Nothing in it forbids to run it on the shards.
    pub(super) pushable: bool,
}

/// One column of a SELECT's answer.
pub(super) struct Output {
    pub(super) column: Column,
    /// [`Scope::canonical`] of its expression.
    pub(super) canonical: Option<String>,
}

/// What an expression asks of the place where it runs.
pub(super) struct Demand {
    pub(super) pushable: bool,
    pub(super) lowest: usize,
    /// Enclosing blocks whose key it must be on the shard of.
    pins: Vec<usize>,
}

/// Queries looked at for one statement. Each is looked at once for every one around it, so that deep nesting would
/// take time without end; statements that people write need some dozens.
const LOOKS_MAX: usize = 5_000;

/// Looks at queries; changes nothing.
pub(super) struct Analyzer<'c> {
    pub(super) context: &'c Context<'c>,
    looks: Cell<usize>,
}

impl<'c> Analyzer<'c> {
    pub(super) fn new(context: &'c Context<'c>) -> Analyzer<'c> {
        Analyzer { context, looks: Cell::new(0) }
    }
}

impl Analyzer<'_> {
    /// Whether so much was looked at that the rest was taken for unknown.
    pub(super) fn is_exhausted(&self) -> bool {
        self.looks.get() > LOOKS_MAX
    }

    /// The scope with a query's CTEs in sight.
    pub(super) fn commons(&self, with: Option<&With>, scope: &Scope) -> Scope {
        let mut scope = scope.clone();
        for cte in with.iter().flat_map(|with| &with.cte_tables) {
            let recursive = with.is_some_and(|with| with.recursive);
            let shape = if recursive { Shape::unknown() } else { self.query(&cte.query, &scope) };
            let columns = from::renamed(shape.columns, &cte.alias.columns);
            let common =
                Common { definition: cte.clone(), columns, place: shape.place, lowest: shape.lowest };
            // What a recursive CTE refers to is not looked into: it is taken to be anything.
            scope = scope.with_common(folded(&cte.alias.name), common);
        }
        scope
    }

    pub(super) fn query(&self, query: &Query, scope: &Scope) -> Shape {
        self.looks.set(self.looks.get() + 1);
        if self.is_exhausted() {
            return Shape::unknown();
        }
        let scope = self.commons(query.with.as_ref(), scope);
        let mut shape = self.body(&query.body, &scope);
        let limited = query.limit_clause.is_some() || query.fetch.is_some();
        if limited && !matches!(shape.place, Place::Pinned(_)) {
            // Which rows a LIMIT keeps, each shard would decide for itself, even over a reference table.
            shape.place = Place::Nowhere;
        }
        if let Some(order) = &query.order_by {
            let facts = Facts::of(order);
            let safe = facts.functions.iter().all(|function| self.is_safe(function));
            // An aggregate that stands only here makes the whole a group, whatever the select list says.
            let counts = facts.functions.iter().any(|function| function.over.is_some()) || aggregates(&facts);
            if !safe || counts || facts.odd || !facts.queries.is_empty() {
                shape.place = Place::Nowhere;
            }
        }
        shape
    }

    pub(super) fn body(&self, body: &SetExpr, scope: &Scope) -> Shape {
        match body {
            SetExpr::Select(select) => {
                let block = self.block(select, scope);
                let place = if block.pushable { block.full } else { Place::Nowhere };
                let columns =
                    |outputs: Vec<Output>| outputs.into_iter().map(|output| output.column).collect();
                Shape { place, columns: block.outputs.map(columns), lowest: block.lowest }
            }
            SetExpr::Query(query) => self.query(query, scope),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let (left, right) = (self.body(left, scope), self.body(right, scope));
                joined(left, right, *op, *set_quantifier)
            }
            SetExpr::Values(values) => {
                let facts = Facts::of(values);
                let demand = self.demand(&facts, scope);
                let width = values.rows.first().map_or(0, |row| row.len());
                let column = |at: usize| Column {
                    name: format!("column{}", at + 1),
                    kind: None,
                    key: false,
                    loose: true,
                };
                // It has no rows of its own to count: an aggregate is an enclosing query's, over the rows of all
                // shards.
                let pushable = demand.pushable && !aggregates(&facts);
                let place = if pushable { Place::Anywhere } else { Place::Nowhere };
                Shape { place, columns: Some((0..width).map(column).collect()), lowest: demand.lowest }
            }
            _ => Shape::unknown(),
        }
    }

    pub(super) fn block(&self, select: &Select, parent: &Scope) -> Block {
        let From { scope, place, arguments, pushable, lowest, .. } = from::read(self, select, parent);
        let facts = Facts::of(&select.projection);
        let mut demands = vec![self.demand(&facts, &scope)];
        demands.push(self.demand(&Facts::of(&select.selection), &scope));
        demands.push(self.demand(&Facts::of(&select.having), &scope));
        demands.push(self.demand(&Facts::of(&select.named_window), &scope));
        let arguments = Facts::of_all(&arguments);
        demands.push(self.demand(&arguments, &scope));
        let distinct = match &select.distinct {
            Some(Distinct::On(exprs)) => Facts::of_all(exprs),
            _ => Facts::default(),
        };
        demands.push(self.demand(&distinct, &scope));
        let mut groups = Facts::of(&select.group_by);
        groups.columns.retain(|column| self.alias_of(select, column, &scope).is_none());
        demands.push(self.demand(&groups, &scope));
        // What is counted of an enclosing query makes that one a group, over the rows of all shards.
        let windows = Facts::of(&select.named_window);
        let around = [&select.selection, &select.having].map(Facts::of);
        let others = [&facts, &groups, &arguments, &distinct, &windows];
        let counts_around = around.iter().chain(others).any(|facts| counts_outside(facts, &scope));
        let pushable = pushable && !counts_around && demands.iter().all(|demand| demand.pushable);
        let lowest = demands.iter().map(|demand| demand.lowest).fold(lowest, usize::min);
        let pins = demands.iter().flat_map(|demand| demand.pins.iter().copied());
        let core = pins.fold(place, |place, pin| from::both(place, Place::Pinned(pin)));
        let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(exprs, modifiers)
            if exprs.is_empty() && modifiers.is_empty());
        let has_aggregate = aggregates(&facts) || aggregates(&Facts::of(&select.having));
        let aggregated = is_grouped || select.having.is_some() || has_aggregate;
        let outputs = self.outputs(select, &scope);
        let windows = !self.windows_within_key(select, &facts, &scope);
        let mut block =
            Block { scope, core, full: Place::Nowhere, outputs, lowest, aggregated, windows, pushable };
        block.full = self.full_place(select, &block);
        block
    }

    /// Where the answer of a whole SELECT can be computed, given where its rows can.
    fn full_place(&self, select: &Select, block: &Block) -> Place {
        match &block.core {
            // All rows it can see for one outer row are on that row's shard.
            Place::Pinned(depth) => Place::Pinned(*depth),
            Place::Anywhere => {
                let facts = Facts::of(&select.projection);
                let orderless = facts.functions.iter().all(|function| {
                    let name = function_name(function).unwrap_or_default();
                    function.over.is_none()
                        && !is_shard_name(function)
                        && (!functions::is_aggregate(&name) || functions::is_orderless(&name))
                });
                let picks = matches!(select.distinct, Some(Distinct::On(_)));
                if orderless && !picks { Place::Anywhere } else { Place::Nowhere }
            }
            Place::Sharded(map) => {
                // Rows of different shards have different keys. So a group, a set of equal rows or a window
                // partition that has the key in it lies on one shard, with all its rows.
                let grouped = !block.aggregated || self.groups_by_key(select, &block.scope);
                let distinct = match &select.distinct {
                    None | Some(Distinct::All) => true,
                    Some(Distinct::Distinct) => {
                        block.outputs.as_ref().is_some_and(|all| all.iter().any(|output| output.column.key))
                    }
                    Some(Distinct::On(exprs)) => exprs.iter().any(|expr| self.is_key(expr, &block.scope)),
                };
                if grouped && distinct && !block.windows {
                    Place::Sharded(map.clone())
                } else {
                    Place::Nowhere
                }
            }
            Place::Nowhere => Place::Nowhere,
        }
    }

    /// Whether the expression is a column that holds the block's key.
    pub(super) fn is_key(&self, expr: &Expr, scope: &Scope) -> bool {
        if let Expr::Function(function) = bare(expr) {
            // Rows of different shards differ in it.
            return is_shard_name(function);
        }
        match scope.resolve(bare(expr)) {
            Found::Column(node) => scope.keys().contains(&node),
            _ => false,
        }
    }

    /// The output column that a name in GROUP BY means, if it is not a column of FROM.
    pub(super) fn alias_of<'s>(&self, select: &'s Select, expr: &Expr, scope: &Scope) -> Option<&'s Expr> {
        let Expr::Identifier(ident) = expr else { return None };
        if scope.resolve(expr) != Found::Unknown {
            return None;
        }
        let mut named = select.projection.iter().filter_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if folded(alias) == folded(ident) => Some(expr),
            _ => None,
        });
        named.next().filter(|_| named.next().is_none())
    }

    /// What a GROUP BY item stands for: itself, or the output column it numbers or names.
    pub(super) fn grouped<'s>(&self, select: &'s Select, item: &'s Expr, scope: &Scope) -> Option<&'s Expr> {
        if let Expr::Value(_) = bare(item) {
            let at = usize::try_from(whole(item)?).ok()?.checked_sub(1)?;
            let plain = |item: &SelectItem| {
                matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
            };
            return match select.projection.get(at)? {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }
                    if select.projection.iter().all(plain) =>
                {
                    Some(expr)
                }
                _ => None,
            };
        }
        Some(self.alias_of(select, bare(item), scope).unwrap_or(item))
    }

    fn groups_by_key(&self, select: &Select, scope: &Scope) -> bool {
        let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else { return false };
        let plain =
            |expr: &Expr| !matches!(bare(expr), Expr::GroupingSets(_) | Expr::Cube(_) | Expr::Rollup(_));
        modifiers.is_empty()
            && exprs.iter().all(plain)
            && exprs
                .iter()
                .filter_map(|expr| self.grouped(select, expr, scope))
                .any(|expr| self.is_key(expr, scope))
    }

    fn windows_within_key(&self, select: &Select, facts: &Facts, scope: &Scope) -> bool {
        let mut windows = facts.functions.iter().filter_map(|function| function.over.as_ref());
        let within = |window: &crate::ast::WindowType| match window {
            crate::ast::WindowType::WindowSpec(spec) => {
                spec.window_name.is_none() && spec.partition_by.iter().any(|expr| self.is_key(expr, scope))
            }
            crate::ast::WindowType::NamedWindow(_) => false,
        };
        select.named_window.is_empty() && windows.all(within)
    }

    fn outputs(&self, select: &Select, scope: &Scope) -> Option<Vec<Output>> {
        let mut outputs = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                    let loose = match scope.resolve(bare(expr)) {
                        Found::Column(node) => scope.column(&node).is_none_or(|column| column.loose),
                        _ => true,
                    };
                    let kind = types::of(expr, scope);
                    let column =
                        Column { name: names::item(item)?, kind, key: self.is_key(expr, scope), loose };
                    outputs.push(Output { column, canonical: scope.canonical(expr) });
                }
                SelectItem::Wildcard(options) => {
                    if scope.has_merged() || !is_plain(options) || select.from.is_empty() {
                        return None;
                    }
                    for at in 0..scope.relations().len() {
                        self.all_of(at, scope, &mut outputs)?;
                    }
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                    let (None, name) = relation(name)? else { return None };
                    if !is_plain(options) {
                        return None;
                    }
                    let at = scope.relations().iter().position(|relation| relation.alias == name)?;
                    self.all_of(at, scope, &mut outputs)?;
                }
                _ => return None,
            }
        }
        Some(outputs)
    }

    fn all_of(&self, at: usize, scope: &Scope, into: &mut Vec<Output>) -> Option<()> {
        for column in scope.relations()[at].columns.as_ref()? {
            let node = (scope.depth(), at, column.name.clone());
            let canonical = Some(format!("@{}_{at}.{}", scope.depth(), super::tree::quoted(&column.name)));
            let column = Column { key: scope.keys().contains(&node), ..column.clone() };
            into.push(Output { column, canonical });
        }
        Some(())
    }

    /// Whether expressions may run on the shards, as part of a block with this scope.
    pub(super) fn demand(&self, facts: &Facts, scope: &Scope) -> Demand {
        let mut demand = Demand { pushable: !facts.odd, lowest: usize::MAX, pins: Vec::new() };
        demand.pushable &= facts.functions.iter().all(|function| self.is_safe(function));
        for column in &facts.columns {
            match scope.resolve(column) {
                Found::Column(node) => demand.lowest = demand.lowest.min(node.0),
                Found::Row => demand.pushable = false,
                Found::Unknown => {
                    demand.pushable = false;
                    demand.lowest = 0;
                }
            }
        }
        for query in &facts.queries {
            let shape = self.query(query, scope);
            demand.lowest = demand.lowest.min(shape.lowest);
            match shape.place {
                Place::Anywhere => {}
                Place::Pinned(depth) if depth == scope.depth() => {}
                Place::Pinned(depth) => demand.pins.push(depth),
                Place::Sharded(_) | Place::Nowhere => demand.pushable = false,
            }
        }
        demand
    }

    pub(super) fn is_safe(&self, function: &crate::ast::Function) -> bool {
        if is_shard_name(function) {
            return true;
        }
        let Some(name) = function_name(function) else { return false };
        let full = |schema: &String| TableName { schema: schema.clone(), name: name.clone() };
        let users = self
            .context
            .search_path
            .iter()
            .find_map(|schema| self.context.schema.functions.get(&full(schema)));
        if let Some(users) = users {
            return users.table_free
                && users.volatility == Volatility::Immutable
                && function.name.0.len() == 1;
        }
        functions::is_safe(&name)
            || functions::is_aggregate(&name)
            || (function.over.is_some() && functions::is_window(&name))
    }
}

/// `polyshard.shard()`: the shard that a row is on.
pub(super) fn is_shard_name(function: &crate::ast::Function) -> bool {
    let is_ours = |(schema, name): (Option<String>, String)| {
        schema.is_some_and(|schema| schema == "polyshard") && is_shard_function(&name)
    };
    relation(&function.name).is_some_and(is_ours)
}

/// Its name, as written or as it is called while planning.
pub(crate) fn is_shard_function(name: &str) -> bool {
    let numbered = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    name == "shard" || name.strip_prefix("shard_").is_some_and(numbered)
}

/// Whether there is an aggregate that is not a window function.
pub(super) fn aggregates(facts: &Facts) -> bool {
    facts.functions.iter().any(|function| {
        function.over.is_none() && function_name(function).is_some_and(|name| functions::is_aggregate(&name))
    })
}

/// Whether there is an aggregate over columns of an enclosing query alone: it is that one's aggregate.
fn counts_outside(facts: &Facts, scope: &Scope) -> bool {
    facts.functions.iter().any(|function| {
        let counts = function.over.is_none()
            && function_name(function).is_some_and(|name| functions::is_aggregate(&name));
        let own = |column: &Expr| match scope.resolve(column) {
            Found::Column(node) => node.0 == scope.depth(),
            Found::Row | Found::Unknown => false,
        };
        let inside = || Facts::of(&Expr::Function(function.clone()));
        counts && {
            let inside = inside();
            let any = !inside.columns.is_empty() || !inside.queries.is_empty();
            any && !inside.columns.iter().any(own)
        }
    })
}

/// The expressions of an ORDER BY; none for forms that PostgreSQL does not have.
pub(super) fn order_items(order: Option<&OrderBy>) -> Option<&[crate::ast::OrderByExpr]> {
    match order {
        None => Some(&[]),
        Some(OrderBy { kind: OrderByKind::Expressions(items), interpolate: None }) => Some(items),
        Some(_) => None,
    }
}

fn is_plain(options: &crate::ast::WildcardAdditionalOptions) -> bool {
    options.opt_ilike.is_none()
        && options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
        && options.opt_alias.is_none()
}

/// A set operation's shape from those of its sides.
fn joined(left: Shape, right: Shape, op: SetOperator, quantifier: SetQuantifier) -> Shape {
    let lowest = left.lowest.min(right.lowest);
    let columns = match (left.columns, right.columns) {
        (Some(left), Some(right)) if left.len() == right.len() => {
            let merged = |(left, right): (Column, Column)| {
                let kind = left.kind.filter(|kind| right.kind == Some(*kind));
                let key = left.key && right.key && from::same_kind(&left, &right);
                Column { kind, key, loose: left.loose || right.loose, name: left.name }
            };
            Some(left.into_iter().zip(right).map(merged).collect::<Vec<_>>())
        }
        _ => None,
    };
    let has_key = columns.as_ref().is_some_and(|columns| columns.iter().any(|column| column.key));
    let all = op == SetOperator::Union && quantifier == SetQuantifier::All;
    let place = match (left.place, right.place) {
        (Place::Anywhere, Place::Anywhere) => Place::Anywhere,
        (Place::Pinned(a), Place::Pinned(b)) if a == b => Place::Pinned(a),
        (Place::Pinned(a), Place::Anywhere) | (Place::Anywhere, Place::Pinned(a)) => Place::Pinned(a),
        // Equal rows have equal keys, so they are on one shard.
        (Place::Sharded(a), Place::Sharded(b)) if a == b && (all || has_key) => Place::Sharded(a),
        _ => Place::Nowhere,
    };
    Shape { place, columns, lowest }
}
