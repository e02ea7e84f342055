//! Config and wiring: the only crate that names all stores.

pub mod config;

use std::sync::Arc;

use polyshard_admin::{ErrorCode, Problem};

use config::Config;

/// Looks up an environment variable.
type Variables = dyn Fn(&str) -> Option<String> + Send + Sync;

/// What a server is given beside its configuration.
#[derive(Clone)]
pub struct RunOptions {
    variables: Arc<Variables>,
}

impl RunOptions {
    /// `variables` looks up the environment for passwords and tokens that are kept there.
    pub fn new(variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> RunOptions {
        RunOptions { variables: Arc::new(variables) }
    }

    /// An environment variable of the process.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.variables)(name)
    }
}

/// Why a server did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The wiring is not part of this build.
    #[error("this build has no server in it")]
    NotWired,
}

impl ServerError {
    /// The same in the words of the command line.
    pub fn into_problem(self) -> Problem {
        match self {
            ServerError::NotWired => Problem::new(ErrorCode::Unsupported, self.to_string()),
        }
    }
}

/// Runs a server until it is told to stop.
pub async fn run(_config: Config, _options: RunOptions) -> Result<(), ServerError> {
    Err(ServerError::NotWired)
}
