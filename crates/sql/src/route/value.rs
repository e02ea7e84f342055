//! Values a key can be compared with, read only in forms that PostgreSQL reads alike; every other form is unknown.

use polyshard_map::{Key, KeyType};

use crate::param::{Param, ParamValue};
use crate::schema::{Collation, Column, TypeOid};

/// Types whose values are equal exactly if the engine's `=` says so, across the types of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Int,
    Text,
    Uuid,
    Date,
    Timestamp,
    TimestampTz,
    Bytes,
}

impl Family {
    /// The family of a type; none for types that no key can be (char(n) is padded, numeric has many spellings).
    pub(crate) fn of(type_oid: TypeOid) -> Option<Family> {
        Some(match type_oid {
            TypeOid::INT2 | TypeOid::INT4 | TypeOid::INT8 => Family::Int,
            TypeOid::TEXT | TypeOid::VARCHAR => Family::Text,
            TypeOid::UUID => Family::Uuid,
            TypeOid::DATE => Family::Date,
            TypeOid::TIMESTAMP => Family::Timestamp,
            TypeOid::TIMESTAMPTZ => Family::TimestampTz,
            TypeOid::BYTEA => Family::Bytes,
            _ => return None,
        })
    }

    /// The family of a column: texts that can be equal with different bytes have none.
    pub(crate) fn of_column(column: &Column) -> Option<Family> {
        Family::of(column.type_oid)
            .filter(|family| *family != Family::Text || column.collation != Collation::Nondeterministic)
    }
}

/// A value of a family, as the engine understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scalar {
    Int(i64),
    Text(String),
    Uuid(uuid::Uuid),
    Date(i32),
    Timestamp(i64),
    TimestampTz(i64),
    Bytes(Vec<u8>),
}

impl Scalar {
    pub(crate) fn family(&self) -> Family {
        match self {
            Scalar::Int(_) => Family::Int,
            Scalar::Text(_) => Family::Text,
            Scalar::Uuid(_) => Family::Uuid,
            Scalar::Date(_) => Family::Date,
            Scalar::Timestamp(_) => Family::Timestamp,
            Scalar::TimestampTz(_) => Family::TimestampTz,
            Scalar::Bytes(_) => Family::Bytes,
        }
    }

    /// The value that a text literal has where this family is expected; none if that is not certain.
    pub(crate) fn read(family: Family, text: &str) -> Option<Scalar> {
        Some(match family {
            Family::Int => Scalar::Int(read_int(text)?),
            Family::Text => Scalar::Text(text.to_owned()),
            Family::Uuid => Scalar::Uuid(read_uuid(text)?),
            Family::Date => Scalar::Date(read_date(text)?),
            Family::Timestamp => Scalar::Timestamp(read_moment(text, false)?),
            Family::TimestampTz => Scalar::TimestampTz(read_moment(text, true)?),
            Family::Bytes => match KeyType::Binary.parse(text).ok()? {
                Key::Binary(bytes) => Scalar::Bytes(bytes),
                _ => return None,
            },
        })
    }

    /// The value cast to a type; none if that changes it, fails, or is not certain.
    pub(crate) fn cast(self, to: TypeOid) -> Option<Scalar> {
        let family = Family::of(to)?;
        match self {
            Scalar::Int(n) if family == Family::Int => {
                let fits = match to {
                    TypeOid::INT2 => i16::try_from(n).is_ok(),
                    TypeOid::INT4 => i32::try_from(n).is_ok(),
                    _ => true,
                };
                fits.then_some(Scalar::Int(n))
            }
            Scalar::Text(text) if family != Family::Text => {
                Scalar::read(family, &text).and_then(|read| read.cast(to))
            }
            same => (same.family() == family).then_some(same),
        }
    }

    /// The key of a map's type.
    pub(crate) fn to_key(&self, key_type: &KeyType) -> Keyed {
        let key = match (self, key_type) {
            (Scalar::Int(n), KeyType::BigInt) => Key::BigInt(*n),
            (Scalar::Int(n), KeyType::Int) => match i32::try_from(*n) {
                Ok(n) => Key::Int(n),
                Err(_) if *n > 0 => return Keyed::Above,
                Err(_) => return Keyed::Below,
            },
            (Scalar::Text(text), KeyType::Text) => Key::Text(text.clone()),
            (Scalar::Uuid(uuid), KeyType::Uuid) => Key::Uuid(*uuid),
            (Scalar::Date(days), KeyType::Date) => Key::Date(*days),
            (Scalar::Timestamp(micros) | Scalar::TimestampTz(micros), KeyType::Timestamp) => {
                Key::Timestamp(*micros)
            }
            (Scalar::Bytes(bytes), KeyType::Binary) => Key::Binary(bytes.clone()),
            _ => return Keyed::Unknown,
        };
        match key_type.check(&key) {
            Ok(()) => Keyed::Key(key),
            Err(_) => Keyed::Unknown,
        }
    }
}

/// What key a value is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Keyed {
    Key(Key),
    /// Greater than every key.
    Above,
    /// Less than every key.
    Below,
    /// NULL: equal to nothing.
    Null,
    /// It cannot be told.
    Unknown,
}

/// Digits with at most a minus sign: what every version of PostgreSQL reads as this number.
pub(crate) fn read_int(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn read_uuid(text: &str) -> Option<uuid::Uuid> {
    if !matches!(text.len(), 32 | 36) {
        return None;
    }
    uuid::Uuid::parse_str(text).ok()
}

/// Year first is read the same under every DateStyle.
fn read_date(text: &str) -> Option<i32> {
    if text.len() != 10 {
        return None;
    }
    match KeyType::Date.parse(text).ok()? {
        Key::Date(days) => Some(days),
        _ => None,
    }
}

/// `2024-05-01 12:00:00[.5]`, with an offset exactly where the type has one: without, it would depend on TimeZone,
/// and where the type has none PostgreSQL would silently ignore it.
fn read_moment(text: &str, zoned: bool) -> Option<i64> {
    if !text.is_ascii() {
        return None;
    }
    let has_offset = text.len() > 19 && text[19..].contains(['Z', 'z', '+', '-']);
    if has_offset != zoned {
        return None;
    }
    match KeyType::Timestamp.parse(text).ok()? {
        Key::Timestamp(micros) => Some(micros),
        _ => None,
    }
}

/// A parameter's value; `Err` if it cannot be told, `Ok(None)` for NULL.
pub(crate) fn decode(param: &Param<'_>) -> Result<Option<Scalar>, Unreadable> {
    let bytes = match param.value {
        ParamValue::Null => return Ok(None),
        ParamValue::Text(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|_| Unreadable)?;
            // A type that the server has not told is read like a literal: by what it is compared with.
            let family = match param.type_oid {
                TypeOid::UNKNOWN | TypeOid(0) => Family::Text,
                known => Family::of(known).ok_or(Unreadable)?,
            };
            return Scalar::read(family, text).map(Some).ok_or(Unreadable);
        }
        ParamValue::Binary(bytes) => bytes,
    };
    decode_binary(param.type_oid, bytes).map(Some).ok_or(Unreadable)
}

/// It cannot be told what value it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreadable;

pub(crate) fn decode_binary(type_oid: TypeOid, bytes: &[u8]) -> Option<Scalar> {
    Some(match type_oid {
        TypeOid::INT2 => Scalar::Int(i16::from_be_bytes(bytes.try_into().ok()?).into()),
        TypeOid::INT4 => Scalar::Int(i32::from_be_bytes(bytes.try_into().ok()?).into()),
        TypeOid::INT8 => Scalar::Int(i64::from_be_bytes(bytes.try_into().ok()?)),
        TypeOid::TEXT | TypeOid::VARCHAR => Scalar::Text(std::str::from_utf8(bytes).ok()?.to_owned()),
        TypeOid::UUID => Scalar::Uuid(uuid::Uuid::from_bytes(bytes.try_into().ok()?)),
        TypeOid::DATE => Scalar::Date(i32::from_be_bytes(bytes.try_into().ok()?)),
        TypeOid::TIMESTAMP => Scalar::Timestamp(i64::from_be_bytes(bytes.try_into().ok()?)),
        TypeOid::TIMESTAMPTZ => Scalar::TimestampTz(i64::from_be_bytes(bytes.try_into().ok()?)),
        TypeOid::BYTEA => Scalar::Bytes(bytes.to_vec()),
        _ => return None,
    })
}
