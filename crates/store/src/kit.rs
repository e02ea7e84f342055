//! The context that a store works in: its only way to the router and the catalog.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use polyshard_catalog::Driver;
use polyshard_router::Router;

use crate::declaration::Store;
use crate::host::Host;

/// Ticks of 100 ns in a millisecond.
const TICKS_PER_MS: i64 = 10_000;

/// One for each store and process; cheap to clone.
#[derive(Clone)]
pub struct Kit {
    store: &'static Store,
    host: Arc<Host>,
    /// The last time given out by [`Kit::next_ticks`].
    last_ticks: Arc<AtomicI64>,
}

impl Kit {
    /// The kit of a store in this process.
    pub fn new(host: &Arc<Host>, store: &'static Store) -> Kit {
        Kit { store, host: host.clone(), last_ticks: Arc::default() }
    }

    /// The store that it is for.
    pub fn store(&self) -> &'static Store {
        self.store
    }

    /// What the stores of this process share.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// The way to the shards.
    pub fn router(&self) -> &Arc<Router> {
        self.host.router()
    }

    /// Changes the catalog.
    pub fn driver(&self) -> &Arc<Driver> {
        self.host.driver()
    }

    /// The time in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        (self.host.clock())().div_euclid(TICKS_PER_MS)
    }

    /// The time in ticks of 100 ns since 1970.
    pub fn now_ticks(&self) -> i64 {
        (self.host.clock())()
    }

    /// A time in ticks of 100 ns since 1970, later than any that this store was given in this process: also when the
    /// clock stands still.
    pub fn next_ticks(&self) -> i64 {
        let now = (self.host.clock())();
        let next = |last: i64| now.max(last.saturating_add(1));
        let last =
            self.last_ticks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        last.map_or(now, next)
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        (self.host.random())()
    }
}
