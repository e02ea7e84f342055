//! CREATE VIEW, and what views are made of.

use std::ops::ControlFlow;

use polyshard_sql::ast::{self, CreateView, Ident, ObjectName, Query, Statement as Ast};
use polyshard_sql::{Context, SqlError, TableName};

use super::create::exists;
use super::{literal_text, name_list, new_name};
use crate::fail::{fail, unsupported};
use crate::settings::Settings;
use crate::translate::{Translator, file_name, fold, name_parts};

pub(super) fn create(create: &CreateView, context: &Context<'_>) -> Result<Vec<String>, SqlError> {
    if create.materialized || create.temporary {
        return Err(unsupported("materialized and temporary views"));
    }
    let name = new_name(&create.name, context)?;
    let known = context.schema.views.contains_key(&name);
    if exists(context.schema, &name) && !(known && create.or_replace) {
        return Err(fail("42P07", format!("relation \"{}\" already exists", name.name)));
    }
    let settings = Settings::default();
    let mut translator = Translator::new(context, &settings, Vec::new());
    let made = translator.query(&create.query, None)?;
    if !translator.parameters.is_empty() {
        return Err(fail("42P02", "there is no parameter $1"));
    }
    let types: Vec<String> =
        made.columns.iter().map(|column| format!("[{}, {}]", column.type_oid.0, column.type_mod)).collect();
    let mut columns: Vec<String> = made.columns.into_iter().map(|column| column.name).collect();
    if create.columns.len() > columns.len() {
        return Err(fail("42601", "CREATE VIEW specifies more column names than columns"));
    }
    for (column, given) in columns.iter_mut().zip(&create.columns) {
        *column = fold(&given.name);
    }
    Ok(vec![format!(
        "INSERT OR REPLACE INTO polyshard_sql_view (name, columns, types, definition) VALUES ({}, {}, '[{}]', {})",
        literal_text(&file_name(&name)),
        name_list(&columns),
        types.join(", "),
        literal_text(&qualified(&create.query, context)?.to_string())
    )])
}

/// The query with the schemas of its relations written down: it means the same to whoever uses it. Where there is
/// only `public`, it stays as it was written.
fn qualified(query: &Query, context: &Context<'_>) -> Result<Query, SqlError> {
    let mut query = query.clone();
    if context.schema.schemas.is_empty() {
        return Ok(query);
    }
    qualify(&mut query, context)?;
    Ok(query)
}

/// A view's query for a session with any search path: what has no schema in it is of `public`, the only one there was.
pub(crate) fn in_public(query: &Query, context: &Context<'_>) -> Result<Query, SqlError> {
    let mut query = query.clone();
    if !context.schema.schemas.is_empty() {
        let search_path = ["public".to_owned()];
        qualify(&mut query, &Context { search_path: &search_path, ..*context })?;
    }
    Ok(query)
}

fn qualify(query: &mut Query, context: &Context<'_>) -> Result<(), SqlError> {
    let own = with_names(query);
    let done = ast::visit_relations_mut(query, |name| {
        let (schema, bare) = match name_parts(name) {
            Ok(parts) => parts,
            Err(error) => return ControlFlow::Break(error),
        };
        if schema.is_some() {
            return ControlFlow::Continue(());
        }
        let Some(full) = found(None, &bare, context) else { return ControlFlow::Continue(()) };
        if own.contains(&bare) {
            return ControlFlow::Break(unsupported(format!("a view whose WITH is called like table {bare}")));
        }
        let parts = [full.schema, full.name].map(|part| Ident::with_quote('"', part));
        *name = ObjectName::from(parts.to_vec());
        ControlFlow::Continue(())
    });
    match done {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The tables and views that a view's definition names.
pub(super) fn relations(definition: &str, context: &Context<'_>) -> Vec<TableName> {
    let Ok(statements) = polyshard_sql::statements(definition) else { return Vec::new() };
    let Some(Ast::Query(query)) = statements.first().and_then(|one| one.ast()) else { return Vec::new() };
    let own = with_names(query);
    let mut names = Vec::new();
    let _: ControlFlow<()> = ast::visit_relations(&**query, |name| {
        if let Ok((schema, bare)) = name_parts(name)
            && !(schema.is_none() && own.contains(&bare))
        {
            // Without a schema it was written when there was `public` alone.
            let schema = schema.unwrap_or_else(|| "public".to_owned());
            names.extend(found(Some(&schema), &bare, context));
        }
        ControlFlow::Continue(())
    });
    names
}

/// The full name of a relation that is there.
fn found(schema: Option<&str>, name: &str, context: &Context<'_>) -> Option<TableName> {
    let table = context.schema.table(schema, name, context.search_path).map(|table| &table.name);
    let view = || context.schema.view(schema, name, context.search_path).map(|view| &view.name);
    table.or_else(view).cloned()
}

/// What the query calls its own parts.
fn with_names(query: &Query) -> Vec<String> {
    /// Notes the names of all WITH queries, however deep.
    struct Names(Vec<String>);
    impl ast::Visitor for Names {
        type Break = ();
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let tables = query.with.iter().flat_map(|with| &with.cte_tables);
            self.0.extend(tables.map(|table| fold(&table.alias.name)));
            ControlFlow::Continue(())
        }
    }
    let mut names = Names(Vec::new());
    let _ = ast::Visit::visit(query, &mut names);
    names.0
}
