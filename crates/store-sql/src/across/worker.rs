//! A shard's session at work for a statement across shards: what it is asked, and what it answers.

use std::sync::Arc;

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, BytesMut};
use polyshard_engine::{RawFrame, RawLent};
use polyshard_map::ShardId;
use polyshard_router::Ticket;
use polyshard_sql::{SqlError, TableName};

use crate::backend::{Backend, Broken, field, optional_texts};
use crate::client::{Client, Gone, OUT_BYTES, broken_off};
use crate::reply::{self, state};
use crate::session::Session;
use crate::type_ids::RowPatch;

/// Why a shard did not do its part.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The shard said so, in the words of this error message's body; its session is fine.
    Said(BytesMut),
    /// We say so.
    Refused(SqlError),
    /// The session is lost.
    Lost(SqlError),
    /// The client is gone.
    Gone(Gone),
}

impl From<SqlError> for Trouble {
    fn from(error: SqlError) -> Trouble {
        Trouble::Refused(error)
    }
}

impl From<Broken> for Trouble {
    fn from(broken: Broken) -> Trouble {
        match broken {
            Broken::Client(gone) => Trouble::Gone(gone),
            Broken::Ended(error) | Broken::Cut(error) => Trouble::Lost(error),
        }
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Trouble {
        Trouble::Gone(error.into())
    }
}

/// Where rows go that a shard sends.
pub(crate) enum Sink<'s> {
    /// To the client, as rows of its answer.
    Client,
    /// Into another shard's session, which waits for COPY data.
    Session(&'s mut Worker),
}

/// What came while rows were passed on.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    pub rows: u64,
    pub bytes: u64,
    /// Whether there may be more rows than were asked for.
    pub suspended: bool,
    /// What the end said.
    pub tag: String,
}

impl Passed {
    fn note_tag(&mut self, body: &[u8]) {
        let tag = body.strip_suffix(&[0]).unwrap_or(body);
        self.tag = String::from_utf8_lossy(tag).into_owned();
    }

    /// How many rows the end said.
    pub fn counted(&self) -> u64 {
        self.tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

/// A message's type and length.
pub(super) const MESSAGE_HEAD_BYTES: usize = 5;
/// What COPY data in binary form begins with: a mark of 11 bytes, flags, and the length of more, which is 0.
const BINARY_HEAD_BYTES: usize = 19;
/// What it ends with.
pub(super) const BINARY_END: &[u8] = &[0xff, 0xff];

/// A session at work.
pub(crate) struct Worker {
    pub(super) backend: Backend,
    /// Answers that are still to come, each up to its ReadyForQuery.
    pub(super) waiting: usize,
    /// Whether it has a transaction of ours open.
    pub open: bool,
    /// Whether it is the client's own transaction that runs on it.
    pub borrowed: bool,
    /// Whether it has no part in the statement.
    pub idle: bool,
    /// Whether it is there to combine on, and its shard's rows come from another session.
    pub rowless: bool,
    /// Whether the last answer to come is that of the end of our transaction.
    ending: bool,
    /// Whether it takes COPY data.
    pub copying: bool,
    /// Whether the end of a COPY is still to be heard.
    ending_copy: bool,
    /// Whether it has cursors that have outlived their transaction.
    pub cursors: bool,
    /// Whether a message of its is taken in part, so that what comes next cannot be read.
    in_message: bool,
    /// What is to be done with the rows that follow the columns told last.
    row_patch: Option<Arc<RowPatch>>,
}

impl Worker {
    pub fn new(backend: Backend, borrowed: bool) -> Worker {
        Worker {
            backend,
            waiting: 0,
            open: false,
            borrowed,
            idle: false,
            rowless: false,
            ending: false,
            copying: false,
            ending_copy: false,
            cursors: false,
            in_message: false,
            row_patch: None,
        }
    }

    /// The client's own session, on a shard that the statement does not concern.
    pub fn idle(backend: Backend) -> Worker {
        Worker { idle: true, ..Worker::new(backend, true) }
    }

    /// Brings the session to the client's settings.
    pub async fn take_settings(&mut self, session: &mut Session) -> Result<(), SqlError> {
        if !self.backend.apply(&session.settings()) {
            return Ok(());
        }
        let mut failed = false;
        let drained = self.backend.drain(session.client(), &mut failed).await;
        match (drained, self.backend.take_quiet_error()) {
            (Ok(_), None) => Ok(()),
            (Ok(_), Some(body)) => {
                let said = field(&body, b'M').unwrap_or_default();
                let message =
                    format!("shard {} does not take the session's settings: {said}", self.backend.shard);
                Err(SqlError::new(state::CONNECTION_FAILURE, message))
            }
            (Err(Broken::Client(gone)), _) => Err(SqlError::new(state::CONNECTION_FAILURE, gone.to_string())),
            (Err(Broken::Ended(error) | Broken::Cut(error)), _) => Err(error),
        }
    }

    /// Whether a session of this door answers, for an SQLite shard.
    pub fn is_inside(&self) -> bool {
        self.backend.is_inside()
    }

    /// Has whoever answers for an SQLite shard leave out rows that are not its own.
    pub fn leave_out(&self, foreign: BTreeMap<TableName, String>) {
        if let Some(leave) = self.backend.leave() {
            leave.leave_out(foreign);
        }
    }

    pub fn shard(&self) -> &ShardId {
        &self.backend.shard
    }

    pub fn raw(&mut self) -> &mut RawLent {
        self.backend.raw()
    }

    pub fn cancel(&self) -> polyshard_engine::RawCancel {
        self.backend.cancel()
    }

    /// Asks by the simple protocol, with what is sent next.
    pub fn ask(&mut self, sql: &str) {
        reply::message(self.raw().outgoing(), b'Q', |out| {
            out.put_slice(sql.as_bytes());
            out.put_u8(0);
        });
        self.waiting += 1;
    }

    /// Ends our transaction, with what is sent next; nothing of it is to stay.
    pub fn end(&mut self) {
        if self.open && !self.ending {
            self.ask("ROLLBACK");
            self.ending = true;
        }
    }

    /// Asks by the extended protocol: the rows come in these forms, after their description.
    pub fn ask_rows(&mut self, sql: &str, results: &[bool]) {
        self.ask_portal("", sql, results, 0);
    }

    /// Likewise, for at most so many rows, if it is not 0; [`Worker::ask_more`] asks for those that follow.
    pub fn ask_portal(&mut self, portal: &str, sql: &str, results: &[bool], rows_max: i32) {
        let out = self.raw().outgoing();
        reply::message(out, b'P', |out| {
            out.put_u8(0);
            reply::text(out, sql);
            out.put_u16(0);
        });
        reply::message(out, b'B', |out| {
            reply::text(out, portal);
            out.put_slice(&[0, 0, 0, 0, 0]);
            out.put_u16(u16::try_from(results.len()).unwrap_or(0));
            for binary in results {
                out.put_u16(u16::from(*binary));
            }
        });
        put_describe(out, b'P', portal);
        self.ask_more(portal, rows_max);
    }

    /// Asks for more rows of a portal.
    pub fn ask_more(&mut self, portal: &str, rows_max: i32) {
        let out = self.raw().outgoing();
        reply::message(out, b'E', |out| {
            reply::text(out, portal);
            out.put_i32(rows_max);
        });
        out.put_slice(b"S\0\0\0\x04");
        self.waiting += 1;
    }

    /// Asks what the columns of a portal or cursor are.
    pub fn ask_columns(&mut self, portal: &str) {
        let out = self.raw().outgoing();
        put_describe(out, b'P', portal);
        out.put_slice(b"S\0\0\0\x04");
        self.waiting += 1;
    }

    /// Asks what the columns of a query would be.
    pub fn ask_columns_of(&mut self, sql: &str) {
        let out = self.raw().outgoing();
        reply::message(out, b'P', |out| {
            out.put_u8(0);
            reply::text(out, sql);
            out.put_u16(0);
        });
        put_describe(out, b'S', "");
        out.put_slice(b"S\0\0\0\x04");
        self.waiting += 1;
    }

    pub async fn send(&mut self) -> Result<(), Trouble> {
        Ok(self.backend.flush().await?)
    }

    /// The next message's type and body, whole.
    pub(super) async fn next(&mut self, client: &mut Client) -> Result<(u8, BytesMut), Trouble> {
        loop {
            let raw = self.backend.raw();
            if let Some(frame) = raw.whole().map_err(lost)? {
                let (kind, body) = raw.take(frame);
                match kind {
                    b'Z' => {
                        self.waiting = self.waiting.saturating_sub(1);
                        self.backend.status = body.first().copied().unwrap_or(b'I');
                    }
                    b'E' => self.check_fatal(&body)?,
                    _ => {}
                }
                return Ok((kind, body));
            }
            wait(raw, client).await?;
        }
    }

    fn check_fatal(&self, body: &[u8]) -> Result<(), Trouble> {
        let severity = field(body, b'V').or_else(|| field(body, b'S')).unwrap_or_default();
        if severity != "FATAL" && severity != "PANIC" {
            return Ok(());
        }
        let said = field(body, b'M').unwrap_or_default();
        let message = format!("shard {} ended the session: {said}", self.backend.shard);
        Err(Trouble::Lost(SqlError::new(state::CONNECTION_FAILURE, message).hint("Try again.")))
    }

    /// The rows that a question is answered with, up to its end; few ones.
    pub async fn answer(&mut self, client: &mut Client) -> Result<Vec<Vec<Option<String>>>, Trouble> {
        let (mut rows, mut failure) = (Vec::new(), None);
        loop {
            match self.next(client).await? {
                (b'D', body) => rows.push(fields(&body)?),
                (b'E', body) => failure = failure.or(Some(body)),
                (b'Z', _) => return failure.map_or(Ok(rows), |body| Err(Trouble::Said(body))),
                _ => {}
            }
        }
    }

    /// Waits until it is ready to take COPY data.
    pub async fn ready_for_data(&mut self, client: &mut Client) -> Result<(), Trouble> {
        let mut failure = None;
        loop {
            match self.next(client).await? {
                (b'G', _) => {
                    self.copying = true;
                    return Ok(());
                }
                (b'E', body) => failure = failure.or(Some(body)),
                (b'Z', _) => {
                    return Err(failure.map_or_else(|| no_copy(&self.backend.shard), Trouble::Said));
                }
                _ => {}
            }
        }
    }

    /// Says that there is no more data, with what is sent next; [`Worker::end_copy`] waits for the end.
    pub fn end_data(&mut self) {
        self.raw().outgoing().put_slice(b"c\0\0\0\x04");
        self.copying = false;
        self.ending_copy = true;
    }

    /// Waits for the end of a COPY whose data has ended, if there is one.
    pub async fn end_copy(&mut self, client: &mut Client) -> Result<(), Trouble> {
        if !std::mem::replace(&mut self.ending_copy, false) {
            return Ok(());
        }
        self.send().await?;
        self.answer(client).await.map(drop)
    }

    /// Says that the data is not to be kept, and waits for the end.
    pub async fn fail_data(&mut self, client: &mut Client) -> Result<(), Trouble> {
        self.raw().outgoing().put_slice(b"f\0\0\0\x05\0");
        self.copying = false;
        self.send().await?;
        self.rest(client).await
    }

    /// The description of the rows that [`Worker::ask_rows`] asked for, as the message's body.
    pub async fn description(&mut self, client: &mut Client) -> Result<BytesMut, Trouble> {
        let columns = self.columns(client).await?;
        columns.ok_or_else(|| no_copy(&self.backend.shard))
    }

    /// Likewise; nothing if there are no columns.
    pub async fn columns(&mut self, client: &mut Client) -> Result<Option<BytesMut>, Trouble> {
        let mut failure = None;
        loop {
            match self.next(client).await? {
                (b'T', body) => return self.take_columns(body).await.map(Some),
                (b'n', _) => return Ok(None),
                (b'E', body) => failure = failure.or(Some(body)),
                (b'Z', _) => {
                    return Err(failure.map_or_else(|| no_copy(&self.backend.shard), Trouble::Said));
                }
                _ => {}
            }
        }
    }

    /// Takes in what the columns of the rows that follow are, as the client is to know them.
    pub(super) async fn take_columns(&mut self, mut body: BytesMut) -> Result<BytesMut, Trouble> {
        self.row_patch = None;
        if !self.backend.is_home() {
            super::columns::forget_tables(&mut body);
            self.row_patch = Box::pin(self.backend.translate_columns(&mut body)).await?;
        }
        Ok(body)
    }

    /// What COPY … TO STDOUT says of its form, as the message's body.
    pub async fn copy_form(&mut self, client: &mut Client) -> Result<BytesMut, Trouble> {
        let mut failure = None;
        loop {
            match self.next(client).await? {
                (b'H', body) => return Ok(body),
                (b'E', body) => failure = failure.or(Some(body)),
                (b'Z', _) => {
                    return Err(failure.map_or_else(|| no_copy(&self.backend.shard), Trouble::Said));
                }
                _ => {}
            }
        }
    }

    /// Passes COPY data in binary form on, up to its end: the head that it begins with only from the first shard, the
    /// mark that it ends with from none.
    pub async fn pass_binary(&mut self, client: &mut Client, first: bool) -> Result<Passed, Trouble> {
        let mut to_skip = BINARY_HEAD_BYTES;
        let mut passed = Passed::default();
        loop {
            let raw = self.backend.raw();
            let Some(frame) = raw.head().map_err(lost)? else {
                wait(raw, client).await?;
                continue;
            };
            if frame.kind != b'd' {
                match self.next(client).await? {
                    (b'E', body) => {
                        self.rest(client).await?;
                        return Err(Trouble::Said(body));
                    }
                    (b'C', body) => passed.note_tag(&body),
                    (b'Z', _) => return Ok(passed),
                    _ => {}
                }
                continue;
            }
            // The head, and a row as short as the mark, must be seen; nothing else is held as a whole.
            let seen = frame.bytes.min(MESSAGE_HEAD_BYTES + to_skip + BINARY_END.len());
            if raw.incoming().len() < seen {
                wait(raw, client).await?;
                continue;
            }
            let incoming = raw.incoming();
            incoming.advance(MESSAGE_HEAD_BYTES);
            let mut left = frame.bytes - MESSAGE_HEAD_BYTES;
            let head = incoming.split_to(to_skip.min(left));
            left -= head.len();
            to_skip -= head.len();
            if first && !head.is_empty() {
                reply::message(&mut client.out, b'd', |out| out.put_slice(&head));
            }
            if left == BINARY_END.len() && incoming.starts_with(BINARY_END) {
                incoming.advance(left);
            } else if left > 0 {
                client.out.put_u8(b'd');
                client.out.put_u32(u32::try_from(left + 4).unwrap_or(u32::MAX));
                self.pass_frame(client, &mut Sink::Client, left).await?;
            }
        }
    }

    /// Passes the rows of an answer on, up to its end. No row is held as a whole, however long it is.
    pub async fn pass(
        &mut self,
        client: &mut Client,
        mut sink: Sink<'_>,
        bytes_max: u64,
    ) -> Result<Passed, Trouble> {
        let mut passed = Passed::default();
        loop {
            let raw = self.backend.raw();
            let head = raw.head().map_err(lost)?;
            let Some(frame) = head else {
                wait(raw, client).await?;
                continue;
            };
            if matches!(frame.kind, b'D' | b'd') {
                passed.rows += 1;
                passed.bytes += frame.bytes as u64;
                if passed.bytes > bytes_max {
                    return Err(too_much(bytes_max).into());
                }
                if frame.kind == b'D' {
                    self.patch_row(client, frame).await?;
                }
                self.pass_frame(client, &mut sink, frame.bytes).await?;
                continue;
            }
            match self.next(client).await? {
                (b'E', body) => {
                    self.rest(client).await?;
                    return Err(Trouble::Said(body));
                }
                (b's', _) => passed.suspended = true,
                (b'C', body) => passed.note_tag(&body),
                (b'Z', _) => return Ok(passed),
                _ => {}
            }
        }
    }

    /// Puts the clients' ids into a row that waits to be passed on, once it is there as a whole; mostly there are none.
    pub(super) async fn patch_row(&mut self, client: &mut Client, frame: RawFrame) -> Result<(), Trouble> {
        if self.row_patch.is_none() {
            return Ok(());
        }
        while self.backend.raw().incoming().len() < frame.bytes {
            wait(self.backend.raw(), client).await?;
        }
        if let Some(patch) = &self.row_patch {
            patch.apply(&mut self.backend.raw().incoming()[MESSAGE_HEAD_BYTES..frame.bytes]);
        }
        Ok(())
    }

    pub(super) async fn pass_frame(
        &mut self,
        client: &mut Client,
        sink: &mut Sink<'_>,
        bytes: usize,
    ) -> Result<(), Trouble> {
        let mut left = bytes;
        self.in_message = true;
        while left > 0 {
            let raw = self.backend.raw();
            let incoming = raw.incoming();
            if incoming.is_empty() {
                match (wait(raw, client).await, &sink) {
                    // The client has half a message: nothing can be said to it any more.
                    (Err(Trouble::Lost(error)), Sink::Client) => {
                        return Err(Trouble::Gone(broken_off(&error.message)));
                    }
                    (waited, _) => waited?,
                }
                continue;
            }
            let part = left.min(incoming.len());
            match sink {
                Sink::Client => {
                    client.out.extend_from_slice(&incoming[..part]);
                    incoming.advance(part);
                    client.flush_if_full().await?;
                }
                Sink::Session(into) => {
                    into.raw().outgoing().extend_from_slice(&incoming[..part]);
                    incoming.advance(part);
                    if into.raw().outgoing().len() >= OUT_BYTES {
                        into.send().await?;
                        into.check_taking()?;
                    }
                }
            }
            left -= part;
        }
        self.in_message = false;
        Ok(())
    }

    /// A session that takes data says nothing meanwhile, unless it fails.
    fn check_taking(&mut self) -> Result<(), Trouble> {
        let raw = self.backend.raw();
        while let Some(frame) = raw.whole().map_err(lost)? {
            let (kind, body) = raw.take(frame);
            if kind == b'E' {
                return Err(Trouble::Said(body));
            }
        }
        Ok(())
    }

    /// Passes over the rest of an answer.
    pub async fn rest(&mut self, client: &mut Client) -> Result<(), Trouble> {
        loop {
            if let (b'Z', _) = self.next(client).await? {
                return Ok(());
            }
        }
    }

    /// Gives the session back: as it is if nothing is under way on it, or else it is ended. The client's own is
    /// returned.
    pub async fn give_back(mut self, client: &mut Client) -> Result<Option<Backend>, Gone> {
        if self.borrowed {
            // What the transaction asks next is about rows of its own alone.
            self.leave_out(BTreeMap::new());
            // What runs on it is the client's; whoever has it next sees how it stands, and no answers to this.
            return match self.hear_all(client).await {
                Ok(()) => Ok(Some(self.backend)),
                Err(trouble) => {
                    self.backend.abandon().await;
                    if let Trouble::Gone(gone) = trouble { Err(gone) } else { Ok(None) }
                }
            };
        }
        if self.cursors && self.waiting == 0 {
            self.ask("CLOSE ALL");
            let closed = match self.send().await {
                Ok(()) => self.answer(client).await,
                Err(trouble) => Err(trouble),
            };
            if let Err(trouble) = closed {
                self.backend.abandon().await;
                return if let Trouble::Gone(gone) = trouble { Err(gone) } else { Ok(None) };
            }
        }
        if self.waiting == 0 && (self.open || self.backend.status != b'I') {
            self.ask("ROLLBACK");
            self.ending = true;
        }
        if self.ending && self.waiting == 1 {
            let ended = match self.send().await {
                Ok(()) => self.answer(client).await,
                Err(trouble) => Err(trouble),
            };
            if let Err(Trouble::Gone(gone)) = ended {
                self.backend.abandon().await;
                return Err(gone);
            }
        }
        if self.waiting > 0 || self.backend.status != b'I' || !self.raw().incoming().is_empty() {
            self.backend.abandon().await;
            return Ok(None);
        }
        self.backend.finish();
        Ok(None)
    }

    /// Ends the transaction with a cursor that outlives it: its rows are PostgreSQL's own from now on.
    pub async fn keep_cursor(&mut self, ticket: Ticket, client: &mut Client) -> Result<(), Trouble> {
        self.ask("COMMIT");
        // The tables that its rows were fetched into.
        self.ask("DISCARD TEMP");
        self.send().await?;
        let committed = self.answer(client).await;
        self.open = false;
        match committed {
            Ok(_) => {
                self.answer(client).await?;
                self.backend.keep_only(ticket);
                self.cursors = true;
                Ok(())
            }
            Err(trouble @ Trouble::Said(_)) => self.rest(client).await.and(Err(trouble)),
            Err(trouble) => Err(trouble),
        }
    }

    /// Passes over all answers that are still to come.
    async fn hear_all(&mut self, client: &mut Client) -> Result<(), Trouble> {
        if self.in_message {
            return Err(no_copy(&self.backend.shard));
        }
        self.send().await?;
        while self.waiting > 0 {
            self.next(client).await?;
        }
        Ok(())
    }

    /// How many answers are still to come.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether an answer is still to come.
    pub fn is_waiting(&self) -> bool {
        self.waiting > 0
    }
}

/// Waits for more of a shard's answer; also hears when the client is gone.
pub(super) async fn wait(raw: &mut RawLent, client: &mut Client) -> Result<(), Trouble> {
    tokio::select! {
        biased;
        filled = raw.fill() => filled.map_err(lost),
        gone = client.gone() => Err(Trouble::Gone(gone)),
    }
}

pub(super) fn lost(error: polyshard_engine::Error) -> Trouble {
    Trouble::Lost(reply::of_engine(&error))
}

pub(super) fn no_copy(shard: &ShardId) -> Trouble {
    let message = format!("shard {shard} did not answer as the protocol says");
    Trouble::Refused(SqlError::new(polyshard_sql::SqlState::INTERNAL_ERROR, message))
}

fn too_much(bytes_max: u64) -> SqlError {
    let message = format!("the query fetches more than {bytes_max} bytes from one shard");
    SqlError::new(state::PROGRAM_LIMIT, message)
        .hint("Filter or group by columns of one table, or join tables on their key, so that the shards do the work.")
}

fn put_describe(out: &mut BytesMut, what: u8, name: &str) {
    reply::message(out, b'D', |out| {
        out.put_u8(what);
        reply::text(out, name);
    });
}

/// The fields of a DataRow, as texts.
pub(super) fn fields(body: &[u8]) -> Result<Vec<Option<String>>, Trouble> {
    optional_texts(body).ok_or_else(|| {
        Trouble::Refused(SqlError::new(state::PROTOCOL_VIOLATION, "a shard sent a row that is none"))
    })
}
