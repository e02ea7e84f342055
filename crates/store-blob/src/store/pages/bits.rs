//! A unit of 64 KiB of a page blob: which of its 128 pages are valid, which were written, and the bytes of those that
//! are valid, one after the other.

/// Bytes of a page.
pub(crate) const PAGE_BYTES: u64 = 512;
/// Pages that are kept in one row.
pub(crate) const UNIT_PAGES: u32 = 128;
/// Bytes of a blob that one row stands for.
pub(crate) const UNIT_BYTES: u64 = PAGE_BYTES * UNIT_PAGES as u64;

/// A set of the pages of a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits(u128);

impl Bits {
    /// No page.
    pub const NONE: Bits = Bits(0);

    /// The pages from one to before another.
    pub fn range(from: u32, to: u32) -> Bits {
        assert!(from <= to && to <= UNIT_PAGES, "pages {from} to {to} are not of one unit");
        if from == to {
            return Bits::NONE;
        }
        Bits((u128::MAX >> (UNIT_PAGES - (to - from))) << from)
    }

    /// As stored: the first page is the lowest bit of the first byte.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// Reads what [`Bits::to_bytes`] made; none for bytes of another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Bits> {
        Some(Bits(u128::from_le_bytes(bytes.try_into().ok()?)))
    }

    /// How many pages there are.
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The pages of both.
    pub fn and(self, other: Bits) -> Bits {
        Bits(self.0 & other.0)
    }

    /// The pages of either.
    pub fn or(self, other: Bits) -> Bits {
        Bits(self.0 | other.0)
    }

    /// The pages that the other does not have.
    pub fn without(self, other: Bits) -> Bits {
        Bits(self.0 & !other.0)
    }

    /// How many of them are before a page.
    fn count_before(self, page: u32) -> u32 {
        self.and(Bits::range(0, page)).count()
    }

    /// Its runs of neighbouring pages, each from one page to before another.
    pub fn runs(self) -> impl Iterator<Item = (u32, u32)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = self.without(Bits::range(0, at)).0;
            if rest == 0 {
                return None;
            }
            let from = rest.trailing_zeros();
            let to = from + (!(self.0 >> from)).trailing_zeros().min(UNIT_PAGES - from);
            at = to;
            Some((from, to))
        })
    }
}

/// The state of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Pages that have bytes; the others read as zeros.
    pub valid: Bits,
    /// Pages written or cleared in this generation.
    pub written: Bits,
    /// The bytes of the valid pages.
    pub bytes: Vec<u8>,
}

impl Unit {
    /// A unit as stored; none if its parts do not fit together.
    pub fn from_stored(valid: &[u8], written: &[u8], bytes: Vec<u8>) -> Option<Unit> {
        let unit = Unit { valid: Bits::from_bytes(valid)?, written: Bits::from_bytes(written)?, bytes };
        (unit.bytes.len() == unit.valid.count() as usize * PAGE_BYTES as usize).then_some(unit)
    }

    /// The same unit at the beginning of the next generation.
    pub fn inherited(self) -> Unit {
        Unit { written: Bits::NONE, ..self }
    }

    /// Writes whole pages from one on.
    pub fn write(&mut self, from: u32, data: &[u8]) {
        let pages = data.len() / PAGE_BYTES as usize;
        assert!(data.len().is_multiple_of(PAGE_BYTES as usize), "whole pages are written");
        let to = from + u32::try_from(pages).expect("a unit is small");
        self.replace(from, to, data);
        let range = Bits::range(from, to);
        self.valid = self.valid.or(range);
        self.written = self.written.or(range);
    }

    /// Clears pages from one to before another. A page that was not valid stays as it was.
    pub fn clear(&mut self, from: u32, to: u32) {
        self.replace(from, to, &[]);
        let range = Bits::range(from, to);
        self.written = self.written.or(range.and(self.valid));
        self.valid = self.valid.without(range);
    }

    fn replace(&mut self, from: u32, to: u32, data: &[u8]) {
        let start = self.valid.count_before(from) as usize * PAGE_BYTES as usize;
        let end = self.valid.count_before(to) as usize * PAGE_BYTES as usize;
        self.bytes.splice(start..end, data.iter().copied());
    }

    /// Copies bytes of the unit into a buffer of zeros, from an offset within the unit on.
    pub fn read_into(&self, offset: u64, to: &mut [u8]) {
        let end = offset + to.len() as u64;
        assert!(end <= UNIT_BYTES, "bytes {offset} to {end} are not of one unit");
        for (first, last) in self.valid.runs() {
            let (start, stop) = (u64::from(first) * PAGE_BYTES, u64::from(last) * PAGE_BYTES);
            let (from, until) = (start.max(offset), stop.min(end));
            if from >= until {
                continue;
            }
            let stored = u64::from(self.valid.count_before(first)) * PAGE_BYTES + (from - start);
            let (stored, length) = (stored as usize, (until - from) as usize);
            let at = (from - offset) as usize;
            to[at..at + length].copy_from_slice(&self.bytes[stored..stored + length]);
        }
    }
}

/// Ranges of pages in the order of a blob, neighbours joined.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// Each from one page of the blob to before another.
    pub runs: Vec<(u64, u64)>,
}

impl Runs {
    /// Adds the pages of a unit, after all that were added before.
    pub fn add(&mut self, unit: u64, bits: Bits) {
        let first = unit * u64::from(UNIT_PAGES);
        for (from, to) in bits.runs() {
            self.add_run(first + u64::from(from), first + u64::from(to));
        }
    }

    fn add_run(&mut self, from: u64, to: u64) {
        match self.runs.last_mut() {
            Some((_, end)) if *end == from => *end = to,
            last => {
                debug_assert!(last.is_none_or(|(_, end)| *end < from), "runs are added in order");
                self.runs.push((from, to));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_bits_of_earlier_versions_are_read() {
        let bits = Bits::from_bytes(&[0b101, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80]).unwrap();
        assert_eq!(bits.runs().collect::<Vec<_>>(), [(0, 1), (2, 3), (127, 128)]);
        assert_eq!(Bits::range(0, 9).to_bytes()[..3], [0xff, 1, 0]);
        assert_eq!(Bits::from_bytes(&[0; 15]), None);
    }

    #[test]
    fn runs_are_found_at_both_ends() {
        assert_eq!(Bits::range(0, 128).runs().collect::<Vec<_>>(), [(0, 128)]);
        assert_eq!(Bits::NONE.runs().count(), 0);
        assert_eq!(Bits::range(5, 5), Bits::NONE);
        let mut runs = Runs::default();
        runs.add(0, Bits::range(120, 128));
        runs.add(1, Bits::range(0, 4).or(Bits::range(6, 7)));
        assert_eq!(runs.runs, [(120, 132), (134, 135)]);
    }

    #[test]
    fn a_unit_is_what_a_plain_buffer_is() {
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut unit, mut plain) = (Unit::default(), vec![0_u8; UNIT_BYTES as usize]);
        let mut valid = [false; UNIT_PAGES as usize];
        for step in 0..2000_u32 {
            let from = next(128) as u32;
            let to = from + 1 + next(u64::from((128 - from).min(9))) as u32;
            let bytes = from as usize * 512..to as usize * 512;
            if next(3) == 0 {
                unit.clear(from, to);
                plain[bytes].fill(0);
                valid[from as usize..to as usize].fill(false);
            } else {
                let fill = (step % 255) as u8 + 1;
                unit.write(from, &vec![fill; bytes.len()]);
                plain[bytes].fill(fill);
                valid[from as usize..to as usize].fill(true);
            }
            assert!(
                (0..128).all(
                    |page| unit.valid.and(Bits::range(page, page + 1)).is_empty() != valid[page as usize]
                )
            );
            let offset = next(UNIT_BYTES);
            let length = next(UNIT_BYTES - offset + 1) as usize;
            let mut read = vec![0; length];
            unit.read_into(offset, &mut read);
            assert_eq!(read, plain[offset as usize..offset as usize + length]);
            let stored =
                Unit::from_stored(&unit.valid.to_bytes(), &unit.written.to_bytes(), unit.bytes.clone());
            assert_eq!(stored.as_ref(), Some(&unit));
        }
    }

    #[test]
    fn damaged_units_are_refused() {
        let valid = Bits::range(0, 2).to_bytes();
        assert_eq!(Unit::from_stored(&valid, &valid, vec![0; 1023]), None);
        assert_eq!(Unit::from_stored(&valid[1..], &valid, vec![0; 1024]), None);
    }
}
