//! Where a row stands in the whole result, for continuation tokens.

use std::cmp::Ordering;

use crate::value::{Object, Value, format_number};

/// One row of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The row.
    pub value: Value,
    /// Where it stands.
    pub position: Position,
    /// How far the result has come with this row.
    pub progress: Progress,
}

/// The place of a row. With ORDER BY rows go by their keys, then by tie-breaker, then by number within the document.
/// Rows of DISTINCT have themselves as the last key and no tie-breaker; groups have their keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Position {
    /// The values of ORDER BY, DISTINCT or GROUP BY; empty for streaming queries.
    pub sort_keys: Vec<Value>,
    /// The tie-breaker of the document.
    pub tie_breaker: Vec<u8>,
    /// The row among those of its document, from 0.
    pub row_in_document: u32,
}

/// How much of the result has been given, over all pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows that OFFSET skipped.
    pub rows_skipped: u64,
    /// Rows that were given.
    pub rows_returned: u64,
}

/// Where an earlier request ended.
///
/// Streaming queries: push again from the document that has the tie-breaker of `after`, or from the next one; rows of
/// that document which the client has are not repeated. Others: push all documents, or those that may stand behind
/// `after`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resume {
    /// The last row that the client has.
    pub after: Option<Position>,
    /// Its progress, or [`Execution::progress`](crate::Execution::progress) of a page without rows.
    pub progress: Progress,
}

impl Position {
    /// Compares positions; `descending` has one flag for each item of ORDER BY.
    pub(super) fn order(&self, other: &Position, descending: &[bool]) -> Ordering {
        let directions = descending.iter().copied().chain(std::iter::repeat(false));
        let keys = self.sort_keys.iter().zip(&other.sort_keys).zip(directions);
        let differences = keys.map(|((left, right), descends)| {
            let order = left.total_order(right);
            if descends { order.reverse() } else { order }
        });
        let first = differences.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
        first
            .then_with(|| self.tie_breaker.cmp(&other.tie_breaker))
            .then(self.row_in_document.cmp(&other.row_in_document))
    }

    /// The position as a value to write into a token. Undefined keys are kept.
    pub fn to_value(&self) -> Value {
        let keys = self.sort_keys.iter().map(key_to_value).collect();
        let tie_breaker: String = self.tie_breaker.iter().map(|byte| format!("{byte:02x}")).collect();
        let properties = [
            ("keys", Value::array(keys)),
            ("tie", Value::from(tie_breaker)),
            ("row", Value::Number(f64::from(self.row_in_document))),
        ];
        Value::object(properties.into_iter().collect::<Object>())
    }

    /// Reads what [`Position::to_value`] gave; none for anything else.
    pub fn from_value(value: &Value) -> Option<Position> {
        let keys = value.get("keys");
        let keys = keys.as_array()?.iter().map(key_from_value);
        let tie = value.get("tie");
        let tie =
            tie.as_str().filter(|tie| tie.len() % 2 == 0 && tie.bytes().all(|b| b.is_ascii_hexdigit()))?;
        let bytes = (0..tie.len()).step_by(2).map(|at| u8::from_str_radix(&tie[at..at + 2], 16).ok());
        let row = value
            .get("row")
            .as_number()
            .filter(|row| row.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(row))?;
        Some(Position {
            sort_keys: keys.collect::<Option<_>>()?,
            tie_breaker: bytes.collect::<Option<_>>()?,
            row_in_document: row as u32,
        })
    }
}

/// `[]` for undefined, `[key]`, or `[marked key, true]` for a key with numbers that JSON has no form for.
fn key_to_value(key: &Value) -> Value {
    if has_other_number(key) {
        return Value::array(vec![map_leaves(key, &mark), Value::Bool(true)]);
    }
    Value::array(vec![key.clone()])
}

fn key_from_value(value: &Value) -> Option<Value> {
    match value.as_array()? {
        [] => Some(Value::Undefined),
        [key] => Some(key.clone()),
        [key, Value::Bool(true)] => Some(map_leaves(key, &unmark)),
        _ => None,
    }
}

fn has_other_number(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_finite(),
        Value::Array(items) => items.iter().any(has_other_number),
        Value::Object(object) => object.iter().any(|(_, value)| has_other_number(value)),
        _ => false,
    }
}

fn map_leaves(value: &Value, map: &dyn Fn(&Value) -> Value) -> Value {
    match value {
        Value::Array(items) => Value::array(items.iter().map(|item| map_leaves(item, map)).collect()),
        Value::Object(object) => {
            Value::object(object.iter().map(|(key, value)| (key.clone(), map_leaves(value, map))).collect())
        }
        leaf => map(leaf),
    }
}

/// Strings get an `s` before them, other numbers become strings with an `n`.
fn mark(leaf: &Value) -> Value {
    match leaf {
        Value::String(text) => Value::from(format!("s{text}")),
        Value::Number(number) if !number.is_finite() => Value::from(format!("n{}", format_number(*number))),
        leaf => leaf.clone(),
    }
}

fn unmark(leaf: &Value) -> Value {
    match leaf.as_str().map(|text| text.strip_prefix('n').ok_or(text.strip_prefix('s').unwrap_or(text))) {
        Some(Ok(number)) => Value::Number(number.parse().unwrap_or(f64::NAN)),
        Some(Err(text)) => Value::from(text),
        None => leaf.clone(),
    }
}
