//! `polyshard table` and `polyshard schema`: how SQL tables are placed, and whether the shards are alike.

use clap::{Args, Subcommand};
use polyshard_admin::Client;
use polyshard_admin::types::{DeclareRequest, SchemaCheckAnswer, TablePlacement, TableView};
use polyshard_map::{MapName, ShardId};

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::{table, yes_no};

/// What to do with tables.
#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// All SQL tables, and how each is placed
    #[command(after_help = "Examples:\n  polyshard table list\n  polyshard table list --json")]
    List,
    /// Put each row of a table on the shard that a map says for its key
    Shard(ShardArgs),
    /// Keep all rows of a table on every shard, so that joins with it stay on one shard
    #[command(after_help = "Examples:\n  polyshard table reference country")]
    Reference {
        /// The table: NAME, or SCHEMA.NAME
        table: String,
    },
    /// Keep all rows of a table on one shard
    #[command(after_help = "Examples:\n  polyshard table local audit --shard s1")]
    Local {
        /// The table: NAME, or SCHEMA.NAME
        table: String,
        /// The shard
        #[arg(long, value_name = "SHARD")]
        shard: ShardId,
    },
}

/// `table shard`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  polyshard table shard orders --map tenants --key tenant_id

Rows that the table has already are put where they belong, all or none. Primary key and unique indexes must contain the
key column, and foreign keys must stay inside a shardlet or refer to reference tables.")]
pub struct ShardArgs {
    /// The table: NAME, or SCHEMA.NAME
    pub table: String,
    /// The map
    #[arg(long, value_name = "MAP")]
    pub map: MapName,
    /// The key column
    #[arg(long, value_name = "COLUMN")]
    pub key: String,
}

/// What to do with the schema.
#[derive(Debug, Subcommand)]
pub enum SchemaCommand {
    /// Compare the shards: schemas object by object, reference tables by checksum; exit with 4 if they differ
    #[command(after_help = "Examples:\n  polyshard schema check\n  polyshard schema check --json")]
    Check,
}

/// Runs `table`.
pub fn run_table(command: &TableCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let plain = |name: &str, placement| DeclareRequest {
        table: name.to_owned(),
        placement,
        map: None,
        key: None,
        shard: None,
    };
    let request = match command {
        TableCommand::List => return list(client, output),
        TableCommand::Shard(ShardArgs { table, map, key }) => DeclareRequest {
            map: Some(map.clone()),
            key: Some(key.clone()),
            ..plain(table, TablePlacement::Sharded)
        },
        TableCommand::Reference { table } => plain(table, TablePlacement::Reference),
        TableCommand::Local { table, shard } => {
            DeclareRequest { shard: Some(shard.clone()), ..plain(table, TablePlacement::Local) }
        }
    };
    output.answer(&client.declare_table(&request)?, |view| {
        let how = match view.placement {
            TablePlacement::Sharded => format!("sharded by {}", words(view).1),
            TablePlacement::Reference => "a reference table, with all rows on every shard".to_owned(),
            TablePlacement::Local => format!("local to {}", words(view).1),
        };
        format!("Table {} is {how}.\n", view.table)
    })
}

fn list(client: &Client, output: &Output) -> Result<Exit, Failure> {
    output.answer(&client.tables()?, |answer| {
        if answer.tables.is_empty() {
            return "No tables.\n".to_owned();
        }
        table(
            ["table", "placement", "by", "declared"],
            answer.tables.iter().map(|view| {
                let (how, by) = words(view);
                [view.table.clone(), how.to_owned(), by, yes_no(view.declared)]
            }),
        )
    })
}

fn words(view: &TableView) -> (&'static str, String) {
    match view.placement {
        TablePlacement::Sharded => {
            let map = view.map.as_ref().map(ToString::to_string).unwrap_or_default();
            ("sharded", format!("map {map}, key {}", view.key.clone().unwrap_or_default()))
        }
        TablePlacement::Reference => ("reference", String::new()),
        TablePlacement::Local => {
            ("local", format!("shard {}", view.shard.as_ref().map(ToString::to_string).unwrap_or_default()))
        }
    }
}

/// Runs `schema`.
pub fn run_schema(command: &SchemaCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let SchemaCommand::Check = command;
    let answer = client.check_schema()?;
    output.answer(&answer, check_words)?;
    Ok(match (answer.differences.is_empty(), answer.unreachable.is_empty()) {
        (false, _) => Exit::Conflict,
        (true, false) => Exit::Unavailable,
        (true, true) => Exit::Ok,
    })
}

/// What is not alike, for people.
pub fn check_words(answer: &SchemaCheckAnswer) -> String {
    let mut text = String::new();
    for away in &answer.unreachable {
        text.push_str(&format!("Shard {} cannot be compared: {}\n", away.shard, away.reason));
    }
    if answer.differences.is_empty() {
        let SchemaCheckAnswer { shards, objects, position, .. } = answer;
        return text
            + &format!(
                "{shards} shards are alike in {objects} objects, at entry {position} of the journal.\n"
            );
    }
    let like = answer.like.as_ref().map(ToString::to_string).unwrap_or_default();
    let expected = format!("on {like}");
    let short = |value: &Option<String>| match value {
        None => "(missing)".to_owned(),
        Some(value) => value.chars().take(60).collect::<String>().replace('\n', " "),
    };
    let rows = answer
        .differences
        .iter()
        .map(|one| [one.shard.to_string(), one.object.clone(), short(&one.found), short(&one.expected)]);
    text + &table(["shard", "object", "there", expected.as_str()], rows)
}
