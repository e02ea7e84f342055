//! Finds out whether a transaction pooler sits between us and PostgreSQL, where session locks mean nothing.

use std::time::Duration;

use super::session::Session;
use crate::Error;

/// A pooler with a single server session would let the first session wait for the second for ever.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Two sessions must be two server processes, and stay so while one of them is in a transaction.
pub(crate) async fn refuse(first: &Session, second: &Session, target: &str) -> Result<(), Error> {
    let result = tokio::time::timeout(ANSWER_TIMEOUT, is_direct(first, second)).await;
    let direct = match result {
        Ok(direct) => direct?,
        Err(_) => false,
    };
    if direct {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "between here and PostgreSQL at {target} is a transaction pooler, which breaks session locks: connect \
         to PostgreSQL directly, or use a pooler in session mode"
    )))
}

async fn is_direct(first: &Session, second: &Session) -> Result<bool, Error> {
    // The number is random so that two processes opening the same database do not meet.
    let key = text(first, "SELECT floor(random() * 9e15)::bigint").await?;
    let pid =
        text(first, &format!("SELECT pg_backend_pid() FROM (SELECT pg_advisory_lock({key})) AS l")).await?;
    second.simple("BEGIN").await?;
    let other = text(second, "SELECT pg_backend_pid()").await?;
    let taken = text(second, &format!("SELECT pg_try_advisory_xact_lock({key})")).await?;
    let still =
        if other == pid || taken != "f" { None } else { Some(text(first, "SELECT pg_backend_pid()").await?) };
    second.simple("ROLLBACK").await?;
    let released = text(first, &format!("SELECT pg_advisory_unlock({key})")).await?;
    Ok(still.as_ref() == Some(&pid) && released == "t")
}

async fn text(session: &Session, sql: &str) -> Result<String, Error> {
    let rows = session.simple(sql).await?;
    Ok(rows.into_iter().next().and_then(|row| row.into_iter().next()).flatten().unwrap_or_default())
}
