//! Page blobs: pages of 512 bytes that are written in place.
//!
//! A row has the pages of 64 KiB and the generation they were written in. A snapshot begins a new generation: later
//! writes copy the rows that they change, and the snapshot reads those of its own generation or the last before it.

mod bits;
mod holes;
mod prune;
mod ranges;
mod rows;

use std::ops::Range;

use bytes::Bytes;

use super::home::{Change, Home, Read, TRIES_MAX};
use super::items::{check_write, fresh, there};
use super::pending::Unneeded;
use super::rows::Step;
use super::upload::collect;
use super::{BlobStore, StoreError};
use crate::checksum::Digester;
use crate::conditions::Conditions;
use crate::model::{Blob, BlobKind, NewBlob, Props, SequenceAction, Upload, Written};
use crate::name::BlobName;

use self::bits::{Bits, PAGE_BYTES};
pub(super) use self::bits::{UNIT_BYTES, Unit};
pub(super) use self::prune::{Place, START};
pub(super) use self::rows::{View, find_units, put, read_units};

/// Bytes of a page blob at most: 8 TiB, as with the service.
pub const PAGE_BLOB_BYTES_MAX: u64 = 8 << 40;
/// Bytes that can be written at once, as with the service.
pub const PAGES_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Rows that are cleared one by one; more are hidden by a hole.
const CLEARED_ROWS_MAX: usize = 256;

impl BlobStore {
    /// Makes a page blob of zeros.
    pub async fn create_pages(
        &self,
        name: &BlobName,
        size: u64,
        sequence: i64,
        new: &NewBlob,
        conditions: &Conditions,
    ) -> Result<Written, StoreError> {
        let home = self.home_of_request(name).await?;
        check_size(size)?;
        let decide = |found: Option<&Blob>| {
            let now = self.next_time(found);
            let content = self.new_number();
            let props = Props { sequence, ..Props::of_new(new, now) };
            let blob = Blob { size, content, props, ..fresh(name, BlobKind::Page, found, now) };
            self.replace(&home, found, blob, conditions)
        };
        Ok(Written { blob: self.change(&home, decide).await?, digests: None })
    }

    /// Writes pages from a byte on.
    pub async fn put_pages(
        &self,
        name: &BlobName,
        first: u64,
        upload: Upload,
        conditions: &Conditions,
    ) -> Result<Written, StoreError> {
        let home = self.home_of_request(name).await?;
        if upload.length > PAGES_BYTES_MAX {
            return Err(StoreError::TooLarge { max: PAGES_BYTES_MAX });
        }
        let range = first..first.saturating_add(upload.length);
        // What is refused now need not be sent; it is decided when the bytes are there.
        let found = self.row(&home, 0, Read::Head).await?;
        check_pages(name, found.as_ref(), &range, conditions)?;
        let Upload { length, bytes, expected, wanted } = upload;
        self.charge(&home, length);
        let (data, digests) = collect(bytes, length, Digester::new(expected.wanted(wanted))).await?;
        expected.check(&digests)?;
        let blob = self.change_pages(&home, &range, conditions, Some(&data)).await?;
        Ok(Written { blob, digests: Some(digests) })
    }

    /// Makes pages read as zeros that were never written.
    pub async fn clear_pages(
        &self,
        name: &BlobName,
        range: Range<u64>,
        conditions: &Conditions,
    ) -> Result<Written, StoreError> {
        let home = self.home_of_request(name).await?;
        Ok(Written { blob: self.change_pages(&home, &range, conditions, None).await?, digests: None })
    }

    async fn change_pages(
        &self,
        home: &Home,
        range: &Range<u64>,
        conditions: &Conditions,
        data: Option<&Bytes>,
    ) -> Result<Blob, StoreError> {
        let _turn = self.turn(home).await;
        for _ in 0..TRIES_MAX {
            let found = self.row(home, 0, Read::Head).await?;
            let found = check_pages(&home.name, found.as_ref(), range, conditions)?;
            if data.is_none() && self.settle_hole(home, found).await? {
                continue;
            }
            let mut blob = found.clone();
            let steps = match data {
                Some(data) => self.written(home, &blob, range, data).await?,
                None => self.cleared(home, &mut blob, range).await?,
            };
            self.touch(&mut blob);
            if let Some(blob) = self.put_row(home, Some(found), Change::new(blob).after(steps)).await? {
                return Ok(blob);
            }
        }
        Err(StoreError::Contended(home.name.to_string()))
    }

    /// Gives a page blob another size.
    pub async fn resize(
        &self,
        name: &BlobName,
        size: u64,
        conditions: &Conditions,
    ) -> Result<Blob, StoreError> {
        let home = self.home_of_request(name).await?;
        check_size(size)?;
        let _turn = self.turn(&home).await;
        for _ in 0..TRIES_MAX {
            let found = self.row(&home, 0, Read::Head).await?;
            let found = page_blob(name, found.as_ref(), conditions)?;
            if size < found.size && self.settle_hole(&home, found).await? {
                continue;
            }
            let mut blob = found.clone();
            // What is cut off must not come back when the blob grows again.
            let steps = match size < found.size {
                true => self.cleared(&home, &mut blob, &(size..found.size)).await?,
                false => Vec::new(),
            };
            blob.size = size;
            self.touch(&mut blob);
            if let Some(blob) = self.put_row(&home, Some(found), Change::new(blob).after(steps)).await? {
                return Ok(blob);
            }
        }
        Err(StoreError::Contended(name.to_string()))
    }

    /// Changes the sequence number of a page blob.
    pub async fn set_sequence(
        &self,
        name: &BlobName,
        action: SequenceAction,
        conditions: &Conditions,
    ) -> Result<Blob, StoreError> {
        let home = self.home_of_request(name).await?;
        let decide = |found: Option<&Blob>| {
            let mut blob = page_blob(name, found, conditions)?.clone();
            blob.props.sequence = match action {
                SequenceAction::Max(number) => number.max(blob.props.sequence),
                SequenceAction::Update(number) => number,
                SequenceAction::Increment => {
                    blob.props.sequence.checked_add(1).ok_or(StoreError::SequenceNumber)?
                }
            };
            self.touch(&mut blob);
            Ok(Change::new(blob))
        };
        self.change(&home, decide).await
    }

    /// What writes pages.
    async fn written(
        &self,
        home: &Home,
        blob: &Blob,
        range: &Range<u64>,
        data: &Bytes,
    ) -> Result<Vec<Step>, StoreError> {
        let mut steps = Vec::new();
        for unit in units_of(range) {
            let start = unit * UNIT_BYTES;
            let (from, to) = (range.start.max(start), range.end.min(start + UNIT_BYTES));
            let data = &data[(from - range.start) as usize..(to - range.start) as usize];
            // Only what keeps some of its bytes needs to be read.
            let mut pages = match data.len() as u64 == UNIT_BYTES {
                true => Unit::default(),
                false => self.unit(home, blob, unit).await?,
            };
            pages.write(page_in_unit(from - start), data);
            steps.push(put(home, blob.content, blob.generation, unit, &pages));
        }
        Ok(steps)
    }

    /// What clears pages. Many units are hidden by a hole in the blob, which begins a generation.
    async fn cleared(
        &self,
        home: &Home,
        blob: &mut Blob,
        range: &Range<u64>,
    ) -> Result<Vec<Step>, StoreError> {
        let whole = range.start.div_ceil(UNIT_BYTES)..range.end / UNIT_BYTES;
        let mut steps = Vec::new();
        if !whole.is_empty() {
            let rows_max = CLEARED_ROWS_MAX + 1;
            let find = rows::find_states(home, &View::of(blob), &whole, rows_max);
            let (states, next) = rows::read_states(&self.read(home, find).await?, &View::of(blob), rows_max)?;
            // Rows that a hole hides already are read too, and are not among the states: behind them may be others.
            if next.is_some() {
                blob.generation += 1;
                holes::add(blob, &whole);
                // Rows that nobody sees any more are removed by the sweep.
                steps.push(self.pend(home, &Unneeded::Content(blob.content)));
            } else {
                for state in states.iter().filter(|state| !state.valid.is_empty()) {
                    let before = if state.generation == blob.generation { state.written } else { Bits::NONE };
                    let written = before.or(state.valid);
                    let pages = Unit { written, ..Unit::default() };
                    steps.push(put(home, blob.content, blob.generation, state.unit, &pages));
                }
            }
        }
        for unit in units_of(range).filter(|unit| !whole.contains(unit)) {
            let start = unit * UNIT_BYTES;
            let (from, to) = (range.start.max(start), range.end.min(start + UNIT_BYTES));
            let mut pages = self.unit(home, blob, unit).await?;
            let had = pages.valid;
            pages.clear(page_in_unit(from - start), page_in_unit(to - start));
            if pages.valid != had {
                steps.push(put(home, blob.content, blob.generation, unit, &pages));
            }
        }
        Ok(steps)
    }

    /// A unit as the blob has it, to be written in the blob's generation.
    async fn unit(&self, home: &Home, blob: &Blob, unit: u64) -> Result<Unit, StoreError> {
        let rows = self.read(home, find_units(home, &View::of(blob), &(unit..unit + 1), 1)).await?;
        let found = read_units(&rows, &View::of(blob), 1)?;
        Ok(match found.units.into_iter().next() {
            Some(found) if found.generation == blob.generation => found.pages,
            Some(found) => found.pages.inherited(),
            None => Unit::default(),
        })
    }
}

fn units_of(range: &Range<u64>) -> Range<u64> {
    range.start / UNIT_BYTES..range.end.div_ceil(UNIT_BYTES)
}

fn page_in_unit(offset: u64) -> u32 {
    u32::try_from(offset / PAGE_BYTES).expect("a unit is small")
}

fn check_size(size: u64) -> Result<(), StoreError> {
    if size > PAGE_BLOB_BYTES_MAX {
        return Err(StoreError::TooLarge { max: PAGE_BLOB_BYTES_MAX });
    }
    match size.is_multiple_of(PAGE_BYTES) {
        true => Ok(()),
        false => Err(StoreError::InvalidPageRange { size }),
    }
}

/// The blob, if these pages of it may be written.
fn check_pages<'a>(
    name: &BlobName,
    found: Option<&'a Blob>,
    range: &Range<u64>,
    conditions: &Conditions,
) -> Result<&'a Blob, StoreError> {
    let found = page_blob(name, found, conditions)?;
    conditions.check_sequence(found.props.sequence)?;
    let is_whole = range.start.is_multiple_of(PAGE_BYTES) && range.end.is_multiple_of(PAGE_BYTES);
    match is_whole && !range.is_empty() && range.end <= found.size {
        true => Ok(found),
        false => Err(StoreError::InvalidPageRange { size: found.size }),
    }
}

fn page_blob<'a>(
    name: &BlobName,
    found: Option<&'a Blob>,
    conditions: &Conditions,
) -> Result<&'a Blob, StoreError> {
    let found = there(found).ok_or_else(|| StoreError::no_blob(name))?;
    check_write(conditions, found)?;
    match found.kind {
        BlobKind::Page => Ok(found),
        BlobKind::Block | BlobKind::Append => Err(StoreError::WrongKind(name.to_string())),
    }
}
