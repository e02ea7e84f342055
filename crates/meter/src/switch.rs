//! Whether requests are counted at all: they are, unless somebody wants to know what that costs.

use std::sync::atomic::{AtomicBool, Ordering};

static OFF: AtomicBool = AtomicBool::new(false);

/// From here on this process counts no requests, neither by door nor by shard nor by key.
pub fn switch_off() {
    OFF.store(true, Ordering::Relaxed);
}

/// Whether requests are counted.
#[inline]
pub fn is_counting() -> bool {
    !OFF.load(Ordering::Relaxed)
}
