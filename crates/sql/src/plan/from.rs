//! The FROM clause of one SELECT: its relations, and whether its joins stay within one shard.

use std::collections::{BTreeMap, BTreeSet};

use crate::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, Join, JoinConstraint, JoinOperator, Select,
    TableAlias, TableAliasColumnDef, TableFactor, TableWithJoins,
};

use super::functions;
use super::scope::{Column, Found, Node, Place, Relation, Scope};
use super::shape::{Analyzer, Shape};
use super::tree::{bare, conjuncts, folded, parts, relation};
use crate::schema::{Collation, Placement, Table, TypeOid};

/// What FROM and WHERE come to.
pub(super) struct From {
    pub(super) scope: Scope,
    pub(super) place: Place,
    /// Arguments of functions in FROM, and join conditions.
    pub(super) arguments: Vec<Expr>,
    pub(super) pushable: bool,
    pub(super) lowest: usize,
    pub(super) tree: Option<Tree>,
}

/// How the relations are joined.
#[derive(Debug)]
pub(super) enum Tree {
    Leaf(usize),
    Join { left: Box<Tree>, right: Box<Tree>, kind: Kind, on: Option<Box<Expr>>, using: Vec<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Inner,
    Left,
    Right,
    Full,
}

/// Reads the FROM clause, and the equalities of WHERE.
pub(super) fn read(analyzer: &Analyzer<'_>, select: &Select, parent: &Scope) -> From {
    let mut reading = Reading {
        analyzer,
        parent,
        relations: Vec::new(),
        merged: BTreeMap::new(),
        arguments: Vec::new(),
        lowest: usize::MAX,
        pushable: true,
    };
    let mut tree: Option<Tree> = None;
    for item in &select.from {
        let next = reading.joins(item);
        tree = Some(match tree {
            None => next,
            Some(left) => Tree::Join {
                left: Box::new(left),
                right: Box::new(next),
                kind: Kind::Inner,
                on: None,
                using: Vec::new(),
            },
        });
    }
    let Reading { mut relations, merged, arguments, lowest, pushable, .. } = reading;
    if let Some(tree) = &tree {
        mark_nullable(tree, false, &mut relations);
    }
    let mut level = parent.inner(relations, merged);
    let scope = Scope::of(parent.inner(level.relations.clone(), level.merged.clone()));
    let mut equal = Equalities::default();
    if let Some(selection) = &select.selection {
        equal.add(selection, &scope);
    }
    if let Some(tree) = &tree {
        inner_equalities(tree, &scope, &mut equal);
    }
    let Some(tree) = tree else {
        return From { scope, place: Place::Anywhere, arguments, pushable, lowest, tree: None };
    };
    let Placed { place, keys, .. } = placed(&tree, &scope, &equal);
    let keys = equal.closure(keys);
    let outside = || keys.iter().filter(|node| node.0 < level.depth);
    let place = match place {
        Place::Sharded(map) => {
            let pinned = outside().find_map(|node| scope.key_depth(node, &map));
            level.map = Some(map.clone());
            pinned.map_or(Place::Sharded(map), Place::Pinned)
        }
        place => place,
    };
    level.keys = keys.into_iter().filter(|node| node.0 == level.depth).collect();
    From { scope: Scope::of(level), place, arguments, pushable, lowest, tree: Some(tree) }
}

/// Columns under the names that an alias gives them.
pub(super) fn renamed(columns: Option<Vec<Column>>, names: &[TableAliasColumnDef]) -> Option<Vec<Column>> {
    let mut columns = columns?;
    for (column, name) in columns.iter_mut().zip(names) {
        column.name = folded(&name.name);
    }
    Some(columns)
}

struct Reading<'r, 'c> {
    analyzer: &'r Analyzer<'c>,
    parent: &'r Scope,
    relations: Vec<Relation>,
    merged: BTreeMap<String, usize>,
    arguments: Vec<Expr>,
    lowest: usize,
    pushable: bool,
}

impl Reading<'_, '_> {
    fn joins(&mut self, item: &TableWithJoins) -> Tree {
        let mut left = self.factor(&item.relation);
        for join in &item.joins {
            let first_right = self.relations.len();
            let right = self.factor(&join.relation);
            left = self.join(left, right, join, first_right);
        }
        left
    }

    fn join(&mut self, left: Tree, right: Tree, join: &Join, first_right: usize) -> Tree {
        let (kind, constraint) = match &join.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => {
                (Kind::Inner, Some(constraint))
            }
            JoinOperator::CrossJoin(constraint) => (Kind::Inner, Some(constraint)),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
                (Kind::Left, Some(constraint))
            }
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                (Kind::Right, Some(constraint))
            }
            JoinOperator::FullOuter(constraint) => (Kind::Full, Some(constraint)),
            _ => (Kind::Full, None),
        };
        let (mut on, mut using) = (None, Vec::new());
        match constraint {
            Some(JoinConstraint::On(expr)) => {
                self.arguments.push(expr.clone());
                on = Some(Box::new(expr.clone()));
            }
            Some(JoinConstraint::Using(names)) => {
                using = names.iter().filter_map(parts).filter_map(|mut parts| parts.pop()).collect();
                for name in &using {
                    self.merge(name, kind, &left, first_right);
                }
            }
            Some(JoinConstraint::None) => {}
            Some(JoinConstraint::Natural) | None => {
                self.pushable = false;
                for relation in &mut self.relations {
                    relation.place = Place::Nowhere;
                }
            }
        }
        Tree::Join { left: Box::new(left), right: Box::new(right), kind, on, using }
    }

    /// Remembers whose value a column of USING has; not known for FULL, where it is either side's.
    fn merge(&mut self, name: &str, kind: Kind, left: &Tree, first_right: usize) {
        let has = |at: &usize| {
            let columns = self.relations[*at].columns.as_ref();
            columns.is_some_and(|columns| columns.iter().any(|column| column.name == name))
        };
        let mut leaves = Vec::new();
        left.leaves(&mut leaves);
        let before = self.merged.get(name).copied().or_else(|| leaves.into_iter().find(has));
        let after = (first_right..self.relations.len()).find(has);
        let value = match kind {
            Kind::Inner | Kind::Left => before,
            Kind::Right => after,
            Kind::Full => None,
        };
        match value {
            Some(at) => {
                self.merged.insert(name.to_owned(), at);
            }
            None => self.pushable = false,
        }
    }

    fn factor(&mut self, factor: &TableFactor) -> Tree {
        let relation = match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => return self.joins(table_with_joins),
            TableFactor::Table { name, alias, args: None, sample: None, with_ordinality: false, .. } => {
                self.named(name, alias.as_ref())
            }
            TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
                self.function(name, &args.args, alias.as_ref(), *with_ordinality)
            }
            TableFactor::Function { name, args, alias, with_ordinality, .. } => {
                self.function(name, args, alias.as_ref(), *with_ordinality)
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality, .. } => {
                self.arguments.extend(array_exprs.iter().cloned());
                let columns = (array_exprs.len() == 1 && !with_ordinality)
                    .then(|| set_columns("unnest", alias.as_ref()));
                opaque(alias.as_ref(), "unnest", columns, Place::Anywhere)
            }
            TableFactor::Derived { lateral, subquery, alias, sample: None } => {
                let scope = if *lateral {
                    Scope::of(self.parent.inner(self.relations.clone(), self.merged.clone()))
                } else {
                    self.parent.clone()
                };
                let shape = self.analyzer.query(subquery, &scope);
                let own_depth = self.parent.depth() + 1;
                // A lateral sub-select's references to its siblings are references within this block.
                self.lowest = self.lowest.min(if *lateral && shape.lowest == own_depth {
                    usize::MAX
                } else {
                    shape.lowest
                });
                self.derived(shape, alias.as_ref())
            }
            _ => {
                self.pushable = false;
                opaque(None, "", None, Place::Nowhere)
            }
        };
        self.relations.push(relation);
        Tree::Leaf(self.relations.len() - 1)
    }

    fn named(&mut self, name: &crate::ast::ObjectName, alias: Option<&TableAlias>) -> Relation {
        let Some((schema, short)) = relation(name) else { return opaque(alias, "", None, Place::Nowhere) };
        if schema.is_none()
            && let Some(common) = self.parent.common(&short)
        {
            self.lowest = self.lowest.min(common.lowest);
            let shape = Shape { place: common.place.clone(), columns: common.columns.clone(), lowest: 0 };
            let mut relation = self.derived(shape, alias);
            if alias.is_none() {
                relation.alias = short;
            }
            return relation;
        }
        let context = self.analyzer.context;
        let Some(table) = context.schema.table(schema.as_deref(), &short, context.search_path) else {
            return opaque(alias, &short, None, Place::Nowhere);
        };
        let is_renamed = alias.is_some_and(|alias| !alias.columns.is_empty());
        let columns = renamed(Some(columns_of(table)), alias.map_or(&[], |alias| &alias.columns));
        let place = match &table.placement {
            Placement::Sharded { map, .. } => Place::Sharded(map.clone()),
            Placement::Reference { .. } => Place::Anywhere,
            Placement::Local(_) => Place::Nowhere,
        };
        let table = (!is_renamed).then(|| table.clone());
        Relation { table, ..opaque(alias, &short, columns, place) }
    }

    fn function(
        &mut self,
        name: &crate::ast::ObjectName,
        args: &[FunctionArg],
        alias: Option<&TableAlias>,
        with_ordinality: bool,
    ) -> Relation {
        let short = parts(name).and_then(|mut parts| parts.pop()).unwrap_or_default();
        for argument in args {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => self.arguments.push(expr.clone()),
                _ => self.pushable = false,
            }
        }
        let known = functions::is_safe_set(&short) && name.0.len() == 1;
        self.pushable &= known;
        let columns = (known && !with_ordinality).then(|| set_columns(&short, alias));
        opaque(alias, &short, columns, Place::Anywhere)
    }

    fn derived(&self, shape: Shape, alias: Option<&TableAlias>) -> Relation {
        let columns = renamed(shape.columns, alias.map_or(&[], |alias| &alias.columns));
        opaque(alias, "", columns, shape.place)
    }
}

fn opaque(alias: Option<&TableAlias>, name: &str, columns: Option<Vec<Column>>, place: Place) -> Relation {
    let alias = alias.map_or_else(|| name.to_owned(), |alias| folded(&alias.name));
    Relation { alias, columns, place, nullable: false, table: None }
}

/// The one column of a function in FROM: named by the alias, if it has one.
fn set_columns(name: &str, alias: Option<&TableAlias>) -> Vec<Column> {
    let given: Option<&Ident> =
        alias.map(|alias| alias.columns.first().map_or(&alias.name, |column| &column.name));
    let name = given.map_or_else(|| name.to_owned(), folded);
    vec![Column { name, kind: None, key: false, loose: true }]
}

fn columns_of(table: &Table) -> Vec<Column> {
    let key = match &table.placement {
        Placement::Sharded { column, .. } => Some(*column),
        _ => None,
    };
    let column = |(at, column): (usize, &crate::schema::Column)| Column {
        name: column.name.clone(),
        kind: Some(column.type_oid),
        key: key == Some(at),
        loose: column.collation == Collation::Nondeterministic,
    };
    table.columns.iter().enumerate().map(column).collect()
}

impl Tree {
    pub(super) fn leaves(&self, into: &mut Vec<usize>) {
        match self {
            Tree::Leaf(at) => into.push(*at),
            Tree::Join { left, right, .. } => {
                left.leaves(into);
                right.leaves(into);
            }
        }
    }
}

fn mark_nullable(tree: &Tree, nullable: bool, relations: &mut [Relation]) {
    match tree {
        Tree::Leaf(at) => relations[*at].nullable = nullable,
        Tree::Join { left, right, kind, .. } => {
            mark_nullable(left, nullable || matches!(kind, Kind::Right | Kind::Full), relations);
            mark_nullable(right, nullable || matches!(kind, Kind::Left | Kind::Full), relations);
        }
    }
}

/// Columns that are equal in every row of the answer.
#[derive(Debug, Clone, Default)]
struct Equalities {
    classes: Vec<BTreeSet<Node>>,
}

impl Equalities {
    fn add(&mut self, condition: &Expr, scope: &Scope) {
        let mut all = Vec::new();
        conjuncts(condition, &mut all);
        for condition in all {
            let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = condition else { continue };
            if let (Found::Column(left), Found::Column(right)) =
                (scope.resolve(bare(left)), scope.resolve(bare(right)))
            {
                self.unite(left, right, scope);
            }
        }
    }

    /// Only columns of one kind, whose equality is that of the map's keys: `bigint = double` is not transitive.
    fn unite(&mut self, left: Node, right: Node, scope: &Scope) {
        let (Some(a), Some(b)) = (scope.column(&left), scope.column(&right)) else { return };
        if !same_kind(a, b) {
            return;
        }
        let mut united = BTreeSet::from([left, right]);
        self.classes.retain(|class| {
            let apart = class.is_disjoint(&united);
            if !apart {
                united.extend(class.iter().cloned());
            }
            apart
        });
        self.classes.push(united);
    }

    fn closure(&self, nodes: BTreeSet<Node>) -> BTreeSet<Node> {
        let near = self.classes.iter().filter(|class| !class.is_disjoint(&nodes)).flatten().cloned();
        let near: Vec<Node> = near.collect();
        nodes.into_iter().chain(near).collect()
    }
}

/// Whether `=` between these columns means that the map sees one key.
pub(super) fn same_kind(a: &Column, b: &Column) -> bool {
    let family = |kind: TypeOid| match kind {
        TypeOid::INT2 | TypeOid::INT4 | TypeOid::INT8 => TypeOid::INT8,
        TypeOid::TEXT | TypeOid::VARCHAR => TypeOid::TEXT,
        other => other,
    };
    !a.loose
        && !b.loose
        && a.kind.is_some_and(|kind| {
            // 1.0 and 1.00, and blanks at the end of a char(n), are equal and yet not the same.
            !matches!(kind, TypeOid::NUMERIC | TypeOid::FLOAT4 | TypeOid::FLOAT8 | TypeOid::BPCHAR)
                && b.kind.map(family) == Some(family(kind))
        })
}

fn add_using(tree: &Tree, scope: &Scope, equal: &mut Equalities) {
    let Tree::Join { left, right, using, .. } = tree else { return };
    let (mut lefts, mut rights) = (Vec::new(), Vec::new());
    left.leaves(&mut lefts);
    right.leaves(&mut rights);
    for name in using {
        let has = |at: &&usize| {
            let columns = scope.relations()[**at].columns.as_ref();
            columns.is_some_and(|columns| columns.iter().any(|column| column.name == *name))
        };
        if let (Some(a), Some(b)) = (lefts.iter().find(has), rights.iter().find(has)) {
            let node = |at: &usize| (scope.depth(), *at, name.clone());
            equal.unite(node(a), node(b), scope);
        }
    }
}

fn add_join(tree: &Tree, scope: &Scope, equal: &mut Equalities) {
    if let Tree::Join { on, .. } = tree {
        if let Some(on) = on {
            equal.add(on, scope);
        }
        add_using(tree, scope, equal);
    }
}

/// The equalities of inner joins that no outer join stands above.
fn inner_equalities(tree: &Tree, scope: &Scope, equal: &mut Equalities) {
    if let Tree::Join { left, right, kind, .. } = tree {
        if *kind == Kind::Inner {
            add_join(tree, scope, equal);
        }
        if matches!(kind, Kind::Inner | Kind::Left) {
            inner_equalities(left, scope, equal);
        }
        if matches!(kind, Kind::Inner | Kind::Right) {
            inner_equalities(right, scope, equal);
        }
    }
}

struct Placed {
    place: Place,
    /// Columns that hold the key in every row of this part.
    keys: BTreeSet<Node>,
}

/// Where a join can be computed.
///
/// Proof for the sharded cases. Let both sides be sharded by one map, and let the join require equal keys: then a
/// pair of rows that the join lets pass has one key, so it lies on one shard, and that shard finds it. For an outer
/// join also each row's *lack* of partners is found by its own shard, since all its possible partners are there.
/// A reference table is whole on each shard; so it may be joined inner, or stand on the nullable side.
fn placed(tree: &Tree, scope: &Scope, equal: &Equalities) -> Placed {
    let Tree::Join { left, right, kind, .. } = tree else {
        let Tree::Leaf(at) = tree else { return Placed { place: Place::Nowhere, keys: BTreeSet::new() } };
        let relation = &scope.relations()[*at];
        let key_columns = relation.columns.iter().flatten().filter(|column| column.key);
        let keys = match relation.place {
            Place::Sharded(_) => {
                key_columns.map(|column| (scope.depth(), *at, column.name.clone())).collect()
            }
            _ => BTreeSet::new(),
        };
        return Placed { place: relation.place.clone(), keys };
    };
    let mut here = equal.clone();
    add_join(tree, scope, &mut here);
    let (a, b) = (placed(left, scope, equal), placed(right, scope, equal));
    let keys = match kind {
        Kind::Inner => a.keys.union(&b.keys).cloned().collect(),
        Kind::Left => a.keys.clone(),
        Kind::Right => b.keys.clone(),
        Kind::Full => BTreeSet::new(),
    };
    let place = match (a.place, b.place) {
        (Place::Sharded(a_map), Place::Sharded(b_map)) => {
            let linked = !here.closure(a.keys).is_disjoint(&b.keys);
            if a_map == b_map && linked { Place::Sharded(a_map) } else { Place::Nowhere }
        }
        (sharded @ Place::Sharded(_), Place::Anywhere) if matches!(kind, Kind::Inner | Kind::Left) => sharded,
        (Place::Anywhere, sharded @ Place::Sharded(_)) if matches!(kind, Kind::Inner | Kind::Right) => {
            sharded
        }
        (Place::Sharded(_), _) | (_, Place::Sharded(_)) => Place::Nowhere,
        (a, b) => both(a, b),
    };
    Placed { place, keys }
}

/// Where two things can be computed together, if at most one of them is sharded.
pub(super) fn both(a: Place, b: Place) -> Place {
    match (a, b) {
        (Place::Anywhere, other) | (other, Place::Anywhere) => other,
        (Place::Pinned(a), Place::Pinned(b)) if a == b => Place::Pinned(a),
        _ => Place::Nowhere,
    }
}
