//! The parser's tree, and walks over it that are compiled once for the whole program.
//!
//! The parser's own `Visit::visit` is generic over the visitor, so each visitor compiles the walk over all node types
//! again. The traits here have the same names and methods, and pass every visitor through one `&mut dyn Visitor`.
//! No other file may name the parser's tree (the house test checks it), so nobody gets the generic walk by accident.

use std::ops::ControlFlow;

pub use sqlparser::ast::*;

/// A node that a [`Visitor`] can walk over.
pub trait Visit {
    /// Walks over the node and all below it.
    fn visit_dyn(&self, visitor: &mut DynVisitor<'_>) -> ControlFlow<()>;

    /// Walks over the node and all below it; ends early with what a method of the visitor breaks with.
    fn visit<V: Visitor>(&self, visitor: &mut V) -> ControlFlow<V::Break> {
        let mut kept = KeepsBreak { visitor, broke_with: None };
        // The walk breaks where a method of the visitor did, and only there.
        let _ = self.visit_dyn(&mut DynVisitor(&mut kept));
        kept.broke_with.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

/// A node that a [`VisitorMut`] can walk over and change.
pub trait VisitMut {
    /// Walks over the node and all below it.
    fn visit_dyn(&mut self, visitor: &mut DynVisitorMut<'_>) -> ControlFlow<()>;

    /// Walks over the node and all below it; ends early with what a method of the visitor breaks with.
    fn visit<V: VisitorMut>(&mut self, visitor: &mut V) -> ControlFlow<V::Break> {
        let mut kept = KeepsBreak { visitor, broke_with: None };
        let _ = self.visit_dyn(&mut DynVisitorMut(&mut kept));
        kept.broke_with.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }
}

/// The one visitor that the walk is compiled for.
pub struct DynVisitor<'a>(&'a mut dyn Visitor<Break = ()>);

/// The one changing visitor that the walk is compiled for.
pub struct DynVisitorMut<'a>(&'a mut dyn VisitorMut<Break = ()>);

/// Turns a visitor with any `Break` into one that breaks with `()`, and keeps what it broke with.
struct KeepsBreak<'a, V, B> {
    visitor: &'a mut V,
    broke_with: Option<B>,
}

impl<V, B> KeepsBreak<'_, V, B> {
    fn keep(&mut self, flow: ControlFlow<B>) -> ControlFlow<()> {
        flow.map_break(|broke_with| self.broke_with = Some(broke_with))
    }
}

macro_rules! pass_on {
    ($($before:ident, $after:ident: $node:ty;)*) => {
        impl<V: Visitor> Visitor for KeepsBreak<'_, V, V::Break> {
            type Break = ();
            $(
                fn $before(&mut self, node: &$node) -> ControlFlow<()> {
                    let flow = self.visitor.$before(node);
                    self.keep(flow)
                }
                fn $after(&mut self, node: &$node) -> ControlFlow<()> {
                    let flow = self.visitor.$after(node);
                    self.keep(flow)
                }
            )*
        }

        impl<V: VisitorMut> VisitorMut for KeepsBreak<'_, V, V::Break> {
            type Break = ();
            $(
                fn $before(&mut self, node: &mut $node) -> ControlFlow<()> {
                    let flow = self.visitor.$before(node);
                    self.keep(flow)
                }
                fn $after(&mut self, node: &mut $node) -> ControlFlow<()> {
                    let flow = self.visitor.$after(node);
                    self.keep(flow)
                }
            )*
        }

        impl Visitor for DynVisitor<'_> {
            type Break = ();
            $(
                fn $before(&mut self, node: &$node) -> ControlFlow<()> {
                    self.0.$before(node)
                }
                fn $after(&mut self, node: &$node) -> ControlFlow<()> {
                    self.0.$after(node)
                }
            )*
        }

        impl VisitorMut for DynVisitorMut<'_> {
            type Break = ();
            $(
                fn $before(&mut self, node: &mut $node) -> ControlFlow<()> {
                    self.0.$before(node)
                }
                fn $after(&mut self, node: &mut $node) -> ControlFlow<()> {
                    self.0.$after(node)
                }
            )*
        }
    };
}

// Every method of the parser's visitors: one that is missing here would never be called.
pass_on! {
    pre_visit_query, post_visit_query: Query;
    pre_visit_select, post_visit_select: Select;
    pre_visit_relation, post_visit_relation: ObjectName;
    pre_visit_table_factor, post_visit_table_factor: TableFactor;
    pre_visit_expr, post_visit_expr: Expr;
    pre_visit_statement, post_visit_statement: Statement;
    pre_visit_value, post_visit_value: ValueWithSpan;
    pre_visit_ident, post_visit_ident: Ident;
    pre_visit_order_by, post_visit_order_by: OrderBy;
    pre_visit_order_by_expr, post_visit_order_by_expr: OrderByExpr;
    pre_visit_group_by, post_visit_group_by: GroupByExpr;
}

macro_rules! nodes {
    ($($node:ty),* $(,)?) => {$(
        impl Visit for $node {
            #[inline(never)]
            fn visit_dyn(&self, visitor: &mut DynVisitor<'_>) -> ControlFlow<()> {
                sqlparser::ast::Visit::visit(self, visitor)
            }
        }

        impl VisitMut for $node {
            #[inline(never)]
            fn visit_dyn(&mut self, visitor: &mut DynVisitorMut<'_>) -> ControlFlow<()> {
                sqlparser::ast::VisitMut::visit(self, visitor)
            }
        }
    )*};
}

nodes! {
    Assignment, Distinct, Expr, Fetch, FunctionArguments, GroupByExpr, LimitClause, MergeClause,
    NamedWindowDefinition, OnInsert, OrderBy, Query, Select, SelectItem, SetExpr, Statement, TableFactor,
    TableSampleKind, Values,
}

impl<T: Visit + ?Sized> Visit for Box<T> {
    fn visit_dyn(&self, visitor: &mut DynVisitor<'_>) -> ControlFlow<()> {
        (**self).visit_dyn(visitor)
    }
}

impl<T: VisitMut + ?Sized> VisitMut for Box<T> {
    fn visit_dyn(&mut self, visitor: &mut DynVisitorMut<'_>) -> ControlFlow<()> {
        (**self).visit_dyn(visitor)
    }
}

impl<T: Visit> Visit for Option<T> {
    fn visit_dyn(&self, visitor: &mut DynVisitor<'_>) -> ControlFlow<()> {
        self.iter().try_for_each(|node| node.visit_dyn(visitor))
    }
}

impl<T: VisitMut> VisitMut for Option<T> {
    fn visit_dyn(&mut self, visitor: &mut DynVisitorMut<'_>) -> ControlFlow<()> {
        self.iter_mut().try_for_each(|node| node.visit_dyn(visitor))
    }
}

impl<T: Visit> Visit for Vec<T> {
    fn visit_dyn(&self, visitor: &mut DynVisitor<'_>) -> ControlFlow<()> {
        self.iter().try_for_each(|node| node.visit_dyn(visitor))
    }
}

impl<T: VisitMut> VisitMut for Vec<T> {
    fn visit_dyn(&mut self, visitor: &mut DynVisitorMut<'_>) -> ControlFlow<()> {
        self.iter_mut().try_for_each(|node| node.visit_dyn(visitor))
    }
}

/// Calls `f` with every relation below the node.
pub fn visit_relations<T: Visit, E>(
    node: &T,
    mut f: impl FnMut(&ObjectName) -> ControlFlow<E>,
) -> ControlFlow<E> {
    node.visit(&mut Relations(&mut f))
}

/// Calls `f` with every relation below the node, after what is below the relation.
pub fn visit_relations_mut<T: VisitMut, E>(
    node: &mut T,
    mut f: impl FnMut(&mut ObjectName) -> ControlFlow<E>,
) -> ControlFlow<E> {
    node.visit(&mut Relations(&mut f))
}

/// Calls `f` with every expression below the node, before what is below the expression.
pub fn visit_expressions<T: Visit, E>(
    node: &T,
    mut f: impl FnMut(&Expr) -> ControlFlow<E>,
) -> ControlFlow<E> {
    node.visit(&mut Expressions(&mut f))
}

/// Calls `f` with every expression below the node, after what is below the expression.
pub fn visit_expressions_mut<T: VisitMut, E>(
    node: &mut T,
    mut f: impl FnMut(&mut Expr) -> ControlFlow<E>,
) -> ControlFlow<E> {
    node.visit(&mut Expressions(&mut f))
}

struct Relations<F>(F);

impl<E, F: FnMut(&ObjectName) -> ControlFlow<E>> Visitor for Relations<F> {
    type Break = E;

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<E> {
        (self.0)(relation)
    }
}

impl<E, F: FnMut(&mut ObjectName) -> ControlFlow<E>> VisitorMut for Relations<F> {
    type Break = E;

    fn post_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<E> {
        (self.0)(relation)
    }
}

struct Expressions<F>(F);

impl<E, F: FnMut(&Expr) -> ControlFlow<E>> Visitor for Expressions<F> {
    type Break = E;

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<E> {
        (self.0)(expression)
    }
}

impl<E, F: FnMut(&mut Expr) -> ControlFlow<E>> VisitorMut for Expressions<F> {
    type Break = E;

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<E> {
        (self.0)(expression)
    }
}
