//! Answers of SQLite shards on their way to the client, a page at a time, until they end or the client wants no more.

use std::future::Future;
use std::time::Duration;

use polyshard_engine::{Error, Rows, Scan, Statement, Transaction, TransactionScan};
use polyshard_sql::{Schema, SqlError};
use polyshard_sql_on_sqlite::Prepared;

use crate::cancel::Running;
use crate::client::Client;
use crate::reply;
use crate::session::{Done, Session, Stop};

/// Rows fetched at once from a long answer.
pub(super) const PAGE_ROWS: usize = 100;
/// How soon a statement that is to stop, and goes on, is told again.
const TOLD_AGAIN: Duration = Duration::from_millis(5);

/// A query whose rows come in pages; dropping it ends the query.
pub(super) trait Pages: Send {
    /// The next page, never empty; nothing after the last.
    fn next_page(&mut self) -> impl Future<Output = Result<Option<Rows>, Error>> + Send;
}

impl Pages for Scan {
    fn next_page(&mut self) -> impl Future<Output = Result<Option<Rows>, Error>> + Send {
        self.next()
    }
}

impl Pages for TransactionScan<'_> {
    fn next_page(&mut self) -> impl Future<Output = Result<Option<Rows>, Error>> + Send {
        self.next()
    }
}

impl Session {
    /// Runs a query and passes its answer on. `told` says whether the client has heard a part of it: until then it can
    /// be asked again.
    pub(super) async fn pass_pages<P: Pages>(
        &mut self,
        began: impl Future<Output = Result<P, Error>> + Send,
        prepared: &Prepared,
        schema: &Schema,
        told: &mut bool,
    ) -> Done {
        // Of the whole statement: whoever asks for its end between two pages is heard, too.
        let running = self.running();
        let mut stopped = std::pin::pin!(running.stopped());
        stopped.as_mut().enable();
        let wrong = |error: Error| Stop::Refused(polyshard_sql_on_sqlite::error(&error, schema));
        let mut pages = began.await.map_err(wrong)?;
        let formats = self.formats.clone();
        let mut count = 0;
        let mut page = next_page(&mut pages, schema, stopped.as_mut(), &mut self.client).await?;
        self.tell_columns(prepared);
        *told = true;
        while let Some(rows) = page {
            count += rows.len();
            self.put_rows(prepared, &rows, &formats)?;
            self.client.flush_if_full().await?;
            page = next_page(&mut pages, schema, stopped.as_mut(), &mut self.client).await?;
        }
        self.tell_selected(count as u64);
        Ok(())
    }
}

/// Runs a statement of a transaction that has a file's writer, unless the client wants no more of it.
pub(super) async fn run_stoppable(
    transaction: &mut Transaction,
    statement: Statement,
    running: &Running,
    schema: &Schema,
) -> Result<Rows, Stop> {
    let wrong = |error: Error| Stop::Refused(polyshard_sql_on_sqlite::error(&error, schema));
    let stopper = transaction.stopper();
    let mut stopped = std::pin::pin!(running.stopped());
    stopped.as_mut().enable();
    let mut run = std::pin::pin!(transaction.run(statement));
    tokio::select! {
        biased;
        ran = run.as_mut() => return ran.map_err(wrong),
        () = stopped => {}
    }
    // The file's writer may not have taken it up when it is first told, and then would not hear of it. No other
    // statement of the transaction is begun before this one has ended.
    let ran = loop {
        if let Some(stopper) = &stopper {
            stopper.stop();
        }
        match tokio::time::timeout(TOLD_AGAIN, run.as_mut()).await {
            Ok(ran) => break ran,
            Err(_) => continue,
        }
    };
    // It may have ended before it heard of it.
    match ran {
        Err(Error::Timeout { .. }) => Err(canceled()),
        ran => ran.map_err(wrong),
    }
}

/// The next rows, unless the client wants no more of them, or is gone. The query is then dropped, which stops it.
pub(super) async fn next_page(
    pages: &mut impl Pages,
    schema: &Schema,
    stopped: impl Future<Output = ()>,
    client: &mut Client,
) -> Result<Option<Rows>, Stop> {
    tokio::select! {
        biased;
        // First: rows may come without a pause.
        () = stopped => Err(canceled()),
        page = pages.next_page() => {
            page.map_err(|error| Stop::Refused(polyshard_sql_on_sqlite::error(&error, schema)))
        }
        gone = client.gone() => Err(gone.into()),
    }
}

fn canceled() -> Stop {
    let message = "canceling statement due to user request";
    Stop::Refused(SqlError::new(reply::state::QUERY_CANCELED, message))
}
