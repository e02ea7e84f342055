//! What can go wrong with what all shards have alike, named by what the caller must do.

use polyshard_catalog::CatalogError;
use polyshard_engine as engine;
use polyshard_map::ShardId;
use polyshard_router::RouterError;
use polyshard_shard::ShardError;
use polyshard_sql::{SqlError, SqlState};

/// A refusal or failure of the journal.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// Fix the statement or the table.
    #[error(transparent)]
    Refused(#[from] SqlError),
    /// The catalog said no; its own error says whether to retry.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A shard said no, and nothing was done anywhere.
    #[error("shard {shard}: {error}")]
    Shard {
        /// Which.
        shard: ShardId,
        /// Why.
        error: ShardError,
    },
    /// Others change the schema or reference tables: try again.
    #[error("others are changing the schema or reference tables, and it took too long to be next; try again")]
    Busy,
    /// This process was silent for so long that another took its turn: try again.
    #[error("the turn to change all shards was lost to another process; nothing was changed, try again")]
    TurnLost,
    /// The decision may or may not have been made: look before trying again.
    #[error("it is unknown whether the change was made ({0}): look before trying again")]
    Unknown(String),
    /// A shard cannot be brought to what was decided: a human must look.
    #[error(
        "shard {shard} cannot be brought to entry {position} of the journal: {why}; see 'polyshard schema check'"
    )]
    Stuck {
        /// The shard.
        shard: ShardId,
        /// The entry that fails there.
        position: u64,
        /// How.
        why: String,
    },
    /// A test stopped it here, as a kill would.
    #[error("stopped at failpoint {0}")]
    Failpoint(String),
    /// Stored bytes that do not decode: call a human.
    #[error("stored {what} is damaged: {detail}")]
    Damaged {
        /// Which record.
        what: &'static str,
        /// How it failed to decode.
        detail: String,
    },
}

impl JournalError {
    /// A shard's database said no.
    pub fn on(shard: &ShardId, error: impl Into<ShardError>) -> JournalError {
        JournalError::Shard { shard: shard.clone(), error: error.into() }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            JournalError::Catalog(error) => error.is_retryable(),
            JournalError::Shard { error, .. } => error.is_retryable(),
            JournalError::Busy | JournalError::TurnLost => true,
            _ => false,
        }
    }

    /// As a client of the SQL door gets it.
    pub fn to_sql(&self) -> SqlError {
        let message = self.to_string();
        let state = match self {
            JournalError::Refused(error) => return error.clone(),
            JournalError::Shard { error: ShardError::Engine(error), .. } => return of_engine(error, message),
            JournalError::Busy => SqlState("55P03"),
            JournalError::TurnLost => SqlState::SERIALIZATION_FAILURE,
            JournalError::Unknown(_) => SqlState("08007"),
            JournalError::Catalog(CatalogError::NoSuchMap(_) | CatalogError::NoSuchShard(_)) => {
                SqlState("42704")
            }
            JournalError::Catalog(CatalogError::Exists(_)) => SqlState("42710"),
            JournalError::Catalog(CatalogError::Busy { .. }) => SqlState("55006"),
            JournalError::Catalog(CatalogError::Invalid(_)) => SqlState::INVALID_PARAMETER_VALUE,
            JournalError::Catalog(error) if error.is_retryable() => SqlState("57P03"),
            JournalError::Shard { error, .. } if error.is_retryable() => SqlState("57P03"),
            JournalError::Stuck { .. } => SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            _ => SqlState::INTERNAL_ERROR,
        };
        SqlError::new(state, message)
    }
}

/// A database's own refusal keeps its class where it has one.
fn of_engine(error: &engine::Error, message: String) -> SqlError {
    let state = match error {
        engine::Error::Constraint { kind, .. } => match kind {
            engine::ConstraintKind::Unique => "23505",
            engine::ConstraintKind::ForeignKey => "23503",
            engine::ConstraintKind::NotNull => "23502",
            engine::ConstraintKind::Check => "23514",
            engine::ConstraintKind::Raised => "P0001",
            engine::ConstraintKind::Other => "23000",
        },
        engine::Error::Conflict { .. } => "40001",
        engine::Error::Unavailable { .. } | engine::Error::Busy { .. } => "57P03",
        engine::Error::OutcomeUnknown { .. } => "08007",
        engine::Error::Full { .. } => "53100",
        engine::Error::ReadOnly { .. } => "25006",
        engine::Error::Timeout { .. } => "57014",
        engine::Error::Invalid { sqlstate: Some(state), .. } => known(state),
        _ => "XX000",
    };
    SqlError::new(SqlState(state), message)
}

/// The classes that programs act on; the rest is 'syntax error or access rule violation', which they came from.
fn known(state: &str) -> &'static str {
    const STATES: &[&str] = &[
        "0A000", "22003", "22012", "22023", "22P02", "2BP01", "42501", "42601", "42602", "42611", "42622",
        "42701", "42702", "42703", "42704", "42710", "42723", "42804", "42809", "42830", "42883", "42939",
        "42P01", "42P06", "42P07", "42P16", "42P17", "42P18", "55000", "55006", "55P03", "25001",
    ];
    STATES.iter().find(|known| **known == state).copied().unwrap_or("42000")
}

impl From<RouterError> for JournalError {
    fn from(error: RouterError) -> JournalError {
        match error {
            RouterError::Catalog(error) => JournalError::Catalog(error),
            RouterError::Shard { shard, error } => JournalError::Shard { shard, error },
            // Nobody tries such a state again.
            error @ RouterError::Unconfirmed(_) => SqlError::new(SqlState("08007"), error.to_string()).into(),
            other => JournalError::Catalog(CatalogError::Invalid(other.to_string())),
        }
    }
}
