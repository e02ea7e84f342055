//! The built-in functions, found by name without regard to case.

mod arrays;
mod calendar;
mod conversions;
mod date_format;
mod dates;
mod integers;
mod mathematics;
mod patterns;
mod sets;
mod strings;
mod system;
mod types;

use crate::error::QueryError;
use crate::run::Context;
use crate::value::Value;

/// One function. Arguments may be undefined; most functions then return undefined.
#[derive(Debug)]
pub(crate) struct Function {
    pub name: &'static str,
    pub arguments_min: usize,
    /// None: any number.
    pub arguments_max: Option<usize>,
    pub body: Body,
}

/// The code of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// Depends on the arguments only, and returns about as much as it gets.
    Plain(fn(&[Value]) -> Value),
    /// Reads the context, or may return too much.
    Checked(fn(&mut Context, &[Value]) -> Result<Value, QueryError>),
}

const TABLES: [&[Function]; 10] = [
    arrays::FUNCTIONS,
    conversions::FUNCTIONS,
    dates::FUNCTIONS,
    integers::FUNCTIONS,
    mathematics::FUNCTIONS,
    patterns::FUNCTIONS,
    sets::FUNCTIONS,
    strings::FUNCTIONS,
    system::FUNCTIONS,
    types::FUNCTIONS,
];

/// Functions of the service that this crate does not have.
const UNSUPPORTED: [&str; 13] = [
    "ST_AREA",
    "ST_DISTANCE",
    "ST_INTERSECTS",
    "ST_ISVALID",
    "ST_ISVALIDDETAILED",
    "ST_WITHIN",
    "VECTORDISTANCE",
    "FULLTEXTCONTAINS",
    "FULLTEXTCONTAINSALL",
    "FULLTEXTCONTAINSANY",
    "FULLTEXTSCORE",
    "RRF",
    "HASH",
];

/// The function of a name.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    TABLES.iter().flat_map(|table| table.iter()).find(|function| name.eq_ignore_ascii_case(function.name))
}

/// True for functions of the service that are not supported here.
pub(crate) fn is_known_unsupported(name: &str) -> bool {
    UNSUPPORTED.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// A function with a fixed number of arguments, or with some that may be left out.
const fn plain(name: &'static str, min: usize, max: usize, body: fn(&[Value]) -> Value) -> Function {
    Function { name, arguments_min: min, arguments_max: Some(max), body: Body::Plain(body) }
}

/// A function with any number of arguments from `min` on.
const fn many(name: &'static str, min: usize, body: fn(&[Value]) -> Value) -> Function {
    Function { name, arguments_min: min, arguments_max: None, body: Body::Plain(body) }
}

const fn checked(
    name: &'static str,
    min: usize,
    max: Option<usize>,
    body: fn(&mut Context, &[Value]) -> Result<Value, QueryError>,
) -> Function {
    Function { name, arguments_min: min, arguments_max: max, body: Body::Checked(body) }
}

/// The number of an argument that is a whole number a double holds exactly enough for an `i64`.
fn integer(value: &Value) -> Option<i64> {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    let number = value.as_number()?;
    (number.fract() == 0.0 && (-TWO_TO_63..=TWO_TO_63).contains(&number)).then_some(number as i64)
}

/// An argument that may be left out or undefined: the default then; none when it has another type.
fn flag(arguments: &[Value], index: usize) -> Option<bool> {
    match arguments.get(index) {
        None | Some(Value::Undefined) => Some(false),
        Some(value) => value.as_bool(),
    }
}

/// Undefined where there is no result.
fn or_undefined(value: Option<Value>) -> Value {
    value.unwrap_or_default()
}
