//! What a map is: its name, the type of its keys, and the scheme that turns a key into a placement.

use serde::{Deserialize, Serialize};

use crate::encode::KeyBytes;
use crate::error::DefinitionError;
use crate::hash::HashSpec;
use crate::ids::MapName;
use crate::key_type::KeyType;
use crate::range::KeyRange;

/// Most segments of a composite map: 27 years of days. They are part of the definition, which is loaded whole.
pub const SEGMENTS_MAX: usize = 10_000;

/// A part of a composite map, chosen by the first components of the key: a range, or one value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Segment(KeyRange);

impl Segment {
    /// The segment of all keys whose encoded prefix is in the range.
    pub fn new(range: KeyRange) -> Segment {
        Segment(range)
    }

    /// Which encoded prefixes it has.
    pub fn range(&self) -> &KeyRange {
        &self.0
    }

    /// Its lower bound, by which it is known.
    pub fn lo(&self) -> &KeyBytes {
        self.0.lo()
    }
}

/// How a key becomes a placement: the bytes that the map's ranges are over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Scheme {
    /// One entry a key; placement is the encoded key.
    List,
    /// Ranges of keys; placement is the encoded key.
    Range,
    /// Ranges of buckets; placement is the bucket.
    Hash(HashSpec),
    /// The first components choose a segment by range, the others are hashed into its buckets.
    RangeHash {
        /// How many components choose the segment.
        prefix: usize,
        /// How the others become buckets.
        hash: HashSpec,
        /// Sorted, not overlapping; gaps are allowed.
        segments: Vec<Segment>,
    },
    /// The first components choose a segment by value, the others are hashed into its buckets.
    ListHash {
        /// How many components choose the segment.
        prefix: usize,
        /// How the others become buckets.
        hash: HashSpec,
        /// Sorted, each of one value.
        segments: Vec<Segment>,
    },
}

impl Scheme {
    /// The word in JSON, tables and messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Scheme::List => "list",
            Scheme::Range => "range",
            Scheme::Hash(_) => "hash",
            Scheme::RangeHash { .. } => "range_hash",
            Scheme::ListHash { .. } => "list_hash",
        }
    }

    /// How keys become buckets, where they do.
    pub fn hash(&self) -> Option<&HashSpec> {
        match self {
            Scheme::List | Scheme::Range => None,
            Scheme::Hash(hash) | Scheme::RangeHash { hash, .. } | Scheme::ListHash { hash, .. } => Some(hash),
        }
    }

    /// The segments of a composite map; none for the others.
    pub fn segments(&self) -> &[Segment] {
        match self {
            Scheme::List | Scheme::Range | Scheme::Hash(_) => &[],
            Scheme::RangeHash { segments, .. } | Scheme::ListHash { segments, .. } => segments,
        }
    }

    /// How many components choose the segment; none where there are no segments.
    pub fn prefix(&self) -> Option<usize> {
        match self {
            Scheme::List | Scheme::Range | Scheme::Hash(_) => None,
            Scheme::RangeHash { prefix, .. } | Scheme::ListHash { prefix, .. } => Some(*prefix),
        }
    }
}

/// Name, key type and scheme of a map; checked when made, and fixed but for the segments of a composite map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct MapDefinition {
    name: MapName,
    key_type: KeyType,
    scheme: Scheme,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    name: MapName,
    key_type: KeyType,
    scheme: Scheme,
}

impl TryFrom<Stored> for MapDefinition {
    type Error = DefinitionError;
    fn try_from(stored: Stored) -> Result<MapDefinition, DefinitionError> {
        MapDefinition::new(stored.name, stored.key_type, stored.scheme)
    }
}

impl MapDefinition {
    /// Checks that the parts fit together.
    pub fn new(name: MapName, key_type: KeyType, scheme: Scheme) -> Result<MapDefinition, DefinitionError> {
        key_type.check_shape()?;
        let definition = MapDefinition { name, key_type, scheme };
        definition.check_segments()?;
        Ok(definition)
    }

    /// The name of the map.
    pub fn name(&self) -> &MapName {
        &self.name
    }

    /// The type of its keys.
    pub fn key_type(&self) -> &KeyType {
        &self.key_type
    }

    /// How a key becomes a placement.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// The same map with other segments; refused for maps that have none.
    pub fn with_segments(&self, new: Vec<Segment>) -> Result<MapDefinition, DefinitionError> {
        let mut scheme = self.scheme.clone();
        match &mut scheme {
            Scheme::RangeHash { segments, .. } | Scheme::ListHash { segments, .. } => *segments = new,
            Scheme::List | Scheme::Range | Scheme::Hash(_) => {
                let reason = format!("a map of kind {} has no segments", self.scheme.kind());
                return Err(DefinitionError::Segment { segment: "list".to_owned(), reason });
            }
        }
        MapDefinition::new(self.name.clone(), self.key_type.clone(), scheme)
    }

    fn check_segments(&self) -> Result<(), DefinitionError> {
        let Some(prefix) = self.scheme.prefix() else { return Ok(()) };
        if prefix == 0 || prefix >= self.key_type.components().len() {
            return Err(DefinitionError::Prefix { prefix, key_type: self.key_type.to_string() });
        }
        let segments = self.scheme.segments();
        if segments.len() > SEGMENTS_MAX {
            return Err(DefinitionError::TooManySegments { count: segments.len() });
        }
        let wrong = |segment: &Segment, reason: &str| DefinitionError::Segment {
            segment: self.describe_segment(segment.lo()),
            reason: reason.to_owned(),
        };
        for segment in segments {
            if let Err(reason) = self.check_segment(segment) {
                return Err(wrong(segment, &reason));
            }
        }
        match segments.windows(2).find(|pair| pair[0].range().ends_after(pair[1].lo())) {
            Some(pair) => Err(wrong(
                &pair[1],
                "it overlaps the one before, or is out of order: sort them by lower bound",
            )),
            None => Ok(()),
        }
    }

    fn check_segment(&self, segment: &Segment) -> Result<(), String> {
        if matches!(self.scheme, Scheme::ListHash { .. }) {
            if !segment.range().is_point() {
                return Err("a segment of a list_hash map is one value".to_owned());
            }
            return self.prefix_type().decode(segment.lo().as_slice()).map(drop).map_err(|e| e.to_string());
        }
        self.check_segment_bound(segment.lo().as_slice())?;
        segment.range().hi().map_or(Ok(()), |hi| self.check_segment_bound(hi.as_slice()))
    }

    fn check_segment_bound(&self, bound: &[u8]) -> Result<(), String> {
        if bound.is_empty() {
            return Ok(());
        }
        self.prefix_type().decode_bound(bound).map(drop).map_err(|e| e.to_string())
    }

    /// The type of the components that choose a segment, as they are encoded in a tuple (even if it is one).
    pub(crate) fn prefix_type(&self) -> KeyType {
        let prefix = self.scheme.prefix().unwrap_or_default();
        KeyType::Tuple(self.key_type.components().iter().take(prefix).cloned().collect())
    }
}
