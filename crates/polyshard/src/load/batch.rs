//! Rows that are sent together, and ranges of rows.

use std::ops::Range;
use std::str::FromStr;

use bytes::Bytes;

/// Rows sent in one COPY: enough that its beginning and end do not count, few enough to look for a bad one among them.
pub const ROWS_MAX: usize = 20_000;
/// Bytes sent in one COPY.
pub const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Rows of the file that are sent together.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The number of its first row in the file, from 1.
    pub first: u64,
    /// The line of each row, or its number where there are no lines.
    pub lines: Vec<u64>,
    /// Where each row ends.
    pub ends: Vec<usize>,
    pub bytes: Bytes,
}

impl Batch {
    /// The bytes of some of its rows.
    pub fn bytes_of(&self, rows: Range<usize>) -> Bytes {
        let start = rows.start.checked_sub(1).map_or(0, |before| self.ends[before]);
        let end = rows.end.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.bytes.slice(start..end)
    }

    /// All its rows.
    pub fn rows(&self) -> Range<usize> {
        0..self.ends.len()
    }

    /// Numbers of some of its rows in the file.
    pub fn span(&self, rows: &Range<usize>) -> Span {
        Span { first: self.first + rows.start as u64, last: self.first + rows.end as u64 - 1 }
    }
}

/// Gathers rows into batches.
#[derive(Debug, Default)]
pub struct Gather {
    first: u64,
    lines: Vec<u64>,
    ends: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Gather {
    /// Counts the row that was just appended; a batch, if it is full.
    pub fn count(&mut self, number: u64, line: u64) -> Option<Batch> {
        if self.ends.is_empty() {
            self.first = number;
        }
        self.lines.push(line);
        self.ends.push(self.bytes.len());
        (self.ends.len() >= ROWS_MAX || self.bytes.len() >= BYTES_MAX).then(|| self.take()).flatten()
    }

    /// What was gathered since the last batch.
    pub fn take(&mut self) -> Option<Batch> {
        if self.ends.is_empty() {
            return None;
        }
        let whole = std::mem::take(self);
        Some(Batch { first: whole.first, lines: whole.lines, ends: whole.ends, bytes: whole.bytes.into() })
    }
}

/// Rows by their numbers, from 1, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Span {
    pub first: u64,
    pub last: u64,
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str, open: u64| {
            if text.is_empty() {
                Ok(open)
            } else {
                text.parse().map_err(|_| format!("{text:?} is no number"))
            }
        };
        let span = Span { first: number(first, 1)?, last: number(last, u64::MAX)? };
        if span.first == 0 || span.last < span.first {
            return Err(format!("{text:?} has no rows: rows are counted from 1"));
        }
        Ok(span)
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.last {
            u64::MAX => write!(f, "{}-", self.first),
            last => write!(f, "{}-{last}", self.first),
        }
    }
}

/// Joins spans that follow one another.
pub fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| span.first);
    let mut out: Vec<Span> = Vec::new();
    for span in spans {
        match out.last_mut() {
            Some(last) if span.first <= last.last.saturating_add(1) => last.last = last.last.max(span.last),
            _ => out.push(span),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_joined() {
        let span = |text: &str| text.parse::<Span>().unwrap();
        assert_eq!(span("7-"), Span { first: 7, last: u64::MAX });
        assert_eq!(span("7"), Span { first: 7, last: 7 });
        assert!(
            "0-3".parse::<Span>().is_err() && "9-3".parse::<Span>().is_err() && "x".parse::<Span>().is_err()
        );
        let shown: Vec<String> = joined(vec![span("9-12"), span("1-4"), span("5-6"), span("13-")])
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(shown, ["1-6", "9-"]);
    }

    #[test]
    fn a_batch_gives_the_bytes_of_its_rows() {
        let mut gather = Gather::default();
        for (number, row) in [(5, "a\n"), (6, "bb\n"), (7, "c\n")] {
            gather.bytes.extend_from_slice(row.as_bytes());
            assert!(gather.count(number, number + 1).is_none());
        }
        let batch = gather.take().unwrap();
        assert_eq!(
            (&batch.bytes_of(1..2)[..], &batch.bytes_of(0..3)[..]),
            (&b"bb\n"[..], &b"a\nbb\nc\n"[..])
        );
        assert_eq!(batch.span(&(1..3)), Span { first: 6, last: 7 });
        assert!(gather.take().is_none());
    }
}
