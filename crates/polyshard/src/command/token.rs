//! `polyshard token`: who may operate, and how far.

use clap::Subcommand;
use polyshard_admin::Client;
use polyshard_admin::types::{NewToken, Role, TokensAnswer, UserName};

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::table;

/// Tokens of the admin API and the console.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it, this once
    #[command(after_help = "\
Examples:
  polyshard token add grafana --role viewer     looks on: status, maps, metrics
  polyshard token add ci --role operator        also changes, moves, backups, SQL in the console
  polyshard token add maria --role admin        also users and tokens

Only a hash of it is kept. The name stands in the server's log beside what its bearer does.")]
    Add {
        /// Its name
        name: UserName,
        /// viewer, operator or admin; each includes those before it
        #[arg(long, value_name = "ROLE")]
        role: Role,
    },
    /// All tokens, without the secrets
    #[command(after_help = "Examples:\n  polyshard token list\n  polyshard token list --json")]
    List,
    /// Remove a token; its bearer's next request is refused
    #[command(after_help = "Examples:\n  polyshard token remove ci")]
    Remove {
        /// Its name
        name: UserName,
    },
}

/// `token`.
pub fn run(command: &TokenCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    match command {
        TokenCommand::Add { name, role } => {
            let made = client.add_token(&NewToken { name: name.clone(), role: *role })?;
            output.answer(&made, |made| format!("{}\n", made.token))
        }
        TokenCommand::List => output.answer(&client.tokens()?, token_table),
        TokenCommand::Remove { name } => {
            client.remove_token(name)?;
            output.answer(&serde_json::json!({ "removed": name }), |_| format!("Removed token {name}.\n"))
        }
    }
}

fn token_table(answer: &TokensAnswer) -> String {
    if answer.tokens.is_empty() {
        return "No tokens but that of the configuration file.\n".to_owned();
    }
    let rows = answer.tokens.iter().map(|token| [token.name.to_string(), token.role.to_string()]);
    table(["token", "role"], rows)
}
