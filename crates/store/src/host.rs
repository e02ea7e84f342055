//! What the stores of one process share: the way to shards and catalog, the users and their rights, the quotas, the
//! clock and randomness.

use std::path::PathBuf;
use std::sync::Arc;

use polyshard_catalog::Driver;
use polyshard_router::Router;

use crate::declaration::Stores;
use crate::options::OptionValues;
use crate::quota::Quotas;
use crate::rights::{KnownUsers, Users};
use crate::start::Configured;

/// Tells the time in ticks of 100 ns since 1970. The clocks of processes that serve the same datasets must agree.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Gives random numbers.
pub type Random = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What a host is made of.
pub struct HostParts {
    /// The stores of this program.
    pub stores: Stores,
    /// The way to the shards.
    pub router: Arc<Router>,
    /// Changes the catalog.
    pub driver: Arc<Driver>,
    /// The time.
    pub clock: Clock,
    /// Randomness.
    pub random: Random,
}

/// The part of the kit that exists once in a process.
pub struct Host {
    parts: HostParts,
    users: KnownUsers,
    quotas: Quotas,
    configured: Configured,
}

impl Host {
    /// Everything that stores share, over a router.
    pub fn new(parts: HostParts) -> Host {
        let quotas = Quotas::new(parts.router.clone());
        // Without a configuration everything is as it is by default.
        let values = OptionValues::defaults(parts.stores);
        let (variable, data) = (Arc::new(|_: &str| None), PathBuf::from("data"));
        let configured = Configured { values, variable, data };
        Host { parts, users: KnownUsers::default(), quotas, configured }
    }

    /// The same with what was configured.
    pub fn with_options(self, configured: Configured) -> Host {
        Host { configured, ..self }
    }

    /// What was configured.
    pub fn configured(&self) -> &Configured {
        &self.configured
    }

    /// The stores of this program.
    pub fn stores(&self) -> Stores {
        self.parts.stores
    }

    /// The way to the shards.
    pub fn router(&self) -> &Arc<Router> {
        &self.parts.router
    }

    /// Changes the catalog.
    pub fn driver(&self) -> &Arc<Driver> {
        &self.parts.driver
    }

    /// The users and tokens of now.
    pub fn users(&self) -> Arc<Users> {
        self.users.now(&self.parts.router, self.parts.stores)
    }

    /// The quotas, which count every request.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.parts.clock
    }

    pub(crate) fn random(&self) -> &Random {
        &self.parts.random
    }
}
