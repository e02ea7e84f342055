//! The rows of a content that is made of blocks or appends: how they are written, and read by offset.

mod list;

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use polyshard_engine::{self as engine, Dialect, Expect, Row, Rows};

use super::home::Home;
use super::rows::Step;

pub(super) use list::{Entry, EntryPlace, LIST_BLOCKS_MAX, ObjectNumber, Piece, pieces};

use crate::objects::ObjectId;
use crate::schema::EXTENTS;

/// Rows whose lists are read together: each has up to a thousand blocks.
pub(super) const LIST_ROWS_MAX: i64 = 8;

/// A row of a content: bytes of the blob that follow each other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Extent {
    /// Where its bytes begin in the blob.
    pub start: u64,
    /// Its number among the rows of the content: rows without bytes begin where the next one does.
    pub seq: i64,
    /// How many bytes it has.
    pub length: u64,
    /// The bytes, or where they are.
    pub holds: Holds,
}

/// What a row of a content has.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Holds {
    /// Blocks, whose bytes are elsewhere.
    Blocks(Vec<Entry>),
    /// The bytes of a small append.
    Body(Bytes),
}

impl Extent {
    /// The rows of a list of blocks.
    pub fn of_blocks(blocks: &[Entry]) -> Vec<Extent> {
        let mut rows: Vec<Extent> = Vec::new();
        // The blob may have been made of blocks with ids of another length before.
        for alike in blocks.chunk_by(|a, b| a.id.len() == b.id.len()) {
            for blocks in alike.chunks(LIST_BLOCKS_MAX) {
                let start = rows.last().map_or(0, |row| row.start + row.length);
                rows.push(Extent {
                    start,
                    seq: i64::try_from(rows.len()).expect("a blob has few blocks"),
                    length: blocks.iter().map(|block| block.size).sum(),
                    holds: Holds::Blocks(blocks.to_vec()),
                });
            }
        }
        rows
    }

    /// The row's own reading of the database's answer.
    fn of_row(row: &Row) -> Result<Extent, engine::Error> {
        let length = number(row, 2)?;
        let holds = match (row.opt_blob(3)?, row.opt_blob(4)?) {
            (Some(blocks), None) => Holds::Blocks(list::decode(blocks).map_err(engine::Error::invalid)?),
            (None, Some(body)) => Holds::Body(Bytes::copy_from_slice(body)),
            _ => return Err(engine::Error::invalid("an extent has either blocks or a body")),
        };
        let held = match &holds {
            Holds::Blocks(blocks) => blocks.iter().map(|block| block.size).sum(),
            Holds::Body(body) => body.len() as u64,
        };
        if held != length {
            return Err(engine::Error::invalid(format!("an extent of {length} bytes holds {held}")));
        }
        Ok(Extent { start: number(row, 0)?, seq: row.int(1)?, length, holds })
    }
}

/// The number of an object, as lists of blocks have it.
pub(super) fn object_number(id: &ObjectId) -> ObjectNumber {
    u128::from_str_radix(id.as_str(), 16).expect("ids are checked when they are made").to_be_bytes()
}

/// The object that a list of blocks names.
pub(super) fn object_id(number: ObjectNumber) -> ObjectId {
    let number = u128::from_be_bytes(number);
    ObjectId::new((number >> 64) as u64, number as u64)
}

/// The objects that a stored list of blocks names.
pub(crate) fn objects_of(blocks: &[u8]) -> Result<Vec<ObjectId>, String> {
    let object = |entry: Entry| match entry.place {
        EntryPlace::Object { object, .. } => Some(object_id(object)),
        EntryPlace::Staged { .. } => None,
    };
    Ok(list::decode(blocks)?.into_iter().filter_map(object).collect())
}

/// A size or offset.
pub(super) fn number(row: &Row, column: usize) -> Result<u64, engine::Error> {
    let value = row.int(column)?;
    u64::try_from(value).map_err(|_| engine::Error::invalid(format!("{value} is no size")))
}

/// A size or offset as it is stored.
pub(super) fn stored(number: u64) -> i64 {
    i64::try_from(number).expect("sizes have 63 bits: limits are checked before")
}

/// What is asked of extents.
struct Texts {
    insert: Arc<str>,
    from: Arc<str>,
    lists: Arc<str>,
}

impl Texts {
    fn new(dialect: Dialect) -> Texts {
        let table = dialect.own_table(EXTENTS);
        let text = |text: String| Arc::<str>::from(text);
        let content = "placement = $2 AND dataset = $1 AND name = $3 AND content = $4";
        let columns = "start, seq, length, blocks, body";
        Texts {
            insert: text(format!(
                "INSERT INTO {table} (dataset, placement, name, content, {columns}) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
            )),
            // Begins with the row that has the first byte. Rows without bytes have none of the range.
            from: text(format!(
                "SELECT {columns} FROM {table} WHERE {content} AND start >= \
                 coalesce((SELECT max(start) FROM {table} WHERE {content} AND start <= $5 AND length > 0), 0) \
                 AND start < $6 AND length > 0 ORDER BY start, seq LIMIT CAST($7 AS bigint)"
            )),
            lists: text(format!(
                "SELECT start, seq, blocks FROM {table} WHERE {content} AND (start, seq) > ($5, $6) \
                 ORDER BY start, seq LIMIT CAST($7 AS bigint)"
            )),
        }
    }
}

fn texts(dialect: Dialect) -> &'static Texts {
    static SQLITE: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Sqlite));
    static POSTGRES: LazyLock<Texts> = LazyLock::new(|| Texts::new(Dialect::Postgres));
    match dialect {
        Dialect::Sqlite => &SQLITE,
        Dialect::Postgres => &POSTGRES,
    }
}

/// Writes a row of a content.
pub(super) fn insert(home: &Home, content: i64, extent: &Extent) -> Step {
    let (blocks, body) = match &extent.holds {
        Holds::Blocks(blocks) => (Some(list::encode(blocks)), None),
        Holds::Body(body) => (None, Some(body.to_vec())),
    };
    Step::new(home, |dialect| texts(dialect).insert.clone())
        .bind(content)
        .bind(stored(extent.start))
        .bind(extent.seq)
        .bind(stored(extent.length))
        .bind(blocks)
        .bind(body)
        .expect(Expect::Rows(1))
}

/// Reads the rows that have bytes of a range, from its beginning on.
pub(super) fn read_from(home: &Home, content: i64, range: &Range<u64>, rows_max: usize) -> Step {
    Step::new(home, |dialect| texts(dialect).from.clone())
        .bind(content)
        .bind(stored(range.start))
        .bind(stored(range.end))
        .bind(stored(rows_max as u64))
}

/// Reads the lists of rows after one, which is known by where it begins and its number.
pub(super) fn read_lists(home: &Home, content: i64, after: Place) -> Step {
    Step::new(home, |dialect| texts(dialect).lists.clone())
        .bind(content)
        .bind(after.0)
        .bind(after.1)
        .bind(LIST_ROWS_MAX)
}

/// Where a row lies in its content: its start and number.
type Place = (i64, i64);

/// The blocks of the rows that [`read_lists`] has found, and the last row if there was one. Rows of small appends have
/// none.
pub(super) fn listed(rows: &Rows) -> Result<(Vec<Entry>, Option<Place>), engine::Error> {
    let (mut entries, mut last) = (Vec::new(), None);
    for row in rows {
        if let Some(blocks) = row.opt_blob(2)? {
            entries.extend(list::decode(blocks).map_err(engine::Error::invalid)?);
        }
        last = Some((row.int(0)?, row.int(1)?));
    }
    Ok((entries, last))
}

/// The rows that a statement has read.
pub(super) fn read(rows: &Rows) -> Result<Vec<Extent>, engine::Error> {
    rows.iter().map(Extent::of_row).collect()
}
