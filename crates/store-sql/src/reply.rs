//! Messages to clients, and every SQLSTATE the door itself gives.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::{BufMut, BytesMut};
use polyshard_engine as engine;
use polyshard_router::RouterError;
use polyshard_sql::{SqlError, SqlState, TypeOid};
use polyshard_store::{Error, ErrorKind, Reason};

/// States that the door gives beside those of `polyshard_sql`.
pub(crate) mod state {
    use polyshard_sql::SqlState;

    pub const SUCCESSFUL: SqlState = SqlState("00000");
    pub const PROTOCOL_VIOLATION: SqlState = SqlState("08P01");
    pub const CONNECTION_FAILURE: SqlState = SqlState("08006");
    pub const OUTCOME_UNKNOWN: SqlState = SqlState("08007");
    pub const ACTIVE_TRANSACTION: SqlState = SqlState("25001");
    pub const NO_ACTIVE_TRANSACTION: SqlState = SqlState("25P01");
    pub const IN_FAILED_TRANSACTION: SqlState = SqlState("25P02");
    pub const IDLE_IN_TRANSACTION: SqlState = SqlState("25P03");
    pub const READ_ONLY: SqlState = SqlState("25006");
    pub const INVALID_STATEMENT_NAME: SqlState = SqlState("26000");
    pub const DUPLICATE_STATEMENT: SqlState = SqlState("42P05");
    pub const INVALID_CURSOR_NAME: SqlState = SqlState("34000");
    pub const DUPLICATE_CURSOR: SqlState = SqlState("42P03");
    pub const INVALID_SAVEPOINT: SqlState = SqlState("3B001");
    pub const INSUFFICIENT_PRIVILEGE: SqlState = SqlState("42501");
    pub const INVALID_PASSWORD: SqlState = SqlState("28P01");
    pub const INVALID_AUTHORIZATION: SqlState = SqlState("28000");
    pub const INVALID_CATALOG: SqlState = SqlState("3D000");
    pub const TOO_MANY_CONNECTIONS: SqlState = SqlState("53300");
    pub const OVER_QUOTA: SqlState = SqlState("53400");
    pub const UNDEFINED_OBJECT: SqlState = SqlState("42704");
    /// A row that was counted on is not there.
    pub const NO_DATA_FOUND: SqlState = SqlState("P0002");
    pub const DISK_FULL: SqlState = SqlState("53100");
    pub const CANNOT_CONNECT_NOW: SqlState = SqlState("57P03");
    pub const ADMIN_SHUTDOWN: SqlState = SqlState("57P01");
    pub const QUERY_CANCELED: SqlState = SqlState("57014");
    pub const PROGRAM_LIMIT: SqlState = SqlState("54000");
    pub const UNIQUE_VIOLATION: SqlState = SqlState("23505");
    pub const FOREIGN_KEY_VIOLATION: SqlState = SqlState("23503");
    pub const NOT_NULL_VIOLATION: SqlState = SqlState("23502");
    pub const CHECK_VIOLATION: SqlState = SqlState("23514");
    pub const RAISED: SqlState = SqlState("P0001");
    pub const WARNING: SqlState = SqlState("01000");
    pub const BAD_COPY: SqlState = SqlState("22P04");
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    Error,
    Fatal,
    Warning,
    Notice,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
            Severity::Warning => "WARNING",
            Severity::Notice => "NOTICE",
        }
    }
}

/// Writes a message whose body `body` writes.
pub(crate) fn message(out: &mut BytesMut, kind: u8, body: impl FnOnce(&mut BytesMut)) {
    out.put_u8(kind);
    let start = out.len();
    out.put_u32(0);
    body(out);
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

pub(crate) fn text(out: &mut BytesMut, text: &str) {
    // A zero byte would end the field early, and turn the rest into garbage.
    for part in text.split('\0') {
        out.put_slice(part.as_bytes());
    }
    out.put_u8(0);
}

/// `E` or `N`.
pub(crate) fn error(out: &mut BytesMut, severity: Severity, error: &SqlError) {
    let kind = if matches!(severity, Severity::Error | Severity::Fatal) { b'E' } else { b'N' };
    message(out, kind, |out| {
        let mut field = |code: u8, value: &str| {
            out.put_u8(code);
            text(out, value);
        };
        field(b'S', severity.word());
        field(b'V', severity.word());
        field(b'C', error.state.0);
        field(b'M', &error.message);
        if let Some(detail) = &error.detail {
            field(b'D', detail);
        }
        if let Some(hint) = &error.hint {
            field(b'H', hint);
        }
        if let Some(position) = error.position {
            field(b'P', &position.to_string());
        }
        if let Some(context) = &error.context {
            field(b'W', context);
        }
        if let Some(about) = &error.about {
            field(b's', &about.schema);
            field(b't', &about.table);
            if let Some(column) = &about.column {
                field(b'c', column);
            }
            if let Some(constraint) = &about.constraint {
                field(b'n', constraint);
            }
        }
        out.put_u8(0);
    });
}

pub(crate) fn ready(out: &mut BytesMut, status: u8) {
    out.put_slice(&[b'Z', 0, 0, 0, 5, status]);
}

pub(crate) fn complete(out: &mut BytesMut, tag: &str) {
    message(out, b'C', |out| text(out, tag));
}

pub(crate) fn parameter(out: &mut BytesMut, name: &str, value: &str) {
    message(out, b'S', |out| {
        text(out, name);
        text(out, value);
    });
}

pub(crate) const PARSE_COMPLETE: &[u8] = b"1\0\0\0\x04";
pub(crate) const BIND_COMPLETE: &[u8] = b"2\0\0\0\x04";
pub(crate) const CLOSE_COMPLETE: &[u8] = b"3\0\0\0\x04";
pub(crate) const NO_DATA: &[u8] = b"n\0\0\0\x04";
pub(crate) const EMPTY_QUERY: &[u8] = b"I\0\0\0\x04";

/// `R`: what authentication is wanted, or that it is done.
pub(crate) fn authentication(out: &mut BytesMut, code: u32, data: &[u8]) {
    message(out, b'R', |out| {
        out.put_u32(code);
        out.put_slice(data);
    });
}

/// A column of a result that the door makes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub type_oid: TypeOid,
    /// The type's modifier.
    pub type_mod: i32,
}

impl Field {
    /// A text column.
    pub fn text(name: &str) -> Field {
        Field { name: name.to_owned(), type_oid: TypeOid::TEXT, type_mod: -1 }
    }
}

/// The length of a type's values, as `pg_type.typlen` has it.
fn type_length(type_oid: TypeOid) -> i16 {
    match type_oid {
        TypeOid::BOOL => 1,
        TypeOid::INT2 => 2,
        TypeOid::INT4 | TypeOid::OID | TypeOid::FLOAT4 | TypeOid::DATE => 4,
        TypeOid::INT8 | TypeOid::FLOAT8 | TypeOid::TIMESTAMP | TypeOid::TIMESTAMPTZ | TypeOid::TIME => 8,
        TypeOid::INTERVAL | TypeOid::UUID => 16,
        TypeOid::NAME => 64,
        _ => -1,
    }
}

/// `T`; `binary` says for each column, by its place, whether its values come in binary form.
pub(crate) fn row_description(out: &mut BytesMut, fields: &[Field], binary: impl Fn(usize) -> bool) {
    message(out, b'T', |out| {
        out.put_u16(u16::try_from(fields.len()).unwrap_or(u16::MAX));
        for (index, field) in fields.iter().enumerate() {
            text(out, &field.name);
            out.put_u32(0);
            out.put_u16(0);
            out.put_u32(field.type_oid.0);
            out.put_i16(type_length(field.type_oid));
            out.put_i32(field.type_mod);
            out.put_u16(u16::from(binary(index)));
        }
    });
}

/// `t`.
pub(crate) fn parameter_description(out: &mut BytesMut, types: &[TypeOid]) {
    message(out, b't', |out| {
        out.put_u16(u16::try_from(types.len()).unwrap_or(u16::MAX));
        for type_oid in types {
            out.put_u32(type_oid.0);
        }
    });
}

/// `D` of texts.
pub(crate) fn data_row<'a>(out: &mut BytesMut, values: impl ExactSizeIterator<Item = Option<&'a str>>) {
    message(out, b'D', |out| {
        out.put_u16(u16::try_from(values.len()).unwrap_or(u16::MAX));
        for value in values {
            match value {
                None => out.put_i32(-1),
                Some(value) => {
                    out.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
                    out.put_slice(value.as_bytes());
                }
            }
        }
    });
}

/// States seen in shards' errors: there are a few hundred of them, and users may raise their own.
static STATES: Mutex<BTreeMap<String, SqlState>> = Mutex::new(BTreeMap::new());
/// States of users' own that are remembered; more are told as a general failure.
const STATES_MAX: usize = 2_000;

/// The state of a shard's error as one of ours.
pub(crate) fn known_state(code: &str) -> SqlState {
    let mut states = STATES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(state) = states.get(code) {
        return *state;
    }
    if states.len() >= STATES_MAX || code.len() != 5 {
        return SqlState::INTERNAL_ERROR;
    }
    // They are constants everywhere else, and this list is bounded.
    let state = SqlState(Box::leak(code.to_owned().into_boxed_str()));
    states.insert(code.to_owned(), state);
    state
}

/// A statement's keys were on one shard when it was routed, and were moved apart while it waited: nothing was sent.
pub(crate) fn apart() -> SqlError {
    let message = "the statement's keys were moved to several shards while it waited for theirs";
    SqlError::new(SqlState::SERIALIZATION_FAILURE, message).hint("Try again.")
}

/// A router's refusal in PostgreSQL's terms. Clients of this protocol try a transaction again after 40001, so that is
/// what they get where a range or a key was moved under it; the words of a database are passed on as they are.
pub fn of_router(error: &RouterError) -> SqlError {
    match error {
        // They were on one when the statement was routed.
        RouterError::CrossShard(_) => apart(),
        RouterError::Moving(_) => SqlError::new(SqlState::SERIALIZATION_FAILURE, error.to_string()),
        RouterError::Engine(error) => of_engine(error),
        RouterError::Locate(_) => of_store(&Error::of_router(error))
            .hint("Add the key to the map, or give a key that it has: see 'polyshard map show'."),
        other => of_store(&Error::of_router(other)),
    }
}

/// What every store can be refused for, in PostgreSQL's terms.
pub fn of_store(error: &Error) -> SqlError {
    let state = match error.kind {
        ErrorKind::Invalid | ErrorKind::OutOfService(Reason::Unmapped) => SqlState::INVALID_PARAMETER_VALUE,
        ErrorKind::NoDataset => state::UNDEFINED_OBJECT,
        ErrorKind::NoItem => state::NO_DATA_FOUND,
        ErrorKind::Exists => state::UNIQUE_VIOLATION,
        ErrorKind::Changed => SqlState::SERIALIZATION_FAILURE,
        ErrorKind::TooMany => state::PROGRAM_LIMIT,
        ErrorKind::NotPermitted => state::INSUFFICIENT_PRIVILEGE,
        ErrorKind::OverQuota(_) => state::OVER_QUOTA,
        ErrorKind::Busy | ErrorKind::OutOfService(Reason::Offline) => state::CANNOT_CONNECT_NOW,
        ErrorKind::OutOfService(Reason::ReadOnly) => state::READ_ONLY,
        ErrorKind::OutOfService(Reason::NoMap) | ErrorKind::WrongState => {
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE
        }
        ErrorKind::OutOfService(Reason::NoSpace) => state::DISK_FULL,
        ErrorKind::OutcomeUnknown => state::OUTCOME_UNKNOWN,
        ErrorKind::Fault => {
            tracing::error!(%error, "a statement failed");
            SqlState::INTERNAL_ERROR
        }
    };
    let refusal = SqlError::new(state, error.message.clone());
    match &error.hint {
        Some(hint) => refusal.hint(hint.clone()),
        None => refusal,
    }
}

/// A database's failure in PostgreSQL's terms.
pub(crate) fn of_engine(error: &engine::Error) -> SqlError {
    use engine::{ConstraintKind, Error};
    let state = match error {
        Error::Constraint { kind, .. } => match kind {
            ConstraintKind::Unique => state::UNIQUE_VIOLATION,
            ConstraintKind::ForeignKey => state::FOREIGN_KEY_VIOLATION,
            ConstraintKind::NotNull => state::NOT_NULL_VIOLATION,
            ConstraintKind::Check | ConstraintKind::Other => state::CHECK_VIOLATION,
            ConstraintKind::Raised => state::RAISED,
        },
        Error::Conflict { .. } => SqlState::SERIALIZATION_FAILURE,
        Error::Unavailable { .. } | Error::SessionRefused(_) => state::CONNECTION_FAILURE,
        Error::OutcomeUnknown { .. } => state::OUTCOME_UNKNOWN,
        Error::Full { .. } => state::DISK_FULL,
        Error::ReadOnly { .. } => state::READ_ONLY,
        Error::Busy { .. } => state::TOO_MANY_CONNECTIONS,
        Error::Timeout { .. } => state::QUERY_CANCELED,
        Error::Closed => state::ADMIN_SHUTDOWN,
        Error::Expectation { .. } | Error::InUse { .. } | Error::Invalid { .. } => SqlState::INTERNAL_ERROR,
    };
    SqlError::new(state, error.to_string())
}
