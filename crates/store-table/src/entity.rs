//! Entities and their keys, checked against the service's limits when they are made.

use polyshard_azure_storage::Timestamp;

use crate::edm::{EdmValue, utf16_bytes};

/// A key has up to 1 KiB in UTF-16, as with the service.
pub const KEY_BYTES_MAX: usize = 1024;
/// Properties a client may set: the service's 255, less the two keys and the timestamp.
pub const PROPERTIES_MAX: usize = 252;
/// Characters in a property's name, as with the service.
pub const PROPERTY_NAME_CHARS_MAX: usize = 255;
/// Bytes in a binary property, and in a string in UTF-16, as with the service.
pub const PROPERTY_BYTES_MAX: usize = 64 * 1024;
/// Bytes in an entity, names in UTF-16 included, as with the service.
pub const ENTITY_BYTES_MAX: usize = 1024 * 1024;

/// What no entity can be; the client must send another. Each has a code of its own on the wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The body cannot be read.
    #[error("An error occurred while processing this request: {0}.")]
    Unreadable(String),
    /// A key is missing.
    #[error("The values are not specified for all properties in the entity. {0} is missing.")]
    KeyMissing(&'static str),
    /// A key is too long.
    #[error(
        "The property value exceeds the maximum allowed size: {0} has at most {KEY_BYTES_MAX} bytes in UTF-16."
    )]
    KeyTooLong(&'static str),
    /// A key has a character that is not allowed in keys.
    #[error(
        "The '{0}' parameter is out of range: a key has none of '/', '\\', '#', '?' and no control characters."
    )]
    KeyOutOfRange(&'static str),
    /// A name that no property can have.
    #[error("The property name '{0}' is invalid: it must be a letter or '_', then letters, digits and '_'.")]
    PropertyNameInvalid(String),
    /// A property's name is too long.
    #[error("The property name exceeds the maximum allowed length ({PROPERTY_NAME_CHARS_MAX}).")]
    PropertyNameTooLong,
    /// One name twice.
    #[error("A property is specified more than one time: {0}.")]
    PropertyTwice(String),
    /// Too many properties.
    #[error(
        "The entity contains more properties than allowed: {PROPERTIES_MAX} beside its keys and timestamp."
    )]
    TooManyProperties,
    /// A value is too long.
    #[error(
        "The property value exceeds the maximum allowed size (64KB). If the property value is a string, it is UTF-16 \
         encoded and the maximum number of characters should be 32K or less. It is that of {0}."
    )]
    PropertyTooLarge(String),
    /// A value is not of its type.
    #[error("The value specified for property '{name}' is not of type {edm}.")]
    ValueType {
        /// Which.
        name: String,
        /// What it should be.
        edm: String,
    },
    /// All together is too large.
    #[error("The entity is larger than the maximum allowed size (1MB).")]
    EntityTooLarge,
}

/// The key of a partition: what places it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey(String);

/// The key of an entity within its partition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey(String);

impl PartitionKey {
    /// Checks length and characters.
    pub fn new(text: impl Into<String>) -> Result<PartitionKey, InputError> {
        checked_key("PartitionKey", text.into()).map(PartitionKey)
    }
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl RowKey {
    /// Checks length and characters.
    pub fn new(text: impl Into<String>) -> Result<RowKey, InputError> {
        checked_key("RowKey", text.into()).map(RowKey)
    }
    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Names one entity of a table. Keys are ordered by their UTF-8 bytes, which is the order of their code points.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityKey {
    /// Its partition.
    pub partition: PartitionKey,
    /// Its key there.
    pub row: RowKey,
}

impl EntityKey {
    /// Checks both.
    pub fn new(partition: impl Into<String>, row: impl Into<String>) -> Result<EntityKey, InputError> {
        Ok(EntityKey { partition: PartitionKey::new(partition)?, row: RowKey::new(row)? })
    }
}

fn checked_key(which: &'static str, text: String) -> Result<String, InputError> {
    if utf16_bytes(&text) > KEY_BYTES_MAX {
        return Err(InputError::KeyTooLong(which));
    }
    let forbidden =
        |char: char| matches!(char, '/' | '\\' | '#' | '?' | '\0'..='\u{1F}' | '\u{7F}'..='\u{9F}');
    if text.contains(forbidden) { Err(InputError::KeyOutOfRange(which)) } else { Ok(text) }
}

/// The properties of an entity beside its keys and timestamp, in the order in which they were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties(Vec<(String, EdmValue)>);

impl Properties {
    /// Checks names, values and sizes, without the keys: see [`Properties::check_with`].
    pub fn new(list: Vec<(String, EdmValue)>) -> Result<Properties, InputError> {
        // First of all: a body of 4 MiB holds hundreds of thousands of them, and each is compared with all others.
        let properties = Properties(list);
        properties.check_count()?;
        let list = &properties.0;
        for (at, (name, value)) in list.iter().enumerate() {
            check_name(name)?;
            if list[..at].iter().any(|(other, _)| other == name) {
                return Err(InputError::PropertyTwice(name.clone()));
            }
            let fits = match value {
                // In UTF-16 a text has at most twice its bytes: most need not be looked at.
                EdmValue::String(text) => {
                    text.len() * 2 <= PROPERTY_BYTES_MAX || utf16_bytes(text) <= PROPERTY_BYTES_MAX
                }
                EdmValue::Binary(bytes) => bytes.len() <= PROPERTY_BYTES_MAX,
                _ => true,
            };
            if !fits {
                return Err(InputError::PropertyTooLarge(name.clone()));
            }
        }
        Ok(properties)
    }

    /// What was checked when it was stored.
    pub(crate) fn stored(list: Vec<(String, EdmValue)>) -> Properties {
        Properties(list)
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &EdmValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The value of that name.
    pub fn get(&self, name: &str) -> Option<&EdmValue> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value)
    }

    /// These with the other's put over them. Names that both have keep their place.
    pub fn merged(mut self, over: &Properties) -> Properties {
        for (name, value) in &over.0 {
            match self.0.iter_mut().find(|(own, _)| own == name) {
                Some((_, own)) => *own = value.clone(),
                None => self.0.push((name.clone(), value.clone())),
            }
        }
        self
    }

    /// Whether an entity of these properties and these keys is within the limits.
    pub fn check_with(&self, partition: &PartitionKey, row: &RowKey) -> Result<(), InputError> {
        self.check_count()?;
        // At most twice as much in UTF-16: most entities are far below the limit.
        let most = |(name, value): &(String, EdmValue)| {
            let length = match value {
                EdmValue::String(text) => 2 * text.len(),
                EdmValue::Binary(bytes) => bytes.len(),
                _ => 0,
            };
            32 + 2 * name.len() + length
        };
        let keys = 2 * (partition.as_str().len() + row.as_str().len());
        if 4 + keys + self.0.iter().map(most).sum::<usize>() <= ENTITY_BYTES_MAX {
            return Ok(());
        }
        // As the service documents it: 4 bytes, keys and names in UTF-16, 8 bytes a property.
        let keys = utf16_bytes(partition.as_str()) + utf16_bytes(row.as_str());
        let own = |(name, value): &(String, EdmValue)| 8 + utf16_bytes(name) + value.size_bytes();
        let bytes = 4 + keys + self.0.iter().map(own).sum::<usize>();
        if bytes > ENTITY_BYTES_MAX { Err(InputError::EntityTooLarge) } else { Ok(()) }
    }

    fn check_count(&self) -> Result<(), InputError> {
        if self.0.len() > PROPERTIES_MAX { Err(InputError::TooManyProperties) } else { Ok(()) }
    }
}

/// Names follow the rules of C# identifiers (the service's words), so letters of every script are allowed.
fn check_name(name: &str) -> Result<(), InputError> {
    if name.chars().count() > PROPERTY_NAME_CHARS_MAX {
        return Err(InputError::PropertyNameTooLong);
    }
    let first = name.chars().next().is_some_and(|char| char.is_alphabetic() || char == '_');
    let rest = name.chars().all(is_name_char);
    if first && rest { Ok(()) } else { Err(InputError::PropertyNameInvalid(name.chars().take(80).collect())) }
}

/// Whether a property's name may have this after its first letter: filters read names by it, too. Many scripts
/// (Hindi, Thai) have marks within words, and joiners. A colon was allowed in names before, and is in use.
pub(crate) fn is_name_char(char: char) -> bool {
    char.is_alphanumeric()
        || unicode_ident::is_xid_continue(char)
        || matches!(char, ':' | '\u{200C}' | '\u{200D}')
}

/// An entity as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Entity {
    /// Its key.
    pub key: EntityKey,
    /// When it was last changed; also its version, since every change has a later one.
    pub timestamp: Timestamp,
    /// Everything else.
    pub properties: Properties,
}

impl Entity {
    /// A stored row's keys were checked when it was written.
    pub(crate) fn stored(
        partition: String,
        row: String,
        timestamp: Timestamp,
        properties: Properties,
    ) -> Entity {
        let key = EntityKey { partition: PartitionKey(partition), row: RowKey(row) };
        Entity { key, timestamp, properties }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(length: usize) -> EdmValue {
        EdmValue::String("x".repeat(length))
    }

    #[test]
    fn keys_have_limits() {
        assert!(EntityKey::new("", "").is_ok());
        assert!(PartitionKey::new("ü".repeat(512)).is_ok());
        assert_eq!(PartitionKey::new("ü".repeat(513)), Err(InputError::KeyTooLong("PartitionKey")));
        assert_eq!(RowKey::new("😀".repeat(257)), Err(InputError::KeyTooLong("RowKey")));
        for bad in ["a/b", "a\\b", "#", "?", "\t", "\u{85}", "\u{0}"] {
            assert_eq!(RowKey::new(bad), Err(InputError::KeyOutOfRange("RowKey")), "{bad:?}");
        }
        assert!(RowKey::new("o'b \"%&+").is_ok());
    }

    #[test]
    fn properties_have_limits() {
        let one = |name: &str, value| Properties::new(vec![(name.to_owned(), value)]);
        for name in ["größe_1", "e\u{301}tat", "हिन्दी", "น้ำ", "می\u{200C}خواهم", "_x:y", "数量2"]
        {
            assert!(one(name, text(32 * 1024)).is_ok(), "{name}");
        }
        assert!(matches!(one("a", text(32 * 1024 + 1)), Err(InputError::PropertyTooLarge(_))));
        assert!(matches!(one("1a", text(1)), Err(InputError::PropertyNameInvalid(_))));
        assert!(matches!(one("", text(1)), Err(InputError::PropertyNameInvalid(_))));
        for name in ["a-b", "a b", "a‘b", "a€", "\u{301}a", "a@b", "a.b"] {
            assert!(matches!(one(name, text(1)), Err(InputError::PropertyNameInvalid(_))), "{name}");
        }
        assert_eq!(one(&"a".repeat(256), text(1)), Err(InputError::PropertyNameTooLong));
        let many = |count| (0..count).map(|n| (format!("p{n}"), text(1))).collect();
        assert!(Properties::new(many(252)).is_ok());
        assert_eq!(Properties::new(many(253)), Err(InputError::TooManyProperties));
        // Nobody may keep a thread busy for minutes with one request.
        assert_eq!(Properties::new(many(300_000)), Err(InputError::TooManyProperties));
        let twice = vec![("a".to_owned(), text(1)), ("a".to_owned(), text(2))];
        assert!(matches!(Properties::new(twice), Err(InputError::PropertyTwice(_))));
        let large = (0..16).map(|n| (format!("p{n}"), text(32 * 1024))).collect();
        let large = Properties::new(large).unwrap();
        let key = EntityKey::new("p", "r").unwrap();
        assert_eq!(large.check_with(&key.partition, &key.row), Err(InputError::EntityTooLarge));
    }
}
