//! Where log lines go, how they look, and what of requests is traced.

use polyshard_meter::trace;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use crate::config::{LogConfig, LogFormat};
use crate::error::ServerError;
use crate::traces::Export;

/// Sets the log up for the whole process, to standard error: standard output is for the ready line.
pub(crate) fn start(config: &LogConfig, traces: Option<Export>) -> Result<(), ServerError> {
    let wrong = |error: &dyn std::fmt::Display| {
        ServerError::Config(format!("log.level {:?} is not a level: {error}", config.level))
    };
    let filter = EnvFilter::try_new(&config.level).map_err(|error| wrong(&error))?;
    // Spans of traces are no lines; without an exporter nobody is left who wants them, and none is made.
    let silent = format!("{}=off", trace::TARGET);
    let filter = filter.add_directive(silent.parse().map_err(|error| wrong(&error))?);
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let lines = match config.format {
        LogFormat::Text => {
            let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
            lines.with_ansi(colour).boxed()
        }
        LogFormat::Json => lines.json().boxed(),
    };
    let share = traces.as_ref().map(Export::share);
    let set = match traces {
        None => registry().with(lines).with(filter).try_init(),
        Some(traces) => {
            let wanted = filter_fn(Export::wants).with_max_level_hint(tracing::Level::INFO);
            registry().with(lines.with_filter(filter)).with(traces.with_filter(wanted)).try_init()
        }
    };
    match (set, share) {
        (Ok(()), Some(share)) => trace::switch_on(share),
        (Ok(()), None) => {}
        // A second server in one process, as in tests, keeps the first one's log.
        (Err(error), _) => tracing::debug!(%error, "the log was set up before"),
    }
    Ok(())
}
