//! Pure: the query language of the documents store (Azure Cosmos DB for NoSQL), its values, parser, evaluator and
//! push-down. No I/O, no clock.
//!
//! A [`Query`] is parsed once and bound to the [`Parameters`] of each request. The [`Execution`] takes documents one by
//! one and gives rows; [`BoundQuery::conditions`] says which documents it need not see, and [`Position`] where a later
//! request goes on.
//!
//! ```
//! use polyshard_document_query::{Environment, Limits, Parameters, Query, Value};
//!
//! let query = Query::parse("SELECT c.name FROM c WHERE c.age >= @age ORDER BY c.name", &Limits::default())?;
//! let mut parameters = Parameters::new();
//! parameters.insert("@age", Value::from(18.0));
//! let mut execution = query.bind(&parameters)?.execute(Environment::default());
//! for (id, text) in [("1", r#"{"name":"Ben","age":20}"#), ("2", r#"{"name":"Ada","age":36}"#)] {
//!     execution.push(&Value::from_json(text.as_bytes())?, id.as_bytes())?;
//! }
//! execution.finish()?;
//! let rows: Vec<String> = std::iter::from_fn(|| execution.next_row()).map(|row| row.value.to_json()).collect();
//! assert_eq!(rows, [r#"{"name":"Ada"}"#, r#"{"name":"Ben"}"#]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rules that are easy to get wrong
//! - `=` and `!=` of different types are false and true, not undefined: `c.x != null` keeps every document whose `x` is
//!   anything else, as clients of the service rely on. `<`, `BETWEEN` and their like are undefined there.
//! - ORDER BY keeps documents without the property: undefined comes first.
//! - `NOT` binds tighter than comparisons, and `=` tighter than `&`, `^` and `|`.
//! - SUM of nothing is 0, AVG, MIN and MAX of nothing are undefined; one value of a wrong type makes SUM and AVG
//!   undefined, one array or object MIN and MAX.
//! - String positions count Unicode characters, and strings are ordered by their UTF-8 bytes.
//!
//! # Not supported
//! With an error that names the function: spatial, vector and full-text functions, `HASH`, and ORDER BY RANK. As in the
//! service, sub-queries have no TOP, ORDER BY and OFFSET LIMIT. Regular expressions have no look-around and no
//! back-references.

mod error;
mod execution;
mod functions;
mod limits;
mod plan;
mod pushdown;
mod query;
mod run;
mod syntax;
mod value;

pub use error::{ErrorCode, QueryError};
pub use execution::{Environment, Execution, Position, Progress, Resume, Row};
pub use limits::{
    COUNT_MAX, DEPTH_MAX, JOINS_MAX, JSON_DEPTH_MAX, LIST_ITEMS_MAX, Limits, REGEX_BYTES_MAX,
    REPLICATE_CHARACTERS_MAX, STATE_BYTES_MAX, STEPS_PER_DOCUMENT_MAX, TEXT_BYTES_MAX, VALUE_BYTES_MAX,
    VALUE_DEPTH_MAX,
};
pub use plan::PathStep;
pub use pushdown::{Condition, Test};
pub use query::{BoundQuery, OrderKey, Parameters, Query, Shape};
pub use run::UserFunctions;
pub use value::{JsonError, Object, Value, format_number};
