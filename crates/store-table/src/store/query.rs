//! Queries: a page of entities in the order of their keys, from one partition or merged from all shards.
//!
//! Rows are read in chunks by key, so that nothing is held open, a page takes bounded memory and work, and one that
//! goes on later needs nothing but the last key: continuation outlives restarts and moves.

mod sieve;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use polyshard_azure_storage::Timestamp;
use polyshard_catalog::DatasetRecord;
use polyshard_engine::{self as engine, Dialect, Row, Statement, Value};
use polyshard_map::KeyRange;
use polyshard_router::{Access, RouterError, Ticket};

use self::sieve::Sieve;
use super::entities::read_properties;
use super::statements::{Asked, From, LONG_BYTES, Long, Over, PARTITIONS_AHEAD, Until, texts};
use super::{StoreError, TableStore, number, timestamp};
use crate::edm::Scalar;
use crate::entity::{Entity, KEY_BYTES_MAX};
use crate::filter::{Condition, Filter, Interval, KeyBounds, Spans};
use crate::name::TableName;
use crate::stored;

/// Entities in a page at most, as with the service.
pub const PAGE_ROWS_MAX: usize = 1000;
/// Stored bytes in a page at most: a thousand entities of a megabyte each would be a gigabyte.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Rows looked at for one page at most, so that a filter that lets little through does not hold up others.
const EXAMINED_ROWS_MAX: usize = 10_000;
/// Rows of the first chunk at most: it is not known yet how long they are.
const FIRST_CHUNK_ROWS_MAX: usize = 64;
/// Rows of later chunks at most: SQLite reads them on the thread that serves others, for a fraction of a millisecond if
/// they are in memory. Each may be on a page of its own (decision 16).
const CHUNK_ROWS_MAX: usize = 512;
/// Bytes that later chunks should not exceed by much.
const CHUNK_BYTES: usize = 512 * 1024;
/// Rows that are read together however long they are: no more than a megabyte or two each.
const LONG_ROWS_MAX: usize = 16;
/// How often a page over several shards is begun anew when one of them could not be read.
const TRIES_MAX: u32 = 6;
/// The first pause between tries; it doubles.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Which entities.
    pub filter: Option<Arc<Filter>>,
    /// The partition and row key after which to go on.
    pub after: Option<(String, String)>,
    /// How many at most; [`PAGE_ROWS_MAX`] if nothing is said.
    pub top: Option<usize>,
}

/// A part of the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// In the order of their keys; may be empty even if there is more.
    pub entities: Vec<Entity>,
    /// The partition and row key after which there may be more.
    pub next: Option<(String, String)>,
}

impl TableStore {
    /// A page of the entities that are asked for.
    pub async fn query(&self, table: &TableName, query: &Query) -> Result<Page, StoreError> {
        let record = self.record(table).await?;
        let plan = Plan::new(number(record.id), query);
        if plan.bounds.is_empty() || plan.top == 0 {
            return Ok(Page::default());
        }
        match plan.bounds.partition.only().map(str::to_owned) {
            // The key after which to go on comes from the client, and may be beyond the partition.
            Some(partition) if plan.after.as_ref().is_some_and(|(after, _)| *after > partition) => {
                Ok(Page::default())
            }
            Some(partition) => self.query_partition(&record, &partition, plan).await,
            None => self.query_partitions(&record, &plan).await,
        }
    }

    async fn query_partition(
        &self,
        record: &Arc<DatasetRecord>,
        partition: &str,
        plan: Plan,
    ) -> Result<Page, StoreError> {
        let view = self.kit.router().view();
        let known = view.maps.get(&record.map).ok_or_else(|| StoreError::NoMap(record.map.to_string()))?;
        // A partition that the map has no place for has no entities.
        let Ok(key) = record.rule.key(known.map.definition().key_type(), partition) else {
            return Ok(Page::default());
        };
        drop(view);
        self.kit.host().quotas().admit_to(record, Some(&key), 1)?;
        let work = async move |ticket: &Ticket| plan.page(std::slice::from_ref(ticket)).await;
        self.kit.router().call_for(record, &[key], Access::Read, work).await?
    }

    /// Tickets are held for the whole page: no range can change its shard while rows of both are merged.
    async fn query_partitions(&self, record: &DatasetRecord, plan: &Plan) -> Result<Page, StoreError> {
        self.kit.host().quotas().admit_to(record, None, 1)?;
        let mut tries = 0;
        loop {
            let error = match self.kit.router().enter_range(&record.map, &KeyRange::all(), Access::Read).await
            {
                Ok(tickets) => match plan.page(&tickets).await {
                    Ok(page) => return page,
                    Err(error) => RouterError::Engine(error),
                },
                Err(error) => error,
            };
            tries += 1;
            // As with requests for keys: after a wait for a range that is being switched, the client decides.
            let waited = matches!(error, RouterError::Moving(_));
            if tries >= TRIES_MAX || waited || !self.kit.router().heal(&error).await {
                return Err(error.into());
            }
            tokio::time::sleep(RETRY_AFTER * (1 << tries)).await;
        }
    }
}

/// A query, ready to be carried out on any shard.
struct Plan {
    dataset: i64,
    filter: Option<Arc<Filter>>,
    /// The properties that the filter looks at.
    names: Vec<String>,
    bounds: KeyBounds,
    /// The keys to look at, one piece after the other: row keys if there is only one partition, otherwise partition
    /// keys.
    spans: Spans,
    /// Of which rows to read more than their keys.
    condition: Option<Condition>,
    /// The same for PostgreSQL, where properties tell as well.
    pushed: Option<Condition>,
    after: Option<(String, String)>,
    top: usize,
}

/// One shard's part of a page.
struct Source<'t> {
    ticket: &'t Ticket,
    /// The last key read.
    after: Option<(String, String)>,
    rows: VecDeque<Found>,
    /// The first span that there may be more of; there is nothing after the rows if there is none.
    span: usize,
    /// Bytes of rows read so far, and how many they were.
    bytes: usize,
    count: usize,
}

/// A row as it was read.
struct Found {
    partition: Arc<str>,
    row: String,
    ticks: i64,
    properties: Text,
    /// Whether the shard has it by right, and not from or for a move.
    is_owned: bool,
    /// Whether the filter has let it through.
    is_sure: bool,
    /// How many rows or partitions were looked at to find it.
    looked: usize,
}

/// The properties of a row as they are stored.
enum Text {
    /// Its keys are not those of an entity that is asked for.
    Unasked,
    /// They are long, and still to be read.
    Long,
    Read(String),
}

impl Plan {
    fn new(dataset: i64, query: &Query) -> Plan {
        let filter = query.filter.clone();
        let bounds = filter.as_ref().map(|filter| filter.bounds()).unwrap_or_default();
        // The scan of one partition has the bounds of rows in it; the one of several has not.
        let one = bounds.partition.only().is_some();
        let condition = filter.as_ref().and_then(|filter| match one || !filter.names_rows() {
            true => filter.condition(),
            false => filter.whole_condition(),
        });
        let spans = filter.as_ref().map(|filter| match one {
            true => filter.row_spans(),
            false => filter.partition_spans(),
        });
        let spans = spans.unwrap_or_else(|| vec![Interval::default()]);
        let top = query.top.unwrap_or(PAGE_ROWS_MAX).min(PAGE_ROWS_MAX);
        let mut names = filter.as_ref().map(|filter| filter.properties()).unwrap_or_default();
        // These are columns of their own.
        names.retain(|name| !matches!(name.as_str(), "PartitionKey" | "RowKey" | "Timestamp"));
        let pushed =
            filter.as_ref().and_then(|filter| filter.pushed_condition()).or_else(|| condition.clone());
        Plan { dataset, filter, names, bounds, spans, condition, pushed, after: query.after.clone(), top }
    }

    /// A page from the shards of these tickets. An error of the store is an answer, since it is not one of the shard.
    async fn page(&self, tickets: &[Ticket]) -> Result<Result<Page, StoreError>, engine::Error> {
        let mut sources: Vec<Source<'_>> = tickets.iter().map(|ticket| self.source(ticket)).collect();
        let first_rows = (self.top / sources.len().max(1) + 1).min(FIRST_CHUNK_ROWS_MAX);
        let mut page = Page::default();
        let (mut bytes, mut examined) = (0, 0);
        // The last row that was looked at and is not in the page.
        let mut passed = None;
        loop {
            let is_due = |source: &&mut Source<'_>| source.rows.is_empty() && source.span < self.spans.len();
            let empty = sources.iter_mut().filter(is_due);
            try_join_all(empty.map(|source| self.fill(source, first_rows))).await?;
            let filled = sources.iter_mut().filter(|source| !source.rows.is_empty());
            let least = filled.min_by(|a, b| a.rows[0].key().cmp(&b.rows[0].key()));
            let Some(source) = least else { return Ok(Ok(page)) };
            if page.entities.len() >= self.top || bytes >= PAGE_BYTES_MAX || examined >= EXAMINED_ROWS_MAX {
                page.next = passed.or_else(|| page.entities.last().map(key_of));
                return Ok(Ok(page));
            }
            let mut found = source.rows.pop_front().expect("it was looked at");
            examined += found.looked;
            if matches!(found.properties, Text::Long) && found.is_owned {
                found.properties = self.read_long(source.ticket, &found).await?;
            }
            let length = found.bytes();
            match self.matching(found) {
                Ok(Looked::Found(entity)) => {
                    bytes += length;
                    passed = None;
                    page.entities.push(*entity);
                }
                Ok(Looked::Passed(partition, row)) => passed = Some((partition.to_string(), row)),
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    fn source<'t>(&self, ticket: &'t Ticket) -> Source<'t> {
        Source { ticket, after: self.after.clone(), rows: VecDeque::new(), span: 0, bytes: 0, count: 0 }
    }

    /// Reads the next rows of a shard, until there are some or no more.
    async fn fill(&self, source: &mut Source<'_>, first_rows: usize) -> Result<(), engine::Error> {
        let partition = self.bounds.partition.only();
        let shared: Option<Arc<str>> = partition.map(Arc::from);
        while source.rows.is_empty() {
            let Some(span) = self.next_span(source, partition) else { return Ok(()) };
            let rows_max = match source.bytes.checked_div(source.count) {
                None => first_rows,
                Some(each) => (CHUNK_BYTES / each.max(1)).clamp(1, CHUNK_ROWS_MAX),
            };
            let ahead = self.ahead(source, partition, span).await?;
            let last = ahead.as_ref().or(span.hi.as_ref()).map(String::as_str);
            let statement = self.statement(source, partition, (span, last), rows_max);
            let is_whole = self.read_chunk(source, shared.as_ref(), statement).await? < rows_max;
            match ahead {
                Some(partition) if is_whole => source.rows.push_back(Found::end_of(partition)),
                None if is_whole => source.span += 1,
                _ => {}
            }
            if let Some(found) = source.rows.back() {
                source.after = Some((found.partition.to_string(), found.row.clone()));
            }
        }
        Ok(())
    }

    /// Adds the rows of a statement. Answers how many there were, also of those that are passed over.
    async fn read_chunk(
        &self,
        source: &mut Source<'_>,
        partition: Option<&Arc<str>>,
        statement: Statement,
    ) -> Result<usize, engine::Error> {
        let (ticket, ranges) = (source.ticket, source.ticket.ranges());
        if self.filter.is_none() || ticket.dialect() == Dialect::Postgres {
            let rows = ticket.read(statement).await?.into_rows();
            let count = rows.len();
            for row in rows {
                let found = read_row(row, partition, ranges)?;
                source.bytes += found.bytes();
                source.rows.push_back(found);
            }
            source.count += count;
            return Ok(count);
        }
        let mut sieve = Sieve::new(self, partition.map(AsRef::as_ref), ranges);
        let rows = ticket.read_wanted(statement, &mut |row| sieve.look(row)).await?;
        let count = usize::try_from(rows.affected()).expect("chunks are small");
        for (row, wanted) in rows.into_iter().zip(&sieve.wanted) {
            let found = read_row(row, partition, ranges)?;
            source.rows.push_back(Found { looked: wanted.looked, is_sure: wanted.is_sure, ..found });
        }
        // What was read counts as load, whether it is sent or not.
        ticket.carried(sieve.passed_bytes as u64);
        source.bytes += sieve.bytes;
        source.count += count;
        source.rows.extend(sieve.last_passed());
        Ok(count)
    }

    /// The span that a shard's next rows are in; those before the last key read are done with.
    fn next_span(&self, source: &mut Source<'_>, partition: Option<&str>) -> Option<&Interval> {
        let after = source.after.as_ref().and_then(|(own, row)| match partition {
            // The key after which to go on comes from the client, and may be in another partition.
            Some(partition) => (own == partition).then_some(row),
            None => Some(own),
        });
        if let Some(after) = after {
            source.span +=
                self.spans.iter().skip(source.span).take_while(|span| span.is_before(after)).count();
        }
        self.spans.get(source.span)
    }

    /// As far as which partition of a span to look for rows, if few partitions may have any: SQLite looks into each
    /// of them, on a thread that others wait for. None is as far as the span goes.
    async fn ahead(
        &self,
        source: &Source<'_>,
        partition: Option<&str>,
        span: &Interval,
    ) -> Result<Option<String>, engine::Error> {
        let Some(text) = &texts(source.ticket.dialect()).partition_ahead else { return Ok(None) };
        if partition.is_some() || self.bounds.row == Interval::default() {
            return Ok(None);
        }
        let (_, (first, _)) = start(source, partition, span);
        let rows = source.ticket.read(Statement::new(text.clone()).bind(self.dataset).bind(first)).await?;
        let ahead = rows.first().map(|row| row.text(0)).transpose()?;
        Ok(ahead.filter(|ahead| span.hi.as_deref().is_none_or(|hi| *ahead < hi)).map(str::to_owned))
    }

    fn statement(
        &self,
        source: &Source<'_>,
        partition: Option<&str>,
        (span, last): (&Interval, Option<&str>),
        rows_max: usize,
    ) -> Statement {
        let (over, rows) = match partition {
            Some(_) => (Over::Partition, [None, None]),
            None => (
                Over::Partitions,
                [(" AND rk >= $", &self.bounds.row.lo), (" AND rk <= $", &self.bounds.row.hi)]
                    .map(|(text, bound)| bound.as_deref().map(|bound| (text, bound))),
            ),
        };
        let long = if rows_max <= LONG_ROWS_MAX { Long::Read } else { Long::Marked };
        let (mut asked, mut values) = (Asked { long, ..Asked::default() }, Vec::new());
        let first = if last.is_some() { 6 } else { 5 };
        for (text, bound) in rows.into_iter().flatten() {
            asked.rows.push_str(&format!("{text}{}", first + values.len()));
            values.push(bound);
        }
        let condition = match source.ticket.dialect() {
            Dialect::Sqlite => &self.condition,
            Dialect::Postgres => &self.pushed,
        };
        if let Some(condition) = condition {
            let (wanted, more) = condition.to_sql(first + values.len());
            asked.wanted = wanted;
            values.extend(more);
        }
        let (from, start) = start(source, partition, span);
        let until = if last.is_some() { Until::Last } else { Until::End };
        let mut statement = Statement::new(texts(source.ticket.dialect()).scan(over, from, until, &asked))
            .bind(self.dataset)
            .bind(start.0)
            .bind(start.1)
            .bind(i64::try_from(rows_max).expect("chunks are small"));
        if let Some(last) = last {
            statement = statement.bind(last);
        }
        values.into_iter().fold(statement, Statement::bind)
    }

    /// The properties of one row, however long; nothing if it is gone meanwhile.
    async fn read_long(&self, ticket: &Ticket, found: &Found) -> Result<Text, engine::Error> {
        let over = if self.bounds.partition.only().is_some() { Over::Partition } else { Over::Partitions };
        let asked = Asked { long: Long::Read, ..Asked::default() };
        let text = texts(ticket.dialect()).scan(over, From::At, Until::End, &asked);
        let (partition, row) = found.key();
        let statement = Statement::new(text).bind(self.dataset).bind(partition).bind(row).bind(1);
        let next = ticket.read(statement).await?.into_rows().into_iter().next();
        // What follows a row that is gone is another one.
        let shared = (over == Over::Partition).then(|| found.partition.clone());
        let next = next.map(|row| read_row(row, shared.as_ref(), ticket.ranges())).transpose()?;
        Ok(next.filter(|next| next.key() == found.key()).map_or(Text::Unasked, |next| next.properties))
    }

    /// The entity of a row, if it is there by right and the filter lets it through.
    fn matching(&self, found: Found) -> Result<Looked, StoreError> {
        let text = match found.properties {
            Text::Read(text) if found.is_owned => text,
            _ => return Ok(Looked::Passed(found.partition, found.row)),
        };
        let time = timestamp(found.ticks)?;
        if !found.is_sure && !self.lets_through((&found.partition, &found.row), &|| Some(time), &text)? {
            return Ok(Looked::Passed(found.partition, found.row));
        }
        let properties = read_properties(&text)?;
        let entity = Entity::stored(found.partition.to_string(), found.row, time, properties);
        Ok(Looked::Found(Box::new(entity)))
    }

    /// Whether the filter lets an entity through. Only what it looks at is read.
    fn lets_through(
        &self,
        (partition, row): (&str, &str),
        time: &dyn Fn() -> Option<Timestamp>,
        text: &str,
    ) -> Result<bool, StoreError> {
        let Some(filter) = &self.filter else { return Ok(true) };
        let named = stored::read_named(text, &self.names);
        let named = named.map_err(|detail| StoreError::Damaged { what: "entity", detail })?;
        Ok(filter.matches(&|name: &str| match name {
            "PartitionKey" => Some(Scalar::String(partition)),
            "RowKey" => Some(Scalar::String(row)),
            "Timestamp" => time().map(Scalar::DateTime),
            _ => named.iter().find(|(own, _)| own == name).map(|(_, value)| value.scalar()),
        }))
    }
}

/// What became of a row.
enum Looked {
    Found(Box<Entity>),
    /// Its keys.
    Passed(Arc<str>, String),
}

fn key_of(entity: &Entity) -> (String, String) {
    (entity.key.partition.as_str().to_owned(), entity.key.row.as_str().to_owned())
}

/// Where the next chunk begins: at the first key of a span, or after the last one read.
fn start<'a>(
    source: &'a Source<'_>,
    partition: Option<&'a str>,
    span: &'a Interval,
) -> (From, (&'a str, &'a str)) {
    let low = span.lo.as_deref().unwrap_or_default();
    let first = partition.map_or((low, ""), |partition| (partition, low));
    let after = source.after.as_ref().map(|(partition, row)| (partition.as_str(), row.as_str()));
    match after {
        Some(after) if after >= first => (From::After, after),
        _ => (From::At, first),
    }
}

impl Found {
    /// Stands for all the rows there could be in a partition and in those that were looked into before it: none of them
    /// has a key after it.
    fn end_of(partition: String) -> Found {
        // One character more than the longest key has of the last of all characters, which takes four bytes in UTF-16.
        let row = "\u{10FFFF}".repeat(KEY_BYTES_MAX / 4 + 1);
        let (partition, looked) = (partition.into(), PARTITIONS_AHEAD);
        Found { partition, row, ticks: 0, properties: Text::Unasked, is_owned: false, is_sure: false, looked }
    }

    /// How long it is, as far as that is known.
    fn bytes(&self) -> usize {
        match &self.properties {
            Text::Unasked => 0,
            Text::Long => LONG_BYTES,
            Text::Read(text) => text.len(),
        }
    }

    fn key(&self) -> (&str, &str) {
        (&self.partition, &self.row)
    }
}

fn read_row(row: Row, partition: Option<&Arc<str>>, ranges: &[KeyRange]) -> Result<Found, engine::Error> {
    let (partition, is_owned) = match partition {
        Some(partition) => (partition.clone(), true),
        None => (Arc::from(row.text(3)?), is_in(ranges, row.blob(4)?)),
    };
    let ticks = row.int(1)?;
    let mut values = row.into_values().into_iter();
    let (key, properties) = (values.next(), values.nth(1));
    let (row, properties) = match (key, properties) {
        // No object is written with no letter at all.
        (Some(Value::Text(row)), Some(Value::Text(text))) if text.is_empty() => (row, Text::Long),
        (Some(Value::Text(row)), Some(Value::Text(text))) => (row, Text::Read(text)),
        (Some(Value::Text(row)), Some(Value::Null)) => (row, Text::Unasked),
        _ => return Err(engine::Error::invalid("a key or the properties of an entity are no text")),
    };
    Ok(Found { partition, row, ticks, properties, is_owned, is_sure: false, looked: 1 })
}

/// Whether a placement is in one of these ranges, which are in order.
fn is_in(ranges: &[KeyRange], placement: &[u8]) -> bool {
    let after = ranges.partition_point(|range| range.lo().as_slice() <= placement);
    after > 0 && ranges[after - 1].contains(placement)
}
