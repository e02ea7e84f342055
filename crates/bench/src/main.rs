//! Benchmarks beside the raw library in the same run.

mod azure;
mod blobs;
mod catalog;
mod cluster;
mod engine;
mod map;
mod measure;
mod moves;
mod overhead;
mod report;
mod router;
mod sql;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};

/// Whatever ends a benchmark early.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measures Polyshard beside the raw libraries, in the same run on the same machine.
#[derive(Parser)]
#[command(name = "polyshard-bench", after_help = "Example: polyshard-bench engine --quick")]
struct Arguments {
    /// What to measure.
    #[arg(value_enum, default_value = "all")]
    subject: Subject,
    /// Fewer and shorter rounds: for a first look, not for the record.
    #[arg(long)]
    quick: bool,
    /// Beside Azurite, only the operations whose name has this in it; of moves, only such tables: rate,
    /// pause, elsewhere, watched, fifth; of the SQL door: lookups, across, small, copy.
    #[arg(long)]
    only: Option<String>,
    /// Rows beside which a fifth shard comes; a million, or a tenth of it with --quick, if nothing is said.
    #[arg(long, value_parser = clap::value_parser!(i64).range(1_000..=100_000_000))]
    rows: Option<i64>,
    /// Percent of the time that a move works while requests are served; what the program does if nothing is said.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    share: Option<u32>,
    /// Embedded shards beside Azurite; as many as there are cores, if nothing is said.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    shards: Option<u16>,
    /// Print one JSON document at the end instead of tables as they come.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Locating keys, memory of maps.
    Map,
    /// Reads and writes, beside the raw libraries.
    Engine,
    /// Loading a large catalog, changing it.
    Catalog,
    /// What the router adds to a read, what tickets cost.
    Router,
    /// What writers see of moves, and how fast rows are carried, beside a raw copy.
    Move,
    /// The SQL door, beside PgBouncer; needs the program built beside this one.
    Sql,
    /// Queues, tables and small blobs, beside Azurite; alone, since it needs scripts/setup-bench.sh and the program
    /// built beside this one.
    Azure,
    /// Large blobs, beside nginx and beside files that are written and synced; alone, since it needs
    /// scripts/setup-bench.sh and the program built beside this one.
    Blob,
    /// What counting and tracing cost; needs the program built beside this one.
    Overhead,
    /// Everything else.
    All,
}

/// How long to measure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    Full,
    Quick,
}

impl Effort {
    fn pick<T>(self, full: T, quick: T) -> T {
        match self {
            Effort::Full => full,
            Effort::Quick => quick,
        }
    }
}

/// One subject's tables.
type Part<'a> = &'a dyn Fn(Effort) -> Result<Vec<report::Table>, Failure>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let effort = if arguments.quick { Effort::Quick } else { Effort::Full };
    let mut all = Vec::new();
    let only = arguments.only.as_deref().unwrap_or_default();
    let parts: [(Subject, Part<'_>); 9] = [
        (Subject::Azure, &|effort| azure::run(effort, only, arguments.shards.map(usize::from))),
        (Subject::Blob, &blobs::run),
        (Subject::Map, &map::run),
        (Subject::Router, &router::run),
        (Subject::Engine, &engine::run),
        (Subject::Catalog, &catalog::run),
        (Subject::Move, &|effort| moves::run(effort, only, arguments.rows, arguments.share)),
        (Subject::Sql, &|effort| sql::run(effort, only)),
        (Subject::Overhead, &overhead::run),
    ];
    let is_asked = |subject: Subject| match arguments.subject {
        Subject::All => !matches!(subject, Subject::Azure | Subject::Blob),
        asked => asked == subject,
    };
    for (_, run) in parts.iter().filter(|(subject, _)| is_asked(*subject)) {
        match run(effort) {
            Ok(tables) if arguments.json => all.extend(tables.iter().map(report::Table::json)),
            Ok(tables) => tables.iter().for_each(report::Table::print),
            Err(error) => {
                eprintln!("polyshard-bench: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    if arguments.json {
        println!("{:#}", serde_json::json!({ "tables": all }));
    }
    ExitCode::SUCCESS
}
