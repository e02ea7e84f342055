//! The functions that SQLite gets from us: what it has not, or does otherwise than PostgreSQL.

mod across;
mod aggregates;
mod arithmetic;
mod arrays;
mod casts;
mod dates;
mod jsonb;
mod patterns;
mod series;
mod strings;
mod table_text;
mod to_char;

pub(crate) use across::UNMOVED;
pub(crate) use strings::quote_ident;
pub(crate) use table_text::index_parts;

use polyshard_engine::{Aggregate, Collation, ScalarFunction, Value};
use polyshard_sql::SqlError;

use crate::fail::{fail, pack};
use crate::settings::Zone;
use crate::value::numeric::Numeric;

/// The order of numerics, which are kept as text.
pub(crate) const NUMERIC_COLLATION: &str = "pg_numeric";

/// What every connection to an SQLite shard needs, for [`polyshard_engine::Options::functions`].
pub fn functions() -> Vec<ScalarFunction> {
    let mut all = Vec::new();
    arithmetic::register(&mut all);
    arrays::register(&mut all);
    casts::register(&mut all);
    dates::register(&mut all);
    jsonb::register(&mut all);
    patterns::register(&mut all);
    series::register(&mut all);
    strings::register(&mut all);
    across::register(&mut all);
    all
}

/// For [`polyshard_engine::Options::aggregates`].
pub fn aggregates() -> Vec<Aggregate> {
    aggregates::all()
}

/// For [`polyshard_engine::Options::collations`].
pub fn collations() -> Vec<Collation> {
    vec![Collation::new(NUMERIC_COLLATION, |a, b| match (Numeric::parse(a), Numeric::parse(b)) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        // Only a file changed by other hands has such a text; some total order must be there.
        (Err(_), Err(_)) => a.cmp(b),
        (a, b) => a.is_ok().cmp(&b.is_ok()),
    })]
}

type Answer = Result<Value, SqlError>;
type Body = fn(&[Value]) -> Answer;

/// A function that is NULL if any argument is.
fn strict(name: &str, arity: u8, body: Body) -> ScalarFunction {
    ScalarFunction::new(name, arity, move |arguments| {
        if arguments.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        body(arguments).map_err(|error| pack(&error))
    })
}

/// A function that sees its NULLs.
fn plain(name: &str, arity: u8, body: Body) -> ScalarFunction {
    ScalarFunction::new(name, arity, move |arguments| body(arguments).map_err(|error| pack(&error)))
}

/// A function of any number of arguments that sees its NULLs.
fn variadic(name: &str, body: Body) -> ScalarFunction {
    ScalarFunction::variadic(name, move |arguments| body(arguments).map_err(|error| pack(&error)))
}

fn odd(value: &Value) -> SqlError {
    fail("XX000", format!("a function got {} where another type was due", value.type_name()))
}

fn int(value: &Value) -> Result<i64, SqlError> {
    match value {
        Value::Int(value) => Ok(*value),
        Value::Bool(value) => Ok((*value).into()),
        other => Err(odd(other)),
    }
}

fn real(value: &Value) -> Result<f64, SqlError> {
    match value {
        Value::Real(value) => Ok(*value),
        Value::Int(value) => Ok(*value as f64),
        other => Err(odd(other)),
    }
}

fn text(value: &Value) -> Result<&str, SqlError> {
    match value {
        Value::Text(value) => Ok(value),
        other => Err(odd(other)),
    }
}

fn blob(value: &Value) -> Result<&[u8], SqlError> {
    match value {
        Value::Blob(value) => Ok(value),
        other => Err(odd(other)),
    }
}

fn numeric(value: &Value) -> Result<Numeric, SqlError> {
    Numeric::parse(text(value)?)
}

fn zone(value: &Value) -> Result<Zone, SqlError> {
    Zone::parse(text(value)?)
}

fn shown(number: &Numeric) -> Value {
    Value::Text(number.to_string())
}
