//! `polyshard shard`: the databases that hold data.

use std::num::NonZeroU64;

use clap::{Args, Subcommand};
use polyshard_admin::Client;
use polyshard_admin::types::{NewShard, ShardLimits, ShardPatch, ShardView};
use polyshard_map::{ShardId, State};

use super::{BasisFlag, explicit_word};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::{or_dash, pairs, table, yes_no};

/// Shards: databases that hold data.
#[derive(Debug, Subcommand)]
pub enum ShardCommand {
    /// Add an empty shard
    #[command(after_help = "\
Examples:
  polyshard shard add s5 --url sqlite:shards/s5.db
  polyshard shard add eu1 --url postgres://app@db1:5432/shard --password-env POLYSHARD_SHARD_EU1 --region eu")]
    Add(NewArgs),
    /// All shards
    #[command(
        after_help = "Examples:\n  polyshard shard list\n  polyshard shard list --json | jq '.shards[].id'"
    )]
    List,
    /// One shard
    #[command(after_help = "Examples:\n  polyshard shard show s1")]
    Show {
        /// Its id
        id: ShardId,
    },
    /// Take a shard out; one that holds data is refused without the explicit word
    #[command(after_help = "\
Examples:
  polyshard shard remove s5
  polyshard shard remove s5 --destroy s5     even if it holds data")]
    Remove {
        /// Its id
        id: ShardId,
        /// Its id once more: remove it even if it holds data
        #[arg(long, value_name = "ID")]
        destroy: Option<String>,
    },
    /// Change what is known about a shard, its address included
    #[command(after_help = "\
Examples:
  polyshard shard set s1 --state read_only
  polyshard shard set eu1 --url postgres://app@db9/shard     the same database elsewhere
  polyshard shard set s1 --region '' --bytes-max 1000000000   '' clears a value")]
    Set(SetArgs),
    /// Bring in a database that was a shard before, with the ranges its local map holds
    #[command(after_help = "\
Examples:
  polyshard shard attach eu1 --url postgres://app@db1:5432/shard --password-env POLYSHARD_SHARD_EU1")]
    Attach(NewArgs),
    /// Let a shard go with its data; its ranges leave the maps
    #[command(after_help = "Examples:\n  polyshard shard detach eu1")]
    Detach {
        /// Its id
        id: ShardId,
    },
}

/// A shard to add or attach.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// Its id: a lower-case letter, then a-z, 0-9, '_' and '-'
    id: ShardId,
    /// sqlite:PATH (relative to the server's data directory) or postgres://USER@HOST:PORT/DATABASE
    #[arg(long)]
    url: String,
    #[command(flatten)]
    place: PlaceArgs,
    /// The machine it is on
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    #[command(flatten)]
    limits: LimitArgs,
}

/// How a database lets the server in, and where it is.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// The server's environment variable that holds the password
    #[arg(long, value_name = "NAME", conflicts_with = "password_file")]
    pub password_env: Option<String>,
    /// The file on the server that holds the password
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<String>,
    /// The region it is in
    #[arg(long)]
    pub region: Option<String>,
    /// The tier it belongs to
    #[arg(long)]
    pub tier: Option<String>,
}

/// How much a shard may take.
#[derive(Debug, Args)]
pub struct LimitArgs {
    /// Bytes of data it may hold
    #[arg(long, value_name = "N")]
    bytes_max: Option<NonZeroU64>,
    /// Connections one server process may open to it
    #[arg(long, value_name = "N")]
    connections_max: Option<NonZeroU64>,
    /// Shardlets that may be placed on it
    #[arg(long, value_name = "N")]
    shardlets_max: Option<NonZeroU64>,
}

impl LimitArgs {
    /// The limits, or nothing when none was given.
    fn given(&self) -> Option<ShardLimits> {
        let limits = ShardLimits {
            bytes_max: self.bytes_max,
            connections_max: self.connections_max,
            shardlets_max: self.shardlets_max,
        };
        (limits != ShardLimits::default()).then_some(limits)
    }
}

/// What to change.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Its id
    id: ShardId,
    /// A new address of the same database
    #[arg(long)]
    url: Option<String>,
    /// The server's environment variable that holds the password
    #[arg(long, value_name = "NAME")]
    password_env: Option<String>,
    /// The file on the server that holds the password
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,
    /// The region it is in
    #[arg(long)]
    region: Option<String>,
    /// The tier it belongs to
    #[arg(long)]
    tier: Option<String>,
    /// The machine it is on
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
    /// online, read_only or offline
    #[arg(long)]
    state: Option<State>,
    /// All limits at once; those not given are no longer limited
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    basis: BasisFlag,
}

/// Runs the command.
pub fn run(command: &ShardCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    match command {
        ShardCommand::Add(args) => {
            let shard = client.add_shard(&new_shard(args))?;
            output.answer(&shard, |shard| format!("Added shard {} ({}).", shard.id, shard.engine))
        }
        ShardCommand::List => output.answer(&client.shards()?, |answer| shard_table(&answer.shards)),
        ShardCommand::Show { id } => output.answer(&client.shard(id)?, details),
        ShardCommand::Remove { id, destroy } => {
            let data = explicit_word(destroy.as_deref(), id.as_str())?;
            client.remove_shard(id, data)?;
            output.answer(&serde_json::json!({ "removed": id }), |_| format!("Removed shard {id}."))
        }
        ShardCommand::Set(args) => {
            let patch = patch(args);
            if patch.is_empty() {
                return Err(polyshard_admin::Problem::new(
                    polyshard_admin::ErrorCode::Invalid,
                    format!("nothing to change about shard {}", args.id),
                )
                .with_remedy("give at least one of the flags in 'polyshard shard set --help'")
                .into());
            }
            let shard = client.set_shard(&args.id, &patch, args.basis.basis())?;
            output.answer(&shard, |shard| {
                format!("Changed shard {}; its version is {}.", shard.id, shard.version)
            })
        }
        ShardCommand::Attach(args) => {
            let shard = client.attach_shard(&new_shard(args))?;
            output
                .answer(&shard, |shard| format!("Attached shard {} with {} ranges.", shard.id, shard.ranges))
        }
        ShardCommand::Detach { id } => {
            client.detach_shard(id)?;
            let people = |_: &_| format!("Detached shard {id}; its data stays where it is.");
            output.answer(&serde_json::json!({ "detached": id }), people)
        }
    }
}

fn new_shard(args: &NewArgs) -> NewShard {
    NewShard {
        id: args.id.clone(),
        url: args.url.clone(),
        password_env: args.place.password_env.clone(),
        password_file: args.place.password_file.clone(),
        region: args.place.region.clone(),
        tier: args.place.tier.clone(),
        server: args.machine.clone(),
        limits: args.limits.given(),
    }
}

fn patch(args: &SetArgs) -> ShardPatch {
    let cleared = |value: &Option<String>| value.clone().map(|text| (!text.is_empty()).then_some(text));
    ShardPatch {
        url: args.url.clone(),
        password_env: cleared(&args.password_env),
        password_file: cleared(&args.password_file),
        region: cleared(&args.region),
        tier: cleared(&args.tier),
        server: cleared(&args.machine),
        limits: args.limits.given(),
        state: args.state,
    }
}

/// The shards, one a line.
pub fn shard_table(shards: &[ShardView]) -> String {
    if shards.is_empty() {
        return "No shards yet: polyshard shard add ID --url URL\n".to_owned();
    }
    table(
        ["shard", "engine", "state", "reachable", "ranges", "region", "tier", "url"],
        shards.iter().map(|shard| {
            [
                shard.id.to_string(),
                shard.engine.to_string(),
                shard.state.to_string(),
                yes_no(shard.reachable),
                shard.ranges.to_string(),
                or_dash(&shard.region),
                or_dash(&shard.tier),
                shard.url.clone(),
            ]
        }),
    )
}

fn details(shard: &ShardView) -> String {
    pairs([
        ("shard", shard.id.to_string()),
        ("engine", shard.engine.to_string()),
        ("url", shard.url.clone()),
        ("state", shard.state.to_string()),
        ("reachable", yes_no(shard.reachable)),
        ("ranges", shard.ranges.to_string()),
        ("region", or_dash(&shard.region)),
        ("tier", or_dash(&shard.tier)),
        ("machine", or_dash(&shard.server)),
        ("bytes max", or_dash(&shard.limits.bytes_max)),
        ("connections max", or_dash(&shard.limits.connections_max)),
        ("shardlets max", or_dash(&shard.limits.shardlets_max)),
        ("incarnation", or_dash(&shard.incarnation)),
        ("fence epoch", or_dash(&shard.fence_epoch)),
        ("version", shard.version.to_string()),
    ])
}
