//! Statements kept prepared, for those who read a session's answers themselves.

use super::Backend;
use super::words::{parse, put_name};
use crate::reply;

use bytes::BufMut;

/// A statement that is being prepared.
#[derive(Debug)]
pub(crate) struct Parsing {
    id: u64,
    /// The one that is closed to make room for it.
    closed: Option<u64>,
}

impl Parsing {
    /// Notes that the server has closed the other one.
    pub fn made_room(&mut self) {
        self.closed = None;
    }
}

impl Backend {
    /// Has a statement prepared with what is sent next; nothing if the session has it. If the server does not say that
    /// it has prepared it, [`Backend::not_parsed`] is to be told.
    pub fn put_parse(&mut self, id: u64, text: &str) -> Option<Parsing> {
        let id = self.number(id);
        let notes = self.notes();
        notes.uses += 1;
        let uses = notes.uses;
        if let Some(used) = notes.prepared.get_mut(&id) {
            *used = uses;
            return None;
        }
        let closed = self.make_room();
        self.notes().prepared.insert(id, uses);
        parse(self.lent().outgoing(), id, text, &[]);
        Some(Parsing { id, closed })
    }

    /// Notes that a statement was not prepared after all.
    pub fn not_parsed(&mut self, parsing: &Parsing) {
        let notes = self.notes();
        notes.prepared.remove(&parsing.id);
        if let Some(closed) = parsing.closed {
            notes.prepared.insert(closed, 0);
        }
    }

    /// Binds the unnamed portal to a statement, with what is sent next: the one that was prepared last if it has no
    /// number. The values are texts, the results of these forms.
    pub fn put_bind(&mut self, id: Option<u64>, values: &[bytes::BytesMut], forms: &[bool]) {
        let id = id.map(|id| self.number(id));
        reply::message(self.lent().outgoing(), b'B', |out| {
            out.put_u8(0);
            match id {
                Some(id) => put_name(out, id),
                None => out.put_u8(0),
            }
            out.put_u16(0);
            out.put_u16(u16::try_from(values.len()).unwrap_or(u16::MAX));
            for value in values {
                out.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
                out.put_slice(value);
            }
            out.put_u16(u16::try_from(forms.len()).unwrap_or(0));
            for binary in forms {
                out.put_u16(u16::from(*binary));
            }
        });
    }
}
