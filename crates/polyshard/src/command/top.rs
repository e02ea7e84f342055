//! `polyshard top`: who is busy.

use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use clap::Args;
use polyshard_admin::types::{HotAnswer, ShardTraffic, TrafficAnswer};
use polyshard_admin::{Client, ErrorCode, Problem};
use serde::Serialize;

use super::hot::hot_table;
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::table::{or_dash, size, table};

/// Shards shown on one screen, the busiest first; `--all` shows every one.
const SHARDS_SHOWN: usize = 20;
/// Shardlets shown below them.
const SHARDLETS_SHOWN: u32 = 10;
/// Lines of a terminal that does not say how many it has.
const SCREEN_LINES: usize = 24;

/// `top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard top                  look on until Ctrl-C
  polyshard top --once --all     every shard, once
  polyshard top --json           one JSON value, for a script")]
pub struct TopArgs {
    /// Show it once instead of again and again
    #[arg(long)]
    once: bool,
    /// Show all shards instead of the busiest
    #[arg(long)]
    all: bool,
    /// Seconds between looks
    #[arg(long, value_name = "S", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
}

#[derive(Serialize)]
struct Top {
    traffic: TrafficAnswer,
    hot: HotAnswer,
}

/// Looks on, once or again and again.
pub fn run(args: &TopArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let again = !args.once && output.format() == Format::People && std::io::stdout().is_terminal();
    if !again {
        let shown = if args.all { usize::MAX } else { SHARDS_SHOWN };
        return output.answer(&look(client, SHARDLETS_SHOWN)?, |top| for_people(top, shown));
    }
    let mut seen = false;
    loop {
        let (lines, columns) = screen();
        let (shards, shardlets) = if args.all { (usize::MAX, SHARDLETS_SHOWN) } else { room(lines) };
        let text = match look(client, shardlets) {
            Ok(top) => {
                seen = true;
                for_people(&top, shards)
            }
            // It may come back. One that was never there is more likely somewhere else.
            Err(Failure::Problem(problem)) if seen && problem.code == ErrorCode::Unavailable => {
                away(&problem)
            }
            Err(failure) => return Err(failure),
        };
        // Back to the upper left corner, and what is below is cleared.
        output.text(&format!("\x1b[H\x1b[J{}", cut(&text, columns)))?;
        thread::sleep(Duration::from_secs(args.every));
    }
}

fn look(client: &Client, shardlets: u32) -> Result<Top, Failure> {
    Ok(Top { traffic: client.traffic()?, hot: client.hot(shardlets)? })
}

fn away(problem: &Problem) -> String {
    format!("The server is away; it is asked again.\n{}\n", problem.message)
}

/// Lines and columns of the terminal.
fn screen() -> (usize, usize) {
    let size = terminal_size::terminal_size();
    size.map_or((SCREEN_LINES, usize::MAX), |(columns, lines)| (lines.0.into(), columns.0.into()))
}

/// How many shards and shardlets fit on a screen of so many lines: what scrolled away could not be drawn over.
fn room(lines: usize) -> (usize, u32) {
    // The head, two headings, two empty lines, one for those that are left out, and the cursor's.
    let left = lines.saturating_sub(7);
    let shardlets = (left / 3).clamp(1, SHARDLETS_SHOWN as usize);
    ((left.saturating_sub(shardlets)).clamp(1, SHARDS_SHOWN), shardlets as u32)
}

/// Lines that are too long are cut: broken, they would be more than fit.
fn cut(text: &str, columns: usize) -> String {
    text.lines().map(|line| line.chars().take(columns).chain(['\n']).collect::<String>()).collect()
}

fn for_people(top: &Top, shards_shown: usize) -> String {
    let traffic = &top.traffic;
    let sum: f64 = traffic.shards.iter().map(|shard| shard.requests_per_s).sum();
    let doors: Vec<String> =
        traffic.doors.iter().map(|door| format!("{} {}", door.door, door.connections)).collect();
    let head = format!(
        "up {}  requests/s {sum:.1}  waits {}  retries {}  connections: {}\n",
        duration(traffic.up_s),
        traffic.waits,
        traffic.retries,
        doors.join(", ")
    );
    let mut shards: Vec<&ShardTraffic> = traffic.shards.iter().collect();
    shards.sort_by(|a, b| b.requests_per_s.total_cmp(&a.requests_per_s));
    let left = shards.len().saturating_sub(shards_shown);
    shards.truncate(shards.len() - left);
    let shown = table(
        ["shard", "state", "req/s", "err/s", "p50", "p99", "in use", "size", "entries", "look at"],
        shards.iter().map(|shard| {
            let state =
                if shard.reachable == Some(false) { "away".to_owned() } else { shard.state.to_string() };
            [
                shard.shard.to_string(),
                state,
                format!("{:.1}", shard.requests_per_s),
                format!("{:.1}", shard.errors_per_s),
                shard.p50_us.map_or("-".to_owned(), micros),
                shard.p99_us.map_or("-".to_owned(), micros),
                shard.inside.to_string(),
                shard.bytes.map_or("-".to_owned(), size),
                shard.ranges.to_string(),
                or_dash(&shard.warnings.first()),
            ]
        }),
    );
    let more = if left > 0 { format!("… and {left} quieter shards\n") } else { String::new() };
    format!("{head}\n{shown}{more}\n{}", hot_table(&top.hot))
}

fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use super::{cut, room};

    #[test]
    fn what_is_shown_fits_the_screen() {
        for lines in 9..100 {
            let (shards, shardlets) = room(lines);
            assert!(shards + shardlets as usize + 7 <= lines, "{lines}: {shards} and {shardlets}");
        }
        assert_eq!((room(24), room(200), room(0)), ((12, 5), (20, 10), (1, 1)));
        assert_eq!(cut("abcdef\nµs\n", 3), "abc\nµs\n");
    }
}
