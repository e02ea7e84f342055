//! Functions of doubles. Results that are no number are NaN or infinite, as in JavaScript.

use super::{Function, checked, integer, or_undefined, plain};
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    plain("ABS", 1, 1, |a| one(a, f64::abs)),
    plain("ACOS", 1, 1, |a| one(a, f64::acos)),
    plain("ASIN", 1, 1, |a| one(a, f64::asin)),
    plain("ATAN", 1, 1, |a| one(a, f64::atan)),
    plain("ATN2", 2, 2, |a| two(a, f64::atan2)),
    plain("CEILING", 1, 1, |a| one(a, f64::ceil)),
    plain("COS", 1, 1, |a| one(a, f64::cos)),
    plain("COT", 1, 1, |a| one(a, |x| 1.0 / x.tan())),
    plain("DEGREES", 1, 1, |a| one(a, f64::to_degrees)),
    plain("EXP", 1, 1, |a| one(a, f64::exp)),
    plain("FLOOR", 1, 1, |a| one(a, f64::floor)),
    plain("LOG", 1, 2, log),
    plain("LOG10", 1, 1, |a| one(a, f64::log10)),
    plain("NumberBin", 1, 2, number_bin),
    plain("PI", 0, 0, |_| Value::Number(std::f64::consts::PI)),
    plain("POWER", 2, 2, |a| two(a, f64::powf)),
    plain("RADIANS", 1, 1, |a| one(a, f64::to_radians)),
    checked("RAND", 0, Some(0), |context, _| Ok(Value::Number(context.random()))),
    plain("ROUND", 1, 2, round),
    plain("SIGN", 1, 1, |a| one(a, sign)),
    plain("SIN", 1, 1, |a| one(a, f64::sin)),
    plain("SQRT", 1, 1, |a| one(a, f64::sqrt)),
    plain("SQUARE", 1, 1, |a| one(a, |x| x * x)),
    plain("TAN", 1, 1, |a| one(a, f64::tan)),
    plain("TRUNC", 1, 1, |a| one(a, f64::trunc)),
];

fn one(arguments: &[Value], operation: fn(f64) -> f64) -> Value {
    or_undefined(arguments[0].as_number().map(|x| Value::Number(operation(x))))
}

fn two(arguments: &[Value], operation: fn(f64, f64) -> f64) -> Value {
    match (arguments[0].as_number(), arguments[1].as_number()) {
        (Some(x), Some(y)) => Value::Number(operation(x, y)),
        _ => Value::Undefined,
    }
}

fn sign(number: f64) -> f64 {
    if number == 0.0 || number.is_nan() { number } else { number.signum() }
}

/// The natural logarithm, or the one to the base of the second argument.
fn log(arguments: &[Value]) -> Value {
    match arguments.len() {
        1 => one(arguments, f64::ln),
        _ => two(arguments, |x, base| x.ln() / base.ln()),
    }
}

fn number_bin(arguments: &[Value]) -> Value {
    let size = arguments.get(1).map_or(Some(1.0), Value::as_number);
    match (arguments[0].as_number(), size) {
        (Some(number), Some(size)) if size != 0.0 => Value::Number((number / size).floor() * size),
        _ => Value::Undefined,
    }
}

/// Halves are rounded away from zero; the second argument is the number of digits behind the point.
fn round(arguments: &[Value]) -> Value {
    let digits = arguments.get(1).map_or(Some(0), integer);
    let (Some(number), Some(digits)) = (arguments[0].as_number(), digits) else { return Value::Undefined };
    if digits == 0 {
        return Value::Number(number.round());
    }
    const DIGITS_MAX: i64 = 308;
    let factor = 10f64.powi(digits.clamp(-DIGITS_MAX, DIGITS_MAX) as i32);
    let rounded = (number * factor).round() / factor;
    Value::Number(if rounded.is_finite() { rounded } else { number })
}
