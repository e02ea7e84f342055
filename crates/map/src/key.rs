//! A key: the value a request is routed by, in human form as text and as JSON.

use std::fmt;

use serde_json::Value;
use uuid::Uuid;

use crate::calendar;

/// A value of a map's key type. It is checked against the type by [`crate::KeyType::check`] wherever it is used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// 32-bit integer.
    Int(i32),
    /// 64-bit integer.
    BigInt(i64),
    /// UUID.
    Uuid(Uuid),
    /// Up to 128 bytes.
    Binary(Vec<u8>),
    /// Up to 2048 bytes of UTF-8 without NUL, ordered by its bytes.
    Text(String),
    /// Microseconds since 2000-01-01 00:00 UTC, as PostgreSQL counts; `i64::MIN` and `MAX` are ∓infinity.
    Timestamp(i64),
    /// Days since 2000-01-01, as PostgreSQL counts; `i32::MIN` and `MAX` are ∓infinity.
    Date(i32),
    /// 2 to 8 of the above.
    Tuple(Vec<Key>),
}

impl Key {
    /// The key in JSON: a number, a string, or an array of these.
    pub fn to_json(&self) -> Value {
        match self {
            Key::Int(n) => Value::from(*n),
            Key::BigInt(n) => Value::from(*n),
            Key::Tuple(keys) => Value::Array(keys.iter().map(Key::to_json).collect()),
            Key::Uuid(_) | Key::Binary(_) | Key::Text(_) | Key::Timestamp(_) | Key::Date(_) => {
                Value::String(self.to_string())
            }
        }
    }
}

/// Text that [`crate::KeyType::parse`] reads back as the same key.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Int(n) => write!(f, "{n}"),
            Key::BigInt(n) => write!(f, "{n}"),
            Key::Uuid(uuid) => write!(f, "{}", uuid.hyphenated()),
            Key::Binary(bytes) => {
                f.write_str("\\x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Key::Text(text) => f.write_str(text),
            Key::Timestamp(micros) => calendar::write_timestamp(f, *micros),
            Key::Date(days) => calendar::write_date(f, *days),
            Key::Tuple(_) => write!(f, "{}", self.to_json()),
        }
    }
}
