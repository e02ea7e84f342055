//! Cursors, and portals with a fetch size, on SQLite shards: the answer is kept by the door, so that a client that
//! takes its time holds neither a reader nor the shard's only writer.

use std::cmp::Ordering;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use polyshard_engine::{Rows, Value};
use polyshard_sql::{Declare, Direction, Fetch, Param, SqlError, SqlState};
use polyshard_sql_on_sqlite::OutColumn;
use tempfile::SpooledTempFile;

use super::run::{fields, put_row};
use crate::across::PORTAL_SUSPENDED;
use crate::cache::Analysed;
use crate::reply;
use crate::session::{Done, Session, Stop};

/// An answer kept in memory; a longer one goes to a file without a name.
const MEMORY_BYTES_MAX: usize = 1024 * 1024;
/// An answer kept at all: a client must not fill the disk of all others.
const KEPT_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// The places of every so many rows are known; those between are found from there.
const STRIDE: u64 = 64;

/// An answer that a client takes in parts.
pub(crate) struct Kept {
    columns: Vec<OutColumn>,
    data: SpooledTempFile,
    bytes: u64,
    /// Where the first, the 65th, … row begins.
    places: Vec<u64>,
    rows: u64,
    /// The row that it stands on, from 1; 0 before the first, and one more than there are after the last.
    at: u64,
    /// Whether it may go back.
    scroll: bool,
    /// The forms in which a portal's rows were asked for when it was bound: none, one for all, or one each.
    forms: Vec<bool>,
}

impl Kept {
    pub fn new(scroll: bool) -> Kept {
        let data = SpooledTempFile::new(MEMORY_BYTES_MAX);
        Kept {
            columns: Vec::new(),
            data,
            bytes: 0,
            places: Vec::new(),
            rows: 0,
            at: 0,
            scroll,
            forms: Vec::new(),
        }
    }

    /// Notes what its columns are.
    pub fn describe(&mut self, columns: &[OutColumn]) {
        self.columns = columns.to_vec();
    }

    /// Its columns.
    pub fn fields(&self) -> Vec<reply::Field> {
        fields(&self.columns)
    }

    /// Takes in more rows.
    pub fn add(&mut self, rows: &Rows) -> Result<(), SqlError> {
        let mut written = Vec::new();
        for row in rows.iter() {
            if self.rows.is_multiple_of(STRIDE) {
                self.places.push(self.bytes + written.len() as u64);
            }
            self.rows += 1;
            write_row(&mut written, row.values());
        }
        self.bytes += written.len() as u64;
        if self.bytes > KEPT_BYTES_MAX {
            let message = "the answer of a cursor is longer than 4 GiB";
            return Err(SqlError::new(SqlState("54000"), message).hint("Read it in parts, by conditions."));
        }
        self.data.write_all(&written).map_err(lost)
    }

    /// Which rows a direction means from here, as (first, last): backwards if the last comes before the first; none if
    /// there is none. And where it stands then.
    fn find(&self, direction: Direction) -> (Option<(u64, u64)>, u64) {
        let after = self.rows + 1;
        let clamp = |place: i128| u64::try_from(place.clamp(0, i128::from(after))).unwrap_or(0);
        let (at, rows) = (i128::from(self.at), i128::from(self.rows));
        let one = |place: u64| ((1..=self.rows).contains(&place).then_some((place, place)), place);
        match direction {
            Direction::By(0) | Direction::Relative(0) => one(self.at),
            Direction::By(count) if count > 0 => {
                let to = clamp(at + i128::from(count));
                let (first, last) = (self.at + 1, to.min(self.rows));
                ((first <= last).then_some((first, last)), to)
            }
            Direction::By(count) => {
                let to = clamp(at + i128::from(count));
                let (first, last) = (clamp(at - 1), to.max(1));
                ((first >= last).then_some((first, last)), to)
            }
            Direction::Absolute(number) if number >= 0 => one(clamp(i128::from(number))),
            Direction::Absolute(number) => one(clamp(rows + 1 + i128::from(number))),
            Direction::Relative(by) => one(clamp(at + i128::from(by))),
        }
    }

    /// Goes in a direction: the rows that it passes.
    fn go(&mut self, direction: Direction) -> Result<Passed, SqlError> {
        let (found, to) = self.find(direction);
        if !self.scroll && to < self.at {
            return Err(SqlError::new(
                SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "cursor can only scan forward",
            )
            .hint("Declare it with SCROLL option to enable backward scan."));
        }
        self.at = to;
        Ok(Passed { next: None, left: found })
    }

    /// Whether all rows were passed.
    pub fn is_over(&self) -> bool {
        self.at > self.rows
    }

    /// The next of the rows that were passed.
    fn next(&mut self, passed: &mut Passed) -> Result<Option<Vec<Value>>, SqlError> {
        let Some((place, last)) = passed.left else { return Ok(None) };
        passed.left = match place.cmp(&last) {
            Ordering::Less => Some((place + 1, last)),
            Ordering::Equal => None,
            Ordering::Greater => Some((place - 1, last)),
        };
        if passed.next != Some(place) {
            self.seek(place)?;
        }
        passed.next = Some(place + 1);
        self.read_row().map(Some)
    }

    fn seek(&mut self, place: u64) -> Result<(), SqlError> {
        let before = usize::try_from((place - 1) / STRIDE).ok().and_then(|at| self.places.get(at)).copied();
        self.data.seek(SeekFrom::Start(before.unwrap_or(0))).map_err(lost)?;
        for _ in 0..(place - 1) % STRIDE {
            let length = self.read_length()?;
            self.data.seek(SeekFrom::Current(i64::from(length))).map_err(lost)?;
        }
        Ok(())
    }

    fn read_length(&mut self) -> Result<u32, SqlError> {
        let mut length = [0; 4];
        self.data.read_exact(&mut length).map_err(lost)?;
        Ok(u32::from_be_bytes(length))
    }

    fn read_row(&mut self) -> Result<Vec<Value>, SqlError> {
        let mut bytes = vec![0; self.read_length()? as usize];
        self.data.read_exact(&mut bytes).map_err(lost)?;
        read_values(&bytes)
            .ok_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "a kept row cannot be read"))
    }
}

/// Rows that a cursor has passed.
struct Passed {
    /// The row that the data stands before.
    next: Option<u64>,
    /// The first and the last of those that are left, which is the lower one if they are passed backwards.
    left: Option<(u64, u64)>,
}

impl Passed {
    fn count(&self) -> u64 {
        self.left.map_or(0, |(first, last)| first.abs_diff(last) + 1)
    }
}

impl Session {
    /// DECLARE on SQLite shards: the whole answer is read now, as it is at this moment.
    pub(super) async fn declare_lite(
        &mut self,
        cursor: &Declare,
        params: &[Param<'_>],
        types: &[u32],
    ) -> Done {
        self.check_cursor(cursor)?;
        let query = Analysed::new(cursor.query.clone());
        let schema = self.current_schema().await?;
        if self.lite_prepared(&query, &schema, types)?.writes() {
            let message = "DECLARE CURSOR must not contain data-modifying statements in WITH";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).into());
        }
        let kept = self.keep_answer(&query, params, types, cursor.scroll != Some(false)).await?;
        self.hold_kept(&cursor.name, kept, cursor.hold);
        reply::complete(&mut self.client.out, "DECLARE CURSOR");
        Ok(())
    }

    /// Runs a SELECT, and keeps its answer.
    async fn keep_answer(
        &mut self,
        analysed: &Analysed,
        params: &[Param<'_>],
        types: &[u32],
        scroll: bool,
    ) -> Result<Box<Kept>, Stop> {
        self.keeping = Some(Box::new(Kept::new(scroll)));
        let done = Box::pin(self.run_lite(analysed, params, types)).await;
        let kept = self.keeping.take();
        done?;
        kept.ok_or_else(|| SqlError::new(SqlState::INTERNAL_ERROR, "an answer was not kept").into())
    }

    /// The first rows of a portal that is taken in parts.
    pub(super) async fn begin_portal_lite(
        &mut self,
        (name, rows_max): (String, i32),
        analysed: &Analysed,
        params: &[Param<'_>],
        types: &[u32],
    ) -> Done {
        self.check_room()?;
        let asked = self.asked.take();
        let kept = self.keep_answer(analysed, params, types, false).await;
        self.asked = asked;
        let mut kept = kept?;
        kept.forms.clone_from(&self.formats);
        self.put_part(&mut kept, rows_max).await?;
        self.hold_kept(&name, kept, false);
        Ok(())
    }

    /// So many rows that follow, and how the part ends.
    pub(crate) async fn put_part(&mut self, kept: &mut Kept, rows_max: i32) -> Done {
        let count = if rows_max > 0 { i64::from(rows_max) } else { Direction::ALL };
        let passed = kept.go(Direction::By(count))?;
        let (count, forms) = (passed.count(), kept.forms.clone());
        self.put_kept(kept, passed, &forms).await?;
        if kept.is_over() {
            reply::complete(&mut self.client.out, &format!("SELECT {count}"));
        } else {
            self.client.out.extend_from_slice(PORTAL_SUSPENDED);
        }
        Ok(())
    }

    /// FETCH or MOVE.
    pub(crate) async fn fetch_kept(&mut self, kept: &mut Kept, fetch: &Fetch) -> Done {
        let passed = kept.go(fetch.direction)?;
        let count = passed.count();
        if !fetch.moves {
            self.columns(&kept.fields());
            let forms = if self.extended { self.formats.clone() } else { Vec::new() };
            self.put_kept(kept, passed, &forms).await?;
        }
        let word = if fetch.moves { "MOVE" } else { "FETCH" };
        reply::complete(&mut self.client.out, &format!("{word} {count}"));
        Ok(())
    }

    async fn put_kept(&mut self, kept: &mut Kept, mut passed: Passed, forms: &[bool]) -> Done {
        while let Some(row) = kept.next(&mut passed)? {
            put_row(&mut self.client.out, &kept.columns, &row, forms, &self.lite_settings)?;
            self.client.flush_if_full().await?;
        }
        Ok(())
    }
}

fn lost(error: std::io::Error) -> SqlError {
    SqlError::new(SqlState("53100"), format!("the answer of a cursor cannot be kept: {error}"))
        .hint("Make room where temporary files are kept, or ask for fewer rows.")
}

/// A row: its length, and then its values, each behind a letter for its kind.
fn write_row(out: &mut Vec<u8>, values: &[Value]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    for value in values {
        let (kind, bytes): (u8, &[u8]) = match value {
            Value::Null => (b'n', &[]),
            Value::Bool(truth) => (b'b', &[u8::from(*truth)]),
            Value::Int(number) => (b'i', &number.to_be_bytes()),
            Value::Real(number) => (b'r', &number.to_be_bytes()),
            Value::Text(text) => (b't', text.as_bytes()),
            Value::Blob(bytes) => (b'x', bytes),
        };
        out.push(kind);
        out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        out.extend_from_slice(bytes);
    }
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn read_values(mut bytes: &[u8]) -> Option<Vec<Value>> {
    let mut values = Vec::new();
    while let Some((kind, rest)) = bytes.split_first() {
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        values.push(match kind {
            b'n' => Value::Null,
            b'b' => Value::Bool(value == [1]),
            b'i' => Value::Int(i64::from_be_bytes(value.try_into().ok()?)),
            b'r' => Value::Real(f64::from_be_bytes(value.try_into().ok()?)),
            b't' => Value::Text(String::from_utf8(value.to_vec()).ok()?),
            b'x' => Value::Blob(value.to_vec()),
            _ => return None,
        });
        bytes = rest;
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: u64, scroll: bool) -> Kept {
        let mut kept = Kept::new(scroll);
        let mut written = Vec::new();
        for row in 1..=rows {
            if (row - 1).is_multiple_of(STRIDE) {
                kept.places.push(written.len() as u64);
            }
            write_row(
                &mut written,
                &[Value::Int(row as i64), Value::Text("x".repeat(row as usize % 7)), Value::Null],
            );
        }
        kept.rows = rows;
        kept.data.write_all(&written).unwrap();
        kept
    }

    fn numbers(kept: &mut Kept, direction: Direction) -> Vec<i64> {
        let mut passed = kept.go(direction).unwrap();
        let (count, mut found) = (passed.count(), Vec::new());
        while let Some(row) = kept.next(&mut passed).unwrap() {
            let Value::Int(number) = row[0] else { panic!("{row:?}") };
            assert_eq!((row.len(), &row[2]), (3, &Value::Null));
            found.push(number);
        }
        assert_eq!(count, found.len() as u64);
        found
    }

    #[test]
    fn it_goes_as_postgresql_goes() {
        let (by, absolute, relative) = (Direction::By, Direction::Absolute, Direction::Relative);
        let mut kept = of(5, true);
        assert_eq!(numbers(&mut kept, by(2)), [1, 2]);
        assert_eq!(numbers(&mut kept, by(0)), [2]);
        assert_eq!(numbers(&mut kept, by(-2)), [1]);
        assert_eq!(numbers(&mut kept, by(0)), [0; 0], "it is before the first");
        assert_eq!(numbers(&mut kept, absolute(-1)), [5]);
        assert_eq!(numbers(&mut kept, by(-Direction::ALL)), [4, 3, 2, 1]);
        assert_eq!(numbers(&mut kept, by(Direction::ALL)), [1, 2, 3, 4, 5]);
        assert_eq!(numbers(&mut kept, by(1)), [0; 0]);
        assert_eq!(numbers(&mut kept, by(-1)), [5]);
        assert_eq!(numbers(&mut kept, relative(-3)), [2]);
        assert_eq!(numbers(&mut kept, relative(0)), [2]);
        assert_eq!(numbers(&mut kept, absolute(9)), [0; 0]);
        assert_eq!(numbers(&mut kept, absolute(0)), [0; 0]);
        assert_eq!(numbers(&mut kept, absolute(-9)), [0; 0]);
        assert_eq!(numbers(&mut kept, by(1)), [1]);
    }

    #[test]
    fn rows_are_found_wherever_they_are() {
        let mut kept = of(1000, true);
        for place in [1, 64, 65, 66, 128, 129, 999, 1000, 500] {
            assert_eq!(numbers(&mut kept, Direction::Absolute(place)), [place]);
        }
        let mut forward = of(1000, false);
        assert_eq!(numbers(&mut forward, Direction::By(700)).len(), 700);
        assert!(forward.go(Direction::By(-1)).is_err());
        assert_eq!(numbers(&mut forward, Direction::By(700)).last(), Some(&1000));
        assert!(forward.is_over());
    }
}
