//! Looks at triggers and rules when a table is declared: before, they were not a matter of shards.

use std::sync::Arc;

use polyshard_engine::Dialect;
use polyshard_sql::{Placement, Table, TableName};

use crate::JournalError;
use crate::introspect;
use crate::journal::Inner;
use crate::triggers::{self, Acts};
use crate::turn::Turn;

impl Inner {
    /// Refuses to place a table so that a trigger or rule would give rows another key, or write on one shard alone what
    /// others have too.
    pub(crate) async fn check_triggers(
        &self,
        turn: &Turn,
        table: &TableName,
        placement: Placement,
    ) -> Result<(), JournalError> {
        let Some(first) = turn.shards().first() else { return Ok(()) };
        let shard = self.shard(first).await?;
        // SQLite shards have none of the user's.
        if shard.dialect() != Dialect::Postgres {
            return Ok(());
        }
        let mut tx = shard.control_transaction().await.map_err(|error| JournalError::on(first, error))?;
        let found: Vec<Acts> = introspect::rows(&mut tx, triggers::QUESTION).await?;
        let mut schema = polyshard_sql::Schema::clone(turn.schema());
        if let Some(known) = schema.tables.get(table) {
            let placed = Table { placement, ..Table::clone(known) };
            schema.tables.insert(table.clone(), Arc::new(placed));
        }
        Ok(triggers::check(&found, &schema)?)
    }
}
