//! Errors, few and named by what the caller must do next.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Expect;

/// Why a database did not do what was asked.
///
/// Every variant but [`Error::OutcomeUnknown`] means that nothing was applied.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The world is not as the batch expected: read again and decide anew.
    #[error("statement {} expected {expected} and got {got}: nothing was applied", .statement + 1)]
    Expectation {
        /// Which statement of the batch, counted from 0.
        statement: usize,
        /// What it expected.
        expected: Expect,
        /// How many rows there were.
        got: u64,
    },
    /// The data breaks a rule of the schema: change the data.
    #[error("{kind} constraint {constraint} refused the change: {message}")]
    Constraint {
        /// Which sort of rule.
        kind: ConstraintKind,
        /// Its name on PostgreSQL; the table and columns, or the name of a check, on SQLite; may be empty.
        constraint: String,
        /// The database's own words.
        message: String,
    },
    /// Another transaction was in the way: try again.
    #[error("another transaction was in the way ({message}): nothing was applied, try again")]
    Conflict {
        /// The database's own words.
        message: String,
    },
    /// The database cannot be reached and provably did not apply this: try again later.
    #[error("{message}: nothing was applied, try again later")]
    Unavailable {
        /// What could not be reached, and why.
        message: String,
    },
    /// The commit may or may not have happened: read to find out; never try again blindly.
    #[error("it is unknown whether the change was applied ({message}): read the data before trying again")]
    OutcomeUnknown {
        /// How the answer was lost.
        message: String,
    },
    /// No space is left: make room, then try again.
    #[error("no space is left ({message}): make room and try again")]
    Full {
        /// The database's own words.
        message: String,
    },
    /// The database takes no writes: a standby, a read-only file or directory.
    #[error("the database cannot be written ({message}): check its permissions and that it is the primary")]
    ReadOnly {
        /// The database's own words.
        message: String,
    },
    /// Another process has the SQLite file open: stop it first.
    #[error("{} is in use by {}: stop that process first", .path.display(), holder(.pid))]
    InUse {
        /// The database file.
        path: PathBuf,
        /// The process that holds it, if it could be read from the lock file.
        pid: Option<u32>,
    },
    /// The statement, a value or the configuration is wrong: fix it.
    #[error("{message}")]
    Invalid {
        /// What is wrong and how to fix it.
        message: String,
        /// PostgreSQL's code, when it came from there.
        sqlstate: Option<String>,
    },
    /// The session hook refused a new session.
    #[error("the session was refused: {0}")]
    SessionRefused(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// Too much is waiting already: slow down.
    #[error("{message}: slow down and try again")]
    Busy {
        /// Which limit was reached.
        message: String,
    },
    /// It took longer than allowed and was stopped.
    #[error("{message}: nothing was applied")]
    Timeout {
        /// Which limit was reached.
        message: String,
    },
    /// The database handle was closed: this process is shutting down.
    #[error("the database is closed")]
    Closed,
}

impl Error {
    /// A mistake in a statement, value or configuration.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::Invalid { message: message.into(), sqlstate: None }
    }

    /// What a [`crate::SessionHook`] answers to refuse a session.
    pub fn refused(source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::SessionRefused(Arc::new(source))
    }

    /// Whether the same request, unchanged, may be sent again and may then succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Conflict { .. } | Error::Unavailable { .. } | Error::Busy { .. } => true,
            Error::Expectation { .. }
            | Error::Constraint { .. }
            | Error::OutcomeUnknown { .. }
            | Error::Full { .. }
            | Error::ReadOnly { .. }
            | Error::InUse { .. }
            | Error::Invalid { .. }
            | Error::SessionRefused(_)
            | Error::Timeout { .. }
            | Error::Closed => false,
        }
    }
}

/// The sorts of schema rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstraintKind {
    /// A primary key or unique index.
    Unique,
    /// A foreign key.
    ForeignKey,
    /// A NOT NULL column.
    NotNull,
    /// A CHECK.
    Check,
    /// A trigger or function raised an error of its own.
    Raised,
    /// Another rule, such as an exclusion constraint.
    Other,
}

impl fmt::Display for ConstraintKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConstraintKind::Unique => "unique",
            ConstraintKind::ForeignKey => "foreign key",
            ConstraintKind::NotNull => "not null",
            ConstraintKind::Check => "check",
            ConstraintKind::Raised => "trigger",
            ConstraintKind::Other => "other",
        })
    }
}

fn holder(pid: &Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}
