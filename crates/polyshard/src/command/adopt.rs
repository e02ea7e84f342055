//! `polyshard adopt`: an existing database becomes a shard, with its rows.

use clap::Args;
use polyshard_admin::Client;
use polyshard_admin::types::{AdoptAnswer, AdoptRequest, MapKind};
use polyshard_map::{MapName, ShardId};

use super::moves;
use super::shard::PlaceArgs;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::{or_dash, table};

/// `adopt`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard adopt postgres://app@db1/shop --map tenants --key-column tenant_id --dry-run
  polyshard adopt postgres://app@db1/shop --map tenants --key-column tenants=id --wait
  polyshard move tenants --key 42 --to s2 --wait                then move tenants out of it, online

The database stays where it is, with its rows. Tables that have the key column are sharded by it, all others
are copied to every shard. All keys belong to the new shard at once. --dry-run shows what would be declared,
and what must be changed first.")]
pub struct AdoptArgs {
    /// postgres://USER@HOST:PORT/DATABASE, without a password
    url: String,
    /// The map to make for its rows
    #[arg(long)]
    map: MapName,
    /// COLUMN, the key of every table that has it, or TABLE=COLUMN; may be repeated
    #[arg(long = "key-column", value_name = "[TABLE=]COLUMN", required = true)]
    key_columns: Vec<String>,
    /// The type of the keys: bigint, int, text, uuid …
    #[arg(long, value_name = "TYPE", default_value = "bigint")]
    key: String,
    /// What kind of map: range (any key can be cut out), hash, or list (one entry for each key there is)
    #[arg(long, value_name = "KIND", default_value = "range", value_parser = ["range", "hash", "list"])]
    kind: String,
    /// The name that it gets as a shard
    #[arg(long = "as", value_name = "ID", default_value = "main")]
    shard: ShardId,
    #[command(flatten)]
    place: PlaceArgs,
    /// Only look, and say what would be done and what must change first
    #[arg(long)]
    dry_run: bool,
    /// Return when it is done; exit with 4 if it was rolled back
    #[arg(long)]
    wait: bool,
}

/// Runs the command.
pub fn run(args: &AdoptArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let request = AdoptRequest {
        shard: args.shard.clone(),
        url: args.url.clone(),
        password_env: args.place.password_env.clone(),
        password_file: args.place.password_file.clone(),
        region: args.place.region.clone(),
        tier: args.place.tier.clone(),
        map: args.map.clone(),
        kind: match args.kind.as_str() {
            "hash" => MapKind::Hash,
            "list" => MapKind::List,
            _ => MapKind::Range,
        },
        key: args.key.clone(),
        key_columns: args.key_columns.clone(),
        dry_run: args.dry_run,
    };
    let answer = client.adopt(&request)?;
    output.answer(&answer, words)?;
    if let (Some(id), true) = (&answer.procedure, args.wait) {
        moves::wait(id, client, output)?;
    }
    match answer.must_change.is_empty() {
        true => Ok(Exit::Ok),
        false => Ok(Exit::Conflict),
    }
}

fn words(answer: &AdoptAnswer) -> String {
    let mut text = table(
        ["table", "placed", "key", "rows"],
        answer.tables.iter().map(|one| {
            let placed = match &one.key {
                Some(_) => "by the map",
                None => "on every shard",
            };
            [one.table.clone(), placed.to_owned(), or_dash(&one.key), one.rows.to_string()]
        }),
    );
    for what in &answer.must_change {
        text.push_str(&format!("Must change: {what}\n"));
    }
    text + &moves::step_words(&answer.steps) + &moves::begun_words(answer.procedure.as_deref())
}
