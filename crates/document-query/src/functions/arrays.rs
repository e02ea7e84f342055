//! Functions of arrays, and of objects as arrays.

use std::cmp::Ordering;

use super::{Function, checked, flag, integer, many, or_undefined, plain};
use crate::error::{ErrorCode, QueryError};
use crate::limits::VALUE_BYTES_MAX;
use crate::run::{Context, equal};
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    plain("ARRAY_AVG", 1, 1, |a| {
        numbers(&a[0], |n| (!n.is_empty()).then(|| n.iter().sum::<f64>() / n.len() as f64))
    }),
    checked("ARRAY_CONCAT", 2, None, concat),
    plain("ARRAY_CONTAINS", 2, 3, contains),
    many("ARRAY_CONTAINS_ALL", 2, contains_all),
    many("ARRAY_CONTAINS_ANY", 2, contains_any),
    plain("ARRAY_LENGTH", 1, 1, |a| {
        or_undefined(a[0].as_array().map(|items| Value::Number(items.len() as f64)))
    }),
    plain("ARRAY_MAX", 1, 1, |a| extreme(&a[0], Ordering::Greater)),
    plain("ARRAY_MEDIAN", 1, 1, |a| numbers(&a[0], median)),
    plain("ARRAY_MIN", 1, 1, |a| extreme(&a[0], Ordering::Less)),
    plain("ARRAY_SLICE", 2, 3, slice),
    plain("ARRAY_SUM", 1, 1, |a| numbers(&a[0], |numbers| Some(numbers.iter().sum()))),
    plain("ObjectToArray", 1, 3, object_to_array),
];

/// A result from an array that holds numbers only.
fn numbers(array: &Value, result: fn(Vec<f64>) -> Option<f64>) -> Value {
    let numbers = array.as_array().and_then(|items| items.iter().map(Value::as_number).collect());
    or_undefined(numbers.and_then(result).map(Value::Number))
}

fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() {
        0 => None,
        count if count % 2 == 1 => Some(numbers[middle]),
        _ => Some((numbers[middle - 1] + numbers[middle]) / 2.0),
    }
}

fn extreme(array: &Value, wanted: Ordering) -> Value {
    let Some(items) = array.as_array() else { return Value::Undefined };
    if !items.iter().all(Value::is_primitive) {
        return Value::Undefined;
    }
    let better =
        |best: Value, item: &Value| if item.total_order(&best) == wanted { item.clone() } else { best };
    match items.split_first() {
        Some((first, rest)) => rest.iter().fold(first.clone(), better),
        None => Value::Undefined,
    }
}

fn concat(_: &mut Context, arguments: &[Value]) -> Result<Value, QueryError> {
    let Some(arrays) = arguments.iter().map(Value::as_array).collect::<Option<Vec<_>>>() else {
        return Ok(Value::Undefined);
    };
    let count: usize = arrays.iter().map(|items| items.len()).sum();
    if count > VALUE_BYTES_MAX / size_of::<Value>() {
        return Err(QueryError::new(ErrorCode::ValueTooLarge, "The result of ARRAY_CONCAT is too large."));
    }
    Ok(Value::array(arrays.concat()))
}

fn contains(arguments: &[Value]) -> Value {
    let (Some(items), Some(partial)) = (arguments[0].as_array(), flag(arguments, 2)) else {
        return Value::Undefined;
    };
    match &arguments[1] {
        Value::Undefined => Value::Undefined,
        wanted if partial => Value::Bool(items.iter().any(|item| covers(item, wanted))),
        wanted => Value::Bool(items.iter().any(|item| equal(item, wanted) == Some(true))),
    }
}

/// True when objects have all the wanted properties, perhaps among others, and everything else is equal. The same goes
/// for objects inside of objects and arrays.
fn covers(item: &Value, wanted: &Value) -> bool {
    match (item, wanted) {
        (Value::Object(object), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| object.get(key).is_some_and(|found| covers(found, value)))
        }
        (Value::Array(items), Value::Array(wanted)) => {
            items.len() == wanted.len()
                && items.iter().zip(wanted.iter()).all(|(item, wanted)| covers(item, wanted))
        }
        _ => equal(item, wanted) == Some(true),
    }
}

fn contains_all(arguments: &[Value]) -> Value {
    let results: Vec<Option<bool>> = contained(arguments);
    if results.contains(&Some(false)) {
        return Value::Bool(false);
    }
    if results.contains(&None) { Value::Undefined } else { Value::Bool(true) }
}

fn contains_any(arguments: &[Value]) -> Value {
    let results = contained(arguments);
    if results.contains(&Some(true)) {
        return Value::Bool(true);
    }
    if results.contains(&None) { Value::Undefined } else { Value::Bool(false) }
}

/// For each wanted value whether the array has it; none where either is undefined.
fn contained(arguments: &[Value]) -> Vec<Option<bool>> {
    let array = &arguments[0];
    arguments[1..].iter().map(|wanted| contains(&[array.clone(), wanted.clone()]).as_bool()).collect()
}

/// A negative start counts from the end.
fn slice(arguments: &[Value]) -> Value {
    let Some(items) = arguments[0].as_array() else { return Value::Undefined };
    let length = arguments.get(2).map_or(Some(i64::MAX), integer);
    let (Some(start), Some(length)) = (integer(&arguments[1]), length) else { return Value::Undefined };
    let count = items.len() as i64;
    let start = if start < 0 { (count.saturating_add(start)).max(0) } else { start.min(count) };
    let end = start.saturating_add(length.max(0)).min(count);
    Value::array(items[start as usize..end as usize].to_vec())
}

fn object_to_array(arguments: &[Value]) -> Value {
    let name = |index: usize, default: &'static str| match arguments.get(index) {
        None => Some(default),
        Some(value) => value.as_str(),
    };
    let (Some(object), Some(key_name), Some(value_name)) =
        (arguments[0].as_object(), name(1, "k"), name(2, "v"))
    else {
        return Value::Undefined;
    };
    let pair = |key: &str, value: &Value| {
        let properties = [(key_name, Value::from(key)), (value_name, value.clone())];
        Value::object(properties.into_iter().collect())
    };
    Value::array(object.iter().map(|(key, value)| pair(key, value)).collect())
}
