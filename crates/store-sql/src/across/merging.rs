//! Rows of several sessions, each of which sends them sorted, taken in their order as they come.
//!
//! Of each session the next row waits in the buffer that it was read into, and only its keys are looked at: nothing
//! else is held here, whatever the size of the answer or of a row. A session that is not read from stops by itself
//! once its connection is full.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use bytes::{Buf, BufMut};
use polyshard_engine::RawFrame;
use polyshard_sql::SortedBy;

use super::sort_key::Form;
use super::worker::{MESSAGE_HEAD_BYTES, Sink, Trouble, Worker, lost, no_copy, wait};
use crate::client::Client;

/// Most bytes of rows that nobody wants any more that are heard out, so that the session can be used again; a session
/// with more of them is ended.
const UNWANTED_BYTES_MAX: usize = 1024 * 1024;

/// Rows that are asked for beyond those that are being taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    /// The portal that has them.
    pub portal: &'static str,
    /// How many at a time.
    pub rows: i32,
}

/// A row, and where its keys end.
struct Head {
    frame: RawFrame,
    keys_end: usize,
}

/// Sorted rows of several sessions.
pub(super) struct Merging {
    workers: Vec<Worker>,
    forms: Arc<Vec<Form>>,
    sorted: Arc<[SortedBy]>,
    /// The next row's keys of each session that has one.
    next: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    /// Sessions whose next row is not known: all of them in the beginning, and the one whose row was taken.
    open: Vec<usize>,
    /// Nothing if each session was asked for all of its rows at once.
    parts: Option<Parts>,
    /// Rows that are to be passed over.
    skipped: u64,
    /// Rows that are to come at most.
    left: Option<u64>,
    /// Room for keys.
    spare: Vec<u8>,
}

impl Merging {
    /// Of sessions that were asked for their rows, and have told what these are like.
    pub fn new(
        workers: Vec<Worker>,
        forms: Arc<Vec<Form>>,
        sorted: &[SortedBy],
        parts: Option<Parts>,
    ) -> Merging {
        let open = (0..workers.len()).rev().collect();
        Merging {
            workers,
            forms,
            sorted: sorted.into(),
            next: BinaryHeap::new(),
            open,
            parts,
            skipped: 0,
            left: None,
            spare: Vec::new(),
        }
    }

    /// Passes over the first rows, and ends after so many others.
    pub fn within(mut self, offset: u64, limit: Option<u64>) -> Merging {
        (self.skipped, self.left) = (offset, limit);
        self
    }

    pub fn workers(&mut self) -> &mut [Worker] {
        &mut self.workers
    }

    pub fn into_workers(self) -> Vec<Worker> {
        self.workers
    }

    /// Passes at most so many rows on, or over if there is nobody who wants them. How many there were: fewer only at
    /// the end.
    pub async fn pass(&mut self, client: &mut Client, rows_max: u64, wanted: bool) -> Result<u64, Trouble> {
        let mut rows = 0;
        while rows < rows_max && self.left != Some(0) {
            let Some(at) = self.least(client).await? else { break };
            if self.skipped > 0 {
                self.skipped -= 1;
                self.pass_over(at, client).await?;
                continue;
            }
            if wanted {
                self.pass_on(at, client).await?;
            } else {
                self.pass_over(at, client).await?;
            }
            rows += 1;
            self.left = self.left.map(|left| left - 1);
        }
        Ok(rows)
    }

    /// Takes the session out of the order whose row is next.
    async fn least(&mut self, client: &mut Client) -> Result<Option<usize>, Trouble> {
        self.know_all(client).await?;
        let Some(Reverse((keys, at))) = self.next.pop() else { return Ok(None) };
        self.spare = keys;
        self.open.push(at);
        Ok(Some(at))
    }

    /// Hears of the next row of each session of which it is not known.
    async fn know_all(&mut self, client: &mut Client) -> Result<(), Trouble> {
        while let Some(at) = self.open.last().copied() {
            if self.sorted.is_empty() && !self.next.is_empty() {
                // One session after the other: the others are not waited for.
                break;
            }
            let mut keys = std::mem::take(&mut self.spare);
            keys.clear();
            let worker = &mut self.workers[at];
            if next_row(worker, client, self.parts).await? {
                head(worker, client, &self.forms, &self.sorted, Some(&mut keys)).await?;
                self.next.push(Reverse((keys, at)));
            } else {
                self.spare = keys;
            }
            self.open.pop();
        }
        Ok(())
    }

    /// Passes a session's next row on to the client, without its keys.
    async fn pass_on(&mut self, at: usize, client: &mut Client) -> Result<(), Trouble> {
        let worker = &mut self.workers[at];
        let Head { frame, keys_end } = head(worker, client, &self.forms, &self.sorted, None).await?;
        worker.patch_row(client, frame).await?;
        let keys = self.sorted.len();
        let incoming = worker.raw().incoming();
        let columns = usize::from(u16::from_be_bytes([incoming[5], incoming[6]]));
        let Some(columns) = columns.checked_sub(keys).and_then(|columns| u16::try_from(columns).ok()) else {
            return Err(no_copy(worker.shard()));
        };
        incoming.advance(keys_end);
        let left = frame.bytes - keys_end;
        client.out.put_u8(b'D');
        // The length counts itself and the number of columns.
        client.out.put_u32(u32::try_from(left + 6).unwrap_or(u32::MAX));
        client.out.put_u16(columns);
        worker.pass_frame(client, &mut Sink::Client, left).await?;
        client.flush_if_full().await?;
        Ok(())
    }

    /// Passes a session's next row over.
    async fn pass_over(&mut self, at: usize, client: &mut Client) -> Result<(), Trouble> {
        self.workers[at].next(client).await.map(drop)
    }

    /// Hears out what nobody wants any more, if it is not much.
    pub async fn settle(&mut self, client: &mut Client) -> Result<(), Trouble> {
        for worker in &mut self.workers {
            let mut bytes = 0;
            worker.send().await?;
            while worker.is_waiting() {
                let head = worker.raw().head().map_err(lost)?;
                bytes += head.map_or(0, |frame| if frame.kind == b'D' { frame.bytes } else { 0 });
                if bytes > UNWANTED_BYTES_MAX && !worker.borrowed {
                    break;
                }
                match worker.next(client).await? {
                    // Rows that nobody looks at may fail, but not take the client's own transaction with them unsaid.
                    (b'E', body) if worker.borrowed => return Err(Trouble::Said(body)),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Waits for a session's next row. False if there is none.
async fn next_row(worker: &mut Worker, client: &mut Client, parts: Option<Parts>) -> Result<bool, Trouble> {
    loop {
        let raw = worker.raw();
        let Some(frame) = raw.head().map_err(lost)? else {
            if !worker.is_waiting() {
                return Ok(false);
            }
            wait(worker.raw(), client).await?;
            continue;
        };
        if frame.kind == b'D' {
            return Ok(true);
        }
        match worker.next(client).await? {
            (b'E', body) => {
                while worker.is_waiting() {
                    worker.rest(client).await?;
                }
                return Err(Trouble::Said(body));
            }
            // What ends after it is not its rows.
            (b'C', _) => return Ok(false),
            (b's', _) => {
                let Some(Parts { portal, rows }) = parts else { return Err(no_copy(worker.shard())) };
                worker.ask_more(portal, rows);
                worker.send().await?;
            }
            _ => {}
        }
    }
}

/// Looks at the keys of a session's next row, once they are there.
async fn head(
    worker: &mut Worker,
    client: &mut Client,
    forms: &[Form],
    sorted: &[SortedBy],
    mut keys: Option<&mut Vec<u8>>,
) -> Result<Head, Trouble> {
    loop {
        let frame = worker.raw().head().map_err(lost)?.ok_or_else(|| no_copy(worker.shard()))?;
        let row = &worker.raw().incoming()[..];
        let row = &row[..row.len().min(frame.bytes)];
        match keys_of(row, forms, sorted, keys.as_deref_mut()) {
            Looked::Known(keys_end) => return Ok(Head { frame, keys_end }),
            Looked::Partly if row.len() < frame.bytes => wait(worker.raw(), client).await?,
            Looked::Partly | Looked::Wrong => return Err(no_copy(worker.shard())),
        }
    }
}

enum Looked {
    /// The keys end there.
    Known(usize),
    /// There is more to come.
    Partly,
    /// They are not what their types say.
    Wrong,
}

/// The keys that a row begins with, as bytes in their order.
fn keys_of(row: &[u8], forms: &[Form], sorted: &[SortedBy], mut keys: Option<&mut Vec<u8>>) -> Looked {
    let mut at = MESSAGE_HEAD_BYTES + 2;
    if row.len() < at {
        return Looked::Partly;
    }
    if let Some(keys) = &mut keys {
        keys.clear();
    }
    for (form, sorted) in forms.iter().zip(sorted) {
        let Some(length) = row.get(at..at + 4).and_then(|length| length.try_into().ok()) else {
            return Looked::Partly;
        };
        at += 4;
        let value = match usize::try_from(i32::from_be_bytes(length)) {
            Err(_) => None,
            Ok(length) => {
                let Some(value) = row.get(at..at + length) else { return Looked::Partly };
                at += length;
                Some(value)
            }
        };
        if let Some(keys) = &mut keys
            && form.put(keys, value, *sorted).is_none()
        {
            return Looked::Wrong;
        }
    }
    Looked::Known(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_once_they_are_there() {
        let up = SortedBy { descending: false, nulls_first: false };
        let (forms, sorted) = ([Form::Signed(4), Form::Text], [up, up]);
        let row = b"D\0\0\0\x18\0\x03\0\0\0\x04\0\0\0\x07\0\0\0\x02ab\xff\xff\xff\xff";
        let mut keys = Vec::new();
        for end in 0..21 {
            assert!(
                matches!(keys_of(&row[..end], &forms, &sorted, Some(&mut keys)), Looked::Partly),
                "{end}"
            );
        }
        assert!(matches!(keys_of(&row[..21], &forms, &sorted, Some(&mut keys)), Looked::Known(21)));
        assert_eq!(keys, b"\x01\x80\0\0\x07\x01ab\0\0");
        let wrong = [Form::Signed(8), Form::Text];
        assert!(matches!(keys_of(row, &wrong, &sorted, Some(&mut keys)), Looked::Wrong));
        assert!(matches!(keys_of(row, &[], &[], None), Looked::Known(7)));
    }
}
