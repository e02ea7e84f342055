//! Syntax tree to plan: scopes, sources, clauses and their rules.

use std::sync::Arc;

use super::walk::{aggregates, has_aggregate_or_query};
use super::{AggregatePlan, Grouping, Node, OrderPlan, Origin, PathStep, SelectPlan, SourcePlan};
use crate::error::{ErrorCode, QueryError};
use crate::syntax::tree::*;

/// A plan with what the caller must supply to run it.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub plan: SelectPlan,
    /// How many slots the plan uses.
    pub slots: usize,
    pub parameters: Vec<String>,
    pub user_functions: Vec<String>,
}

/// Compiles one whole query.
pub(crate) fn compile(text: &str, select: &Select) -> Result<Compiled, QueryError> {
    let mut compiler = Compiler {
        text,
        bindings: Vec::new(),
        group: None,
        slots: 0,
        parameters: Vec::new(),
        user_functions: Vec::new(),
    };
    let plan = compiler.select(select, Place::Outermost)?;
    let Compiler { slots, parameters, user_functions, .. } = compiler;
    Ok(Compiled { plan, slots, parameters, user_functions })
}

/// Where a SELECT stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Outermost,
    /// First in FROM of the outermost query: it reads the documents, too.
    Feeding,
    Inner,
}

struct Binding {
    name: String,
    slot: usize,
    /// False in the select list of a grouped query, where only groups can be seen.
    visible: bool,
}

/// The groups of the query whose select list is being compiled.
pub(super) struct GroupScope {
    /// The printed key expressions with their slots.
    pub keys: Vec<(String, usize)>,
    pub aggregates: Vec<AggregatePlan>,
    /// The first binding of the query, of those that its select list cannot see.
    first_binding: usize,
}

pub(super) struct Compiler<'a> {
    pub text: &'a str,
    bindings: Vec<Binding>,
    pub group: Option<GroupScope>,
    slots: usize,
    pub parameters: Vec<String>,
    pub user_functions: Vec<String>,
}

impl Compiler<'_> {
    pub(super) fn error(&self, code: ErrorCode, message: impl Into<String>, span: Span) -> QueryError {
        QueryError::new(code, message).at(self.text, span.start, span.end)
    }

    pub(super) fn new_slot(&mut self) -> usize {
        self.slots += 1;
        self.slots - 1
    }

    /// The slot of a name, or the reason that it has none.
    pub(super) fn resolve(&self, name: &str, span: Span) -> Result<usize, QueryError> {
        match self.bindings.iter().rev().find(|binding| binding.name == name) {
            Some(binding) if binding.visible => Ok(binding.slot),
            Some(_) => {
                let message = format!(
                    "Property reference '{}' is invalid in the select list because it is not contained in either an \
                     aggregate function or the GROUP BY clause.",
                    &self.text[span.start..span.end]
                );
                Err(self.error(ErrorCode::UngroupedProperty, message, span))
            }
            None => {
                let message = format!("Identifier '{name}' could not be resolved.");
                Err(self.error(ErrorCode::UnresolvedName, message, span))
            }
        }
    }

    /// A sub-query of an expression.
    pub(super) fn inner_select(&mut self, select: &Select) -> Result<SelectPlan, QueryError> {
        let group = self.group.take();
        let plan = self.select(select, Place::Inner);
        self.group = group;
        plan
    }

    fn select(&mut self, select: &Select, place: Place) -> Result<SelectPlan, QueryError> {
        if place != Place::Outermost {
            self.refuse_ordering(select)?;
        }
        let outer_bindings = self.bindings.len();
        let sources = self.sources(&select.sources, place)?;
        let filter = select.filter.as_ref().map(|filter| self.expression(filter)).transpose()?;
        let plan = if select.group_by.is_empty() && !aggregates(select) {
            self.ungrouped(select, sources, filter)
        } else {
            self.grouped(select, sources, filter, outer_bindings)
        };
        self.bindings.truncate(outer_bindings);
        plan
    }

    fn refuse_ordering(&self, select: &Select) -> Result<(), QueryError> {
        let clause = |code, name: &str, span| {
            Err(self.error(code, format!("'{name}' is not supported in subqueries."), span))
        };
        if select.top.is_some() {
            return clause(ErrorCode::TopInSubquery, "TOP", select.top_span);
        }
        if !select.order_by.is_empty() {
            return clause(ErrorCode::OrderByInSubquery, "ORDER BY", select.order_span);
        }
        match &select.window {
            Some(window) => clause(ErrorCode::WindowInSubquery, "OFFSET LIMIT", window.span),
            None => Ok(()),
        }
    }

    fn sources(&mut self, sources: &[Source], place: Place) -> Result<Vec<SourcePlan>, QueryError> {
        let mut plans = Vec::new();
        for source in sources {
            let reads_root = place != Place::Inner && plans.is_empty();
            let (origin, name) = self.origin(source, reads_root)?;
            let slot = self.new_slot();
            plans.push(SourcePlan { origin, iterate: source.iterate, slot });
            if let Some(name) = source.alias.clone().or(name) {
                self.bindings.push(Binding { name, slot, visible: true });
            }
        }
        Ok(plans)
    }

    /// The origin of a source and the name it has without an alias.
    fn origin(&mut self, source: &Source, reads_root: bool) -> Result<(Origin, Option<String>), QueryError> {
        match &source.collection {
            Collection::Query(select) => {
                let place = if reads_root { Place::Feeding } else { Place::Inner };
                Ok((Origin::Query(Box::new(self.select(select, place)?)), None))
            }
            Collection::Path { root, steps } => {
                let name = match steps.last() {
                    None => Some(root.clone()),
                    Some(Step::Key(key)) => Some(key.clone()),
                    Some(Step::Index(_)) => None,
                };
                let path = steps.iter().map(path_step).collect();
                if reads_root {
                    return Ok((Origin::Root(path), name));
                }
                Ok((Origin::Slot(self.resolve(root, source.span)?, path), name))
            }
        }
    }

    fn ungrouped(
        &mut self,
        select: &Select,
        sources: Vec<SourcePlan>,
        filter: Option<Node>,
    ) -> Result<SelectPlan, QueryError> {
        let projection = match &select.projection {
            Projection::Star(span) => match sources.as_slice() {
                [source] => Node::Slot(source.slot),
                _ => {
                    let message = "'SELECT *' is only valid with a single input set.";
                    return Err(self.error(ErrorCode::StarWithoutSingleSource, message, *span));
                }
            },
            projection => self.projection(projection)?,
        };
        let mut order = Vec::new();
        for item in &select.order_by {
            if !is_path(&item.expr) {
                let message = "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a \
                               document path.";
                return Err(QueryError::new(ErrorCode::OrderByNotPath, message));
            }
            order.push(OrderPlan { node: self.expression(&item.expr)?, descending: item.descending });
        }
        let skip_undefined = matches!(select.projection, Projection::Value(_));
        let distinct = select.distinct;
        Ok(SelectPlan { sources, filter, grouping: None, projection, skip_undefined, distinct, order })
    }

    fn grouped(
        &mut self,
        select: &Select,
        sources: Vec<SourcePlan>,
        filter: Option<Node>,
        outer_bindings: usize,
    ) -> Result<SelectPlan, QueryError> {
        if let Projection::Star(span) = &select.projection {
            let message = "'SELECT *' is not allowed with GROUP BY.";
            return Err(self.error(ErrorCode::StarWithGroupBy, message, *span));
        }
        let mut keys = Vec::new();
        let mut printed = Vec::new();
        for expr in &select.group_by {
            if has_aggregate_or_query(expr) {
                let message = "The GROUP BY clause cannot contain an aggregate or a subquery.";
                return Err(self.error(ErrorCode::MisplacedAggregate, message, expr.span));
            }
            let slot = self.new_slot();
            keys.push((self.expression(expr)?, slot));
            printed.push((expr.to_string(), slot));
        }
        self.show(outer_bindings, false);
        let outer_group = self.group.replace(GroupScope {
            keys: printed,
            aggregates: Vec::new(),
            first_binding: outer_bindings,
        });
        let parts = self.grouped_parts(select);
        let group = std::mem::replace(&mut self.group, outer_group);
        let (projection, order) = parts?;
        let aggregates = group.map(|group| group.aggregates).unwrap_or_default();
        Ok(SelectPlan {
            sources,
            filter,
            grouping: Some(Grouping { keys, aggregates }),
            projection,
            skip_undefined: matches!(select.projection, Projection::Value(_)),
            distinct: select.distinct,
            order,
        })
    }

    fn grouped_parts(&mut self, select: &Select) -> Result<(Node, Vec<OrderPlan>), QueryError> {
        let projection = self.projection(&select.projection)?;
        let mut order = Vec::new();
        if select.group_by.is_empty() {
            // One row needs no order, but the names must exist.
            for item in &select.order_by {
                self.with_rows(|compiler| compiler.expression(&item.expr))?;
            }
            return Ok((projection, order));
        }
        for item in &select.order_by {
            order.push(OrderPlan { node: self.expression(&item.expr)?, descending: item.descending });
        }
        Ok((projection, order))
    }

    /// Shows or hides the bindings from `first` on.
    fn show(&mut self, first: usize, visible: bool) {
        self.bindings[first..].iter_mut().for_each(|binding| binding.visible = visible);
    }

    /// Compiles the argument of an aggregate, for which the rows of the query can be seen.
    pub(super) fn with_rows<T>(
        &mut self,
        compile: impl FnOnce(&mut Self) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let group = self.group.take();
        let first = group.as_ref().map_or(self.bindings.len(), |group| group.first_binding);
        self.show(first, true);
        let result = compile(self);
        self.show(first, false);
        self.group = group;
        result
    }

    fn projection(&mut self, projection: &Projection) -> Result<Node, QueryError> {
        match projection {
            Projection::Star(_) => Ok(Node::Object(Vec::new())),
            Projection::Value(expr) => self.expression(expr),
            Projection::List(items) => {
                let mut properties: Vec<(Arc<str>, Node)> = Vec::new();
                let mut unnamed = 0;
                for (expr, alias) in items {
                    let name = alias.clone().or_else(|| own_name(expr)).unwrap_or_else(|| {
                        unnamed += 1;
                        format!("${unnamed}")
                    });
                    properties.push((name.into(), self.expression(expr)?));
                }
                Ok(Node::Object(properties))
            }
        }
    }
}

fn path_step(step: &Step) -> PathStep {
    match step {
        Step::Key(key) => PathStep::Key(key.as_str().into()),
        Step::Index(index) => PathStep::Index(*index),
    }
}

/// The name that an item of the select list has without an alias.
fn own_name(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Name(name) => Some(name.clone()),
        Kind::Path(_, members) => match members.last() {
            Some(Member::Key(key)) => Some(key.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// True for `c`, `c.a["b"][0]` and their like.
fn is_path(expr: &Expr) -> bool {
    match &expr.kind {
        Kind::Name(_) => true,
        Kind::Path(base, members) => {
            let constant = |member: &Member| match member {
                Member::Key(_) => true,
                Member::Computed(step) => matches!(step.kind, Kind::Constant(_) | Kind::Parameter(_)),
            };
            is_path(base) && members.iter().all(constant)
        }
        _ => false,
    }
}
