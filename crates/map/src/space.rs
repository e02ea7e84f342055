//! The one flat space: how keys become placement bytes, and which bounds exist there.
//!
//! List and range maps place a key at its encoded bytes, hash maps at its bucket (4 bytes, big-endian). A composite map
//! places it at the escaped lower bound of its segment followed by the bucket, so that a segment is one stretch of the
//! space, segments keep their order, and splitting one only adds entries.

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

    pub(crate) fn gap(&self, key: &Key) -> LocateError {
        let key = key.to_json();
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
