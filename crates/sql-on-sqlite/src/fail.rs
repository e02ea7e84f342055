//! Short ways to say what is wrong, and how a refusal of a registered function finds its way back.

use std::borrow::Cow;

use polyshard_sql::{SqlError, SqlState};

/// The hint of everything that works on PostgreSQL shards only.
pub(crate) const USE_POSTGRES: &str = "SQLite shards speak a proven subset of PostgreSQL's SQL \
     (docs/sqlite-sql.md); PostgreSQL shards speak all of it";

/// The classes that the functions of this crate use, so that one can be found by its code.
const STATES: &[&str] = &[
    "0A000", "21000", "22001", "22003", "22004", "22007", "22008", "2200H", "22011", "22012", "22015",
    "22019", "2201B", "2201E", "2201F", "2201W", "2201X", "22021", "22023", "22025", "22026", "22030",
    "22032", "22036", "22P02", "22P03", "22P05", "23502", "23503", "23505", "23514", "40001", "42601",
    "2BP01", "42602", "42704", "42703", "42804", "42883", "42P01", "42P18", "54000", "54001", "57014",
    "XX000", "22013", "22014", "22016", "22018", "428C9", "22000", "42846",
];

const MARK: &str = "SQLSTATE ";

/// Any class.
pub(crate) fn fail(state: &'static str, message: impl Into<Cow<'static, str>>) -> SqlError {
    SqlError::new(SqlState(state), message)
}

/// What SQLite shards cannot do.
pub(crate) fn unsupported(message: impl Into<Cow<'static, str>>) -> SqlError {
    SqlError::unsupported(message, USE_POSTGRES)
}

/// A value that cannot be read as its type.
pub(crate) fn bad_input(type_name: &str, text: &str) -> SqlError {
    fail("22P02", format!("invalid input syntax for type {type_name}: \"{text}\""))
}

/// A number outside its type.
pub(crate) fn out_of_range(type_name: &str) -> SqlError {
    fail("22003", format!("{type_name} out of range"))
}

/// As SQLite carries it.
pub(crate) fn pack(error: &SqlError) -> String {
    format!("{MARK}{}: {}", error.state, error.message)
}

/// From SQLite's message, if it came from [`pack`].
pub(crate) fn unpack(message: &str) -> Option<SqlError> {
    let rest = &message[message.find(MARK)? + MARK.len()..];
    let (code, message) = rest.split_once(": ")?;
    let state = STATES.iter().find(|state| **state == code)?;
    let error = SqlError::new(SqlState(state), message.to_owned());
    Some(if *state == "0A000" { error.hint(USE_POSTGRES) } else { error })
}
