//! One PostgreSQL session: prepared statements by text, and statements sent without waiting for each other.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::error::{Failure, Fitness, translate};
use super::types::{self, Bound};
use crate::statement::Action;
use crate::{Error, Row, Rows, Statement, Value};

/// How much longer than the server's own limit an answer may take before the connection counts as lost.
const ANSWER_GRACE: Duration = Duration::from_secs(3);

/// A notification as a statement.
const NOTIFY: &str = "SELECT pg_notify($1, $2)";

pub(crate) struct Session {
    client: Client,
    connection: AbortHandle,
    /// Set by `kill`, whose effect on the client is seen only a moment later.
    killed: AtomicBool,
    ended: watch::Receiver<End>,
    /// Names the database in messages.
    target: Arc<str>,
    /// Of the engine when this session began; an older one is not used again.
    pub generation: u64,
    pub identity: Identity,
    answer_timeout: Duration,
    prepared: Mutex<PreparedStatements>,
}

/// How a connection ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    NotYet,
    /// As we asked.
    Quiet,
    Because(Error),
}

/// What identifies a session's server process and the run of the server it belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub pid: i32,
    pub backend_start: String,
    pub server: ServerRun,
}

/// Equal before and after means: the same history of commits, and no crash in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerRun {
    /// Changes when a standby is promoted or a backup restored.
    pub timeline: String,
    /// When the server's statistics began: they survive an orderly restart and are discarded by recovery
    /// after a crash.
    pub statistics_reset: String,
}

/// A prepared statement and the names of its columns, ready to be shared by answers.
#[derive(Clone)]
pub(crate) struct Prepared {
    statement: tokio_postgres::Statement,
    columns: Arc<[String]>,
}

pub(crate) type Pending<'a> = Pin<Box<dyn Future<Output = Result<Rows, Failure>> + Send + 'a>>;

impl Session {
    #[allow(clippy::too_many_arguments, reason = "called once, by the connector that has all of these")]
    pub fn new(
        client: Client,
        connection: AbortHandle,
        ended: watch::Receiver<End>,
        target: Arc<str>,
        generation: u64,
        statement_timeout: Duration,
        prepared_max: usize,
    ) -> Session {
        Session {
            client,
            connection,
            killed: AtomicBool::new(false),
            ended,
            target,
            generation,
            identity: Identity::default(),
            answer_timeout: statement_timeout + ANSWER_GRACE,
            prepared: Mutex::new(PreparedStatements::new(prepared_max)),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.killed.load(Ordering::Relaxed) || self.client.is_closed()
    }

    /// Waits until the connection has ended.
    pub async fn ended(&self) {
        // An error means that the connection's task is gone, which is the same.
        let _ = self.ended.clone().wait_for(|end| !matches!(end, End::NotYet)).await;
    }

    /// Cuts the connection at once, whatever is under way.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        self.connection.abort();
    }

    /// Runs SQL without parameters, such as BEGIN; returns the rows of its last query as text.
    pub async fn simple(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Failure> {
        let messages = self.in_time(self.client.simple_query(sql)).await?;
        let mut rows = Vec::new();
        for message in messages {
            if let SimpleQueryMessage::Row(row) = message {
                rows.push((0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect());
            }
        }
        Ok(rows)
    }

    /// Runs one statement and checks its expectation, in a transaction of its own unless one is open.
    pub async fn run_autocommit(&self, statement: &Statement) -> Result<Rows, Error> {
        Ok(self.run(0, statement).await?)
    }

    /// Prepares if need be, runs, and checks the expectation of statement number `index`.
    pub async fn run(&self, index: usize, statement: &Statement) -> Result<Rows, Failure> {
        let prepared = self.prepare(statement).await?;
        let rows = self.run_prepared(&prepared, statement).await?;
        crate::group::check(index, statement.expect, rows.affected).map_err(Failure::fit)?;
        Ok(rows)
    }

    /// From the statements kept, or from the server.
    pub async fn prepare(&self, statement: &Statement) -> Result<Prepared, Failure> {
        match self.prepared(statement) {
            Some(prepared) => Ok(prepared),
            None => self.prepare_anew(sql(statement)).await,
        }
    }

    /// From the statements kept only.
    pub fn prepared(&self, statement: &Statement) -> Option<Prepared> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).get(sql(statement))
    }

    async fn prepare_anew(&self, text: &str) -> Result<Prepared, Failure> {
        let statement = self.in_time(self.client.prepare(text)).await?;
        let columns = statement.columns().iter().map(|column| column.name().to_owned()).collect();
        let prepared = Prepared { statement, columns };
        let mut kept = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(text.into(), prepared.clone());
        Ok(prepared)
    }

    /// Forgets all prepared statements, after a change of the schema.
    pub fn forget_prepared(&self) {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub async fn run_prepared(&self, prepared: &Prepared, statement: &Statement) -> Result<Rows, Failure> {
        let answer = self.run_prepared_untimed(prepared, statement);
        match tokio::time::timeout(self.answer_timeout, answer).await {
            Ok(result) => result,
            Err(_) => Err(self.no_answer()),
        }
    }

    /// For [`Session::send`]: the time limit is that of [`Session::answer`].
    pub async fn run_prepared_untimed(
        &self,
        prepared: &Prepared,
        statement: &Statement,
    ) -> Result<Rows, Failure> {
        let mut stream = Box::pin(self.stream(prepared, statement).await?);
        let mut rows = Vec::new();
        while let Some(row) = stream.try_next().await.map_err(|error| self.translate(&error))? {
            let values = types::values(&row).map_err(Failure::fit)?;
            rows.push(Row { columns: prepared.columns.clone(), values });
        }
        let returns_rows = !prepared.columns.is_empty();
        let affected = if returns_rows { rows.len() as u64 } else { stream.rows_affected().unwrap_or(0) };
        if matches!(statement.action, Action::Notify { .. }) {
            return Ok(Rows::none());
        }
        Ok(Rows { columns: prepared.columns.clone(), rows, affected })
    }

    /// Starts a query whose rows are taken one by one.
    pub async fn stream(
        &self,
        prepared: &Prepared,
        statement: &Statement,
    ) -> Result<tokio_postgres::RowStream, Failure> {
        let notice;
        let params: &[Value] = match &statement.action {
            Action::Sql { params, .. } => params,
            Action::Notify { channel, payload } => {
                notice = [Value::Text(channel.clone()), Value::Text(payload.clone())];
                &notice
            }
        };
        let wanted = prepared.statement.params().len();
        if params.len() != wanted {
            return Err(Failure::fit(Error::invalid(format!(
                "the statement has {wanted} parameters, but {} values are bound",
                params.len()
            ))));
        }
        let sent = self.client.query_raw(&prepared.statement, params.iter().map(Bound));
        sent.await.map_err(|error| self.translate(&error))
    }

    /// Sends without waiting for the answer: requests go out in the order of these calls, and the answers
    /// are awaited in the same order.
    pub async fn send<'a>(&self, mut pending: Pending<'a>) -> Sent<'a> {
        let mut first = None;
        std::future::poll_fn(|context| {
            if let Poll::Ready(result) = pending.as_mut().poll(context) {
                first = Some(result);
            }
            Poll::Ready(())
        })
        .await;
        match first {
            Some(result) => Sent::Answered(result),
            None => Sent::Pending(pending),
        }
    }

    /// Waits for the answer to a request; requests are answered in the order they were sent. Only the one
    /// waited for has a timer: most are there already when their turn comes.
    pub async fn answer(&self, sent: Sent<'_>) -> Result<Rows, Failure> {
        match sent {
            Sent::Answered(result) => result,
            Sent::Pending(pending) => match tokio::time::timeout(self.answer_timeout, pending).await {
                Ok(result) => result,
                Err(_) => Err(self.no_answer()),
            },
        }
    }

    pub fn columns(prepared: &Prepared) -> Arc<[String]> {
        prepared.columns.clone()
    }

    pub fn translate(&self, error: &tokio_postgres::Error) -> Failure {
        // The server's last words came while nobody was asking it anything.
        if error.is_closed()
            && let End::Because(reason) = &*self.ended.borrow()
        {
            return Failure::lost(reason.clone());
        }
        translate(error, &self.target)
    }

    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.answer_timeout, answer).await {
            Ok(result) => result.map_err(|error| self.translate(&error)),
            Err(_) => Err(self.no_answer()),
        }
    }

    fn no_answer(&self) -> Failure {
        self.kill();
        Failure {
            error: Error::Unavailable {
                message: format!("PostgreSQL at {} gave no answer in {:?}", self.target, self.answer_timeout),
            },
            session: Fitness::Lost,
        }
    }
}

/// A request that is on its way.
pub(crate) enum Sent<'a> {
    Answered(Result<Rows, Failure>),
    Pending(Pending<'a>),
}

fn sql(statement: &Statement) -> &str {
    match &statement.action {
        Action::Sql { text, .. } => text,
        Action::Notify { .. } => NOTIFY,
    }
}

/// Prepared statements by text; the one unused longest makes room.
struct PreparedStatements {
    by_text: HashMap<Arc<str>, (Prepared, u64)>,
    uses: u64,
    max: usize,
}

impl PreparedStatements {
    fn new(max: usize) -> PreparedStatements {
        PreparedStatements { by_text: HashMap::new(), uses: 0, max: max.max(1) }
    }

    fn get(&mut self, text: &str) -> Option<Prepared> {
        let (prepared, used) = self.by_text.get_mut(text)?;
        self.uses += 1;
        *used = self.uses;
        Some(prepared.clone())
    }

    fn insert(&mut self, text: Arc<str>, prepared: Prepared) {
        if self.by_text.len() >= self.max {
            let oldest = self.by_text.iter().min_by_key(|(_, (_, used))| *used).map(|(text, _)| text.clone());
            if let Some(oldest) = oldest {
                self.by_text.remove(&oldest);
            }
        }
        self.uses += 1;
        self.by_text.insert(text, (prepared, self.uses));
    }

    fn clear(&mut self) {
        self.by_text.clear();
    }
}
