//! The type of a map's keys: which values fit, and how they are read from text and JSON.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::calendar;
use crate::error::KeyError;
use crate::key::Key;

/// Longest binary key: that of the elastic database tools whose maps can be adopted.
pub const BINARY_BYTES_MAX: usize = 128;
/// Longest text key: PostgreSQL's index row limit is about 2700 bytes, and a key must fit into an index.
pub const TEXT_BYTES_MAX: usize = 2048;
/// Fewest components of a tuple: a tuple of one is that one.
pub const TUPLE_COMPONENTS_MIN: usize = 2;
/// Most components of a tuple: enough for every composite key met, small enough for an index.
pub const TUPLE_COMPONENTS_MAX: usize = 8;

/// Keys in error messages are cut to this many characters: a key may be large, a message must not be.
const SHOWN_CHARS_MAX: usize = 80;

/// The type of all keys of one map.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum KeyType {
    /// 32-bit integer.
    Int,
    /// 64-bit integer.
    BigInt,
    /// UUID.
    Uuid,
    /// Bytes.
    Binary,
    /// UTF-8 text in byte order (PostgreSQL's "C").
    Text,
    /// A moment, to the microsecond.
    Timestamp,
    /// A day.
    Date,
    /// Several of the above, compared component by component.
    Tuple(Vec<KeyType>),
}

impl KeyType {
    /// A tuple type, if it has 2 to 8 components and none is a tuple itself.
    pub fn tuple(components: Vec<KeyType>) -> Result<KeyType, KeyError> {
        let key_type = KeyType::Tuple(components);
        key_type.check_shape()?;
        Ok(key_type)
    }

    /// The parts of the key: those of a tuple, or the type itself.
    pub fn components(&self) -> &[KeyType] {
        match self {
            KeyType::Tuple(components) => components,
            single => std::slice::from_ref(single),
        }
    }

    /// Reads a key from text, as it stands on a command line or in a URL. A tuple is a JSON array.
    pub fn parse(&self, text: &str) -> Result<Key, KeyError> {
        let key = match self {
            KeyType::Int => Key::Int(text.parse().map_err(|_| self.wrong_type(text))?),
            KeyType::BigInt => Key::BigInt(text.parse().map_err(|_| self.wrong_type(text))?),
            KeyType::Uuid => Key::Uuid(Uuid::parse_str(text).map_err(|_| self.wrong_type(text))?),
            KeyType::Binary => Key::Binary(
                text.strip_prefix("\\x")
                    .and_then(|hex| crate::encode::from_hex(hex).ok())
                    .ok_or_else(|| self.wrong_type(text))?,
            ),
            KeyType::Text => Key::Text(text.to_owned()),
            KeyType::Timestamp => {
                Key::Timestamp(calendar::parse_timestamp(text).map_err(|e| self.invalid(e))?)
            }
            KeyType::Date => Key::Date(calendar::parse_date(text).map_err(|e| self.invalid(e))?),
            KeyType::Tuple(_) => {
                let value: Value = serde_json::from_str(text).map_err(|_| self.wrong_type(text))?;
                return self.from_json(&value);
            }
        };
        self.check(&key)?;
        Ok(key)
    }

    /// Reads a key from JSON. Numbers may also be given as strings: not every client has 64-bit integers.
    pub fn from_json(&self, value: &Value) -> Result<Key, KeyError> {
        let key = self.components_from_json(value)?;
        self.check(&key)?;
        Ok(key)
    }

    /// Whether the key is of this type and within its limits.
    pub fn check(&self, key: &Key) -> Result<(), KeyError> {
        match (self, key) {
            (KeyType::Int, Key::Int(_))
            | (KeyType::BigInt, Key::BigInt(_))
            | (KeyType::Uuid, Key::Uuid(_)) => Ok(()),
            (KeyType::Binary, Key::Binary(bytes)) if bytes.len() > BINARY_BYTES_MAX => Err(self
                .invalid(format!("{} bytes, more than {BINARY_BYTES_MAX}: use a shorter key", bytes.len()))),
            (KeyType::Binary, Key::Binary(_)) => Ok(()),
            (KeyType::Text, Key::Text(text)) if text.len() > TEXT_BYTES_MAX => {
                Err(self
                    .invalid(format!("{} bytes, more than {TEXT_BYTES_MAX}: use a shorter key", text.len())))
            }
            (KeyType::Text, Key::Text(text)) if text.bytes().any(|byte| byte == 0) => Err(self.invalid(
                "it has a NUL character, which PostgreSQL cannot hold: use a binary key".to_owned(),
            )),
            (KeyType::Text, Key::Text(_)) => Ok(()),
            (KeyType::Timestamp, Key::Timestamp(micros)) if !calendar::timestamp_in_range(*micros) => {
                Err(self
                    .invalid("PostgreSQL holds timestamps from 4714-11-24 BC to the year 294276".to_owned()))
            }
            (KeyType::Timestamp, Key::Timestamp(_)) => Ok(()),
            (KeyType::Date, Key::Date(days)) if !calendar::date_in_range(*days) => {
                Err(self.invalid("PostgreSQL holds dates from 4714-11-24 BC to 5874897-12-31".to_owned()))
            }
            (KeyType::Date, Key::Date(_)) => Ok(()),
            (KeyType::Tuple(types), Key::Tuple(keys)) if types.len() == keys.len() => {
                types.iter().zip(keys).try_for_each(|(key_type, key)| key_type.check(key))
            }
            _ => Err(self.wrong_type(&key.to_string())),
        }
    }

    /// The components of a bound: like a key, but a tuple may be cut short.
    pub(crate) fn components_from_json(&self, value: &Value) -> Result<Key, KeyError> {
        match (self, value) {
            (KeyType::Tuple(types), Value::Array(values))
                if !values.is_empty() && values.len() <= types.len() =>
            {
                let keys = types.iter().zip(values).map(|(key_type, value)| key_type.from_json(value));
                Ok(Key::Tuple(keys.collect::<Result<_, _>>()?))
            }
            (KeyType::Tuple(_), _) => Err(self.wrong_type(&value.to_string())),
            (_, Value::String(text)) => self.parse(text),
            (KeyType::Int | KeyType::BigInt, Value::Number(number)) => self.parse(&number.to_string()),
            _ => Err(self.wrong_type(&value.to_string())),
        }
    }

    pub(crate) fn check_shape(&self) -> Result<(), KeyError> {
        let KeyType::Tuple(components) = self else { return Ok(()) };
        let count_fits = (TUPLE_COMPONENTS_MIN..=TUPLE_COMPONENTS_MAX).contains(&components.len());
        if count_fits && !components.iter().any(|component| matches!(component, KeyType::Tuple(_))) {
            Ok(())
        } else {
            Err(KeyError::UnknownType { text: shown(&self.to_string()) })
        }
    }

    pub(crate) fn wrong_type(&self, key: &str) -> KeyError {
        let hint = match self {
            KeyType::Int => "a whole number from -2147483648 to 2147483647",
            KeyType::BigInt => "a whole number from -9223372036854775808 to 9223372036854775807",
            KeyType::Uuid => "a UUID such as 67e55044-10b1-426f-9247-bb680e5fe0c8",
            KeyType::Binary => "bytes in hex such as \\x00ff",
            KeyType::Text => "a text",
            KeyType::Timestamp => "a moment such as 2024-05-01T12:00:00Z",
            KeyType::Date => "a day such as 2024-05-01",
            KeyType::Tuple(_) => "a JSON array with one value for each component",
        };
        KeyError::WrongType { key: shown(key), expected: self.to_string(), hint: hint.to_owned() }
    }

    pub(crate) fn invalid(&self, reason: String) -> KeyError {
        KeyError::Invalid { key_type: self.to_string(), reason }
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            KeyType::Int => "int",
            KeyType::BigInt => "bigint",
            KeyType::Uuid => "uuid",
            KeyType::Binary => "binary",
            KeyType::Text => "text",
            KeyType::Timestamp => "timestamp",
            KeyType::Date => "date",
            KeyType::Tuple(components) => {
                let names: Vec<String> = components.iter().map(KeyType::to_string).collect();
                return write!(f, "({})", names.join(", "));
            }
        };
        f.write_str(name)
    }
}

impl FromStr for KeyType {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<KeyType, KeyError> {
        let trimmed = text.trim();
        if let Some(inner) = trimmed.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            let components = inner.split(',').map(KeyType::from_str).collect::<Result<_, _>>();
            return components
                .and_then(KeyType::tuple)
                .map_err(|_| KeyError::UnknownType { text: shown(text) });
        }
        match trimmed {
            "int" => Ok(KeyType::Int),
            "bigint" => Ok(KeyType::BigInt),
            "uuid" => Ok(KeyType::Uuid),
            "binary" => Ok(KeyType::Binary),
            "text" => Ok(KeyType::Text),
            "timestamp" => Ok(KeyType::Timestamp),
            "date" => Ok(KeyType::Date),
            _ => Err(KeyError::UnknownType { text: shown(text) }),
        }
    }
}

impl TryFrom<String> for KeyType {
    type Error = KeyError;
    fn try_from(text: String) -> Result<KeyType, KeyError> {
        text.parse()
    }
}

impl From<KeyType> for String {
    fn from(key_type: KeyType) -> String {
        key_type.to_string()
    }
}

fn shown(text: &str) -> String {
    if text.chars().count() <= SHOWN_CHARS_MAX {
        return text.to_owned();
    }
    text.chars().take(SHOWN_CHARS_MAX).chain("…".chars()).collect()
}
