//! Interactive SQLite transactions: reads hold a read connection, writes hold the writer thread.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::connection::{Connection, StatementStopper};
use super::engine::Engine;
use super::error::translate;
use super::scan::SqliteScan;
use super::writer::Lent;
use crate::group::{self, Answer};
use crate::statement::Action;
use crate::{Error, Rows, Statement};

pub(crate) struct ReadTransaction {
    engine: Arc<Engine>,
    connection: Option<Box<Connection>>,
    /// Where it comes back from a scan.
    returning: Option<oneshot::Receiver<Box<Connection>>>,
    _permit: OwnedSemaphorePermit,
}

impl ReadTransaction {
    pub fn begin(engine: Arc<Engine>, permit: OwnedSemaphorePermit) -> Result<ReadTransaction, Error> {
        let connection = engine.readers.take()?;
        connection.control("BEGIN").map_err(translate)?;
        // BEGIN alone takes no snapshot; the first read does, and a later one would surprise the caller.
        let snapshot = connection.raw.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
        snapshot.map_err(translate)?;
        Ok(ReadTransaction { engine, connection: Some(connection), returning: None, _permit: permit })
    }

    pub async fn run_all(&mut self, statements: &[Statement]) -> Answer {
        self.settle().await;
        let limit = self.engine.options.statement_timeout;
        let connection = self.connection.as_mut().ok_or(Error::Closed)?;
        run_all(connection, statements, |connection| connection.limit(Some(limit))).map(|(rows, _)| rows)
    }

    /// Starts a query whose rows come in pages; whoever asks for something else meanwhile waits for its end.
    pub async fn scan(&mut self, statement: Statement, page_rows: usize) -> Result<SqliteScan, Error> {
        let Action::Sql { text, params } = statement.action else {
            return Err(Error::invalid("a notification cannot be scanned"));
        };
        self.settle().await;
        let connection = self.connection.take().ok_or(Error::Closed)?;
        let (back, returning) = oneshot::channel();
        self.returning = Some(returning);
        Ok(SqliteScan::start_within(self.engine.clone(), connection, back, (text, params), page_rows))
    }

    /// Waits until the last scan has given the connection back.
    async fn settle(&mut self) {
        if let Some(returning) = &mut self.returning {
            self.connection = returning.await.ok();
            self.returning = None;
        }
    }

    pub async fn finish(mut self) -> Result<(), Error> {
        self.settle().await;
        match self.connection.take() {
            Some(connection) => {
                connection.control("ROLLBACK").map_err(translate)?;
                self.engine.readers.give_back(connection);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Drop for ReadTransaction {
    fn drop(&mut self) {
        // A connection that cannot end its transaction is not given back; closing it ends it.
        if let Some(connection) = self.connection.take()
            && connection.control("ROLLBACK").is_ok()
        {
            self.engine.readers.give_back(connection);
        }
    }
}

/// What the holder of the writer thread may ask of it.
pub(crate) enum Ask {
    Run(Vec<Statement>, oneshot::Sender<Answer>),
    Commit(oneshot::Sender<Result<(), Error>>),
    Rollback(oneshot::Sender<Result<(), Error>>),
}

/// The writer thread belongs to this transaction until it ends; a dropped sender is a rollback.
pub(crate) struct WriteTransaction {
    asks: SyncSender<Ask>,
    stopper: Arc<StatementStopper>,
    /// Keeps the database open.
    _engine: Arc<Engine>,
}

impl WriteTransaction {
    pub fn new((asks, stopper): Lent, engine: Arc<Engine>) -> WriteTransaction {
        WriteTransaction { asks, stopper: Arc::new(stopper), _engine: engine }
    }

    pub fn stopper(&self) -> Arc<StatementStopper> {
        self.stopper.clone()
    }

    pub async fn run_all(&mut self, statements: Vec<Statement>) -> Answer {
        self.ask(|reply| Ask::Run(statements, reply)).await?
    }

    pub async fn commit(self) -> Result<(), Error> {
        self.ask(Ask::Commit).await?
    }

    pub async fn rollback(self) -> Result<(), Error> {
        match self.ask(Ask::Rollback).await {
            Ok(result) => result,
            // It has been rolled back already.
            Err(Error::Timeout { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let idle = || Error::Timeout {
            message: "the transaction was idle longer than its limit and was rolled back".to_owned(),
        };
        // The channel has room for one and there is one asker, so it is full only after a call that was
        // abandoned half-way.
        self.asks.try_send(ask(reply)).map_err(|_| idle())?;
        answer.await.map_err(|_| idle())
    }
}

/// A committed transaction's notifications: channel and payload.
pub(crate) type Notices = Vec<(String, String)>;

/// Runs statements in order until one fails or misses its expectation.
pub(crate) fn run_all(
    connection: &mut Connection,
    statements: &[Statement],
    before_each: impl Fn(&Connection),
) -> Result<(Vec<Rows>, Notices), Error> {
    let mut answers = Vec::with_capacity(statements.len());
    let mut notices = Notices::new();
    for (index, statement) in statements.iter().enumerate() {
        match &statement.action {
            Action::Sql { text, params } => {
                before_each(connection);
                let rows = connection.run(text, params)?;
                group::check(index, statement.expect, rows.affected)?;
                answers.push(rows);
            }
            Action::Notify { channel, payload } => {
                notices.push((channel.clone(), payload.clone()));
                answers.push(Rows::none());
            }
        }
    }
    Ok((answers, notices))
}
