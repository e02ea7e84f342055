//! Which statements the door carries out by itself, and which ones shards describe.

use polyshard_sql::Kind;

/// Whether shards say what a statement is like.
pub(super) fn is_described(kind: &Kind, own: &crate::settings::Own) -> bool {
    !is_own(kind, own) || matches!(kind, Kind::Declare(_))
}

/// Whether the door carries a statement out by itself, wherever it concerns.
pub(super) fn is_own(kind: &Kind, own: &crate::settings::Own) -> bool {
    match kind {
        Kind::Begin(_)
        | Kind::Commit { .. }
        | Kind::Rollback { .. }
        | Kind::Savepoint(_)
        | Kind::Release(_)
        | Kind::RollbackTo(_)
        | Kind::PrepareTransaction(_)
        | Kind::CommitPrepared(_)
        | Kind::RollbackPrepared(_)
        | Kind::Set(_)
        | Kind::SetConfig(_)
        | Kind::SetTransaction { .. }
        | Kind::SetConstraints
        | Kind::Reset(_)
        | Kind::Discard(_)
        | Kind::Listen(_)
        | Kind::Unlisten(_)
        | Kind::Deallocate(_)
        | Kind::Prepare(_)
        | Kind::Execute(_)
        | Kind::Ddl(_)
        | Kind::Truncate(_)
        | Kind::Vacuum
        | Kind::Copy(_)
        | Kind::Polyshard(_) => true,
        Kind::Show(name) => own.show(name).is_some(),
        Kind::Declare(cursor) => cursor.hold,
        _ => false,
    }
}
