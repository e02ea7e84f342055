//! PostgreSQL's error codes, translated into what the caller must do.

use std::error::Error as _;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;
use tokio_postgres::error::{DbError, Severity};

use super::types::Unfit;
use crate::{ConstraintKind, Error};

/// A failed statement, and what it means for the session it ran on.
#[derive(Debug)]
pub(crate) struct Failure {
    pub error: Error,
    pub session: Fitness,
}

/// Whether a session can be used after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fitness {
    /// It can, once its transaction is rolled back.
    Fit,
    /// It can, likewise; the statement has waited as long as it may for another transaction's lock.
    Waited,
    /// Its prepared statements are out of date: forget them, then it can.
    Stale,
    /// The connection is gone, or about to go.
    Lost,
}

impl Failure {
    pub fn fit(error: Error) -> Failure {
        Failure { error, session: Fitness::Fit }
    }

    pub fn lost(error: Error) -> Failure {
        Failure { error, session: Fitness::Lost }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        failure.error
    }
}

/// `target` names the database in messages; it holds no password.
pub(crate) fn translate(error: &tokio_postgres::Error, target: &str) -> Failure {
    if let Some(db) = error.as_db_error() {
        let lost = matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
        let session = match db.code().code() {
            _ if lost => Fitness::Lost,
            // "cached plan must not change result type", and a prepared statement that was deallocated.
            "0A000" if db.message().contains("cached plan") => Fitness::Stale,
            "26000" => Fitness::Stale,
            "55P03" => Fitness::Waited,
            _ => Fitness::Fit,
        };
        // A database that lets nobody in at the moment, as while it is restored or renamed.
        if lost && db.code().code() == "55000" {
            return Failure::lost(unavailable(target, db.message()));
        }
        return Failure { error: from_database(db, target), session };
    }
    if let Some(unfit) = error.source().and_then(|source| source.downcast_ref::<Unfit>()) {
        return Failure::fit(Error::invalid(unfit.to_string()));
    }
    let mut message = format!("PostgreSQL at {target}: {error}");
    if let Some(source) = error.source() {
        message = format!("{message}: {source}");
    }
    // The library keeps its kinds to itself; these two start with fixed words.
    let words = error.to_string();
    if words.starts_with("authentication error") || words.starts_with("invalid configuration") {
        return Failure::lost(Error::invalid(format!("{message}: check user, password and sslmode")));
    }
    Failure::lost(Error::Unavailable { message })
}

fn from_database(db: &DbError, target: &str) -> Error {
    let constraint = db.constraint().or(db.column()).unwrap_or_default();
    from_words(db.code().code(), db.message().to_owned(), constraint, target)
}

/// The error that a raw session was told.
pub(crate) fn from_fields(fields: ErrorFields<'_>, target: &str) -> Error {
    let (mut code, mut message, mut constraint) = (String::new(), String::new(), String::new());
    let mut fields = fields;
    while let Ok(Some(field)) = fields.next() {
        let value = || String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = value(),
            b'M' => message = value(),
            b'n' => constraint = value(),
            b'c' if constraint.is_empty() => constraint = value(),
            _ => {}
        }
    }
    from_words(&code, message, &constraint, target)
}

fn from_words(code: &str, message: String, constraint: &str, target: &str) -> Error {
    let constraint = |kind, message| Error::Constraint { kind, constraint: constraint.to_owned(), message };
    match code {
        "23505" => constraint(ConstraintKind::Unique, message),
        "23503" => constraint(ConstraintKind::ForeignKey, message),
        "23502" => constraint(ConstraintKind::NotNull, message),
        "23514" => constraint(ConstraintKind::Check, message),
        "P0001" => constraint(ConstraintKind::Raised, message),
        _ if code.starts_with("23") => constraint(ConstraintKind::Other, message),
        // Serialization failure, deadlock, lock timeout, and statements that want to be tried again.
        "55P03" => Error::Conflict { message },
        _ if code.starts_with("40") => Error::Conflict { message },
        "53100" => Error::Full { message },
        "25006" => Error::ReadOnly { message },
        "57014" | "25P03" => Error::Timeout { message: format!("PostgreSQL at {target}: {message}") },
        // Shutting down, starting up, out of connections or memory, connection exceptions.
        "57P01" | "57P02" | "57P03" | "57P05" | "58000" | "58030" => unavailable(target, &message),
        _ if code.starts_with("53") || code.starts_with("08") => unavailable(target, &message),
        _ if code.starts_with("28") || code.starts_with("3D") => Error::Invalid {
            message: format!("PostgreSQL at {target}: {message}: check user, password and database"),
            sqlstate: Some(code.to_owned()),
        },
        _ => Error::Invalid { message, sqlstate: Some(code.to_owned()) },
    }
}

fn unavailable(target: &str, message: &str) -> Error {
    Error::Unavailable { message: format!("PostgreSQL at {target}: {message}") }
}
