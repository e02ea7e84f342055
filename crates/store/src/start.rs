//! How a store starts in a process: what it gives back, and what keeps it from starting.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use polyshard_engine::Secret;
use polyshard_wire::{Listener, Served, Shutdown};

use crate::calls::Calls;
use crate::kit::Kit;
use crate::options::{ListSpec, Mistake, OptionSpec, OptionValues};
use crate::periodic::PeriodicTask;
use crate::secret::{SecretError, SecretSource};

/// Where a store is spoken to. Its section of the configuration has `listen` and `open`.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint {
    /// Its name: that of the store, if it has but one.
    pub name: &'static str,
    /// Whose protocol it speaks: "Azure Queue Storage".
    pub about: &'static str,
    /// How an address of it begins, unless its handler knows better: "http".
    pub scheme: &'static str,
    /// Where it listens by default, on the loopback address.
    pub port: u16,
}

/// What stores of one protocol family share: credentials, a certificate, whose datasets there are.
#[derive(Debug)]
pub struct Family {
    /// Its id: "azure".
    pub id: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Its lists of tables in the configuration file.
    pub lists: &'static [ListSpec],
    /// The owners of datasets, such as accounts. The first one is meant where none is named.
    pub owners: fn(&OptionValues) -> Vec<String>,
    /// What is wrong with its values, given the names of its stores' endpoints.
    pub check: fn(&OptionValues, endpoints: &[&'static str]) -> Vec<Mistake>,
}

/// What serves the connections of an endpoint.
pub struct Handler {
    /// How an address of the endpoint begins: "https".
    pub scheme: &'static str,
    serve: Box<dyn FnOnce(Listener, Shutdown) -> Serving + Send>,
}

/// Serves until the shutdown has started and what was in hand is done.
pub type Serving = Pin<Box<dyn Future<Output = Served> + Send>>;

impl Handler {
    /// One that serves by this.
    pub fn new<F>(
        scheme: &'static str,
        serve: impl FnOnce(Listener, Shutdown) -> F + Send + 'static,
    ) -> Handler
    where
        F: Future<Output = Served> + Send + 'static,
    {
        Handler { scheme, serve: Box::new(move |listener, shutdown| Box::pin(serve(listener, shutdown))) }
    }

    /// Serves the connections of a listener.
    pub fn serve(self, listener: Listener, shutdown: Shutdown) -> Serving {
        (self.serve)(listener, shutdown)
    }
}

/// A store that runs in this process.
#[derive(Default)]
pub struct Started {
    /// What serves its endpoints, in the order in which these are declared. One that is closed is not asked.
    pub handlers: Vec<Handler>,
    /// What keeps it tidy, whether an endpoint is open or not.
    pub jobs: Vec<PeriodicTask>,
    /// What carries out the functions that it declares.
    pub calls: Option<Arc<dyn Calls>>,
}

/// Why a store cannot start: what is configured does not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StartError(String);

impl StartError {
    /// One that says what is wrong and what to do.
    pub fn new(message: impl Into<String>) -> StartError {
        StartError(message.into())
    }
}

impl From<SecretError> for StartError {
    fn from(error: SecretError) -> StartError {
        StartError(error.to_string())
    }
}

/// Looks up an environment variable.
pub type LookUp = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What was configured, and the environment in which secrets are looked up.
pub struct Configured {
    /// The values of the options that stores and families declare.
    pub values: OptionValues,
    /// Looks up an environment variable.
    pub variable: LookUp,
    /// The folder in which this process keeps what it keeps in files.
    pub data: PathBuf,
}

impl fmt::Debug for Configured {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.values.fmt(to)
    }
}

impl Kit {
    /// What was configured.
    pub fn options(&self) -> &OptionValues {
        &self.host().configured().values
    }

    /// The value of an option that the store declares: `blob.inline_bytes_max`. One that has none, and no default, is
    /// an error.
    pub fn option<T: FromStr>(&self, path: &str) -> Result<T, StartError> {
        let value = self.options().get(path)?;
        value.ok_or_else(|| StartError::new(format!("{path} has no value; set it in the configuration")))
    }

    /// The folder in which this process keeps what it keeps in files.
    pub fn data_dir(&self) -> &Path {
        &self.host().configured().data
    }

    /// Looks up an environment variable.
    pub fn variable(&self) -> LookUp {
        self.host().configured().variable.clone()
    }

    /// A secret that the store declares, from where it is configured to be; none if it is not.
    pub fn secret(&self, path: &str) -> Result<Option<Secret>, StartError> {
        self.resolve(&self.options().secret(path))
    }

    /// A secret from where it is said to be.
    pub fn resolve(&self, source: &SecretSource) -> Result<Option<Secret>, StartError> {
        Ok(source.resolve(|name| (self.host().configured().variable)(name))?)
    }

    /// Where an endpoint of the store is configured to listen; none if it is closed.
    pub fn listen(&self, endpoint: &str) -> Option<SocketAddr> {
        self.options().listen(endpoint)
    }
}
