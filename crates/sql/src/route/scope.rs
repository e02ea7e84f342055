//! Which column a name means: the tables of a FROM with their aliases, and those of the queries around it.

use crate::ast::{Ident, ObjectName};

use super::graph::NodeId;
use super::literal::Literal;
use crate::lexer::{cut, folded};

/// A name as PostgreSQL stores it.
pub(super) fn name_of(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => cut(ident.value.clone()),
        None => folded(&ident.value),
    }
}

/// Schema and name of a relation; a database before them is left out.
pub(super) fn relation_of(name: &ObjectName) -> Option<(Option<String>, String)> {
    let mut parts = name.0.iter().rev();
    let last = name_of(parts.next()?.as_ident()?);
    let schema = match parts.next() {
        Some(part) => Some(name_of(part.as_ident()?)),
        None => None,
    };
    Some((schema, last))
}

/// A column that a query gives.
#[derive(Debug, Clone, Default)]
pub(super) struct Output {
    pub name: Option<String>,
    /// The column it is, if it is one.
    pub node: Option<NodeId>,
    /// The values it can have, if they are written down.
    pub literals: Vec<Literal>,
}

/// The columns that a query gives.
#[derive(Debug, Clone, Default)]
pub(super) struct Outputs {
    pub columns: Vec<Output>,
    /// Whether all are there and in order; otherwise only those names are known that are listed.
    pub complete: bool,
}

impl Outputs {
    pub(super) fn unknown() -> Outputs {
        Outputs::default()
    }
}

/// One relation in a FROM.
pub(super) struct Item {
    /// Its alias or name.
    pub name: Option<String>,
    /// Its schema, if it goes by its own name.
    pub schema: Option<String>,
    pub columns: Columns,
}

pub(super) enum Columns {
    /// A table, by the builder's list, with the columns' new names if it got some.
    Table { instance: usize, renamed: Vec<String> },
    /// What a query gives.
    Query(Outputs),
    /// A function, or a relation that is not known.
    Unknown,
}

/// The relations a name can mean.
pub(super) struct Scope<'s> {
    pub items: Vec<Item>,
    /// Columns that USING or NATURAL made one of two.
    pub merged: Vec<(String, Option<NodeId>)>,
    pub parent: Option<&'s Scope<'s>>,
}

impl<'s> Scope<'s> {
    pub(super) fn new(parent: Option<&'s Scope<'s>>) -> Scope<'s> {
        Scope { items: Vec::new(), merged: Vec::new(), parent }
    }
}
