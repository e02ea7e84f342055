//! The command line's shape: nouns, verbs, flags and their help.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use polyshard_admin::{Client, DEVELOPMENT_TOKEN, ErrorCode, Problem};

use crate::command::{
    adopt, archive, backup, balance, check, config, dataset, hot, map, moves, ops, quota, schema, shard,
    token, top, up, user, writes,
};
use crate::exit::{Exit, Failure};
use crate::output::{self, Format};

/// One shard map for every store you run
///
/// Polyshard places tenants on shards, routes every request to the right one, and lets you change the map while
/// traffic runs. 'polyshard up' starts a server; the other commands operate one over its admin API.
#[derive(Debug, Parser)]
#[command(
    name = "polyshard",
    version,
    after_help = "\
Examples:
  polyshard up                                            start on four embedded shards
  polyshard map create tenants --kind hash --key bigint   make a map over all shards
  polyshard map locate tenants 42                         where is key 42?
  polyshard status --json                                 everything, for a script

Exit codes:
  0 done   1 failed   2 wrong command line or value   3 not found
  4 changed meanwhile, conflict, or differences found   5 server, catalog or shard unavailable"
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The server's admin address
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "POLYSHARD_SERVER",
        default_value = "http://127.0.0.1:7070"
    )]
    pub server: String,
    /// The server's admin token; without one, the development token, which works on loopback only
    #[arg(long, global = true, value_name = "TOKEN", env = "POLYSHARD_TOKEN", hide_env_values = true,
        default_value = DEVELOPMENT_TOKEN, hide_default_value = true)]
    pub token: String,
    /// Answer in JSON, errors (on stderr) too
    #[arg(long, global = true)]
    pub json: bool,
}

impl Global {
    /// For whom the output is.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { Format::People }
    }

    /// A client of the server.
    pub fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(&self.server, &self.token)?)
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a server in the foreground; ends cleanly on SIGTERM and Ctrl-C
    Up(up::UpArgs),
    /// See it work: a server of its own with data, customers and moves, for a minute
    Demo(crate::demo::DemoArgs),
    /// The state of the whole: catalog, shards, maps, front doors
    #[command(after_help = "Examples:\n  polyshard status\n  polyshard status --json")]
    Status,
    /// Who is busy: shards and the hottest keys, live
    Top(top::TopArgs),
    /// The keys that get the most requests
    Hot(hot::HotArgs),
    /// Shards: databases that hold data
    #[command(subcommand)]
    Shard(shard::ShardCommand),
    /// Maps: which key is on which shard
    #[command(subcommand)]
    Map(Box<map::MapCommand>),
    /// Stores: what each holds, where it is spoken to, what its keys can be derived from
    #[command(after_help = "Examples:\n  polyshard stores\n  polyshard stores --json")]
    Stores,
    /// Datasets: tables, queues and containers, and which map places them
    #[command(after_help = "Examples:\n  polyshard datasets\n  polyshard datasets --json")]
    Datasets,
    /// Have a table, queue or container placed by a map of yours, with the rest of a tenant's data
    Bind(dataset::BindArgs),
    /// Forget what a name is bound to; what exists under it stays where it is
    #[command(after_help = "Examples:\n  polyshard unbind table:orders")]
    Unbind {
        /// STORE:NAME, as in queue:jobs; of another account than the first, STORE:ACCOUNT/NAME
        dataset: String,
    },
    /// Move keys, with all their rows, to another shard while requests go on
    Move(Box<moves::MoveArgs>),
    /// Empty a shard: move everything on it elsewhere
    Drain(balance::DrainArgs),
    /// Even out a map's load over the shards
    Rebalance(balance::RebalanceArgs),
    /// Give a key a shard of its own, and keep it so
    Isolate(Box<balance::IsolateArgs>),
    /// Take an existing PostgreSQL database in as a shard, with its rows
    Adopt(Box<adopt::AdoptArgs>),
    /// Rules that placement heeds: regions, tiers, keys kept apart or alone
    #[command(subcommand)]
    Rule(balance::RuleCommand),
    /// Quotas: how many requests a second a key, a table or a queue may have
    #[command(subcommand)]
    Quota(quota::QuotaCommand),
    /// Writes on several shards: whether every shard has them
    #[command(subcommand)]
    Writes(writes::WritesCommand),
    /// Users: who may come in at the front doors, and what each may do
    #[command(subcommand)]
    User(Box<user::UserCommand>),
    /// Tokens: who may operate, and how far
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Look for rows in the wrong place, tables that differ and links that name nothing; put them right if asked to
    Check(check::CheckArgs),
    /// Links: columns that name rows of another table, whose shard may be another too
    #[command(subcommand)]
    Link(check::LinkCommand),
    /// SQL tables: how each is placed
    #[command(subcommand)]
    Table(schema::TableCommand),
    /// Load a CSV, TSV or Parquet file into a SQL table, each row to its shard
    Load(Box<crate::load::LoadArgs>),
    /// The schema of the SQL tables, the same on every shard
    #[command(subcommand)]
    Schema(schema::SchemaCommand),
    /// Operations: changes under way and done
    #[command(subcommand)]
    Ops(ops::OpsCommand),
    /// Archives: old ranges in a folder or object store instead of on a shard
    #[command(subcommand)]
    Archive(archive::ArchiveCommand),
    /// Backups: everything at one moment, taken while requests go on
    #[command(subcommand)]
    Backup(backup::BackupCommand),
    /// Restore a backup into an empty place, or one shardlet of it beside the running rest
    Restore(backup::RestoreArgs),
    /// The configuration file
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Completions for a shell, on stdout
    #[command(after_help = "Examples:\n  polyshard completions bash > /etc/bash_completion.d/polyshard")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// A command line that is not one; also `--help` and `--version`, which end here.
#[derive(Debug)]
pub struct Refused {
    error: clap::Error,
    format: Format,
}

impl Refused {
    /// Prints it and gives the exit code.
    pub fn show(self) -> ExitCode {
        if self.error.use_stderr() && self.format == Format::Json {
            let text = self.error.render().to_string();
            let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned();
            output::say(self.format, Problem::new(ErrorCode::Invalid, message).with_remedy("see --help"));
            return Exit::Usage.into();
        }
        let exit = if self.error.use_stderr() { Exit::Usage } else { Exit::Ok };
        // When nobody reads it, the exit code still says it.
        let _gone = self.error.print();
        exit.into()
    }
}

/// Reads the command line.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Refused> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let format = if arguments.iter().any(|a| a == "--json") { Format::Json } else { Format::People };
    Cli::try_parse_from(arguments).map_err(|error| Refused { error, format })
}

/// The shape itself, for completions and tests.
pub fn shape() -> clap::Command {
    Cli::command()
}
