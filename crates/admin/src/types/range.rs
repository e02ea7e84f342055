//! Keys and ranges as people write them: JSON values and text, never encoded bytes.

use polyshard_map::Key;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// One key of a map: a JSON value of the map's key type, or a string with the key's text form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(as = Key, value_type = Value, example = json!(42))]
pub struct KeyText(Value);

impl KeyText {
    /// A key in its text form, as typed on a command line: `42`, `2024-01-31`, `["eu", 7]`.
    pub fn text(text: impl Into<String>) -> KeyText {
        KeyText(Value::String(text.into()))
    }

    /// A key as the map prints it.
    pub fn of(key: &Key) -> KeyText {
        KeyText(key.to_json())
    }

    /// A number that is not a key of the map's type but a bucket or a position.
    pub fn number(number: u64) -> KeyText {
        KeyText(Value::from(number))
    }

    /// The JSON value as it came.
    pub fn json(&self) -> &Value {
        &self.0
    }
}

impl From<Value> for KeyText {
    fn from(value: Value) -> KeyText {
        KeyText(value)
    }
}

impl std::fmt::Display for KeyText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Value::String(text) => f.write_str(text),
            other => write!(f, "{other}"),
        }
    }
}

/// A part of a map: one key, keys from/to (half-open, a missing or null side is infinite), or buckets of a hash map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, try_from = "RangeFields")]
#[schema(as = Range)]
pub enum RangeView {
    /// One key of a list map.
    Key {
        /// The key.
        key: KeyText,
    },
    /// Keys from `from` (included) to `to` (not included).
    Keys {
        /// First key; null is the beginning.
        #[schema(required)]
        from: Option<KeyText>,
        /// First key after the range; null is the end.
        #[schema(required)]
        to: Option<KeyText>,
    },
    /// Buckets of a hash map, from the first (included) to the second (not included).
    Buckets {
        /// `[first, first after]`.
        #[schema(value_type = Vec<u32>, min_items = 2, max_items = 2, example = json!([0, 256]))]
        buckets: (u32, u32),
    },
    /// Buckets inside one segment of a map that hashes within ranges or lists.
    Segment {
        /// The segment, by the leading key it begins with; null is the one without a beginning.
        #[schema(required)]
        segment: Option<KeyText>,
        /// `[first, first after]`.
        #[schema(value_type = Vec<u32>, min_items = 2, max_items = 2, example = json!([0, 256]))]
        buckets: (u32, u32),
    },
}

impl RangeView {
    /// The whole map.
    pub fn all() -> RangeView {
        RangeView::Keys { from: None, to: None }
    }
}

impl std::fmt::Display for RangeView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RangeView::Key { key } => write!(f, "{key}"),
            RangeView::Keys { from, to } => write!(f, "{}", Ends(from, to)),
            RangeView::Buckets { buckets } => write!(f, "buckets {}..{}", buckets.0, buckets.1),
            RangeView::Segment { segment, buckets } => {
                write!(f, "{} buckets {}..{}", Ends(segment, &None), buckets.0, buckets.1)
            }
        }
    }
}

/// A bound that is no key itself is where the range of one key ends.
fn write_bound(f: &mut std::fmt::Formatter<'_>, bound: &KeyText) -> std::fmt::Result {
    match bound.0.get("after") {
        Some(key) => write!(f, "after {}", KeyText(key.clone())),
        None => write!(f, "{bound}"),
    }
}

struct Ends<'a>(&'a Option<KeyText>, &'a Option<KeyText>);

impl std::fmt::Display for Ends<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(from) = self.0 {
            write_bound(f, from)?;
        }
        f.write_str("..")?;
        if let Some(to) = self.1 {
            write_bound(f, to)?;
        }
        Ok(())
    }
}

/// All fields a range may have; an untagged enum alone would answer a typing error with 'no variant matches'.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeFields {
    #[serde(default, deserialize_with = "present")]
    key: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    from: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    to: Option<Value>,
    buckets: Option<(u32, u32)>,
    #[serde(default, deserialize_with = "present")]
    segment: Option<Value>,
}

/// Keeps 'given as null' (infinite) apart from 'not given'.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl TryFrom<RangeFields> for RangeView {
    type Error = &'static str;

    fn try_from(fields: RangeFields) -> Result<RangeView, Self::Error> {
        let side = |value: Option<Value>| value.filter(|v| !v.is_null()).map(KeyText);
        match fields {
            RangeFields { key: Some(key), from: None, to: None, buckets: None, segment: None } => {
                if key.is_null() {
                    Err("`key` may not be null")
                } else {
                    Ok(RangeView::Key { key: KeyText(key) })
                }
            }
            RangeFields { key: None, from, to, buckets: None, segment: None }
                if from.is_some() || to.is_some() =>
            {
                Ok(RangeView::Keys { from: side(from), to: side(to) })
            }
            RangeFields { key: None, from: None, to: None, buckets: Some(buckets), segment } => match segment
            {
                None => Ok(RangeView::Buckets { buckets }),
                segment => Ok(RangeView::Segment { segment: side(segment), buckets }),
            },
            RangeFields { segment: Some(_), buckets: None, .. } => Err("`segment` needs `buckets` beside it"),
            RangeFields { key: None, from: None, to: None, buckets: None, segment: None } => {
                Err("a range needs `key`, `from` and/or `to`, or `buckets`")
            }
            _ => Err("a range has either `key`, or `from`/`to`, or `buckets`, not several of them"),
        }
    }
}
