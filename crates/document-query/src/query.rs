//! A parsed query, and a query with its parameters.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::error::{ErrorCode, QueryError};
use crate::execution::{Environment, Execution};
use crate::limits::{COUNT_MAX, Limits};
use crate::plan::{Compiled, Node, Origin, PathStep, SelectPlan, compile};
use crate::pushdown::{self, Condition};
use crate::syntax::parse;
use crate::syntax::tree::{Count, CountValue, Select};
use crate::value::Value;

/// A query whose text is correct and whose names are resolved. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Query {
    inner: Arc<Parsed>,
}

#[derive(Debug)]
struct Parsed {
    text: String,
    select: Select,
    compiled: Compiled,
    regex_bytes: usize,
}

impl Query {
    /// Parses and checks a text.
    pub fn parse(text: &str, limits: &Limits) -> Result<Query, QueryError> {
        let select = parse(text, limits)?;
        let compiled = compile(text, &select)?;
        check_counts(text, &select)?;
        let regex_bytes = limits.regex_bytes;
        Ok(Query { inner: Arc::new(Parsed { text: text.to_owned(), select, compiled, regex_bytes }) })
    }

    /// The names behind `udf.`, each once.
    pub fn user_functions(&self) -> &[String] {
        &self.inner.compiled.user_functions
    }

    /// The parameters that expressions use, with their `@`, each once. Counts of TOP, OFFSET and LIMIT are not among
    /// them.
    pub fn parameter_names(&self) -> &[String] {
        &self.inner.compiled.parameters
    }

    /// Joins the query with the parameters of a request.
    pub fn bind(&self, parameters: &Parameters) -> Result<BoundQuery, QueryError> {
        let missing = |name: &str| {
            let message =
                format!("The parameter '{name}' is used in the query and not supplied with the request.");
            QueryError::new(ErrorCode::MissingParameter, message)
        };
        let values = self
            .parameter_names()
            .iter()
            .map(|name| parameters.get(name).cloned().ok_or_else(|| missing(name)));
        let values: Vec<Value> = values.collect::<Result<_, _>>()?;
        let text = &self.inner.text;
        let count = |count: &Count, clause| match &count.value {
            CountValue::Number(number) => whole_count(text, count, *number, clause),
            CountValue::Parameter(name) => {
                let value = parameters.get(name).ok_or_else(|| missing(name))?;
                whole_count(text, count, value.as_number().unwrap_or(f64::NAN), clause)
            }
        };
        let select = &self.inner.select;
        let top = select.top.as_ref().map(|top| count(top, Clause::Top)).transpose()?;
        let (mut offset, mut limit) = (0, None);
        if let Some(window) = &select.window {
            offset = count(&window.offset, Clause::Offset)?;
            limit = Some(count(&window.limit, Clause::Limit)?);
        }
        let limit = top.into_iter().chain(limit).min();
        Ok(BoundQuery { query: self.clone(), parameters: values.into(), offset, limit })
    }
}

/// The canonical text: every operator in parentheses.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner.select)
    }
}

#[derive(Clone, Copy)]
enum Clause {
    Top,
    Offset,
    Limit,
}

/// Checks the counts that are written in the text, so that they are refused before the parameters are known.
fn check_counts(text: &str, select: &Select) -> Result<(), QueryError> {
    let mut counts: Vec<(&Count, Clause)> = select.top.iter().map(|top| (top, Clause::Top)).collect();
    if let Some(window) = &select.window {
        counts.extend([(&window.offset, Clause::Offset), (&window.limit, Clause::Limit)]);
    }
    for (count, clause) in counts {
        if let CountValue::Number(number) = count.value {
            whole_count(text, count, number, clause)?;
        }
    }
    Ok(())
}

fn whole_count(text: &str, count: &Count, number: f64, clause: Clause) -> Result<u64, QueryError> {
    let whole = number.fract() == 0.0 && number >= 0.0;
    if whole && number <= COUNT_MAX as f64 {
        return Ok(number as u64);
    }
    let (code, message) = match (clause, whole) {
        (Clause::Top, _) => {
            (ErrorCode::TopNotInteger, "The count value provided for a TOP clause must be an integer.")
        }
        (Clause::Offset, false) => {
            (ErrorCode::OffsetTooLarge, "The count value provided for an OFFSET clause must be an integer.")
        }
        (Clause::Offset, true) => {
            (ErrorCode::OffsetTooLarge, "The OFFSET count value exceeds the maximum allowed value.")
        }
        (Clause::Limit, false) => {
            (ErrorCode::LimitTooLarge, "The count value provided for a LIMIT clause must be an integer.")
        }
        (Clause::Limit, true) => {
            (ErrorCode::LimitTooLarge, "The LIMIT count value exceeds the maximum allowed value.")
        }
    };
    Err(QueryError::new(code, message).at(text, count.span.start, count.span.end))
}

/// The parameters of a request, by their names with the `@`.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    values: HashMap<String, Value>,
}

impl Parameters {
    /// No parameters.
    pub fn new() -> Self {
        Parameters::default()
    }

    /// Sets a parameter; of several with one name the last counts.
    pub fn insert(&mut self, name: &str, value: Value) {
        self.values.insert(name.to_owned(), value);
    }

    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }
}

/// A query with its parameters, ready to run.
#[derive(Clone, Debug)]
pub struct BoundQuery {
    query: Query,
    pub(crate) parameters: Arc<[Value]>,
    pub(crate) offset: u64,
    /// The smaller of TOP and LIMIT.
    pub(crate) limit: Option<u64>,
}

/// What a query needs while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Results come with each document, and no state is kept.
    pub streaming: bool,
    /// The query has ORDER BY.
    pub ordered: bool,
    /// The query has GROUP BY.
    pub grouped: bool,
    /// The query has aggregates and no GROUP BY: one row.
    pub aggregate: bool,
    /// The query has DISTINCT.
    pub distinct: bool,
    /// A document can give more than one row.
    pub joins: bool,
}

/// One item of ORDER BY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderKey {
    /// The path from the document's root; none for other expressions, and for properties of joined items.
    pub path: Option<Vec<PathStep>>,
    /// DESC.
    pub descending: bool,
}

impl BoundQuery {
    pub(crate) fn plan(&self) -> &SelectPlan {
        &self.query.inner.compiled.plan
    }

    pub(crate) fn slots(&self) -> usize {
        self.query.inner.compiled.slots
    }

    pub(crate) fn regex_bytes(&self) -> usize {
        self.query.inner.regex_bytes
    }

    /// What the query needs while it runs.
    pub fn shape(&self) -> Shape {
        let plan = self.plan();
        let stages = stages(plan);
        let keys = plan.grouping.as_ref().map(|grouping| grouping.keys.len());
        Shape {
            streaming: plan.order.is_empty()
                && stages.iter().all(|plan| plan.grouping.is_none() && !plan.distinct),
            ordered: !plan.order.is_empty(),
            grouped: keys.is_some_and(|keys| keys > 0),
            aggregate: keys == Some(0),
            distinct: plan.distinct,
            joins: stages
                .iter()
                .any(|plan| plan.sources.len() > 1 || plan.sources.iter().any(|source| source.iterate)),
        }
    }

    /// The items of ORDER BY.
    pub fn order_by(&self) -> Vec<OrderKey> {
        let plan = self.plan();
        let paths = pushdown::slot_paths(plan);
        let path = |node: &Node| match plan.grouping {
            None => pushdown::document_path(node, &paths),
            Some(_) => None,
        };
        plan.order
            .iter()
            .map(|order| OrderKey { path: path(&order.node), descending: order.descending })
            .collect()
    }

    /// Conditions that hold for every document which can change the result. A store may leave out documents that fail
    /// one of them; it need not.
    pub fn conditions(&self) -> Vec<Condition> {
        stages(self.plan()).first().map_or_else(Vec::new, |plan| pushdown::conditions(plan, &self.parameters))
    }

    /// How many rows the result has at most, with those that OFFSET skips.
    pub fn rows_wanted(&self) -> Option<u64> {
        self.limit.map(|limit| limit.saturating_add(self.offset))
    }

    /// Starts the query.
    pub fn execute(&self, environment: Environment) -> Execution {
        Execution::new(self.clone(), environment)
    }
}

/// The chain of queries that feed each other through FROM, the one that reads documents first.
pub(crate) fn stages(plan: &SelectPlan) -> Vec<&SelectPlan> {
    let mut stages = vec![plan];
    while let Some(Origin::Query(inner)) =
        stages.last().and_then(|plan| plan.sources.first()).map(|first| &first.origin)
    {
        stages.push(inner);
    }
    stages.reverse();
    stages
}

/// The query of a chain of `count` at a place, counted from the one that reads documents.
pub(crate) fn stage_at(plan: &SelectPlan, count: usize, index: usize) -> &SelectPlan {
    let mut plan = plan;
    for _ in index + 1..count {
        match plan.sources.first().map(|first| &first.origin) {
            Some(Origin::Query(inner)) => plan = inner,
            _ => break,
        }
    }
    plan
}
