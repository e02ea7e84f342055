//! `polyshard map spill`: new data of a map flows to another shard, and nothing is moved.

use clap::Args;
use polyshard_admin::Client;
use polyshard_admin::types::{SpillAnswer, SpillRequest};
use polyshard_map::{MapName, ShardId};

use crate::exit::{Exit, Failure};
use crate::output::Output;

/// `map spill`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard map spill orders --to s2             from above the highest key in use, new data goes to s2
  polyshard map spill orders --auto              by itself, when the shard of the last range is full
  polyshard map spill orders --auto --to s2,s3   to these, in order
  polyshard map spill orders --no-auto

A shard is full when 90 % of its limit is used ('polyshard shard set s1 --bytes-max …'). Nothing is moved: what is
there stays, new keys go on, and queries look in both.")]
pub struct SpillArgs {
    /// The map: a range map whose last range has no end
    name: MapName,
    /// The shards, in order [default: that of the same region and tier with the most room]
    #[arg(long, value_name = "SHARD,…", value_delimiter = ',')]
    to: Vec<ShardId>,
    /// Do so by itself whenever the shard of the last range is full
    #[arg(long)]
    auto: bool,
    /// Do not do so by itself any longer
    #[arg(long, conflicts_with = "auto")]
    no_auto: bool,
    /// Only say where to
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub fn run(args: &SpillArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let auto = match (args.auto, args.no_auto) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    let request = SpillRequest { to: args.to.clone(), auto, dry_run: args.dry_run };
    output.answer(&client.spill(&args.name, &request)?, words)
}

fn words(answer: &SpillAnswer) -> String {
    let range = answer.range.as_ref().map_or_else(String::new, |range| format!("{range}: "));
    format!("{range}{}.\n", answer.says)
}
