//! Reads a content of pages. What was never written reads as zeros, so rows that are gone must not pass for that: after
//! each chunk the blob's row is looked at.

use std::collections::VecDeque;
use std::ops::Range;

use super::{ByteStream, ObjectError, PIECE_BYTES, Reader, broken, zeros};
use crate::store::pages::{self, UNIT_BYTES, Unit, View};
use crate::store::rows::{Step, read_blob, stored_snapshot};
use crate::store::statements;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};

/// Rows that are read together: a megabyte if all pages are valid.
const ROWS_MAX: usize = 16;

/// Bytes of the blob in order.
pub(super) fn read(reader: Reader, range: Range<u64>) -> ByteStream {
    let known_to = range.start;
    let pages = Pages { reader, range, known_to, units: VecDeque::new() };
    let pieces =
        stream::try_unfold(
            pages,
            |mut pages| async move { Ok(pages.next().await?.map(|piece| (piece, pages))) },
        );
    pieces.boxed()
}

struct Pages {
    reader: Reader,
    /// What is not sent yet.
    range: Range<u64>,
    /// Up to where all units are known.
    known_to: u64,
    /// Units that were read.
    units: VecDeque<(u64, Unit)>,
}

impl Pages {
    async fn next(&mut self) -> Result<Option<Bytes>, ObjectError> {
        let from = self.range.start;
        if self.range.is_empty() {
            return Ok(None);
        }
        while self.known_to <= from {
            self.fill().await?;
        }
        let to = self.range.end.min(self.known_to).min(from + PIECE_BYTES as u64);
        let is_sparse = self.units.front().is_none_or(|(unit, _)| unit * UNIT_BYTES >= to);
        self.range.start = to;
        if is_sparse {
            return Ok(Some(zeros((to - from) as usize)));
        }
        let mut piece = vec![0; (to - from) as usize];
        while let Some((unit, pages)) = self.units.front() {
            let (start, end) = (unit * UNIT_BYTES, (unit + 1) * UNIT_BYTES);
            let (first, last) = (start.max(from), end.min(to));
            if first < last {
                pages.read_into(first - start, &mut piece[(first - from) as usize..(last - from) as usize]);
            }
            if end > to {
                break;
            }
            self.units.pop_front();
        }
        Ok(Some(piece.into()))
    }

    /// Reads the next rows.
    async fn fill(&mut self) -> Result<(), ObjectError> {
        let units = self.known_to / UNIT_BYTES..self.range.end.div_ceil(UNIT_BYTES);
        let reader = &mut self.reader;
        loop {
            let view = View { content: reader.content, generation: reader.generation, holes: &reader.holes };
            let rows = reader.rows(pages::find_units(&reader.home, &view, &units, ROWS_MAX)).await?;
            let found = pages::read_units(&rows, &view, ROWS_MAX).map_err(broken)?;
            let row = Step::new(&reader.home, |dialect| statements::texts(dialect).head.clone());
            let now = reader.rows(row.bind(stored_snapshot(reader.snapshot))).await?;
            let now = now.first().map(read_blob).transpose().map_err(broken)?;
            let Some(now) = now.filter(|now| now.content == reader.content) else {
                return Err(reader.gone());
            };
            // A later generation may have made rows of this one needless, which may be gone since.
            if now.generation != reader.generation {
                (reader.generation, reader.holes) = (now.generation, now.props.holes);
                continue;
            }
            self.known_to = match found.next {
                Some(next) => next * UNIT_BYTES,
                None => self.range.end,
            };
            self.units.extend(found.units.into_iter().map(|found| (found.unit, found.pages)));
            return Ok(());
        }
    }
}
