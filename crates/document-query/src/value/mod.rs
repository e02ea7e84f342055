//! The values of the language: JSON, with undefined kept apart from null. Cheap to clone.

mod json_in;
mod json_out;
mod number;
mod object;
mod order;

use std::sync::Arc;

pub use json_in::JsonError;
pub(crate) use json_out::write_json_string;
pub use number::format_number;
pub use object::Object;
pub(crate) use order::Ordered;

use crate::limits::VALUE_DEPTH_MAX;

/// One value. Arrays and objects never hold [`Value::Undefined`].
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// A property that is not there, or an operation without a result.
    #[default]
    Undefined,
    /// JSON null.
    Null,
    /// A boolean.
    Bool(bool),
    /// Every number is a double, as in the service.
    Number(f64),
    /// A string.
    String(Arc<str>),
    /// An array.
    Array(Arc<Vec<Value>>),
    /// An object.
    Object(Arc<Object>),
}

/// What a string of a given length, an array or an object costs beside its contents, in bytes.
const NODE_BYTES: usize = 32;

impl Value {
    /// A string.
    pub fn string(text: impl Into<Arc<str>>) -> Value {
        Value::String(text.into())
    }

    /// An array; undefined items are left out.
    pub fn array(mut items: Vec<Value>) -> Value {
        items.retain(|item| !item.is_undefined());
        Value::Array(Arc::new(items))
    }

    /// An object.
    pub fn object(object: Object) -> Value {
        Value::Object(Arc::new(object))
    }

    /// True for [`Value::Undefined`].
    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The number of a number.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The truth of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The items of an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The object of an object.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The property `key` of an object; undefined when there is none.
    pub fn get(&self, key: &str) -> Value {
        self.property(key).cloned().unwrap_or_default()
    }

    /// The item `index` of an array; undefined when there is none.
    pub fn at(&self, index: usize) -> Value {
        self.as_array().and_then(|items| items.get(index)).cloned().unwrap_or_default()
    }

    pub(crate) fn property(&self, key: &str) -> Option<&Value> {
        self.as_object().and_then(|object| object.get(key))
    }

    /// True for null, booleans, numbers and strings.
    pub(crate) fn is_primitive(&self) -> bool {
        matches!(self, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_))
    }

    /// An estimate of the memory that the value takes when it shares nothing, for budgets.
    pub fn state_bytes(&self) -> usize {
        let mut left = usize::MAX;
        self.measure(&mut left, 0, Shared::Counts);
        usize::MAX - left
    }

    /// The same without the parts that other values hold, too, such as the document that the value is taken from.
    pub(crate) fn own_bytes(&self) -> usize {
        let mut left = usize::MAX;
        self.measure(&mut left, 0, Shared::Free);
        usize::MAX - left
    }

    /// True when the value, written out, is within `bytes` and [`VALUE_DEPTH_MAX`]. Stops at the first excess, so a
    /// small value that shares parts a million times costs no more than the limit.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        let mut left = bytes;
        self.measure(&mut left, 0, Shared::Counts)
    }

    fn is_shared(&self) -> bool {
        match self {
            Value::String(text) => Arc::strong_count(text) > 1,
            Value::Array(items) => Arc::strong_count(items) > 1,
            Value::Object(object) => Arc::strong_count(object) > 1,
            _ => false,
        }
    }

    fn measure(&self, left: &mut usize, depth: usize, shared: Shared) -> bool {
        if depth > VALUE_DEPTH_MAX || !take(left, NODE_BYTES) {
            return false;
        }
        if shared == Shared::Free && self.is_shared() {
            return true;
        }
        let inner = depth + 1;
        match self {
            Value::String(text) => take(left, text.len()),
            Value::Array(items) => items.iter().all(|item| item.measure(left, inner, shared)),
            Value::Object(object) => object
                .iter()
                .all(|(key, value)| take(left, key.len() + NODE_BYTES) && value.measure(left, inner, shared)),
            _ => true,
        }
    }
}

/// What parts cost that other values hold, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shared {
    Counts,
    Free,
}

fn take(left: &mut usize, bytes: usize) -> bool {
    match left.checked_sub(bytes) {
        Some(rest) => {
            *left = rest;
            true
        }
        None => false,
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Value {
        Value::Bool(truth)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Value {
        Value::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::String(text.into())
    }
}
