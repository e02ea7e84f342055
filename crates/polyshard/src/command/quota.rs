//! `polyshard quota`: how many requests a second a key, a table or a queue may have.

use clap::{Args, Subcommand};
use polyshard_admin::types::{KeyText, QuotaTarget, QuotaView, QuotasAnswer, RemoveQuota};
use polyshard_admin::{Client, Problem};
use polyshard_map::MapName;

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::table;

/// Quotas.
#[derive(Debug, Subcommand)]
pub enum QuotaCommand {
    /// Set or change a quota
    #[command(after_help = "\
Examples:
  polyshard quota set tenants --key 42 --requests 500     one tenant, in all stores
  polyshard quota set tenants --each --requests 50        every tenant without a quota of its own
  polyshard quota set table:orders --requests 1000
  polyshard quota set queue:jobs --requests 200

A request beyond the quota is refused, and told when to come again: error 53400 in SQL, ServerBusy with Retry-After
from tables and queues. After a rest, a second's worth may come at once.")]
    Set {
        #[command(flatten)]
        of: OfArgs,
        /// Requests a second, of all server processes together
        #[arg(long, value_name = "N")]
        requests: u64,
    },
    /// All quotas
    #[command(after_help = "Examples:\n  polyshard quota list\n  polyshard quota list --json")]
    List,
    /// Forget a quota
    #[command(after_help = "\
Examples:
  polyshard quota remove tenants --key 42
  polyshard quota remove tenants --each
  polyshard quota remove table:orders")]
    Remove {
        #[command(flatten)]
        of: OfArgs,
    },
}

/// Whose quota.
#[derive(Debug, Args)]
#[group(skip)]
pub struct OfArgs {
    /// A map, with --key or --each; or table:NAME or queue:NAME
    of: String,
    /// One key of the map
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    key: Option<String>,
    /// Every key of the map that has no quota of its own, each by itself
    #[arg(long, conflicts_with = "key")]
    each: bool,
}

impl OfArgs {
    fn target(&self) -> Result<QuotaTarget, Problem> {
        let map = || -> Result<MapName, Problem> {
            MapName::new(&self.of).map_err(|error| Problem::invalid("of", error.to_string()))
        };
        match (&self.key, self.each, self.of.contains(':')) {
            (Some(key), _, false) => Ok(QuotaTarget::Key { map: map()?, key: KeyText::text(key) }),
            (None, true, false) => Ok(QuotaTarget::Each { map: map()? }),
            (None, false, true) => Ok(QuotaTarget::Dataset { dataset: self.of.clone() }),
            (None, false, false) => Err(Problem::invalid("of", format!("which keys of map {}?", self.of))
                .with_remedy("say --key KEY, or --each")),
            (_, _, true) => Err(Problem::invalid("of", format!("{} is no map", self.of))
                .with_remedy("leave out --key and --each, or name a map")),
        }
    }
}

/// `quota`.
pub fn run(command: &QuotaCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    match command {
        QuotaCommand::Set { of, requests } => {
            let quota = client.set_quota(&QuotaView { of: of.target()?, requests: *requests })?;
            output.answer(&quota, |quota| {
                format!("{} may have {} requests a second.\n", capital(&quota.of.to_string()), quota.requests)
            })
        }
        QuotaCommand::List => output.answer(&client.quotas()?, quota_table),
        QuotaCommand::Remove { of } => {
            let of = of.target()?;
            client.remove_quota(&RemoveQuota { of: of.clone() })?;
            output.answer(&serde_json::json!({ "removed": of }), |_| format!("Removed the quota of {of}.\n"))
        }
    }
}

fn quota_table(answer: &QuotasAnswer) -> String {
    if answer.quotas.is_empty() {
        return "No quotas.\n".to_owned();
    }
    table(
        ["of", "requests/s"],
        answer.quotas.iter().map(|quota| [quota.of.to_string(), quota.requests.to_string()]),
    )
}

/// A sentence begins with a capital letter, unless with the name of a dataset.
fn capital(text: &str) -> String {
    match text.split_once(' ') {
        Some(("key", rest)) => format!("Key {rest}"),
        Some(("each", rest)) => format!("Each {rest}"),
        _ => text.to_owned(),
    }
}
