//! One client's session: reads its messages, and keeps what belongs to it from one to the next.

mod activity;
mod binary;
mod command;
mod copy;
mod engine;
mod enlist;
mod eventual;
mod extended;
mod global;
mod home;
mod inline;
mod inside;
mod kinds;
mod lane;
mod load;
mod locks;
mod moving;
mod named;
mod new_table;
mod numbers;
mod pin;
mod place;
mod point;
mod ports;
mod prepare;
mod recorded;
mod reference;
mod rekey;
mod rights;
mod savepoint;
mod series;
mod set;
mod several;
mod short;
mod simple;
mod snapshot;
mod spool;
mod statement;
mod target;
mod transaction;
mod users;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;

use bytes::BytesMut;
use polyshard_map::ShardId;
use polyshard_meter::Requests;
use polyshard_sql::{SqlError, SqlState};
use polyshard_wire::Shutdown;

use crate::across::HeldAnswers;
use crate::backend::Backend;
use crate::cache::Basis;
use crate::cancel::Cancellable;
use crate::client::{Client, Gone};
use crate::codec::{Head, Malformed};
use crate::door::Door;
use crate::embedded::{Kept, Lite};
use crate::out_form::OutForm;
use crate::reply::{self, Severity, state};
use crate::settings::{self, Own, Settings};
use crate::startup;
pub(crate) use activity::About;
use extended::Portal;
pub(crate) use inside::{Leave, open as open_inside, write_ticket};
pub(crate) use load::{check_client, given_columns};
use named::Named;
pub(crate) use place::{RoutedBy, Wanted, only_files, other_file};
pub(crate) use recorded::locks_rows;
pub(crate) use rights::Who;
pub(crate) use savepoint::Extent;
pub(crate) use several::PREPARED_PREFIX;
pub(crate) use snapshot::moved;
pub(crate) use spool::Spool;
pub(crate) use target::{CopyTarget, check_plain, only, table_called};
use tracing::Instrument;
use transaction::Transaction;
use watch::Watched;

/// A client's session.
pub(crate) struct Session {
    pub(crate) door: Arc<Door>,
    pub(crate) client: Client,
    /// A user of the catalog's, whose rights are looked at; none for the one of the configuration, who has all.
    who: Option<Who>,
    cancel: Cancellable,
    settings: Arc<Settings>,
    pub(crate) own: Own,
    pub(crate) search_path: Arc<[String]>,
    statements: HashMap<Box<str>, Named>,
    portals: HashMap<Box<str>, Portal>,
    pub(crate) transaction: Transaction,
    /// The shard's session that works for this one: during a statement, a series, or a transaction.
    backend: Option<Backend>,
    /// Whether all shards are SQLite files, or it answers for one.
    pub(crate) embedded: bool,
    /// The leave of the session for which this one answers for a shard, if it does.
    pub(crate) under: Option<Arc<Leave>>,
    /// The SQLite shard that works for this session.
    pub(crate) lite: Option<Lite>,
    pub(crate) lite_settings: Arc<polyshard_sql_on_sqlite::Settings>,
    /// Other shards' sessions of the same transaction.
    parked: BTreeMap<ShardId, Backend>,
    /// Answers across shards that the client takes in parts.
    pub(crate) held: HeldAnswers,
    /// The portal that is being run, and how many rows of it are wanted; 0 for all.
    pub(crate) asked: Option<(String, i32)>,
    /// How rows are written instead of as an answer, on SQLite shards.
    pub(crate) copy_out: Option<Arc<OutForm>>,
    /// What keeps rows instead of sending them, on SQLite shards.
    pub(crate) keeping: Option<Box<Kept>>,
    /// What the statement at hand was routed by, until it has its shard.
    pub(crate) routed_by: Option<RoutedBy>,
    /// Whether transactions have one snapshot unless they or the client say otherwise.
    one_snapshot: bool,
    /// After an error in a series, everything up to its end is passed over.
    skipping: bool,
    /// Whether the shard's session that was lost last may have done what it was asked.
    cut: bool,
    /// Whether the shard's last answer was, or had in it, an error.
    told: bool,
    /// Whether a statement of the extended protocol is carried out: its columns were told before.
    pub(crate) extended: bool,
    /// The forms in which its results are wanted: none, one for all, or one each; true is binary.
    pub(crate) formats: Vec<bool>,
    /// The types that the client gave for its parameters.
    types: Arc<[u32]>,
    /// The request at hand, as it is counted.
    watched: Watched,
    /// What a shard is asked on the short way; kept for its room.
    question: BytesMut,
}

/// Why a message was not carried out.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The client is told why.
    Refused(SqlError),
    /// The client has been told already.
    Told,
    /// The client is told, and the connection ends.
    Fatal(SqlError),
    /// The client is gone.
    Gone(Gone),
}

impl From<SqlError> for Stop {
    fn from(error: SqlError) -> Stop {
        Stop::Refused(error)
    }
}

impl From<Gone> for Stop {
    fn from(gone: Gone) -> Stop {
        match gone {
            Gone::Malformed(malformed) => malformed.into(),
            gone => Stop::Gone(gone),
        }
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Stop {
        Stop::Gone(error.into())
    }
}

impl From<Malformed> for Stop {
    fn from(malformed: Malformed) -> Stop {
        match malformed {
            Malformed::Text => Stop::Refused(
                SqlError::new(SqlState("22021"), "a statement or name is not valid UTF-8")
                    .hint("Set client_encoding to UTF8, and send UTF-8."),
            ),
            _ => Stop::Fatal(SqlError::new(state::PROTOCOL_VIOLATION, malformed.to_string())),
        }
    }
}

pub(crate) type Done = Result<(), Stop>;

impl Session {
    /// Begins the session of a client that has proven who it is. Nothing, if it is sent away after all.
    pub async fn begin(
        mut client: Client,
        door: &Arc<Door>,
        who: Option<Who>,
        parameters: &[(String, String)],
    ) -> Result<Option<Session>, Gone> {
        let defaults = match door.defaults().await {
            Ok(defaults) => defaults,
            Err(error) => return refuse(client, &error).await,
        };
        let mut reported = defaults.parameters.clone();
        let set = |reported: &mut Vec<(String, String)>, name: &str, value: &str| {
            for (_, known) in reported.iter_mut().filter(|(known, _)| known == name) {
                *known = value.to_owned();
            }
        };
        // The shards are under another role; to the client, it is who it logged in as.
        let user = who.as_ref().map_or(&door.login.user, |who| &who.name);
        set(&mut reported, "session_authorization", user);
        set(&mut reported, "application_name", "");
        let mut session = Session::new(client, door, defaults.embedded, defaults.search_path.clone());
        session.one_snapshot = defaults.one_snapshot;
        session.lite_settings = Arc::new(lite_settings(door, user));
        session.who = who;
        session.note_beginning();
        match session.take_settings(parameters, &mut reported).await {
            Ok(()) => {}
            Err(Stop::Refused(error) | Stop::Fatal(error)) => return refuse(session.client, &error).await,
            Err(Stop::Gone(gone)) => return Err(gone),
            Err(Stop::Told) => return Ok(None),
        }
        client = session.client;
        for (name, value) in &reported {
            reply::parameter(&mut client.out, name, value);
        }
        let (process, secret) = (session.cancel.process, session.cancel.secret);
        reply::message(&mut client.out, b'K', |out| {
            out.extend_from_slice(&process.to_be_bytes());
            out.extend_from_slice(&secret.to_be_bytes());
        });
        reply::ready(&mut client.out, b'I');
        session.client = client;
        Ok(Some(session))
    }

    /// A session in which nothing is set and nothing under way.
    fn new(client: Client, door: &Arc<Door>, embedded: bool, search_path: Arc<[String]>) -> Session {
        Session {
            door: door.clone(),
            client,
            who: None,
            cancel: door.cancels.enter(i32::from_be_bytes(door.random())),
            settings: Arc::default(),
            own: Own::default(),
            search_path,
            statements: HashMap::new(),
            portals: HashMap::new(),
            transaction: Transaction::none(),
            backend: None,
            embedded,
            under: None,
            lite: None,
            lite_settings: Arc::new(lite_settings(door, &door.login.user)),
            parked: BTreeMap::new(),
            held: HeldAnswers::default(),
            asked: None,
            copy_out: None,
            keeping: None,
            routed_by: None,
            one_snapshot: false,
            skipping: false,
            cut: false,
            told: false,
            extended: false,
            formats: Vec::new(),
            types: Arc::from([]),
            watched: Watched::default(),
            question: BytesMut::new(),
        }
    }

    /// Takes in the settings of a start-up packet.
    async fn take_settings(
        &mut self,
        parameters: &[(String, String)],
        reported: &mut [(String, String)],
    ) -> Done {
        let mut to_check = false;
        for (name, mut value) in startup::settings(parameters)? {
            if Own::has(&name) {
                self.own.set(&name, Some(&value)).map_err(bad_setting)?;
                continue;
            }
            set::check_value(&name, Some(&value))?;
            self.check_setting(&name)?;
            if name == "client_encoding" {
                continue;
            }
            if name == "search_path" {
                self.search_path = settings::search_path(&value);
                set::check_search_path(self.search_path.iter())?;
                // Nobody has a schema of his own: see `set::without_own_schema`.
                if value.contains("$user") {
                    let names: Vec<String> =
                        self.search_path.iter().map(|name| polyshard_sql::quoted(name)).collect();
                    value = names.join(", ");
                }
            }
            if self.embedded {
                let before = self.client.out.len();
                self.set_lite(&name, Some(&value), "")?;
                // What it reports is told with everything else.
                self.client.out.truncate(before);
            }
            self.settings = self.settings.with(&name, &settings::set_statement(&name, &value));
            if name == "application_name" {
                for (_, known) in reported.iter_mut().filter(|(known, _)| known == "application_name") {
                    *known = value.clone();
                }
            } else {
                to_check = true;
            }
        }
        if to_check && !self.embedded { self.check_settings(reported).await } else { Ok(()) }
    }

    /// Serves the client until it ends, or the server does.
    pub async fn run(mut self, shutdown: Shutdown, requests: &Requests) {
        let mut stopping = std::pin::pin!(shutdown.started());
        let stop = loop {
            match self.step(stopping.as_mut(), requests).await {
                Ok(true) => {}
                Ok(false) => break None,
                Err(stop) => break Some(stop),
            }
        };
        match stop {
            Some(Stop::Refused(error) | Stop::Fatal(error)) => {
                reply::error(&mut self.client.out, Severity::Fatal, &error);
                if let Err(error) = self.client.flush().await {
                    tracing::debug!(%error, "a client did not hear why its session ended");
                }
            }
            Some(Stop::Gone(gone)) => tracing::debug!(%gone, "a client is gone"),
            Some(Stop::Told) | None => {}
        }
        self.let_go().await;
        if self.close_all_held().await.is_err() {
            tracing::debug!("a client was gone before its cursors were closed");
        }
    }

    /// Carries out the next message; false when the client has said goodbye.
    async fn step(
        &mut self,
        stopping: Pin<&mut impl Future<Output = ()>>,
        requests: &Requests,
    ) -> Result<bool, Stop> {
        let head = self.arrived(stopping).await?;
        if matches!(head.kind, b'B' | b'P') {
            match self.run_short().await {
                Ok(false) => {}
                done => {
                    self.watched_step(b'S', &done, requests);
                    return done;
                }
            }
        }
        let (kind, body) = (head.kind, self.client.take(head));
        if self.embedded == self.door.journal.has_postgres() {
            Box::pin(self.take_up_engine()).await;
        }
        self.watch(kind, &body);
        let span = self.watched.span();
        let done = self.take_message(kind, body).instrument(span).await;
        self.watched_step(kind, &done, requests);
        done
    }

    /// Carries out a message; false when the client has said goodbye.
    async fn take_message(&mut self, kind: u8, body: BytesMut) -> Result<bool, Stop> {
        let done = match kind {
            b'Q' => return self.query(body).await.map(|()| true),
            b'S' => return self.sync().await.map(|()| true),
            b'X' => return Ok(false),
            // What is left of a COPY that failed.
            b'd' | b'c' | b'f' => return Ok(true),
            _ if self.skipping => return Ok(true),
            b'P' => self.parse(&body).await,
            b'B' => self.bind(&body).await,
            b'D' => self.describe(&body).await,
            b'E' => self.execute(&body).await,
            b'C' => self.close(&body).await,
            b'H' => self.flush().await,
            b'F' if self.under.is_some() => return self.run_asked().await.map(|()| true),
            b'F' => Err(SqlError::unsupported(
                "the function call protocol is not offered",
                "Call the function by SELECT.",
            )
            .into()),
            _ => {
                let message = format!("invalid frontend message type {kind}");
                return Err(Stop::Fatal(SqlError::new(state::PROTOCOL_VIOLATION, message)));
            }
        };
        match done {
            Ok(()) => Ok(true),
            Err(stop) => Box::pin(self.fail_series(stop)).await.map(|()| true),
        }
    }

    /// Waits for the next message. A session that waits outside a transaction ends when the server does; one that
    /// waits too long inside is ended.
    async fn arrived(&mut self, stopping: Pin<&mut impl Future<Output = ()>>) -> Result<Head, Stop> {
        if let Some(head) = self.client.whole()? {
            return Ok(head);
        }
        let free = self.transaction.is_none()
            && self.backend.is_none()
            && self.lite.is_none()
            && !self.held.are_under_way();
        // Cursors that have outlived their transactions keep sessions from others, but can be ended at any time.
        let idle = free && !self.held.keeps_sessions();
        let limit = self.door.limits.idle_in_transaction;
        tokio::select! {
            biased;
            arrived = self.client.arrived() => Ok(arrived?),
            () = stopping, if free => {
                let message = "terminating connection due to administrator command";
                Err(Stop::Fatal(SqlError::new(state::ADMIN_SHUTDOWN, message)))
            }
            // Inside a block, so that no timer is made where none is needed.
            () = async { tokio::time::sleep(limit).await }, if !idle => {
                let message = "terminating connection due to idle-in-transaction timeout";
                Err(Stop::Fatal(SqlError::new(state::IDLE_IN_TRANSACTION, message)))
            }
        }
    }

    /// What ReadyForQuery says.
    fn status(&self) -> u8 {
        self.transaction.status()
    }

    fn notice(&mut self, severity: Severity, error: &SqlError) {
        reply::error(&mut self.client.out, severity, error);
    }

    /// What statements are read against.
    pub(crate) fn basis(&self, position: u64) -> Basis {
        let (search_path, strict) = (self.search_path.clone(), self.own.strict);
        let (apart, home) = (self.transaction.apart, self.door.type_ids.home_incarnation());
        Basis { position, apart, search_path, strict, embedded: self.embedded, home }
    }
}

fn lite_settings(door: &Door, user: &str) -> polyshard_sql_on_sqlite::Settings {
    let granted = || door.host.users().user(user).is_some_and(|known| known.rights.are_admin());
    polyshard_sql_on_sqlite::Settings {
        user: user.to_owned(),
        is_superuser: user == door.login.user || granted(),
        database: door.login.database.clone(),
        ..polyshard_sql_on_sqlite::Settings::default()
    }
}

pub(crate) fn bad_setting(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

async fn refuse(mut client: Client, error: &SqlError) -> Result<Option<Session>, Gone> {
    reply::error(&mut client.out, Severity::Fatal, error);
    client.flush().await?;
    Ok(None)
}
