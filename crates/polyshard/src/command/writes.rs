//! `polyshard writes`: writes on several shards that are completed whatever happens.

use clap::Subcommand;
use polyshard_admin::types::{SkipWrite, WriteView, WritesAnswer};
use polyshard_admin::{Client, Problem};
use polyshard_map::ShardId;

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::{pairs, table, time};

/// Characters of a statement in the list.
const ABOUT_CHARS: usize = 50;

/// Writes on several shards.
#[derive(Debug, Subcommand)]
pub enum WritesCommand {
    /// Writes by polyshard.multi_shard = 'eventual': those that a shard is still to get, and the latest others
    #[command(after_help = "Examples:\n  polyshard writes list\n  polyshard writes list --json")]
    List,
    /// One write: which shards are still to get it, and why
    #[command(after_help = "Examples:\n  polyshard writes show 0b5c6f9e-6c1a-4a53-9d1c-2f6f2b1c9b7e")]
    Show {
        /// Its id, as the warning or SHOW polyshard.last_write told it
        id: String,
    },
    /// Try now to complete a write; the servers do so by themselves every second
    #[command(after_help = "Examples:\n  polyshard writes retry 0b5c6f9e-6c1a-4a53-9d1c-2f6f2b1c9b7e")]
    Retry {
        /// Its id
        id: String,
    },
    /// Give a write up on a shard that cannot take it; what it was to do there is not done
    #[command(after_help = "\
Examples:
  polyshard writes skip 0b5c6f9e-6c1a-4a53-9d1c-2f6f2b1c9b7e --shard s2 --yes

The other shards keep what they have. Look at 'polyshard writes show' first: if a row is in the way, mend the row
instead, and the write is completed.")]
    Skip {
        /// Its id
        id: String,
        /// The shard that is not to get it any more
        #[arg(long, value_name = "SHARD")]
        shard: String,
        /// Yes, give it up there
        #[arg(long)]
        yes: bool,
    },
}

/// `writes`.
pub fn run(command: &WritesCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    match command {
        WritesCommand::List => output.answer(&client.writes()?, write_table),
        WritesCommand::Show { id } => output.answer(&client.write(id)?, show),
        WritesCommand::Retry { id } => output.answer(&client.retry_write(id)?, show),
        WritesCommand::Skip { id, shard, yes } => {
            let shard = ShardId::new(shard).map_err(|error| Problem::invalid("shard", error.to_string()))?;
            if !yes {
                let message = format!("shard {shard} will lack what write {id} was to do there");
                return Err(Problem::invalid("yes", message)
                    .with_remedy("say --yes if that is wanted")
                    .into());
            }
            output.answer(&client.skip_write(id, &SkipWrite { shard })?, show)
        }
    }
}

fn write_table(answer: &WritesAnswer) -> String {
    if answer.writes.is_empty() {
        return "No writes on several shards.\n".to_owned();
    }
    let row = |write: &WriteView| {
        let about: String = write.about.chars().take(ABOUT_CHARS).collect();
        [write.id.clone(), state(write), time(write.decided_ms), about]
    };
    table(["id", "state", "decided", "statement"], answer.writes.iter().map(row))
}

fn state(write: &WriteView) -> String {
    if write.completed {
        return "done".to_owned();
    }
    if write.waiting.is_empty() {
        let shards: Vec<&str> = write.skipped.iter().map(ShardId::as_str).collect();
        return format!("given up on {}", shards.join(", "));
    }
    let shards: Vec<&str> = write.waiting.iter().map(|part| part.shard.as_str()).collect();
    format!("waits for {}", shards.join(", "))
}

fn show(write: &WriteView) -> String {
    let waiting: Vec<String> = write
        .waiting
        .iter()
        .map(|part| match &part.error {
            Some(error) => format!("{}: {error}", part.shard),
            None => part.shard.to_string(),
        })
        .collect();
    let skipped: Vec<String> = write.skipped.iter().map(ToString::to_string).collect();
    let mut rows = vec![
        ("id", write.id.clone()),
        ("state", state(write)),
        ("statement", write.about.clone()),
        ("decided", time(write.decided_ms)),
    ];
    rows.extend(write.completed_ms.map(|ms| ("completed", time(ms))));
    rows.extend(waiting.into_iter().map(|part| ("waits for", part)));
    rows.extend((!skipped.is_empty()).then(|| ("given up on", skipped.join(", "))));
    pairs(rows)
}
