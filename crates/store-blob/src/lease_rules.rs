//! The rules of leases: what each of the five verbs makes of one, and whom one keeps out. Does no I/O.

use uuid::Uuid;

use crate::model::{Lease, LeaseAction};

/// Seconds a lease with an end may last: the service's limits.
const SECONDS_MIN: i64 = 15;
const SECONDS_MAX: i64 = 60;
/// Longest time that a lease may go on after it was broken.
const BREAK_SECONDS_MAX: i64 = 60;
/// How a lease without an end is asked for, and stored.
const INFINITE: i64 = -1;

/// The states of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Nobody has it.
    Available,
    /// Somebody has it.
    Leased,
    /// Somebody has it for a little longer.
    Breaking,
    /// Nobody has it any more, since it was broken.
    Broken,
    /// Nobody has it any more, since it was not renewed.
    Expired,
}

impl LeaseState {
    /// As in `x-ms-lease-state`.
    pub fn as_str(self) -> &'static str {
        match self {
            LeaseState::Available => "available",
            LeaseState::Leased => "leased",
            LeaseState::Breaking => "breaking",
            LeaseState::Broken => "broken",
            LeaseState::Expired => "expired",
        }
    }

    /// Whether writes need the lease's id.
    pub fn is_locked(self) -> bool {
        matches!(self, LeaseState::Leased | LeaseState::Breaking)
    }

    /// As in `x-ms-lease-status`.
    pub fn status(self) -> &'static str {
        if self.is_locked() { "locked" } else { "unlocked" }
    }
}

/// What a verb came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseOutcome {
    /// The lease as it is now to be stored.
    pub lease: Lease,
    /// Its id, for the client; none if it was broken or released.
    pub id: Option<Uuid>,
    /// Seconds until a broken lease is over; only of a break.
    pub seconds_left: Option<i64>,
}

/// Why a verb, or an operation under a lease, may not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Somebody else has it.
    #[error("there is already a lease; wait for its end or break it")]
    AlreadyPresent,
    /// The verb needs a lease and there is none.
    #[error("there is no lease; acquire one")]
    NotPresent,
    /// The verb named another lease.
    #[error("the lease has another id; name the one it was acquired with")]
    Mismatch,
    /// It is being broken.
    #[error("the lease is being broken; acquire it after its end")]
    BreakingNotAcquired,
    /// It is being broken.
    #[error("the lease is being broken; it cannot be changed")]
    BreakingNotChanged,
    /// It was broken.
    #[error("the lease was broken; acquire a new one")]
    BrokenNotRenewed,
    /// An operation named no lease, and there is one.
    #[error("there is a lease; name its id")]
    UseMissing,
    /// An operation named another lease.
    #[error("the lease has another id; name the right one")]
    UseMismatch,
    /// An operation named a lease, and there is none.
    #[error("there is no lease; leave out the id, or acquire one")]
    UseNotPresent,
    /// An operation named a lease that is over.
    #[error("the lease is over; acquire a new one")]
    UseLost,
}

/// Reads what a client calls a lease: a GUID in any of its forms.
pub(crate) fn parse_lease_id(text: &str) -> Option<Uuid> {
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    Uuid::try_parse(inner).ok()
}

/// Whether a lease may be asked for so many seconds: 15 to 60, or -1 for ever.
pub(crate) fn is_lease_time(seconds: i64) -> bool {
    matches!(seconds, INFINITE | SECONDS_MIN..=SECONDS_MAX)
}

/// Whether a broken lease may go on for so many seconds.
pub(crate) fn is_break_time(seconds: i64) -> bool {
    (0..=BREAK_SECONDS_MAX).contains(&seconds)
}

impl Lease {
    /// In which state it is at a time.
    pub fn state(&self, now_ms: i64) -> LeaseState {
        match (self.id, self.broken_ms) {
            (None, _) => LeaseState::Available,
            (Some(_), 0) if now_ms >= self.until_ms => LeaseState::Expired,
            (Some(_), 0) => LeaseState::Leased,
            (Some(_), broken) if now_ms >= broken => LeaseState::Broken,
            (Some(_), _) => LeaseState::Breaking,
        }
    }

    /// `infinite` or `fixed`, told only while it is leased.
    pub fn duration(&self, now_ms: i64) -> Option<&'static str> {
        let is_leased = self.state(now_ms) == LeaseState::Leased;
        is_leased.then_some(if self.seconds == INFINITE { "infinite" } else { "fixed" })
    }

    /// What a verb makes of it. `made` is the id of a new lease if the client proposes none.
    pub fn apply(&self, action: LeaseAction, made: Uuid, now_ms: i64) -> Result<LeaseOutcome, LeaseError> {
        let lease = match action {
            LeaseAction::Acquire { proposed, seconds } => {
                self.acquired(proposed.unwrap_or(made), seconds, now_ms)?
            }
            LeaseAction::Renew { id } => self.renewed(id, now_ms)?,
            LeaseAction::Change { id, proposed } => self.changed(id, proposed, now_ms)?,
            LeaseAction::Release { id } => {
                self.check_is(id)?;
                Lease::default()
            }
            LeaseAction::Break { seconds } => return self.broken(seconds, now_ms),
        };
        Ok(LeaseOutcome { lease, id: lease.id, seconds_left: None })
    }

    fn acquired(&self, id: Uuid, seconds: i64, now_ms: i64) -> Result<Lease, LeaseError> {
        let same = self.id == Some(id);
        match self.state(now_ms) {
            LeaseState::Leased if !same => Err(LeaseError::AlreadyPresent),
            LeaseState::Breaking if same => Err(LeaseError::BreakingNotAcquired),
            LeaseState::Breaking => Err(LeaseError::AlreadyPresent),
            _ => Ok(Lease { id: Some(id), seconds, until_ms: end(seconds, now_ms), broken_ms: 0 }),
        }
    }

    fn renewed(&self, id: Uuid, now_ms: i64) -> Result<Lease, LeaseError> {
        self.check_is(id)?;
        match self.state(now_ms) {
            LeaseState::Breaking | LeaseState::Broken => Err(LeaseError::BrokenNotRenewed),
            _ => Ok(Lease { until_ms: end(self.seconds, now_ms), ..*self }),
        }
    }

    fn changed(&self, id: Uuid, proposed: Uuid, now_ms: i64) -> Result<Lease, LeaseError> {
        let is_either = self.id == Some(id) || self.id == Some(proposed);
        match self.state(now_ms) {
            LeaseState::Available | LeaseState::Broken | LeaseState::Expired => Err(LeaseError::NotPresent),
            _ if !is_either => Err(LeaseError::Mismatch),
            LeaseState::Breaking => Err(LeaseError::BreakingNotChanged),
            // Also if it was changed already: a client that missed the answer asks again.
            LeaseState::Leased => Ok(Lease { id: Some(proposed), ..*self }),
        }
    }

    fn broken(&self, seconds: Option<i64>, now_ms: i64) -> Result<LeaseOutcome, LeaseError> {
        let asked = seconds.map(|seconds| end(seconds, now_ms));
        let at = match self.state(now_ms) {
            LeaseState::Available => return Err(LeaseError::NotPresent),
            // What was broken stays so, and what is over has nothing left to run.
            LeaseState::Broken => self.broken_ms,
            LeaseState::Expired => now_ms,
            // A break may be shortened by another, and not be made longer.
            LeaseState::Breaking => asked.map_or(self.broken_ms, |asked| asked.min(self.broken_ms)),
            LeaseState::Leased if self.seconds == INFINITE => asked.unwrap_or(now_ms),
            LeaseState::Leased => asked.map_or(self.until_ms, |asked| asked.min(self.until_ms)),
        };
        let left = at.saturating_sub(now_ms).max(0);
        let lease = Lease { broken_ms: at, ..*self };
        Ok(LeaseOutcome { lease, id: None, seconds_left: Some(left.saturating_add(999) / 1000) })
    }

    fn check_is(&self, id: Uuid) -> Result<(), LeaseError> {
        if self.id == Some(id) { Ok(()) } else { Err(LeaseError::Mismatch) }
    }

    /// Whether an operation that writes may go on, with the lease that it names.
    pub fn check_write(&self, named: Option<Uuid>, now_ms: i64) -> Result<(), LeaseError> {
        match named {
            None if self.state(now_ms).is_locked() => Err(LeaseError::UseMissing),
            None => Ok(()),
            Some(named) => self.check_named(named, now_ms),
        }
    }

    /// Whether an operation that reads may go on: it need not name the lease, but if it does, the right one.
    pub fn check_read(&self, named: Option<Uuid>, now_ms: i64) -> Result<(), LeaseError> {
        named.map_or(Ok(()), |named| self.check_named(named, now_ms))
    }

    fn check_named(&self, named: Uuid, now_ms: i64) -> Result<(), LeaseError> {
        match (self.state(now_ms).is_locked(), self.id == Some(named)) {
            (true, true) => Ok(()),
            (true, false) => Err(LeaseError::UseMismatch),
            (false, true) => Err(LeaseError::UseLost),
            (false, false) => Err(LeaseError::UseNotPresent),
        }
    }

    /// What is left of it after a write: one that is over is forgotten, so that nobody renews it after somebody else
    /// has written.
    pub fn after_write(&self, now_ms: i64) -> Lease {
        if self.state(now_ms).is_locked() { *self } else { Lease::default() }
    }
}

/// When a time ends; never, if it is without end.
fn end(seconds: i64, now_ms: i64) -> i64 {
    if seconds == INFINITE { i64::MAX } else { now_ms.saturating_add(seconds.saturating_mul(1000)) }
}

#[cfg(test)]
mod tests;
