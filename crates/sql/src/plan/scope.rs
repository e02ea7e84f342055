//! Which relations a part of the query can see, and what a column's name means there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use crate::ast::{Cte, Expr, Ident, VisitMut, VisitorMut};
use polyshard_map::MapName;

use super::tree::folded;
use crate::schema::{Table, TypeOid};

/// Where the rows of a relation, or of a query's answer, can be computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// On any shard, with the same answer on each: reference tables and constants.
    Anywhere,
    /// The answers of all shards put together are the whole answer; equal keys of this map are on one shard.
    Sharded(MapName),
    /// Only rows with the key of a row of the enclosing block at this depth: computed on that row's shard.
    Pinned(usize),
    /// Nowhere but in the combine step.
    Nowhere,
}

/// A column of a relation.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Option<TypeOid>,
    /// It holds the key by which the rows are placed.
    pub(super) key: bool,
    /// Its equality is not that of its bytes.
    pub(super) loose: bool,
}

/// One relation of a FROM clause.
#[derive(Debug, Clone)]
pub(super) struct Relation {
    pub(super) alias: String,
    /// None: not known.
    pub(super) columns: Option<Vec<Column>>,
    pub(super) place: Place,
    /// An outer join may put NULLs in place of its rows.
    pub(super) nullable: bool,
    /// The table, if it is one and its columns have their own names here.
    pub(super) table: Option<Arc<Table>>,
}

/// One column of one relation of one block.
pub(super) type Node = (usize, usize, String);

/// A CTE in sight.
pub(super) struct Common {
    pub(super) definition: Cte,
    pub(super) columns: Option<Vec<Column>>,
    pub(super) place: Place,
    pub(super) lowest: usize,
}

/// One level of names.
#[derive(Default)]
pub(super) struct Level {
    pub(super) depth: usize,
    pub(super) relations: Vec<Relation>,
    /// Columns merged by USING, and the relation whose value they have.
    pub(super) merged: BTreeMap<String, usize>,
    /// The columns that hold the block's key.
    pub(super) keys: BTreeSet<Node>,
    /// The map whose key that is.
    pub(super) map: Option<MapName>,
    pub(super) commons: BTreeMap<String, Rc<Common>>,
    pub(super) parent: Option<Scope>,
}

/// A chain of levels, innermost first.
#[derive(Clone)]
pub(super) struct Scope(Rc<Level>);

/// What a column's name means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Column(Node),
    /// A whole row of a relation.
    Row,
    Unknown,
}

impl Scope {
    pub(super) fn root() -> Scope {
        Scope(Rc::new(Level::default()))
    }

    pub(super) fn inner(&self, relations: Vec<Relation>, merged: BTreeMap<String, usize>) -> Level {
        let depth = self.0.depth + 1;
        Level { depth, relations, merged, parent: Some(self.clone()), ..Level::default() }
    }

    pub(super) fn of(level: Level) -> Scope {
        Scope(Rc::new(level))
    }

    pub(super) fn with_common(&self, name: String, common: Common) -> Scope {
        let mut level = self.inner(Vec::new(), BTreeMap::new());
        level.commons.insert(name, Rc::new(common));
        Scope::of(level)
    }

    pub(super) fn depth(&self) -> usize {
        self.0.depth
    }

    pub(super) fn relations(&self) -> &[Relation] {
        &self.0.relations
    }

    pub(super) fn keys(&self) -> &BTreeSet<Node> {
        &self.0.keys
    }

    pub(super) fn has_merged(&self) -> bool {
        !self.0.merged.is_empty()
    }

    fn levels(&self) -> impl Iterator<Item = &Level> {
        let mut next = Some(&self.0);
        std::iter::from_fn(move || {
            let level = next?;
            next = level.parent.as_ref().map(|parent| &parent.0);
            Some(&**level)
        })
    }

    /// The nearest CTE of this name.
    pub(super) fn common(&self, name: &str) -> Option<Rc<Common>> {
        self.levels().find_map(|level| level.commons.get(name).cloned())
    }

    /// Where that CTE is defined: what its definition sees.
    pub(super) fn common_scope(&self, name: &str) -> Option<Scope> {
        self.levels().find(|level| level.commons.contains_key(name)).and_then(|level| level.parent.clone())
    }

    /// Whether the node holds the key of an enclosing block whose rows are placed by this map, and of which: another
    /// map has the same value on another shard.
    pub(super) fn key_depth(&self, node: &Node, map: &MapName) -> Option<usize> {
        let level = self.levels().find(|level| level.keys.contains(node))?;
        (level.map.as_ref() == Some(map)).then_some(level.depth)
    }

    pub(super) fn resolve(&self, expr: &Expr) -> Found {
        match expr {
            Expr::Identifier(ident) => self.unqualified(&folded(ident)),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [relation, column] => self.qualified(&folded(relation), &folded(column)),
                _ => Found::Unknown,
            },
            _ => Found::Unknown,
        }
    }

    fn unqualified(&self, name: &str) -> Found {
        for level in self.levels() {
            if let Some(relation) = level.merged.get(name) {
                return Found::Column((level.depth, *relation, name.to_owned()));
            }
            let has = |relation: &&(usize, &Relation)| {
                relation
                    .1
                    .columns
                    .as_ref()
                    .is_some_and(|columns| columns.iter().any(|column| column.name == name))
            };
            let all: Vec<(usize, &Relation)> = level.relations.iter().enumerate().collect();
            let mut found = all.iter().filter(has);
            match (found.next(), found.next()) {
                (Some((at, _)), None) => return Found::Column((level.depth, *at, name.to_owned())),
                (Some(_), Some(_)) => return Found::Unknown,
                _ => {}
            }
            if level.relations.iter().any(|relation| relation.columns.is_none()) {
                return Found::Unknown;
            }
            if level.relations.iter().any(|relation| relation.alias == name) {
                return Found::Row;
            }
        }
        Found::Unknown
    }

    fn qualified(&self, relation: &str, column: &str) -> Found {
        for level in self.levels() {
            let Some(at) = level.relations.iter().position(|known| known.alias == relation) else { continue };
            let columns = level.relations[at].columns.as_ref();
            let known = columns.is_none_or(|columns| columns.iter().any(|known| known.name == column));
            return if known { Found::Column((level.depth, at, column.to_owned())) } else { Found::Unknown };
        }
        Found::Unknown
    }

    /// What is known of a column.
    pub(super) fn column(&self, node: &Node) -> Option<&Column> {
        let level = self.levels().find(|level| level.depth == node.0)?;
        level.relations.get(node.1)?.columns.as_ref()?.iter().find(|column| column.name == node.2)
    }

    pub(super) fn type_of(&self, expr: &Expr) -> Option<TypeOid> {
        match self.resolve(expr) {
            Found::Column(node) => self.column(&node)?.kind,
            _ => None,
        }
    }

    /// The expression with its columns written in one way, so that equal texts mean equal expressions.
    pub(super) fn canonical(&self, expr: &Expr) -> Option<String> {
        let mut copy = super::tree::bare(expr).clone();
        match copy.visit(&mut Canonical { scope: self }) {
            ControlFlow::Continue(()) => Some(copy.to_string()),
            ControlFlow::Break(()) => None,
        }
    }
}

struct Canonical<'s> {
    scope: &'s Scope,
}

impl VisitorMut for Canonical<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut crate::ast::Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
            let Found::Column((depth, relation, column)) = self.scope.resolve(expr) else {
                return ControlFlow::Break(());
            };
            *expr = Expr::CompoundIdentifier(vec![
                Ident::new(format!("@{depth}_{relation}")),
                Ident::with_quote('"', column),
            ]);
        }
        ControlFlow::Continue(())
    }
}
