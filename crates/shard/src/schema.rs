//! The tables that every shard carries beside the users' own, and the version of their format.

use polyshard_engine::{Access, Database, Dialect, Statement};

use crate::{ShardError, demand};

/// The format this program writes. A newer one is refused; an older one is brought up step by step.
pub(crate) const FORMAT: i64 = 1;

/// Creates what is missing. May be repeated.
pub(crate) async fn create(db: &Database) -> Result<(), ShardError> {
    run_all(db, statements(db.dialect())).await
}

/// Creates tables in one transaction; several processes may do so at once.
async fn run_all(db: &Database, statements: Vec<String>) -> Result<(), ShardError> {
    let mut tx = db.begin(Access::Write).await?;
    if db.dialect() == Dialect::Postgres {
        // Two servers that start at once would otherwise collide in the system catalog. Another class than that of the
        // locks that name routers, which sessions hold for long.
        tx.run(Statement::new("SELECT pg_advisory_xact_lock(1886611460, 1)")).await?;
    }
    for sql in statements {
        tx.run(Statement::new(sql)).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Whether the shard's tables are there.
pub(crate) async fn exists(db: &Database) -> Result<bool, ShardError> {
    let sql = own_table_exists(db.dialect(), "meta");
    Ok(!db.read(Statement::new(sql)).await?.rows().is_empty())
}

/// A query that has a row if one of Polyshard's own tables is there: those of stores are made when a shard is first
/// used.
pub fn own_table_exists(dialect: Dialect, name: &str) -> String {
    let own = dialect.own_table(name);
    match dialect {
        Dialect::Sqlite => format!("SELECT 1 FROM sqlite_schema WHERE name = '{own}'"),
        Dialect::Postgres => format!("SELECT 1 WHERE to_regclass('{own}') IS NOT NULL"),
    }
}

/// Creates the tables of stores, and those that shards of an earlier version lack. May be repeated, also by several
/// processes at once, and holds up nobody who uses the others.
pub(crate) async fn create_stores(db: &Database, stores: &[StoreSchema]) -> Result<(), ShardError> {
    let dialect = db.dialect();
    let mut statements: Vec<String> = dialect.create_own_schema().map(str::to_owned).into_iter().collect();
    statements.extend(moves(dialect));
    // A database that is looked at before it becomes a shard gets it with the table.
    if exists(db).await? {
        statements.push(dataset_of_map(dialect));
    }
    statements.extend(demand::tables(dialect));
    statements.extend(stores.iter().flat_map(|store| (store.statements)(dialect)));
    run_all(db, statements).await?;
    for shared in stores.iter().flat_map(|store| store.shared) {
        index_by_placement(db, shared).await?;
    }
    Ok(())
}

/// The tables that a store keeps on every shard.
#[derive(Clone, Copy)]
pub struct StoreSchema {
    /// The statements that create what is missing, in one dialect.
    pub statements: fn(Dialect) -> Vec<String>,
    /// Those of its tables that many datasets share.
    pub shared: &'static [SharedTable],
}

/// A table that many datasets share, with the columns `placement` and `dataset`. What it has in a range is found by an
/// index that begins with these two: otherwise a move would have to ask for every dataset that there is.
#[derive(Clone, Copy)]
pub struct SharedTable {
    /// Its name, as [`Dialect::own_table`] knows it.
    pub name: &'static str,
    /// The columns of the index that is made where neither the primary key nor another index begins so.
    pub by_placement: fn(Dialect) -> &'static str,
}

/// Makes the index, unless there is such a one: also for a table that an earlier version has made with another key.
async fn index_by_placement(db: &Database, shared: &SharedTable) -> Result<(), ShardError> {
    let dialect = db.dialect();
    let (table, columns) = (dialect.own_table(shared.name), (shared.by_placement)(dialect));
    let is_led = match dialect {
        Dialect::Sqlite => {
            "SELECT 1 FROM pragma_index_list($1) AS l WHERE \
             (SELECT name FROM pragma_index_info(l.name) WHERE seqno = 0) = 'placement' AND \
             (SELECT name FROM pragma_index_info(l.name) WHERE seqno = 1) = 'dataset'"
        }
        Dialect::Postgres => {
            "SELECT 1 FROM pg_index i WHERE i.indrelid = to_regclass($1) AND i.indisvalid AND i.indnkeyatts >= 2 \
             AND pg_get_indexdef(i.indexrelid, 1, true) = 'placement' \
             AND pg_get_indexdef(i.indexrelid, 2, true) = 'dataset'"
        }
    };
    let found = db.read(Statement::new(is_led).bind(table.clone())).await?;
    if !found.is_empty() {
        return Ok(());
    }
    let index =
        create_own_index(dialect, &format!("{}_placed", shared.name), &format!("{table} ({columns})"));
    run_all(db, vec![index]).await
}

/// The statement that makes an index of this name among the tables of the program's own, unless it is there. `on` is
/// the table with the columns.
pub fn create_own_index(dialect: Dialect, name: &str, on: &str) -> String {
    match dialect {
        Dialect::Sqlite => format!("CREATE INDEX IF NOT EXISTS polyshard_{name} ON {on}"),
        // Even to find that an index is there PostgreSQL waits for all who write to the table, and others wait behind
        // it: a process could not start while a transaction is open, or is left undecided by one that was killed.
        Dialect::Postgres => format!(
            "DO $$ BEGIN IF to_regclass('polyshard.{name}') IS NULL THEN \
             CREATE INDEX IF NOT EXISTS {name} ON {on}; END IF; END $$"
        ),
    }
}

fn statements(dialect: Dialect) -> Vec<String> {
    let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
    let own = |name| dialect.own_table(name);
    let mut out: Vec<String> = dialect.create_own_schema().map(str::to_owned).into_iter().collect();
    out.extend([
        format!(
            "CREATE TABLE IF NOT EXISTS {} (one {int} PRIMARY KEY CHECK (one = 1), format {int} NOT NULL, \
             cluster {text} NOT NULL, shard {text} NOT NULL, incarnation {text} NOT NULL, \
             fence_epoch {int} NOT NULL, pruned_epoch {int} NOT NULL)",
            own("meta")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (name {text} PRIMARY KEY, definition {text} NOT NULL)",
            own("local_map")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (map {text} NOT NULL, lo {blob} NOT NULL, hi {blob}, \
             state {text} NOT NULL, epoch {int} NOT NULL, grp {text}, incoming {text}, PRIMARY KEY (map, lo))",
            own("local_range")
        ),
        create_own_index(
            dialect,
            "local_range_incoming",
            &format!("{} (incoming) WHERE incoming IS NOT NULL", own("local_range")),
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {text} PRIMARY KEY, epoch {int} NOT NULL, token {int} NOT NULL, \
             phase {text} NOT NULL, edit {text})",
            own("local_op")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (op {text} PRIMARY KEY, attempt {int} NOT NULL, state {text} NOT NULL, \
             map {text} NOT NULL, ranges {text} NOT NULL, access {text} NOT NULL)",
            own("fence")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (op {text} NOT NULL, router {int} NOT NULL, phase {text} NOT NULL, \
             PRIMARY KEY (op, router))",
            own("fence_ack")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (number {int} NOT NULL, piece {int} NOT NULL, map {text} NOT NULL, \
             lo {blob} NOT NULL, hi {blob}, target {text}, state {text} NOT NULL, epoch {int} NOT NULL, \
             op {text} NOT NULL, PRIMARY KEY (number, piece))",
            own("departure")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (name {text} PRIMARY KEY, map {text} NOT NULL, tab {text} NOT NULL, \
             placement {text} NOT NULL, rows_column {text}, rows_number {int})",
            own("dataset")
        ),
    ]);
    out.extend(moves(dialect));
    out.push(dataset_of_map(dialect));
    out.extend(demand::tables(dialect));
    out
}

/// The index by which the tables of a map are found, and whether a row's dataset is of it.
fn dataset_of_map(dialect: Dialect) -> String {
    let on = format!("{} (map, tab, rows_number)", dialect.own_table("dataset"));
    create_own_index(dialect, "dataset_of_map", &on)
}

/// What moves need: which captures there are, what they caught, how far rows have been carried to here, and what was
/// taken of rows that another shard had and did not own.
fn moves(dialect: Dialect) -> [String; 5] {
    let (int, text) = (dialect.bigint(), dialect.text());
    let own = |name| dialect.own_table(name);
    // Numbers are never given twice, so that what is deleted is what was read.
    let log = match dialect {
        Dialect::Sqlite => "id INTEGER PRIMARY KEY AUTOINCREMENT",
        Dialect::Postgres => "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    };
    [
        format!(
            "CREATE TABLE IF NOT EXISTS {} (capture {text} PRIMARY KEY, op {text} NOT NULL, map {text} NOT NULL, \
             ranges {text} NOT NULL, state {text} NOT NULL, ready {int} NOT NULL)",
            own("capture")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} ({log}, capture {text} NOT NULL, tab {text} NOT NULL, pk {text} NOT NULL)",
            own("capture_log")
        ),
        // A mover reads the oldest notes of one capture again and again, however many there are.
        create_own_index(dialect, "capture_log_order", &format!("{} (capture, id)", own("capture_log"))),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (op {text} NOT NULL, dataset {text} NOT NULL, position {text}, \
             done {int} NOT NULL, copied_rows {int} NOT NULL, copied_bytes {int} NOT NULL, \
             PRIMARY KEY (op, dataset))",
            own("carried")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (shard {text} NOT NULL, tab {text} NOT NULL, key_digest {text} NOT NULL, \
             pk {text} NOT NULL, row_digest {text} NOT NULL, PRIMARY KEY (shard, tab, key_digest))",
            own("taken")
        ),
    ]
}
