//! `polyshard drain`, `rebalance`, `isolate` and `rule`: where load should be.

use clap::{Args, Subcommand};
use polyshard_admin::Client;
use polyshard_admin::types::{
    BalanceAnswer, BalanceBy, BalanceRequest, IsolateRequest, KeyText, NewRule, RangeView, RuleView,
    RulesAnswer,
};
use polyshard_map::{MapName, ShardId};

use super::change::Lease;
use super::moves;
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::selector::{Buckets, Ends, SegmentFlag, Selector};
use crate::table::{size, table};

/// `drain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard drain s2            which moves would empty it
  polyshard drain s2 --apply    make them, one after the other

The server makes the moves, also when this command is interrupted; see 'polyshard ops list'.")]
pub struct DrainArgs {
    /// The shard to be emptied
    shard: ShardId,
    /// Make the moves; without it they are only shown
    #[arg(long)]
    apply: bool,
    /// Return at once instead of following
    #[arg(long, requires = "apply")]
    detach: bool,
}

/// `rebalance`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard rebalance tenants --plan                what would move, and why
  polyshard rebalance tenants --plan --by rows      by rows alone
  polyshard rebalance tenants --apply               make the moves, one after the other

Plans heed the rules ('polyshard rule list') and the limits of shards. The server makes the moves, also when
this command is interrupted; see 'polyshard ops list'.")]
pub struct RebalanceArgs {
    /// The map
    name: MapName,
    /// Show the moves
    #[arg(long, required_unless_present = "apply", conflicts_with = "apply")]
    plan: bool,
    /// Make them
    #[arg(long)]
    apply: bool,
    /// How far a shard may be above the mean, in percent [default: 10]
    #[arg(long, value_name = "PERCENT")]
    slack: Option<u64>,
    /// What is evened out: load (requests and bytes), requests, bytes or rows
    #[arg(long, value_name = "WHAT", default_value = "load", value_parser = ["load", "requests", "bytes", "rows"])]
    by: String,
    /// Return at once instead of following
    #[arg(long, requires = "apply")]
    detach: bool,
}

/// `isolate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard isolate tenants --key 42 --wait         a shard of its own: an empty one, or a new embedded one
  polyshard isolate tenants --key 42 --to big1      this one, which must be empty
  polyshard isolate tenants --key 42 --dry-run      what would be done

On a hash map all of the key's bucket goes. A rule keeps others away; see 'polyshard rule list'.")]
pub struct IsolateArgs {
    /// The map
    name: MapName,
    #[command(flatten)]
    selector: Selector,
    /// The shard, which must be empty; without it one is found or made
    #[arg(long, value_name = "SHARD")]
    to: Option<ShardId>,
    /// How long the old shard keeps its rows afterwards, so that the move can be undone: 10m, 2h [default: not at all]
    #[arg(long, value_name = "TIME")]
    keep: Option<Lease>,
    /// Only check whether it can be done
    #[arg(long)]
    dry_run: bool,
    /// Return when it is done; exit with 4 if it was rolled back
    #[arg(long)]
    wait: bool,
}

/// Rules that placement heeds.
#[derive(Debug, Subcommand)]
pub enum RuleCommand {
    /// Record a rule: where keys stay, what is kept apart, who is alone
    #[command(after_help = "\
Examples:
  polyshard rule add tenants --key 42 --region eu       stays on shards of that region
  polyshard rule add tenants --range 0..1000 --tier ssd
  polyshard rule add tenants --key 42 --alone           has its shard to itself
  polyshard rule add tenants --apart 7,8,9              no two of them on one shard")]
    Add(Box<RuleArgs>),
    /// All rules
    #[command(after_help = "Examples:\n  polyshard rule list\n  polyshard rule list --json")]
    List,
    /// Forget a rule
    #[command(after_help = "Examples:\n  polyshard rule remove 8f14e45f-ceea-467f-9a8b-0d6e5b0a7c11")]
    Remove {
        /// Its id
        id: String,
    },
}

/// A rule.
#[derive(Debug, Args)]
#[group(skip)]
pub struct RuleArgs {
    /// The map
    name: MapName,
    /// One key
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, group = "which")]
    key: Option<String>,
    /// Keys from LO (included) to HI (not included); an empty side is infinite, '..' is everything
    #[arg(long, value_name = "LO..HI", allow_hyphen_values = true, group = "which")]
    range: Option<Ends>,
    /// Buckets of a hash map, from A (included) to B (not included)
    #[arg(long, value_name = "A..B", group = "which")]
    buckets: Option<Buckets>,
    #[command(flatten)]
    segment: SegmentFlag,
    /// The region that the keys stay in
    #[arg(long, group = "says", requires = "which")]
    region: Option<String>,
    /// The tier that the keys stay in
    #[arg(long, group = "says", requires = "which")]
    tier: Option<String>,
    /// The keys have their shard to themselves
    #[arg(long, group = "says", requires = "which")]
    alone: bool,
    /// Keys of which no two are on one shard
    #[arg(
        long,
        group = "says",
        value_name = "KEY,…",
        value_delimiter = ',',
        allow_hyphen_values = true,
        required_unless_present_any = ["region", "tier", "alone"],
        conflicts_with = "which"
    )]
    apart: Vec<String>,
}

/// `drain`.
pub fn run_drain(args: &DrainArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let request = BalanceRequest { drain: Some(args.shard.clone()), slack: None, by: None };
    let empty = format!("{} is empty", args.shard);
    let mut plans = Vec::new();
    for map in client.maps()?.maps {
        if !args.apply {
            plans.push(client.balance(&map.name, &request)?);
            continue;
        }
        let plan = client.rebalance(&map.name, &request)?;
        if output.format() == Format::People {
            output.text(&plan_words(&plan, &empty))?;
        }
        if let (Some(id), false) = (&plan.procedure, args.detach) {
            moves::wait(id, client, output)?;
        }
        plans.push(plan);
    }
    let rest = |plans: &Vec<BalanceAnswer>| match args.apply {
        // People have seen each when it was begun.
        true => String::new(),
        false => plans.iter().map(|plan| plan_words(plan, &empty)).collect(),
    };
    output.answer(&plans, rest)
}

/// `rebalance`.
pub fn run_rebalance(args: &RebalanceArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let by = match args.by.as_str() {
        "requests" => BalanceBy::Requests,
        "bytes" => BalanceBy::Bytes,
        "rows" => BalanceBy::Rows,
        _ => BalanceBy::Load,
    };
    let request = BalanceRequest { drain: None, slack: args.slack, by: Some(by) };
    let plan = match args.apply {
        true => client.rebalance(&args.name, &request)?,
        false => client.balance(&args.name, &request)?,
    };
    output.answer(&plan, |plan| plan_words(plan, "it is even enough"))?;
    if let (Some(id), false) = (&plan.procedure, args.detach) {
        moves::wait(id, client, output)?;
    }
    Ok(Exit::Ok)
}

/// `isolate`.
pub fn run_isolate(args: &IsolateArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let request = IsolateRequest {
        range: args.selector.range(),
        to: args.to.clone(),
        keep_ms: args.keep.map_or(0, Lease::ms),
        dry_run: args.dry_run,
    };
    let answer = client.isolate(&args.name, &request)?;
    output.answer(&answer, |answer| moves::words(answer, args.dry_run, args.wait))?;
    if args.wait {
        moves::wait_for_all(&answer, client, output)?;
    }
    Ok(Exit::Ok)
}

/// `rule`.
pub fn run_rule(command: &RuleCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    match command {
        RuleCommand::Add(args) => {
            let rule = client.add_rule(&args.name, &new_rule(args))?;
            output.answer(&rule, |rule| format!("Rule {}: {}.\n", rule.id, rule.says))
        }
        RuleCommand::List => output.answer(&client.rules()?, rule_table),
        RuleCommand::Remove { id } => {
            client.remove_rule(id)?;
            output.answer(&serde_json::json!({ "removed": id }), |_| format!("Removed rule {id}.\n"))
        }
    }
}

fn new_rule(args: &RuleArgs) -> NewRule {
    let range = || {
        let (key, range) = (args.key.clone(), args.range.clone());
        let (buckets, segment) = (args.buckets.clone(), args.segment.clone());
        Selector { key, range, buckets, segment }.range()
    };
    match (&args.region, &args.tier, args.alone) {
        (Some(region), _, _) => NewRule::Region { range: range(), region: region.clone() },
        (_, Some(tier), _) => NewRule::Tier { range: range(), tier: tier.clone() },
        (_, _, true) => NewRule::Alone { range: range() },
        _ => {
            let key = |key: &String| RangeView::Key { key: KeyText::text(key) };
            NewRule::Apart { ranges: args.apart.iter().map(key).collect() }
        }
    }
}

fn rule_table(answer: &RulesAnswer) -> String {
    if answer.rules.is_empty() {
        return "No rules.\n".to_owned();
    }
    let row = |rule: &RuleView| [rule.id.clone(), rule.map.to_string(), rule.says.clone()];
    table(["rule", "map", "says"], answer.rules.iter().map(row))
}

fn plan_words(plan: &BalanceAnswer, nothing: &str) -> String {
    let after = |now: String, after: String| if now == after { now } else { format!("{now} → {after}") };
    let loads = table(
        ["shard", "rows", "bytes", "requests/s", "room"],
        plan.shards.iter().map(|load| {
            [
                load.shard.to_string(),
                after(load.rows.to_string(), load.rows_after.to_string()),
                after(size(load.bytes), size(load.bytes_after)),
                after(load.requests_per_s.to_string(), load.requests_per_s_after.to_string()),
                load.room_bytes.map_or_else(|| "-".to_owned(), size),
            ]
        }),
    );
    let moves = match plan.moves.is_empty() {
        true => format!("Nothing to move: {nothing}.\n"),
        false => table(
            ["range", "from", "to", "rows", "bytes", "why"],
            plan.moves.iter().map(|planned| {
                [
                    planned.range.to_string(),
                    planned.from.to_string(),
                    planned.to.to_string(),
                    planned.rows.to_string(),
                    size(planned.bytes),
                    planned.why.clone(),
                ]
            }),
        ),
    };
    let estimated = plan.estimated.then_some(
        "rows and bytes are estimates from a sample of the larger tables; moves count and compare exactly",
    );
    let notes = plan.notes.iter().map(String::as_str).chain(estimated);
    let notes: String = notes.map(|note| format!("Note: {note}.\n")).collect();
    let begun = plan.procedure.as_ref().map(|id| format!("Operation {id} makes the moves.\n"));
    let by_itself = plan.by_itself.as_ref().map(|says| format!("By itself: {says}.\n"));
    let last = [by_itself, begun].into_iter().flatten().collect::<String>();
    format!("Map {}:\n{loads}\n{moves}{notes}{last}", plan.map)
}
