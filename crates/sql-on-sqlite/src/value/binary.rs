//! The binary form of every type, in and out, as PostgreSQL's send and receive functions have it.

use polyshard_engine::Value;
use polyshard_sql::{SqlError, TypeOid};

use super::calendar::{INFINITY, MINUS_INFINITY};
use super::interval::Interval;
use super::json::Json;
use super::numeric::Numeric;
use super::{array, float, json, text};
use crate::fail::{fail, unsupported};
use crate::settings::Settings;
use crate::types::{self, oid};

fn malformed() -> SqlError {
    fail("22P03", "incorrect binary data format")
}

/// A value from its binary form.
pub(crate) fn receive(type_oid: TypeOid, bytes: &[u8], settings: &Settings) -> Result<Value, SqlError> {
    let int = |size: usize| -> Result<i64, SqlError> {
        Ok(match (size, bytes.len()) {
            (2, 2) => i16::from_be_bytes(fixed(bytes)?).into(),
            (4, 4) => i32::from_be_bytes(fixed(bytes)?).into(),
            (8, 8) => i64::from_be_bytes(fixed(bytes)?),
            _ => return Err(malformed()),
        })
    };
    let string = || {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| fail("22021", "invalid byte sequence for encoding \"UTF8\""))?;
        text::input(type_oid, -1, text, settings)
    };
    Ok(match type_oid {
        TypeOid::BOOL => match bytes {
            [byte] => Value::Int((*byte != 0).into()),
            _ => return Err(malformed()),
        },
        TypeOid::INT2 => Value::Int(int(2)?),
        TypeOid::INT4 => Value::Int(int(4)?),
        TypeOid::INT8 => Value::Int(int(8)?),
        oid if types::is_oid(oid) => Value::Int(int(4)? as u32 as i64),
        TypeOid::FLOAT8 => Value::Real(float::checked(f64::from_bits(int(8)? as u64), false)?),
        TypeOid::NUMERIC => Value::Text(Numeric::read_binary(bytes).ok_or_else(malformed)?.to_string()),
        TypeOid::DATE => Value::Int(match int(4)? as i32 {
            i32::MAX => INFINITY,
            i32::MIN => MINUS_INFINITY,
            days => days.into(),
        }),
        TypeOid::TIME | TypeOid::TIMESTAMP | TypeOid::TIMESTAMPTZ => Value::Int(int(8)?),
        TypeOid::INTERVAL => {
            if bytes.len() != 16 {
                return Err(malformed());
            }
            let interval = Interval {
                micros: i64::from_be_bytes(fixed(&bytes[..8])?),
                days: i32::from_be_bytes(fixed(&bytes[8..12])?),
                months: i32::from_be_bytes(fixed(&bytes[12..])?),
            };
            Value::Text(interval.pack())
        }
        TypeOid::UUID if bytes.len() == 16 => Value::Blob(bytes.to_vec()),
        TypeOid::UUID => return Err(malformed()),
        TypeOid::BYTEA => Value::Blob(bytes.to_vec()),
        TypeOid::JSONB => match bytes {
            [1, rest @ ..] => {
                let text = std::str::from_utf8(rest).map_err(|_| malformed())?;
                Value::Text(Json::parse(text)?.to_string())
            }
            _ => return Err(malformed()),
        },
        array if types::is_array(array) => receive_array(array, bytes, settings)?,
        _ => string()?,
    })
}

fn receive_array(array: TypeOid, bytes: &[u8], settings: &Settings) -> Result<Value, SqlError> {
    let element = types::element(array).ok_or_else(malformed)?;
    let word = |place: usize| -> Result<i32, SqlError> {
        Ok(i32::from_be_bytes(fixed(bytes.get(place..place + 4).ok_or_else(malformed)?)?))
    };
    let dimensions = word(0)?;
    if TypeOid(word(8)? as u32) != element {
        return Err(fail("42804", "wrong element type"));
    }
    if dimensions == 0 {
        return Ok(array::pack(&[]));
    }
    if dimensions != 1 {
        return Err(unsupported("arrays of more than one dimension"));
    }
    let count = usize::try_from(word(12)?).map_err(|_| malformed())?;
    let mut place = 20;
    let mut values = Vec::new();
    for _ in 0..count {
        let size = word(place)?;
        place += 4;
        if size < 0 {
            values.push(Value::Null);
            continue;
        }
        let end = place + size as usize;
        values.push(receive(element, bytes.get(place..end).ok_or_else(malformed)?, settings)?);
        place = end;
    }
    Ok(array::pack(&values))
}

/// A value's binary form; NULL has none.
pub(crate) fn send(
    type_oid: TypeOid,
    value: &Value,
    settings: &Settings,
    out: &mut Vec<u8>,
) -> Result<(), SqlError> {
    let odd = || fail("XX000", format!("a {} kept as {}", types::display(type_oid), value.type_name()));
    match (type_oid, value) {
        (_, Value::Null) => return Err(odd()),
        (TypeOid::BOOL, Value::Int(value)) => out.push((*value != 0).into()),
        (TypeOid::BOOL, Value::Bool(value)) => out.push((*value).into()),
        (TypeOid::INT2, Value::Int(value)) => out.extend((*value as i16).to_be_bytes()),
        (TypeOid::INT4, Value::Int(value)) => out.extend((*value as i32).to_be_bytes()),
        (TypeOid::INT8 | TypeOid::TIME | TypeOid::TIMESTAMP | TypeOid::TIMESTAMPTZ, Value::Int(value)) => {
            out.extend(value.to_be_bytes());
        }
        (oid, Value::Int(value)) if types::is_oid(oid) => out.extend((*value as u32).to_be_bytes()),
        (TypeOid::DATE, Value::Int(days)) => out.extend(
            match *days {
                INFINITY => i32::MAX,
                MINUS_INFINITY => i32::MIN,
                days => days as i32,
            }
            .to_be_bytes(),
        ),
        (TypeOid::FLOAT8, Value::Real(value)) => out.extend(value.to_be_bytes()),
        (TypeOid::FLOAT8, Value::Int(value)) => out.extend((*value as f64).to_be_bytes()),
        (TypeOid::NUMERIC, Value::Text(text)) => Numeric::parse(text)?.write_binary(out),
        (TypeOid::INTERVAL, Value::Text(packed)) => {
            let interval = Interval::unpack(packed).ok_or_else(odd)?;
            out.extend(interval.micros.to_be_bytes());
            out.extend(interval.days.to_be_bytes());
            out.extend(interval.months.to_be_bytes());
        }
        (TypeOid::UUID | TypeOid::BYTEA, Value::Blob(bytes)) => out.extend(bytes),
        (TypeOid::JSONB, Value::Text(text)) => {
            out.push(1);
            out.extend(text.as_bytes());
        }
        (array, Value::Text(packed)) if types::is_array(array) => send_array(array, packed, settings, out)?,
        (oid, Value::Text(text)) if types::is_string(oid) || is_plain(oid) => out.extend(text.as_bytes()),
        _ => return Err(odd()),
    }
    Ok(())
}

/// Types whose binary form is their text.
fn is_plain(type_oid: TypeOid) -> bool {
    matches!(type_oid, TypeOid::JSON | TypeOid::UNKNOWN | oid::PG_NODE_TREE) || types::is_enum(type_oid)
}

fn send_array(array: TypeOid, packed: &str, settings: &Settings, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let element = types::element(array).ok_or_else(malformed)?;
    let values: Vec<json::Json> = array::elements(packed)?;
    let has_null = values.contains(&json::Json::Null);
    let vector = matches!(array, oid::INT2VECTOR | oid::OIDVECTOR);
    out.extend(i32::from(!values.is_empty()).to_be_bytes());
    out.extend(i32::from(has_null).to_be_bytes());
    out.extend(element.0.to_be_bytes());
    if !values.is_empty() {
        out.extend((values.len() as i32).to_be_bytes());
        out.extend(i32::from(!vector).to_be_bytes());
    }
    for value in values {
        let value = array::from_json(element, &value)?;
        if value.is_null() {
            out.extend((-1i32).to_be_bytes());
            continue;
        }
        let start = out.len();
        out.extend([0; 4]);
        send(element, &value, settings, out)?;
        let size = (out.len() - start - 4) as i32;
        out[start..start + 4].copy_from_slice(&size.to_be_bytes());
    }
    Ok(())
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], SqlError> {
    bytes.try_into().map_err(|_| malformed())
}
