//! Functions of 64-bit integers. Arguments that are no integers give undefined; results wrap around.

use super::{Function, integer, or_undefined, plain};
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    plain("IntAdd", 2, 2, |a| two(a, |x, y| Some(x.wrapping_add(y)))),
    plain("IntBitAnd", 2, 2, |a| two(a, |x, y| Some(x & y))),
    plain("IntBitLeftShift", 2, 2, |a| two(a, |x, y| Some(x.wrapping_shl(y as u32)))),
    plain("IntBitNot", 1, 1, |a| or_undefined(integer(&a[0]).map(|x| Value::Number(!x as f64)))),
    plain("IntBitOr", 2, 2, |a| two(a, |x, y| Some(x | y))),
    plain("IntBitRightShift", 2, 2, |a| two(a, |x, y| Some(x.wrapping_shr(y as u32)))),
    plain("IntBitXor", 2, 2, |a| two(a, |x, y| Some(x ^ y))),
    plain("IntDiv", 2, 2, |a| two(a, |x, y| (y != 0).then(|| x.wrapping_div(y)))),
    plain("IntMod", 2, 2, |a| two(a, |x, y| (y != 0).then(|| x.wrapping_rem(y)))),
    plain("IntMul", 2, 2, |a| two(a, |x, y| Some(x.wrapping_mul(y)))),
    plain("IntSub", 2, 2, |a| two(a, |x, y| Some(x.wrapping_sub(y)))),
];

fn two(arguments: &[Value], operation: fn(i64, i64) -> Option<i64>) -> Value {
    match (integer(&arguments[0]), integer(&arguments[1])) {
        (Some(x), Some(y)) => or_undefined(operation(x, y).map(|result| Value::Number(result as f64))),
        _ => Value::Undefined,
    }
}
