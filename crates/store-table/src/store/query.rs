//! Queries: a page of entities in the order of their keys, from one partition or merged from all shards.
//!
//! Rows are read in chunks by key, so that nothing is held open, a page takes bounded memory and work, and one that
//! goes on later needs nothing but the last key: continuation outlives restarts and moves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use polyshard_azure_http::Timestamp;
use polyshard_catalog::DatasetRecord;
use polyshard_engine::{self as engine, Row, Statement, Value};
use polyshard_map::KeyRange;
use polyshard_router::{Access, RouterError, Ticket};

use super::entities::read_properties;
use super::statements::{From, Over, Until, texts};
use super::{StoreError, TableStore, number, timestamp};
use crate::edm::{EdmValue, Scalar};
use crate::entity::{Entity, Properties};
use crate::filter::{Filter, KeyBounds, KeyCondition};
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
/// Rows of later chunks at most: SQLite reads them on the thread that serves others, for about a millisecond.
const CHUNK_ROWS_MAX: usize = 512;
/// Bytes that later chunks should not exceed by much.
const CHUNK_BYTES: usize = 512 * 1024;
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
        let view = self.router.view();
        let known = view.maps.get(&record.map).ok_or_else(|| StoreError::NoMap(record.map.to_string()))?;
        // A partition that the map has no place for has no entities.
        let Ok(key) = record.rule.key(known.map.definition().key_type(), partition) else {
            return Ok(Page::default());
        };
        drop(view);
        self.router.admit_to(record, Some(&key), 1)?;
        let work = async move |ticket: &Ticket| plan.page(std::slice::from_ref(ticket)).await;
        self.router.call(&record.map, &[key], Access::Read, work).await?
    }

    /// Tickets are held for the whole page: no range can change its shard while rows of both are merged.
    async fn query_partitions(&self, record: &DatasetRecord, plan: &Plan) -> Result<Page, StoreError> {
        self.router.admit_to(record, None, 1)?;
        let mut tries = 0;
        loop {
            let error = match self.router.enter_range(&record.map, &KeyRange::all(), Access::Read).await {
                Ok(tickets) => match plan.page(&tickets).await {
                    Ok(page) => return page,
                    Err(error) => RouterError::Engine(error),
                },
                Err(error) => error,
            };
            tries += 1;
            let refused = matches!(error, RouterError::Engine(engine::Error::SessionRefused(_)));
            if tries >= TRIES_MAX || !(error.is_retryable() || refused) {
                return Err(error.into());
            }
            tokio::time::sleep(RETRY_AFTER * (1 << tries)).await;
            if refused {
                self.router.refresh().await?;
            }
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
    condition: Option<KeyCondition>,
    after: Option<(String, String)>,
    top: usize,
}

/// One shard's part of a page.
struct Source<'t> {
    ticket: &'t Ticket,
    /// The last key read.
    after: Option<(String, String)>,
    rows: VecDeque<Found>,
    /// Whether there is nothing after the rows.
    is_done: bool,
    /// Bytes of rows read so far, and how many they were.
    bytes: usize,
    count: usize,
}

/// A row as it was read.
struct Found {
    partition: Arc<str>,
    row: String,
    ticks: i64,
    properties: String,
    /// Whether the shard has it by right, and not from or for a move.
    is_owned: bool,
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
        let top = query.top.unwrap_or(PAGE_ROWS_MAX).min(PAGE_ROWS_MAX);
        let names = filter.as_ref().map(|filter| filter.properties()).unwrap_or_default();
        Plan { dataset, filter, names, bounds, condition, after: query.after.clone(), top }
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
            let empty = sources.iter_mut().filter(|source| source.rows.is_empty() && !source.is_done);
            try_join_all(empty.map(|source| self.fill(source, first_rows))).await?;
            let filled = sources.iter_mut().filter(|source| !source.rows.is_empty());
            let least = filled.min_by(|a, b| a.rows[0].key().cmp(&b.rows[0].key()));
            let Some(source) = least else { return Ok(Ok(page)) };
            if page.entities.len() >= self.top || bytes >= PAGE_BYTES_MAX || examined >= EXAMINED_ROWS_MAX {
                page.next = passed.or_else(|| page.entities.last().map(key_of));
                return Ok(Ok(page));
            }
            let found = source.rows.pop_front().expect("it was looked at");
            examined += 1;
            let length = found.properties.len();
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
        Source {
            ticket,
            after: self.after.clone(),
            rows: VecDeque::new(),
            is_done: false,
            bytes: 0,
            count: 0,
        }
    }

    /// Reads the next chunk of a shard.
    async fn fill(&self, source: &mut Source<'_>, first_rows: usize) -> Result<(), engine::Error> {
        let rows_max = match source.bytes.checked_div(source.count) {
            None => first_rows,
            Some(each) => (CHUNK_BYTES / each.max(1)).clamp(1, CHUNK_ROWS_MAX),
        };
        let partition = self.bounds.partition.only();
        let shared: Option<Arc<str>> = partition.map(Arc::from);
        let statement = self.statement(source, partition, rows_max);
        let rows = source.ticket.read(statement).await?.into_rows();
        source.is_done = rows.len() < rows_max;
        for row in rows {
            let found = read_row(row, shared.as_ref(), source.ticket.ranges())?;
            source.bytes += found.properties.len();
            source.count += 1;
            source.rows.push_back(found);
        }
        if let Some(found) = source.rows.back() {
            source.after = Some((found.partition.to_string(), found.row.clone()));
        }
        Ok(())
    }

    fn statement(&self, source: &Source<'_>, partition: Option<&str>, rows_max: usize) -> Statement {
        let texts = texts(source.ticket.dialect());
        let (over, last) = match partition {
            Some(_) => (Over::Partition, self.bounds.row.hi.as_deref()),
            None => (Over::Partitions, self.bounds.partition.hi.as_deref()),
        };
        let (from, start) = self.start(source, partition);
        let until = if last.is_some() { Until::Last } else { Until::End };
        let first = if last.is_some() { 6 } else { 5 };
        let (condition, values) =
            self.condition.as_ref().map(|condition| condition.to_sql(first)).unwrap_or_default();
        let mut statement = Statement::new(texts.scan(over, from, until, &condition))
            .bind(self.dataset)
            .bind(start.0)
            .bind(start.1)
            .bind(i64::try_from(rows_max).expect("chunks are small"));
        if let Some(last) = last {
            statement = statement.bind(last);
        }
        values.into_iter().fold(statement, Statement::bind)
    }

    /// Where the next chunk begins: at the first key that the bounds allow, or after the last one read.
    fn start<'a>(&'a self, source: &'a Source<'_>, partition: Option<&'a str>) -> (From, (&'a str, &'a str)) {
        let low = |bound: &'a Option<String>| bound.as_deref().unwrap_or_default();
        let first = match partition {
            Some(partition) => (partition, low(&self.bounds.row.lo)),
            None => (low(&self.bounds.partition.lo), ""),
        };
        let after = source.after.as_ref().map(|(partition, row)| (partition.as_str(), row.as_str()));
        match after {
            Some(after) if after >= first => (From::After, after),
            _ => (From::At, first),
        }
    }

    /// The entity of a row, if it is there by right and the filter lets it through. Of a row that is passed over, only
    /// what the filter looks at is read.
    fn matching(&self, found: Found) -> Result<Looked, StoreError> {
        let time = timestamp(found.ticks)?;
        let mut is_wanted = found.is_owned;
        if let Some(filter) = &self.filter
            && is_wanted
        {
            let named = stored::read_named(&found.properties, &self.names);
            let named = named.map_err(|detail| StoreError::Damaged { what: "entity", detail })?;
            let value = |name: &str| scalar(name, &found.partition, &found.row, time, &named);
            is_wanted = filter.matches(&value);
        }
        if !is_wanted {
            return Ok(Looked::Passed(found.partition, found.row));
        }
        let properties = read_properties(&found.properties)?;
        let entity = Entity::stored(found.partition.to_string(), found.row, time, properties);
        Ok(Looked::Found(Box::new(entity)))
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

impl Found {
    fn key(&self) -> (&str, &str) {
        (&self.partition, &self.row)
    }
}

/// A property of an entity by name, as filters see it.
fn scalar<'a>(
    name: &str,
    partition: &'a str,
    row: &'a str,
    time: Timestamp,
    properties: &'a Properties,
) -> Option<Scalar<'a>> {
    match name {
        "PartitionKey" => Some(Scalar::String(partition)),
        "RowKey" => Some(Scalar::String(row)),
        "Timestamp" => Some(Scalar::DateTime(time)),
        _ => properties.get(name).map(EdmValue::scalar),
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
    match (key, properties) {
        (Some(Value::Text(row)), Some(Value::Text(properties))) => {
            Ok(Found { partition, row, ticks, properties, is_owned })
        }
        _ => Err(engine::Error::invalid("a key or the properties of an entity are no text")),
    }
}

/// Whether a placement is in one of these ranges, which are in order.
fn is_in(ranges: &[KeyRange], placement: &[u8]) -> bool {
    let after = ranges.partition_point(|range| range.lo().as_slice() <= placement);
    after > 0 && ranges[after - 1].contains(placement)
}
