//! Half-open ranges of encoded keys, open to infinity on either side.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::encode::KeyBytes;
use crate::error::RangeError;

/// `[lo, hi)` over encoded keys; an empty `lo` is −∞ (no key sorts before it), no `hi` is +∞.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct KeyRange {
    lo: KeyBytes,
    hi: Option<KeyBytes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    lo: KeyBytes,
    hi: Option<KeyBytes>,
}

impl TryFrom<Stored> for KeyRange {
    type Error = RangeError;
    fn try_from(stored: Stored) -> Result<KeyRange, RangeError> {
        KeyRange::new(stored.lo, stored.hi)
    }
}

impl KeyRange {
    /// The range between two bounds, of which the lower must be below the upper.
    pub fn new(lo: KeyBytes, hi: Option<KeyBytes>) -> Result<KeyRange, RangeError> {
        match &hi {
            Some(hi) if *hi <= lo => Err(RangeError::Empty { lo: lo.to_hex(), hi: hi.to_hex() }),
            _ => Ok(KeyRange { lo, hi }),
        }
    }

    /// Everything.
    pub fn all() -> KeyRange {
        KeyRange { lo: KeyBytes::default(), hi: None }
    }

    /// The one key.
    pub fn point(key: KeyBytes) -> KeyRange {
        let hi = Some(key.successor());
        KeyRange { lo: key, hi }
    }

    /// The lower bound, which is in the range.
    pub fn lo(&self) -> &KeyBytes {
        &self.lo
    }

    /// The upper bound, which is not in the range; none is +∞.
    pub fn hi(&self) -> Option<&KeyBytes> {
        self.hi.as_ref()
    }

    /// Both bounds.
    pub fn into_bounds(self) -> (KeyBytes, Option<KeyBytes>) {
        (self.lo, self.hi)
    }

    /// Whether the encoded key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.lo.as_slice() <= key && self.hi.as_ref().is_none_or(|hi| key < hi.as_slice())
    }

    /// Whether some bytes are in both ranges.
    pub fn overlaps(&self, other: &KeyRange) -> bool {
        self.ends_after(&other.lo) && other.ends_after(&self.lo)
    }

    /// Whether the ranges overlap, or one begins where the other ends.
    pub fn touches(&self, other: &KeyRange) -> bool {
        let reaches = |hi: Option<&KeyBytes>, lo: &KeyBytes| hi.is_none_or(|hi| hi >= lo);
        reaches(self.hi(), &other.lo) && reaches(other.hi(), &self.lo)
    }

    /// Whether all of the other is in this.
    pub fn covers(&self, other: &KeyRange) -> bool {
        self.lo <= other.lo
            && match (&self.hi, &other.hi) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(hi), Some(other_hi)) => hi >= other_hi,
            }
    }

    /// Whether it is the range of one key, as [`KeyRange::point`] makes it.
    pub fn is_point(&self) -> bool {
        self.hi.as_ref().is_some_and(|hi| {
            let (hi, lo) = (hi.as_slice(), self.lo.as_slice());
            hi.len() == lo.len() + 1 && hi[hi.len() - 1] == 0 && &hi[..lo.len()] == lo
        })
    }

    /// What is in both.
    pub fn intersect(&self, other: &KeyRange) -> Option<KeyRange> {
        let lo = self.lo.clone().max(other.lo.clone());
        let hi = match (&self.hi, &other.hi) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        KeyRange::new(lo, hi).ok()
    }

    /// What is left of it without the other: nothing, one piece or two.
    pub fn subtract(&self, other: &KeyRange) -> Vec<KeyRange> {
        if !self.overlaps(other) {
            return vec![self.clone()];
        }
        let below = KeyRange::new(self.lo.clone(), Some(other.lo.clone())).ok();
        let above = other.hi.as_ref().and_then(|hi| KeyRange::new(hi.clone(), self.hi.clone()).ok());
        below.into_iter().chain(above).collect()
    }

    /// Whether the range goes on above this bound.
    pub(crate) fn ends_after(&self, bound: &KeyBytes) -> bool {
        self.hi.as_ref().is_none_or(|hi| hi > bound)
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hi {
            Some(hi) => write!(f, "[{}, {})", self.lo.to_hex(), hi.to_hex()),
            None => write!(f, "[{}, ∞)", self.lo.to_hex()),
        }
    }
}
