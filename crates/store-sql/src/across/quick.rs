//! A question to several shards whose rows are few: each shard is asked one statement, and what they said is put
//! together here if it is sums of whole numbers, or else by one of them, with the rows as parameters.
//!
//! The statement has the shard's rows, and whether ranges are in motion there, both in its one snapshot. Should some
//! be, or should there be more rows than fit, nothing was said to the client, and the question is asked the longer way.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use polyshard_sql::Fold;

use super::columns::{self, Kind};
use super::known::{Known, Learnt};
use super::motion;
use super::series::{Asked, Series, is_stale};
use super::shards::Shards;
use super::worker::{Sink, Trouble, Worker, no_copy};
use crate::client::Client;
use crate::reply;
use crate::session::Session;

/// Most rows of one shard that are combined without a temporary table.
pub(super) const ROWS_MAX: u64 = 1000;
/// Most bytes of all shards: they are held here, by every client that asks.
const BYTES_MAX: usize = 256 * 1024;
/// Columns before those of the rows: whether something is in motion, and whether there is a row at all.
const OWN_COLUMNS: usize = 2;

/// The rows of a fragment, or one without values if there are none, each after what we want to know of the shard.
///
/// Proof: a LEFT JOIN of one row with the fragment on a condition that always holds has every row of the fragment once.
fn with_motion(fragment: &str) -> String {
    format!(
        "SELECT m.moving, r.* FROM (SELECT {} AS moving) AS m \
         LEFT JOIN (SELECT true AS there, f.* FROM ({fragment}) AS f) AS r ON true",
        motion::is_any()
    )
}

/// Rows of all shards, without what is ours.
struct Gathered {
    /// Each as the fields of a DataRow, in text form.
    rows: Vec<Bytes>,
    bytes: usize,
    moving: bool,
}

impl Gathered {
    /// Adds a DataRow; nothing if it is none.
    fn add(&mut self, mut body: BytesMut) -> Option<()> {
        let (count, mut rest) = body.split_first_chunk::<2>()?;
        if usize::from(u16::from_be_bytes(*count)) < OWN_COLUMNS {
            return None;
        }
        self.moving |= take_field(&mut rest)?? == b"t";
        if take_field(&mut rest)?.is_some() {
            let own = body.len() - rest.len();
            body.advance(own);
            self.bytes += body.len();
            self.rows.push(body.freeze());
        }
        Some(())
    }

    /// The columns, each as an array in PostgreSQL's own form; nothing if a row has not as many.
    fn arrays(&self, columns: usize) -> Option<Vec<BytesMut>> {
        let mut arrays = vec![BytesMut::from(&b"{"[..]); columns];
        for (at, row) in self.rows.iter().enumerate() {
            let mut rest = &row[..];
            for array in &mut arrays {
                if at > 0 {
                    array.put_u8(b',');
                }
                let Some(value) = take_field(&mut rest)? else {
                    array.put_slice(b"NULL");
                    continue;
                };
                array.put_u8(b'"');
                for byte in value {
                    if matches!(byte, b'"' | b'\\') {
                        array.put_u8(b'\\');
                    }
                    array.put_u8(*byte);
                }
                array.put_u8(b'"');
            }
            if !rest.is_empty() {
                return None;
            }
        }
        arrays.iter_mut().for_each(|array| array.put_u8(b'}'));
        Some(arrays)
    }

    /// The only row of the answer, each field with how many bytes its type has; nothing if it cannot be computed here.
    fn folded(&self, folds: &[Fold], columns: &[Learnt]) -> Option<Vec<(Option<i64>, usize)>> {
        folds.iter().map(|fold| self.fold(*fold, columns)).collect()
    }

    fn fold(&self, fold: Fold, columns: &[Learnt]) -> Option<(Option<i64>, usize)> {
        let (Fold::Count(at) | Fold::Sum(at) | Fold::Least(at) | Fold::Greatest(at)) = fold;
        let bytes = whole_number_bytes(columns.get(at)?.kind)?;
        let mut values = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let mut rest = &row[..];
            for _ in 0..at {
                take_field(&mut rest)?;
            }
            if let Some(value) = take_field(&mut rest)? {
                values.push(std::str::from_utf8(value).ok()?.parse::<i64>().ok()?);
            }
        }
        let sum = || values.iter().try_fold(0_i64, |sum, value| sum.checked_add(*value));
        match fold {
            // The sum of smaller ones is no bigint before it is cast.
            Fold::Count(_) | Fold::Sum(_) if bytes != 8 => None,
            Fold::Count(_) => Some((Some(sum()?), bytes)),
            Fold::Sum(_) if values.is_empty() => Some((None, bytes)),
            Fold::Sum(_) => Some((Some(sum()?), bytes)),
            Fold::Least(_) => Some((values.into_iter().min(), bytes)),
            Fold::Greatest(_) => Some((values.into_iter().max(), bytes)),
        }
    }
}

/// The next field of a row, of which NULL has none; nothing if there is no other.
fn take_field<'r>(rest: &mut &'r [u8]) -> Option<Option<&'r [u8]>> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else { return Some(None) };
    let (value, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(Some(value))
}

/// How many bytes smallint, integer and bigint have.
fn whole_number_bytes(kind: Kind) -> Option<usize> {
    match kind.type_oid {
        21 => Some(2),
        23 => Some(4),
        20 => Some(8),
        _ => None,
    }
}

impl Session {
    /// Few rows of all shards, put together. False if it is to be asked the longer way.
    pub(super) async fn combine_at_once(
        &mut self,
        working: &mut Shards,
        known: &Known,
        expected: &Arc<Vec<Learnt>>,
    ) -> Result<bool, Trouble> {
        let Some(quick) = &known.plan.quick else { return Ok(false) };
        let ids = known.prepared();
        let id = ids.map(|[fragment, ..]| fragment);
        let mut all = Vec::new();
        for worker in working.all() {
            // One more than fits, to see whether there are more. In the text, since PostgreSQL works on what is asked
            // for in parts without its parallel workers.
            let text = with_motion(&known.plan.fragments[0].sql_on(worker.shard()));
            let text = format!("{text} LIMIT {}", ROWS_MAX + 1);
            let mut series = Series::default();
            let rows = Asked { id, text: &text, values: &[], forms: &[], described: true, rows_max: 0 };
            series.ask(worker, &rows);
            series.send(worker).await?;
            all.push(series);
        }
        let mut gathered = Gathered { rows: Vec::new(), bytes: 0, moving: false };
        for (worker, series) in working.all().zip(&mut all) {
            if !take_rows(worker, series, self.client(), known, expected, &mut gathered).await? {
                return Ok(false);
            }
        }
        if !self.is_still(gathered.moving) {
            return Ok(false);
        }
        known.lesson.count(gathered.rows.len() as u64);
        let (forms, told) = self.wanted_forms();
        let shown = known.shown.load();
        if let Some(folds) = quick.folds()
            && (told || shown.is_some())
            && let Some(row) = gathered.folded(folds, expected)
        {
            let out = &mut self.client().out;
            if let Some(shown) = shown.as_ref().filter(|_| !told) {
                columns::tell(out, shown);
            }
            put_row(out, &row, &forms);
            reply::complete(out, "SELECT 1");
            return Ok(true);
        }
        let Some(worker) = working.all().next() else { return Ok(false) };
        let values = gathered.arrays(expected.len()).ok_or_else(|| no_copy(worker.shard()))?;
        let given: Vec<_> = expected.iter().map(|known| known.given.clone()).collect();
        let (id, text) = (ids.map(|[_, combine, _]| combine), quick.over(&given));
        let mut series = Series::default();
        let asked = Asked { id, text: &text, values: &values, forms: &forms, described: true, rows_max: 0 };
        series.ask(worker, &asked);
        series.send(worker).await?;
        let description = match series.columns(worker, self.client()).await {
            Err(trouble) if is_stale(known, &trouble) => return Ok(false),
            described => described?,
        };
        if !told {
            columns::tell(&mut self.client().out, &description);
            if shown.is_none() && quick.folds().is_some() {
                known.shown.store(Some(Arc::new(description.freeze())));
            }
        }
        let passed = worker.pass(self.client(), Sink::Client, u64::MAX).await?;
        reply::complete(&mut self.client().out, &passed.tag);
        Ok(true)
    }
}

/// Takes a shard's rows in. False if they are not as expected, which is noted.
async fn take_rows(
    worker: &mut Worker,
    series: &mut Series,
    client: &mut Client,
    known: &Known,
    expected: &[Learnt],
    gathered: &mut Gathered,
) -> Result<bool, Trouble> {
    let (mut same, mut rows) = (true, 0);
    loop {
        if worker.raw().head().is_ok_and(|head| head.is_some_and(|frame| frame.bytes > BYTES_MAX))
            || gathered.bytes > BYTES_MAX
        {
            // No more is held; the session ends with the rest of it.
            known.lesson.too_many();
            return Ok(false);
        }
        match series.next(worker, client).await? {
            (b'T', body) => {
                let kinds = columns::kinds(&body).skip(OWN_COLUMNS);
                same = kinds.eq(expected.iter().map(|known| known.kind));
            }
            (b'D', _) if rows >= ROWS_MAX => {
                known.lesson.too_many();
                same = false;
            }
            (b'D', body) if same => {
                rows += 1;
                gathered.add(body).ok_or_else(|| no_copy(worker.shard()))?;
            }
            (b'E', body) => {
                let trouble = series.fail(worker, client, body).await;
                return if is_stale(known, &trouble) { Ok(false) } else { Err(trouble) };
            }
            (b'Z', _) if !same => {
                known.lesson.forget();
                return Ok(false);
            }
            (b'Z', _) => return Ok(true),
            _ => {}
        }
    }
}

/// A DataRow of whole numbers, in these forms: none, one for all, or one each; true is binary.
fn put_row(out: &mut BytesMut, row: &[(Option<i64>, usize)], forms: &[bool]) {
    reply::message(out, b'D', |out| {
        out.put_u16(u16::try_from(row.len()).unwrap_or(u16::MAX));
        for (at, (value, bytes)) in row.iter().enumerate() {
            let binary = if forms.len() == 1 { forms[0] } else { forms.get(at).copied().unwrap_or(false) };
            match value {
                None => out.put_i32(-1),
                Some(value) if binary => {
                    out.put_i32(i32::try_from(*bytes).unwrap_or_default());
                    out.put_slice(&value.to_be_bytes()[8 - bytes..]);
                }
                Some(value) => {
                    let digits = value.to_string();
                    out.put_i32(i32::try_from(digits.len()).unwrap_or_default());
                    out.put_slice(digits.as_bytes());
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use polyshard_sql::GivenColumn;

    use super::*;

    fn row(fields: &[Option<&str>]) -> BytesMut {
        let mut body = BytesMut::new();
        body.put_u16(u16::try_from(fields.len()).unwrap());
        for field in fields {
            match field {
                None => body.put_i32(-1),
                Some(text) => {
                    body.put_i32(i32::try_from(text.len()).unwrap());
                    body.put_slice(text.as_bytes());
                }
            }
        }
        body
    }

    fn gathered(rows: &[&[Option<&str>]]) -> Gathered {
        let mut gathered = Gathered { rows: Vec::new(), bytes: 0, moving: false };
        for fields in rows {
            gathered.add(row(&[&[Some("f"), Some("t")], *fields].concat())).unwrap();
        }
        gathered
    }

    #[test]
    fn rows_become_arrays_that_postgresql_reads() {
        let mut rows =
            gathered(&[&[Some("1"), Some("a \"b\" \\, {}")], &[None, Some("NULL")], &[Some(""), None]]);
        rows.add(row(&[Some("f"), None, None, None])).unwrap();
        let arrays = rows.arrays(2).unwrap();
        assert_eq!(arrays[0], &br#"{"1",NULL,""}"#[..]);
        assert_eq!(arrays[1], &br#"{"a \"b\" \\, {}","NULL",NULL}"#[..]);
        assert_eq!(rows.arrays(1), None);
        assert_eq!(rows.arrays(3), None);
        assert_eq!(gathered(&[]).arrays(1).unwrap()[0], &b"{}"[..]);
        assert!(!rows.moving);
        rows.add(row(&[Some("t"), None, None, None])).unwrap();
        assert!(rows.moving);
        assert_eq!(rows.add(row(&[Some("t")])), None);
    }

    #[test]
    fn whole_numbers_are_put_together_here_if_they_fit() {
        let column = |type_oid| Learnt {
            given: GivenColumn {
                name: String::new(),
                element: String::new(),
                written: String::new(),
                collation: None,
            },
            kind: Kind { type_oid, type_mod: -1 },
        };
        let columns = [column(20), column(23), column(1700)];
        let rows = gathered(&[&[Some("-3"), Some("7"), Some("1.5")], &[None, Some("-9"), None]]);
        let fold = |fold| rows.fold(fold, &columns);
        assert_eq!(fold(Fold::Count(0)), Some((Some(-3), 8)));
        assert_eq!(fold(Fold::Sum(0)), Some((Some(-3), 8)));
        assert_eq!(fold(Fold::Least(1)), Some((Some(-9), 4)));
        assert_eq!(fold(Fold::Greatest(1)), Some((Some(7), 4)));
        for other in [Fold::Sum(1), Fold::Least(2), Fold::Count(3)] {
            assert_eq!(fold(other), None, "{other:?}");
        }
        let none = gathered(&[&[None]]);
        assert_eq!(none.fold(Fold::Count(0), &columns), Some((Some(0), 8)));
        assert_eq!(none.fold(Fold::Sum(0), &columns), Some((None, 8)));
        assert_eq!(none.fold(Fold::Least(0), &columns), Some((None, 8)));
        let most = i64::MAX.to_string();
        let many = gathered(&[&[Some(&most)], &[Some("1")]]);
        assert_eq!(many.fold(Fold::Sum(0), &columns), None, "PostgreSQL says that it is out of range");
        let mut out = BytesMut::new();
        put_row(&mut out, &[(Some(-2), 4), (None, 8), (Some(258), 8)], &[true, true, false]);
        let expected = b"D\0\0\0\x19\0\x03\0\0\0\x04\xff\xff\xff\xfe\xff\xff\xff\xff\0\0\0\x03258";
        assert_eq!(out, &expected[..]);
    }
}
