//! Where log lines go, and how they look.

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};
use crate::error::ServerError;

/// Sets the log up for the whole process, to standard error: standard output is for the ready line.
pub(crate) fn start(config: &LogConfig) -> Result<(), ServerError> {
    let filter = EnvFilter::try_new(&config.level).map_err(|error| {
        ServerError::Config(format!("log.level {:?} is not a level: {error}", config.level))
    })?;
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let set = match config.format {
        LogFormat::Text => {
            let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
            lines.with_ansi(colour).try_init()
        }
        LogFormat::Json => lines.json().try_init(),
    };
    // A second server in one process, as in tests, keeps the first one's log.
    if let Err(error) = set {
        tracing::debug!(%error, "the log was set up before");
    }
    Ok(())
}
