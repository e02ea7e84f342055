//! A question to several shards in one round trip: its beginning, the ranges in motion, its rows and its end are asked
//! together. Few rows are then combined on one of these sessions, by a statement that has them as its parameters.
//!
//! Should a range be in motion, or should there be more rows than fit, nothing was said to the client, and the question
//! is asked the longer way. The snapshot is the same as there: one transaction of each shard, in which the ranges in
//! motion are read first.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};

use super::known::{Known, Learnt};
use super::motion::{self, Motion};
use super::shards::Shards;
use super::worker::{Passed, Sink, Trouble, Worker, fields, no_copy};
use super::{FETCH_BYTES_MAX, columns};
use crate::backend::{Parsing, field};
use crate::client::Client;
use crate::reply;
use crate::session::Session;

/// Most rows of one shard that are combined without a temporary table.
pub(super) const ROWS_MAX: u64 = 1000;
/// Most bytes of all shards: they are held here, by every client that asks.
const BYTES_MAX: usize = 256 * 1024;
/// What a statement of the extended protocol says to be no longer good for: prepared otherwise, or not at all.
const STALE: [&str; 2] = ["26000", "0A000"];

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";
const END: &str = "COMMIT";

/// Statements that one session is asked together.
#[derive(Default)]
struct Series {
    parses: VecDeque<Option<Parsing>>,
    /// How many of its statements have ended.
    ended: usize,
}

/// One of them.
struct Asked<'a> {
    /// Its number, if it is kept prepared.
    id: Option<u64>,
    text: &'a str,
    values: &'a [BytesMut],
    forms: &'a [bool],
    described: bool,
    rows_max: i32,
}

impl<'a> Asked<'a> {
    fn plain(id: u64, text: &'a str) -> Asked<'a> {
        Asked { id: Some(id), text, values: &[], forms: &[], described: false, rows_max: 0 }
    }
}

/// Where the rows stand in the series: after its beginning and the ranges in motion.
const ROWS_AT: usize = 2;

impl Series {
    fn ask(&mut self, worker: &mut Worker, asked: &Asked<'_>) {
        match asked.id {
            Some(id) => {
                let parsing = worker.backend.put_parse(id, asked.text);
                self.parses.extend(parsing.map(Some));
            }
            None => {
                reply::message(worker.raw().outgoing(), b'P', |out| {
                    out.put_u8(0);
                    reply::text(out, asked.text);
                    out.put_u16(0);
                });
                self.parses.push_back(None);
            }
        }
        worker.backend.put_bind(asked.id, asked.values, asked.forms);
        let out = worker.raw().outgoing();
        if asked.described {
            out.put_slice(b"D\0\0\0\x06P\0");
        }
        reply::message(out, b'E', |out| {
            out.put_u8(0);
            out.put_i32(asked.rows_max);
        });
    }

    async fn send(&mut self, worker: &mut Worker) -> Result<(), Trouble> {
        worker.raw().outgoing().put_slice(b"S\0\0\0\x04");
        worker.waiting += 1;
        worker.send().await
    }

    /// The next message; what it says of prepared statements is noted.
    async fn next(&mut self, worker: &mut Worker, client: &mut Client) -> Result<(u8, BytesMut), Trouble> {
        let (kind, body) = worker.next(client).await?;
        match kind {
            b'1' => drop(self.parses.pop_front()),
            b'3' => {
                if let Some(Some(parsing)) = self.parses.front_mut() {
                    parsing.made_room();
                }
            }
            b'C' | b's' => self.ended += 1,
            // Everything up to the end of the series is passed over.
            b'E' => {
                for parsing in self.parses.drain(..).flatten() {
                    worker.backend.not_parsed(&parsing);
                }
            }
            _ => {}
        }
        Ok((kind, body))
    }

    /// Hears an error out to the end of the series.
    async fn fail(&mut self, worker: &mut Worker, client: &mut Client, body: BytesMut) -> Trouble {
        match worker.rest(client).await {
            Ok(()) => Trouble::Said(body),
            Err(trouble) => trouble,
        }
    }
}

/// Rows as the arrays of their columns.
struct Gathered {
    arrays: Vec<BytesMut>,
    bytes: usize,
    rows: u64,
}

impl Gathered {
    fn new(columns: usize) -> Gathered {
        let begun = BytesMut::from(&b"{"[..]);
        Gathered { arrays: vec![begun; columns], bytes: 0, rows: 0 }
    }

    /// Adds a DataRow in text form; nothing if it is none, or of other columns.
    fn add(&mut self, body: &[u8]) -> Option<()> {
        let (count, mut rest) = body.split_first_chunk::<2>()?;
        if usize::from(u16::from_be_bytes(*count)) != self.arrays.len() {
            return None;
        }
        for array in &mut self.arrays {
            if self.rows > 0 {
                array.put_u8(b',');
            }
            let (length, after) = rest.split_first_chunk::<4>()?;
            rest = after;
            let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
                array.put_slice(b"NULL");
                continue;
            };
            let (value, after) = rest.split_at_checked(length)?;
            rest = after;
            array.put_u8(b'"');
            for byte in value {
                if matches!(byte, b'"' | b'\\') {
                    array.put_u8(b'\\');
                }
                array.put_u8(*byte);
            }
            array.put_u8(b'"');
        }
        self.rows += 1;
        self.bytes += body.len();
        Some(())
    }

    fn into_arrays(mut self) -> Vec<BytesMut> {
        self.arrays.iter_mut().for_each(|array| array.put_u8(b'}'));
        self.arrays
    }
}

impl Session {
    /// Asks all shards at once, for at most so many rows each; 0 for all.
    async fn ask_at_once(
        &mut self,
        working: &mut Shards,
        known: &Known,
        id: Option<u64>,
        forms: &[bool],
        rows_max: i32,
    ) -> Result<Vec<Series>, Trouble> {
        let [begin, in_motion, end] = self.door.cache.questions.constant;
        let motion = motion::question();
        let mut all = Vec::new();
        for worker in working.all() {
            let text = known.plan.fragments[0].sql_on(worker.shard());
            let mut series = Series::default();
            series.ask(worker, &Asked::plain(begin, BEGIN));
            series.ask(worker, &Asked::plain(in_motion, &motion));
            series.ask(worker, &Asked { id, text: &text, values: &[], forms, described: true, rows_max });
            series.ask(worker, &Asked::plain(end, END));
            series.send(worker).await?;
            all.push(series);
        }
        Ok(all)
    }

    /// The rows of all shards one after the other. False if it is to be asked the longer way.
    pub(super) async fn concat_at_once(
        &mut self,
        working: &mut Shards,
        known: &Known,
    ) -> Result<bool, Trouble> {
        let (forms, mut told) = self.wanted_forms();
        let said = self.client().said();
        let id = known.prepared().map(|[fragment, _]| fragment);
        let mut all = self.ask_at_once(working, known, id, &forms, 0).await?;
        let mut motion = Motion::default();
        for (worker, series) in working.all().zip(&mut all) {
            let mut ranges = Vec::new();
            while series.ended < ROWS_AT {
                match series.next(worker, self.client()).await? {
                    (b'D', body) => ranges.push(fields(&body)?),
                    (b'E', body) => return Err(series.fail(worker, self.client(), body).await),
                    (b'Z', _) => return Err(no_copy(worker.shard())),
                    _ => {}
                }
            }
            motion.learn(ranges)?;
        }
        if !motion.is_none() {
            self.door.cache.questions.note_moving(true);
            return Ok(false);
        }
        let mut rows = 0;
        for (worker, series) in working.all().zip(&mut all) {
            let description = loop {
                match series.next(worker, self.client()).await? {
                    (b'T', body) => break worker.take_columns(body).await?,
                    (b'E', body) => {
                        let trouble = series.fail(worker, self.client(), body).await;
                        let unsaid = self.client().said() == said;
                        return if unsaid && is_stale(known, &trouble) { Ok(false) } else { Err(trouble) };
                    }
                    (b'Z', _) => return Err(no_copy(worker.shard())),
                    _ => {}
                }
            };
            if !told {
                columns::tell(&mut self.client().out, &description);
                told = true;
            }
            rows += series.pass(worker, self.client()).await?.rows;
        }
        reply::complete(&mut self.client().out, &format!("SELECT {rows}"));
        Ok(true)
    }

    /// Few rows of all shards, combined. False if it is to be asked the longer way.
    pub(super) async fn combine_at_once(
        &mut self,
        working: &mut Shards,
        known: &Known,
        expected: &Arc<Vec<Learnt>>,
    ) -> Result<bool, Trouble> {
        let Some(quick) = &known.plan.quick else { return Ok(false) };
        // One more than fits, to see whether there are more.
        let rows_max = i32::try_from(ROWS_MAX).unwrap_or(i32::MAX - 1) + 1;
        let ids = known.prepared();
        let mut all =
            self.ask_at_once(working, known, ids.map(|[fragment, _]| fragment), &[], rows_max).await?;
        let mut gathered = Gathered::new(expected.len());
        let (mut motion, mut same, mut few) = (Motion::default(), true, true);
        for (worker, series) in working.all().zip(&mut all) {
            let mut ranges = Vec::new();
            loop {
                if worker.raw().head().is_ok_and(|head| head.is_some_and(|frame| frame.bytes > BYTES_MAX)) {
                    // It is not held as a whole; the session ends with it.
                    known.lesson.too_many();
                    return Ok(false);
                }
                match series.next(worker, self.client()).await? {
                    (b'D', body) if series.ended < ROWS_AT => ranges.push(fields(&body)?),
                    (b'D', body) if few && same => {
                        gathered.add(&body).ok_or_else(|| no_copy(worker.shard()))?;
                        few = gathered.bytes <= BYTES_MAX;
                    }
                    (b'T', body) => same &= columns::kinds(&body).eq(expected.iter().map(|known| known.kind)),
                    (b's', _) => few = false,
                    (b'E', body) => {
                        let trouble = series.fail(worker, self.client(), body).await;
                        return if is_stale(known, &trouble) { Ok(false) } else { Err(trouble) };
                    }
                    (b'Z', _) => break,
                    _ => {}
                }
            }
            motion.learn(ranges)?;
        }
        if !motion.is_none() {
            self.door.cache.questions.note_moving(true);
            return Ok(false);
        }
        if !same {
            known.lesson.forget();
        }
        if !few {
            known.lesson.too_many();
        }
        if !same || !few {
            return Ok(false);
        }
        known.lesson.count(gathered.rows);
        let given: Vec<_> = expected.iter().map(|known| known.given.clone()).collect();
        let (forms, told) = self.wanted_forms();
        let text = quick.over(&given);
        let id = ids.map(|[_, combine]| combine);
        let values = &gathered.into_arrays()[..];
        let asked = Asked { id, text: &text, values, forms: &forms, described: true, rows_max: 0 };
        let Some(worker) = working.all().next() else { return Ok(false) };
        let mut series = Series::default();
        series.ask(worker, &asked);
        series.send(worker).await?;
        let description = loop {
            match series.next(worker, self.client()).await? {
                (b'T', body) => break worker.take_columns(body).await?,
                (b'E', body) => {
                    let trouble = series.fail(worker, self.client(), body).await;
                    return if is_stale(known, &trouble) { Ok(false) } else { Err(trouble) };
                }
                (b'Z', _) => return Err(no_copy(worker.shard())),
                _ => {}
            }
        };
        if !told {
            columns::tell(&mut self.client().out, &description);
        }
        let passed = worker.pass(self.client(), Sink::Client, u64::MAX).await?;
        reply::complete(&mut self.client().out, &passed.tag);
        Ok(true)
    }
}

impl Series {
    /// Passes the rows on that are still to come, and hears the series to its end.
    async fn pass(&mut self, worker: &mut Worker, client: &mut Client) -> Result<Passed, Trouble> {
        let passed = worker.pass(client, Sink::Client, FETCH_BYTES_MAX).await;
        if passed.is_err() && !self.parses.is_empty() {
            // Whether the end was prepared was not heard.
            worker.backend.closing = true;
        }
        passed
    }
}

/// Whether an error is about the prepared form alone, which is not used again then.
fn is_stale(known: &Known, trouble: &Trouble) -> bool {
    let Trouble::Said(body) = trouble else { return false };
    let stale = field(body, b'C').is_some_and(|code| STALE.contains(&code));
    if stale {
        known.unprepare();
    }
    stale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fields: &[Option<&str>]) -> Vec<u8> {
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
        body.to_vec()
    }

    #[test]
    fn rows_become_arrays_that_postgresql_reads() {
        let mut gathered = Gathered::new(2);
        gathered.add(&row(&[Some("1"), Some("a \"b\" \\, {}")])).unwrap();
        gathered.add(&row(&[None, Some("NULL")])).unwrap();
        gathered.add(&row(&[Some(""), None])).unwrap();
        assert_eq!(gathered.add(&row(&[None])), None);
        let arrays = gathered.into_arrays();
        assert_eq!(arrays[0], &br#"{"1",NULL,""}"#[..]);
        assert_eq!(arrays[1], &br#"{"a \"b\" \\, {}","NULL",NULL}"#[..]);
        assert_eq!(Gathered::new(1).into_arrays()[0], &b"{}"[..]);
    }
}
