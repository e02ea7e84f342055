//! `polyshard check` and `link`: rows in the wrong place, tables that differ, references to nothing; and their repair.

use clap::{Args, Subcommand};
use polyshard_admin::types::{
    LinkView, LinksAnswer, LinksCheckAnswer, NewLink, OldRowsWish, RepairRowsAnswer, RepairRowsRequest,
    RowsCheckAnswer, SchemaCheckAnswer,
};
use polyshard_admin::{Client, Problem};
use polyshard_map::{MapName, ShardId};
use serde::Serialize;

use super::moves;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::table;

/// Look for rows in the wrong place, tables that differ and links that name nothing; exit with 4 if there are any.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  polyshard check
  polyshard check tenants --json
  polyshard check --repair --dry-run
  polyshard check --repair
  polyshard check --repair --owner-wins
  polyshard check --repair --carry-old --dry-run
  polyshard check --repair --drop-old
  polyshard check --repair --like s1
  polyshard check --repair --confirm")]
pub struct CheckArgs {
    /// The map alone; all maps, the schema, reference tables and links if none is named
    map: Option<MapName>,
    /// Put right what was found, and say what was done; exit with 4 if something is left
    #[arg(long)]
    repair: bool,
    /// Only say what would be put right
    #[arg(long, requires = "repair")]
    dry_run: bool,
    /// Where it cannot be decided, the shard that owns a key is right: remove other versions of its rows
    #[arg(long, requires = "repair")]
    owner_wins: bool,
    /// Carry rows to their owner that are from before their range went elsewhere, and that it has none of; --dry-run
    /// shows some of their keys
    #[arg(long, requires = "repair", conflicts_with = "drop_old")]
    carry_old: bool,
    /// Remove such rows
    #[arg(long, requires = "repair")]
    drop_old: bool,
    /// The shard whose reference tables are right; what most shards have, if none is named
    #[arg(long, value_name = "SHARD", requires = "repair", conflicts_with = "map")]
    like: Option<ShardId>,
    /// Remove rows of reference tables that the other shards lack; a copy is kept in polyshard.mended_row of the shard
    #[arg(long, requires = "repair", conflicts_with = "map")]
    confirm: bool,
}

/// Links: columns that name rows of another table, whose shard may be another too.
#[derive(Debug, Subcommand)]
pub enum LinkCommand {
    /// Record a link, which 'polyshard check' looks into
    #[command(after_help = "Examples:
  polyshard link add order_lines.product_id --to products.id
  polyshard link add sales.lines.customer,number --to sales.orders.customer,number")]
    Add {
        /// The table and its columns: TABLE.COLUMN,… or SCHEMA.TABLE.COLUMN,…
        #[arg(value_name = "TABLE.COLUMN")]
        from: String,
        /// The table and columns that they name
        #[arg(long, value_name = "TABLE.COLUMN")]
        to: String,
    },
    /// All links
    #[command(after_help = "Examples:\n  polyshard link list\n  polyshard link list --json")]
    List,
    /// Forget a link
    #[command(after_help = "Examples:\n  polyshard link remove 2f1c6f8e-6a0f-4f0e-9d52-6a3f0a3c1b7d")]
    Remove {
        /// Its id
        id: String,
    },
}

/// What `check` says of everything.
#[derive(Serialize)]
struct Checked {
    maps: Vec<RowsCheckAnswer>,
    schema: SchemaCheckAnswer,
    links: LinksCheckAnswer,
}

/// `check`.
pub fn run(args: &CheckArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    if args.repair {
        return repair(args, client, output);
    }
    let maps = rows(args.map.as_ref(), client)?;
    let found = maps.iter().any(|answer| !answer.misplaced.is_empty());
    let away = maps.iter().any(|answer| !answer.unreachable.is_empty());
    if args.map.is_some() {
        output.answer(&maps, |maps| row_words(maps))?;
        return Ok(exit(found, away));
    }
    // Everything: also what every shard must have alike, the rows of reference tables among it.
    let all = Checked { maps, schema: client.check_schema()?, links: client.check_links()? };
    output.answer(&all, |all| {
        row_words(&all.maps) + &super::schema::check_words(&all.schema) + &link_words(&all.links)
    })?;
    let found = found || !all.schema.differences.is_empty() || !all.links.broken.is_empty();
    Ok(exit(found, away || !all.schema.unreachable.is_empty() || !all.links.unchecked.is_empty()))
}

fn rows(map: Option<&MapName>, client: &Client) -> Result<Vec<RowsCheckAnswer>, Failure> {
    let names = match map {
        Some(name) => vec![name.clone()],
        None => client.maps()?.maps.into_iter().map(|map| map.name).collect(),
    };
    names.iter().map(|name| Ok(client.check_rows(name)?)).collect()
}

fn repair(args: &CheckArgs, client: &Client, output: &Output) -> Result<Exit, Failure> {
    let request = RepairRowsRequest {
        map: args.map.clone(),
        dry_run: args.dry_run,
        owner_wins: args.owner_wins,
        like: args.like.clone(),
        confirm: args.confirm,
        old_rows: match (args.carry_old, args.drop_old) {
            (true, _) => Some(OldRowsWish::Carry),
            (_, true) => Some(OldRowsWish::Remove),
            _ => None,
        },
    };
    let answer = client.repair_rows(&request)?;
    let Some(id) = &answer.procedure else {
        output.answer(&answer, |answer| repair_words(answer, args.dry_run))?;
        let found = !answer.rows.is_empty() || !answer.tables.is_empty();
        return Ok(exit(found, !answer.unreachable.is_empty()));
    };
    if output.format() == crate::output::Format::People {
        output.text(&repair_words(&answer, false))?;
    }
    let done = moves::wait(id, client, output)?;
    output.answer(&done, |done| {
        let said = done.message.as_deref().unwrap_or("nothing was left to do");
        said.split("; ").map(|line| format!("{line}\n")).collect()
    })?;
    // What could not be decided is still there.
    let left = rows(args.map.as_ref(), client)?;
    let found = left.iter().any(|answer| !answer.misplaced.is_empty());
    let refused = args.map.is_none() && answer.tables.iter().any(|table| table.refused.is_some());
    Ok(exit(found || refused, !answer.unreachable.is_empty()))
}

/// `link`.
pub fn run_link(command: &LinkCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    match command {
        LinkCommand::Add { from, to } => {
            let ((table, columns), (to, to_columns)) = (side("table", from)?, side("to", to)?);
            let link = client.add_link(&NewLink { table, columns, to, to_columns })?;
            output.answer(&link, |link: &LinkView| format!("Link {}: {}.\n", link.id, link.says))
        }
        LinkCommand::List => {
            output.answer(&client.links()?, |answer: &LinksAnswer| match answer.links.is_empty() {
                true => "There are no links.\n".to_owned(),
                false => {
                    let rows = answer.links.iter().map(|link| [link.id.clone(), link.says.clone()]);
                    table(["link", "says"], rows)
                }
            })
        }
        LinkCommand::Remove { id } => {
            client.remove_link(id)?;
            output.answer(&serde_json::json!({ "removed": id }), |_| format!("Removed link {id}.\n"))
        }
    }
}

/// Reads `schema.table.column,column`.
fn side(field: &str, text: &str) -> Result<(String, Vec<String>), Failure> {
    let Some((table, columns)) = text
        .rsplit_once('.')
        .filter(|(table, columns)| !table.is_empty() && columns.split(',').all(|column| !column.is_empty()))
    else {
        return Err(Problem::invalid(field, format!("{text:?} is no table with its columns"))
            .with_remedy("say TABLE.COLUMN, or TABLE.COLUMN,COLUMN")
            .into());
    };
    Ok((table.to_owned(), columns.split(',').map(str::to_owned).collect()))
}

fn exit(found: bool, away: bool) -> Exit {
    match (found, away) {
        (true, _) => Exit::Conflict,
        (false, true) => Exit::Unavailable,
        (false, false) => Exit::Ok,
    }
}

fn row_words(answers: &[RowsCheckAnswer]) -> String {
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
        true if !text.is_empty() => text + "All rows of the other shards are where they belong.\n",
        true => text + "All rows are on the shards that own them.\n",
        false => text + &table(["map", "shard", "dataset", "rows that are not its own"], rows),
    }
}

fn link_words(answer: &LinksCheckAnswer) -> String {
    let mut text = String::new();
    for one in &answer.unchecked {
        text.push_str(&format!("Link {} cannot be looked into: {}\n", one.id, one.reason));
    }
    if !answer.broken.is_empty() {
        let rows = answer.broken.iter().map(|one| {
            [one.says.clone(), one.rows.to_string(), one.keys.to_string(), one.examples.join("; ")]
        });
        return text + &table(["link", "rows that name nothing", "keys", "such as"], rows);
    }
    match (answer.links, answer.unchecked.is_empty()) {
        (0, _) | (_, false) => text,
        (links, true) => {
            format!("All rows named by {links} link{} are there.\n", if links == 1 { "" } else { "s" })
        }
    }
}

fn repair_words(answer: &RepairRowsAnswer, dry_run: bool) -> String {
    let mut text = String::new();
    for away in &answer.unreachable {
        text.push_str(&format!("Shard {} cannot be asked: {}\n", away.shard, away.reason));
    }
    if answer.rows.is_empty() && answer.tables.is_empty() {
        return text + "There is nothing to put right.\n";
    }
    if !answer.rows.is_empty() {
        let rows = answer.rows.iter().map(|one| {
            let left = one.differs + one.old + one.homeless + one.stuck + one.moving;
            [
                one.map.to_string(),
                one.shard.to_string(),
                one.dataset.clone(),
                one.moved.to_string(),
                one.removed.to_string(),
                one.discarded.to_string(),
                left.to_string(),
                why_left(one),
            ]
        });
        let names =
            ["map", "shard", "dataset", "to the owner", "same there", "owner wins", "left", "because"];
        text.push_str(&table(names, rows));
    }
    if !answer.tables.is_empty() {
        let rows = answer.tables.iter().map(|one| {
            [
                one.table.clone(),
                one.shard.to_string(),
                one.inserted.to_string(),
                one.updated.to_string(),
                one.deleted.to_string(),
                match (&one.refused, &one.like) {
                    (Some(why), _) => why.clone(),
                    (None, Some(like)) => format!("made like shard {like}"),
                    (None, None) => String::new(),
                },
            ]
        });
        text.push_str(&table(["reference table", "shard", "missing", "otherwise", "too many", "what"], rows));
    }
    if dry_run {
        text.push_str("Nothing was changed. Say it without --dry-run to put it right.\n");
    }
    text
}

fn why_left(one: &polyshard_admin::types::RepairedRows) -> String {
    let more = if one.old > one.examples.len() as u64 { " …" } else { "" };
    let old = format!(
        "old, and the owner has none, such as {}{more} (--carry-old carries them, --drop-old removes them)",
        one.examples.join("; ")
    );
    let whys = [
        (one.differs, "the owner has them otherwise (--owner-wins removes them)"),
        (one.old, old.as_str()),
        (one.homeless, "no shard owns their key"),
        (one.stuck, "the owner refuses them, or others refer to them"),
        (one.moving, "an operation is under way"),
    ];
    let whys = whys.into_iter().filter(|(rows, _)| *rows > 0).map(|(rows, why)| format!("{rows}: {why}"));
    whys.collect::<Vec<_>>().join("; ")
}
