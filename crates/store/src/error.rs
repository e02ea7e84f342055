//! Why a request was not carried out, in one vocabulary for all stores. Each protocol family maps the kinds to its own
//! codes, once; only faults of the layers below are translated here.

use std::fmt;
use std::time::Duration;

use polyshard_catalog::CatalogError;
use polyshard_engine as engine;
use polyshard_map::LocateError;
use polyshard_router::RouterError;
use polyshard_shard::ShardError;

use crate::quota::OverQuota;
use crate::rights::Missing;

/// A refusal or failure, named by what the caller must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What the caller must do.
    pub kind: ErrorKind,
    /// What failed, and why.
    pub message: String,
    /// The next step, if the message does not say it.
    pub hint: Option<String>,
}

/// What the caller must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Fix the request.
    Invalid,
    /// Create the dataset first.
    NoDataset,
    /// Accept it, or look for another one: there is no such item.
    NoItem,
    /// Choose another name.
    Exists,
    /// Read again, and decide again.
    Changed,
    /// Do something else first: what it is about is not in the state for it, and trying again does not help.
    WrongState,
    /// Delete some datasets.
    TooMany,
    /// Ask an administrator for the right.
    NotPermitted,
    /// Slow down: there is room again after this time.
    OverQuota(Duration),
    /// Try again: it was provably not done.
    Busy,
    /// Tell the operator; it was not done.
    OutOfService(Reason),
    /// Read before sending it again: it may have been done.
    OutcomeUnknown,
    /// Report it: trying again does not help.
    Fault,
}

/// Why a range cannot be used until an operator does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It takes no writes.
    ReadOnly,
    /// It is switched off, or its shard needs an operator.
    Offline,
    /// The map has no entry for the key.
    Unmapped,
    /// The map does not exist.
    NoMap,
    /// The shard has no space left.
    NoSpace,
}

impl Error {
    /// An error without a hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), hint: None }
    }

    /// Stored data that cannot be read.
    pub fn damaged(what: &str, detail: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Fault, format!("stored {what} is damaged: {detail}"))
    }

    /// Whether the change may have been made all the same.
    pub fn is_outcome_unknown(&self) -> bool {
        self.kind == ErrorKind::OutcomeUnknown
    }

    /// Whether it is over by itself, or is known to the operator, so that no background task needs to report it.
    pub fn is_passing(&self) -> bool {
        matches!(self.kind, ErrorKind::Busy | ErrorKind::OverQuota(_) | ErrorKind::OutOfService(_))
    }

    /// A router's refusal or failure.
    pub fn of_router(error: &RouterError) -> Error {
        let kind = match error {
            RouterError::Locate(LocateError::Gap { .. }) => ErrorKind::OutOfService(Reason::Unmapped),
            RouterError::Locate(LocateError::WrongType { .. }) => ErrorKind::Invalid,
            RouterError::NoSuchMap(_) => ErrorKind::OutOfService(Reason::NoMap),
            RouterError::ReadOnly(_) => ErrorKind::OutOfService(Reason::ReadOnly),
            RouterError::Offline(_) => ErrorKind::OutOfService(Reason::Offline),
            RouterError::Moving(_) | RouterError::CatalogAway(_) => ErrorKind::Busy,
            RouterError::Shard { error, .. } => of_shard(error),
            RouterError::Engine(error) => of_engine(error),
            RouterError::Catalog(error) => return Error::of_catalog(error),
            // It was made: whoever sends it again meets what it has made.
            RouterError::Unconfirmed(_) => ErrorKind::OutcomeUnknown,
            // What the shards said is only text by then, so that nobody can tell whether it is over soon.
            RouterError::FanOut { .. } | RouterError::CrossShard(_) | RouterError::Saved(_) => {
                ErrorKind::Fault
            }
        };
        let is_plain = matches!(
            error,
            RouterError::Locate(_)
                | RouterError::NoSuchMap(_)
                | RouterError::ReadOnly(_)
                | RouterError::Offline(_)
        );
        if is_plain { Error::new(kind, error.to_string()) } else { Error::below(kind, error) }
    }

    /// A failure of a database or shard. Where a client may be shown the message, it says nothing of their insides.
    fn below(kind: ErrorKind, error: &dyn fmt::Display) -> Error {
        let ErrorKind::OutOfService(reason) = kind else { return Error::new(kind, error.to_string()) };
        tracing::warn!(%error, "a database needs an operator");
        let message = match reason {
            Reason::ReadOnly => "the shard takes no writes at the moment",
            Reason::Offline | Reason::Unmapped => "the shard is not in service at the moment",
            Reason::NoMap => "the map does not exist",
            Reason::NoSpace => "the shard has no space left",
        };
        Error::new(kind, message)
    }

    /// The catalog's refusal or failure.
    pub fn of_catalog(error: &CatalogError) -> Error {
        let kind = match error {
            CatalogError::Engine(error) => of_engine(error),
            CatalogError::Shard { error, .. } => of_shard(error),
            CatalogError::Change(_) | CatalogError::HoldsData { .. } | CatalogError::Invalid(_) => {
                ErrorKind::Invalid
            }
            CatalogError::ChangedMeanwhile { .. } => ErrorKind::Changed,
            CatalogError::Busy { .. } | CatalogError::RolledBack(_) | CatalogError::Unsettled(_) => {
                ErrorKind::Busy
            }
            CatalogError::NoSuchMap(_) => ErrorKind::OutOfService(Reason::NoMap),
            CatalogError::NoSuchDataset(_) => ErrorKind::NoDataset,
            CatalogError::Exists(_) => ErrorKind::Exists,
            CatalogError::TooMany(_) => ErrorKind::TooMany,
            CatalogError::NoRoomForMap { .. } => ErrorKind::OutOfService(Reason::Offline),
            // It goes on, here or in another process.
            CatalogError::Unfinished { .. } | CatalogError::Superseded(_) => ErrorKind::OutcomeUnknown,
            CatalogError::NoSuchShard(_)
            | CatalogError::NoSuchOperation(_)
            | CatalogError::FormatTooNew { .. }
            | CatalogError::Damaged { .. } => ErrorKind::Fault,
        };
        let is_plain = matches!(error, CatalogError::NoSuchMap(_) | CatalogError::NoRoomForMap { .. });
        if is_plain { Error::new(kind, error.to_string()) } else { Error::below(kind, error) }
    }
}

fn of_shard(error: &ShardError) -> ErrorKind {
    match error {
        ShardError::Engine(error) => of_engine(error),
        ShardError::Superseded(_)
        | ShardError::FenceBroken(_)
        | ShardError::TailLeft(_)
        | ShardError::IncarnationChanged { .. }
        | ShardError::OldMap { .. } => ErrorKind::Busy,
        ShardError::PastReturn(_)
        | ShardError::LocalMapDiffers { .. }
        | ShardError::HoldsData { .. }
        | ShardError::WrongDatabase { .. }
        | ShardError::NotAShard
        | ShardError::Lost { .. }
        | ShardError::WasAShard { .. }
        | ShardError::WentBack { .. } => ErrorKind::OutOfService(Reason::Offline),
        ShardError::CannotMove { .. }
        | ShardError::Uncomputable { .. }
        | ShardError::FormatTooNew { .. }
        | ShardError::Damaged { .. } => ErrorKind::Fault,
    }
}

fn of_engine(error: &engine::Error) -> ErrorKind {
    match error {
        engine::Error::Conflict { .. }
        | engine::Error::Unavailable { .. }
        | engine::Error::Busy { .. }
        | engine::Error::Timeout { .. }
        | engine::Error::SessionRefused(_)
        | engine::Error::Closed => ErrorKind::Busy,
        engine::Error::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
        engine::Error::Full { .. } => ErrorKind::OutOfService(Reason::NoSpace),
        engine::Error::ReadOnly { .. } => ErrorKind::OutOfService(Reason::ReadOnly),
        engine::Error::InUse { .. } => ErrorKind::OutOfService(Reason::Offline),
        engine::Error::Expectation { .. }
        | engine::Error::Constraint { .. }
        | engine::Error::Invalid { .. } => ErrorKind::Fault,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<RouterError> for Error {
    fn from(error: RouterError) -> Error {
        Error::of_router(&error)
    }
}

impl From<CatalogError> for Error {
    fn from(error: CatalogError) -> Error {
        Error::of_catalog(&error)
    }
}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Error {
        Error::below(of_engine(&error), &error)
    }
}

impl From<OverQuota> for Error {
    fn from(over: OverQuota) -> Error {
        let hint = "Send fewer requests, or ask the operator for a higher quota: see 'polyshard quota list'.";
        Error {
            kind: ErrorKind::OverQuota(over.after),
            message: over.to_string(),
            hint: Some(hint.to_owned()),
        }
    }
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Error {
        Error { kind: ErrorKind::NotPermitted, message: missing.message, hint: Some(missing.hint) }
    }
}
