//! Lists of blobs: a page in the order of names, merged from all shards that have a part of the container.
//!
//! Rows are read in chunks by name, so that nothing is held open, a page takes bounded memory and work, and the next
//! one needs nothing but the last name: markers outlive restarts and moves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::try_join_all;
use polyshard_catalog::{DatasetRecord, KeyPart};
use polyshard_engine::{self as engine, Statement};
use polyshard_map::{KeyBytes, KeyRange, KeyType, Scheme};
use polyshard_router::{Access, RouterError, Ticket};
use polyshard_store::Error;

use super::rows::{AFTER_NOW, read_blob, stored_snapshot};
use super::statements::texts;
use super::{BlobStore, StoreError};
use crate::model::{Blob, BlobPage, BlobQuery, Include, Listed};
use crate::name::{BLOB_CHARS_MAX, ContainerName};

/// Rows looked at for one page at most, so that a list that shows little does not hold up others.
const EXAMINED_ROWS_MAX: usize = 20_000;
/// Rows of the first chunk at most, and of later ones: SQLite reads them on the thread that serves others.
const FIRST_CHUNK_ROWS_MAX: usize = 128;
const CHUNK_ROWS_MAX: usize = 512;
/// Rows of a chunk where a delimiter may make most of them one entry.
const DELIMITED_ROWS: usize = 32;
/// How often a page is begun anew when one of the shards could not be read.
const TRIES_MAX: u32 = 6;
/// The first pause between tries; it doubles.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// The row after which a list goes on: by name, and by snapshot, the blob itself last.
pub(super) type Position = (String, i64);

impl BlobStore {
    /// A page of the blobs of a container.
    pub async fn list_blobs(
        &self,
        container: &ContainerName,
        query: &BlobQuery,
    ) -> Result<BlobPage, StoreError> {
        let record = self.record(container).await?;
        self.kit.host().quotas().admit_to(&record, None, 1).map_err(Error::from)?;
        let after = query.marker.as_deref().map(read_marker).transpose()?;
        let mut plan = Plan::new(record.id, query, after);
        if let Some(start) = query.start_from.as_deref().filter(|start| *start > plan.after.0.as_str()) {
            plan.after = (start.to_owned(), 0);
        }
        if plan.max == 0 {
            return Ok(BlobPage::default());
        }
        let (entries, next) = self.page(&record, &plan).await?;
        Ok(BlobPage { entries, next: next.as_ref().map(write_marker) })
    }

    /// A page, and where the next one begins. Tickets are held for the whole page: no range can change its shard while
    /// rows of both are merged.
    pub(super) async fn page(
        &self,
        record: &Arc<DatasetRecord>,
        plan: &Plan,
    ) -> Result<(Vec<Listed>, Option<Position>), StoreError> {
        let mut tries = 0;
        loop {
            let range = self.range(record, plan);
            let error = match self.kit.router().enter_range(&record.map, &range, Access::Read).await {
                Ok(tickets) => match plan.page(&tickets).await {
                    Ok(page) => return Ok(page),
                    Err(error) => RouterError::Engine(error),
                },
                Err(error) => error,
            };
            tries += 1;
            let refused = matches!(error, RouterError::Engine(engine::Error::SessionRefused(_)));
            if tries >= TRIES_MAX || !(error.is_retryable() || refused) {
                return Err(StoreError::Kit(error.into()));
            }
            tokio::time::sleep(RETRY_AFTER * (1 << tries)).await;
            if refused {
                self.kit.router().refresh().await.map_err(Error::from)?;
            }
        }
    }

    /// The placements that what is asked for can have: few shards have a part of one prefix, if the map is in the order
    /// of paths.
    fn range(&self, record: &DatasetRecord, plan: &Plan) -> KeyRange {
        let view = self.kit.router().view();
        let Some(known) = view.maps.get(&record.map) else { return KeyRange::all() };
        let definition = known.map.definition();
        let is_by_path = record.rule.attribute == "path"
            && record.rule.part == KeyPart::Whole
            && *definition.key_type() == KeyType::Text
            && *definition.scheme() == Scheme::Range;
        if !is_by_path {
            return KeyRange::all();
        }
        let path = |name: &str| format!("{}/{name}", record.name);
        let lo = KeyBytes::from(path(&plan.after.0).as_bytes());
        let hi = successor(&path(&plan.prefix)).map(|text| KeyBytes::from(text.as_bytes()));
        KeyRange::new(lo, hi).unwrap_or_else(|_| KeyRange::all())
    }
}

/// A list, ready to be made on any shard.
pub(super) struct Plan {
    dataset: i64,
    prefix: String,
    delimiter: Option<String>,
    include: Include,
    /// Rows up to here are passed over.
    after: Position,
    /// The first name that is not listed.
    until: String,
    max: usize,
}

/// One shard's part of a page.
struct Source<'t> {
    ticket: &'t Ticket,
    rows: VecDeque<Found>,
    /// The last row read.
    after: Position,
    is_over: bool,
    chunks: usize,
}

/// A row as it was read.
struct Found {
    blob: Box<Blob>,
    /// Whether the shard has it by right, and not from or for a move.
    is_owned: bool,
}

impl Found {
    fn position(&self) -> (&str, i64) {
        (&self.blob.name, stored_snapshot(self.blob.snapshot))
    }
}

impl Plan {
    pub fn new(dataset: u64, query: &BlobQuery, after: Option<Position>) -> Plan {
        let prefix = query.prefix.clone();
        let first = (prefix.clone(), 0);
        let after = after.map_or_else(|| first.clone(), |after| after.max(first.clone()));
        // One character more than the longest name has of the last of all characters.
        let last = || "\u{10FFFF}".repeat(BLOB_CHARS_MAX + 1);
        Plan {
            dataset: i64::try_from(dataset).expect("the catalog counts datasets within 63 bits"),
            until: successor(&prefix).unwrap_or_else(last),
            prefix,
            delimiter: query.delimiter.clone().filter(|delimiter| !delimiter.is_empty()),
            include: query.include,
            after,
            max: query.max,
        }
    }

    async fn page(&self, tickets: &[Ticket]) -> Result<(Vec<Listed>, Option<Position>), engine::Error> {
        let source = |ticket| Source {
            ticket,
            rows: VecDeque::new(),
            after: self.after.clone(),
            is_over: false,
            chunks: 0,
        };
        let mut sources: Vec<Source<'_>> = tickets.iter().map(source).collect();
        let first_rows = (self.max / sources.len().max(1) + 1).min(FIRST_CHUNK_ROWS_MAX);
        let (mut entries, mut examined, mut position) = (Vec::new(), 0, self.after.clone());
        loop {
            let is_due = |source: &&mut Source<'_>| source.rows.is_empty() && !source.is_over;
            let due = sources.iter_mut().filter(is_due);
            try_join_all(due.map(|source| self.fill(source, first_rows))).await?;
            let filled = sources.iter_mut().filter(|source| !source.rows.is_empty());
            let least = filled.min_by(|a, b| a.rows[0].position().cmp(&b.rows[0].position()));
            let Some(source) = least else { return Ok((entries, None)) };
            if entries.len() >= self.max || examined >= EXAMINED_ROWS_MAX {
                return Ok((entries, Some(position)));
            }
            let Some(found) = source.rows.pop_front() else { continue };
            examined += 1;
            if !found.is_owned {
                position = (found.blob.name, stored_snapshot(found.blob.snapshot));
                continue;
            }
            match self.common_prefix(&found.blob.name) {
                None => {
                    position = (found.blob.name.clone(), stored_snapshot(found.blob.snapshot));
                    entries.push(Listed::Blob(found.blob));
                }
                Some(prefix) => {
                    // All that begin so are passed over at once.
                    position = (successor(&prefix).unwrap_or_else(|| self.until.clone()), 0);
                    entries.push(Listed::Prefix(prefix));
                    sources.iter_mut().for_each(|source| source.skip_to(&position));
                }
            }
        }
    }

    /// What a name is shown as, if not as itself.
    fn common_prefix(&self, name: &str) -> Option<String> {
        let delimiter = self.delimiter.as_deref()?;
        let rest = name.get(self.prefix.len()..)?;
        let end = self.prefix.len() + rest.find(delimiter)? + delimiter.len();
        Some(name[..end].to_owned())
    }

    /// Reads the next rows of a shard.
    async fn fill(&self, source: &mut Source<'_>, first_rows: usize) -> Result<(), engine::Error> {
        if source.after.0 >= self.until {
            source.is_over = true;
            return Ok(());
        }
        let rows_max = match (source.chunks, &self.delimiter) {
            (0, _) => first_rows,
            (1..=8, Some(_)) => DELIMITED_ROWS,
            _ => CHUNK_ROWS_MAX,
        };
        source.chunks += 1;
        let ticket = source.ticket;
        let flag = |flag: bool| i64::from(flag);
        let statement = Statement::new(texts(ticket.dialect()).list.clone())
            .bind(self.dataset)
            .bind(source.after.0.as_str())
            .bind(source.after.1)
            .bind(self.until.as_str())
            .bind(rows_max as i64)
            .bind(flag(self.include.snapshots))
            .bind(flag(self.include.deleted))
            .bind(flag(self.include.uncommitted));
        let rows = ticket.read(statement).await?;
        source.is_over = rows.len() < rows_max;
        for row in &rows {
            let is_owned = is_in(ticket.ranges(), row.blob(AFTER_NOW)?);
            source.rows.push_back(Found { blob: Box::new(read_blob(row)?), is_owned });
        }
        if let Some(last) = source.rows.back() {
            let (name, snapshot) = last.position();
            source.after = (name.to_owned(), snapshot);
        }
        Ok(())
    }
}

impl Source<'_> {
    /// Passes over all rows before a position.
    fn skip_to(&mut self, position: &Position) {
        while self.rows.front().is_some_and(|found| found.position() <= (position.0.as_str(), position.1)) {
            self.rows.pop_front();
        }
        if self.rows.is_empty() && self.after < *position {
            self.after.clone_from(position);
        }
    }
}

/// Whether a placement is in one of these ranges, which are in order.
fn is_in(ranges: &[KeyRange], placement: &[u8]) -> bool {
    let after = ranges.partition_point(|range| range.lo().as_slice() <= placement);
    after > 0 && ranges[after - 1].contains(placement)
}

/// The least text that comes after all that begin with this one; none if there is no such text.
fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // The range of characters has a gap.
        let next = match last {
            '\u{D7FF}' => Some('\u{E000}'),
            _ => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

/// A marker is a position that clients need not understand; it has no character that a URL or XML would change.
pub(super) fn write_marker((name, snapshot): &Position) -> String {
    format!("1{}", URL_SAFE_NO_PAD.encode(format!("{snapshot:016x}{name}")))
}

pub(super) fn read_marker(marker: &str) -> Result<Position, StoreError> {
    let read = || {
        let bytes = URL_SAFE_NO_PAD.decode(marker.strip_prefix('1')?).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let snapshot = i64::from_str_radix(text.get(..16)?, 16).ok()?;
        Some((text[16..].to_owned(), snapshot))
    };
    let position = read().filter(|(name, _)| !name.contains('\0'));
    position.ok_or(StoreError::InvalidMarker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_successor_comes_after_all_that_begin_so() {
        for (prefix, next) in [
            ("a", Some("b")),
            ("a/", Some("a0")),
            ("a\u{10FFFF}", Some("b")),
            ("\u{D7FF}", Some("\u{E000}")),
            ("é", Some("ê")),
            ("\u{10FFFF}", None),
            ("", None),
        ] {
            assert_eq!(successor(prefix).as_deref(), next, "{prefix:?}");
        }
    }

    #[test]
    fn markers_are_read_as_they_were_written() {
        for position in [("a/b".to_owned(), 0), ("日本 &<".to_owned(), i64::MAX), (String::new(), 5)] {
            assert_eq!(read_marker(&write_marker(&position)).unwrap(), position);
        }
        for marker in ["", "x", "1", "1!!", "2AAAA", "1AAAA"] {
            assert!(matches!(read_marker(marker), Err(StoreError::InvalidMarker)), "{marker}");
        }
    }
}
