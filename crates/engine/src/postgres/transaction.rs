//! An interactive PostgreSQL transaction on a session of the pool.

use std::sync::Arc;

use futures_util::future::join_all;

use super::connect::Connector;
use super::error::{Failure, Fitness};
use super::outcome;
use super::pool::Lent;
use super::session::Sent;
use crate::group::{self, Answer};
use crate::transaction::Needs;
use crate::{Access, Error, Statement};

pub(crate) struct PostgresTransaction {
    connector: Arc<Connector>,
    /// Gone once the transaction has ended.
    lent: Option<Lent>,
    /// A call was dropped half-way: the session cannot be trusted to be idle.
    busy: bool,
}

impl PostgresTransaction {
    pub async fn begin(
        connector: Arc<Connector>,
        mut lent: Lent,
        access: Access,
        lend: impl AsyncFnOnce() -> Result<Lent, Error>,
    ) -> Result<PostgresTransaction, Error> {
        let idle_ms = connector.options.transaction_idle_max.as_millis();
        let begin = match access {
            // The SELECT takes the snapshot now, as on SQLite.
            Access::Read => format!(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                 SET LOCAL idle_in_transaction_session_timeout = {idle_ms}; SELECT 1"
            ),
            Access::Write => format!("BEGIN; SET LOCAL idle_in_transaction_session_timeout = {idle_ms}"),
        };
        if let Err(failure) = lent.session.simple(&begin).await {
            if failure.session != Fitness::Lost {
                return Err(failure.error);
            }
            // The session had been lost while idle; a new one may be had.
            drop(lent);
            lent = lend().await?;
            lent.session.simple(&begin).await?;
        }
        Ok(PostgresTransaction { connector, lent: Some(lent), busy: false })
    }

    pub async fn run_all(&mut self, statements: &[Statement], needs: Needs) -> Answer {
        let lent = self.lent.as_ref().ok_or(Error::Closed)?;
        self.busy = true;
        let result = run_all(lent, statements, needs).await;
        self.busy = false;
        result.map_err(|failure| {
            match failure.session {
                Fitness::Lost => {
                    // The server rolls back what it has no connection to.
                    if let Some(lent) = self.lent.take() {
                        lent.session.kill();
                    }
                }
                Fitness::Stale => lent_forget(self.lent.as_ref()),
                Fitness::Fit | Fitness::Waited => {}
            }
            failure.error
        })
    }

    pub async fn commit(mut self) -> Result<(), Error> {
        let lent = self.lent.take().ok_or(Error::Closed)?;
        let mark = match outcome::mark(&lent.session).await {
            Ok(mark) => mark,
            Err(failure) => {
                lent.session.kill();
                return Err(failure.error);
            }
        };
        match lent.session.simple("COMMIT").await {
            Ok(_) => {
                lent.finish();
                Ok(())
            }
            Err(failure) if failure.session == Fitness::Lost => {
                lent.session.kill();
                drop(lent);
                outcome::decide(&self.connector, &mark, failure.error).await
            }
            Err(failure) => {
                lent.finish();
                Err(failure.error)
            }
        }
    }

    pub async fn rollback(mut self) -> Result<(), Error> {
        // Without a session it has been rolled back by the server.
        let Some(lent) = self.lent.take() else { return Ok(()) };
        if self.busy {
            lent.session.kill();
            return Ok(());
        }
        match lent.session.simple("ROLLBACK").await {
            Ok(_) => lent.finish(),
            Err(_) => lent.session.kill(),
        }
        Ok(())
    }
}

impl Drop for PostgresTransaction {
    fn drop(&mut self) {
        if let Some(lent) = self.lent.take()
            && self.busy
        {
            // Otherwise the connection would wait for the answer first.
            lent.session.kill();
        }
    }
}

fn lent_forget(lent: Option<&Lent>) {
    if let Some(lent) = lent {
        lent.session.forget_prepared();
    }
}

/// One round trip if all statements are prepared. Else they are prepared together, or run one after the other if a
/// statement may need the table an earlier one makes.
async fn run_all(lent: &Lent, statements: &[Statement], needs: Needs) -> Result<Vec<crate::Rows>, Failure> {
    let session = &lent.session;
    let mut answers = Vec::with_capacity(statements.len());
    if needs == Needs::Nothing && statements.len() > 1 {
        let mut new: Vec<&Statement> =
            statements.iter().filter(|statement| session.prepared(statement).is_none()).collect();
        new.sort_by_key(|statement| statement.text());
        new.dedup_by_key(|statement| statement.text());
        for prepared in join_all(new.into_iter().map(|statement| session.prepare(statement))).await {
            prepared?;
        }
    }
    let plan: Option<Vec<_>> = statements.iter().map(|statement| session.prepared(statement)).collect();
    match plan {
        Some(plan) if statements.len() > 1 => {
            let mut sent: Vec<Sent<'_>> = Vec::with_capacity(statements.len());
            for (statement, prepared) in statements.iter().zip(&plan) {
                sent.push(session.send(Box::pin(session.run_prepared_untimed(prepared, statement))).await);
            }
            for (index, (sent, statement)) in sent.into_iter().zip(statements).enumerate() {
                let rows = session.answer(sent).await?;
                group::check(index, statement.expect, rows.affected()).map_err(Failure::fit)?;
                answers.push(rows);
            }
        }
        _ => {
            for (index, statement) in statements.iter().enumerate() {
                answers.push(session.run(index, statement).await?);
            }
        }
    }
    Ok(answers)
}
