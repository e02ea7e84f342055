//! A shard's session at work for a client: what was sent to it, what is still to be answered, and how the answers
//! are passed on.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use polyshard_engine::{RawFrame, RawLent};
use polyshard_map::{Key, MapName, ShardId};
use polyshard_router::{Access, Ticket};
use polyshard_sql::{SqlError, SqlState};

use crate::client::{Client, Gone, OUT_BYTES};
use crate::reply::{self, state};
use crate::settings::Settings;

/// Statements kept prepared on each session of a shard, beyond which the one used longest ago makes room.
const PREPARED_MAX: usize = 256;

/// What is remembered of a session while it is pooled.
struct Notes {
    settings: Arc<Settings>,
    /// Prepared statements by number, each with when it was used last.
    prepared: HashMap<u64, u64>,
    uses: u64,
}

/// A session lent from a shard, and the tickets that allow it.
pub(crate) struct Backend {
    pub shard: ShardId,
    lent: Option<RawLent>,
    /// Kept until nothing of this session's can reach the shard any more.
    tickets: Vec<Ticket>,
    /// Keys that the tickets are for: asked again for every statement of a transaction.
    keys: Vec<(MapName, Vec<Key>, Access)>,
    steps: VecDeque<Step>,
    /// As the last ReadyForQuery said: `I`, `T` or `E`.
    pub status: u8,
    /// Whether anything was sent since the session was last idle outside a transaction.
    pub used: bool,
    /// Whether any answer has come since then.
    pub answered: bool,
    /// An error that came in answer to something quiet, as its message's body.
    quiet_error: Option<BytesMut>,
    /// Whether the server said that a prepared statement is not as it was.
    pub stale: bool,
    /// Whether the transaction has written here.
    pub wrote: bool,
    /// If the answers of several shards are put together: whether the columns were told, and what the end said.
    gathering: Option<(bool, Option<(String, u64)>)>,
    /// Whether something of the extended protocol was sent since the last Sync.
    pub in_series: bool,
    /// Whether the server waits for the client's data.
    copying: bool,
}

/// One thing that the shard, or the door in its place, still has to answer.
enum Step {
    /// Words of the door's own.
    Own(Bytes),
    /// A statement prepared that the client did not ask for.
    Prepare(u64),
    /// A prepared statement closed that the client did not ask for.
    Forget(u64),
    /// An answer of the extended protocol that is not passed on.
    Skip,
    Bind,
    Describe,
    Execute,
    Close,
    /// The end of a series; its answer is not passed on.
    Sync,
    /// A simple query; if quiet, nothing of its answer is passed on.
    Query {
        quiet: bool,
    },
}

/// How far an answer came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// Everything is answered.
    Done,
    /// The shard waits for the client's data.
    CopyIn,
}

/// Why an answer did not come.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The client is gone.
    Client(Gone),
    /// The shard ended the session, and with it what was not committed.
    Ended(SqlError),
    /// The shard's session is lost; whether what it was asked was done is not known.
    Cut(SqlError),
}

impl From<Gone> for Broken {
    fn from(gone: Gone) -> Broken {
        Broken::Client(gone)
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Broken {
        Broken::Client(error.into())
    }
}

impl Backend {
    pub fn new(lent: RawLent, tickets: Vec<Ticket>, keys: Vec<(MapName, Vec<Key>, Access)>) -> Backend {
        let shard = tickets.first().map(|ticket| ticket.shard().clone());
        Backend {
            shard: shard.expect("a session is lent by a ticket"),
            lent: Some(lent),
            tickets,
            keys,
            steps: VecDeque::new(),
            status: b'I',
            used: false,
            answered: false,
            quiet_error: None,
            stale: false,
            copying: false,
            in_series: false,
            wrote: false,
            gathering: None,
        }
    }

    /// The session itself, for those who speak the protocol with it; nothing may be under way.
    pub fn raw(&mut self) -> &mut RawLent {
        self.lent()
    }

    /// Keeps more tickets as long as the session is lent.
    pub fn hold(&mut self, tickets: Vec<Ticket>) {
        self.tickets.extend(tickets);
    }

    fn lent(&mut self) -> &mut RawLent {
        self.lent.as_mut().expect("it is there until it is given back")
    }

    fn notes(&mut self) -> &mut Notes {
        let notes = self.lent().notes.get_or_insert_with(|| {
            Box::new(Notes { settings: Arc::default(), prepared: HashMap::new(), uses: 0 })
        });
        notes.downcast_mut().expect("only this door lends sessions")
    }

    /// What stops the statement that runs on it.
    pub fn cancel(&self) -> polyshard_engine::RawCancel {
        self.lent.as_ref().expect("it is there until it is given back").cancel().clone()
    }

    /// Parameters that the server reported when the session began.
    pub fn parameters(&self) -> &[(String, String)] {
        self.lent.as_ref().expect("it is there until it is given back").parameters()
    }

    /// A ticket of it, to ask for others within the same transaction.
    pub fn ticket(&self) -> &Ticket {
        &self.tickets[0]
    }

    /// Whether its tickets are for these keys.
    pub fn covers(&self, map: &MapName, keys: &[Key], access: Access) -> bool {
        let enough = |mine: Access| mine == access || mine == Access::Write;
        self.keys.iter().any(|(known, mine, with)| {
            known == map && enough(*with) && keys.iter().all(|key| mine.contains(key))
        })
    }

    /// Takes in a ticket for more keys.
    pub fn add(&mut self, ticket: Ticket, map: MapName, keys: Vec<Key>, access: Access) {
        self.tickets.push(ticket);
        self.keys.push((map, keys, access));
    }

    /// Brings the session to these settings, with what is sent next.
    ///
    /// True if something is to be set, which may fail.
    pub fn apply(&mut self, settings: &Arc<Settings>) -> bool {
        let notes = self.notes();
        if let Some(statements) = settings.difference(&notes.settings) {
            notes.settings = settings.clone();
            self.query(&statements, true);
            return true;
        }
        if !Arc::ptr_eq(&notes.settings, settings) {
            notes.settings = settings.clone();
        }
        false
    }

    /// Notes that the session has these settings now.
    pub fn note_settings(&mut self, settings: &Arc<Settings>) {
        self.notes().settings = settings.clone();
    }

    /// Sends a simple query, with what is sent next.
    pub fn query(&mut self, text: &str, quiet: bool) {
        self.used = true;
        let out = self.lent().outgoing();
        reply::message(out, b'Q', |out| {
            out.put_slice(text.as_bytes());
            out.put_u8(0);
        });
        self.steps.push_back(Step::Query { quiet });
    }

    /// Asks something of our own, when nothing else is under way: the first field of its first row.
    pub async fn ask(&mut self, sql: &str) -> Result<String, polyshard_engine::Error> {
        self.calm().await?;
        let rows = self.lent().run_simple(sql).await?;
        Ok(rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten().unwrap_or_default())
    }

    /// Likewise, the first row.
    pub async fn ask_row(&mut self, sql: &str) -> Result<Vec<Option<String>>, polyshard_engine::Error> {
        self.calm().await?;
        Ok(self.lent().run_simple(sql).await?.into_iter().next().unwrap_or_default())
    }

    /// Likewise, all rows.
    pub async fn ask_all(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, polyshard_engine::Error> {
        self.calm().await?;
        self.lent().run_simple(sql).await
    }

    /// Likewise, the first field of every row.
    pub async fn ask_rows(&mut self, sql: &str) -> Result<Vec<String>, polyshard_engine::Error> {
        self.calm().await?;
        let rows = self.lent().run_simple(sql).await?;
        Ok(rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
    }

    /// Runs a statement of our own, when nothing else is under way.
    pub async fn run(
        &mut self,
        statement: &polyshard_engine::Statement,
    ) -> Result<(), polyshard_engine::Error> {
        self.calm().await?;
        self.lent().run(statement).await.map(drop)
    }

    /// Waits for the answers to what was sent quietly, so that something of our own can be asked.
    async fn calm(&mut self) -> Result<(), polyshard_engine::Error> {
        debug_assert!(self.steps.iter().all(|step| matches!(step, Step::Query { quiet: true })));
        self.lent().flush().await?;
        while !self.steps.is_empty() {
            let (kind, body) = self.lent().next().await?;
            match kind {
                b'Z' => {
                    self.status = body.first().copied().unwrap_or(b'I');
                    self.steps.pop_front();
                }
                b'E' => drop(self.quiet_error.get_or_insert(body)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Has the next answer be one of several: its columns are passed on once, its end not at all.
    pub fn gather(&mut self, described: bool) {
        self.gathering = Some((described, None));
    }

    /// What the end of an answer among several said: the word, and how many.
    pub fn gathered(&mut self) -> Option<(String, u64)> {
        self.gathering.take().and_then(|(_, said)| said)
    }

    /// Words of the door's own, in their place among the answers.
    pub fn own(&mut self, words: &[u8]) {
        self.steps.push_back(Step::Own(Bytes::copy_from_slice(words)));
    }

    /// Whether nothing is to be answered.
    pub fn is_settled(&self) -> bool {
        self.steps.is_empty()
    }

    /// Bytes that wait to be sent.
    pub fn waiting_bytes(&mut self) -> usize {
        self.lent().outgoing().len()
    }

    /// Makes sure that the session knows a prepared statement.
    pub fn prepare(&mut self, id: u64, text: &str, types: &[u32]) {
        let notes = self.notes();
        notes.uses += 1;
        let uses = notes.uses;
        if let Some(used) = notes.prepared.get_mut(&id) {
            *used = uses;
            return;
        }
        let oldest = if notes.prepared.len() >= PREPARED_MAX {
            notes.prepared.iter().min_by_key(|(_, used)| **used).map(|(id, _)| *id)
        } else {
            None
        };
        if let Some(oldest) = oldest {
            notes.prepared.remove(&oldest);
        }
        notes.prepared.insert(id, uses);
        self.used = true;
        self.in_series = true;
        let out = self.lent().outgoing();
        if let Some(oldest) = oldest {
            reply::message(out, b'C', |out| {
                out.put_u8(b'S');
                put_name(out, oldest);
            });
        }
        parse(out, id, text, types);
        self.steps.extend(oldest.map(Step::Forget));
        self.steps.push_back(Step::Prepare(id));
    }

    /// Forgets all prepared statements' names: the server may not have them any more.
    pub fn forget_prepared(&mut self) {
        self.notes().prepared.clear();
    }

    /// Prepares a statement and asks what it is like; [`Backend::described`] has the answer. The name is noted only
    /// once the server has taken it.
    pub fn ask_description(&mut self, id: u64, text: &str, types: &[u32], end: bool) {
        self.used = true;
        self.in_series = !end;
        let out = self.lent().outgoing();
        parse(out, id, text, types);
        reply::message(out, b'D', |out| {
            out.put_u8(b'S');
            put_name(out, id);
        });
        out.put_slice(if end { b"S\0\0\0\x04" } else { b"H\0\0\0\x04" });
    }

    /// The answer to [`Backend::ask_description`], when nothing else is under way: the two messages, or the error's
    /// body.
    pub async fn described(
        &mut self,
        id: u64,
        end: bool,
    ) -> Result<Result<(Bytes, Bytes), BytesMut>, Broken> {
        self.flush().await?;
        let (mut parameters, mut row, mut failure) = (None, None, None);
        loop {
            let (kind, body) = self.lent().next().await.map_err(lost)?;
            self.answered = true;
            match kind {
                b't' => parameters = Some(whole(kind, &body)),
                b'T' | b'n' => row = Some(whole(kind, &body)),
                b'E' => {
                    self.check_fatal(&body)?;
                    failure = Some(body);
                    if !end {
                        return Ok(Err(failure.unwrap_or_default()));
                    }
                }
                b'Z' => self.status = body.first().copied().unwrap_or(b'I'),
                _ => {}
            }
            let over = if end { kind == b'Z' } else { row.is_some() };
            if !over {
                continue;
            }
            return match (failure, parameters, row) {
                (Some(failure), ..) => Ok(Err(failure)),
                (None, Some(parameters), Some(row)) => {
                    let notes = self.notes();
                    notes.uses += 1;
                    let uses = notes.uses;
                    notes.prepared.insert(id, uses);
                    Ok(Ok((parameters, row)))
                }
                _ => Err(Broken::Cut(SqlError::new(
                    SqlState::INTERNAL_ERROR,
                    "the shard did not describe a statement",
                ))),
            };
        }
    }

    /// Binds a portal; the rest of the client's message goes as it is.
    pub fn bind(&mut self, portal: &str, id: u64, rest: &[u8]) {
        self.used = true;
        self.in_series = true;
        let out = self.lent().outgoing();
        reply::message(out, b'B', |out| {
            out.put_slice(portal.as_bytes());
            out.put_u8(0);
            put_name(out, id);
            out.put_slice(rest);
        });
        self.steps.push_back(Step::Bind);
    }

    /// Runs a text of its own in the extended protocol; only rows and the end are passed on.
    pub fn run_unnamed(&mut self, text: &str, formats: &[bool]) {
        self.used = true;
        let out = self.lent().outgoing();
        reply::message(out, b'P', |out| {
            out.put_u8(0);
            out.put_slice(text.as_bytes());
            out.put_slice(&[0, 0, 0]);
        });
        reply::message(out, b'B', |out| {
            out.put_slice(&[0, 0, 0, 0, 0, 0]);
            out.put_u16(u16::try_from(formats.len()).unwrap_or(0));
            for binary in formats {
                out.put_u16(u16::from(*binary));
            }
        });
        self.steps.extend([Step::Skip, Step::Skip]);
        self.execute("", 0);
        self.sync();
    }

    /// Describes a portal.
    pub fn describe_portal(&mut self, portal: &str) {
        self.in_series = true;
        reply::message(self.lent().outgoing(), b'D', |out| {
            out.put_u8(b'P');
            reply::text(out, portal);
        });
        self.steps.push_back(Step::Describe);
    }

    /// Closes a portal.
    pub fn close_portal(&mut self, portal: &str) {
        self.in_series = true;
        reply::message(self.lent().outgoing(), b'C', |out| {
            out.put_u8(b'P');
            reply::text(out, portal);
        });
        self.steps.push_back(Step::Close);
    }

    /// Runs a portal.
    pub fn execute(&mut self, portal: &str, rows_max: i32) {
        self.in_series = true;
        reply::message(self.lent().outgoing(), b'E', |out| {
            reply::text(out, portal);
            out.put_i32(rows_max);
        });
        self.steps.push_back(Step::Execute);
    }

    /// Ends a series.
    pub fn sync(&mut self) {
        self.in_series = false;
        self.lent().outgoing().put_slice(b"S\0\0\0\x04");
        self.steps.push_back(Step::Sync);
    }

    /// Asks the server to answer what it has.
    pub fn ask_answers(&mut self) {
        self.lent().outgoing().put_slice(b"H\0\0\0\x04");
    }

    /// Sends what waits to be sent.
    pub async fn flush(&mut self) -> Result<(), Broken> {
        self.lent().flush().await.map_err(lost)
    }

    /// Passes a message of the client's on, as in COPY.
    pub fn pass(&mut self, kind: u8, body: &[u8]) {
        let out = self.lent().outgoing();
        out.reserve(body.len() + 5);
        reply::message(out, kind, |out| out.put_slice(body));
        if kind != b'd' {
            self.copying = false;
        }
    }

    /// Adds a row to the data that is copied.
    pub fn pass_row(&mut self, row: &[u8]) {
        let out = self.lent().outgoing();
        reply::message(out, b'd', |out| out.put_slice(row));
    }

    /// An error that came in answer to something quiet.
    pub fn take_quiet_error(&mut self) -> Option<BytesMut> {
        self.quiet_error.take()
    }

    /// Passes answers on to the client until nothing is to be answered, or the shard waits for data. Returns whether
    /// an error was among them by `failed`.
    pub async fn drain(&mut self, client: &mut Client, failed: &mut bool) -> Result<Drained, Broken> {
        self.flush().await?;
        loop {
            while let Some(Step::Own(words)) = self.steps.front() {
                client.out.extend_from_slice(words);
                self.steps.pop_front();
            }
            if self.steps.is_empty() {
                return Ok(Drained::Done);
            }
            let frame = self.lent().head().map_err(lost)?;
            let there = self.lent().incoming().len();
            let Some(frame) = frame.filter(|frame| frame.bytes <= there || !self.copying) else {
                if self.copying {
                    return Ok(Drained::CopyIn);
                }
                self.wait(client).await?;
                continue;
            };
            if frame.bytes > there {
                if matches!(frame.kind, b'D' | b'd') && frame.bytes > OUT_BYTES && !self.is_quiet() {
                    self.stream(client, frame.bytes).await?;
                } else {
                    self.wait(client).await?;
                }
                continue;
            }
            if self.answer(client, frame, failed)? {
                return Ok(Drained::CopyIn);
            }
            client.flush_if_full().await?;
        }
    }

    fn is_quiet(&self) -> bool {
        matches!(self.steps.front(), Some(Step::Query { quiet: true }))
    }

    /// Takes one message; true if the shard now waits for data.
    fn answer(&mut self, client: &mut Client, frame: RawFrame, failed: &mut bool) -> Result<bool, Broken> {
        self.answered = true;
        let quiet = self.is_quiet();
        match frame.kind {
            b'Z' => {
                let (_, body) = self.lent().take(frame);
                self.status = body.first().copied().unwrap_or(b'I');
                // After an error the rest of a series is passed over, up to here.
                while let Some(step) = self.steps.pop_front() {
                    if matches!(step, Step::Sync | Step::Query { .. }) {
                        break;
                    }
                }
                return Ok(false);
            }
            b'E' => {
                let (_, body) = self.lent().take(frame);
                self.check_fatal(&body)?;
                self.stale |= is_stale(&body);
                self.copying = false;
                if !matches!(self.steps.front(), Some(Step::Query { .. })) {
                    self.skip_to_sync();
                }
                if quiet {
                    self.quiet_error.get_or_insert(body);
                } else {
                    *failed = true;
                    reply::message(&mut client.out, b'E', |out| out.put_slice(&body));
                }
                return Ok(false);
            }
            // A notification for whoever had the session before.
            b'A' => {
                self.lent().incoming().advance(frame.bytes);
                return Ok(false);
            }
            // What settings are now concerns the client even if they were set quietly.
            b'S' => {
                let (_, body) = self.lent().take(frame);
                reply::message(&mut client.out, b'S', |out| out.put_slice(&body));
                return Ok(false);
            }
            b'G' => self.copying = true,
            b'1' | b'2' | b'3'
                if matches!(self.steps.front(), Some(Step::Prepare(_) | Step::Forget(_) | Step::Skip)) =>
            {
                self.steps.pop_front();
                self.lent().incoming().advance(frame.bytes);
                return Ok(false);
            }
            b'2' | b'3' | b'T' | b'n' | b'C' | b'I' | b's' => {
                let over = matches!(
                    (frame.kind, self.steps.front()),
                    (b'2', Some(Step::Bind))
                        | (b'3', Some(Step::Close))
                        | (b'T' | b'n', Some(Step::Describe))
                        | (b'C' | b'I' | b's', Some(Step::Execute))
                );
                if over {
                    self.steps.pop_front();
                }
            }
            _ => {}
        }
        let lent = self.lent.as_mut().expect("it is there until it is given back");
        let incoming = lent.incoming();
        let mut quiet = quiet;
        if let Some((described, said)) = &mut self.gathering {
            match frame.kind {
                b'T' | b'H' => quiet |= std::mem::replace(described, true),
                b'c' => quiet = true,
                b'C' => {
                    quiet = true;
                    *said = Some(read_tag(&incoming[5..frame.bytes]));
                }
                _ => {}
            }
        }
        if !quiet {
            client.out.extend_from_slice(&incoming[..frame.bytes]);
        }
        incoming.advance(frame.bytes);
        Ok(frame.kind == b'G')
    }

    /// After an error the server passes over the rest of a series: what was to be prepared in it was not.
    fn skip_to_sync(&mut self) {
        while self.steps.front().is_some_and(|step| !matches!(step, Step::Sync)) {
            match self.steps.pop_front() {
                Some(Step::Prepare(id)) => {
                    self.notes().prepared.remove(&id);
                }
                Some(Step::Forget(id)) => {
                    self.notes().prepared.insert(id, 0);
                }
                _ => {}
            }
        }
    }

    /// Passes a message that is longer than the buffers as it comes.
    async fn stream(&mut self, client: &mut Client, bytes: usize) -> Result<(), Broken> {
        let mut left = bytes;
        loop {
            let lent = self.lent.as_mut().expect("it is there until it is given back");
            let incoming = lent.incoming();
            let part = left.min(incoming.len());
            client.out.extend_from_slice(&incoming[..part]);
            incoming.advance(part);
            left -= part;
            client.flush_if_full().await?;
            if left == 0 {
                return Ok(());
            }
            self.wait(client).await?;
        }
    }

    /// Waits for more of the shard's answer; also hears when the client is gone.
    async fn wait(&mut self, client: &mut Client) -> Result<(), Broken> {
        let lent = self.lent.as_mut().expect("it is there until it is given back");
        tokio::select! {
            biased;
            filled = lent.fill() => filled.map_err(lost),
            gone = client.gone() => Err(Broken::Client(gone)),
        }
    }

    /// Waits for more of the shard's answer while the client sends data.
    pub async fn fill(&mut self) -> Result<(), Broken> {
        self.lent().fill().await.map_err(lost)
    }

    /// Whether the shard has said something that was not looked at.
    pub fn has_said(&mut self) -> bool {
        !self.lent().incoming().is_empty()
    }

    fn check_fatal(&self, body: &[u8]) -> Result<(), Broken> {
        let severity = field(body, b'V').or_else(|| field(body, b'S')).unwrap_or_default();
        if severity != "FATAL" && severity != "PANIC" {
            return Ok(());
        }
        let said = field(body, b'M').unwrap_or_default();
        let message = format!("shard {} ended the session: {said}", self.shard);
        Err(Broken::Ended(SqlError::new(state::CONNECTION_FAILURE, message).hint("Try again.")))
    }

    /// Gives the session back: it is idle, and in no transaction.
    pub fn finish(mut self) {
        debug_assert!(self.steps.is_empty());
        if let Some(lent) = self.lent.take() {
            lent.finish();
        }
    }

    /// Ends the session. The tickets stay until nothing that it did can come later.
    pub async fn abandon(mut self) {
        if let Some(lent) = self.lent.take() {
            lent.abandon().await;
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let Some(lent) = self.lent.take() else { return };
        let tickets = std::mem::take(&mut self.tickets);
        // Its client's task was cut off. The session ends by itself, and the tickets with it.
        if tokio::runtime::Handle::try_current().is_ok() {
            tokio::spawn(async move {
                lent.abandon().await;
                drop(tickets);
            });
        }
    }
}

fn lost(error: polyshard_engine::Error) -> Broken {
    Broken::Cut(reply::of_engine(&error))
}

/// A message with its head.
fn whole(kind: u8, body: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(body.len() + 5);
    reply::message(&mut out, kind, |out| out.put_slice(body));
    out.freeze()
}

/// The words and the number of a CommandComplete: `INSERT 0` and 3.
fn read_tag(body: &[u8]) -> (String, u64) {
    let tag = String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(body)).into_owned();
    match tag.rsplit_once(' ') {
        Some((words, count)) => (words.to_owned(), count.parse().unwrap_or(0)),
        None => (tag, 0),
    }
}

/// Whether an error says that a prepared statement must be prepared anew.
fn is_stale(body: &[u8]) -> bool {
    match field(body, b'C') {
        Some("26000") => true,
        Some("0A000") => field(body, b'M').is_some_and(|message| message.contains("cached plan")),
        _ => false,
    }
}

/// A field of an error or notice.
pub(crate) fn field(body: &[u8], wanted: u8) -> Option<&str> {
    let mut rest = body;
    while let Some((&code, after)) = rest.split_first() {
        let end = after.iter().position(|byte| *byte == 0)?;
        if code == wanted {
            return std::str::from_utf8(&after[..end]).ok();
        }
        rest = &after[end + 1..];
    }
    None
}

fn put_name(out: &mut BytesMut, id: u64) {
    let mut digits = [0_u8; 16];
    let mut rest = id;
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
    out.put_slice(b"polyshard_");
    out.put_slice(&digits);
    out.put_u8(0);
}

fn parse(out: &mut BytesMut, id: u64, text: &str, types: &[u32]) {
    reply::message(out, b'P', |out| {
        put_name(out, id);
        out.put_slice(text.as_bytes());
        out.put_u8(0);
        out.put_u16(u16::try_from(types.len()).unwrap_or(u16::MAX));
        for type_oid in types {
            out.put_u32(*type_oid);
        }
    });
}

impl Backend {
    /// Asks how the server writes these values as literals, each with its type; or the error's body.
    pub async fn ask_literals(
        &mut self,
        params: &[polyshard_sql::Param<'_>],
    ) -> Result<Result<Vec<String>, BytesMut>, Broken> {
        use polyshard_sql::ParamValue;
        let parts = (1..=params.len()).map(|at| format!("quote_nullable(${at}), pg_typeof(${at})::text"));
        let text = format!("SELECT {}", parts.collect::<Vec<_>>().join(", "));
        let count = u16::try_from(params.len()).unwrap_or(u16::MAX);
        self.calm().await.map_err(lost)?;
        let out = self.lent().outgoing();
        reply::message(out, b'P', |out| {
            out.put_u8(0);
            out.put_slice(text.as_bytes());
            out.put_u8(0);
            out.put_u16(count);
            for param in params {
                out.put_u32(param.type_oid.0);
            }
        });
        reply::message(out, b'B', |out| {
            out.put_slice(&[0, 0]);
            out.put_u16(count);
            for param in params {
                out.put_u16(u16::from(matches!(param.value, ParamValue::Binary(_))));
            }
            out.put_u16(count);
            for param in params {
                match param.value {
                    ParamValue::Null => out.put_i32(-1),
                    ParamValue::Text(bytes) | ParamValue::Binary(bytes) => {
                        out.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                        out.put_slice(bytes);
                    }
                }
            }
            out.put_u16(0);
        });
        reply::message(out, b'E', |out| out.put_slice(&[0, 0, 0, 0, 0]));
        out.put_slice(b"S\0\0\0\x04");
        self.flush().await?;
        let (mut fields, mut failure) = (Vec::new(), None);
        loop {
            let (kind, body) = self.lent().next().await.map_err(lost)?;
            match kind {
                b'D' => fields = texts(&body),
                b'E' => {
                    self.check_fatal(&body)?;
                    failure = Some(body);
                }
                b'Z' => {
                    self.status = body.first().copied().unwrap_or(b'I');
                    break;
                }
                _ => {}
            }
        }
        if let Some(body) = failure {
            return Ok(Err(body));
        }
        Ok(Ok(fields.chunks_exact(2).map(|pair| format!("{}::{}", pair[0], pair[1])).collect()))
    }
}

/// The fields of a row in text form.
fn texts(body: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0).min(after.len());
        found.push(String::from_utf8_lossy(&after[..length]).into_owned());
        rest = &after[length..];
    }
    found
}
