//! `polyshard up`: run a server in the foreground.

use clap::Args;
use polyshard_server::RunOptions;

use super::config::{self, Sources};
use crate::exit::{Exit, Failure};
use crate::runtime::runtime;

/// `up`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard up
  polyshard up --data /srv/polyshard
  polyshard up --config polyshard.toml --set log.level=debug

Every option is described in docs/config.md; 'polyshard config show' prints those in effect.")]
pub struct UpArgs {
    #[command(flatten)]
    sources: Sources,
}

/// Runs the server until it is told to stop.
pub fn run(args: &UpArgs) -> Result<Exit, Failure> {
    let loaded = config::load(&args.sources)?.map_err(|errors| config::refused(&errors))?;
    let options = RunOptions::new(|name| std::env::var(name).ok());
    runtime()?
        .block_on(polyshard_server::run(loaded.config, options))
        .map_err(|e| Failure::Problem(e.into_problem()))?;
    Ok(Exit::Ok)
}
