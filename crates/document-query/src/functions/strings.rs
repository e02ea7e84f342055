//! Functions of strings. Positions and lengths count Unicode characters.

use super::{Function, checked, flag, many, or_undefined, plain};
use crate::error::{ErrorCode, QueryError};
use crate::limits::{REPLICATE_CHARACTERS_MAX, VALUE_BYTES_MAX};
use crate::run::Context;
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    checked("CONCAT", 2, None, concat),
    plain("CONTAINS", 2, 3, |a| test(a, |text, part| text.contains(part))),
    many("ContainsAllCi", 2, |a| contains_all(a, true)),
    many("ContainsAllCs", 2, |a| contains_all(a, false)),
    many("ContainsAnyCi", 2, |a| contains_any(a, true)),
    many("ContainsAnyCs", 2, |a| contains_any(a, false)),
    many("CONTAINS_ALL_CI", 2, |a| contains_all(a, true)),
    many("CONTAINS_ALL_CS", 2, |a| contains_all(a, false)),
    many("CONTAINS_ANY_CI", 2, |a| contains_any(a, true)),
    many("CONTAINS_ANY_CS", 2, |a| contains_any(a, false)),
    plain("ENDSWITH", 2, 3, |a| test(a, |text, part| text.ends_with(part))),
    plain("INDEX_OF", 2, 3, index_of),
    plain("LastIndexOf", 2, 3, last_index_of),
    plain("LastSubstringAfter", 2, 2, |a| split_at(a, |text, part| text.rsplit_once(part), |parts| parts.1)),
    plain("LastSubstringBefore", 2, 2, |a| split_at(a, |text, part| text.rsplit_once(part), |parts| parts.0)),
    plain("LEFT", 2, 2, |a| or_undefined(cut(&a[0], 0, whole(&a[1])))),
    plain("LENGTH", 1, 1, |a| text(&a[0], |text| Value::Number(text.chars().count() as f64))),
    plain("LOWER", 1, 1, |a| text(&a[0], |text| Value::from(text.to_lowercase()))),
    plain("LTRIM", 1, 2, |a| trim(a, |text, cut| text.trim_start_matches(cut))),
    checked("REPLACE", 3, Some(3), replace),
    plain("REPLICATE", 2, 2, replicate),
    plain("REVERSE", 1, 1, |a| text(&a[0], |text| Value::from(text.chars().rev().collect::<String>()))),
    plain("RIGHT", 2, 2, right),
    plain("RTRIM", 1, 2, |a| trim(a, |text, cut| text.trim_end_matches(cut))),
    plain("STARTSWITH", 2, 3, |a| test(a, |text, part| text.starts_with(part))),
    plain("StringEquals", 2, 3, |a| test(a, |text, part| text == part)),
    checked("StringJoin", 2, Some(2), join),
    plain("StringSplit", 2, 2, split),
    plain("SUBSTRING", 2, 3, substring),
    plain("SubstringAfter", 2, 2, |a| split_at(a, |text, part| text.split_once(part), |parts| parts.1)),
    plain("SubstringBefore", 2, 2, |a| split_at(a, |text, part| text.split_once(part), |parts| parts.0)),
    plain("TRIM", 1, 2, |a| trim(a, |text, cut| text.trim_matches(cut))),
    plain("UPPER", 1, 1, |a| text(&a[0], |text| Value::from(text.to_uppercase()))),
];

fn text(value: &Value, result: fn(&str) -> Value) -> Value {
    or_undefined(value.as_str().map(result))
}

/// The whole part of a number.
fn whole(value: &Value) -> Option<i64> {
    value.as_number().filter(|number| !number.is_nan()).map(|number| number.trunc() as i64)
}

fn too_large(name: &str) -> QueryError {
    QueryError::new(
        ErrorCode::ValueTooLarge,
        format!("The result of {name} is larger than {VALUE_BYTES_MAX} bytes."),
    )
}

fn concat(_: &mut Context, arguments: &[Value]) -> Result<Value, QueryError> {
    let Some(parts) = arguments.iter().map(Value::as_str).collect::<Option<Vec<_>>>() else {
        return Ok(Value::Undefined);
    };
    if parts.iter().map(|part| part.len()).sum::<usize>() > VALUE_BYTES_MAX {
        return Err(too_large("CONCAT"));
    }
    Ok(Value::from(parts.concat()))
}

fn join(_: &mut Context, arguments: &[Value]) -> Result<Value, QueryError> {
    let (Some(items), Some(separator)) = (arguments[0].as_array(), arguments[1].as_str()) else {
        return Ok(Value::Undefined);
    };
    let Some(parts) = items.iter().map(Value::as_str).collect::<Option<Vec<_>>>() else {
        return Ok(Value::Undefined);
    };
    let separators = separator.len().saturating_mul(parts.len());
    if parts.iter().map(|part| part.len()).sum::<usize>().saturating_add(separators) > VALUE_BYTES_MAX {
        return Err(too_large("StringJoin"));
    }
    Ok(Value::from(parts.join(separator)))
}

/// A test of two strings, whose third argument says to ignore case.
fn test(arguments: &[Value], holds: fn(&str, &str) -> bool) -> Value {
    let (Some(text), Some(part)) = (arguments[0].as_str(), arguments[1].as_str()) else {
        return Value::Undefined;
    };
    match flag(arguments, 2) {
        Some(false) => Value::Bool(holds(text, part)),
        Some(true) => Value::Bool(holds(&text.to_lowercase(), &part.to_lowercase())),
        None => Value::Undefined,
    }
}

fn contained(arguments: &[Value], ignore_case: bool) -> Vec<Option<bool>> {
    let one = |part: &Value| {
        let arguments = [arguments[0].clone(), part.clone(), Value::Bool(ignore_case)];
        test(&arguments, |text, part| text.contains(part)).as_bool()
    };
    arguments[1..].iter().map(one).collect()
}

fn contains_all(arguments: &[Value], ignore_case: bool) -> Value {
    let results = contained(arguments, ignore_case);
    if results.contains(&Some(false)) {
        return Value::Bool(false);
    }
    if results.contains(&None) { Value::Undefined } else { Value::Bool(true) }
}

fn contains_any(arguments: &[Value], ignore_case: bool) -> Value {
    let results = contained(arguments, ignore_case);
    if results.contains(&Some(true)) {
        return Value::Bool(true);
    }
    if results.contains(&None) { Value::Undefined } else { Value::Bool(false) }
}

/// The byte position of a character, at most the end.
fn byte_of(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(byte, _)| byte)
}

fn characters_before(text: &str, byte: usize) -> Value {
    Value::Number(text[..byte].chars().count() as f64)
}

fn index_of(arguments: &[Value]) -> Value {
    let start = arguments.get(2).map_or(Some(0), whole);
    let (Some(text), Some(part), Some(start)) = (arguments[0].as_str(), arguments[1].as_str(), start) else {
        return Value::Undefined;
    };
    let from = byte_of(text, start.max(0) as usize);
    match text[from..].find(part) {
        Some(found) => characters_before(text, from + found),
        None => Value::Number(-1.0),
    }
}

/// Searches backwards; the third argument is the last character that a match may cover.
fn last_index_of(arguments: &[Value]) -> Value {
    let last = arguments.get(2).map_or(Some(i64::MAX - 1), whole);
    let (Some(text), Some(part), Some(last)) = (arguments[0].as_str(), arguments[1].as_str(), last) else {
        return Value::Undefined;
    };
    let end = byte_of(text, last.saturating_add(1).max(0) as usize);
    match text[..end].rfind(part) {
        Some(found) => characters_before(text, found),
        None => Value::Number(-1.0),
    }
}

/// The part of a text beside a separator; undefined when the text does not have it.
fn split_at<'a>(
    arguments: &'a [Value],
    split: fn(&'a str, &'a str) -> Option<(&'a str, &'a str)>,
    choose: fn((&'a str, &'a str)) -> &'a str,
) -> Value {
    match (arguments[0].as_str(), arguments[1].as_str()) {
        (Some(text), Some(part)) => or_undefined(split(text, part).map(|parts| Value::from(choose(parts)))),
        _ => Value::Undefined,
    }
}

fn cut(text: &Value, start: i64, length: Option<i64>) -> Option<Value> {
    let (text, length) = (text.as_str()?, length?);
    let from = byte_of(text, start.max(0) as usize);
    let rest = &text[from..];
    Some(Value::from(&rest[..byte_of(rest, length.max(0) as usize)]))
}

fn right(arguments: &[Value]) -> Value {
    let (Some(text), Some(length)) = (arguments[0].as_str(), whole(&arguments[1])) else {
        return Value::Undefined;
    };
    let skipped = (text.chars().count() as i64).saturating_sub(length.max(0)).max(0);
    Value::from(&text[byte_of(text, skipped as usize)..])
}

fn substring(arguments: &[Value]) -> Value {
    let length = arguments.get(2).map_or(Some(i64::MAX), whole);
    or_undefined(whole(&arguments[1]).and_then(|start| cut(&arguments[0], start, length)))
}

fn replace(_: &mut Context, arguments: &[Value]) -> Result<Value, QueryError> {
    let [Some(text), Some(part), Some(new)] = [0, 1, 2].map(|index| arguments[index].as_str()) else {
        return Ok(Value::Undefined);
    };
    if part.is_empty() {
        return Ok(Value::Undefined);
    }
    let grown = text.matches(part).count().saturating_mul(new.len()).saturating_add(text.len());
    if grown > 2 * VALUE_BYTES_MAX {
        return Err(too_large("REPLACE"));
    }
    Ok(Value::from(text.replace(part, new)))
}

fn replicate(arguments: &[Value]) -> Value {
    let (Some(text), Some(times)) = (arguments[0].as_str(), whole(&arguments[1])) else {
        return Value::Undefined;
    };
    let times = usize::try_from(times).ok();
    let fits = |times: &usize| text.chars().count().saturating_mul(*times) <= REPLICATE_CHARACTERS_MAX;
    match times.filter(fits) {
        Some(_) if text.is_empty() => Value::from(""),
        Some(times) => Value::from(text.repeat(times)),
        None => Value::Undefined,
    }
}

fn split(arguments: &[Value]) -> Value {
    let (Some(text), Some(separator)) = (arguments[0].as_str(), arguments[1].as_str()) else {
        return Value::Undefined;
    };
    if separator.is_empty() {
        return Value::array(vec![Value::from(text)]);
    }
    Value::array(text.split(separator).map(Value::from).collect())
}

/// Cuts off white space, or the characters of the second argument.
fn trim(arguments: &[Value], cut: for<'t> fn(&'t str, &dyn Fn(char) -> bool) -> &'t str) -> Value {
    let Some(text) = arguments[0].as_str() else { return Value::Undefined };
    match arguments.get(1) {
        None => Value::from(cut(text, &char::is_whitespace)),
        Some(Value::String(characters)) => {
            Value::from(cut(text, &|character| characters.contains(character)))
        }
        Some(_) => Value::Undefined,
    }
}
