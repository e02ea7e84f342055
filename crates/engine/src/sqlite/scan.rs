//! A scan of an SQLite database: a blocking thread reads ahead by one page and then waits.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::connection::{Connection, Go, Stopper};
use super::engine::Engine;
use crate::statement::Action;
use crate::{Error, Rows, Statement, Value};

/// Pages read ahead of the caller.
const PAGES_AHEAD: usize = 1;

/// What becomes of a scan's connection.
enum After {
    GiveBack,
    Close,
    /// Back to the transaction that it is of; nobody if that has ended.
    Return(oneshot::Sender<Box<Connection>>),
}

pub(crate) struct SqliteScan {
    pages: mpsc::Receiver<Result<Rows, Error>>,
    reader: Option<JoinHandle<()>>,
    stopper: Stopper,
}

impl SqliteScan {
    pub fn start(
        engine: Arc<Engine>,
        permit: OwnedSemaphorePermit,
        statement: Statement,
        page_rows: usize,
    ) -> Result<SqliteScan, Error> {
        let Action::Sql { text, params } = statement.action else {
            return Err(Error::invalid("a notification cannot be scanned"));
        };
        let connection = engine.readers.take()?;
        let after = After::GiveBack;
        Ok(SqliteScan::run(engine, vec![permit], connection, (text, params), page_rows, after))
    }

    /// The same on a connection of its own, which has other files beside this one and ends with the scan.
    pub fn start_attached(
        engine: Arc<Engine>,
        permits: Vec<OwnedSemaphorePermit>,
        connection: Box<Connection>,
        statement: Statement,
        page_rows: usize,
    ) -> Result<SqliteScan, Error> {
        let Action::Sql { text, params } = statement.action else {
            return Err(Error::invalid("a notification cannot be scanned"));
        };
        Ok(SqliteScan::run(engine, permits, connection, (text, params), page_rows, After::Close))
    }

    /// The same on the connection of a transaction, which gets it back once the scan is over.
    pub fn start_within(
        engine: Arc<Engine>,
        connection: Box<Connection>,
        back: oneshot::Sender<Box<Connection>>,
        (text, params): (Arc<str>, Vec<Value>),
        page_rows: usize,
    ) -> SqliteScan {
        SqliteScan::run(engine, Vec::new(), connection, (text, params), page_rows, After::Return(back))
    }

    fn run(
        engine: Arc<Engine>,
        permits: Vec<OwnedSemaphorePermit>,
        mut connection: Box<Connection>,
        (text, params): (Arc<str>, Vec<Value>),
        page_rows: usize,
        after: After,
    ) -> SqliteScan {
        connection.limit(None);
        let stopper = connection.begin_turn();
        let (sender, pages) = mpsc::channel(PAGES_AHEAD);
        let reader = tokio::task::spawn_blocking(move || {
            let result = connection.run_pages(
                &text,
                &params,
                |_| true,
                page_rows,
                |page| {
                    if page.is_empty() || sender.blocking_send(Ok(page)).is_ok() { Go::On } else { Go::Stop }
                },
            );
            // Whoever drops the scan from here on does not stop the next one.
            drop(connection.begin_turn());
            match after {
                After::GiveBack => engine.readers.give_back(connection),
                After::Close => drop(connection),
                // Closing it ends a transaction that nobody waits for.
                After::Return(back) => drop(back.send(connection)),
            }
            drop(permits);
            if let Err(error) = result {
                // A caller who has gone does not need the error.
                let _ = sender.blocking_send(Err(error));
            }
        });
        SqliteScan { pages, reader: Some(reader), stopper }
    }

    pub async fn next(&mut self) -> Result<Option<Rows>, Error> {
        if let Some(page) = self.pages.recv().await {
            return page.map(Some);
        }
        match self.reader.take() {
            Some(reader) => match reader.await {
                Ok(()) => Ok(None),
                Err(_) => Err(Error::Unavailable { message: "the scan's thread was stopped".to_owned() }),
            },
            None => Ok(None),
        }
    }
}

impl Drop for SqliteScan {
    /// A query that has not found a row yet would go on for nobody, with no limit of time.
    fn drop(&mut self) {
        self.stopper.stop();
    }
}
