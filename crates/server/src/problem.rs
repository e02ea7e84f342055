//! Errors of the layers below, in the words of the admin API. The only file that knows both.

use polyshard_admin::{ErrorCode, Problem};
use polyshard_catalog::CatalogError;
use polyshard_engine as engine;
use polyshard_router::RouterError;
use polyshard_shard::ShardError;

/// A catalog's refusal.
pub(crate) fn of_catalog(error: &CatalogError) -> Problem {
    let code = match error {
        CatalogError::Change(change) => return change.clone().into(),
        CatalogError::ChangedMeanwhile { what, current } => {
            return Problem::changed_meanwhile(what, *current);
        }
        CatalogError::Engine(error) => of_engine(error),
        CatalogError::Shard { error, .. } => of_shard(error),
        CatalogError::Busy { .. } => ErrorCode::Busy,
        CatalogError::NoSuchMap(_)
        | CatalogError::NoSuchShard(_)
        | CatalogError::NoSuchOperation(_)
        | CatalogError::NoSuchDataset(_) => ErrorCode::NotFound,
        CatalogError::Exists(_) => ErrorCode::Exists,
        CatalogError::HoldsData { .. } => ErrorCode::HoldsData,
        CatalogError::RolledBack(why) if why.contains("holds data") => ErrorCode::HoldsData,
        CatalogError::RolledBack(_) | CatalogError::Unsettled(_) => ErrorCode::Conflict,
        CatalogError::Unfinished { .. } | CatalogError::Superseded(_) => ErrorCode::Unavailable,
        CatalogError::Invalid(_) => ErrorCode::Invalid,
        CatalogError::TooMany(_) | CatalogError::NoRoomForMap { .. } => ErrorCode::Conflict,
        CatalogError::FormatTooNew { .. } => ErrorCode::Unsupported,
        CatalogError::Damaged { .. } => ErrorCode::Internal,
    };
    worded(code, &error.to_string())
}

/// A router's refusal.
pub(crate) fn of_router(error: &RouterError) -> Problem {
    let code = match error {
        RouterError::Locate(locate) => return locate.clone().into(),
        RouterError::Catalog(error) => return of_catalog(error),
        RouterError::NoSuchMap(_) => ErrorCode::NotFound,
        RouterError::CrossShard(_) => ErrorCode::Invalid,
        RouterError::ReadOnly(_) | RouterError::Offline(_) => ErrorCode::Conflict,
        RouterError::Moving(_) | RouterError::CatalogAway(_) | RouterError::FanOut { .. } => {
            ErrorCode::Unavailable
        }
        RouterError::Shard { error, .. } => of_shard(error),
        RouterError::Engine(error) => of_engine(error),
        RouterError::Saved(_) | RouterError::Unconfirmed(_) => ErrorCode::Conflict,
    };
    worded(code, &error.to_string())
}

fn of_shard(error: &ShardError) -> ErrorCode {
    match error {
        ShardError::Engine(error) => of_engine(error),
        ShardError::Superseded(_)
        | ShardError::FenceBroken(_)
        | ShardError::IncarnationChanged { .. }
        | ShardError::OldMap { .. } => ErrorCode::Unavailable,
        ShardError::PastReturn(_)
        | ShardError::LocalMapDiffers { .. }
        | ShardError::WrongDatabase { .. }
        | ShardError::Lost { .. }
        | ShardError::WasAShard { .. }
        | ShardError::WentBack { .. } => ErrorCode::Conflict,
        ShardError::TailLeft(_) => ErrorCode::Unavailable,
        ShardError::CannotMove { .. } | ShardError::Uncomputable { .. } => ErrorCode::Conflict,
        ShardError::HoldsData { .. } => ErrorCode::HoldsData,
        ShardError::NotAShard => ErrorCode::Invalid,
        ShardError::FormatTooNew { .. } => ErrorCode::Unsupported,
        ShardError::Damaged { .. } => ErrorCode::Internal,
    }
}

fn of_engine(error: &engine::Error) -> ErrorCode {
    match error {
        engine::Error::Unavailable { .. }
        | engine::Error::OutcomeUnknown { .. }
        | engine::Error::Conflict { .. }
        | engine::Error::Full { .. }
        | engine::Error::ReadOnly { .. }
        | engine::Error::Timeout { .. }
        | engine::Error::Closed
        | engine::Error::SessionRefused(_) => ErrorCode::Unavailable,
        engine::Error::Busy { .. } => ErrorCode::Busy,
        engine::Error::InUse { .. } => ErrorCode::Conflict,
        engine::Error::Invalid { .. } => ErrorCode::Invalid,
        engine::Error::Expectation { .. } | engine::Error::Constraint { .. } => ErrorCode::Internal,
    }
}

/// Messages here end with the remedy, after a semicolon.
pub(crate) fn worded(code: ErrorCode, text: &str) -> Problem {
    match text.rsplit_once("; ") {
        Some((message, remedy)) => Problem::new(code, message).with_remedy(remedy),
        None => Problem::new(code, text),
    }
}
