//! The text form of every type, in and out.

use polyshard_engine::Value;
use polyshard_sql::{SqlError, TypeOid};

use super::interval::Interval;
use super::json::Json;
use super::numeric::Numeric;
use super::{array, calendar, float, json};
use crate::fail::{bad_input, fail, unsupported};
use crate::settings::Settings;
use crate::types::{self, oid};

/// A value from its text.
pub(crate) fn input(
    type_oid: TypeOid,
    type_mod: i32,
    text: &str,
    settings: &Settings,
) -> Result<Value, SqlError> {
    if text.contains('\0') {
        return Err(fail("22021", "invalid byte sequence for encoding \"UTF8\": 0x00"));
    }
    let value = match type_oid {
        TypeOid::BOOL => Value::Int(parse_bool(text)?.into()),
        TypeOid::INT2 => Value::Int(parse_int(text, "smallint", i16::MIN.into(), i16::MAX.into())?),
        TypeOid::INT4 => Value::Int(parse_int(text, "integer", i32::MIN.into(), i32::MAX.into())?),
        TypeOid::INT8 => Value::Int(parse_int(text, "bigint", i64::MIN, i64::MAX)?),
        oid::REGCLASS | oid::REGTYPE => {
            Value::Int(crate::system::input(type_oid, text).ok_or_else(|| bad_input("oid", text))?)
        }
        oid if types::is_oid(oid) => match parse_int(text, "oid", i32::MIN.into(), u32::MAX.into()) {
            Ok(value) => Value::Int(value as u32 as i64),
            Err(error) => return Err(error),
        },
        TypeOid::FLOAT8 => Value::Real(float::parse(text)?),
        TypeOid::FLOAT4 => return Err(unsupported("the type real").hint("use double precision")),
        TypeOid::NUMERIC => Value::Text(Numeric::parse(text)?.to_string()),
        TypeOid::BPCHAR => Value::Text(text.trim_end_matches(' ').to_owned()),
        TypeOid::TEXT | TypeOid::VARCHAR | TypeOid::UNKNOWN | oid::PG_NODE_TREE => {
            Value::Text(text.to_owned())
        }
        TypeOid::NAME => Value::Text(cut_bytes(text, 63).to_owned()),
        oid::CHAR => Value::Text(text.chars().take(1).collect()),
        TypeOid::DATE => Value::Int(calendar::parse_date(text)?),
        TypeOid::TIME => Value::Int(calendar::parse_time_of_day(text)?),
        TypeOid::TIMESTAMP => Value::Int(calendar::parse_timestamp(text)?),
        TypeOid::TIMESTAMPTZ => Value::Int(calendar::parse_timestamptz(text, &settings.zone)?),
        TypeOid::INTERVAL => Value::Text(Interval::parse(text)?.pack()),
        TypeOid::UUID => Value::Blob(parse_uuid(text)?),
        TypeOid::BYTEA => Value::Blob(parse_bytea(text)?),
        TypeOid::JSONB => Value::Text(Json::parse(text)?.to_string()),
        TypeOid::JSON => {
            json::check(text)?;
            Value::Text(text.to_owned())
        }
        array if types::is_array(array) => array::parse(array, text, settings)?,
        // Whether it is a label is looked at where the labels are known.
        made if types::is_enum(made) => Value::Text(text.to_owned()),
        other => return Err(unsupported(format!("the type {}", types::display(other)))),
    };
    limit(type_oid, type_mod, value, Fit::Strict)
}

/// What happens to a string that is too long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// An error, unless only spaces are lost.
    Strict,
    /// It is cut, as an explicit cast does.
    Cut,
}

/// Fits a value to its type's length or precision.
pub(crate) fn limit(type_oid: TypeOid, type_mod: i32, value: Value, fit: Fit) -> Result<Value, SqlError> {
    if type_mod < 0 {
        return Ok(value);
    }
    match (type_oid, value) {
        (TypeOid::VARCHAR | TypeOid::BPCHAR, Value::Text(text)) => {
            let most = (type_mod - 4) as usize;
            let Some((end, _)) = text.char_indices().nth(most) else {
                return Ok(Value::Text(text));
            };
            let name = if type_oid == TypeOid::VARCHAR { "character varying" } else { "character" };
            if fit == Fit::Strict && text[end..].bytes().any(|byte| byte != b' ') {
                return Err(fail("22001", format!("value too long for type {name}({most})")));
            }
            let kept = &text[..end];
            let kept = if type_oid == TypeOid::BPCHAR { kept.trim_end_matches(' ') } else { kept };
            Ok(Value::Text(kept.to_owned()))
        }
        (TypeOid::NUMERIC, Value::Text(text)) => {
            let (precision, scale) = types::numeric_limits(type_mod);
            Ok(Value::Text(Numeric::parse(&text)?.limited(precision, scale)?.to_string()))
        }
        (TypeOid::TIMESTAMP | TypeOid::TIMESTAMPTZ | TypeOid::TIME, Value::Int(micros)) if type_mod < 6 => {
            if calendar::is_infinite(micros) {
                return Ok(Value::Int(micros));
            }
            let unit = 10i64.pow((6 - type_mod) as u32);
            let half = unit / 2;
            let rounded =
                if micros >= 0 { (micros + half) / unit * unit } else { -((-micros + half) / unit * unit) };
            Ok(Value::Int(rounded))
        }
        (array, Value::Text(packed)) if types::is_array(array) => {
            let element = types::element(array).unwrap_or(TypeOid::TEXT);
            let mut values = Vec::new();
            for value in array::elements(&packed)? {
                values.push(limit(element, type_mod, array::from_json(element, &value)?, fit)?);
            }
            Ok(array::pack(&values))
        }
        (_, value) => Ok(value),
    }
}

/// A value's text; `None` for NULL.
pub(crate) fn output(
    type_oid: TypeOid,
    value: &Value,
    settings: &Settings,
) -> Result<Option<String>, SqlError> {
    let odd = || fail("XX000", format!("a {} kept as {}", types::display(type_oid), value.type_name()));
    Ok(Some(match (type_oid, value) {
        (_, Value::Null) => return Ok(None),
        (TypeOid::BOOL, Value::Int(value)) => if *value != 0 { "t" } else { "f" }.to_owned(),
        (TypeOid::BOOL, Value::Bool(value)) => if *value { "t" } else { "f" }.to_owned(),
        (TypeOid::DATE, Value::Int(days)) => calendar::write_date(*days),
        (TypeOid::TIME, Value::Int(micros)) => calendar::write_time(*micros),
        (TypeOid::TIMESTAMP, Value::Int(micros)) => calendar::write_timestamp(*micros, None),
        (TypeOid::TIMESTAMPTZ, Value::Int(micros)) => {
            calendar::write_timestamp(*micros, Some(&settings.zone))
        }
        (TypeOid::FLOAT8 | TypeOid::FLOAT4, Value::Real(value)) => float::write(*value),
        (TypeOid::FLOAT8 | TypeOid::FLOAT4, Value::Int(value)) => float::write(*value as f64),
        (TypeOid::INTERVAL, Value::Text(packed)) => Interval::unpack(packed).ok_or_else(odd)?.shown(),
        (TypeOid::UUID, Value::Blob(bytes)) => write_uuid(bytes).ok_or_else(odd)?,
        (TypeOid::BYTEA, Value::Blob(bytes)) if settings.bytea_escape => escape_bytea(bytes),
        (TypeOid::BYTEA, Value::Blob(bytes)) => format!("\\x{}", hex(bytes)),
        // As a column keeps it.
        (array, Value::Text(text)) if types::is_array(array) && text.starts_with('{') => text.clone(),
        (array, Value::Text(packed)) if types::is_array(array) => array::write(array, packed, settings)?,
        (_, Value::Text(text)) => text.clone(),
        (_, Value::Int(value)) => value.to_string(),
        _ => return Err(odd()),
    }))
}

pub(crate) fn parse_bool(text: &str) -> Result<bool, SqlError> {
    let lower = text.trim().to_ascii_lowercase();
    let is_prefix = |word: &str, least: usize| lower.len() >= least && word.starts_with(&lower);
    if is_prefix("true", 1) || is_prefix("yes", 1) || lower == "on" || lower == "1" {
        return Ok(true);
    }
    if is_prefix("false", 1) || is_prefix("no", 1) || is_prefix("off", 2) || lower == "0" {
        return Ok(false);
    }
    Err(bad_input("boolean", text))
}

fn parse_int(text: &str, name: &str, min: i64, max: i64) -> Result<i64, SqlError> {
    let trimmed = text.trim_matches(|letter: char| letter.is_ascii_whitespace() || letter == '\x0b');
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad_input(name, text));
    }
    match trimmed.parse::<i128>() {
        Ok(value) if i128::from(min) <= value && value <= i128::from(max) => Ok(value as i64),
        _ => Err(fail("22003", format!("value \"{text}\" is out of range for type {name}"))),
    }
}

/// 32 hexadecimal digits, with hyphens after any group of four, and braces around.
pub(crate) fn parse_uuid(text: &str) -> Result<Vec<u8>, SqlError> {
    let bad = || bad_input("uuid", text);
    let body = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}').ok_or_else(bad)?,
        None => text,
    };
    let mut digits = String::with_capacity(32);
    let mut letters = body.chars().peekable();
    while let Some(letter) = letters.next() {
        if !letter.is_ascii_hexdigit() {
            return Err(bad());
        }
        digits.push(letter);
        if digits.len().is_multiple_of(4) && digits.len() < 32 {
            letters.next_if_eq(&'-');
        }
    }
    if digits.len() != 32 {
        return Err(bad());
    }
    unhex(&digits).ok_or_else(bad)
}

pub(crate) fn write_uuid(bytes: &[u8]) -> Option<String> {
    let digits = hex(bytes);
    if digits.len() != 32 {
        return None;
    }
    Some([&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(2) {
        return None;
    }
    bytes.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// `\x…`, or the old form with backslashes.
pub(crate) fn parse_bytea(text: &str) -> Result<Vec<u8>, SqlError> {
    if let Some(digits) = text.strip_prefix("\\x") {
        let compact: String = digits.chars().filter(|letter| !letter.is_ascii_whitespace()).collect();
        if let Some(odd) = compact.chars().find(|letter| !letter.is_ascii_hexdigit()) {
            return Err(fail("22023", format!("invalid hexadecimal digit: \"{odd}\"")));
        }
        return unhex(&compact)
            .ok_or_else(|| fail("22023", "invalid hexadecimal data: odd number of digits"));
    }
    let bad = || bad_input("bytea", text);
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        if *byte != b'\\' {
            bytes.push(*byte);
            rest = after;
        } else if let [b'\\', after @ ..] = after {
            bytes.push(b'\\');
            rest = after;
        } else if let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] = after {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = after;
        } else {
            return Err(bad());
        }
    }
    Ok(bytes)
}

pub(crate) fn escape_bytea(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text
}

fn cut_bytes(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
