//! A scan of a PostgreSQL database: a session of its own whose rows are taken off the wire page by page.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::TryStreamExt;
use tokio_postgres::RowStream;

use super::error::{Failure, Fitness};
use super::pool::Lent;
use super::session::Session;
use super::types;
use crate::{Error, Row, Rows, Statement};

/// What a scan runs in. The time limit is lifted: the pace is the caller's.
const BEGIN: &str = "BEGIN READ ONLY; SET LOCAL statement_timeout = 0";

pub(crate) struct PostgresScan {
    lent: Held,
    rows: Pin<Box<RowStream>>,
    columns: Arc<[String]>,
    page_rows: usize,
}

/// A session that is at work, given back once that has ended. Who drops it before has the connection cut: the rest of
/// the rows would have to be read otherwise, or waited for.
struct Held(Option<Lent>);

impl Held {
    /// Ends the transaction and gives the session back. If that cannot be, it is cut when this is dropped.
    async fn end(&mut self) {
        if let Some(lent) = &self.0
            && lent.session.simple("ROLLBACK").await.is_ok()
            && let Some(lent) = self.0.take()
        {
            lent.finish();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(lent) = self.0.take() {
            lent.session.kill();
        }
    }
}

impl PostgresScan {
    /// The library hands on rows only as fast as they are taken, and the server waits for the network, so
    /// memory is bounded without a cursor.
    pub async fn start(lent: Lent, statement: Statement, page_rows: usize) -> Result<PostgresScan, Error> {
        let mut held = Held(Some(lent));
        match begin(&held, &statement).await {
            Ok((rows, columns)) => Ok(PostgresScan { lent: held, rows: Box::pin(rows), columns, page_rows }),
            Err(failure) => {
                if failure.session == Fitness::Stale
                    && let Some(lent) = &held.0
                {
                    lent.session.forget_prepared();
                }
                if failure.session != Fitness::Lost {
                    held.end().await;
                }
                Err(failure.error)
            }
        }
    }

    pub async fn next(&mut self) -> Result<Option<Rows>, Error> {
        let Some(lent) = &self.lent.0 else { return Ok(None) };
        let mut rows = Vec::new();
        while rows.len() < self.page_rows {
            let row = match self.rows.try_next().await {
                Ok(row) => row,
                Err(error) => {
                    let error = lent.session.translate(&error).error;
                    self.lent.end().await;
                    return Err(error);
                }
            };
            match row {
                Some(row) => rows.push(Row { columns: self.columns.clone(), values: types::values(&row)? }),
                None => {
                    self.lent.end().await;
                    break;
                }
            }
        }
        if rows.is_empty() {
            return Ok(None);
        }
        let affected = rows.len() as u64;
        Ok(Some(Rows { columns: self.columns.clone(), rows, affected }))
    }
}

/// Sends the query; the server says nothing before its first row.
async fn begin(held: &Held, statement: &Statement) -> Result<(RowStream, Arc<[String]>), Failure> {
    let Some(Lent { session, .. }) = &held.0 else { return Err(Failure::fit(Error::Closed)) };
    session.simple(BEGIN).await?;
    let prepared = session.prepare(statement).await?;
    let rows = session.stream(&prepared, statement).await?;
    Ok((rows, Session::columns(&prepared)))
}
