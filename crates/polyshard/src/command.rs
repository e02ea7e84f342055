//! One file per noun: from flags to one call of the client, and its answer in words.

pub mod adopt;
pub mod archive;
pub mod backup;
pub mod balance;
pub mod change;
pub mod check;
pub mod config;
pub mod dataset;
pub mod hot;
pub mod map;
pub mod map_words;
pub mod moves;
pub mod ops;
pub mod quota;
pub mod schema;
pub mod shard;
pub mod spill;
pub mod status;
pub mod token;
pub mod top;
pub mod up;
pub mod user;
pub mod writes;

use crate::args::{Cli, Command, shape};
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Runs the command.
pub fn run(cli: &Cli, output: &Output) -> Result<Exit, Failure> {
    match &cli.command {
        Command::Up(args) => up::run(args),
        Command::Demo(args) => crate::demo::run(args, output),
        Command::Status => status::run(&cli.global.client()?, output),
        Command::Top(args) => top::run(args, &cli.global.client()?, output),
        Command::Hot(args) => hot::run(args, &cli.global.client()?, output),
        Command::Shard(command) => shard::run(command, &cli.global.client()?, output),
        Command::Map(command) => map::run(command, &cli.global.client()?, output),
        Command::Stores => dataset::stores(&cli.global.client()?, output),
        Command::Datasets => dataset::list(&cli.global.client()?, output),
        Command::Bind(args) => dataset::bind(args, &cli.global.client()?, output),
        Command::Unbind { dataset } => dataset::unbind(dataset, &cli.global.client()?, output),
        Command::Move(args) => moves::run_move(args, &cli.global.client()?, output),
        Command::Drain(args) => balance::run_drain(args, &cli.global.client()?, output),
        Command::Rebalance(args) => balance::run_rebalance(args, &cli.global.client()?, output),
        Command::Isolate(args) => balance::run_isolate(args, &cli.global.client()?, output),
        Command::Adopt(args) => adopt::run(args, &cli.global.client()?, output),
        Command::Rule(command) => balance::run_rule(command, &cli.global.client()?, output),
        Command::Quota(command) => quota::run(command, &cli.global.client()?, output),
        Command::Writes(command) => writes::run(command, &cli.global.client()?, output),
        Command::User(command) => user::run(command, &cli.global.client()?, output),
        Command::Token(command) => token::run(command, &cli.global.client()?, output),
        Command::Check(args) => check::run(args, &cli.global.client()?, output),
        Command::Link(command) => check::run_link(command, &cli.global.client()?, output),
        Command::Table(command) => schema::run_table(command, &cli.global.client()?, output),
        Command::Load(args) => crate::load::run(args, output),
        Command::Schema(command) => schema::run_schema(command, &cli.global.client()?, output),
        Command::Archive(command) => archive::run(command, &cli.global.client()?, output),
        Command::Ops(command) => ops::run(command, &cli.global.client()?, output),
        Command::Backup(command) => backup::run(command, || cli.global.client(), output),
        Command::Restore(args) => backup::restore(args, || cli.global.client(), output),
        Command::Config(command) => config::run(command, output),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut shape(), "polyshard", &mut script);
            output.bytes(&script)?;
            Ok(Exit::Ok)
        }
    }
}

/// The version a change is based on.
#[derive(Debug, Clone, Copy, clap::Args)]
#[group(skip)]
pub struct BasisFlag {
    /// Change it only if this is still its version; otherwise exit with 4
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
}

impl BasisFlag {
    /// The basis the flag stands for.
    pub fn basis(self) -> polyshard_admin::Basis {
        self.if_version.map_or(polyshard_admin::Basis::Current, polyshard_admin::Basis::Version)
    }
}

/// The explicit word for what holds data: its name once more.
pub fn explicit_word(
    destroy: Option<&str>,
    name: &str,
) -> Result<polyshard_admin::Data, polyshard_admin::Problem> {
    match destroy {
        None => Ok(polyshard_admin::Data::Keep),
        Some(word) if word == name => Ok(polyshard_admin::Data::Destroy),
        Some(word) => Err(polyshard_admin::Problem::invalid(
            "--destroy",
            format!("it says {word:?}, but {name:?} is being removed"),
        )
        .with_remedy(format!("repeat the name, --destroy {name}, or leave it out"))),
    }
}
