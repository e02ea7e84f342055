//! Conversions between strings and other values.

use super::{Function, plain};
use crate::value::{Value, format_number};

pub(super) const FUNCTIONS: &[Function] = &[
    plain("StringToArray", 1, 1, |a| parsed(&a[0], |value| matches!(value, Value::Array(_)))),
    plain("StringToBoolean", 1, 1, |a| parsed(&a[0], |value| matches!(value, Value::Bool(_)))),
    plain("StringToNull", 1, 1, |a| parsed(&a[0], |value| matches!(value, Value::Null))),
    plain("StringToNumber", 1, 1, |a| parsed(&a[0], |value| matches!(value, Value::Number(_)))),
    plain("StringToObject", 1, 1, |a| parsed(&a[0], |value| matches!(value, Value::Object(_)))),
    plain("ToString", 1, 1, to_string),
];

fn parsed(text: &Value, wanted: fn(&Value) -> bool) -> Value {
    let value = text.as_str().and_then(|text| Value::from_json(text.as_bytes()).ok());
    value.filter(wanted).unwrap_or_default()
}

fn to_string(arguments: &[Value]) -> Value {
    match &arguments[0] {
        Value::Undefined => Value::Undefined,
        Value::String(text) => Value::String(text.clone()),
        Value::Number(number) => Value::from(format_number(*number)),
        value => Value::from(value.to_json()),
    }
}
