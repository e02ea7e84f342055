//! The statement made ready for planning: parameters and the time as constants, views opened, names short.

use std::cell::Cell;
use std::ops::ControlFlow;

use crate::ast::{
    Expr, Function, FunctionArguments, Ident, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, Value,
    ValueWithSpan, VisitMut, VisitorMut,
};

use super::shape::is_shard_name;
use super::tree::{self, folded, function_name, relation};
use super::{Request, names};
use crate::error::SqlError;

/// How deep views may be made of views.
const VIEW_DEPTH_MAX: usize = 32;
/// How many views one statement may open in all: each of them may name others twice.
const VIEWS_MAX: usize = 500;

/// The query with everything replaced that must be the same on every shard.
pub(super) fn query(mut query: Query, request: &Request<'_>) -> Result<Query, SqlError> {
    let _ = VisitMut::visit(&mut query, &mut tree::Quotes);
    let views = Cell::new(0);
    let mut preparing = Preparing { request, ctes: Vec::new(), names: Vec::new(), depth: 0, views: &views };
    preparing.run(&mut query)?;
    Ok(query)
}

struct Preparing<'r> {
    request: &'r Request<'r>,
    /// Names of the CTEs in sight, by query.
    ctes: Vec<Vec<String>>,
    /// What PostgreSQL calls the items of each open select list, before anything is replaced.
    names: Vec<Vec<Option<String>>>,
    depth: usize,
    /// Views opened so far.
    views: &'r Cell<usize>,
}

impl Preparing<'_> {
    fn run(&mut self, query: &mut Query) -> Result<(), SqlError> {
        match query.visit(self) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }

    fn parameter(&self, name: &str) -> Result<Expr, SqlError> {
        let number = name.trim_start_matches('$').parse::<usize>().ok();
        let literal = number.and_then(|number| self.request.literals.get(number.checked_sub(1)?));
        let literal = literal.ok_or_else(|| {
            SqlError::new(crate::SqlState("42P02"), format!("there is no parameter {name}"))
        })?;
        Ok(Expr::Nested(Box::new(tree::expression(literal)?)))
    }

    /// polyshard.shard() under the name by which it is found again.
    fn shard(&self, function: &Function) -> Expr {
        let mut function = function.clone();
        let name = Ident::new(self.request.shard_function.clone());
        function.name = ObjectName::from(vec![Ident::new("polyshard"), name]);
        Expr::Function(function)
    }

    /// now() and its like as a constant, if the caller said what time it is.
    fn time(&self, function: &Function) -> Option<Result<Expr, SqlError>> {
        let now = self.request.now?;
        let no_arguments = match &function.args {
            FunctionArguments::None => true,
            FunctionArguments::List(list) => list.args.is_empty() && list.clauses.is_empty(),
            FunctionArguments::Subquery(_) => false,
        };
        if !no_arguments || function.over.is_some() || function.filter.is_some() {
            return None;
        }
        let literal = format!("'{}'::timestamptz", now.replace('\'', "''"));
        let text = match function_name(function)?.as_str() {
            "now" | "current_timestamp" | "transaction_timestamp" | "statement_timestamp" => literal,
            "current_date" => format!("({literal})::date"),
            "localtimestamp" => format!("({literal})::timestamp"),
            "localtime" => format!("({literal})::time"),
            _ => return None,
        };
        Some(tree::expression(&text).map(|expr| Expr::Nested(Box::new(expr))))
    }

    /// The sub-select that a view stands for.
    fn view(
        &mut self,
        name: &ObjectName,
        alias: Option<&TableAlias>,
    ) -> Result<Option<TableFactor>, SqlError> {
        let Some((schema, short)) = relation(name) else { return Ok(None) };
        if schema.is_none() && self.ctes.iter().flatten().any(|cte| *cte == short) {
            return Ok(None);
        }
        let context = self.request.context;
        let Some(view) = context.schema.view(schema.as_deref(), &short, context.search_path) else {
            return Ok(None);
        };
        self.views.set(self.views.get() + 1);
        if self.depth >= VIEW_DEPTH_MAX || self.views.get() > VIEWS_MAX {
            return Err(SqlError::unsupported(
                format!("the view \"{short}\" is made of too many others"),
                "Query the tables themselves.",
            ));
        }
        let definition = view.definition.trim().trim_end_matches(';');
        let mut subquery = tree::query(definition)?;
        // The view does not see the CTEs of the statement that uses it.
        let mut inner = Preparing {
            request: self.request,
            ctes: Vec::new(),
            names: Vec::new(),
            depth: self.depth + 1,
            views: self.views,
        };
        inner.run(&mut subquery)?;
        let renamed = alias.map_or(&[][..], |alias| alias.columns.as_slice());
        let kept = view
            .columns
            .iter()
            .skip(renamed.len())
            .map(|column| TableAliasColumnDef { name: Ident::with_quote('"', column), data_type: None });
        let columns = renamed.iter().cloned().chain(kept).collect();
        let named = alias.map_or_else(|| Ident::with_quote('"', short), |alias| alias.name.clone());
        Ok(Some(TableFactor::Derived {
            lateral: false,
            subquery: Box::new(subquery),
            alias: Some(TableAlias { explicit: true, name: named, columns, at: None }),
            sample: None,
        }))
    }

    /// Whether these two parts are a schema and a relation of the user's.
    fn is_relation(&self, schema: &str, name: &str) -> bool {
        let schema = Some(schema);
        self.request.context.schema.table(schema, name, &[]).is_some()
            || self.request.context.schema.view(schema, name, &[]).is_some()
    }

    fn shorten_wildcard(&self, item: &mut SelectItem) {
        if let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item
            && name.0.len() == 2
            && let Some((Some(schema), short)) = relation(name)
            && self.is_relation(&schema, &short)
        {
            name.0.remove(0);
        }
    }
}

/// `TABLE t` as `SELECT * FROM t`.
fn open_table(body: &mut SetExpr) -> Result<(), SqlError> {
    match body {
        SetExpr::Table(table) => {
            // The parser drops the quotes, so that a name of other letters could mean two things.
            let is_plain = |name: &String| {
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            };
            let names: Vec<&String> = table.schema_name.iter().chain(table.table_name.iter()).collect();
            if !names.iter().all(|name| is_plain(name)) {
                return Err(SqlError::unsupported(
                    "TABLE is not planned across shards",
                    "Write SELECT * FROM.",
                ));
            }
            let name = names.iter().map(|name| tree::quoted(name)).collect::<Vec<_>>().join(".");
            *body = *tree::query(&format!("SELECT * FROM {name}"))?.body;
            Ok(())
        }
        SetExpr::SetOperation { left, right, .. } => {
            open_table(left)?;
            open_table(right)
        }
        _ => Ok(()),
    }
}

fn ended(result: Result<(), SqlError>) -> ControlFlow<SqlError> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl VisitorMut for Preparing<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        let names =
            query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| folded(&cte.alias.name)).collect();
        self.ctes.push(names);
        ended(open_table(&mut query.body))
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<SqlError> {
        self.ctes.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        self.names.push(select.projection.iter().map(names::item).collect());
        select.projection.iter_mut().for_each(|item| self.shorten_wildcard(item));
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        let before = self.names.pop().unwrap_or_default();
        for (item, before) in select.projection.iter_mut().zip(before) {
            let after = names::item(item);
            if let (SelectItem::UnnamedExpr(expr), Some(before)) = (&*item, before)
                && after.as_ref() != Some(&before)
            {
                *item =
                    SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', before) };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        if let TableFactor::Table { name, alias, args: None, .. } = factor {
            match self.view(name, alias.as_ref()) {
                Ok(Some(opened)) => *factor = opened,
                Ok(None) => {}
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let replaced = match &*expr {
            Expr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) => Some(self.parameter(name)),
            Expr::Function(function) if is_shard_name(function) => Some(Ok(self.shard(function))),
            Expr::Function(function) => self.time(function),
            Expr::CompoundIdentifier(parts)
                if parts.len() == 3 && self.is_relation(&folded(&parts[0]), &folded(&parts[1])) =>
            {
                Some(Ok(Expr::CompoundIdentifier(parts[1..].to_vec())))
            }
            _ => None,
        };
        match replaced {
            Some(Ok(new)) => *expr = new,
            Some(Err(error)) => return ControlFlow::Break(error),
            None => {}
        }
        ControlFlow::Continue(())
    }
}
