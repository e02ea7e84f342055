//! `polyshard move`: rows that change their shard while requests go on.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use polyshard_admin::types::{Meanwhile, MoveAnswer, MoveRequest, OperationState, OperationView};
use polyshard_admin::{Client, ClientError, ErrorCode, Problem};
use polyshard_map::{MapName, ShardId};

use super::BasisFlag;
use super::change::Lease;
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::selector::Selector;
use crate::table::{size, table};

/// How often a move that is waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a line of it is written where lines stay, as in a file.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// How long a server that has answered before may be away: longer than it takes to start it again.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// `move`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard move tenants --key 42 --to s3 --wait              one tenant; on a hash map all of its bucket
  polyshard move tenants --buckets 0..16 --to s3 --dry-run    what would be carried, and whether it can be
  polyshard move tenants --range 100..200 --to s3 --keep 1h   can be undone for an hour
  polyshard move tenants --key 42 --to s3 --offline           nobody reads or writes there meanwhile

Readers and writers go on while rows are carried. At the switch they wait for some milliseconds.
'polyshard ops follow' shows how far it is; cancel, pause and undo are there, too.
With --wait, Ctrl-C ends this command and not the move.")]
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
    /// Take the range offline first; it comes online on its new shard
    #[arg(long)]
    offline: bool,
    /// With --offline: let requests read meanwhile
    #[arg(long, requires = "offline")]
    read_only: bool,
    /// Return when it is done; exit with 4 if it was rolled back
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    basis: BasisFlag,
}

/// `move`.
pub fn run_move(args: &MoveArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let meanwhile = match (args.offline, args.read_only) {
        (false, _) => None,
        (true, true) => Some(Meanwhile::ReadOnly),
        (true, false) => Some(Meanwhile::Offline),
    };
    let request = MoveRequest {
        range: args.selector.range(),
        to: args.to.clone(),
        keep_ms: args.keep.map_or(0, Lease::ms),
        dry_run: args.dry_run,
        meanwhile,
    };
    let answer = client.move_range(&args.name, &request, args.basis.basis())?;
    output.answer(&answer, |answer| words(answer, args.dry_run, args.wait))?;
    if args.wait {
        wait_for_all(&answer, client, output)?;
    }
    Ok(Exit::Ok)
}

/// Waits for everything that a move has begun.
pub fn wait_for_all(answer: &MoveAnswer, client: &Client, output: &Output) -> Result<(), Failure> {
    let parts = answer.parts.iter().filter_map(|part| part.operation.as_ref());
    for id in answer.procedure.iter().chain(parts) {
        wait(id, client, output)?;
    }
    Ok(())
}

/// Waits for an operation to end, showing how far it is; a failure if it was rolled back. A server that is started
/// again meanwhile is waited for: the operation goes on with it.
pub fn wait(id: &str, client: &Client, output: &Output) -> Result<OperationView, Failure> {
    let _followed = (output.format() == Format::People).then(|| crate::interrupt::follow(id));
    let mut shown = Shown::new(output);
    let mut answered: Option<Instant> = None;
    loop {
        let operation = match client.operation(id).map_err(ClientError::into_problem) {
            Ok(operation) => operation,
            Err(problem)
                if problem.code == ErrorCode::Unavailable
                    && answered.is_some_and(|at| at.elapsed() < AWAY_MAX) =>
            {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
            Err(problem) => {
                shown.end()?;
                return Err(problem.into());
            }
        };
        answered = Some(Instant::now());
        shown.show(&operation)?;
        match operation.state {
            OperationState::Running => std::thread::sleep(LOOK_EVERY),
            OperationState::Done => {
                shown.end()?;
                return Ok(operation);
            }
            OperationState::RolledBack => {
                shown.end()?;
                let why = operation.message.unwrap_or_else(|| "no reason was recorded".to_owned());
                return Err(Problem::new(ErrorCode::Conflict, format!("it was rolled back: {why}")).into());
            }
        }
    }
}

/// What people have been shown of an operation: on a terminal one line that changes, elsewhere a line for each step
/// and one now and then.
struct Shown<'a> {
    output: &'a Output,
    live: bool,
    line: String,
    step: String,
    at: Instant,
}

impl<'a> Shown<'a> {
    fn new(output: &'a Output) -> Shown<'a> {
        let live = output.format() == Format::People && std::io::stdout().is_terminal();
        Shown { output, live, line: String::new(), step: String::new(), at: Instant::now() }
    }

    fn show(&mut self, operation: &OperationView) -> Result<(), Failure> {
        let line = super::ops::progress(operation);
        if self.output.format() != Format::People || line == self.line {
            return Ok(());
        }
        if self.live {
            // A line that is wider than the terminal would not be written over.
            let width = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
            let line = super::ops::progress_within(operation, width.saturating_sub(1));
            self.output.bytes(format!("\r\x1b[K{line}").as_bytes())?;
        } else if operation.step != self.step || self.at.elapsed() >= LINE_EVERY {
            self.output.text(&line)?;
            self.at = Instant::now();
        }
        (self.line, self.step) = (line, operation.step.clone());
        Ok(())
    }

    /// What comes next begins a line of its own.
    fn end(&self) -> Result<(), Failure> {
        if self.live && !self.line.is_empty() { self.output.text("\n") } else { Ok(()) }
    }
}

/// What was begun, or would be; and how to follow it, unless it is followed anyway.
pub fn words(answer: &MoveAnswer, dry_run: bool, waits: bool) -> String {
    if answer.parts.is_empty() && answer.procedure.is_none() && answer.steps.is_empty() {
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
                size(part.datasets.iter().map(|load| load.bytes).sum()),
                part.operation.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        }),
    );
    if dry_run {
        text.push_str("It can be done:\n");
        text.push_str(&step_words(&answer.steps));
    }
    if waits {
        return text;
    }
    if answer.parts.iter().any(|part| part.operation.is_some()) {
        text.push_str("See how far it is with 'polyshard ops follow ID'.\n");
    }
    text + &begun_words(answer.procedure.as_deref())
}

/// The steps of a plan, numbered.
pub fn step_words(steps: &[String]) -> String {
    let numbered = steps.iter().enumerate();
    numbered.map(|(index, step)| format!("{:>4}. {step}\n", index + 1)).collect()
}

/// Which operation does it, if one was begun.
pub fn begun_words(procedure: Option<&str>) -> String {
    procedure
        .map_or_else(String::new, |id| format!("Operation {id} does it; see 'polyshard ops follow {id}'.\n"))
}
