//! `polyshard hot`: which shardlets are busiest, largest, or hardly used.

use clap::Args;
use polyshard_admin::Client;
use polyshard_admin::types::{HOT_DEFAULT, HotAnswer, HotBy, HotRequest, LargeAnswer};
use polyshard_map::MapName;

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::{or_dash, size, table};

/// `hot`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard hot                          the keys with the most requests
  polyshard hot --by bytes --limit 5     those whose requests and answers have the most bytes
  polyshard hot --by size                those with the most data
  polyshard hot --cold --map tenants     what is hardly used, the largest first
  polyshard hot --json

One request in eight is looked at, by every server process; sizes of large tables are estimates.")]
pub struct HotArgs {
    /// How many
    #[arg(long, value_name = "N", default_value_t = HOT_DEFAULT)]
    limit: u32,
    /// What they are sorted by: requests, bytes (of requests and answers) or size (of their rows)
    #[arg(long, value_name = "WHAT", default_value = "requests", value_parser = ["requests", "bytes", "size"])]
    by: String,
    /// What is hardly used instead, the largest first
    #[arg(long, conflicts_with = "by")]
    cold: bool,
    /// Those of this map only
    #[arg(long)]
    map: Option<MapName>,
}

/// The busiest, largest or least used shardlets.
pub fn run(args: &HotArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    if args.by == "size" {
        return output.answer(&client.large(args.limit, args.map.as_ref())?, large_table);
    }
    let by = if args.by == "bytes" { HotBy::Bytes } else { HotBy::Requests };
    let (limit, map) = (Some(args.limit), args.map.clone());
    let answer = client.busy(&HotRequest { limit, by: Some(by), map, cold: args.cold })?;
    let words = if args.cold { cold_table } else { hot_table };
    output.answer(&answer, words)
}

/// The busiest as a table.
pub fn hot_table(hot: &HotAnswer) -> String {
    if hot.shardlets.is_empty() {
        return "No requests that name a key have come lately.\n".to_owned();
    }
    let shown = table(
        ["hot key", "map", "shard", "req/s", "bytes/s"],
        hot.shardlets.iter().map(|one| {
            [
                one.key.to_string(),
                one.map.to_string(),
                or_dash(&one.shard),
                format!("{:.1}", one.requests_per_s),
                size(one.bytes_per_s as u64),
            ]
        }),
    );
    match hot.processes {
        0 | 1 => shown,
        processes => format!("{shown}Counted by {processes} server processes.\n"),
    }
}

fn cold_table(hot: &HotAnswer) -> String {
    if hot.cold.is_empty() {
        return "There are no rows yet.\n".to_owned();
    }
    let about = |estimated: bool| if estimated { "~" } else { "" };
    table(
        ["cold range", "map", "shard", "req/s", "rows", "bytes"],
        hot.cold.iter().map(|one| {
            [
                one.range.to_string(),
                one.map.to_string(),
                one.shard.to_string(),
                format!("{:.1}", one.requests_per_s),
                format!("{}{}", about(one.estimated), one.rows),
                format!("~{}", size(one.bytes)),
            ]
        }),
    )
}

fn large_table(large: &LargeAnswer) -> String {
    let mut left_out: String = large
        .left_out
        .iter()
        .map(|left| {
            let what = left.dataset.as_ref().map_or_else(String::new, |dataset| format!(", {dataset}"));
            format!("Left out: shard {}{what}: {}.\n", left.shard, left.why)
        })
        .collect();
    if large.left_out_more > 0 {
        left_out.push_str(&format!("Left out: {} more.\n", large.left_out_more));
    }
    if large.shardlets.is_empty() {
        return format!("There are no rows yet.\n{left_out}");
    }
    let shown = table(
        ["large key", "map", "shard", "rows", "bytes"],
        large.shardlets.iter().map(|one| {
            let bucket = || one.bucket.map_or_else(|| "-".to_owned(), |bucket| format!("bucket {bucket}"));
            [
                one.key.as_ref().map_or_else(bucket, ToString::to_string),
                one.map.to_string(),
                one.shard.to_string(),
                format!("{}{}", if one.sampled { "~" } else { "" }, one.rows),
                format!("~{}", size(one.bytes)),
            ]
        }),
    );
    format!("{shown}{left_out}")
}
