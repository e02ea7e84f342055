//! A shard's session at work for a client: what was sent to it, what is still to be answered, and how the answers
//! are passed on.

mod answer;
mod ask;
mod ids;
mod series;
mod turn;
mod value;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use polyshard_engine::{Dialect, RawLent};
use polyshard_map::{Key, MapName, ShardId};
use polyshard_router::{Access, Ticket};
use polyshard_sql::{SqlError, TypeOid};

use crate::client::Gone;
use crate::door::Door;
use crate::reply;
use crate::session::{Leave, open_inside};
use crate::settings::{Settings, number_under};
use crate::type_ids::{RowPatch, TypeIds};
use ids::Rows;
pub(crate) use ids::Translated;
pub(crate) use series::Parsing;
pub(crate) use turn::{Expected, Heard, Turn};
pub(crate) use words::{field, optional_texts, put_bind_head, put_question};
use words::{lost, parse, put_name};

/// Statements kept prepared on each session of a shard, beyond which the one used longest ago makes room.
const PREPARED_MAX: usize = 256;

/// What is remembered of a session while it is pooled.
struct Notes {
    settings: Arc<Settings>,
    /// Prepared statements by number, each with when it was used last.
    prepared: BTreeMap<u64, u64>,
    uses: u64,
    /// How often something was set on it for one transaction.
    locals: u32,
}

/// A session lent from a shard, and the tickets that allow it.
pub(crate) struct Backend {
    pub shard: ShardId,
    lent: Option<RawLent>,
    /// Kept until nothing of this session's can reach the shard any more.
    tickets: Vec<Arc<Ticket>>,
    /// What a session of this door has from us that answers for an SQLite shard.
    leave: Option<Arc<Leave>>,
    /// Keys that the tickets are for: asked again for every statement of a transaction.
    keys: Vec<(MapName, Vec<Key>, Access)>,
    steps: VecDeque<Step>,
    /// As the last ReadyForQuery said: `I`, `T` or `E`.
    pub status: u8,
    /// An error that came in answer to something quiet, as its message's body.
    quiet_error: Option<BytesMut>,
    /// Whether the last quiet statement was answered by `ROLLBACK`, as COMMIT is in a failed transaction.
    pub undone: bool,
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
    /// Cursors on it that outlive the transaction, if that is committed.
    pub cursors: Vec<String>,
    /// Whether something was set inside a transaction that is not committed: the notes hold only if it is.
    pub set_inside: bool,
    /// If something was set for the transaction alone: what statements mean in it, as a number.
    local: Option<u32>,
    /// Whether it may have something that is not noted, so that nobody else is to have it.
    pub closing: bool,
    /// What clients know the shard's types by.
    type_ids: Arc<TypeIds>,
    /// What is to be done with the rows that follow the columns told last.
    row_patch: Option<Arc<RowPatch>>,
    /// Likewise with the rows of portals, by name; the last of a name counts.
    portal_patches: Vec<(Box<str>, Arc<RowPatch>)>,
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
    /// Columns that are not passed on.
    Columns,
    Execute(Rows),
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
    /// Lends a session of the shard that these tickets are for.
    pub async fn open(
        door: &Arc<Door>,
        tickets: Vec<Ticket>,
        keys: Vec<(MapName, Vec<Key>, Access)>,
    ) -> Result<Backend, polyshard_engine::Error> {
        let tickets: Vec<Arc<Ticket>> = tickets.into_iter().map(Arc::new).collect();
        let first = tickets.first().expect("a session is lent by a ticket");
        let (lent, leave) = match first.dialect() {
            Dialect::Postgres => (first.raw().await?, None),
            Dialect::Sqlite => {
                let (lent, leave) = open_inside(door, &tickets)?;
                (lent, Some(leave))
            }
        };
        Ok(Backend::new(door, tickets, lent, leave, keys))
    }

    /// A session that these tickets allow, on which nothing is under way.
    fn new(
        door: &Door,
        tickets: Vec<Arc<Ticket>>,
        lent: RawLent,
        leave: Option<Arc<Leave>>,
        keys: Vec<(MapName, Vec<Key>, Access)>,
    ) -> Backend {
        Backend {
            shard: tickets[0].shard().clone(),
            lent: Some(lent),
            tickets,
            leave,
            keys,
            steps: VecDeque::new(),
            status: b'I',
            quiet_error: None,
            undone: false,
            stale: false,
            copying: false,
            in_series: false,
            wrote: false,
            gathering: None,
            cursors: Vec::new(),
            set_inside: false,
            local: None,
            closing: false,
            type_ids: door.type_ids.clone(),
            row_patch: None,
            portal_patches: Vec::new(),
        }
    }

    /// Which SQL the shard itself speaks.
    pub fn dialect(&self) -> Dialect {
        if self.leave.is_some() { Dialect::Sqlite } else { Dialect::Postgres }
    }

    /// Whether a session of this door answers, for an SQLite shard.
    pub fn is_inside(&self) -> bool {
        self.leave.is_some()
    }

    /// What a session that answers for an SQLite shard has from us.
    pub fn leave(&self) -> Option<&Arc<Leave>> {
        self.leave.as_ref()
    }

    /// Has whoever answers for the shard know of more tickets, or fewer.
    fn share_tickets(&self) {
        if let Some(leave) = &self.leave {
            leave.extend(&self.tickets);
        }
    }

    /// The session itself, for those who speak the protocol with it; nothing may be under way.
    pub fn raw(&mut self) -> &mut RawLent {
        self.lent()
    }

    /// Keeps more tickets as long as the session is lent.
    pub fn hold(&mut self, tickets: Vec<Ticket>) {
        self.tickets.extend(tickets.into_iter().map(Arc::new));
        self.share_tickets();
    }

    fn lent(&mut self) -> &mut RawLent {
        self.lent.as_mut().expect("it is there until it is given back")
    }

    fn notes(&mut self) -> &mut Notes {
        let notes = self.lent().notes.get_or_insert_with(|| {
            Box::new(Notes { settings: Arc::default(), prepared: BTreeMap::new(), uses: 0, locals: 0 })
        });
        notes.downcast_mut().expect("only this door lends sessions")
    }

    /// What stops the statement that runs on it.
    pub fn cancel(&self) -> polyshard_engine::RawCancel {
        self.lent.as_ref().expect("it is there until it is given back").cancel().clone()
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

    /// Lets all tickets go but this one: nothing of its keys is read or written on the session any more.
    pub fn keep_only(&mut self, ticket: Ticket) {
        self.tickets = vec![Arc::new(ticket)];
        self.keys.clear();
        self.share_tickets();
    }

    /// Takes in a ticket for more keys.
    pub fn add(&mut self, ticket: Ticket, map: MapName, keys: Vec<Key>, access: Access) {
        self.tickets.push(Arc::new(ticket));
        self.keys.push((map, keys, access));
        self.share_tickets();
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
        if self.local.is_some() {
            self.note_local();
        }
    }

    /// Notes that something is set for the transaction alone, or not any more: what was prepared before may mean
    /// something else now, and what is prepared from now on is for nobody else.
    pub fn note_local(&mut self) {
        let notes = self.notes();
        notes.locals = notes.locals.wrapping_add(1);
        self.local = Some(notes.locals | 1 << 31);
    }

    /// Likewise, if something that was set since a savepoint may be undone with it.
    pub fn note_rolled_back(&mut self) {
        if self.set_inside || self.local.is_some() {
            self.note_local();
        }
    }

    /// The number that a prepared statement has under the settings that the session has now.
    fn number(&mut self, id: u64) -> u64 {
        let meaning = self.local.unwrap_or_else(|| self.notes().settings.meaning());
        number_under(id, meaning)
    }

    /// Sends a simple query, with what is sent next.
    pub fn query(&mut self, text: &str, quiet: bool) {
        let out = self.lent().outgoing();
        reply::message(out, b'Q', |out| {
            out.put_slice(text.as_bytes());
            out.put_u8(0);
        });
        self.steps.push_back(Step::Query { quiet });
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

    /// Whether nothing is left on it that others should not find.
    pub fn is_free(&self) -> bool {
        let good = self.status == b'I' && self.is_settled() && !self.stale && self.is_as_noted();
        good && self.cursors.is_empty()
    }

    /// Whether it has not answered the BEGIN, or what else was sent quietly before everything else.
    pub fn is_beginning(&self) -> bool {
        matches!(self.steps.front(), Some(Step::Query { quiet: true }))
    }

    /// Bytes that wait to be sent.
    pub fn waiting_bytes(&mut self) -> usize {
        self.lent().outgoing().len()
    }

    /// Makes sure that the session knows a prepared statement.
    pub fn prepare(&mut self, id: u64, text: &str, types: &[u32]) {
        let id = self.number(id);
        let notes = self.notes();
        notes.uses += 1;
        let uses = notes.uses;
        if let Some(used) = notes.prepared.get_mut(&id) {
            *used = uses;
            return;
        }
        let oldest = self.make_room();
        self.notes().prepared.insert(id, uses);
        self.in_series = true;
        parse(self.lent().outgoing(), id, text, types);
        self.steps.extend(oldest.map(Step::Forget));
        self.steps.push_back(Step::Prepare(id));
    }

    /// Likewise, where somebody answers for an SQLite shard: with the types that PostgreSQL gives its parameters, by
    /// which the client writes them.
    pub fn prepare_as(&mut self, id: u64, text: &str, types: &[u32], parameters: &[TypeOid]) {
        if !self.is_inside() {
            return self.prepare(id, text, types);
        }
        let types: Vec<u32> = parameters.iter().map(|type_oid| type_oid.0).collect();
        self.prepare(id, text, &types);
    }

    /// Has the statement closed that was used longest ago, if there are too many: that one.
    fn make_room(&mut self) -> Option<u64> {
        let notes = self.notes();
        if notes.prepared.len() < PREPARED_MAX {
            return None;
        }
        let oldest = notes.prepared.iter().min_by_key(|(_, used)| **used).map(|(id, _)| *id)?;
        notes.prepared.remove(&oldest);
        reply::message(self.lent().outgoing(), b'C', |out| {
            out.put_u8(b'S');
            put_name(out, oldest);
        });
        Some(oldest)
    }

    /// Binds a portal; the rest of the client's message goes as it is.
    pub fn bind(&mut self, portal: &str, id: u64, rest: &[u8]) {
        self.in_series = true;
        let id = self.number(id);
        self.portal_patches.retain(|(name, _)| **name != *portal);
        let out = self.lent().outgoing();
        reply::message(out, b'B', |out| {
            out.put_slice(portal.as_bytes());
            out.put_u8(0);
            put_name(out, id);
            out.put_slice(rest);
        });
        self.steps.push_back(Step::Bind);
    }

    /// Runs a prepared statement with these values as texts, and ends the series: columns, rows and the end are passed
    /// on, as those of a simple query are.
    pub fn run_prepared<'v>(&mut self, id: u64, values: impl Iterator<Item = &'v str>) {
        let id = self.number(id);
        put_question(self.lent().outgoing(), id, values);
        let rows = self.rows_of("");
        self.steps.extend([Step::Skip, Step::Describe, Step::Execute(rows), Step::Sync]);
        self.in_series = false;
    }

    /// Runs a text of its own in the extended protocol; only rows and the end are passed on. The series is to be
    /// ended once it is answered: a Sync that comes before the data of COPY would be taken for a part of it.
    pub fn run_unnamed(&mut self, text: &str, formats: &[bool]) {
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
        // What is in binary form may have ids in it, which the columns tell.
        let to_look_into = formats.contains(&true) && !self.is_home();
        if to_look_into {
            self.describe_portal("");
            self.steps.pop_back();
            self.steps.push_back(Step::Columns);
        }
        self.execute("", 0);
        if to_look_into {
            self.steps.pop_back();
            self.steps.push_back(Step::Execute(Rows::AsDescribed));
        }
        self.ask_answers();
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
        self.steps.push_back(Step::Execute(self.rows_of(portal)));
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
            // A Flush that came before the data was passed over.
            self.ask_answers();
        }
    }

    /// An error that came in answer to something quiet.
    pub fn take_quiet_error(&mut self) -> Option<BytesMut> {
        self.quiet_error.take()
    }

    /// Whether others can have it next: what it has set is noted.
    pub fn is_as_noted(&self) -> bool {
        !self.set_inside && !self.closing
    }

    /// Gives the session back: it is idle, and in no transaction.
    pub fn finish(mut self) {
        debug_assert!(self.steps.is_empty());
        if !self.is_as_noted() || !self.cursors.is_empty() {
            // It ends when it is dropped.
            return;
        }
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
