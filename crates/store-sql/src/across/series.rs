//! Statements of the extended protocol that a session is asked together, for those who read the answers themselves.

use std::collections::VecDeque;

use bytes::{BufMut, BytesMut};

use super::known::Known;
use super::worker::{Trouble, Worker, no_copy};
use crate::backend::{Parsing, field};
use crate::client::Client;
use crate::reply;

/// What a statement of the extended protocol says to be no longer good for: prepared otherwise, or not at all.
const STALE: [&str; 2] = ["26000", "0A000"];

/// Statements that one session is asked together.
#[derive(Default)]
pub(super) struct Series {
    parses: VecDeque<Option<Parsing>>,
    /// How many of its statements have ended.
    pub ended: usize,
}

/// One of them.
pub(super) struct Asked<'a> {
    /// Its number, if it is kept prepared.
    pub id: Option<u64>,
    pub text: &'a str,
    pub values: &'a [BytesMut],
    pub forms: &'a [bool],
    pub described: bool,
    pub rows_max: i32,
}

impl<'a> Asked<'a> {
    pub fn plain(id: u64, text: &'a str) -> Asked<'a> {
        Asked { id: Some(id), text, values: &[], forms: &[], described: false, rows_max: 0 }
    }
}

impl Series {
    pub fn ask(&mut self, worker: &mut Worker, asked: &Asked<'_>) {
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

    pub async fn send(&mut self, worker: &mut Worker) -> Result<(), Trouble> {
        worker.raw().outgoing().put_slice(b"S\0\0\0\x04");
        worker.waiting += 1;
        worker.send().await
    }

    /// The next message; what it says of prepared statements is noted.
    pub async fn next(
        &mut self,
        worker: &mut Worker,
        client: &mut Client,
    ) -> Result<(u8, BytesMut), Trouble> {
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

    /// What the columns of the rows that follow are; an error, heard to its end, if there are none.
    pub async fn columns(&mut self, worker: &mut Worker, client: &mut Client) -> Result<BytesMut, Trouble> {
        loop {
            match self.next(worker, client).await? {
                (b'T', body) => return worker.take_columns(body).await,
                (b'E', body) => return Err(self.fail(worker, client, body).await),
                (b'Z', _) => return Err(no_copy(worker.shard())),
                _ => {}
            }
        }
    }

    /// Whether the server has said of all statements that it has prepared them.
    pub fn is_prepared(&self) -> bool {
        self.parses.is_empty()
    }

    /// Hears an error out to the end of the series.
    pub async fn fail(&mut self, worker: &mut Worker, client: &mut Client, body: BytesMut) -> Trouble {
        match worker.rest(client).await {
            Ok(()) => Trouble::Said(body),
            Err(trouble) => trouble,
        }
    }
}

/// Whether an error is about the prepared form alone, which is not used again then.
pub(super) fn is_stale(known: &Known, trouble: &Trouble) -> bool {
    let Trouble::Said(body) = trouble else { return false };
    let stale = field(body, b'C').is_some_and(|code| STALE.contains(&code));
    if stale {
        known.unprepare();
    }
    stale
}
