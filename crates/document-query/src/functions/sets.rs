//! Functions of arrays as sets. Results have no duplicates.

use std::collections::BTreeSet;

use super::{Function, plain};
use crate::value::{Ordered, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    plain("SetDifference", 2, 2, |a| {
        pair(a, |left, right| Value::array(kept(left, |item| !right.contains(item))))
    }),
    plain("SetEqual", 2, 2, |a| pair(a, |left, right| Value::Bool(set(left) == *right))),
    plain("SetIntersect", 2, 2, intersect),
    plain("SetUnion", 2, 2, |a| match (a[0].as_array(), a[1].as_array()) {
        (Some(left), Some(right)) => Value::array(kept(&[left, right].concat(), |_| true)),
        _ => Value::Undefined,
    }),
];

fn set(items: &[Value]) -> BTreeSet<Ordered> {
    items.iter().cloned().map(Ordered).collect()
}

fn pair(arguments: &[Value], result: fn(&[Value], &BTreeSet<Ordered>) -> Value) -> Value {
    match (arguments[0].as_array(), arguments[1].as_array()) {
        (Some(left), Some(right)) => result(left, &set(right)),
        _ => Value::Undefined,
    }
}

/// The result has the order of the second array, as the service's has.
fn intersect(arguments: &[Value]) -> Value {
    let swapped = [arguments[1].clone(), arguments[0].clone()];
    pair(&swapped, |left, right| Value::array(kept(left, |item| right.contains(item))))
}

/// The first occurrences of the items that pass.
fn kept(items: &[Value], passes: impl Fn(&Ordered) -> bool) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let items = items.iter().cloned().map(Ordered);
    items.filter(|item| passes(item) && seen.insert(item.clone())).map(|item| item.0).collect()
}
