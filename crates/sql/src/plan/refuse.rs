//! What is refused across shards whatever the plan: one shard's answer would be passed off as the whole.

use std::ops::ControlFlow;

use crate::ast::{Expr, Function, Ident, ObjectName, Query, Select, SetExpr, TableFactor, Visit, Visitor};

use super::functions;
use super::shape::is_shard_function;
use super::tree::{folded, parts, relation};
use crate::error::SqlError;
use crate::route::Context;
use crate::schema::Placement;

/// Columns that tell of a row's place in one database.
const SYSTEM_COLUMNS: &[&str] = &["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"];

/// Refuses what SQL.md lists; the query has its views opened.
pub(super) fn check(query: &Query, context: &Context<'_>) -> Result<(), SqlError> {
    match query.visit(&mut Checking { context }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Checking<'c> {
    context: &'c Context<'c>,
}

fn refused(what: impl std::fmt::Display, hint: &'static str) -> ControlFlow<SqlError> {
    ControlFlow::Break(SqlError::unsupported(
        format!("{what} cannot be used in a query over several shards"),
        hint,
    ))
}

const ONE_KEY: &str = "Give a key, so that the statement concerns one shard.";

impl Checking<'_> {
    fn function(&self, name: &ObjectName) -> ControlFlow<SqlError> {
        let Some(names) = parts(name) else { return refused("this function", ONE_KEY) };
        let (schema, short) = match names.as_slice() {
            [short] => (None, short),
            [schema, short] => (Some(schema), short),
            _ => return refused(name, ONE_KEY),
        };
        if schema.is_none_or(|schema| schema == "pg_catalog") && functions::is_refused(short) {
            return refused(format_args!("{short}()"), ONE_KEY);
        }
        if schema.is_some_and(|schema| schema == "pg_catalog") {
            return ControlFlow::Continue(());
        }
        if schema.is_some_and(|schema| schema == "polyshard") {
            return match short.as_str() {
                name if is_shard_function(name) => ControlFlow::Continue(()),
                _ => refused(format_args!("polyshard.{short}()"), ONE_KEY),
            };
        }
        let known = |schema: &String| {
            let full = crate::schema::TableName { schema: schema.clone(), name: short.clone() };
            self.context.schema.functions.get(&full)
        };
        let found = match schema {
            Some(schema) => known(schema),
            None => self.context.search_path.iter().find_map(known),
        };
        match found {
            Some(function) if !function.table_free => refused(
                format_args!("the function {short}()"),
                "It might read tables, of which each shard has a part. Declare it free of table access first.",
            ),
            Some(_) => ControlFlow::Continue(()),
            None if schema.is_some() && schema.is_none_or(|schema| schema != "information_schema") => {
                refused(format_args!("the function {name}()"), ONE_KEY)
            }
            None => ControlFlow::Continue(()),
        }
    }

    fn columns(&self, parts: &[Ident]) -> ControlFlow<SqlError> {
        match parts.last().map(folded) {
            Some(last) if SYSTEM_COLUMNS.contains(&last.as_str()) => {
                refused(format_args!("the system column {last}"), "It tells of one database only.")
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Visitor for Checking<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        if !query.locks.is_empty() {
            return refused("FOR UPDATE and its like", "Lock the rows of one key, or leave the lock out.");
        }
        if query.for_clause.is_some()
            || query.settings.is_some()
            || query.format_clause.is_some()
            || !query.pipe_operators.is_empty()
        {
            return refused("this form of SELECT", ONE_KEY);
        }
        match query.body.as_ref() {
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                refused("a WITH that writes", "Run the write as a statement of its own.")
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        if select.into.is_some() {
            return refused("SELECT INTO", "Create the table first, then INSERT the rows.");
        }
        let foreign = select.top.is_some()
            || select.exclude.is_some()
            || !select.lateral_views.is_empty()
            || select.prewhere.is_some()
            || !select.connect_by.is_empty()
            || select.qualify.is_some()
            || select.value_table_mode.is_some();
        if foreign { refused("this form of SELECT", ONE_KEY) } else { ControlFlow::Continue(()) }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<SqlError> {
        match factor {
            TableFactor::Table { name, args: None, sample, .. } => {
                let Some((schema, short)) = relation(name) else { return refused(name, ONE_KEY) };
                let context = self.context;
                let Some(table) = context.schema.table(schema.as_deref(), &short, context.search_path) else {
                    return ControlFlow::Continue(());
                };
                let spread = !matches!(table.placement, Placement::Reference { .. });
                if table.row_security && spread {
                    return refused(
                        format_args!("the table \"{short}\", which has row-level security,"),
                        "Its policies would not be those of the asking role.",
                    );
                }
                if sample.is_some() && spread {
                    return refused("TABLESAMPLE", "Filter by random() instead.");
                }
                ControlFlow::Continue(())
            }
            TableFactor::Table { name, args: Some(_), .. } | TableFactor::Function { name, .. } => {
                self.function(name)
            }
            TableFactor::Derived { sample: None, .. }
            | TableFactor::UNNEST { .. }
            | TableFactor::NestedJoin { .. } => ControlFlow::Continue(()),
            TableFactor::TableFunction { expr: Expr::Function(Function { name, .. }), .. } => {
                self.function(name)
            }
            _ => refused("this form of FROM", ONE_KEY),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        match expr {
            Expr::Function(function) => self.function(&function.name),
            Expr::Identifier(ident) => self.columns(std::slice::from_ref(ident)),
            Expr::CompoundIdentifier(parts) => self.columns(parts),
            _ => ControlFlow::Continue(()),
        }
    }
}
