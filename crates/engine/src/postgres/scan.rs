//! A scan of a PostgreSQL database: a session of its own whose rows are taken off the wire page by page.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::TryStreamExt;
use tokio_postgres::RowStream;

use super::error::Fitness;
use super::pool::Lent;
use super::session::Session;
use super::types;
use crate::{Error, Row, Rows, Statement};

pub(crate) struct PostgresScan {
    /// Gone once the scan has ended. A scan dropped before has its connection cut, since the rest of the
    /// rows would have to be read otherwise.
    lent: Option<Lent>,
    rows: Pin<Box<RowStream>>,
    columns: Arc<[String]>,
    page_rows: usize,
}

impl PostgresScan {
    /// The library hands on rows only as fast as they are taken, and the server waits for the network, so
    /// memory is bounded without a cursor. The time limit is lifted: the pace is the caller's.
    pub async fn start(lent: Lent, statement: Statement, page_rows: usize) -> Result<PostgresScan, Error> {
        let session = &lent.session;
        session.simple("BEGIN READ ONLY; SET LOCAL statement_timeout = 0").await?;
        let started = async {
            let prepared = session.prepare(&statement).await?;
            let rows = session.stream(&prepared, &statement).await?;
            Ok((rows, Session::columns(&prepared)))
        };
        match started.await {
            Ok((rows, columns)) => {
                Ok(PostgresScan { lent: Some(lent), rows: Box::pin(rows), columns, page_rows })
            }
            Err(failure) => {
                let failure: super::error::Failure = failure;
                if failure.session == Fitness::Stale {
                    session.forget_prepared();
                }
                if failure.session != Fitness::Lost && session.simple("ROLLBACK").await.is_ok() {
                    lent.finish();
                }
                Err(failure.error)
            }
        }
    }

    pub async fn next(&mut self) -> Result<Option<Rows>, Error> {
        let Some(lent) = &self.lent else { return Ok(None) };
        let mut rows = Vec::new();
        while rows.len() < self.page_rows {
            let row = match self.rows.try_next().await {
                Ok(row) => row,
                Err(error) => {
                    let error = lent.session.translate(&error).error;
                    self.end().await;
                    return Err(error);
                }
            };
            match row {
                Some(row) => rows.push(Row { columns: self.columns.clone(), values: types::values(&row)? }),
                None => {
                    self.end().await;
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

    /// All rows have been taken, or the query has failed.
    async fn end(&mut self) {
        if let Some(lent) = self.lent.take() {
            match lent.session.simple("ROLLBACK").await {
                Ok(_) => lent.finish(),
                Err(_) => lent.session.kill(),
            }
        }
    }
}

impl Drop for PostgresScan {
    fn drop(&mut self) {
        if let Some(lent) = self.lent.take() {
            lent.session.kill();
        }
    }
}
