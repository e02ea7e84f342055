//! Which pages of a page blob are valid, and which were written or cleared since a snapshot.

use std::ops::Range;

use super::bits::{Bits, PAGE_BYTES, Runs, UNIT_BYTES, UNIT_PAGES};
use super::rows::{UnitState, View, find_history, find_states, read_history, read_states};
use crate::conditions::Conditions;
use crate::model::{Blob, BlobKind, PageQuery, PageRange, PageRanges, SnapshotId};
use crate::name::BlobName;
use crate::store::home::{Home, Read, TRIES_MAX};
use crate::store::items::{check_read, number, there};
use crate::store::{BlobStore, StoreError};

/// Ranges in an answer at most, as with the service.
pub const RANGES_MAX: usize = 10_000;
/// Rows that are read together; their bytes are not read.
const ROWS_MAX: usize = 2000;

impl BlobStore {
    /// The pages of a blob or snapshot that are valid; or that were written or cleared since another snapshot.
    pub async fn page_ranges(
        &self,
        name: &BlobName,
        snapshot: Option<SnapshotId>,
        query: &PageQuery,
        conditions: &Conditions,
    ) -> Result<PageRanges, StoreError> {
        let home = self.home_of_request(name).await?;
        for _ in 0..TRIES_MAX {
            let found = self.row(&home, number(snapshot), Read::Head).await?;
            let blob = there(found.as_ref()).ok_or_else(|| StoreError::no_blob(name))?;
            check_read(conditions, blob)?;
            if blob.kind != BlobKind::Page {
                return Err(StoreError::WrongKind(name.to_string()));
            }
            let since = match query.since {
                Some(since) => Some(self.earlier(&home, blob, since).await?),
                None => None,
            };
            let max = if query.max == 0 { RANGES_MAX } else { query.max.min(RANGES_MAX) };
            let pages = wanted(query, blob.size)?;
            let mut ranges = match &since {
                Some(since) => self.changed(&home, (since, blob), pages, max).await?,
                None => self.valid(&home, blob, pages, max).await?,
            };
            // Rows that were removed meanwhile were not there to be found.
            if !self.has_kept_rows(&home, blob).await? {
                continue;
            }
            if let Some(since) = &since
                && !self.has_kept_rows(&home, since).await?
            {
                continue;
            }
            let next = ranges.get(max).map(|range| range.first.to_string());
            ranges.truncate(max);
            return Ok(PageRanges { blob: blob.clone(), ranges, next });
        }
        Err(StoreError::Contended(name.to_string()))
    }

    /// Whether no row can have been removed that a blob or snapshot saw when it was read: only those of a content that
    /// it had, or of a generation that was its last one, are.
    async fn has_kept_rows(&self, home: &Home, seen: &Blob) -> Result<bool, StoreError> {
        let now = self.row(home, seen.snapshot, Read::Head).await?;
        Ok(now.is_some_and(|now| (now.content, now.generation) == (seen.content, seen.generation)))
    }

    /// The snapshot to compare with: an earlier one of the same content.
    async fn earlier(&self, home: &Home, blob: &Blob, since: SnapshotId) -> Result<Blob, StoreError> {
        let found = self.row(home, since.0, Read::Head).await?;
        let is_earlier =
            |old: &Blob| old.content == blob.content && (blob.snapshot == 0 || old.snapshot <= blob.snapshot);
        found.filter(|old| old.is_there() && is_earlier(old)).ok_or(StoreError::InvalidSnapshot)
    }

    async fn valid(
        &self,
        home: &Home,
        blob: &Blob,
        pages: Range<u64>,
        max: usize,
    ) -> Result<Vec<PageRange>, StoreError> {
        let mut runs = Runs::default();
        let mut units = units_of(&pages);
        while !units.is_empty() && runs.runs.len() <= max {
            let rows = self.read(home, find_states(home, &View::of(blob), &units, ROWS_MAX)).await?;
            let (states, next) = read_states(&rows, &View::of(blob), ROWS_MAX)?;
            for state in states {
                runs.add(state.unit, state.valid.and(clip(state.unit, &pages)));
            }
            units.start = next.unwrap_or(units.end);
        }
        Ok(runs.runs.into_iter().map(|run| page_range(run, false)).collect())
    }

    async fn changed(
        &self,
        home: &Home,
        (old, new): (&Blob, &Blob),
        pages: Range<u64>,
        max: usize,
    ) -> Result<Vec<PageRange>, StoreError> {
        let units = units_of(&pages);
        let (mut written, mut cleared) = (Runs::default(), Runs::default());
        let mut unit = History::default();
        let mut after = (units.start, -1);
        loop {
            let find = find_history(home, &View::of(new), after, units.end, ROWS_MAX);
            let rows = read_history(&self.read(home, find).await?)?;
            let is_last = rows.len() < ROWS_MAX;
            for row in rows {
                after = (row.unit, row.generation);
                if unit.of.is_some_and(|of| of != row.unit) {
                    std::mem::take(&mut unit).end(&pages, &mut written, &mut cleared);
                }
                unit.add(row, &View::of(old), &View::of(new));
            }
            if is_last || written.runs.len() + cleared.runs.len() > max {
                break;
            }
        }
        // With more rows to come, the last unit may be known in part only; then it is not among the first ranges.
        unit.end(&pages, &mut written, &mut cleared);
        let written = written.runs.into_iter().map(|run| page_range(run, false));
        let mut ranges: Vec<PageRange> =
            written.chain(cleared.runs.into_iter().map(|run| page_range(run, true))).collect();
        ranges.sort_by_key(|range| range.first);
        Ok(ranges)
    }
}

/// What the rows of a unit say of its pages at two times.
#[derive(Default)]
struct History {
    of: Option<u64>,
    old: Bits,
    new: Bits,
    /// Written or cleared since.
    touched: Bits,
}

impl History {
    /// Adds the next row of the unit, in the order of generations.
    fn add(&mut self, row: UnitState, old: &View<'_>, new: &View<'_>) {
        self.of = Some(row.unit);
        let seen = |view: &View<'_>| if view.sees(row.unit, row.generation) { row.valid } else { Bits::NONE };
        if row.generation <= old.generation {
            self.old = seen(old);
        } else {
            self.touched = self.touched.or(row.written);
        }
        self.new = seen(new);
    }

    fn end(self, pages: &Range<u64>, written: &mut Runs, cleared: &mut Runs) {
        let Some(unit) = self.of else { return };
        let clip = clip(unit, pages);
        written.add(unit, self.new.and(self.touched).and(clip));
        cleared.add(unit, self.old.without(self.new).and(clip));
    }
}

/// The pages that are asked for, of a blob of this size.
fn wanted(query: &PageQuery, size: u64) -> Result<Range<u64>, StoreError> {
    let (first, end) = match query.range {
        Some(range) if range.first >= size => return Err(StoreError::InvalidRange { size }),
        Some(range) => (range.first, range.last.map_or(size, |last| last.saturating_add(1).min(size))),
        None => (0, size),
    };
    let marker = match &query.marker {
        Some(marker) => marker.parse::<u64>().map_err(|_| StoreError::InvalidMarker)?,
        None => 0,
    };
    Ok(first.max(marker) / PAGE_BYTES..end.div_ceil(PAGE_BYTES))
}

fn units_of(pages: &Range<u64>) -> Range<u64> {
    let unit = u64::from(UNIT_PAGES);
    pages.start / unit..pages.end.div_ceil(unit)
}

/// The pages of a unit that are within others.
fn clip(unit: u64, pages: &Range<u64>) -> Bits {
    let first = unit * u64::from(UNIT_PAGES);
    let within = |page: u64| page.saturating_sub(first).min(u64::from(UNIT_PAGES)) as u32;
    let (from, to) = (within(pages.start), within(pages.end));
    if from < to { Bits::range(from, to) } else { Bits::NONE }
}

fn page_range((from, to): (u64, u64), is_cleared: bool) -> PageRange {
    PageRange { first: from * PAGE_BYTES, last: to * PAGE_BYTES - 1, is_cleared }
}

const _: () = assert!(UNIT_BYTES == UNIT_PAGES as u64 * PAGE_BYTES);
