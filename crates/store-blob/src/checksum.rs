//! MD5 and CRC-64/NVME, computed while bytes pass by and compared before anything is committed.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};

use crate::model::Expected;

/// The polynomial of CRC-64/NVME, its lowest power first.
const POLYNOMIAL: u64 = 0x9A6C_9329_AC4B_C9B5;
/// Bytes that one step takes.
const STEP: usize = 16;

/// For each place in a step, what a byte there does to the sum.
static TABLES: [[u64; 256]; STEP] = tables();

const fn tables() -> [[u64; 256]; STEP] {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut place = 1;
    while place < STEP {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[place - 1][byte];
            tables[place][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        place += 1;
    }
    tables
}

/// A CRC-64/NVME on its way.
#[derive(Clone, Copy, Debug)]
pub struct Crc64(u64);

impl Default for Crc64 {
    fn default() -> Self {
        Crc64(u64::MAX)
    }
}

impl Crc64 {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        let mut sum = self.0;
        let (steps, rest) = bytes.as_chunks::<STEP>();
        for step in steps {
            let start = sum.to_le_bytes();
            let mut next = 0;
            for (place, byte) in step.iter().enumerate() {
                let byte = if place < start.len() { byte ^ start[place] } else { *byte };
                next ^= TABLES[STEP - 1 - place][usize::from(byte)];
            }
            sum = next;
        }
        for byte in rest {
            sum = (sum >> 8) ^ TABLES[0][usize::from(sum.to_le_bytes()[0] ^ byte)];
        }
        self.0 = sum;
    }

    /// The sum of all that was added.
    pub fn finish(self) -> u64 {
        !self.0
    }
}

/// Which sums are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// MD5, which costs the most.
    pub md5: bool,
    /// CRC-64/NVME.
    pub crc64: bool,
}

/// Computes the sums of bytes that pass by.
#[derive(Clone, Debug, Default)]
pub struct Digester {
    md5: Option<Md5>,
    crc64: Option<Crc64>,
    length: u64,
}

impl Digester {
    /// Sums of nothing so far.
    pub fn new(wanted: Wanted) -> Digester {
        Digester { md5: wanted.md5.then(Md5::new), crc64: wanted.crc64.then(Crc64::default), length: 0 }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(crc64) = &mut self.crc64 {
            crc64.update(bytes);
        }
        self.length += bytes.len() as u64;
    }

    /// The sums of all that was added.
    pub fn finish(self) -> Digests {
        Digests {
            md5: self.md5.map(|md5| md5.finalize().into()),
            crc64: self.crc64.map(Crc64::finish),
            length: self.length,
        }
    }
}

/// The sums that were wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// The MD5.
    pub md5: Option<[u8; 16]>,
    /// The CRC-64/NVME.
    pub crc64: Option<u64>,
    /// How many bytes there were.
    pub length: u64,
}

impl Digests {
    /// The sums of these bytes.
    pub fn of(bytes: &[u8], wanted: Wanted) -> Digests {
        let mut digester = Digester::new(wanted);
        digester.update(bytes);
        digester.finish()
    }

    /// As in `Content-MD5`.
    pub fn md5_text(&self) -> Option<String> {
        self.md5.map(|md5| STANDARD.encode(md5))
    }

    /// As in `x-ms-content-crc64`.
    pub fn crc64_text(&self) -> Option<String> {
        self.crc64.map(crc64_text)
    }
}

/// As in `x-ms-content-crc64`.
pub fn crc64_text(sum: u64) -> String {
    STANDARD.encode(sum.to_le_bytes())
}

/// Reads an MD5 as headers have it.
pub fn parse_md5(text: &str) -> Option<[u8; 16]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// Reads a CRC-64 as headers have it.
pub fn parse_crc64(text: &str) -> Option<u64> {
    STANDARD.decode(text).ok()?.try_into().ok().map(u64::from_le_bytes)
}

impl Expected {
    /// The sums that a comparison needs, beside those that are wanted anyway.
    pub fn wanted(&self, anyway: Wanted) -> Wanted {
        Wanted { md5: anyway.md5 || self.md5.is_some(), crc64: anyway.crc64 || self.crc64.is_some() }
    }

    /// Compares. What is expected and was not computed does not pass.
    pub fn check(&self, sums: &Digests) -> Result<(), ChecksumError> {
        if self.md5.is_some() && self.md5 != sums.md5 {
            return Err(ChecksumError::Md5 { expected: self.md5, actual: sums.md5 });
        }
        if self.crc64.is_some() && self.crc64 != sums.crc64 {
            return Err(ChecksumError::Crc64 { expected: self.crc64, actual: sums.crc64 });
        }
        Ok(())
    }
}

/// Bytes that are not those the client meant to send; nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumError {
    /// By their MD5.
    Md5 {
        /// What the client says.
        expected: Option<[u8; 16]>,
        /// What came.
        actual: Option<[u8; 16]>,
    },
    /// By their CRC-64.
    Crc64 {
        /// What the client says.
        expected: Option<u64>,
        /// What came.
        actual: Option<u64>,
    },
}

impl ChecksumError {
    /// What was expected and what came, as headers have them.
    pub fn texts(&self) -> (String, String) {
        let md5 = |sum: &Option<[u8; 16]>| sum.map(|sum| STANDARD.encode(sum)).unwrap_or_default();
        let crc64 = |sum: &Option<u64>| sum.map(crc64_text).unwrap_or_default();
        match self {
            ChecksumError::Md5 { expected, actual } => (md5(expected), md5(actual)),
            ChecksumError::Crc64 { expected, actual } => (crc64(expected), crc64(actual)),
        }
    }
}

impl fmt::Display for ChecksumError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            ChecksumError::Md5 { .. } => "MD5",
            ChecksumError::Crc64 { .. } => "CRC64",
        };
        let (expected, actual) = self.texts();
        write!(to, "the bytes that came have the {name} {actual} and not {expected}; send them again")
    }
}

impl std::error::Error for ChecksumError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOTH: Wanted = Wanted { md5: true, crc64: true };

    /// Bit by bit, as the standard defines it.
    fn slow(bytes: &[u8]) -> u64 {
        let step = |sum: u64, _| if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
        !bytes.iter().fold(u64::MAX, |sum, byte| (0..8).fold(sum ^ u64::from(*byte), step))
    }

    #[test]
    fn the_sums_are_those_of_the_standards() {
        let sums = Digests::of(b"123456789", BOTH);
        assert_eq!(sums.crc64, Some(0xAE8B_1486_0A79_9888));
        assert_eq!(sums.md5_text().as_deref(), Some("JfnnlDI7RTiF9RgfG2JNCw=="));
        assert_eq!(sums.crc64_text().as_deref(), Some("iJh5CoYUi64="));
        assert_eq!(sums.length, 9);
        assert_eq!(Digests::of(b"", BOTH).crc64, Some(0));
        assert_eq!(Digests::of(b"", BOTH).md5_text().as_deref(), Some("1B2M2Y8AsgTpgAmY7PhCfg=="));
        assert_eq!(Digests::of(b"x", Wanted::default()), Digests { length: 1, ..Digests::default() });
    }

    #[test]
    fn what_differs_is_refused_and_told() {
        let sums = Digests::of(b"123456789", BOTH);
        let right = Expected { md5: sums.md5, crc64: sums.crc64 };
        assert_eq!(right.check(&sums), Ok(()));
        assert_eq!(Expected::default().check(&sums), Ok(()));
        let wrong = Expected { crc64: Some(1), ..right };
        let error = wrong.check(&sums).unwrap_err();
        assert_eq!(error.texts(), ("AQAAAAAAAAA=".to_owned(), "iJh5CoYUi64=".to_owned()));
        let wrong = Expected { md5: Some([0; 16]), ..right };
        assert!(matches!(wrong.check(&sums), Err(ChecksumError::Md5 { .. })));
        // Nothing passes because nobody looked.
        assert!(right.check(&Digests::default()).is_err());
        assert_eq!(right.wanted(Wanted::default()), BOTH);
        assert_eq!(parse_md5("JfnnlDI7RTiF9RgfG2JNCw=="), sums.md5);
        assert_eq!(parse_crc64("iJh5CoYUi64="), sums.crc64);
        assert_eq!((parse_md5("iJh5CoYUi64="), parse_crc64("x")), (None, None));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_in_which_parts_bytes_come(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            cuts in prop::collection::vec(0..200usize, 0..5),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut digests = Digester::new(BOTH);
            let mut at = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                digests.update(&bytes[at..cut]);
                at = cut;
            }
            let sums = digests.finish();
            prop_assert_eq!(sums, Digests::of(&bytes, BOTH));
            prop_assert_eq!(sums.crc64, Some(slow(&bytes)));
        }
    }
}
