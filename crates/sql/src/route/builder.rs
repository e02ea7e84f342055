//! Everything found while walking a statement: tables, columns, functions, and what is known of them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::ast::{self, Expr, Visit, Visitor};

use super::Context;
use super::analysis::InsertRows;
use super::cte::Env;
use super::formula::Operand;
use super::graph::{Graph, NodeId, Sequence};
use super::lock::ReferenceLock;
use super::scope::{Columns, Item, Output, Outputs, Scope, name_of, relation_of};
use super::value::Family;
use crate::error::SqlError;
use crate::schema::{Collation, Column, Placement, Table};

/// Most occurrences of tables in one statement, views and CTEs expanded: a chain of CTEs that each use the one before
/// twice grows like a power of two, and PostgreSQL's own planner would not be done with it either.
const INSTANCES_MAX: usize = 1_000;

/// Most parts of a statement, likewise.
const STEPS_MAX: Sequence = 20_000;

/// One occurrence of a table.
pub(super) struct Instance {
    pub table: Arc<Table>,
    pub sequence: Sequence,
    pub use_: Use,
    nodes: Vec<(usize, NodeId)>,
}

/// What is done to an occurrence's rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Use {
    Read,
    /// UPDATE, DELETE or MERGE; with the key that is set, if it is.
    Change {
        sets_key: Option<Operand>,
    },
    /// Rows whose key is that of the node are added; they come from tables that are placed alike.
    Add {
        colocated: bool,
    },
}

/// A walk through one statement.
pub(super) struct Builder<'c> {
    pub context: &'c Context<'c>,
    pub graph: Graph,
    pub instances: Vec<Instance>,
    /// Names of functions called, without and with their schema.
    pub functions: BTreeSet<(Option<String>, String)>,
    /// Relations that are neither known nor the system's.
    pub unknown: Vec<String>,
    /// Relations of the system's.
    pub system: Vec<String>,
    /// Whether one of them is written.
    pub writes_system: bool,
    /// What keeps the statement from running on several shards.
    pub one_shard_only: Option<String>,
    /// How it locks rows of tables that every shard has.
    pub reference_lock: Option<ReferenceLock>,
    /// The rows of the INSERT that the statement is.
    pub insert: Option<InsertRows>,
    /// The CTEs that are being expanded, by address: one of these inside itself is recursive.
    pub expanding: Vec<usize>,
    /// What the recursive ones among them have given so far, by address.
    pub recursive: Vec<(usize, Outputs)>,
    sequence: Sequence,
}

impl<'c> Builder<'c> {
    pub(super) fn new(context: &'c Context<'c>) -> Builder<'c> {
        Builder {
            context,
            graph: Graph::default(),
            instances: Vec::new(),
            functions: BTreeSet::new(),
            unknown: Vec::new(),
            system: Vec::new(),
            writes_system: false,
            one_shard_only: None,
            reference_lock: None,
            insert: None,
            expanding: Vec::new(),
            recursive: Vec::new(),
            sequence: 0,
        }
    }

    /// Where the walk is.
    pub(super) fn now(&self) -> Sequence {
        self.sequence
    }

    /// The next place in the order of things.
    pub(super) fn step(&mut self) -> Sequence {
        self.sequence += 1;
        self.sequence - 1
    }

    /// Refuses statements that grow without end when they are expanded.
    pub(super) fn check_size(&mut self) -> Result<(), SqlError> {
        if self.step() < STEPS_MAX {
            return Ok(());
        }
        Err(SqlError::new(
            crate::SqlState("54001"),
            "the statement is too large when its views and WITH are expanded",
        )
        .hint("Break it up, for example by a temporary result."))
    }

    /// Adds an occurrence of a table.
    pub(super) fn instance(&mut self, table: &Arc<Table>, use_: Use) -> Result<usize, SqlError> {
        if self.instances.len() >= INSTANCES_MAX {
            return Err(SqlError::new(
                crate::SqlState("54001"),
                format!(
                    "the statement names tables more than {INSTANCES_MAX} times, views and WITH expanded"
                ),
            )
            .hint("Break it up, for example by a temporary result."));
        }
        let sequence = self.step();
        self.instances.push(Instance { table: table.clone(), sequence, use_, nodes: Vec::new() });
        Ok(self.instances.len() - 1)
    }

    /// The node of a table's column; none for types that keys cannot have.
    pub(super) fn table_node(&mut self, instance: usize, column: usize) -> Option<NodeId> {
        let found = &self.instances[instance];
        if let Some((_, node)) = found.nodes.iter().find(|(known, _)| *known == column) {
            return Some(*node);
        }
        let definition = &found.table.columns[column];
        let family = Family::of_column(definition)?;
        let node = self.graph.add(found.sequence, family, is_ordered(definition, family));
        self.instances[instance].nodes.push((column, node));
        Some(node)
    }

    /// The node of the column that decides where the rows are.
    pub(super) fn key_node(&mut self, instance: usize) -> Option<NodeId> {
        match self.instances[instance].table.placement {
            Placement::Sharded { column, .. } => self.table_node(instance, column),
            Placement::Reference { .. } | Placement::Local(_) => None,
        }
    }

    /// A column that is written down, if the expression is one and it is known.
    pub(super) fn column(&mut self, expr: &Expr, scope: &Scope<'_>) -> Option<NodeId> {
        match expr {
            Expr::Nested(inner) => self.column(inner, scope),
            Expr::Identifier(ident) => self.resolve(&[name_of(ident)], scope),
            Expr::CompoundIdentifier(idents) => {
                let path: Vec<String> = idents.iter().map(name_of).collect();
                self.resolve(&path, scope)
            }
            // A cast within the family either keeps the value or fails.
            Expr::Cast { expr, data_type, format: None, .. } => {
                let node = self.column(expr, scope)?;
                let family = super::literal::type_of(data_type).and_then(Family::of)?;
                (family == self.graph.family(node)).then_some(node)
            }
            _ => None,
        }
    }

    fn resolve(&mut self, path: &[String], scope: &Scope<'_>) -> Option<NodeId> {
        let mut level = Some(scope);
        while let Some(scope) = level {
            match self.resolve_here(path, scope, 0..scope.items.len()) {
                Resolved::Node(node) => return node,
                Resolved::Missing => level = scope.parent,
            }
        }
        None
    }

    /// Looks among some relations of one level.
    pub(super) fn resolve_here(
        &mut self,
        path: &[String],
        scope: &Scope<'_>,
        among: std::ops::Range<usize>,
    ) -> Resolved {
        match path {
            [column] => {
                if let Some((_, node)) = scope.merged.iter().rev().find(|(name, _)| name == column) {
                    return Resolved::Node(*node);
                }
                let mut found = Resolved::Missing;
                let mut unknown = false;
                for item in &scope.items[among] {
                    match (self.item_column(item, column), &found) {
                        (Resolved::Missing, _) => unknown |= item.columns.is_open(),
                        // Two of that name: PostgreSQL will refuse it, and until then it is none.
                        (Resolved::Node(_), Resolved::Node(_)) => return Resolved::Node(None),
                        (node, Resolved::Missing) => found = node,
                    }
                }
                match found {
                    Resolved::Missing if unknown => Resolved::Node(None),
                    found => found,
                }
            }
            [table, column] => self.qualified(None, table, column, scope, among),
            [.., schema, table, column] => self.qualified(Some(schema), table, column, scope, among),
            [] => Resolved::Missing,
        }
    }

    fn qualified(
        &mut self,
        schema: Option<&String>,
        table: &str,
        column: &str,
        scope: &Scope<'_>,
        among: std::ops::Range<usize>,
    ) -> Resolved {
        let fits = |item: &&Item| {
            item.name.as_deref() == Some(table) && (schema.is_none() || item.schema.as_ref() == schema)
        };
        match scope.items[among].iter().find(fits) {
            Some(item) => match self.item_column(item, column) {
                Resolved::Missing => Resolved::Node(None),
                found => found,
            },
            None => Resolved::Missing,
        }
    }

    fn item_column(&mut self, item: &Item, column: &str) -> Resolved {
        match &item.columns {
            Columns::Table { instance, renamed } => {
                let place = match renamed.iter().position(|name| name == column) {
                    Some(place) => Some(place),
                    None => self.instances[*instance].table.column(column).filter(|at| *at >= renamed.len()),
                };
                place.map_or(Resolved::Missing, |place| Resolved::Node(self.table_node(*instance, place)))
            }
            Columns::Query(outputs) => {
                let mut named =
                    outputs.columns.iter().filter(|output| output.name.as_deref() == Some(column));
                match (named.next(), named.next()) {
                    (Some(output), None) => Resolved::Node(output.node),
                    (Some(_), Some(_)) => Resolved::Node(None),
                    (None, _) => Resolved::Missing,
                }
            }
            Columns::Unknown => Resolved::Missing,
        }
    }

    /// The columns of a relation, in order; none if they are not known.
    pub(super) fn item_outputs(&mut self, item: &Item) -> Option<Vec<Output>> {
        match &item.columns {
            Columns::Table { instance, renamed } => {
                let count = self.instances[*instance].table.columns.len();
                let output = |at: usize| {
                    let own = || self.instances[*instance].table.columns[at].name.clone();
                    let name = Some(renamed.get(at).cloned().unwrap_or_else(own));
                    Output { name, node: self.table_node(*instance, at), literals: Vec::new() }
                };
                Some((0..count).map(output).collect())
            }
            Columns::Query(outputs) if outputs.complete => Some(outputs.columns.clone()),
            Columns::Query(_) | Columns::Unknown => None,
        }
    }

    /// Finds the sub-queries and functions in a part of the statement that says nothing about keys by itself.
    pub(super) fn walk<V: Visit>(
        &mut self,
        part: &V,
        scope: &Scope<'_>,
        env: &Env<'_>,
    ) -> Result<(), SqlError> {
        let mut walker = Walker { builder: self, scope, env, depth: 0 };
        match part.visit(&mut walker) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    pub(super) fn function(&mut self, name: &ast::ObjectName) {
        if let Some(name) = relation_of(name) {
            self.functions.insert(name);
        }
    }
}

/// What a name turned out to be.
pub(super) enum Resolved {
    /// It is a column here, perhaps one of which nothing can be known.
    Node(Option<NodeId>),
    /// There is none here: look further out.
    Missing,
}

impl Columns {
    /// Whether it can have columns that are not listed.
    fn is_open(&self) -> bool {
        match self {
            Columns::Table { .. } => false,
            Columns::Query(outputs) => !outputs.complete,
            Columns::Unknown => true,
        }
    }
}

/// Whether the engine's order of the column is that of the map's keys.
fn is_ordered(column: &Column, family: Family) -> bool {
    family != Family::Text || column.collation == Collation::C
}

/// Hands each sub-query that it meets first to the builder, and leaves what is inside to it.
struct Walker<'w, 'c, 's> {
    builder: &'w mut Builder<'c>,
    scope: &'w Scope<'s>,
    env: &'w Env<'w>,
    depth: usize,
}

impl Visitor for Walker<'_, '_, '_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        if self.depth == 1
            && let Err(error) = self.builder.query(query, Some(self.scope), self.env)
        {
            return ControlFlow::Break(error);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &ast::Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        if let (0, Expr::Function(function)) = (self.depth, expr) {
            self.builder.function(&function.name);
        }
        ControlFlow::Continue(())
    }
}
