//! The tables that entities have on every shard.

use polyshard_engine::Dialect;
use polyshard_shard::{SharedTable, StoreSchema};

/// The table of entities, as the dialect's [`Dialect::own_table`] knows it.
pub(crate) const ENTITIES: &str = "entity";

/// The column of entities that holds their PartitionKey.
pub(crate) const PARTITION_KEY_COLUMN: &str = "pk";

/// The list of partitions that a shard on SQLite has entities of.
pub(crate) const PARTITIONS: &str = "entity_partition";

/// The tables to be made on every shard.
pub fn schema() -> StoreSchema {
    StoreSchema { statements, shared: &[SharedTable { name: ENTITIES, by_placement }] }
}

/// What finds entities by their placement, where the primary key does not. On SQLite it is in the order in which moves
/// read, so that a partition need not be sorted for each page of it.
fn by_placement(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "placement, dataset, pk, rk",
        Dialect::Postgres => "placement, dataset",
    }
}

fn statements(dialect: Dialect) -> Vec<String> {
    match dialect {
        Dialect::Sqlite => sqlite(),
        Dialect::Postgres => postgres(),
    }
}

/// The columns of entities. `ts` is the time of the last change in ticks of 100 ns since 1970, later with every change
/// of the row, and so its version. `props` is in the format of `stored.rs`.
fn columns(dialect: Dialect) -> String {
    let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
    format!(
        "dataset {int} NOT NULL, pk {text} NOT NULL, rk {text} NOT NULL, placement {blob} NOT NULL, \
         ts {int} NOT NULL, props {text} NOT NULL"
    )
}

/// Entities lie in the order in which they came: many that come at once to many partitions change few pages, and those
/// of an index by their keys. If they lay in the order of the keys themselves (`WITHOUT ROWID`), every insert would
/// change almost three pages, since few entities fit into one and none is left half empty for long: see decision 16.
///
/// The index has the order in which moves read, by placement, whichever tables the entities are of. A placement is
/// made of the partition key, so a partition is in one piece there, in the order of its row keys. Partitions are
/// listed in the order of their own keys, for scans over all of them: one row for each, which triggers keep, since
/// rows also come and go by moves and restores.
///
/// A file that an earlier version made has the key `(dataset, placement, pk, rk)`, with its entities in that order or
/// in the one they came in, or it has them in that of `(dataset, pk, rk)`. It stays so, with an index by placement
/// beside: every statement is for all of them.
fn sqlite() -> Vec<String> {
    let dialect = Dialect::Sqlite;
    let (table, partitions) = (dialect.own_table(ENTITIES), dialect.own_table(PARTITIONS));
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {table} ({}, PRIMARY KEY (placement, dataset, pk, rk)) STRICT",
            columns(dialect)
        ),
        // Columns have other names than those of entities, so that a condition on these may be used with both.
        format!(
            "CREATE TABLE IF NOT EXISTS {partitions} (number INTEGER NOT NULL, name TEXT NOT NULL, \
             place BLOB NOT NULL, PRIMARY KEY (number, name)) WITHOUT ROWID, STRICT"
        ),
        // Of a file without the list.
        format!(
            "INSERT INTO {partitions} (number, name, place) SELECT DISTINCT dataset, pk, placement FROM {table} \
             WHERE NOT EXISTS (SELECT 1 FROM {partitions}) ON CONFLICT DO NOTHING"
        ),
        format!(
            "CREATE TRIGGER IF NOT EXISTS {table}_added AFTER INSERT ON {table} \
             WHEN NOT EXISTS (SELECT 1 FROM {partitions} WHERE number = NEW.dataset AND name = NEW.pk) \
             BEGIN INSERT INTO {partitions} (number, name, place) VALUES (NEW.dataset, NEW.pk, NEW.placement); END"
        ),
        format!(
            "CREATE TRIGGER IF NOT EXISTS {table}_removed AFTER DELETE ON {table} \
             WHEN NOT EXISTS (SELECT 1 FROM {table} WHERE dataset = OLD.dataset AND placement = OLD.placement \
             AND pk = OLD.pk) \
             BEGIN DELETE FROM {partitions} WHERE number = OLD.dataset AND name = OLD.pk; END"
        ),
    ]
}

/// The primary key is the order in which entities are read; an index beside it finds what belongs to a range of a map.
fn postgres() -> Vec<String> {
    let dialect = Dialect::Postgres;
    let table = dialect.own_table(ENTITIES);
    let mut out: Vec<String> = dialect.create_own_schema().map(str::to_owned).into_iter().collect();
    out.push(format!(
        "CREATE TABLE IF NOT EXISTS {table} ({}, PRIMARY KEY (dataset, pk, rk))",
        columns(dialect)
    ));
    out
}
