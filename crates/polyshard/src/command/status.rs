//! `polyshard status`: the state of the whole.

use polyshard_admin::Client;
use polyshard_admin::types::Status;

use super::{map_words, shard};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::{pairs, table};

/// Runs the command.
pub fn run(client: &Client, output: &Output) -> Result<Exit, Failure> {
    output.answer(&client.status()?, for_people)
}

fn for_people(status: &Status) -> String {
    let catalog = &status.catalog;
    let router = &status.router;
    let reached = if catalog.reachable { "" } else { ", not reachable" };
    let head = pairs([
        ("version", status.version.clone()),
        ("cluster", status.cluster.clone()),
        ("epoch", status.epoch.to_string()),
        ("catalog", format!("{} ({}{reached})", catalog.url, catalog.engine)),
        ("router", format!("{} ({} tickets, {} holds)", router.id, router.tickets, router.holds)),
    ]);
    let doors = table(
        ["door", "address"],
        status.doors.iter().map(|(name, address)| [name.clone(), address.clone()]),
    );
    let shards = shard::shard_table(&status.shards);
    let maps = map_words::map_table(&status.maps);
    let away = status.shards.iter().filter(|shard| !shard.reachable).count();
    let warning = match away {
        0 => String::new(),
        n => format!(
            "\n{n} of {} shards not reachable; their keys fail until they are back.\n",
            status.shards.len()
        ),
    };
    format!("{head}\n{doors}\n{shards}\n{maps}{warning}")
}
