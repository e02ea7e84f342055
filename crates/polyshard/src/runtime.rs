//! The threads of commands that do several things at once.

use tokio::runtime::{Builder, Runtime};

use crate::exit::Failure;

/// As many threads as there are cores.
pub fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread().enable_all().build().map_err(|error| {
        Failure::new(format!("threads cannot be started: {error}"), "check the limits of this process")
    })
}
