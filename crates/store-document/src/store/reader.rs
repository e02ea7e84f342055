//! Reads documents in the order of effective partition key, digest and id, merged from all shards that have some.
//!
//! Each chunk is read under tickets of its own, by position, so that no move waits for a long query, a query takes
//! bounded memory, and one that goes on later needs nothing but the last position.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use polyshard_document_query::Value as Document;
use polyshard_engine::{self as engine, Row, Statement, Value};
use polyshard_map::{KeyBytes, KeyRange};
use polyshard_router::{Access, RouterError, Ticket};
use polyshard_store::Error;

use super::home::Key;
use super::items::Item;
use super::statements::texts;
use super::{Container, DocumentStore};
use crate::epk::{DIGEST_BYTES, LEVEL_BYTES};
use crate::failure::Failure;
use crate::name::ID_CHARS_MAX;

/// Rows of the first chunk of a shard at most, and of later ones: SQLite reads them on the thread that serves others.
const CHUNK_ROWS: (usize, usize) = (64, 256);
/// Bytes of long documents that are read for one chunk, at least one document.
const LONG_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How often a chunk is begun anew when one of the shards could not be read.
const TRIES_MAX: u32 = 6;
/// The first pause between tries; it doubles.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Which documents of a container.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// Those of one logical partition.
    Partition(Box<Key>),
    /// Those of a few logical partitions.
    Partitions(Vec<Key>),
    /// Those whose effective partition keys are in a range; the end is not in it.
    Range { lo: Vec<u8>, hi: Vec<u8> },
}

impl Scope {
    /// All documents.
    pub fn all() -> Scope {
        Scope::Range { lo: Vec::new(), hi: vec![0xFF] }
    }
}

/// A document that was read, and its position.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub item: Item,
    /// Effective partition key, digest and id, one after the other: they are in the order of these bytes.
    pub position: Vec<u8>,
}

/// Documents of a container, chunk by chunk.
pub(crate) struct Reader<'a> {
    store: &'a DocumentStore,
    container: &'a Container,
    scope: Scope,
    /// Partitions that come after this one.
    rest: VecDeque<Key>,
    /// With one of these ids alone, which are in order; any if there are none.
    ids: Vec<String>,
    from: Vec<u8>,
    /// Whether the document at that position is wanted too.
    with_first: bool,
    is_over: bool,
    chunks: usize,
}

/// A row of one shard.
struct Chunk {
    rows: Vec<Read>,
    is_full: bool,
}

struct Read {
    position: Vec<u8>,
    placement: Vec<u8>,
    item: Item,
    /// Bytes of a body that is still to be read.
    long: Option<usize>,
    ticket: usize,
    is_owned: bool,
}

impl<'a> Reader<'a> {
    /// From the beginning. With ids, only documents that have one of them.
    pub fn new(
        store: &'a DocumentStore,
        container: &'a Container,
        scope: Scope,
        mut ids: Vec<String>,
    ) -> Reader<'a> {
        ids.sort();
        let (scope, rest) = match scope {
            Scope::Partitions(mut keys) => {
                keys.sort_by_key(prefix);
                (Scope::Partitions(Vec::new()), keys.into())
            }
            scope => (scope, VecDeque::new()),
        };
        // Of several partitions, none is the first one yet.
        let is_over = matches!(scope, Scope::Partitions(_));
        Reader { store, container, scope, rest, ids, from: Vec::new(), with_first: true, is_over, chunks: 0 }
    }

    /// From a position on, with or without the document that is there.
    pub fn start_at(mut self, position: Vec<u8>, with_first: bool) -> Reader<'a> {
        if matches!(self.scope, Scope::Partitions(_)) {
            while self.rest.front().is_some_and(|key| {
                let prefix = prefix(key);
                prefix < position && !position.starts_with(&prefix)
            }) {
                self.rest.pop_front();
            }
            if self.rest.front().is_none_or(|key| !position.starts_with(&prefix(key))) {
                return self;
            }
            self.next_partition();
        }
        (self.from, self.with_first) = (position, with_first);
        self
    }

    /// The next documents; none if there are no more.
    pub async fn next(&mut self) -> Result<Vec<Found>, Failure> {
        loop {
            if self.is_over && !self.next_partition() {
                return Ok(Vec::new());
            }
            let found = self.chunk().await?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Goes on to the next partition; false if there is none.
    fn next_partition(&mut self) -> bool {
        let Some(key) = self.rest.pop_front() else { return false };
        self.scope = Scope::Partition(Box::new(key));
        (self.from, self.with_first, self.is_over) = (Vec::new(), true, false);
        true
    }

    async fn chunk(&mut self) -> Result<Vec<Found>, Failure> {
        let record = &self.container.record;
        let range = match &self.scope {
            Scope::Partition(key) => KeyRange::point(KeyBytes::from(key.placed.placement.as_slice())),
            Scope::Partitions(_) | Scope::Range { .. } => KeyRange::all(),
        };
        let router = self.store.kit().router().clone();
        let mut tries = 0;
        loop {
            let error = match router.enter_range(&record.map, &range, Access::Read).await {
                Ok(tickets) => {
                    router.check_dataset(record).map_err(Error::from)?;
                    match self.read(&tickets).await {
                        Ok(found) => return Ok(found),
                        Err(error) => RouterError::Engine(error),
                    }
                }
                Err(error) => error,
            };
            tries += 1;
            let refused = matches!(error, RouterError::Engine(engine::Error::SessionRefused(_)));
            if tries >= TRIES_MAX || !(error.is_retryable() || refused) {
                return Err(Error::from(error).into());
            }
            tokio::time::sleep(RETRY_AFTER * (1 << tries)).await;
            if refused {
                router.refresh().await.map_err(Error::from)?;
            }
        }
    }

    /// Reads a chunk of every shard, and takes what is surely next of all.
    async fn read(&mut self, tickets: &[Ticket]) -> Result<Vec<Found>, engine::Error> {
        let rows_max = if self.chunks == 0 { CHUNK_ROWS.0 } else { CHUNK_ROWS.1 };
        let each = tickets.iter().enumerate().map(|(at, ticket)| self.read_one(at, ticket, rows_max));
        let chunks = try_join_all(each).await?;
        let full = chunks.iter().filter(|chunk| chunk.is_full);
        let until = full.filter_map(|chunk| chunk.rows.last()).map(|row| row.position.clone()).min();
        let is_within = |position: &[u8]| until.as_ref().is_none_or(|until| position <= until.as_slice());
        let mut rows: Vec<Read> = chunks.into_iter().flat_map(|chunk| chunk.rows).collect();
        let is_first = |row: &Read| !self.with_first && row.position == self.from;
        rows.retain(|row| row.is_owned && is_within(&row.position) && !is_first(row));
        rows.sort_by(|a, b| a.position.cmp(&b.position));
        let mut found = Vec::with_capacity(rows.len());
        let mut long_bytes = 0;
        let mut stopped = None;
        for mut row in rows {
            if let Some(bytes) = row.long {
                long_bytes += bytes;
                if long_bytes > LONG_BYTES_MAX && bytes < long_bytes {
                    stopped = Some(row.position);
                    break;
                }
                match self.long(&tickets[row.ticket], &row).await? {
                    Some(item) => row.item = item,
                    // It is gone meanwhile.
                    None => continue,
                }
            }
            found.push(Found { item: row.item, position: row.position });
        }
        self.chunks += 1;
        match (stopped, until) {
            (Some(position), _) => (self.from, self.with_first) = (position, true),
            (None, Some(position)) => (self.from, self.with_first) = (position, false),
            (None, None) => self.is_over = true,
        }
        Ok(found)
    }

    async fn read_one(&self, at: usize, ticket: &Ticket, rows_max: usize) -> Result<Chunk, engine::Error> {
        let rows = ticket.read(self.statement(ticket, rows_max)).await?;
        let is_full = rows.len() == rows_max;
        let mut read = Vec::with_capacity(rows.len());
        for row in rows.into_rows() {
            let placement = row.blob(6)?.to_vec();
            let position = [row.blob(0)?, row.blob(1)?, row.text(2)?.as_bytes()].concat();
            let stamp = self.store.stamp(self.container, row.int(3)?, row.int(4)?, row.int(5)?);
            let bytes = row.int(7)?;
            let body = take_body(row);
            read.push(Read {
                is_owned: is_in(ticket.ranges(), &placement),
                position,
                placement,
                long: body.is_none().then_some(bytes as usize),
                item: Item { stamp, body: body.unwrap_or_default() },
                ticket: at,
            });
        }
        Ok(Chunk { rows: read, is_full })
    }

    fn statement(&self, ticket: &Ticket, rows_max: usize) -> Statement {
        let texts = texts(ticket.dialect());
        let (epk, pk, id) = self.split(&self.from);
        let dataset = i64::try_from(self.container.record.id).unwrap_or(i64::MAX);
        let ids = match self.ids.as_slice() {
            [] => String::new(),
            ids => Document::array(ids.iter().map(|id| Document::string(id.as_str())).collect()).to_json(),
        };
        let bind_rest =
            |statement: Statement| statement.bind(self.container.ttl()).bind(rows_max as i64).bind(ids);
        match &self.scope {
            Scope::Partition(key) => {
                let first = self.ids.first().filter(|_| self.from.is_empty());
                let last = self.ids.last().cloned().unwrap_or_else(|| "\u{10FFFF}".repeat(ID_CHARS_MAX + 1));
                let statement = Statement::new(texts.scan_partition.clone())
                    .bind(dataset)
                    .bind(key.placed.placement.clone())
                    .bind(key.epk.clone())
                    .bind(key.pk.clone())
                    .bind(first.cloned().unwrap_or(id));
                bind_rest(statement).bind(last)
            }
            Scope::Partitions(_) | Scope::Range { .. } => {
                let (lo, hi): (&[u8], &[u8]) = match &self.scope {
                    Scope::Range { lo, hi } => (lo, hi),
                    _ => (&[], &[0xFF]),
                };
                let (epk, pk, id) =
                    if self.from.is_empty() { (lo, &[][..], String::new()) } else { (epk, pk, id) };
                let statement = Statement::new(texts.scan_range.clone());
                bind_rest(statement.bind(dataset).bind(epk).bind(pk).bind(id).bind(hi))
            }
        }
    }

    /// The effective partition key, digest and id of a position.
    fn split<'p>(&self, position: &'p [u8]) -> (&'p [u8], &'p [u8], String) {
        let levels = self.container.partition_key().map_or(0, |key| key.levels());
        let digest = if levels == 0 { 0 } else { DIGEST_BYTES };
        let epk = (levels * LEVEL_BYTES).min(position.len());
        let pk = (epk + digest).min(position.len());
        (&position[..epk], &position[epk..pk], String::from_utf8_lossy(&position[pk..]).into_owned())
    }

    /// A document that is too long to be read along.
    async fn long(&self, ticket: &Ticket, row: &Read) -> Result<Option<Item>, engine::Error> {
        let (epk, pk, id) = self.split(&row.position);
        let text: Arc<str> = texts(ticket.dialect()).get.clone();
        let get = Statement::new(text)
            .bind(i64::try_from(self.container.record.id).unwrap_or(i64::MAX))
            .bind(row.placement.clone())
            .bind(epk)
            .bind(pk)
            .bind(id)
            .bind(self.container.ttl());
        let Some(row) = ticket.read(get).await?.into_rows().into_iter().next() else { return Ok(None) };
        let stamp = self.store.stamp(self.container, row.int(0)?, row.int(1)?, row.int(2)?);
        Ok(take_body(row).map(|body| Item { stamp, body }))
    }
}

/// What the positions of a partition's documents begin with.
fn prefix(key: &Key) -> Vec<u8> {
    [key.epk.as_slice(), key.pk.as_slice()].concat()
}

/// The bytes that stand last in a row.
fn take_body(row: Row) -> Option<Vec<u8>> {
    match row.into_values().pop() {
        Some(Value::Blob(body)) => Some(body),
        _ => None,
    }
}

/// Whether a placement is in one of these ranges, which are in order.
pub(super) fn is_in(ranges: &[KeyRange], placement: &[u8]) -> bool {
    let after = ranges.partition_point(|range| range.lo().as_slice() <= placement);
    after > 0 && ranges[after - 1].contains(placement)
}
