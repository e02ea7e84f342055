//! A refusal in PostgreSQL's own terms: SQLSTATE, message, and what to do about it.

use std::borrow::Cow;
use std::fmt;

/// A five-character SQLSTATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

impl SqlState {
    /// Not supported across shards, or on SQLite shards.
    pub const FEATURE_NOT_SUPPORTED: SqlState = SqlState("0A000");
    /// It could not be parsed.
    pub const SYNTAX_ERROR: SqlState = SqlState("42601");
    /// No such table.
    pub const UNDEFINED_TABLE: SqlState = SqlState("42P01");
    /// No such column.
    pub const UNDEFINED_COLUMN: SqlState = SqlState("42703");
    /// No such function.
    pub const UNDEFINED_FUNCTION: SqlState = SqlState("42883");
    /// A name means two things.
    pub const AMBIGUOUS_COLUMN: SqlState = SqlState("42702");
    /// Types that do not fit.
    pub const DATATYPE_MISMATCH: SqlState = SqlState("42804");
    /// Cannot be told without a cast.
    pub const INDETERMINATE_DATATYPE: SqlState = SqlState("42P18");
    /// A value that its type cannot have.
    pub const INVALID_TEXT_REPRESENTATION: SqlState = SqlState("22P02");
    /// A number too large for its type.
    pub const NUMERIC_VALUE_OUT_OF_RANGE: SqlState = SqlState("22003");
    /// Division by zero.
    pub const DIVISION_BY_ZERO: SqlState = SqlState("22012");
    /// A parameter that cannot be.
    pub const INVALID_PARAMETER_VALUE: SqlState = SqlState("22023");
    /// Not now: try the transaction again.
    pub const SERIALIZATION_FAILURE: SqlState = SqlState("40001");
    /// A table whose definition does not allow what is asked.
    pub const INVALID_TABLE_DEFINITION: SqlState = SqlState("42P16");
    /// Exists already.
    pub const DUPLICATE_TABLE: SqlState = SqlState("42P07");
    /// Something is not as it must be first.
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: SqlState = SqlState("55000");
    /// A key that is missing.
    pub const NOT_NULL_VIOLATION: SqlState = SqlState("23502");
    /// Our own: the map has no place for the key. A view of the map that is out of date can be the cause.
    pub const UNMAPPED_KEY: SqlState = SqlState("PS001");
    /// A bug of ours.
    pub const INTERNAL_ERROR: SqlState = SqlState("XX000");
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Why a statement is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    /// The class programs look at.
    pub state: SqlState,
    /// What is wrong.
    pub message: Cow<'static, str>,
    /// More about it.
    pub detail: Option<Cow<'static, str>>,
    /// What to do about it.
    pub hint: Option<Cow<'static, str>>,
    /// Where in the statement, in characters from 1.
    pub position: Option<u32>,
    /// What was being done: the line of a COPY.
    pub context: Option<Box<str>>,
    /// What it is about.
    pub about: Option<Box<About>>,
}

/// The relation that an error is about, and what of it: programs look for the constraint that was violated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// The schema.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The column, if it is one.
    pub column: Option<String>,
    /// The constraint, likewise.
    pub constraint: Option<String>,
}

impl SqlError {
    /// A refusal with its class.
    pub fn new(state: SqlState, message: impl Into<Cow<'static, str>>) -> SqlError {
        SqlError {
            state,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            context: None,
            about: None,
        }
    }

    /// Something that is not supported, and what to do instead.
    pub fn unsupported(
        message: impl Into<Cow<'static, str>>,
        hint: impl Into<Cow<'static, str>>,
    ) -> SqlError {
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).hint(hint)
    }

    /// With what to do about it.
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> SqlError {
        self.hint = Some(hint.into());
        self
    }

    /// With what it is about.
    pub fn about(mut self, about: About) -> SqlError {
        self.about = Some(Box::new(about));
        self
    }

    /// With what was being done.
    pub fn context(mut self, context: impl Into<Box<str>>) -> SqlError {
        self.context = Some(context.into());
        self
    }

    /// With more about it.
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> SqlError {
        self.detail = Some(detail.into());
        self
    }
}
