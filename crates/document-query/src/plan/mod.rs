//! The compiled form of a query: names resolved to slots, functions to their code, paths to steps.

mod compile;
mod expression;
mod walk;

use std::sync::Arc;

pub(crate) use compile::{Compiled, compile};

use crate::functions::Function;
use crate::run::AggregateKind;
use crate::syntax::tree::{Binary, Form, Unary};
use crate::value::Value;

/// One step of a path through a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathStep {
    /// A property of an object.
    Key(Arc<str>),
    /// An item of an array.
    Index(u64),
}

/// An expression.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Constant(Value),
    Parameter(usize),
    Slot(usize),
    Path(Box<Node>, Vec<PathStep>),
    /// A computed step.
    Index(Box<Node>, Box<Node>),
    Array(Vec<Node>),
    Object(Vec<(Arc<str>, Node)>),
    Unary(Unary, Box<Node>),
    Binary(Box<Node>, Vec<(Binary, Node)>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Coalesce(Vec<Node>),
    Conditional(Box<[Node; 3]>),
    In(Box<Node>, Vec<Node>),
    Between(Box<[Node; 3]>),
    Like(Box<[Node; 2]>, Option<char>),
    Call(&'static Function, Vec<Node>),
    UserCall(Arc<str>, Vec<Node>),
    Query(Form, Box<SelectPlan>),
}

/// One SELECT.
#[derive(Clone, Debug)]
pub(crate) struct SelectPlan {
    pub sources: Vec<SourcePlan>,
    pub filter: Option<Node>,
    pub grouping: Option<Grouping>,
    pub projection: Node,
    /// SELECT VALUE: rows without a value are left out.
    pub skip_undefined: bool,
    pub distinct: bool,
    pub order: Vec<OrderPlan>,
}

/// One item of FROM or JOIN. Its value goes to `slot`.
#[derive(Clone, Debug)]
pub(crate) struct SourcePlan {
    pub origin: Origin,
    pub iterate: bool,
    pub slot: usize,
}

/// Where the values of a source come from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// The document, or the row of the sub-query in FROM of the outermost query.
    Root(Vec<PathStep>),
    Slot(usize, Vec<PathStep>),
    Query(Box<SelectPlan>),
}

/// Groups and aggregates. When a group is projected, its keys and results stand in their slots.
#[derive(Clone, Debug)]
pub(crate) struct Grouping {
    /// Without keys there is one group, even without rows.
    pub keys: Vec<(Node, usize)>,
    pub aggregates: Vec<AggregatePlan>,
}

#[derive(Clone, Debug)]
pub(crate) struct AggregatePlan {
    pub kind: AggregateKind,
    pub argument: Node,
    pub slot: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct OrderPlan {
    pub node: Node,
    pub descending: bool,
}
