//! The table that entities have on every shard.

use polyshard_engine::Dialect;
use polyshard_shard::StoreSchema;

/// The table of entities, as the dialect's [`Dialect::own_table`] knows it.
pub(crate) const ENTITIES: &str = "entity";

/// The column of entities that holds their PartitionKey.
pub const PARTITION_KEY_COLUMN: &str = "pk";

/// The tables to be made on every shard.
pub fn schema() -> StoreSchema {
    StoreSchema { statements }
}

/// The primary key is the order in which entities are read; the index finds what belongs to a range of a map. `ts` is
/// the time of the last change in ticks of 100 ns since 1970, later with every change of the row, and so its version.
/// `props` is in the format of `stored.rs`.
fn statements(dialect: Dialect) -> Vec<String> {
    let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
    let table = dialect.own_table(ENTITIES);
    let on = format!("ON {table} (dataset, placement)");
    let (index, clustered) = match dialect {
        Dialect::Sqlite => {
            (format!("CREATE INDEX IF NOT EXISTS polyshard_entity_placement {on}"), " WITHOUT ROWID, STRICT")
        }
        // Even to find that an index is there PostgreSQL waits for all who write to the table, and others wait behind
        // it: a process could not start while a transaction is open, or is left undecided by one that was killed.
        Dialect::Postgres => (
            format!(
                "DO $$ BEGIN IF to_regclass('polyshard.entity_placement') IS NULL THEN \
                 CREATE INDEX IF NOT EXISTS entity_placement {on}; END IF; END $$"
            ),
            "",
        ),
    };
    let mut out: Vec<String> = dialect.create_own_schema().map(str::to_owned).into_iter().collect();
    out.extend([
        format!(
            "CREATE TABLE IF NOT EXISTS {table} (dataset {int} NOT NULL, pk {text} NOT NULL, rk {text} NOT NULL, \
             placement {blob} NOT NULL, ts {int} NOT NULL, props {text} NOT NULL, \
             PRIMARY KEY (dataset, pk, rk)){clustered}"
        ),
        index,
    ]);
    out
}
