//! `polyshard config`: check a configuration file, show what is in effect.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use polyshard_admin::{ErrorCode, Problem};
use polyshard_server::config::{self, ConfigErrors, File, Loaded};

use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};

/// The largest configuration file: thousands of shards fit, a wrong file is not read to its end.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The configuration file.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Name every mistake in a file, with its line
    #[command(after_help = "Examples:\n  polyshard config check polyshard.toml")]
    Check {
        /// The file
        file: PathBuf,
    },
    /// The configuration in effect, and where each value comes from; secrets are shown as ***
    #[command(after_help = "\
Examples:
  polyshard config show
  polyshard config show --config polyshard.toml --set router.poll_ms=250")]
    Show(Sources),
}

/// Where a configuration comes from, beside the environment.
#[derive(Debug, Args)]
pub struct Sources {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Folder of embedded shards, catalog and snapshot [default: ./polyshard-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Set any option of docs/config.md outside the list of shards; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
}

/// Runs the command.
pub fn run(command: &ConfigCommand, output: &Output) -> Result<Exit, Failure> {
    match command {
        ConfigCommand::Check { file } => {
            let sources = Sources { config: Some(file.clone()), data: None, set: Vec::new() };
            match load(&sources)? {
                Ok(_) => {
                    output.answer(&serde_json::json!({ "errors": [] }), |_| format!("{}: OK", file.display()))
                }
                Err(errors) => check_failed(&errors, output),
            }
        }
        ConfigCommand::Show(sources) => match load(sources)? {
            Ok(loaded) => output.answer(&loaded.settings.to_json(), |_| loaded.settings.to_toml()),
            Err(errors) => Err(refused(&errors)),
        },
    }
}

fn check_failed(errors: &ConfigErrors, output: &Output) -> Result<Exit, Failure> {
    match output.format() {
        Format::People => Err(refused(errors)),
        Format::Json => {
            let list: Vec<_> = errors
                .iter()
                .map(|e| {
                    let origin = e.origin.to_string();
                    serde_json::json!({ "origin": origin, "message": e.message, "remedy": e.remedy })
                })
                .collect();
            output.answer(&serde_json::json!({ "errors": list }), |_| String::new())?;
            Ok(Exit::Usage)
        }
    }
}

/// The mistakes as one failure of the command.
pub fn refused(errors: &ConfigErrors) -> Failure {
    let count = match errors.len() {
        1 => "1 mistake".to_owned(),
        n => format!("{n} mistakes"),
    };
    let message = format!("the configuration has {count}\n{errors}");
    Problem::new(ErrorCode::Invalid, message).with_remedy("correct them, see docs/config.md").into()
}

/// Reads file, environment and flags. The outer failure is a file that cannot be read.
pub fn load(sources: &Sources) -> Result<Result<Loaded, ConfigErrors>, Failure> {
    let text = sources.config.as_deref().map(read).transpose()?;
    let name = sources.config.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let mut flags = sources.set.clone();
    if let Some(data) = &sources.data {
        let Some(data) = data.to_str() else {
            return Err(Problem::invalid("--data", "the folder's name is not UTF-8").into());
        };
        flags.push(("data".to_owned(), data.to_owned()));
    }
    // A variable that is not UTF-8 cannot be one of ours.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Ok(config::load(text.as_deref().map(|text| File { name: &name, text }), environment, &flags))
}

fn read(path: &Path) -> Result<String, Failure> {
    use std::io::Read;
    let refused = |reason: String, code| {
        let message = format!("configuration file {} cannot be read: {reason}", path.display());
        Failure::Problem(Problem::new(code, message).with_remedy("give a TOML file, see docs/config.md"))
    };
    let code = |e: &std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => ErrorCode::NotFound,
        _ => ErrorCode::Invalid,
    };
    let file = std::fs::File::open(path).map_err(|e| refused(e.to_string(), code(&e)))?;
    let mut text = String::new();
    let read =
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|e| refused(e.to_string(), code(&e)))?;
    if read as u64 == FILE_BYTES_MAX {
        return Err(refused("it is too large".to_owned(), ErrorCode::Invalid));
    }
    Ok(text)
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let (path, value) =
        text.split_once('=').ok_or("write SECTION.KEY=VALUE, for example router.poll_ms=250")?;
    Ok((path.trim().to_owned(), value.to_owned()))
}
