//! Rows that a shard has and does not own, while a range is moved: left out of every table of a fragment.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::ast::{Ident, ObjectName, Query, TableAlias, TableFactor, Visit, VisitMut, Visitor, VisitorMut};
use polyshard_map::ShardId;

use super::Fragment;
use super::tree::{self, folded, quoted, relation};
use crate::error::{SqlError, SqlState};
use crate::route::Context;
use crate::schema::TableName;

impl Fragment {
    /// The SELECT for one shard, without the rows of these tables that meet these conditions.
    pub fn sql_without(
        &self,
        shard: &ShardId,
        conditions: &BTreeMap<TableName, String>,
        context: &Context<'_>,
    ) -> Result<String, SqlError> {
        if conditions.is_empty() {
            return Ok(self.sql_on(shard));
        }
        self.sql_with(shard, conditions, Instead::Rows, context)
    }

    /// The SELECT for one shard, with other tables, by their names in `pg_temp`, in the place of these.
    pub fn sql_over(
        &self,
        shard: &ShardId,
        others: &BTreeMap<TableName, String>,
        context: &Context<'_>,
    ) -> Result<String, SqlError> {
        self.sql_with(shard, others, Instead::Table, context)
    }

    fn sql_with(
        &self,
        shard: &ShardId,
        conditions: &BTreeMap<TableName, String>,
        instead: Instead,
        context: &Context<'_>,
    ) -> Result<String, SqlError> {
        super::on_a_deep_stack(|| {
            let mut query = tree::query(&self.sql_on(shard))?;
            let mut commons = Commons::default();
            let _ = query.visit(&mut commons);
            let mut excluding = Excluding { conditions, instead, context, commons: commons.0 };
            match VisitMut::visit(&mut query, &mut excluding) {
                ControlFlow::Continue(()) => Ok(query.to_string()),
                ControlFlow::Break(error) => Err(error),
            }
        })
    }
}

/// What stands in the place of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Instead {
    /// Its rows that do not meet a condition.
    Rows,
    /// Another table, by its name.
    Table,
}

/// The names of all CTEs.
#[derive(Default)]
struct Commons(Vec<String>);

impl Visitor for Commons {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let names = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| folded(&cte.alias.name));
        self.0.extend(names);
        ControlFlow::Continue(())
    }
}

struct Excluding<'e> {
    instead: Instead,
    conditions: &'e BTreeMap<TableName, String>,
    context: &'e Context<'e>,
    commons: Vec<String>,
}

impl Excluding<'_> {
    fn replaced(&self, factor: &TableFactor) -> Result<Option<TableFactor>, SqlError> {
        let TableFactor::Table { name, alias, args: None, .. } = factor else { return Ok(None) };
        let Some((schema, short)) = relation(name) else { return Ok(None) };
        let Some(table) = self.context.schema.table(schema.as_deref(), &short, self.context.search_path)
        else {
            return Ok(None);
        };
        let Some(condition) = self.conditions.get(&table.name) else { return Ok(None) };
        if schema.is_none() && self.commons.contains(&short) {
            return Err(SqlError::new(
                SqlState::SERIALIZATION_FAILURE,
                format!("a range of \"{short}\" is being moved, and the query has a WITH of that name"),
            )
            .hint("Try again, or give the WITH query another name."));
        }
        let shown = || TableAlias {
            explicit: true,
            name: Ident::with_quote('"', short.clone()),
            columns: Vec::new(),
            at: None,
        };
        let alias = Some(alias.clone().unwrap_or_else(shown));
        if self.instead == Instead::Table {
            let mut other = factor.clone();
            if let TableFactor::Table { name, alias: named, .. } = &mut other {
                let parts = ["pg_temp", condition.as_str()].map(|part| Ident::with_quote('"', part));
                *name = ObjectName::from(parts.to_vec());
                *named = alias;
            }
            return Ok(Some(other));
        }
        let rows = tree::query(&format!(
            "SELECT * FROM {}.{} WHERE NOT ({condition})",
            quoted(&table.name.schema),
            quoted(&table.name.name)
        ))?;
        Ok(Some(TableFactor::Derived { lateral: false, subquery: Box::new(rows), alias, sample: None }))
    }
}

impl VisitorMut for Excluding<'_> {
    type Break = SqlError;

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        match self.replaced(factor) {
            Ok(Some(replaced)) => {
                *factor = replaced;
                ControlFlow::Continue(())
            }
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}
