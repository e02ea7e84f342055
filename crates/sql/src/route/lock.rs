//! Which queries lock rows of tables that every shard has: a lock on one shard keeps out those who lock there alone.

use std::ops::ControlFlow;

use super::builder::Builder;
use super::scope::{name_of, relation_of};
use crate::ast::{self, LockType, Query, SetExpr, TableFactor, TableWithJoins};
use crate::schema::Placement;

/// How rows, or tables, are locked that every shard has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReferenceLock {
    /// Against writers alone, who come to every shard.
    Shared,
    /// Against others who lock the same.
    Alone,
}

impl Builder<'_> {
    /// Notes what a query locks, whose tables are those from this one on.
    pub(super) fn note_locks(&mut self, query: &Query, first: usize) {
        for clause in &query.locks {
            let lock = match clause.lock_type {
                LockType::Share => ReferenceLock::Shared,
                LockType::Update => ReferenceLock::Alone,
            };
            let of = clause.of.as_ref().and_then(relation_of).map(|(_, name)| name);
            let mut names = Vec::new();
            let all = match query.body.as_ref() {
                SetExpr::Select(select) => {
                    select.from.iter().for_each(|tables| sources(tables, of.as_deref(), &mut names));
                    let views = &self.context.schema.views;
                    names.iter().any(|name| views.keys().any(|view| view.name == *name))
                }
                _ => true,
            };
            let locked = self.instances[first..].iter().any(|instance| {
                matches!(instance.table.placement, Placement::Reference { .. })
                    && (all || names.contains(&instance.table.name.name))
            });
            if locked {
                self.reference_lock = self.reference_lock.max(Some(lock));
            }
        }
    }
}

/// The names of the tables in FROM that are locked: all, or what is called so.
fn sources(tables: &TableWithJoins, of: Option<&str>, names: &mut Vec<String>) {
    for factor in std::iter::once(&tables.relation).chain(tables.joins.iter().map(|join| &join.relation)) {
        let is_meant = |alias: Option<&ast::TableAlias>, own: Option<&str>| {
            let alias = alias.map(|alias| name_of(&alias.name));
            of.is_none_or(|of| alias.as_deref().or(own) == Some(of))
        };
        match factor {
            TableFactor::Table { name, alias, .. } => {
                let Some((_, name)) = relation_of(name) else { continue };
                if is_meant(alias.as_ref(), Some(&name)) {
                    names.push(name);
                }
            }
            TableFactor::Derived { subquery, alias, .. } if is_meant(alias.as_ref(), None) => {
                let _: ControlFlow<()> = ast::visit_relations(subquery.as_ref(), |name| {
                    names.extend(relation_of(name).map(|(_, name)| name));
                    ControlFlow::Continue(())
                });
            }
            TableFactor::NestedJoin { table_with_joins, .. } => sources(table_with_joins, of, names),
            _ => {}
        }
    }
}
