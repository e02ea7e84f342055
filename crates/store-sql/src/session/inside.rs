//! An SQLite shard beside PostgreSQL ones: a session of this door answers for it, in PostgreSQL's protocol through a
//! pipe, under the leave that the client's own session has.
//!
//! It places nothing: whatever it is told is about its shard. Of the router it asks at most for leave to write there,
//! for no range, when a transaction begins that was given tickets to read.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use polyshard_engine::{Dialect, Error, RawLent, Rows, Statement as EngineStatement};
use polyshard_map::ShardId;
use polyshard_router::{Access, Ticket};
use polyshard_sql::{Analysis, Kind, Param, Route, SqlError, SqlState, TableName};
use polyshard_sql_on_sqlite::Zone;

use super::{Done, Session, Stop};
use crate::across::motion;
use crate::client::{Client, ClientStream};
use crate::door::{Door, ViewMaps};
use crate::embedded::Lite;
use crate::reply::{self, Severity};

/// Bytes on their way in one direction: as many as a session reads at once.
const PIPE_BYTES: usize = 64 * 1024;

/// What a session that answers for a shard has from the one that it works for.
pub(crate) struct Leave {
    shard: ShardId,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    /// Kept by both, so that none is over while something of it is under way.
    tickets: Vec<Arc<Ticket>>,
    /// For each table, which rows here are not this shard's own.
    foreign: Arc<BTreeMap<TableName, String>>,
    /// The time zone of the PostgreSQL shards, if SQLite shards do not know it, until the client sets another.
    zone: Option<String>,
    /// Whether its transaction is one of many that share a snapshot: it does not keep others from writing.
    snapshot_alone: bool,
    /// A statement in the engine's own words, and its answer.
    asked: Option<EngineStatement>,
    answer: Option<Result<Rows, Error>>,
}

impl Leave {
    fn given(&self) -> std::sync::MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn tickets(&self) -> Vec<Arc<Ticket>> {
        self.given().tickets.clone()
    }

    /// Gives it all of these.
    pub fn extend(&self, tickets: &[Arc<Ticket>]) {
        let mut given = self.given();
        given.tickets.clear();
        given.tickets.extend_from_slice(tickets);
    }

    /// Has the transaction that begins read alone.
    pub fn take_snapshot_alone(&self) {
        self.given().snapshot_alone = true;
    }

    pub fn is_snapshot_alone(&self) -> bool {
        self.given().snapshot_alone
    }

    pub fn foreign(&self) -> Arc<BTreeMap<TableName, String>> {
        self.given().foreign.clone()
    }

    pub fn leave_out(&self, foreign: BTreeMap<TableName, String>) {
        self.given().foreign = Arc::new(foreign);
    }

    /// Lays a statement ready, which a message of its own has it run.
    pub fn ask(&self, statement: EngineStatement) {
        let mut given = self.given();
        given.asked = Some(statement);
        given.answer = None;
    }

    pub fn take_answer(&self) -> Option<Result<Rows, Error>> {
        self.given().answer.take()
    }

    /// Where a statement goes: here, unless it changes what the shard is like.
    pub fn route(
        &self,
        kind: &Kind,
        analysis: &Analysis,
        params: &[Param<'_>],
        maps: &ViewMaps<'_>,
    ) -> Route {
        if matches!(kind, Kind::Ddl(_) | Kind::Truncate(_) | Kind::Vacuum) {
            return Route::Everywhere;
        }
        match analysis.route(params, maps) {
            Ok(Route::Everywhere) => Route::Everywhere,
            _ => Route::Local(self.shard.clone()),
        }
    }
}

/// Begins a session that answers for the shard of these tickets.
pub(crate) fn open(door: &Arc<Door>, tickets: &[Arc<Ticket>]) -> Result<(RawLent, Arc<Leave>), Error> {
    let Some(first) = tickets.first() else { return Err(Error::invalid("a session is lent by a ticket")) };
    let shard = first.shard().clone();
    let given = Given { tickets: tickets.to_vec(), ..Given::default() };
    let leave = Arc::new(Leave { shard: shard.clone(), given: Mutex::new(given) });
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let client = Client::new(ClientStream::Pipe(theirs));
    let mut session = Session::new(client, door, true, ["public".to_owned()].into());
    session.own.strict = false;
    session.own.shard = Some(shard.clone());
    session.under = Some(leave.clone());
    session.take_defaults()?;
    let stop = session.cancel.running.here();
    door.keep_inside(session.serve_inside());
    Ok((RawLent::piped(ours, shard.as_str(), stop), leave))
}

impl Session {
    /// Has what PostgreSQL shards have before anybody sets anything.
    fn take_defaults(&mut self) -> Result<(), Error> {
        let Some(defaults) = self.door.known_defaults() else { return Ok(()) };
        for (name, value) in &defaults.parameters {
            match name.as_str() {
                "TimeZone" => {
                    let Ok(zone) = Zone::parse(value) else {
                        if let Some(leave) = &self.under {
                            leave.given().zone = Some(value.clone());
                        }
                        continue;
                    };
                    let mut settings = polyshard_sql_on_sqlite::Settings::clone(&self.lite_settings);
                    settings.zone = zone;
                    self.lite_settings = Arc::new(settings);
                }
                "DateStyle" if !value.starts_with("ISO") => return Err(other_form(name, value)),
                "IntervalStyle" if value != "postgres" => return Err(other_form(name, value)),
                _ => {}
            }
        }
        self.search_path = defaults.search_path.clone();
        Ok(())
    }

    /// Answers until the other end has no more questions.
    ///
    /// Boxed: a session can be waiting for one that answers for a shard, which is a session.
    fn serve_inside(mut self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let stop = loop {
                let (kind, body) = match self.client.next().await {
                    Ok(message) => message,
                    Err(gone) => break Some(Stop::Gone(gone)),
                };
                match self.take_message(kind, body).await {
                    Ok(true) => {}
                    Ok(false) => break None,
                    Err(stop) => break Some(stop),
                }
            };
            if let Some(Stop::Refused(error) | Stop::Fatal(error)) = stop {
                reply::error(&mut self.client.out, Severity::Fatal, &error);
                if let Err(error) = self.client.flush().await {
                    tracing::debug!(%error, "nobody heard why a session inside ended");
                }
            }
            self.let_go().await;
            if self.close_all_held().await.is_err() {
                tracing::debug!("a session inside was left before its cursors were closed");
            }
        })
    }

    /// Runs the statement that lies ready, in the transaction that is open.
    pub(super) async fn run_asked(&mut self) -> Done {
        let Some(leave) = self.under.clone() else {
            return Err(Stop::Fatal(SqlError::new(SqlState::INTERNAL_ERROR, "nobody is inside")));
        };
        let asked = leave.given().asked.take();
        let answer = match asked {
            Some(statement) => match self.begin_native().await {
                Ok(()) => self.run_native(statement).await,
                Err(error) => Err(error),
            },
            None => Err(Error::invalid("no statement lies ready")),
        };
        if answer.is_err() && !self.transaction.is_none() {
            self.transaction.failed = true;
        }
        leave.given().answer = Some(answer);
        let status = self.status();
        reply::ready(&mut self.client.out, status);
        Ok(())
    }

    /// Begins the transaction on the shard, if there is one: what is asked may write.
    async fn begin_native(&mut self) -> Result<(), Error> {
        self.take_leave();
        if self.transaction.is_none() {
            return Ok(());
        }
        self.begin_solo().await.map_err(|error| match error {
            polyshard_router::RouterError::Engine(error) => error,
            error => Error::Busy { message: error.to_string() },
        })
    }

    /// Runs a statement in the engine's own words: in the transaction, if it has begun on the shard. A question alone
    /// does not begin one, unless all see one moment: it would keep others from writing.
    pub(crate) async fn run_native(&mut self, statement: EngineStatement) -> Result<Rows, Error> {
        self.take_leave();
        if self.transaction.has_one_snapshot() {
            self.begin_native().await?;
        }
        let Some(lite) = &mut self.lite else { return Err(Error::Closed) };
        let ran = match &mut lite.transaction {
            Some(transaction) => transaction.get().run(statement).await,
            None => lite.tickets[0].read(statement).await,
        };
        if self.transaction.is_none() {
            self.lite = None;
        }
        ran
    }

    /// Refuses to write times in a zone that is not the client's.
    pub(crate) fn check_zone(&self) -> Result<(), SqlError> {
        let Some(leave) = &self.under else { return Ok(()) };
        if self.lite_settings.named.iter().any(|(name, _)| name == "timezone") {
            return Ok(());
        }
        match &leave.given().zone {
            None => Ok(()),
            Some(zone) => Err(SqlError::unsupported(
                format!("TimeZone is {zone} on the PostgreSQL shards, which SQLite shards do not know"),
                "SET TimeZone TO 'UTC', or have it so by ALTER DATABASE, while some shards are SQLite files.",
            )),
        }
    }

    /// Has the tickets that were given, all of them as they are now.
    pub(crate) fn take_leave(&mut self) {
        let Some(leave) = &self.under else { return };
        let mut tickets = leave.tickets();
        match &mut self.lite {
            Some(lite) => {
                if lite.transaction.is_some() {
                    // What it began with may be a ticket of its own.
                    let given = tickets.len();
                    for own in &lite.tickets {
                        if !tickets[..given].iter().any(|ticket| Arc::ptr_eq(ticket, own)) {
                            tickets.push(own.clone());
                        }
                    }
                }
                lite.tickets = tickets;
            }
            None => self.lite = Some(Lite::new(leave.shard.clone(), tickets)),
        }
    }

    /// Answers what the door asks every shard in words that only PostgreSQL knows; false if it is something else.
    pub(super) async fn answer_inside(&mut self, text: &str) -> Result<bool, Stop> {
        if self.under.is_none() {
            return Ok(false);
        }
        if text == motion::question() {
            let own = |table| Dialect::Sqlite.own_table(table);
            let question = format!(
                "SELECT map, ranges, NULL, NULL FROM {} UNION ALL SELECT map, NULL, hex(lo), \
                 CASE WHEN hi IS NOT NULL THEN hex(hi) END FROM {} WHERE incoming IS NOT NULL",
                own("capture"),
                own("local_range")
            );
            let rows = self.run_native(EngineStatement::new(question)).await;
            let rows = rows.map_err(|error| reply::of_engine(&error))?;
            self.columns(&["map", "ranges", "lo", "hi"].map(reply::Field::text));
            for row in rows.iter() {
                let texts = (0..4).map(|at| row.text(at).ok());
                reply::data_row(&mut self.client.out, texts);
            }
            reply::complete(&mut self.client.out, &format!("SELECT {}", rows.len()));
            return Ok(true);
        }
        if text == motion::HELD_CURSORS {
            self.columns(&[reply::Field::text("name")]);
            for name in self.held.lasting() {
                reply::data_row(&mut self.client.out, [Some(name.as_str())].into_iter());
            }
            reply::complete(&mut self.client.out, "SELECT");
            return Ok(true);
        }
        Ok(false)
    }
}

fn other_form(name: &str, value: &str) -> Error {
    Error::invalid(format!(
        "{name} is {value} on the PostgreSQL shards, and SQLite shards write another form: set it to 'ISO' and \
         'postgres' for the time that both serve"
    ))
}

/// Leave to write: of the tickets that are there, or a new one.
pub(crate) fn write_ticket(tickets: &[Arc<Ticket>]) -> Option<&Arc<Ticket>> {
    tickets.iter().find(|ticket| ticket.access() == Access::Write)
}
