//! When a fence is clear, when to cut off, when to give up. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use polyshard_shard::{Ack, AckPhase, RouterId};

/// How long a fence may take.
#[derive(Debug, Clone, Copy)]
pub struct FenceLimits {
    /// A router that has not even said that it holds by then is cut off.
    pub silent: Duration,
    /// Requests wait at most this long; then they are released and the fence is raised again later.
    pub hold: Duration,
}

impl Default for FenceLimits {
    fn default() -> FenceLimits {
        // PROTOCOL §2: each attempt holds requests at most 500 ms. A living router answers within a few
        // round trips, so half of that tells the silent from the slow.
        FenceLimits { silent: Duration::from_millis(250), hold: Duration::from_millis(500) }
    }
}

/// What follows from the acknowledgements so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody is in the ranges.
    Clear,
    /// Ask again shortly.
    Wait,
    /// These routers are silent: terminate their sessions.
    CutOff(Vec<RouterId>),
    /// These routers live but cannot drain in time.
    GiveUp(Vec<RouterId>),
}

/// Judges one look at the sessions of a shard and the acknowledgements of a fence on it.
pub fn verdict(
    sessions: &BTreeSet<RouterId>,
    acks: &[Ack],
    waited: Duration,
    limits: FenceLimits,
) -> Verdict {
    let phase = |router: &RouterId| acks.iter().find(|ack| ack.router == *router).map(|ack| ack.phase);
    let silent: Vec<RouterId> = sessions.iter().filter(|router| phase(router).is_none()).copied().collect();
    let slow: Vec<RouterId> =
        sessions.iter().filter(|router| phase(router) == Some(AckPhase::Held)).copied().collect();
    if silent.is_empty() && slow.is_empty() {
        Verdict::Clear
    } else if !silent.is_empty() && waited >= limits.silent {
        Verdict::CutOff(silent)
    } else if !slow.is_empty() && waited >= limits.hold {
        Verdict::GiveUp(slow)
    } else {
        Verdict::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(n: u32) -> RouterId {
        RouterId::new(n)
    }

    #[test]
    fn a_silent_router_is_cut_off_and_a_slow_one_is_not() {
        let sessions = BTreeSet::from([router(1), router(2)]);
        let limits = FenceLimits::default();
        let held = [Ack { router: router(1), phase: AckPhase::Held }];
        assert_eq!(verdict(&sessions, &held, Duration::ZERO, limits), Verdict::Wait);
        assert_eq!(verdict(&sessions, &held, limits.silent, limits), Verdict::CutOff(vec![router(2)]));
        let both = [held[0], Ack { router: router(2), phase: AckPhase::Drained }];
        assert_eq!(verdict(&sessions, &both, limits.hold, limits), Verdict::GiveUp(vec![router(1)]));
        assert_eq!(verdict(&BTreeSet::new(), &[], Duration::ZERO, limits), Verdict::Clear);
    }
}
