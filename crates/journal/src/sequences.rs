//! Serial and identity columns of sharded tables: their ids come from blocks leased from the catalog, so that no two
//! shards give the same.

use polyshard_engine::{Dialect, Statement};
use polyshard_map::ShardId;
use polyshard_sql::Table;

use crate::JournalError;
use crate::blocks::BLOCK_IDS;
use crate::entry::Recorded;
use crate::introspect::{Details, OwnedSequence};
use crate::journal::Inner;
use crate::quote::{identifier, table_name, text};
use crate::turn::Turn;

/// The statements by which a table's serial and identity columns take their ids from blocks from now on.
pub(crate) async fn blocks_instead(
    inner: &Inner,
    turn: &Turn,
    table: &Table,
    details: &Details,
) -> Result<Vec<Recorded>, JournalError> {
    blocks_instead_from(inner, turn, table, details, turn.shards().first()).await
}

/// Likewise, where one shard has all rows.
pub(crate) async fn blocks_instead_from(
    inner: &Inner,
    turn: &Turn,
    table: &Table,
    details: &Details,
    from: Option<&ShardId>,
) -> Result<Vec<Recorded>, JournalError> {
    let mut out = Vec::new();
    let name = table_name(Dialect::Postgres, &table.name);
    for owned in &details.sequences {
        let column = identifier(&owned.column);
        if owned.identity {
            // It goes with its sequence; one of the same name takes its place.
            out.push(own(format!("ALTER TABLE {name} ALTER COLUMN {column} DROP IDENTITY")));
            out.push(own(format!("CREATE SEQUENCE {}", owned.sequence)));
            out.push(own(format!("ALTER SEQUENCE {} OWNED BY {name}.{column}", owned.sequence)));
        }
        let sequence = text(&owned.sequence);
        out.push(own(format!(
            "ALTER TABLE {name} ALTER COLUMN {column} SET DEFAULT polyshard.nextval({sequence}::regclass)"
        )));
        let least = highest(inner, from, table, owned).await? + 1;
        for shard in turn.shards() {
            let start = inner.catalog.lease_ids(&owned.sequence, BLOCK_IDS, least).await?;
            let sql = format!(
                "INSERT INTO polyshard.id_block (sequence, local_from, size, start) SELECT {sequence}, \
                 CASE WHEN is_called THEN last_value + 1 ELSE last_value END, {BLOCK_IDS}, {start} FROM {}",
                owned.sequence
            );
            out.push(own(sql).only(shard));
        }
    }
    Ok(out)
}

/// The highest id that is in use or was given, on the shard that has all rows.
async fn highest(
    inner: &Inner,
    from: Option<&ShardId>,
    table: &Table,
    owned: &OwnedSequence,
) -> Result<i64, JournalError> {
    let Some(first) = from else { return Ok(0) };
    let shard = inner.shard(first).await?;
    let mut tx = shard.control_transaction().await.map_err(|error| JournalError::on(first, error))?;
    let sql = format!(
        "SELECT greatest((SELECT max({})::bigint FROM {}), (SELECT last_value FROM {} WHERE is_called), 0)",
        identifier(&owned.column),
        table_name(Dialect::Postgres, &table.name),
        owned.sequence
    );
    let found = tx.run(Statement::new(sql)).await.and_then(|rows| rows.one()?.int(0));
    found.map_err(|error| JournalError::on(first, error))
}

fn own(sql: String) -> Recorded {
    Recorded::own(Dialect::Postgres, sql)
}
