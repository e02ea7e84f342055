//! Bounds, ranges and segments as people read them in messages and in JSON.

use serde_json::{Map as Object, Value, json};

use crate::definition::{MapDefinition, Segment};
use crate::encode::{self, KeyBytes};
use crate::error::{ChangeError, KeyError};
use crate::key::Key;
use crate::key_type::KeyType;
use crate::range::KeyRange;

impl MapDefinition {
    /// A range as people read it in a message.
    pub fn describe_range(&self, range: &KeyRange) -> String {
        if let (Some(lo), Some(hi)) = (self.bucket_of(range.lo().as_slice()), range.hi())
            && let Some(hi) = self.bucket_of(hi.as_slice())
            && lo.0 == hi.0
        {
            let buckets = if hi.1 == lo.1 + 1 {
                format!("bucket {}", lo.1)
            } else {
                format!("buckets [{}, {})", lo.1, hi.1)
            };
            return match lo.0 {
                Some(segment) => format!("segment {} {buckets}", self.describe_segment(&segment)),
                None => buckets,
            };
        }
        if range.is_point() {
            return format!("key {}", self.describe_bound(range.lo()));
        }
        let lo = if range.lo().as_slice().is_empty() {
            "-∞".to_owned()
        } else {
            self.describe_bound(range.lo())
        };
        match range.hi() {
            Some(hi) => format!("[{lo}, {})", self.describe_bound(hi)),
            None => format!("[{lo}, ∞)"),
        }
    }

    /// A bound, or the placement of a key, as people read it in a message.
    pub fn describe_bound(&self, bound: &KeyBytes) -> String {
        match self.bucket_of(bound.as_slice()) {
            Some((None, bucket)) => format!("bucket {bucket}"),
            Some((Some(segment), bucket)) => {
                format!("segment {} bucket {bucket}", self.describe_segment(&segment))
            }
            None => describe(self.key_type(), bound.as_slice()),
        }
    }

    /// The lower bound of a segment as people read it.
    pub fn describe_segment(&self, lo: &KeyBytes) -> String {
        if lo.as_slice().is_empty() {
            return "-∞".to_owned();
        }
        describe(&self.prefix_type(), lo.as_slice())
    }

    /// The range in the words of the JSON form: `key`, or `from` and `to`, with `segment` in composite maps.
    pub fn range_to_json(&self, range: &KeyRange) -> Object<String, Value> {
        let mut object = Object::new();
        match (self.bucket_of(range.lo().as_slice()), range.hi().and_then(|hi| self.bucket_of(hi.as_slice())))
        {
            (Some((segment, from)), Some((_, to))) => {
                if let Some(lo) = segment {
                    object.insert("segment".to_owned(), self.segment_to_json(&lo));
                }
                object.insert("from".to_owned(), json!(from));
                object.insert("to".to_owned(), json!(to));
            }
            _ => write_bounds(&mut object, self.key_type(), range, Wrapped::No),
        }
        object
    }

    /// Reads what [`MapDefinition::range_to_json`] writes. An absent bound is infinite; the error names the field.
    pub fn range_from_json(&self, object: &Object<String, Value>) -> Result<KeyRange, (String, String)> {
        let known = ["segment", "key", "from", "to"];
        if let Some(field) = object.keys().find(|field| !known.contains(&field.as_str())) {
            return Err((field.clone(), format!("unknown field: a range has {}", known.join(", "))));
        }
        let Some(hash) = self.scheme().hash() else {
            if object.contains_key("segment") {
                return Err(("segment".to_owned(), "only composite maps have segments".to_owned()));
            }
            return read_bounds(object, self.key_type(), Wrapped::No);
        };
        if object.contains_key("key") {
            return Err((
                "key".to_owned(),
                "this map has buckets: use \"from\" and \"to\" with their numbers".to_owned(),
            ));
        }
        let from = bucket_number(object, "from", 0)?;
        let to = bucket_number(object, "to", hash.buckets())?;
        match (self.scheme().prefix(), object.get("segment")) {
            (None, None) => self.buckets(from, to).map_err(|e| ("to".to_owned(), e.to_string())),
            (None, Some(_)) => Err(("segment".to_owned(), "only composite maps have segments".to_owned())),
            (Some(_), None) => {
                Err(("segment".to_owned(), "missing: name the segment by its lower bound".to_owned()))
            }
            (Some(_), Some(value)) => {
                let lo = self.segment_from_json(value).map_err(|e| ("segment".to_owned(), e.to_string()))?;
                self.segment_buckets(&lo, from, to).map_err(|e| match e {
                    unknown @ ChangeError::UnknownSegment { .. } => {
                        ("segment".to_owned(), unknown.to_string())
                    }
                    other => ("to".to_owned(), other.to_string()),
                })
            }
        }
    }

    /// A segment in the words of the JSON form.
    pub fn segment_range_to_json(&self, segment: &Segment) -> Object<String, Value> {
        let mut object = Object::new();
        write_bounds(&mut object, &self.prefix_type(), segment.range(), Wrapped::Yes);
        object
    }

    /// Reads what [`MapDefinition::segment_range_to_json`] writes; the error names the field.
    pub fn segment_range_from_json(
        &self,
        object: &Object<String, Value>,
    ) -> Result<Segment, (String, String)> {
        let known = ["key", "from", "to"];
        if let Some(field) = object.keys().find(|field| !known.contains(&field.as_str())) {
            return Err((field.clone(), format!("unknown field: a segment has {}", known.join(", "))));
        }
        read_bounds(object, &self.prefix_type(), Wrapped::Yes).map(Segment::new)
    }

    /// The lower bound by which a segment is known; `null` is −∞.
    pub fn segment_to_json(&self, lo: &KeyBytes) -> Value {
        if lo.as_slice().is_empty() {
            Value::Null
        } else {
            bound_to_json(&self.prefix_type(), lo.as_slice(), Wrapped::Yes)
        }
    }

    /// Reads what [`MapDefinition::segment_to_json`] writes.
    pub fn segment_from_json(&self, value: &Value) -> Result<KeyBytes, KeyError> {
        match value {
            Value::Null => Ok(KeyBytes::default()),
            value => bound_from_json(&self.prefix_type(), value, Wrapped::Yes),
        }
    }
}

/// Whether a single component is written bare in JSON although it is encoded as a tuple (the prefix of a segment).
#[derive(Clone, Copy, PartialEq)]
enum Wrapped {
    Yes,
    No,
}

fn describe(key_type: &KeyType, bytes: &[u8]) -> String {
    match key_type.decode_bound(bytes) {
        Ok(key) => key.to_json().to_string(),
        Err(_) => match bytes.split_last() {
            Some((0, key)) if key_type.decode(key).is_ok() => format!("after {}", describe(key_type, key)),
            _ => format!("0x{}", encode::to_hex(bytes)),
        },
    }
}

fn write_bounds(object: &mut Object<String, Value>, key_type: &KeyType, range: &KeyRange, wrapped: Wrapped) {
    if range.is_point() && key_type.decode(range.lo().as_slice()).is_ok() {
        object.insert("key".to_owned(), bound_to_json(key_type, range.lo().as_slice(), wrapped));
        return;
    }
    if !range.lo().as_slice().is_empty() {
        object.insert("from".to_owned(), bound_to_json(key_type, range.lo().as_slice(), wrapped));
    }
    if let Some(hi) = range.hi() {
        object.insert("to".to_owned(), bound_to_json(key_type, hi.as_slice(), wrapped));
    }
}

fn read_bounds(
    object: &Object<String, Value>,
    key_type: &KeyType,
    wrapped: Wrapped,
) -> Result<KeyRange, (String, String)> {
    let bound = |field: &str| match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            bound_from_json(key_type, value, wrapped).map(Some).map_err(|e| (field.to_owned(), e.to_string()))
        }
    };
    if object.contains_key("key") {
        if let Some(other) = ["from", "to"].into_iter().find(|field| object.contains_key(*field)) {
            return Err((other.to_owned(), "an entry has either \"key\", or \"from\" and \"to\"".to_owned()));
        }
        let key = bound("key")?.ok_or_else(|| ("key".to_owned(), "a key cannot be null".to_owned()))?;
        key_type.decode(key.as_slice()).map_err(|e| ("key".to_owned(), e.to_string()))?;
        return Ok(KeyRange::point(key));
    }
    let (lo, hi) = (bound("from")?.unwrap_or_default(), bound("to")?);
    KeyRange::new(lo, hi).map_err(|_| ("to".to_owned(), "the upper bound must be above the lower".to_owned()))
}

/// A bound in JSON: a key, a tuple cut short, or `{"after": key}` for the end of the range of one key.
fn bound_to_json(key_type: &KeyType, bytes: &[u8], wrapped: Wrapped) -> Value {
    match key_type.decode_bound(bytes) {
        Ok(Key::Tuple(keys)) if wrapped == Wrapped::Yes && key_type.components().len() == 1 => {
            keys[0].to_json()
        }
        Ok(key) => key.to_json(),
        Err(_) => match bytes.split_last() {
            Some((0, key)) if key_type.decode(key).is_ok() => {
                json!({"after": bound_to_json(key_type, key, wrapped)})
            }
            // Such a bound is refused where maps are made; hex is the honest rest.
            _ => json!({"bytes": encode::to_hex(bytes)}),
        },
    }
}

fn bound_from_json(key_type: &KeyType, value: &Value, wrapped: Wrapped) -> Result<KeyBytes, KeyError> {
    if let Value::Object(object) = value
        && let (1, Some(key)) = (object.len(), object.get("after"))
    {
        let key = bound_from_json(key_type, key, wrapped)?;
        key_type.decode(key.as_slice())?;
        return Ok(key.successor());
    }
    if wrapped == Wrapped::Yes && key_type.components().len() == 1 {
        let key = key_type.components()[0].from_json(value)?;
        return Ok(encode::encode_components(&[key]));
    }
    key_type.encode_bound(&key_type.components_from_json(value)?)
}

fn bucket_number(object: &Object<String, Value>, field: &str, absent: u32) -> Result<u32, (String, String)> {
    match object.get(field) {
        None => Ok(absent),
        Some(value) => value
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| (field.to_owned(), format!("{value} is not the number of a bucket"))),
    }
}
