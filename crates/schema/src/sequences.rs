//! Serial and identity columns of sharded tables: their ids come from blocks leased from the catalog, so that no two
//! shards give the same.

use polyshard_engine::{Dialect, Statement, Transaction};
use polyshard_map::ShardId;
use polyshard_sql::Table;

use crate::JournalError;
use crate::blocks::{BLOCK_IDS, forget_blocks, is_filled};
use crate::changing::declarations;
use crate::counts::names_in;
use crate::declaration::Declared;
use crate::entry::Recorded;
use crate::introspect::{self, Details, OwnedSequence};
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
    for owned in &details.sequences {
        out.extend(defaults(table, owned).into_iter().map(own));
        let least = highest(inner, from, table, owned).await? + 1;
        let names = inner.names_of_column(&table.name, owned).await?;
        // Those of a table of that name that was dropped once; an earlier version did not forget them with it.
        out.push(Recorded { rows: true, ..own(forget_blocks(&owned.sequence)) });
        for shard in turn.shards() {
            let start = inner.lease_of(&names, BLOCK_IDS, least).await?;
            out.push(own(first_block(owned, start)).only(shard));
        }
    }
    Ok(out)
}

/// Has a column take its ids from blocks.
fn defaults(table: &Table, owned: &OwnedSequence) -> Vec<String> {
    let (name, column) = (table_name(Dialect::Postgres, &table.name), identifier(&owned.column));
    let mut out = Vec::new();
    if owned.identity {
        // It goes with its sequence; one of the same name takes its place.
        out.push(format!("ALTER TABLE {name} ALTER COLUMN {column} DROP IDENTITY"));
        out.push(format!("CREATE SEQUENCE {}", owned.sequence));
        out.push(format!("ALTER SEQUENCE {} OWNED BY {name}.{column}", owned.sequence));
    }
    let sequence = text(&owned.sequence);
    out.push(format!(
        "ALTER TABLE {name} ALTER COLUMN {column} SET DEFAULT polyshard.nextval({sequence}::regclass)"
    ));
    out
}

/// Lays a shard's first block ready.
fn first_block(owned: &OwnedSequence, start: i64) -> String {
    format!(
        "INSERT INTO polyshard.id_block (sequence, local_from, size, start) SELECT {}, \
         CASE WHEN is_called THEN last_value + 1 ELSE last_value END, {BLOCK_IDS}, {start} FROM {}",
        text(&owned.sequence),
        owned.sequence
    )
}

impl Inner {
    /// Has the serial columns of sharded tables take their ids from blocks on a PostgreSQL shard that is new, where
    /// nobody has recorded it: they were declared while all shards were SQLite files, which have no sequences.
    pub(crate) async fn blocks_on_new(
        &self,
        id: &ShardId,
        position: u64,
        tx: &mut Transaction,
    ) -> Result<(), JournalError> {
        let found = introspect::read_tables(tx).await?;
        let files = self.schema_on_files(position).await?;
        let state = self.catalog.journal_state().await?;
        for (name, body) in declarations(&state.declarations) {
            let (name, Declared::Sharded { .. }) = Declared::read(name, body)? else { continue };
            let (Some(table), Some(details)) = (found.schema.tables.get(&name), found.details.get(&name))
            else {
                continue;
            };
            for owned in &details.sequences {
                let column = table.columns.iter().find(|column| column.name == owned.column);
                if column.is_none_or(is_filled) {
                    continue;
                }
                let names = names_in(files.as_ref(), &name, owned);
                let mut statements = defaults(table, owned);
                statements.push(forget_blocks(&owned.sequence));
                statements.push(first_block(owned, self.lease_of(&names, BLOCK_IDS, 1).await?));
                let ran = tx.run_all(statements.into_iter().map(Statement::new).collect()).await;
                ran.map_err(|error| JournalError::on(id, error))?;
            }
        }
        Ok(())
    }
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
