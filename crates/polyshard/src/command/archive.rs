//! `polyshard archive`: old ranges in a folder or object store instead of on a shard, and back again.

use clap::{Args, Subcommand};
use polyshard_admin::types::{
    ArchiveAnswer, ArchivePart, ArchiveRuleView, ArchiveThen, ArchiveView, ArchivesAnswer, NewArchive,
    NewArchiveRule, RestoreArchive, RunArchiveRule,
};
use polyshard_admin::{Client, Problem};
use polyshard_map::{MapName, ShardId};

use super::{explicit_word, moves};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::selector::Selector;
use crate::table::{or_dash, pairs, size, table, time};

/// Ranges of a rule that are told one by one.
const DUE_SHOWN: usize = 3;

/// Archives.
#[derive(Debug, Subcommand)]
pub enum ArchiveCommand {
    /// Archive a range, or drop it: write its rows to a place, compare them, and delete them from their shard
    Run(Box<RunArgs>),
    /// All archives
    #[command(after_help = "Examples:\n  polyshard archive list\n  polyshard archive list --json")]
    List,
    /// One archive
    #[command(after_help = "Examples:\n  polyshard archive show orders-2024-01")]
    Show {
        /// Its name
        name: String,
    },
    /// Read an archive back, and compare it with its checksums
    #[command(after_help = "\
Examples:
  polyshard archive verify orders-2024-01
  polyshard backup verify /archives/orders-2024-01         the same by its address, without a server")]
    Verify {
        /// Its name
        name: String,
    },
    /// Put the rows of an archive back, and bring its keys online
    #[command(after_help = "\
Examples:
  polyshard archive restore orders-2024-01 --wait
  polyshard archive restore orders-2024-01 --to s3         onto another shard")]
    Restore {
        /// Its name
        name: String,
        /// Onto this shard [default: the one that had it]
        #[arg(long, value_name = "SHARD")]
        to: Option<ShardId>,
        /// Return when it is done; exit with 4 if it was rolled back
        #[arg(long)]
        wait: bool,
    },
    /// Remove an archive; if its rows are nowhere else, only with an explicit word
    #[command(after_help = "\
Examples:
  polyshard archive forget orders-2024-01                             one that was restored
  polyshard archive forget orders-2024-01 --destroy orders-2024-01    its rows are lost")]
    Forget {
        /// Its name
        name: String,
        /// Lose its rows: its name once more
        #[arg(long, value_name = "NAME")]
        destroy: Option<String>,
    },
    /// Rules by which old ranges are archived, dropped or moved on a schedule
    #[command(subcommand)]
    Rule(RuleCommand),
}

/// `archive run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard archive run orders --range 2024-01-01..2024-02-01 --to /archives --dry-run
  polyshard archive run orders --range 2024-01-01..2024-02-01 --to s3://bucket/old --wait
  polyshard archive run customers --key acme --to /archives --without-columns customers.card
  polyshard archive run orders --range ..2020-01-01 --drop orders      nothing is kept

A place is a folder on the server's machine, s3://bucket/prefix or az://container/prefix. The range can be read until
its rows are deleted; 'polyshard ops' shows how far it is, and can cancel it until then.")]
pub struct RunArgs {
    /// The map: a range map, or a list map
    map: MapName,
    #[command(flatten)]
    selector: Selector,
    /// Where to [default: backup.to of the configuration]
    #[arg(long, value_name = "PLACE")]
    to: Option<String>,
    /// Keep nothing: the map's name once more
    #[arg(long, value_name = "MAP", conflicts_with_all = ["to", "name", "without_columns"])]
    drop: Option<String>,
    /// What it is called [default: the map and the range]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Columns that are left out, as table.column; restored rows have their default there
    #[arg(long, value_name = "T.C,…", value_delimiter = ',')]
    without_columns: Vec<String>,
    /// Write CSV files beside it, which other programs can read
    #[arg(long, conflicts_with = "drop")]
    csv: bool,
    /// Only say what would be done, and how many rows there are
    #[arg(long)]
    dry_run: bool,
    /// Return when it is done; exit with 4 if it was rolled back
    #[arg(long)]
    wait: bool,
}

/// Rules of archiving.
#[derive(Debug, Subcommand)]
pub enum RuleCommand {
    /// Archive, drop or move ranges of a map by time when they are old
    #[command(after_help = "\
Examples:
  polyshard archive rule add orders --older-than 13months --every day --at 03:00 --to /archives
  polyshard archive rule add orders --older-than 90days --by day --to-tier cold      moved online
  polyshard archive rule add logs --older-than 2years --by month --drop

The map is a range map whose keys begin with a date or timestamp. Whole periods are taken that ended so long ago.")]
    Add(Box<RuleArgs>),
    /// All rules, and what each would do now
    #[command(after_help = "Examples:\n  polyshard archive rule list\n  polyshard archive rule list --json")]
    List,
    /// Carry out a rule now, whether it is due or not
    #[command(after_help = "\
Examples:
  polyshard archive rule run 0d5c9c1e --dry-run     what it would take now, and why
  polyshard archive rule run 0d5c9c1e --wait")]
    Run {
        /// Its id in 'polyshard archive rule list', or the beginning of it
        id: String,
        /// Only say what it would take, why, and how much that is
        #[arg(long)]
        dry_run: bool,
        /// Return when it is done; exit with 4 if it was rolled back
        #[arg(long, conflicts_with = "dry_run")]
        wait: bool,
    },
    /// Forget a rule
    #[command(after_help = "Examples:\n  polyshard archive rule remove 0d5c9c1e")]
    Remove {
        /// Its id in 'polyshard archive rule list', or the beginning of it
        id: String,
    },
}

/// `archive rule add`.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// The map
    map: MapName,
    /// How old a range must be, from its end: 90days, 13months, 2years
    #[arg(long, value_name = "AGE")]
    older_than: String,
    /// What is archived together: day, month or year
    #[arg(long, value_name = "PERIOD", default_value = "month")]
    by: String,
    /// How often: hour, day, week or month
    #[arg(long, value_name = "TIME", default_value = "day")]
    every: String,
    /// When on such a day, in UTC
    #[arg(long, value_name = "HH:MM")]
    at: Option<String>,
    /// Archive them at this place
    #[arg(long, value_name = "PLACE", group = "then")]
    to: Option<String>,
    /// Drop them with their rows
    #[arg(long, group = "then")]
    drop: bool,
    /// Move them to shards of this tier, while requests go on
    #[arg(long, value_name = "TIER", group = "then")]
    to_tier: Option<String>,
    /// Columns that are left out, as table.column
    #[arg(long, value_name = "T.C,…", value_delimiter = ',')]
    without_columns: Vec<String>,
}

/// Runs the command.
pub fn run(command: &ArchiveCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    match command {
        ArchiveCommand::Run(args) => run_archive(args, client, output),
        ArchiveCommand::List => output.answer(&client.archives()?, list),
        ArchiveCommand::Show { name } => output.answer(&client.show_archive(name)?, show),
        ArchiveCommand::Verify { name } => output.answer(&client.verify_archive(name)?, |archive| {
            format!("{} is whole: {} rows, {}.\n", archive.at, archive.rows, size(archive.bytes))
        }),
        ArchiveCommand::Restore { name, to, wait } => {
            let answer = client.restore_archive(name, &RestoreArchive { to: to.clone() })?;
            begun(&answer, *wait, client, output)
        }
        ArchiveCommand::Forget { name, destroy } => {
            client.forget_archive(name, explicit_word(destroy.as_deref(), name)?)?;
            output.answer(&serde_json::json!({ "forgotten": name }), |_| format!("{name} is gone.\n"))
        }
        ArchiveCommand::Rule(command) => run_rule(command, client, output),
    }
}

fn run_archive(args: &RunArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let to = args.to.as_deref().map(super::backup::address).transpose()?;
    let archive = NewArchive {
        range: args.selector.range(),
        to,
        name: args.name.clone(),
        destroy: args.drop.clone(),
        without_columns: args.without_columns.clone(),
        csv: args.csv,
        dry_run: args.dry_run,
    };
    begun(&client.archive(&args.map, &archive)?, args.wait, client, output)
}

fn begun(answer: &ArchiveAnswer, wait: bool, client: &Client, output: &Output) -> Result<Exit, Failure> {
    output.answer(answer, words)?;
    if let (true, Some(id)) = (wait, &answer.procedure) {
        moves::wait(id, client, output)?;
    }
    Ok(Exit::Ok)
}

fn words(answer: &ArchiveAnswer) -> String {
    let steps: Vec<String> =
        answer.steps.iter().enumerate().map(|(at, step)| format!("{}. {step}", at + 1)).collect();
    let last = match &answer.procedure {
        Some(id) => format!("It goes on by itself as operation {id}."),
        None => "Nothing was done.".to_owned(),
    };
    format!("{}\n{last}\n", steps.join("\n"))
}

fn list(answer: &ArchivesAnswer) -> String {
    if answer.archives.is_empty() {
        return "No archives.\n".to_owned();
    }
    let row = |one: &ArchiveView| {
        [
            one.name.clone(),
            one.map.to_string(),
            or_dash(&one.range),
            one.state.clone(),
            one.rows.to_string(),
            size(one.bytes),
            time(one.began_ms),
            one.at.clone(),
        ]
    };
    let list = table(
        ["name", "map", "range", "state", "rows", "size", "begun", "at"],
        answer.archives.iter().map(row),
    );
    let gone: Vec<&ArchiveView> = answer.archives.iter().filter(|one| one.state == "archived").collect();
    let (rows, bytes) = gone.iter().fold((0, 0), |(rows, bytes), one| (rows + one.rows, bytes + one.bytes));
    let Some(first) = gone.first() else { return list };
    format!(
        "{list}{rows} rows ({}) are in archives only; 'polyshard archive restore {}' brings the first back.\n",
        size(bytes),
        first.name
    )
}

fn show(archive: &ArchiveView) -> String {
    pairs([
        ("name", archive.name.clone()),
        ("map", archive.map.to_string()),
        ("range", or_dash(&archive.range)),
        ("state", archive.state.clone()),
        ("at", archive.at.clone()),
        ("shard", archive.shard.to_string()),
        ("rows", archive.rows.to_string()),
        ("size", size(archive.bytes)),
        ("without", archive.without_columns.join(", ")),
        ("begun", time(archive.began_ms)),
    ])
}

fn run_rule(command: &RuleCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    match command {
        RuleCommand::Add(args) => {
            let then = match (&args.to, args.drop, &args.to_tier) {
                (Some(to), ..) => ArchiveThen::Archive { to: super::backup::address(to)? },
                (None, true, _) => ArchiveThen::Drop,
                (None, false, Some(tier)) => ArchiveThen::Tier { tier: tier.clone() },
                (None, false, None) => {
                    return Err(Problem::invalid("--to", "it is not said what is done with old ranges")
                        .with_remedy("give --to PLACE, --to-tier TIER or --drop")
                        .into());
                }
            };
            let rule = NewArchiveRule {
                older_than: args.older_than.clone(),
                by: args.by.clone(),
                every: args.every.clone(),
                at: args.at.clone(),
                then,
                without_columns: args.without_columns.clone(),
            };
            output
                .answer(&client.add_archive_rule(&args.map, &rule)?, |view| rules(std::slice::from_ref(view)))
        }
        RuleCommand::List => {
            output.answer(&client.archive_rules()?, |answer| match answer.rules.as_slice() {
                [] => "No rules.\n".to_owned(),
                some => rules(some),
            })
        }
        RuleCommand::Run { id, dry_run, wait } => {
            let answer = client.run_archive_rule(id, &RunArchiveRule { dry_run: *dry_run })?;
            output.answer(&answer, taken)?;
            if let (true, Some(id)) = (wait, &answer.procedure) {
                moves::wait(id, client, output)?;
            }
            Ok(Exit::Ok)
        }
        RuleCommand::Remove { id } => {
            client.remove_archive_rule(id)?;
            output.answer(&serde_json::json!({ "removed": id }), |_| format!("Rule {id} is gone.\n"))
        }
    }
}

fn rules(rules: &[ArchiveRuleView]) -> String {
    let row = |one: &ArchiveRuleView| {
        let (rule, at) = (&one.rule, one.rule.at.as_deref().unwrap_or(""));
        let then = match &rule.then {
            ArchiveThen::Archive { to } => format!("archive to {to}"),
            ArchiveThen::Drop => "drop".to_owned(),
            ArchiveThen::Tier { tier } => format!("move to tier {tier}"),
        };
        let due: Vec<String> = one.due.iter().map(ToString::to_string).collect();
        [
            one.id.clone(),
            one.map.to_string(),
            format!("by {}, older than {}", rule.by, rule.older_than),
            then,
            format!("every {} {at}", rule.every).trim_end().to_owned(),
            one.last_ms.map_or("-".to_owned(), time),
            time(one.next_ms),
            match due.len() {
                0 => "-".to_owned(),
                1..=DUE_SHOWN => due.join(", "),
                more => format!("{}, … ({more} ranges)", due[..DUE_SHOWN].join(", ")),
            },
        ]
    };
    let failed = rules.iter().filter_map(|one| {
        let why = one.failed.as_ref()?;
        Some(format!("Note: rule {} was not carried out when it was last tried: {why}\n", one.id))
    });
    let failed: String = failed.collect();
    let head = ["id", "map", "which", "what", "when", "last", "next", "would take now"];
    format!("{}{failed}", table(head, rules.iter().map(row)))
}

/// What a rule takes, one range a line.
fn taken(answer: &ArchiveAnswer) -> String {
    let row = |part: &ArchivePart| {
        [
            part.name.clone(),
            part.range.to_string(),
            part.shard.to_string(),
            or_dash(&part.rows),
            part.bytes.map_or("-".to_owned(), size),
            or_dash(&part.why),
        ]
    };
    let what = match answer.parts.as_slice() {
        [] => answer.steps.iter().map(|step| format!("{step}.\n")).collect(),
        parts => table(["name", "range", "shard", "rows", "about", "why"], parts.iter().map(row)),
    };
    let sum = |of: fn(&ArchivePart) -> Option<u64>| answer.parts.iter().filter_map(of).sum::<u64>();
    let last = match (&answer.procedure, answer.parts.len()) {
        (Some(id), _) => format!("It goes on by itself as operation {id}.\n"),
        (None, 0) => String::new(),
        (None, ranges) => format!(
            "{} in all: {} rows, about {}. Nothing was done.\n",
            if ranges == 1 { "1 range".to_owned() } else { format!("{ranges} ranges") },
            sum(|part| part.rows),
            size(sum(|part| part.bytes)),
        ),
    };
    format!("{what}{last}")
}
