//! `polyshard backup` and `polyshard restore`: everything at one moment, one shard or one shardlet, and back again.

mod text;

use std::io::IsTerminal;
use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use polyshard_admin::types::{BackupFailure, BackupState, BackupView, NewBackup, NewRestore};
use polyshard_admin::{Client, ErrorCode, Problem};
use polyshard_map::{MapName, ShardId};
use polyshard_server::{RunOptions, ServerError};
use serde_json::json;

use super::config::{self, Sources};
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::table::size;

/// How often the server is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(300);

/// Backups.
#[derive(Debug, Subcommand)]
pub enum BackupCommand {
    /// Take one while requests go on; it costs only what is new since the others in the same place
    #[command(after_help = "\
Examples:
  polyshard backup take /backups/monday                    everything at one moment
  polyshard backup take s3://bucket/polyshard/monday       in an object store
  polyshard backup take                                    a new name in the place backup.to names
  polyshard backup take /backups/s1 --shard s1             one shard, without the catalog
  polyshard backup take /backups/42 --map tenants --key 42   one shardlet

A place is a folder on the server's machine, s3://bucket/prefix or az://container/prefix. Backups in the
same place share what they have in common; the last part of the address is the backup's name.")]
    Take {
        /// The backup's address: a place, a slash, a new name
        to: Option<String>,
        /// Only this shard, without the catalog; may be given several times
        #[arg(long, value_name = "ID", conflicts_with_all = ["map", "key"])]
        shard: Vec<ShardId>,
        /// Only one shardlet: its map
        #[arg(long, value_name = "NAME", requires = "key")]
        map: Option<MapName>,
        /// Only one shardlet: its key
        #[arg(long, value_name = "KEY", requires = "map")]
        key: Option<String>,
    },
    /// The backups and restorations of the cluster; or the backups in a place, without a server
    #[command(after_help = "\
Examples:
  polyshard backup list
  polyshard backup list /backups
  polyshard backup list s3://bucket/polyshard --json")]
    List {
        /// A place: then what is there is listed, and no server is asked
        place: Option<String>,
    },
    /// Give up a backup or restoration that is under way
    #[command(after_help = "Examples:\n  polyshard backup cancel 7")]
    Cancel {
        /// Its number in 'polyshard backup list'
        id: u64,
    },
    /// Compare everything a backup consists of with its checksums; needs no server
    #[command(visible_alias = "check", after_help = "Examples:\n  polyshard backup verify /backups/monday")]
    Verify {
        /// The backup's address
        backup: String,
    },
    /// Remove old backups, unfinished ones, and what none needs any more; needs no server
    #[command(after_help = "\
Examples:
  polyshard backup prune /backups --keep 7 --dry-run       what would be removed
  polyshard backup prune /backups --keep 7                 the latest 7 of each class, cluster and kind stay
  polyshard backup prune s3://bucket/polyshard --keep 24 --class gold")]
    Prune {
        /// The place
        place: String,
        /// How many of each class, cluster and kind stay, the latest; without it only unfinished ones are removed
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        keep: Option<u32>,
        /// Only backups of this class
        #[arg(long, value_name = "CLASS")]
        class: Option<String>,
        /// Remove nothing, say what would be removed
        #[arg(long)]
        dry_run: bool,
    },
}

/// Runs the command; `verify`, `prune` and `list` of a place need no client.
pub fn run(
    command: &BackupCommand,
    client: impl FnOnce() -> Result<Client, Failure>,
    output: &Output,
) -> Result<Exit, Failure> {
    match command {
        BackupCommand::Take { to, shard, map, key } => {
            let to = to.as_deref().map(address).transpose()?;
            let shards = (!shard.is_empty()).then(|| shard.clone());
            let new = NewBackup { to, shards, map: map.clone(), key: key.clone() };
            take(&new, &client()?, output)
        }
        BackupCommand::List { place: None } => output.answer(&client()?.backups()?, text::list),
        BackupCommand::List { place: Some(place) } => {
            let place = address(place)?;
            let found =
                without_server(
                    |options| async move { polyshard_server::list_backups(&options, &place).await },
                )?;
            output.answer(&json!({ "backups": found }), |_| text::depot(&found))
        }
        BackupCommand::Cancel { id } => {
            let client = client()?;
            let ended = wait(client.cancel_backup(*id)?, &client, output)?;
            if ended.state == BackupState::Done {
                // Its last step was being done when somebody asked.
                let message = format!("the {} {} was done before it could be given up", ended.kind, ended.id);
                return Err(Failure::Problem(Problem::new(ErrorCode::Conflict, message)));
            }
            if ended.message.as_deref() != Some(polyshard_server::BACKUP_CANCELLED) {
                // It failed by itself before it could be given up.
                return Err(failed(ended));
            }
            output.answer(&ended, |ended| format!("The {} {} is given up.\n", ended.kind, ended.id))
        }
        BackupCommand::Verify { backup } => {
            let at = address(backup)?;
            let manifest =
                without_server(|options| async move { polyshard_server::check_backup(&options, &at).await })?;
            output.answer(&manifest, |manifest| {
                let (what, size) = (manifest.what(), size(manifest.bytes()));
                format!("{backup} is whole: {what}, {size}, every checksum is right.\n")
            })
        }
        BackupCommand::Prune { place, keep, class, dry_run } => {
            let (place, class) = (address(place)?, class.clone());
            let (keep, dry) = (keep.map(|keep| keep as usize), *dry_run);
            let pruned = without_server(|options| async move {
                polyshard_server::prune_backups(&options, &place, class.as_deref(), keep, dry).await
            })?;
            let answer = json!({
                "backups": pruned.backups, "unfinished": pruned.unfinished, "chunks": pruned.chunks,
                "bytes": pruned.bytes, "left": pruned.left, "dry_run": dry,
            });
            output.answer(&answer, |_| {
                let verb = if dry { "Would remove" } else { "Removed" };
                let mut text = format!(
                    "{verb} {} backups, {} unfinished ones",
                    pruned.backups.len(),
                    pruned.unfinished.len()
                );
                if !dry {
                    let size = size(pruned.bytes);
                    text.push_str(&format!(", and {size} that none needs any more"));
                }
                text.push_str(".\n");
                pruned
                    .backups
                    .iter()
                    .chain(&pruned.unfinished)
                    .for_each(|name| text.push_str(&format!("  {name}\n")));
                if let Some(why) = &pruned.left {
                    text.push_str(&format!("What none may need was left: {why}.\n"));
                }
                text
            })
        }
    }
}

/// An address that means the same to the server, which has another folder to start from.
pub(super) fn address(text: &str) -> Result<String, Failure> {
    if text.contains("://") {
        return Ok(text.to_owned());
    }
    let path = std::path::absolute(Path::new(text))
        .map_err(|error| Failure::new(format!("{text}: {error}"), "name another folder"))?;
    Ok(path.display().to_string())
}

/// Does what needs no server.
fn without_server<T, W>(work: impl FnOnce(RunOptions) -> W) -> Result<T, Failure>
where
    W: Future<Output = Result<T, ServerError>>,
{
    let options = RunOptions::new(|name| std::env::var(name).ok());
    crate::runtime::runtime()?.block_on(work(options)).map_err(|error| Failure::Problem(error.into_problem()))
}

/// Waits until it has ended, showing how far it is.
fn wait(mut backup: BackupView, client: &Client, output: &Output) -> Result<BackupView, Failure> {
    let live = output.format() == Format::People && std::io::stderr().is_terminal();
    while backup.state == BackupState::Running {
        thread::sleep(ASK_EVERY);
        backup = client.backup(backup.id)?;
        if live {
            eprint!("\r{} of {} databases, {}   ", backup.copied, backup.databases, size(backup.bytes));
        }
    }
    if live {
        eprintln!();
    }
    Ok(backup)
}

/// Waits until it is done.
fn follow(backup: BackupView, client: &Client, output: &Output) -> Result<BackupView, Failure> {
    let backup = wait(backup, client, output)?;
    if backup.state == BackupState::Done { Ok(backup) } else { Err(failed(backup)) }
}

/// Why it failed.
fn failed(backup: BackupView) -> Failure {
    let message = backup.message.unwrap_or_else(|| "it failed".to_owned());
    let code = match backup.failure {
        Some(BackupFailure::Busy) => ErrorCode::Busy,
        Some(BackupFailure::Refused) => ErrorCode::Invalid,
        Some(BackupFailure::Damaged) => ErrorCode::Conflict,
        Some(BackupFailure::Failed) | None => ErrorCode::Unavailable,
    };
    Failure::Problem(Problem::new(code, message))
}

fn take(new: &NewBackup, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let backup = follow(client.begin_backup(new)?, client, output)?;
    output.answer(&backup, |backup| {
        if new.key.is_some() {
            return format!("{} is a backup of {}: {} rows.\n", backup.to, backup.what, backup.rows);
        }
        format!(
            "{} is a backup of one moment: {} databases, {}, {} of it new. Writes waited {} ms.\n",
            backup.to,
            backup.databases,
            size(backup.bytes),
            size(backup.new_bytes),
            backup.pause_ms
        )
    })
}

/// `restore`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard restore /backups/monday --data /srv/polyshard-restored
  polyshard restore s3://bucket/polyshard/monday --config polyshard.toml
  polyshard restore /backups/monday --map tenants --key 42 --replace
  polyshard restore /backups/monday --shard eu2 --to postgres://polyshard@db3/eu2_restored --password-env EU2_PASSWORD

Everything: the place must be empty, a data folder that does not exist, PostgreSQL databases without
tables. Nothing is served before everything is there and was compared with its checksum.
One shard, with --shard and --to: into an empty database, to be attached in the shard's place.
One shardlet, with --map and --key: beside the running rest, by a running server; its rows are put into the
shard that owns the key now in one transaction.")]
pub struct RestoreArgs {
    /// The backup's address
    backup: String,
    /// Only one shardlet: its map
    #[arg(long, value_name = "NAME", requires = "key")]
    map: Option<MapName>,
    /// Only one shardlet: its key
    #[arg(long, value_name = "KEY", requires = "map")]
    key: Option<String>,
    /// Replace the rows the shardlet has now; otherwise it must have none
    #[arg(long, requires = "key")]
    replace: bool,
    /// Take all keys of the bucket of a hash map together, where rows do not tell their key
    #[arg(long, requires = "key")]
    bucket: bool,
    /// Only one shard, into an empty database or a new file: attach that in the shard's place then
    #[arg(long, value_name = "ID", requires = "to", conflicts_with_all = ["map", "key"])]
    shard: Option<ShardId>,
    /// Where the shard goes: postgres://user@host/database, or sqlite:/path/from/the/root
    #[arg(long, value_name = "URL", requires = "shard")]
    to: Option<String>,
    /// The environment variable that holds the password of that database
    #[arg(long, value_name = "NAME", requires = "to")]
    password_env: Option<String>,
    #[command(flatten)]
    sources: Sources,
}

/// Restores a backup: everything into a place that no server runs on, or one shardlet by a running server.
pub fn restore(
    args: &RestoreArgs,
    client: impl FnOnce() -> Result<Client, Failure>,
    output: &Output,
) -> Result<Exit, Failure> {
    let from = address(&args.backup)?;
    if let (Some(map), Some(key)) = (&args.map, &args.key) {
        let (map, key) = (map.clone(), key.clone());
        let new = NewRestore { from, map, key, replace: args.replace, bucket: args.bucket };
        let client = client()?;
        let restored = follow(client.begin_restore(&new)?, &client, output)?;
        return output
            .answer(&restored, |restored| format!("Restored {}: {} rows.\n", restored.what, restored.rows));
    }
    if let (Some(id), Some(to)) = (args.shard.clone(), args.to.clone()) {
        let (shard, place, password) = (id.clone(), to.clone(), args.password_env.clone());
        without_server(|options| async move {
            polyshard_server::restore_shard(&options, &from, &shard, &place, password.as_deref()).await
        })?;
        let answer = json!({ "restored": args.backup, "shard": id, "to": to });
        return output.answer(&answer, |_| {
            format!("Shard {id} is in {to}. Put it in its place: 'polyshard shard detach {id}', then 'shard attach'.\n")
        });
    }
    let loaded = config::load(&args.sources)?.map_err(|errors| config::refused(&errors))?;
    let loaded_config = loaded.config.clone();
    let restored =
        without_server(
            |options| async move { polyshard_server::restore(&loaded_config, &options, &from).await },
        )?;
    let data = loaded.config.data.display().to_string();
    let answer = json!({ "restored": args.backup, "data": data, "manifest": restored });
    output.answer(&answer, |_| {
        format!(
            "Restored {} shards and the catalog into {data}. Start it with 'polyshard up --data {data}'.\n",
            restored.shards.len()
        )
    })
}
