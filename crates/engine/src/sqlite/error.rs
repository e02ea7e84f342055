//! SQLite's result codes, translated into what the caller must do.

use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::{ConstraintKind, Error};

pub(crate) fn translate(error: rusqlite::Error) -> Error {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => {
            failure(code, message.unwrap_or_else(|| code.to_string()))
        }
        rusqlite::Error::SqlInputError { error: code, msg, sql, offset } => {
            let near = usize::try_from(offset).ok().and_then(|offset| sql.get(offset..));
            failure(code, near.map_or(msg.clone(), |near| format!("{msg} at {:?}", excerpt(near))))
        }
        rusqlite::Error::MultipleStatement => {
            Error::invalid("one statement at a time: split the text at ';'")
        }
        other => Error::invalid(other.to_string()),
    }
}

/// Whether the disk failed in the middle of a commit, so that its record may or may not survive a restart.
pub(crate) fn leaves_commit_open(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}

fn failure(code: ffi::Error, message: String) -> Error {
    match code.code {
        ErrorCode::ConstraintViolation => constraint(code.extended_code, message),
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Error::Conflict { message },
        ErrorCode::DiskFull => Error::Full { message },
        ErrorCode::ReadOnly => Error::ReadOnly { message },
        ErrorCode::OperationInterrupted => {
            Error::Timeout { message: "the statement ran longer than its limit and was stopped".to_owned() }
        }
        ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory | ErrorCode::CannotOpen => {
            Error::Unavailable { message: format!("the SQLite file cannot be used ({message})") }
        }
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            Error::invalid(format!("the SQLite file is damaged ({message}): restore it from a backup"))
        }
        _ => Error::invalid(message),
    }
}

fn constraint(extended_code: i32, message: String) -> Error {
    let kind = match extended_code {
        ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID => {
            ConstraintKind::Unique
        }
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => ConstraintKind::ForeignKey,
        ffi::SQLITE_CONSTRAINT_NOTNULL => ConstraintKind::NotNull,
        ffi::SQLITE_CONSTRAINT_CHECK => ConstraintKind::Check,
        ffi::SQLITE_CONSTRAINT_TRIGGER => ConstraintKind::Raised,
        _ => ConstraintKind::Other,
    };
    // SQLite's words are "UNIQUE constraint failed: table.column, …"; a trigger's words are its own.
    let constraint = match kind {
        ConstraintKind::Raised => "",
        _ => message.split_once("constraint failed: ").map_or("", |(_, name)| name),
    };
    Error::Constraint { kind, constraint: constraint.to_owned(), message }
}

fn excerpt(text: &str) -> &str {
    const EXCERPT_CHARS_MAX: usize = 40;
    text.char_indices().nth(EXCERPT_CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}
