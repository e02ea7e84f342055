//! The order of values over all types, and deep equality that agrees with it.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Object, Value};

impl Value {
    /// The service's order: undefined < null < booleans < numbers < strings < arrays < objects. Strings go by their
    /// UTF-8 bytes, NaN before all numbers, arrays by their first difference, objects by their sorted properties.
    pub fn total_order(&self, other: &Value) -> Ordering {
        match (self, other) {
            (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
            (Value::Number(left), Value::Number(right)) => number_order(*left, *right),
            (Value::String(left), Value::String(right)) => left.as_bytes().cmp(right.as_bytes()),
            (Value::Array(left), Value::Array(right)) => array_order(left, right),
            (Value::Object(left), Value::Object(right)) => object_order(left, right),
            _ => self.type_rank().cmp(&other.type_rank()),
        }
    }

    /// The place of the value's type in the order of types.
    pub(crate) fn type_rank(&self) -> u8 {
        match self {
            Value::Undefined => 0,
            Value::Null => 1,
            Value::Bool(_) => 2,
            Value::Number(_) => 3,
            Value::String(_) => 4,
            Value::Array(_) => 5,
            Value::Object(_) => 6,
        }
    }
}

fn number_order(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or_else(|| right.is_nan().cmp(&left.is_nan()))
}

fn array_order(left: &Arc<Vec<Value>>, right: &Arc<Vec<Value>>) -> Ordering {
    if Arc::ptr_eq(left, right) {
        return Ordering::Equal;
    }
    let differences = left.iter().zip(right.iter()).map(|(left, right)| left.total_order(right));
    differences.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
}

fn object_order(left: &Arc<Object>, right: &Arc<Object>) -> Ordering {
    if Arc::ptr_eq(left, right) {
        return Ordering::Equal;
    }
    let (left, right) = (sorted(left), sorted(right));
    for ((left_key, left_value), (right_key, right_value)) in left.iter().zip(&right) {
        let order = left_key.cmp(right_key).then_with(|| left_value.total_order(right_value));
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len())
}

fn sorted(object: &Object) -> Vec<(&Arc<str>, &Value)> {
    let mut entries: Vec<_> = object.iter().collect();
    entries.sort_by(|left, right| left.0.cmp(right.0));
    entries
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Array(left), Value::Array(right)) => Arc::ptr_eq(left, right) || left == right,
            (Value::Object(left), Value::Object(right)) => Arc::ptr_eq(left, right) || left == right,
            _ => self.total_order(other).is_eq(),
        }
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        self.len() == other.len() && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

/// A value as the key of a sorted map.
#[derive(Clone, Debug)]
pub(crate) struct Ordered(pub Value);

impl PartialEq for Ordered {
    fn eq(&self, other: &Ordered) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> Ordering {
        self.0.total_order(&other.0)
    }
}
