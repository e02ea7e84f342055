//! After a connection is lost in a commit: did it happen?

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::connect::Connector;
use super::session::Session;
use crate::Error;

/// The pause between two looks at a transaction that has not ended yet, or at a server that is away.
const PAUSE: Duration = Duration::from_millis(50);

/// A transaction about to be committed.
pub(crate) struct Mark {
    identity: super::session::Identity,
    /// None if the transaction wrote nothing.
    transaction_id: Option<String>,
}

/// Notes what is needed to find the transaction again. It asks the server, so that the answer has arrived
/// before COMMIT is sent.
pub(crate) async fn mark(session: &Session) -> Result<Mark, super::error::Failure> {
    let rows = session.simple(TRANSACTION_ID).await?;
    Ok(Mark::new(session, rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten()))
}

/// Null for a transaction that has written nothing, which is not given a number for being asked.
pub(crate) const TRANSACTION_ID: &str = "SELECT pg_current_xact_id_if_assigned()::text";

impl Mark {
    pub fn new(session: &Session, transaction_id: Option<String>) -> Mark {
        Mark { identity: session.identity.clone(), transaction_id }
    }
}

enum Look {
    Committed,
    NotCommitted,
    Running,
    Undecidable(&'static str),
}

/// Decides a commit whose answer was lost: success, [`Error::Unavailable`] if it did not happen, or
/// [`Error::OutcomeUnknown`].
pub(crate) async fn decide(connector: &Connector, mark: &Mark, lost: Error) -> Result<(), Error> {
    let Some(transaction_id) = &mark.transaction_id else {
        return Err(not_committed(&lost));
    };
    let deadline = Instant::now() + connector.options.outcome_wait;
    let mut last = lost.clone();
    while Instant::now() < deadline {
        match look(connector, mark, transaction_id).await {
            Ok(Look::Committed) => return Ok(()),
            Ok(Look::NotCommitted) => return Err(not_committed(&lost)),
            Ok(Look::Undecidable(why)) => return Err(Error::OutcomeUnknown { message: why.to_owned() }),
            Ok(Look::Running) => {}
            Err(error) => last = error,
        }
        sleep(PAUSE).await;
    }
    Err(Error::OutcomeUnknown { message: last.to_string() })
}

async fn look(connector: &Connector, mark: &Mark, transaction_id: &str) -> Result<Look, Error> {
    let session = connector.connect_bare().await?;
    let before = &mark.identity.server;
    let now = &session.identity.server;
    if before.timeline != now.timeline {
        return Ok(Look::Undecidable("the server was replaced by another, which may lack the last commits"));
    }
    let status = match session.simple(&format!("SELECT pg_xact_status('{transaction_id}'::xid8)")).await {
        Ok(rows) => rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten(),
        // "transaction ID is in the future": a crash lost it before any of it reached the log.
        Err(failure) if matches!(&failure.error, Error::Invalid { sqlstate: Some(state), .. } if state == "22023") =>
        {
            return Ok(Look::NotCommitted);
        }
        Err(failure) => return Err(failure.error),
    };
    let crashed = before.statistics_reset != now.statistics_reset;
    Ok(match (status.as_deref(), crashed) {
        (Some("committed"), false) => Look::Committed,
        // A crash forgets numbers that had not reached the log and gives them out again: the commit seen
        // may be another's. (It cannot hide ours: a number that did reach the log is not given out again.)
        (Some("committed"), true) => {
            Look::Undecidable("the server crashed, and may have given the transaction's number to another")
        }
        (Some("aborted"), _) | (Some("in progress"), true) => Look::NotCommitted,
        (Some("in progress"), false) => {
            end_backend(&session, mark).await?;
            Look::Running
        }
        _ => Look::Undecidable("the transaction is too old for the server to remember"),
    })
}

/// Our half of the connection is gone; the server may wait for the other half for hours.
async fn end_backend(session: &Session, mark: &Mark) -> Result<(), Error> {
    let sql = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = {} AND backend_start = '{}'",
        mark.identity.pid, mark.identity.backend_start
    );
    session.simple(&sql).await?;
    Ok(())
}

fn not_committed(lost: &Error) -> Error {
    match lost {
        Error::Unavailable { .. } => lost.clone(),
        other => Error::Unavailable { message: other.to_string() },
    }
}
