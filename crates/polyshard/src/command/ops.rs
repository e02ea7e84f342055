//! `polyshard ops`: look at operations, and steer moves.

use clap::Subcommand;
use polyshard_admin::types::{MoveWish, OperationState, OperationView, RangeView};
use polyshard_admin::{Client, Problem};

use super::moves;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::{or_dash, pairs, size, table, time};

/// Operations: changes under way and done.
#[derive(Debug, Subcommand)]
pub enum OpsCommand {
    /// The unfinished operations and the latest finished ones
    #[command(after_help = "Examples:\n  polyshard ops list\n  polyshard ops list --json")]
    List,
    /// One operation
    #[command(after_help = "Examples:\n  polyshard ops show 8f14e45f")]
    Show {
        /// Its id, or four characters or more of its beginning
        id: String,
    },
    /// Show how far a move is until it ends; exit with 4 if it is rolled back
    #[command(
        after_help = "Examples:\n  polyshard ops follow 8f14e45f\n\nCtrl-C ends this command and not the move."
    )]
    Follow {
        /// Its id, or four characters or more of its beginning
        id: String,
    },
    /// Have a move wait where it is; it still notes what changes
    #[command(after_help = "Examples:\n  polyshard ops pause 8f14e45f")]
    Pause {
        /// Its id, or four characters or more of its beginning
        id: String,
    },
    /// Let a paused move go on
    #[command(after_help = "Examples:\n  polyshard ops resume 8f14e45f")]
    Resume {
        /// Its id, or four characters or more of its beginning
        id: String,
    },
    /// Have a move under way work for another part of the time while requests are served
    #[command(
        after_help = "Examples:\n  polyshard ops pace 8f14e45f --share 50\n\nWith 100 it never rests. It holds until \
                      the move ends or is resumed; moves.busy_share_percent is for all moves."
    )]
    Pace {
        /// Its id, or four characters or more of its beginning
        id: String,
        /// Percent of the time
        #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
        share: u32,
    },
    /// Give a move up; possible until its range has left the old shard
    #[command(after_help = "Examples:\n  polyshard ops cancel 8f14e45f")]
    Cancel {
        /// Its id, or four characters or more of its beginning
        id: String,
    },
    /// Take a move back with all that was written since; possible while the old rows are kept
    #[command(after_help = "Examples:\n  polyshard ops undo 8f14e45f")]
    Undo {
        /// Its id, or four characters or more of its beginning
        id: String,
    },
    /// Do not keep a move's old rows any longer
    #[command(after_help = "Examples:\n  polyshard ops clean 8f14e45f")]
    Clean {
        /// Its id, or four characters or more of its beginning
        id: String,
    },
}

/// Runs the command.
pub fn run(command: &OpsCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let wish = |id: &str, wish, said: &str| {
        output.answer(&client.wish(&whole_id(id, client)?, wish)?, |op| format!("{said} {}", progress(op)))
    };
    match command {
        OpsCommand::List => output.answer(&client.operations()?, |answer| {
            if answer.operations.is_empty() {
                "No operations.\n".to_owned()
            } else {
                operation_table(&answer.operations)
            }
        }),
        OpsCommand::Show { id } => output.answer(&client.operation(&whole_id(id, client)?)?, show),
        OpsCommand::Follow { id } => {
            let ended = moves::wait(&whole_id(id, client)?, client, output)?;
            match output.format() {
                crate::output::Format::People => Ok(Exit::Ok),
                crate::output::Format::Json => output.answer(&ended, show),
            }
        }
        OpsCommand::Pause { id } => wish(id, MoveWish::Pause, "It waits."),
        OpsCommand::Resume { id } => wish(id, MoveWish::Resume, "It goes on."),
        OpsCommand::Pace { id, share } => {
            let said = format!("It works for {share} % of the time.");
            wish(id, MoveWish::Pace { share_percent: *share }, &said)
        }
        OpsCommand::Cancel { id } => wish(id, MoveWish::Cancel, "It will be rolled back."),
        OpsCommand::Undo { id } => wish(id, MoveWish::Undo, "It is taken back by this operation."),
        OpsCommand::Clean { id } => wish(id, MoveWish::Clean, "Its old rows are cleaned away."),
    }
}

/// Characters of a whole id.
const ID_CHARS: usize = 36;
/// Characters of an id's beginning at least: what a script leaves empty must not mean some operation.
const BEGIN_CHARS: usize = 4;

/// Whether it may be the beginning of an id; something shorter or longer is left to the server as it is.
fn is_beginning(id: &str) -> Result<bool, Problem> {
    match id.len() {
        0 => Err(Problem::invalid("id", "it is empty").with_remedy("see 'polyshard ops list'")),
        length => Ok((BEGIN_CHARS..ID_CHARS).contains(&length)),
    }
}

/// The id that begins so. What no listed operation begins with is left to the server, which says so.
fn whole_id(begins: &str, client: &Client) -> Result<String, Failure> {
    if !is_beginning(begins)? {
        return Ok(begins.to_owned());
    }
    let known = client.operations()?.operations.into_iter().map(|op| op.id);
    let mut fitting: Vec<String> = known.filter(|id| id.starts_with(begins)).collect();
    match (fitting.len(), fitting.pop()) {
        (1, Some(id)) => Ok(id),
        (0, _) | (_, None) => Ok(begins.to_owned()),
        (count, Some(_)) => {
            let problem =
                Problem::invalid("id", format!("{count} operations have an id that begins with {begins}"));
            Err(problem.with_remedy("give more of it; see 'polyshard ops list'").into())
        }
    }
}

fn show(op: &OperationView) -> String {
    let mut rows = vec![
        ("id", op.id.clone()),
        ("kind", op.kind.clone()),
        ("map", or_dash(&op.map)),
        ("range", ranges(op, RANGES_SHOWN)),
        ("state", op.state.to_string()),
        ("step", op.step.clone()),
        ("started", time(op.started_ms)),
        ("message", or_dash(&op.message)),
    ];
    if let (Some(from), Some(to)) = (&op.from, &op.to) {
        rows.push(("from", from.to_string()));
        rows.push(("to", to.to_string()));
    }
    if let Some(progress) = &op.progress {
        rows.push(("copied", format!("{} of {} rows", progress.copied_rows, progress.total_rows)));
        rows.push(("bytes", size(progress.copied_bytes)));
        rows.push(("compared", format!("{} rows", progress.verified_rows)));
        rows.push(("lag", format!("{} changed rows", progress.lag_rows)));
        let left = progress.left_ms.map(|ms| format!("about {} s", ms.div_ceil(1000)));
        rows.push(("left", left.unwrap_or_else(|| "-".to_owned())));
        if let Some(percent) = progress.works_percent {
            let why = "requests are served (moves.busy_share_percent)";
            rows.push(("works", format!("{percent} % of the time: {why}")));
        }
        rows.push(("cleaned", format!("{} rows", progress.cleaned_rows)));
        rows.push(("pause", progress.pause_ms.map_or("-".to_owned(), |ms| format!("{ms} ms"))));
    }
    if op.state == OperationState::Running {
        rows.push(("paused", crate::table::yes_no(is_paused(op))));
    }
    pairs(rows)
}

/// Characters of a bar: wide enough to see it move, and the line still fits a terminal.
const BAR_WIDTH: u64 = 20;

/// Characters of a step that are shown however narrow the terminal is: how many of how many, and what.
const STEP_CHARS_MIN: usize = 16;

/// Where an operation is, in one line; of a move with a bar.
pub fn progress(op: &OperationView) -> String {
    progress_within(op, usize::MAX)
}

/// The same in a line of at most so many characters: what a procedure is at may be said at length, and numbers come
/// first.
pub fn progress_within(op: &OperationView, width: usize) -> String {
    let head = format!("{} {} ", op.id.get(..8).unwrap_or(&op.id), op.kind);
    let paused = if is_paused(op) { ", paused" } else { "" };
    let numbers = numbers(op) + paused;
    let room = width.saturating_sub(head.chars().count() + numbers.chars().count());
    let step = match op.step.chars().count() <= room {
        true => op.step.clone(),
        false => op.step.chars().take(room.max(STEP_CHARS_MIN) - 1).chain(['…']).collect(),
    };
    format!("{head}{step}{numbers}").chars().take(width).collect()
}

/// Whether an operation waits, or the move that it is at.
fn is_paused(op: &OperationView) -> bool {
    op.state == OperationState::Running
        && (op.paused || op.progress.as_ref().is_some_and(|progress| progress.paused))
}

/// How far a move is.
fn numbers(op: &OperationView) -> String {
    let mut line = String::new();
    let Some(progress) = &op.progress else { return line };
    if op.state == OperationState::RolledBack {
        return line;
    }
    if op.state == OperationState::Done {
        line.push_str(&format!(": {} rows", progress.copied_rows));
    } else if let Some(part) = (progress.copied_rows * BAR_WIDTH).checked_div(progress.total_rows) {
        let part = part.min(BAR_WIDTH) as usize;
        let bar = "#".repeat(part) + &".".repeat(BAR_WIDTH as usize - part);
        line.push_str(&format!(" [{bar}] {}/{} rows", progress.copied_rows, progress.total_rows));
    }
    line.push_str(&format!(", {}", size(progress.copied_bytes)));
    if progress.lag_rows > 0 {
        line.push_str(&format!(", {} rows behind", progress.lag_rows));
    }
    if let Some(left_ms) = progress.left_ms {
        line.push_str(&format!(", about {} s left", left_ms.div_ceil(1000)));
    }
    if let Some(pause_ms) = progress.pause_ms {
        line.push_str(&format!(", requests were held for {pause_ms} ms"));
    }
    if let Some(percent) = progress.works_percent {
        line.push_str(&format!(", steps back for requests: works {percent} % of the time (ops pace)"));
    }
    line
}

fn operation_table(operations: &[OperationView]) -> String {
    table(
        ["id", "started", "kind", "map", "range", "from", "to", "state", "step", "copied", "message"],
        operations.iter().map(|op| {
            [
                op.id.clone(),
                time(op.started_ms),
                op.kind.clone(),
                or_dash(&op.map),
                ranges(op, 1),
                or_dash(&op.from),
                or_dash(&op.to),
                if is_paused(op) { "paused".to_owned() } else { op.state.to_string() },
                op.step.clone(),
                copied(op),
                or_dash(&op.message),
            ]
        }),
    )
}

/// Ranges that are written out where there is room; more of them are only hinted at.
const RANGES_SHOWN: usize = 10;

/// Characters of a range in a table: keys may be long.
const RANGE_CHARS_MAX: usize = 40;

/// What an operation is about.
fn ranges(op: &OperationView, most: usize) -> String {
    let cut = |range: &RangeView| {
        let text = range.to_string();
        match text.char_indices().nth(RANGE_CHARS_MAX) {
            Some((at, _)) if most == 1 => format!("{}…", &text[..at]),
            _ => text,
        }
    };
    let mut shown: Vec<String> = op.ranges.iter().take(most).map(cut).collect();
    if op.ranges.len() > most {
        shown.push("…".to_owned());
    }
    if shown.is_empty() { "-".to_owned() } else { shown.join(", ") }
}

/// How much of its rows an operation has copied.
fn copied(op: &OperationView) -> String {
    let part = op.progress.as_ref().and_then(|progress| {
        (progress.copied_rows.min(progress.total_rows) * 100).checked_div(progress.total_rows)
    });
    part.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ops clean "$ID"` with nothing in it cleans nothing away.
    #[test]
    fn nothing_is_not_the_beginning_of_every_id() {
        assert!(is_beginning("").is_err());
        assert!(!is_beginning("8f1").unwrap());
        assert!(is_beginning("8f14").unwrap());
        assert!(!is_beginning("8f14e45f-ceea-467f-a0e6-8f14e45fceea").unwrap());
    }
}
