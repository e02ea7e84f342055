//! `polyshard move`, `drain`, `rebalance` and `check`: rows that change their shard, and rows that should.

use std::time::Duration;

use clap::Args;
use polyshard_admin::types::{
    BalanceAnswer, BalanceRequest, ChangeRequest, MoveAnswer, MoveRequest, OperationState, OperationView,
    RangeView, RowsCheckAnswer, SetStateChange,
};
use polyshard_admin::{Basis, Client, ErrorCode, Problem};
use polyshard_map::{MapName, ShardId, State};

use super::BasisFlag;
use super::change::Lease;
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::selector::Selector;
use crate::table::table;

/// How often a move that is waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// `move`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard move tenants --key 42 --to s3 --wait              one tenant; on a hash map all of its bucket
  polyshard move tenants --buckets 0..16 --to s3 --dry-run    what would be carried, and whether it can be
  polyshard move tenants --range 100..200 --to s3 --keep 1h   can be undone for an hour
  polyshard move tenants --key 42 --to s3 --offline           nobody writes there meanwhile

Readers and writers go on while rows are carried. At the switch they wait for some milliseconds.
'polyshard ops follow' shows how far it is; cancel, pause and undo are there, too.")]
pub struct MoveArgs {
    /// The map
    name: MapName,
    #[command(flatten)]
    selector: Selector,
    /// Where to
    #[arg(long, value_name = "SHARD")]
    to: ShardId,
    /// How long the old shard keeps its rows afterwards, so that the move can be undone: 10m, 2h [default: not at all]
    #[arg(long, value_name = "TIME")]
    keep: Option<Lease>,
    /// Only check whether it can be done, and say how much there is to carry
    #[arg(long)]
    dry_run: bool,
    /// Make the range read-only first, and online again afterwards; implies --wait
    #[arg(long, conflicts_with = "dry_run")]
    offline: bool,
    /// Return when it is done; exit with 4 if it was rolled back
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    basis: BasisFlag,
}

/// `drain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard drain s2            which moves would empty it
  polyshard drain s2 --apply    make them, one after the other")]
pub struct DrainArgs {
    /// The shard to be emptied
    shard: ShardId,
    /// Make the moves; without it they are only shown
    #[arg(long)]
    apply: bool,
}

/// `rebalance`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard rebalance tenants --plan     what would move, and why
  polyshard rebalance tenants --apply    make the moves, one after the other")]
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
}

/// `move`.
pub fn run_move(args: &MoveArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let range = args.selector.range();
    if args.offline {
        set_state(client, args, &range, State::ReadOnly)?;
    }
    let moved = begin_and_wait(args, &range, client, output);
    if args.offline {
        // Also when the move failed: the range goes on where it is.
        set_state(client, args, &range, State::Online)?;
    }
    moved
}

fn begin_and_wait(
    args: &MoveArgs,
    range: &RangeView,
    client: &Client,
    output: &Output,
) -> Result<Exit, Failure> {
    let request = MoveRequest {
        range: range.clone(),
        to: args.to.clone(),
        keep_ms: args.keep.map_or(0, Lease::ms),
        dry_run: args.dry_run,
    };
    let basis = if args.offline { Basis::Current } else { args.basis.basis() };
    let answer = client.move_range(&args.name, &request, basis)?;
    output.answer(&answer, |answer| words(answer, args.dry_run))?;
    if args.wait || args.offline {
        for part in &answer.parts {
            if let Some(id) = &part.operation {
                wait(id, client, output)?;
            }
        }
    }
    Ok(Exit::Ok)
}

fn set_state(client: &Client, args: &MoveArgs, range: &RangeView, state: State) -> Result<(), Failure> {
    let change = ChangeRequest::SetState(SetStateChange { range: range.clone(), state });
    let basis = if state == State::ReadOnly { args.basis.basis() } else { Basis::Current };
    client.change(&args.name, &change, None, basis)?;
    Ok(())
}

/// Waits for an operation to end, showing how far it is; a failure if it was rolled back.
pub fn wait(id: &str, client: &Client, output: &Output) -> Result<OperationView, Failure> {
    let mut shown = String::new();
    loop {
        let operation = client.operation(id)?;
        let line = super::ops::progress(&operation);
        if output.format() == Format::People && line != shown {
            output.text(&line)?;
            shown = line;
        }
        match operation.state {
            OperationState::Running => std::thread::sleep(LOOK_EVERY),
            OperationState::Done => return Ok(operation),
            OperationState::RolledBack => {
                let why = operation.message.unwrap_or_else(|| "no reason was recorded".to_owned());
                return Err(
                    Problem::new(ErrorCode::Conflict, format!("the move was rolled back: {why}")).into()
                );
            }
        }
    }
}

/// `drain`.
pub fn run_drain(args: &DrainArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let request = BalanceRequest { drain: Some(args.shard.clone()), slack: None };
    let mut plans = Vec::new();
    for map in client.maps()?.maps {
        plans.push(client.balance(&map.name, &request)?);
    }
    output.answer(&plans, |plans| {
        plans.iter().map(|plan| plan_words(plan, &format!("{} is empty", args.shard))).collect()
    })?;
    if args.apply {
        for plan in &plans {
            apply(plan, client, output)?;
        }
    }
    Ok(Exit::Ok)
}

/// `rebalance`.
pub fn run_rebalance(args: &RebalanceArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let request = BalanceRequest { drain: None, slack: args.slack };
    let plan = client.balance(&args.name, &request)?;
    output.answer(&plan, |plan| plan_words(plan, "it is even enough"))?;
    if args.apply {
        apply(&plan, client, output)?;
    }
    Ok(Exit::Ok)
}

/// Makes the moves of a plan, one after the other: what is done stays done if one of them fails.
fn apply(plan: &BalanceAnswer, client: &Client, output: &Output) -> Result<(), Failure> {
    for planned in &plan.moves {
        let request =
            MoveRequest { range: planned.range.clone(), to: planned.to.clone(), keep_ms: 0, dry_run: false };
        for part in client.move_range(&plan.map, &request, Basis::Current)?.parts {
            if let Some(id) = &part.operation {
                wait(id, client, output)?;
            }
        }
    }
    Ok(())
}

/// `check`.
pub fn run_check(name: Option<&MapName>, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let names = match name {
        Some(name) => vec![name.clone()],
        None => client.maps()?.maps.into_iter().map(|map| map.name).collect(),
    };
    let mut answers: Vec<RowsCheckAnswer> = Vec::new();
    for name in &names {
        answers.push(client.check_rows(name)?);
    }
    output.answer(&answers, |answers| check_words(answers))?;
    let found = answers.iter().any(|answer| !answer.misplaced.is_empty());
    let away = answers.iter().any(|answer| !answer.unreachable.is_empty());
    Ok(match (found, away) {
        (true, _) => Exit::Conflict,
        (false, true) => Exit::Unavailable,
        (false, false) => Exit::Ok,
    })
}

fn check_words(answers: &[RowsCheckAnswer]) -> String {
    let mut text = String::new();
    for answer in answers {
        for away in &answer.unreachable {
            text.push_str(&format!(
                "{}: shard {} cannot be asked: {}\n",
                answer.map, away.shard, away.reason
            ));
        }
    }
    let rows = answers.iter().flat_map(|answer| {
        answer.misplaced.iter().map(|one| {
            [answer.map.to_string(), one.shard.to_string(), one.dataset.clone(), one.rows.to_string()]
        })
    });
    let rows: Vec<[String; 4]> = rows.collect();
    match rows.is_empty() {
        true => text + "All rows are on the shards that own them.\n",
        false => text + &table(["map", "shard", "dataset", "rows that are not its own"], rows),
    }
}

fn words(answer: &MoveAnswer, dry_run: bool) -> String {
    if answer.parts.is_empty() {
        return "Nothing to do: it is all there already.\n".to_owned();
    }
    let mut text = table(
        ["range", "from", "to", "rows", "bytes", "operation"],
        answer.parts.iter().map(|part| {
            [
                part.range.to_string(),
                part.from.to_string(),
                part.to.to_string(),
                part.datasets.iter().map(|load| load.rows).sum::<u64>().to_string(),
                part.datasets.iter().map(|load| load.bytes).sum::<u64>().to_string(),
                part.operation.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        }),
    );
    if dry_run {
        text.push_str(
            "It can be done. Each part: note what changes, copy, catch up, compare, hold requests for some\n\
             milliseconds, carry the rest, switch, clean.\n",
        );
    }
    text
}

fn plan_words(plan: &BalanceAnswer, nothing: &str) -> String {
    let loads = table(
        ["shard", "rows", "rows after"],
        plan.shards
            .iter()
            .map(|load| [load.shard.to_string(), load.rows.to_string(), load.rows_after.to_string()]),
    );
    let moves = match plan.moves.is_empty() {
        true => format!("Nothing to move: {nothing}.\n"),
        false => table(
            ["range", "from", "to", "rows"],
            plan.moves.iter().map(|planned| {
                [
                    planned.range.to_string(),
                    planned.from.to_string(),
                    planned.to.to_string(),
                    planned.rows.to_string(),
                ]
            }),
        ),
    };
    format!("Map {}:\n{loads}\n{moves}", plan.map)
}
