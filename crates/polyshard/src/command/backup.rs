//! `polyshard backup` and `polyshard restore`: everything at one moment, and back again.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use polyshard_admin::types::{BackupState, BackupView, NewBackup};
use polyshard_admin::{Client, Problem};
use polyshard_map::ShardId;
use polyshard_server::RunOptions;
use serde_json::json;

use super::config::{self, Sources};
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::table::table;

/// How often the server is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(300);

/// Backups.
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Take one while requests go on: a new folder on the server's machine
    #[command(after_help = "\
Examples:
  polyshard backup take /backups/monday                 everything at one moment
  polyshard backup take /backups/s1 --shard s1          the copy of one shard, without the catalog")]
    Take {
        /// The folder that will be the backup; it may not exist yet
        to: PathBuf,
        /// Only this shard, without the catalog; may be given several times
        #[arg(long, value_name = "ID")]
        shard: Vec<ShardId>,
    },
    /// The backups that the server process has taken since its start
    #[command(after_help = "Examples:\n  polyshard backup list\n  polyshard backup list --json")]
    List,
    /// Compare a backup with its checksums; needs no server
    #[command(after_help = "Examples:\n  polyshard backup check /backups/monday")]
    Check {
        /// The backup
        backup: PathBuf,
    },
}

/// Runs the command; `check` works on files and needs no client.
pub fn run(
    command: &BackupCommand,
    client: impl FnOnce() -> Result<Client, Failure>,
    output: &Output,
) -> Result<Exit, Failure> {
    match command {
        BackupCommand::Take { to, shard } => take(to.clone(), shard.clone(), &client()?, output),
        BackupCommand::List => {
            output.answer(&client()?.backups()?, |answer| match answer.backups.as_slice() {
                [] => "No backups since the server started.\n".to_owned(),
                backups => backup_table(backups),
            })
        }
        BackupCommand::Check { backup } => {
            let manifest = polyshard_server::check_backup(backup)
                .map_err(|error| Failure::Problem(error.into_problem()))?;
            output.answer(&manifest, |manifest| {
                let whole = if manifest.catalog.is_some() { "everything" } else { "single shards" };
                format!(
                    "{} is whole: {whole}, {} shards, every checksum is right.\n",
                    backup.display(),
                    manifest.shards.len()
                )
            })
        }
    }
}

fn take(to: PathBuf, shards: Vec<ShardId>, client: &Client, output: &Output) -> Result<Exit, Failure> {
    // The server has another folder to start from.
    let to = std::path::absolute(&to)
        .map_err(|error| Failure::new(format!("{}: {error}", to.display()), "name another folder"))?;
    let shards = (!shards.is_empty()).then_some(shards);
    let mut backup = client.begin_backup(&NewBackup { to: to.display().to_string(), shards })?;
    let live = output.format() == Format::People && std::io::stderr().is_terminal();
    while backup.state == BackupState::Running {
        thread::sleep(ASK_EVERY);
        backup = client.backup(backup.id)?;
        if live {
            eprint!("\r{} of {} databases, {} bytes ", backup.copied, backup.databases, backup.bytes);
        }
    }
    if live {
        eprintln!();
    }
    if let Some(message) = &backup.message {
        return Err(Failure::Problem(Problem::unavailable(message.clone())));
    }
    output.answer(&backup, |backup| {
        format!(
            "{} is a backup of one moment: {} databases, {} bytes. Writes waited {} ms.\n",
            backup.to, backup.databases, backup.bytes, backup.pause_ms
        )
    })
}

fn backup_table(backups: &[BackupView]) -> String {
    table(
        ["id", "state", "databases", "bytes", "writes waited", "folder"],
        backups.iter().map(|one| {
            [
                one.id.to_string(),
                one.state.to_string(),
                format!("{}/{}", one.copied, one.databases),
                one.bytes.to_string(),
                format!("{} ms", one.pause_ms),
                one.message.as_ref().map_or_else(|| one.to.clone(), |why| format!("{} ({why})", one.to)),
            ]
        }),
    )
}

/// `restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard restore /backups/monday --data /srv/polyshard-restored
  polyshard restore /backups/monday --config polyshard.toml

The place must be empty: a data folder that does not exist, PostgreSQL databases without tables.
Nothing is served before everything is there and was compared with its checksum.")]
pub struct RestoreArgs {
    /// The backup
    backup: PathBuf,
    #[command(flatten)]
    sources: Sources,
}

/// Restores a backup; no server may run on that place.
pub fn restore(args: &RestoreArgs, output: &Output) -> Result<Exit, Failure> {
    let loaded = config::load(&args.sources)?.map_err(|errors| config::refused(&errors))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::new(format!("the program cannot work here: {error}"), "check the limits of this process")
    })?;
    let options = RunOptions::new(|name| std::env::var(name).ok());
    let restored = runtime
        .block_on(polyshard_server::restore(&loaded.config, &options, &args.backup))
        .map_err(|error| Failure::Problem(error.into_problem()))?;
    let data = loaded.config.data.display().to_string();
    let answer = json!({ "restored": args.backup, "data": data, "manifest": restored });
    output.answer(&answer, |_| {
        format!(
            "Restored {} shards and the catalog into {data}. Start it with 'polyshard up --data {data}'.\n",
            restored.shards.len()
        )
    })
}
