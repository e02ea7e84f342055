//! The one flat space: how keys become placement bytes, which bounds exist there, and how people read them.
//!
//! List and range maps place a key at its encoded bytes, hash maps at its bucket (4 bytes, big-endian). A composite map
//! places it at the escaped lower bound of its segment followed by the bucket, so that a segment is one stretch of the
//! space, segments keep their order, and splitting one only adds entries.

use serde_json::{Map as Object, Value, json};

use crate::definition::{MapDefinition, Scheme, Segment};
use crate::encode::{self, KeyBytes, Scratch, Sink};
use crate::error::{ChangeError, KeyError, LocateError};
use crate::hash::HashSpec;
use crate::key::Key;
use crate::key_type::KeyType;
use crate::range::KeyRange;

impl MapDefinition {
    /// Where the key lies in the space the map's ranges are over.
    pub fn placement(&self, key: &Key) -> Result<KeyBytes, LocateError> {
        let mut scratch = Scratch::new();
        self.place(key, &mut scratch)?;
        Ok(KeyBytes::from(scratch.as_slice()))
    }

    /// Like [`MapDefinition::placement`], without allocating for all but long keys.
    pub(crate) fn place(&self, key: &Key, out: &mut Scratch) -> Result<(), LocateError> {
        self.key_type()
            .check(key)
            .map_err(|source| LocateError::WrongType { map: self.name().to_string(), source })?;
        match self.scheme() {
            Scheme::List | Scheme::Range => encode::write_key(out, key),
            Scheme::Hash(hash) => out.put(&hash.bucket(key).to_be_bytes()),
            Scheme::RangeHash { prefix, hash, segments } | Scheme::ListHash { prefix, hash, segments } => {
                let Key::Tuple(keys) = key else { return Err(self.gap(key)) };
                let (chooses, hashed) = keys.split_at(*prefix);
                let mut chosen = Scratch::new();
                chooses.iter().for_each(|key| encode::write_component(&mut chosen, key));
                let segment = find_segment(segments, chosen.as_slice()).ok_or_else(|| self.gap(key))?;
                encode::write_escaped(out, segment.lo().as_slice());
                out.put(&hash.bucket_of_components(hashed).to_be_bytes());
            }
        }
        Ok(())
    }

    /// The range of these buckets of a hash map.
    pub fn buckets(&self, from: u32, to: u32) -> Result<KeyRange, ChangeError> {
        match self.scheme() {
            Scheme::Hash(hash) => bucket_range(hash, &[], from, to),
            _ => {
                Err(self
                    .no_buckets("name buckets", "give a key, a range of keys, or a segment and its buckets"))
            }
        }
    }

    /// The range of these buckets of a segment, which is known by its lower bound.
    pub fn segment_buckets(&self, segment: &KeyBytes, from: u32, to: u32) -> Result<KeyRange, ChangeError> {
        let Some(hash) = self.scheme().hash().filter(|_| self.scheme().prefix().is_some()) else {
            return Err(self.no_buckets("name segments", "only composite maps have segments"));
        };
        if !self.scheme().segments().iter().any(|known| known.lo() == segment) {
            return Err(ChangeError::UnknownSegment { segment: self.describe_segment(segment) });
        }
        bucket_range(hash, &escaped(segment.as_slice()), from, to)
    }

    /// All of a segment, which need not be part of the map yet.
    pub(crate) fn segment_space(hash: &HashSpec, segment: &KeyBytes) -> KeyRange {
        bucket_range(hash, &escaped(segment.as_slice()), 0, hash.buckets()).expect("all buckets are a range")
    }

    /// Which segment and bucket a bound of a hashed map stands for.
    pub fn bucket_of(&self, bound: &[u8]) -> Option<(Option<KeyBytes>, u32)> {
        let hash = self.scheme().hash()?;
        let mut rest = bound;
        let segment = match self.scheme().prefix() {
            Some(_) => Some(KeyBytes::new(encode::read_escaped(&mut rest)?)),
            None => None,
        };
        let bucket = u32::from_be_bytes(rest.try_into().ok()?);
        (bucket <= hash.buckets()).then_some((segment, bucket))
    }

    /// Whether the range can be that of an entry.
    pub fn check_entry_range(&self, range: &KeyRange) -> Result<(), ChangeError> {
        let bad = |bound: &KeyBytes, reason: String| ChangeError::BadBound {
            bound: self.describe_bound(bound),
            reason,
        };
        match self.scheme() {
            Scheme::List if !range.is_point() => Err(bad(
                range.lo(),
                "an entry of a list map is one key; use a range map for ranges".to_owned(),
            )),
            Scheme::List => self.check_key(range.lo().as_slice()).map_err(|e| bad(range.lo(), e.to_string())),
            Scheme::Range => self.check_bounds(range),
            Scheme::Hash(_) | Scheme::RangeHash { .. } | Scheme::ListHash { .. } => {
                let (lo, hi) = match range.hi() {
                    Some(hi) => (self.check_bucket(range.lo())?, self.check_bucket(hi)?),
                    None => {
                        return Err(bad(range.lo(), "an entry of a hash map ends at a bucket".to_owned()));
                    }
                };
                if lo.0 != hi.0 {
                    return Err(bad(
                        range.lo(),
                        "an entry does not go over the end of its segment".to_owned(),
                    ));
                }
                Ok(())
            }
        }
    }

    /// The parts of a range that exist in this map: what a change of that range is about.
    pub(crate) fn clip(&self, range: &KeyRange) -> Result<Vec<KeyRange>, ChangeError> {
        let Some(hash) = self.scheme().hash() else {
            if matches!(self.scheme(), Scheme::Range) {
                self.check_bounds(range)?;
            }
            return Ok(vec![range.clone()]);
        };
        if !range.lo().as_slice().is_empty() {
            self.check_bucket(range.lo())?;
        }
        range.hi().map_or(Ok(()), |hi| self.check_bucket(hi).map(drop))?;
        let spaces: Vec<KeyRange> = match self.scheme().prefix() {
            None => vec![bucket_range(hash, &[], 0, hash.buckets())?],
            Some(_) => {
                let segments = self.scheme().segments().iter();
                segments.map(|segment| MapDefinition::segment_space(hash, segment.lo())).collect()
            }
        };
        Ok(spaces.iter().filter_map(|space| space.intersect(range)).collect())
    }

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

    pub(crate) fn gap(&self, key: &Key) -> LocateError {
        let key = Value::to_string(&key.to_json());
        LocateError::Gap { map: self.name().to_string(), key: format!("key {key}") }
    }

    /// Whether the bytes encode a key; the common types need no decoding for that.
    fn check_key(&self, bytes: &[u8]) -> Result<(), KeyError> {
        match (self.key_type(), bytes.len()) {
            (KeyType::Int, 4) | (KeyType::BigInt, 8) | (KeyType::Uuid, 16) => Ok(()),
            _ => self.key_type().decode(bytes).map(drop),
        }
    }

    fn check_bounds(&self, range: &KeyRange) -> Result<(), ChangeError> {
        for bound in std::iter::once(range.lo()).chain(range.hi()) {
            let bytes = bound.as_slice();
            let is_a_bound = bytes.is_empty()
                || self.key_type().decode_bound(bytes).is_ok()
                || bytes.split_last().is_some_and(|(last, key)| *last == 0 && self.check_key(key).is_ok());
            if !is_a_bound {
                let reason = format!("it is no {} key", self.key_type());
                return Err(ChangeError::BadBound { bound: self.describe_bound(bound), reason });
            }
        }
        Ok(())
    }

    fn check_bucket(&self, bound: &KeyBytes) -> Result<(Option<KeyBytes>, u32), ChangeError> {
        let buckets = self.scheme().hash().map_or(0, HashSpec::buckets);
        let (segment, bucket) = self.bucket_of(bound.as_slice()).ok_or_else(|| {
            let bound = format!("0x{}", bound.to_hex());
            ChangeError::BadBound { bound, reason: format!("buckets go from 0 to {buckets}") }
        })?;
        match segment {
            Some(lo) if !self.scheme().segments().iter().any(|known| *known.lo() == lo) => {
                Err(ChangeError::UnknownSegment { segment: self.describe_segment(&lo) })
            }
            segment => Ok((segment, bucket)),
        }
    }

    fn no_buckets(&self, verb: &'static str, remedy: &'static str) -> ChangeError {
        ChangeError::WrongScheme { kind: self.scheme().kind(), verb, remedy }
    }
}

/// Whether a single component is written bare in JSON although it is encoded as a tuple (the prefix of a segment).
#[derive(Clone, Copy, PartialEq)]
enum Wrapped {
    Yes,
    No,
}

fn find_segment<'a>(segments: &'a [Segment], prefix: &[u8]) -> Option<&'a Segment> {
    let after = segments.partition_point(|segment| segment.lo().as_slice() <= prefix);
    let segment = &segments[after.checked_sub(1)?];
    segment.range().contains(prefix).then_some(segment)
}

fn bucket_range(hash: &HashSpec, before: &[u8], from: u32, to: u32) -> Result<KeyRange, ChangeError> {
    let bound = |bucket: u32| KeyBytes::new([before, &bucket.to_be_bytes()].concat());
    if from < to && to <= hash.buckets() {
        return Ok(KeyRange::new(bound(from), Some(bound(to))).expect("bytes are ordered as the buckets are"));
    }
    Err(ChangeError::BadBound {
        bound: format!("buckets [{from}, {to})"),
        reason: format!("the first must be below the second, and that at most {}", hash.buckets()),
    })
}

fn escaped(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 8);
    encode::write_escaped(&mut out, bytes);
    out
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
