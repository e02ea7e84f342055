//! A series on a shard's session that is taken as a whole: asked at once, and if the answer is as usual, passed on at
//! once. Everything else it leaves to a [`Backend`], which it becomes.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use polyshard_engine::{Error, RawCancel, RawLent};
use polyshard_map::{Key, MapName};
use polyshard_router::Ticket;

use super::ids::Rows;
use super::words::lost;
use super::{Backend, Broken, Notes, Step};
use crate::client::{Client, OUT_BYTES};
use crate::door::Door;
use crate::settings::{Settings, number_under};

/// BindComplete, and any other message without a body.
const EMPTY_MESSAGE_BYTES: usize = 5;
/// ReadyForQuery, of a session in no transaction.
const READY: &[u8] = b"Z\0\0\0\x05I";

/// A session lent for one series, and the ticket that allows it.
pub(crate) struct Turn {
    /// Kept until nothing of this session's can reach the shard any more.
    ticket: Option<Ticket>,
    lent: Option<RawLent>,
    expected: Expected,
}

/// What the client is to hear.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// What the door says first.
    pub first: &'static [u8],
    /// Whether the client has bound the values itself, and hears that they are.
    pub tells_bound: bool,
    /// Whether columns are told.
    pub describes: bool,
}

/// How far an answer has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// There is more to come.
    Part,
    /// All of it is there: so many bytes, with the columns there.
    Whole { bytes: usize, columns: Option<Range<usize>> },
    /// It is not as usual: an error, a notice, more rows than are held back.
    Other,
}

impl Turn {
    pub fn new(ticket: Ticket, expected: Expected) -> Turn {
        Turn { ticket: Some(ticket), lent: None, expected }
    }

    /// Lends the session.
    pub async fn lend(&mut self) -> Result<(), Error> {
        self.lent = Some(self.ticket().raw().await?);
        Ok(())
    }

    pub fn ticket(&self) -> &Ticket {
        self.ticket.as_ref().expect("it is there until the session is given back")
    }

    fn lent(&mut self) -> &mut RawLent {
        self.lent.as_mut().expect("it is lent before it is used, and there until it is given back")
    }

    /// What stops the statement that runs on it.
    pub fn cancel(&mut self) -> RawCancel {
        self.lent().cancel().clone()
    }

    /// Whether the session has these settings and this statement, so that nothing is to be sent before a series.
    pub fn has(&mut self, settings: &Arc<Settings>, id: u64) -> bool {
        let Some(notes) = self.lent().notes.as_mut().and_then(|notes| notes.downcast_mut::<Notes>()) else {
            return false;
        };
        if !Arc::ptr_eq(&notes.settings, settings) && notes.settings != *settings {
            return false;
        }
        notes.uses += 1;
        let uses = notes.uses;
        let number = number_under(id, notes.settings.meaning());
        notes.prepared.get_mut(&number).map(|used| *used = uses).is_some()
    }

    /// Sends a series, from its Bind to its Sync.
    pub async fn ask(&mut self, question: &[u8]) -> Result<(), Broken> {
        let lent = self.lent();
        lent.outgoing().extend_from_slice(question);
        lent.flush().await.map_err(lost)
    }

    /// Waits for the answer; also hears when the client is gone.
    pub async fn hear(&mut self, client: &mut Client) -> Result<Heard, Broken> {
        let describes = self.expected.describes;
        let lent = self.lent();
        loop {
            match heard(lent.incoming(), describes) {
                Heard::Part => {}
                heard => return Ok(heard),
            }
            tokio::select! {
                biased;
                filled = lent.fill() => filled.map_err(lost)?,
                gone = client.gone() => return Err(Broken::Client(gone)),
            }
        }
    }

    /// What came at this place of the answer.
    pub fn said(&mut self, place: &Range<usize>) -> &[u8] {
        self.lent().incoming().get(place.clone()).unwrap_or_default()
    }

    /// Passes a whole answer on, with other words for its columns where they are given.
    pub fn pass_on(&mut self, bytes: usize, columns: Option<(&Range<usize>, &[u8])>, out: &mut BytesMut) {
        let Expected { first, tells_bound, .. } = self.expected;
        let from = if tells_bound { 0 } else { EMPTY_MESSAGE_BYTES };
        let incoming = self.lent().incoming();
        out.reserve(first.len() + bytes);
        out.extend_from_slice(first);
        match columns {
            None => out.extend_from_slice(&incoming[from..bytes]),
            Some((place, told)) => {
                out.extend_from_slice(&incoming[from..place.start]);
                out.extend_from_slice(told);
                out.extend_from_slice(&incoming[place.end..bytes]);
            }
        }
        incoming.advance(bytes);
    }

    /// Gives the session back: nothing is under way on it.
    pub fn finish(mut self) {
        if let Some(lent) = self.lent.take() {
            lent.finish();
        }
    }

    /// Leaves the rest of the answer to what can do with any.
    pub fn into_backend(mut self, door: &Arc<Door>, map: MapName, key: Key) -> Option<Backend> {
        let (ticket, lent) = (self.ticket.take()?, self.lent.take()?);
        let keys = vec![(map, vec![key], ticket.access())];
        let mut backend = Backend::new(door, vec![Arc::new(ticket)], lent, None, keys);
        let Expected { first, tells_bound, describes } = self.expected;
        if !first.is_empty() {
            backend.own(first);
        }
        backend.steps.push_back(if tells_bound { Step::Bind } else { Step::Skip });
        if describes {
            backend.steps.push_back(Step::Describe);
        }
        backend.steps.extend([Step::Execute(Rows::AsTheyAre), Step::Sync]);
        Some(backend)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(lent) = self.lent.take() else { return };
        let ticket = self.ticket.take();
        // Its client's task was cut off. The session ends by itself, and the ticket with it.
        if tokio::runtime::Handle::try_current().is_ok() {
            tokio::spawn(async move {
                lent.abandon().await;
                drop(ticket);
            });
        }
    }
}

/// Looks at what has come of the answer to a Bind, maybe a Describe, an Execute and a Sync.
fn heard(incoming: &[u8], describes: bool) -> Heard {
    let mut at = 0;
    let mut columns = None;
    // BindComplete, the columns, rows and their end, ReadyForQuery.
    let (mut bound, mut described, mut ended) = (false, !describes, false);
    while let Some(&[kind, a, b, c, d]) = incoming.get(at..).and_then(|rest| rest.first_chunk::<5>()) {
        let end = at + 1 + u32::from_be_bytes([a, b, c, d]) as usize;
        let usual = match kind {
            b'2' => !std::mem::replace(&mut bound, true),
            b'T' | b'n' => bound && !std::mem::replace(&mut described, true),
            b'D' => bound && described && !ended,
            b'C' | b'I' | b's' => bound && described && !std::mem::replace(&mut ended, true),
            b'Z' => ended,
            _ => false,
        };
        if !usual || end < at + EMPTY_MESSAGE_BYTES {
            return Heard::Other;
        }
        if end > incoming.len() {
            break;
        }
        if kind == b'Z' {
            let idle = incoming[at..end] == *READY;
            return if idle { Heard::Whole { bytes: end, columns } } else { Heard::Other };
        }
        if kind == b'T' {
            columns = Some(at..end);
        }
        at = end;
    }
    if incoming.len() > OUT_BYTES { Heard::Other } else { Heard::Part }
}

#[cfg(test)]
mod tests {
    use super::{Heard, heard};
    use crate::client::OUT_BYTES;

    const COLUMNS: &[u8] = b"T\0\0\0\x06\0\0";
    const ROW: &[u8] = b"D\0\0\0\x06\0\0";

    fn answer(parts: &[&[u8]]) -> Vec<u8> {
        parts.concat()
    }

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let parts = [b"2\0\0\0\x04", COLUMNS, ROW, ROW, b"C\0\0\0\x0dSELECT 2\0", b"Z\0\0\0\x05I"];
        let whole = answer(&parts);
        for end in 0..whole.len() {
            assert_eq!(heard(&whole[..end], true), Heard::Part, "{end}");
        }
        let columns = Some(5..12);
        assert_eq!(heard(&whole, true), Heard::Whole { bytes: whole.len(), columns });
        // Nobody has asked for the columns.
        assert_eq!(heard(&whole, false), Heard::Other);
        let undescribed = answer(&[b"2\0\0\0\x04", ROW, b"C\0\0\0\x0dSELECT 1\0", b"Z\0\0\0\x05I"]);
        assert_eq!(heard(&undescribed, false), Heard::Whole { bytes: undescribed.len(), columns: None });
        assert_eq!(heard(&undescribed, true), Heard::Other);
    }

    #[test]
    fn what_is_not_usual_is_left_to_others() {
        let failed = answer(&[b"2\0\0\0\x04", b"E\0\0\0\x05\0", b"Z\0\0\0\x05I"]);
        let noticed = answer(&[b"N\0\0\0\x05\0", b"2\0\0\0\x04"]);
        let in_transaction = answer(&[b"2\0\0\0\x04", b"C\0\0\0\x05\0", b"Z\0\0\0\x05T"]);
        let twice = answer(&[b"2\0\0\0\x04", b"2\0\0\0\x04"]);
        let too_early = answer(&[b"2\0\0\0\x04", b"Z\0\0\0\x05I"]);
        let impossible = answer(&[b"2\0\0\0\x03", b"Z\0\0\0\x05I"]);
        for unusual in [&failed, &noticed, &in_transaction, &twice, &too_early, &impossible] {
            assert_eq!(heard(unusual, false), Heard::Other, "{unusual:?}");
        }
        let mut many = answer(&[b"2\0\0\0\x04"]);
        while many.len() <= OUT_BYTES {
            many.extend_from_slice(ROW);
        }
        assert_eq!(heard(&many, false), Heard::Other);
    }
}
