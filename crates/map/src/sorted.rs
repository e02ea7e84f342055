//! Sorted keys, searchable without touching their bytes in most cases.
//!
//! Memory is the cost of a search in a large map: a column of 64-bit key pieces is searched first, in two short
//! stretches, so that memory is waited for twice where a binary search would wait about seven times. Full keys are
//! compared only where pieces are equal.

use std::cmp::Ordering;
use std::hint::black_box;

use crate::encode::KeyBytes;

/// Pieces between two samples in a chunk of up to a thousand: the square root of it, so that both stretches are short.
pub(crate) const STRIDE: usize = 32;
/// Samples there are at most; with more pieces the stride is a multiple of [`STRIDE`].
const SAMPLES: usize = 32;
/// Pieces in a cache line.
const LINE: usize = 8;

/// Sorted keys, each once.
#[derive(Debug)]
pub(crate) struct SortedKeys {
    /// What all keys begin with, and its first bytes as a piece.
    shared: Box<[u8]>,
    shared_piece: u64,
    /// The next 8 bytes of each key, big-endian, zeros beyond its end.
    pieces: Box<[u64]>,
    /// Every so many pieces, the greatest number beyond the last. Here and not behind a pointer: one wait less.
    samples: [u64; SAMPLES],
    stride: usize,
    rests: Rests,
}

/// Where a key is among the sorted ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// How many keys are at or below it.
    pub(crate) count: usize,
    /// Whether the last of those is the key itself.
    pub(crate) exact: bool,
}

/// What the keys have beyond what they share.
#[derive(Debug)]
enum Rests {
    /// All have this many bytes, at most 8: their pieces say it all.
    Pieces(usize),
    /// Anything else.
    Bytes {
        /// Where each ends in `bytes`.
        ends: Box<[u32]>,
        bytes: Box<[u8]>,
    },
}

impl SortedKeys {
    pub(crate) fn new<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone) -> SortedKeys {
        let (first, last) =
            (keys.clone().next().unwrap_or_default(), keys.clone().last().unwrap_or_default());
        let shared = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let rests = keys.clone().map(|key| &key[shared..]);
        let length = first.len() - shared;
        let pieces: Box<[u64]> = rests.clone().map(piece).collect();
        let stride = STRIDE * pieces.len().div_ceil(STRIDE * SAMPLES).max(1);
        let mut samples = [u64::MAX; SAMPLES];
        samples.iter_mut().zip(pieces.iter().step_by(stride)).for_each(|(sample, piece)| *sample = *piece);
        SortedKeys {
            shared: first[..shared].into(),
            shared_piece: piece(&first[..shared]),
            samples,
            stride,
            pieces,
            rests: match length <= 8 && keys.clone().all(|key| key.len() == first.len()) {
                true => Rests::Pieces(length),
                false => Rests::of(rests),
            },
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// How many keys are at or below this one.
    pub(crate) fn at_or_below(&self, key: &[u8]) -> usize {
        self.search(key, |_| ()).count
    }

    /// Finds a key; calls `begin` ahead of that with an index at most a stride below the answer.
    #[inline]
    pub(crate) fn search(&self, key: &[u8], begin: impl Fn(usize)) -> Found {
        let (wanted, order) = self.wanted(key);
        match order {
            Ordering::Less => return Found { count: 0, exact: false },
            Ordering::Greater => return Found { count: self.len(), exact: false },
            Ordering::Equal => {}
        }
        let after = self.pieces_at_or_below(wanted, begin);
        if after == 0 || self.pieces[after - 1] != wanted {
            return Found { count: after, exact: false };
        }
        // Keys with equal pieces differ further on, or in length.
        let rest_length = key.len() - self.shared.len();
        match &self.rests {
            // With equal pieces the shorter one is continued by zeros in the longer.
            Rests::Pieces(length) => match length.cmp(&rest_length) {
                Ordering::Greater => Found { count: after - 1, exact: false },
                order => Found { count: after, exact: order.is_eq() },
            },
            Rests::Bytes { .. } => self.search_rests(wanted, after, &key[self.shared.len()..]),
        }
    }

    /// The piece of a key, and how its beginning compares with what all keys share.
    #[inline]
    fn wanted(&self, key: &[u8]) -> (u64, Ordering) {
        let shared = self.shared.len();
        if shared < 8 && key.len() >= shared {
            // Without a look at the bytes of `shared`, which are elsewhere.
            let whole = piece(key);
            let beginning = whole & !(u64::MAX >> (8 * shared));
            let wanted = if key.len() <= 8 { whole << (8 * shared) } else { piece(&key[shared..]) };
            return (wanted, beginning.cmp(&self.shared_piece));
        }
        let (head, rest) = key.split_at(key.len().min(shared));
        (piece(rest), head.cmp(&self.shared))
    }

    #[inline]
    fn pieces_at_or_below(&self, wanted: u64, begin: impl Fn(usize)) -> usize {
        let samples = count(&self.samples, wanted).min(self.len().div_ceil(self.stride));
        let Some(sample) = samples.checked_sub(1) else { return 0 };
        let start = sample * self.stride;
        begin(start);
        let stretch = &self.pieces[start..];
        start
            + match stretch.first_chunk::<STRIDE>() {
                Some(stretch) if self.stride == STRIDE => count(stretch, wanted),
                _ => stretch[..stretch.len().min(self.stride)].partition_point(|piece| *piece <= wanted),
            }
    }

    /// Among keys that have the same piece, the last of which is before `after`.
    fn search_rests(&self, wanted: u64, after: usize, rest: &[u8]) -> Found {
        let before = match after.checked_sub(2) {
            Some(index) if self.pieces[index] == wanted => {
                self.pieces[..after].partition_point(|piece| *piece < wanted)
            }
            _ => after - 1,
        };
        let (mut low, mut high, mut exact) = (before, after, false);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.rests.get(middle).cmp(rest) {
                Ordering::Greater => high = middle,
                order => {
                    low = middle + 1;
                    exact = order.is_eq();
                }
            }
        }
        Found { count: low, exact }
    }

    pub(crate) fn get(&self, index: usize) -> KeyBytes {
        let piece = self.pieces[index].to_be_bytes();
        let rest = match &self.rests {
            Rests::Pieces(length) => &piece[..*length],
            Rests::Bytes { .. } => self.rests.get(index),
        };
        KeyBytes::new([&self.shared, rest].concat())
    }

    /// What it takes in memory beside itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let rests = match &self.rests {
            Rests::Pieces(_) => 0,
            Rests::Bytes { ends, bytes } => size_of_val(&**ends) + bytes.len(),
        };
        self.shared.len() + size_of_val(&*self.pieces) + rests
    }
}

impl Rests {
    fn of<'k>(rests: impl ExactSizeIterator<Item = &'k [u8]>) -> Rests {
        let mut ends = Vec::with_capacity(rests.len());
        let mut bytes = Vec::new();
        for rest in rests {
            bytes.extend_from_slice(rest);
            // A chunk has about a thousand keys of at most a few KB.
            ends.push(u32::try_from(bytes.len()).expect("keys of a chunk are below 4 GB"));
        }
        Rests::Bytes { ends: ends.into(), bytes: bytes.into() }
    }

    fn get(&self, index: usize) -> &[u8] {
        match self {
            Rests::Pieces(_) => &[],
            Rests::Bytes { ends, bytes } => {
                let start = if index == 0 { 0 } else { ends[index - 1] };
                &bytes[start as usize..ends[index] as usize]
            }
        }
    }
}

/// How many of the sorted pieces are at or below the wanted one. Looks at one piece of each cache line, so that all
/// lines come from memory at once, then at those of one line; without a branch to mispredict.
#[inline]
fn count(pieces: &[u64; STRIDE], wanted: u64) -> usize {
    black_box(pieces[0]);
    let below = |piece: u64| usize::from(piece <= wanted);
    let start = LINE * (below(pieces[LINE]) + below(pieces[2 * LINE]) + below(pieces[3 * LINE]));
    start + pieces[start..start + LINE].iter().map(|piece| below(*piece)).sum::<usize>()
}

/// The first 8 bytes, big-endian, with zeros beyond the end.
#[inline]
fn piece(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let missing = 8 * (8 - bytes.len());
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        // The two overlap, where they are the same bits.
        (Some(first), Some(last)) => {
            let (first, last) = (u64::from(u32::from_be_bytes(*first)), u64::from(u32::from_be_bytes(*last)));
            (first << 32) | (last << missing)
        }
        _ if bytes.is_empty() => 0,
        _ => bytes.iter().fold(0, |piece, byte| (piece << 8) | u64::from(*byte)) << missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_the_first_bytes_with_zeros_behind() {
        let bytes = [0x81, 0x02, 0xff, 0x04, 0x05, 0x00, 0x07, 0x08, 0x09];
        for length in 0..=bytes.len() {
            let mut padded = [0; 8];
            padded[..length.min(8)].copy_from_slice(&bytes[..length.min(8)]);
            assert_eq!(piece(&bytes[..length]), u64::from_be_bytes(padded), "{length} bytes");
        }
    }

    #[test]
    fn keys_are_found_whatever_their_number_and_beginning() {
        for (number, shared) in [(1, 0), (7, 3), (32, 8), (33, 0), (1000, 1), (1024, 9), (1025, 2), (2500, 7)]
        {
            let key = |value: u64| [vec![0xff; shared], value.to_be_bytes()[4..].to_vec()].concat();
            let keys: Vec<Vec<u8>> = (0..number).map(|index| key(3 * index + 1)).collect();
            let sorted = SortedKeys::new(keys.iter().map(Vec::as_slice));
            for value in 0..3 * number + 2 {
                let count = value.div_ceil(3).min(number) as usize;
                let expected = Found { count, exact: value % 3 == 1 && value < 3 * number };
                let found = sorted.search(&key(value), |_| ());
                assert_eq!(found, expected, "{value} of {number} after {shared}");
            }
            assert_eq!(sorted.at_or_below(&[]), 0);
            assert_eq!(sorted.at_or_below(&[0xff; 20]), keys.len());
        }
    }

    #[test]
    fn no_keys_at_all() {
        let none = SortedKeys::new([].into_iter());
        assert_eq!((none.len(), none.at_or_below(&[0xff; 9]), none.at_or_below(&[])), (0, 0, 0));
    }
}
