//! `polyshard ops`: look at operations.

use clap::Subcommand;
use polyshard_admin::Client;
use polyshard_admin::types::OperationView;

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::table::{or_dash, pairs, table};

/// Operations: changes under way and done.
#[derive(Debug, Subcommand)]
pub enum OpsCommand {
    /// The unfinished operations and the latest finished ones
    #[command(after_help = "Examples:\n  polyshard ops list\n  polyshard ops list --json")]
    List,
    /// One operation
    #[command(after_help = "Examples:\n  polyshard ops show 8f14e45f")]
    Show {
        /// Its id
        id: String,
    },
}

/// Runs the command.
pub fn run(command: &OpsCommand, client: &Client, output: &Output) -> Result<Exit, Failure> {
    match command {
        OpsCommand::List => output.answer(&client.operations()?, |answer| {
            if answer.operations.is_empty() {
                "No operations.\n".to_owned()
            } else {
                operation_table(&answer.operations)
            }
        }),
        OpsCommand::Show { id } => output.answer(&client.operation(id)?, |op| {
            pairs([
                ("id", op.id.clone()),
                ("kind", op.kind.clone()),
                ("map", or_dash(&op.map)),
                ("state", op.state.to_string()),
                ("step", op.step.clone()),
                ("started", format!("{} ms since 1970", op.started_ms)),
                ("message", or_dash(&op.message)),
            ])
        }),
    }
}

fn operation_table(operations: &[OperationView]) -> String {
    table(
        ["id", "kind", "map", "state", "step", "message"],
        operations.iter().map(|op| {
            [
                op.id.clone(),
                op.kind.clone(),
                or_dash(&op.map),
                op.state.to_string(),
                op.step.clone(),
                or_dash(&op.message),
            ]
        }),
    )
}
