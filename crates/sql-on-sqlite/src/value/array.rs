//! Arrays: one-dimensional, kept in SQLite as JSON, written for clients as PostgreSQL does.

use polyshard_engine::Value;
use polyshard_sql::{SqlError, TypeOid};

use super::json::Json;
use super::numeric::Numeric;
use super::text;
use crate::fail::{fail, unsupported};
use crate::settings::Settings;
use crate::types;

/// What PostgreSQL takes for white space around elements.
const SPACES: [char; 6] = [' ', '\t', '\n', '\r', '\x0b', '\x0c'];

/// An element as it is kept in the JSON.
pub(crate) fn to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Number(Numeric::from_i128((*value).into())),
        Value::Int(value) => Json::Number(Numeric::from_i128((*value).into())),
        // As in columns, -0 is 0: elements are compared by what is written here.
        Value::Real(value) => Json::String(super::float::write(*value + 0.0)),
        Value::Text(text) => Json::String(text.clone()),
        Value::Blob(bytes) => Json::String(text::hex(bytes)),
    }
}

/// An element out of the JSON.
pub(crate) fn from_json(element: TypeOid, value: &Json) -> Result<Value, SqlError> {
    let odd = || fail("XX000", "an array element of another type");
    Ok(match value {
        Json::Null => Value::Null,
        Json::Number(number) => {
            Value::Int(number.to_i128().and_then(|value| i64::try_from(value).ok()).ok_or_else(odd)?)
        }
        Json::String(text) => match element {
            TypeOid::FLOAT8 | TypeOid::FLOAT4 => Value::Real(super::float::parse(text)?),
            TypeOid::UUID | TypeOid::BYTEA => Value::Blob(text::unhex(text).ok_or_else(odd)?),
            _ => Value::Text(text.clone()),
        },
        _ => return Err(odd()),
    })
}

/// The elements of an array value.
pub(crate) fn elements(array: &str) -> Result<Vec<Json>, SqlError> {
    match Json::parse(array)? {
        Json::Array(elements) => Ok(elements),
        _ => Err(fail("XX000", "an array that is none")),
    }
}

pub(crate) fn pack(elements: &[Value]) -> Value {
    Value::Text(Json::Array(elements.iter().map(to_json).collect()).to_string())
}

/// `{a,"b c",NULL}`, or the vectors of the system catalog: `1 2 3`.
pub(crate) fn write(array: TypeOid, packed: &str, settings: &Settings) -> Result<String, SqlError> {
    let element = types::element(array).ok_or_else(|| fail("XX000", "not an array type"))?;
    let vector = matches!(array, types::oid::INT2VECTOR | types::oid::OIDVECTOR);
    let mut parts = Vec::new();
    for value in elements(packed)? {
        let value = from_json(element, &value)?;
        parts.push(match text::output(element, &value, settings)? {
            None => "NULL".to_owned(),
            Some(text) => quoted(&text),
        });
    }
    Ok(if vector { parts.join(" ") } else { format!("{{{}}}", parts.join(",")) })
}

fn quoted(text: &str) -> String {
    let special = |letter: char| matches!(letter, '{' | '}' | ',' | '"' | '\\') || SPACES.contains(&letter);
    if text.is_empty() || text.eq_ignore_ascii_case("null") || text.contains(special) {
        format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
    } else {
        text.to_owned()
    }
}

/// Reads `{…}`; only one dimension is known here.
pub(crate) fn parse(array: TypeOid, text: &str, settings: &Settings) -> Result<Value, SqlError> {
    let element = types::element(array).ok_or_else(|| fail("XX000", "not an array type"))?;
    let malformed = || fail("22P02", format!("malformed array literal: \"{text}\""));
    if matches!(array, types::oid::INT2VECTOR | types::oid::OIDVECTOR) {
        let values: Result<Vec<Value>, SqlError> =
            text.split_ascii_whitespace().map(|part| text::input(element, -1, part, settings)).collect();
        return Ok(pack(&values?));
    }
    let trimmed = text.trim_matches(SPACES);
    if trimmed.starts_with('[') {
        return Err(unsupported("arrays with bounds of their own"));
    }
    let body = trimmed.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(malformed)?;
    let mut values = Vec::new();
    let mut letters = body.chars().peekable();
    if body.trim_matches(SPACES).is_empty() {
        return Ok(pack(&values));
    }
    loop {
        while letters.next_if(|letter| SPACES.contains(letter)).is_some() {}
        let mut part = String::new();
        let mut is_quoted = false;
        // What is escaped is a part of the value, also at its end.
        let mut fixed = 0;
        if letters.next_if_eq(&'"').is_some() {
            is_quoted = true;
            loop {
                match letters.next().ok_or_else(malformed)? {
                    '"' => break,
                    '\\' => part.push(letters.next().ok_or_else(malformed)?),
                    letter => part.push(letter),
                }
            }
            while letters.next_if(|letter| SPACES.contains(letter)).is_some() {}
        } else {
            while let Some(letter) = letters.next_if(|letter| *letter != ',') {
                match letter {
                    '{' => return Err(unsupported("arrays of more than one dimension")),
                    '}' | '"' => return Err(malformed()),
                    '\\' => {
                        part.push(letters.next().ok_or_else(malformed)?);
                        fixed = part.len();
                    }
                    letter => part.push(letter),
                }
            }
            part.truncate(part.trim_end_matches(SPACES).len().max(fixed));
            if part.is_empty() {
                return Err(malformed());
            }
        }
        values.push(if !is_quoted && fixed == 0 && part.eq_ignore_ascii_case("null") {
            Value::Null
        } else {
            text::input(element, -1, &part, settings)?
        });
        match letters.next() {
            None => return Ok(pack(&values)),
            Some(',') => {}
            Some(_) => return Err(malformed()),
        }
    }
}
