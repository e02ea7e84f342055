//! A moment without writes: new ones wait, those under way end. What is read then, of all shards, is of one moment.

use std::sync::Arc;
use std::time::Duration;

use crate::Router;
use crate::state::State;

/// Keeps writes of this process out until it is dropped.
pub struct Barrier {
    state: Arc<State>,
}

impl Router {
    /// Lets the writes under way end and no new ones begin. None if they do not end in time: then they go on, and so
    /// do those that waited.
    pub async fn barrier(&self, wait: Duration) -> Option<Barrier> {
        let barrier = Barrier { state: self.state().clone() };
        barrier.state.gate.close_to_writes();
        // Dropped in any other case, which opens the gate again.
        tokio::time::timeout(wait, barrier.state.gate.without_writes()).await.ok()?;
        Some(barrier)
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        self.state.gate.open_to_writes();
    }
}
