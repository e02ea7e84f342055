//! Operators on values. Operands of the wrong type give undefined.

use std::cmp::Ordering;

use crate::syntax::tree::{Binary, Unary};
use crate::value::Value;

/// `left = right`: undefined if either is, false for different types, deep for arrays and objects.
pub(crate) fn equal(left: &Value, right: &Value) -> Option<bool> {
    match (left, right) {
        (Value::Undefined, _) | (_, Value::Undefined) => None,
        (Value::Number(left), Value::Number(right)) => Some(left == right),
        _ => Some(left == right),
    }
}

/// The order of two values of one primitive type.
pub(super) fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.partial_cmp(right),
        _ if left.is_primitive() && left.type_rank() == right.type_rank() => Some(left.total_order(right)),
        _ => None,
    }
}

pub(super) fn unary(operator: Unary, operand: &Value) -> Value {
    match (operator, operand) {
        (Unary::Not, Value::Bool(truth)) => Value::Bool(!truth),
        (Unary::Minus, Value::Number(number)) => Value::Number(-number),
        (Unary::Plus, Value::Number(number)) => Value::Number(*number),
        (Unary::BitNot, Value::Number(number)) => Value::Number(f64::from(!to_int32(*number))),
        _ => Value::Undefined,
    }
}

/// All binary operators but `||`, whose result may grow.
pub(super) fn binary(operator: Binary, left: &Value, right: &Value) -> Value {
    match operator {
        Binary::Equal => truth(equal(left, right)),
        Binary::NotEqual => truth(equal(left, right).map(|equal| !equal)),
        Binary::Less => truth(compare(left, right).map(Ordering::is_lt)),
        Binary::LessOrEqual => truth(compare(left, right).map(Ordering::is_le)),
        Binary::Greater => truth(compare(left, right).map(Ordering::is_gt)),
        Binary::GreaterOrEqual => truth(compare(left, right).map(Ordering::is_ge)),
        _ => match (left, right) {
            (Value::Number(left), Value::Number(right)) => Value::Number(arithmetic(operator, *left, *right)),
            _ => Value::Undefined,
        },
    }
}

fn arithmetic(operator: Binary, left: f64, right: f64) -> f64 {
    let bits = |operation: fn(i32, i32) -> i32| f64::from(operation(to_int32(left), to_int32(right)));
    match operator {
        Binary::Add => left + right,
        Binary::Subtract => left - right,
        Binary::Multiply => left * right,
        Binary::Divide => left / right,
        Binary::Modulo => left % right,
        Binary::BitAnd => bits(|left, right| left & right),
        Binary::BitOr => bits(|left, right| left | right),
        Binary::BitXor => bits(|left, right| left ^ right),
        Binary::ShiftLeft => bits(|left, right| left.wrapping_shl(right as u32)),
        Binary::ShiftRight => bits(|left, right| left.wrapping_shr(right as u32)),
        Binary::ShiftRightZero => f64::from((to_int32(left) as u32).wrapping_shr(to_int32(right) as u32)),
        _ => f64::NAN,
    }
}

/// JavaScript's ToInt32 (ECMA-262, 7.1.6): the low 32 bits of the whole part.
fn to_int32(number: f64) -> i32 {
    if !number.is_finite() {
        return 0;
    }
    const MODULUS: f64 = 4_294_967_296.0;
    number.trunc().rem_euclid(MODULUS) as u32 as i32
}

/// A boolean, or undefined.
pub(super) fn truth(truth: Option<bool>) -> Value {
    truth.map_or(Value::Undefined, Value::Bool)
}
