//! What a listener counts, for metrics and for `status`.

use std::sync::atomic::{AtomicU64, Ordering};

use polyshard_meter::Requests;

/// Counts of one listener, shared between it and whoever reports them.
#[derive(Debug, Default)]
pub struct Counters {
    accepted: AtomicU64,
    refused: AtomicU64,
    closed: AtomicU64,
    panicked: AtomicU64,
    requests: Requests,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections handed to the handler since the listener was bound.
    pub accepted: u64,
    /// Connections closed at once because the limit was reached.
    pub refused: u64,
    /// Connections being handled now.
    pub open: u64,
    /// Handlers that ended in a panic: each one is a bug.
    pub panicked: u64,
}

impl Counters {
    /// The counts now. Each is exact; together they may be a connection apart.
    pub fn counts(&self) -> Counts {
        // Read before `accepted`: a connection is accepted before it is closed, so the difference is never negative.
        let closed = self.closed.load(Ordering::Acquire);
        let accepted = self.accepted.load(Ordering::Acquire);
        Counts {
            accepted,
            refused: self.refused.load(Ordering::Relaxed),
            open: accepted - closed,
            panicked: self.panicked.load(Ordering::Relaxed),
        }
    }

    /// The requests that came through its connections, where the door counts them.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    pub(crate) fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn close(&self) {
        self.closed.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn panic(&self) {
        self.panicked.fetch_add(1, Ordering::Relaxed);
    }
}
