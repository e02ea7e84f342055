//! The catalog's tables and the version of their format.

use polyshard_engine::{Access, Database, Dialect, Statement};
use polyshard_shard::create_own_index;
use uuid::Uuid;

use crate::CatalogError;

/// The format this program writes. A newer one is refused; an older one is brought up step by step.
pub(crate) const FORMAT: i64 = 1;

/// Creates what is missing and reads who the cluster is. `fresh` names a cluster that is only now made.
pub(crate) async fn create(db: &Database, fresh: Uuid) -> Result<Uuid, CatalogError> {
    let mut tx = db.begin(Access::Write).await?;
    if db.dialect() == Dialect::Postgres {
        // Two servers that start at once would otherwise collide in the system catalog.
        tx.run(Statement::new("SELECT pg_advisory_xact_lock(1886602068, 0)")).await?;
    }
    for sql in statements(db.dialect()) {
        tx.run(Statement::new(sql)).await?;
    }
    let cluster = db.dialect().own_table("cluster");
    let insert = format!(
        "INSERT INTO {cluster} (one, format, cluster, epoch, seq, dataset) VALUES (1, $1, $2, 0, 0, 0) \
         ON CONFLICT (one) DO NOTHING"
    );
    tx.run(Statement::new(insert).bind(FORMAT).bind(fresh.to_string())).await?;
    let rows = tx.run(Statement::new(format!("SELECT format, cluster FROM {cluster}"))).await?;
    let row = rows.first().ok_or(CatalogError::Damaged { what: "cluster row", detail: "missing".into() })?;
    let found = row.int(0)?;
    if found > FORMAT {
        return Err(CatalogError::FormatTooNew { found, known: FORMAT });
    }
    let id = row.text(1)?.parse().map_err(|error: uuid::Error| CatalogError::Damaged {
        what: "cluster id",
        detail: error.to_string(),
    })?;
    tx.commit().await?;
    Ok(id)
}

fn statements(dialect: Dialect) -> Vec<String> {
    let (int, blob, text) = (dialect.bigint(), dialect.blob(), dialect.text());
    let own = |name: &str| dialect.own_table(name);
    let index = |name: &str, table: &str, columns: &str| {
        create_own_index(dialect, name, &format!("{} {columns}", own(table)))
    };
    let mut out: Vec<String> = dialect.create_own_schema().map(str::to_owned).into_iter().collect();
    out.extend([
        format!(
            "CREATE TABLE IF NOT EXISTS {} (one {int} PRIMARY KEY CHECK (one = 1), format {int} NOT NULL, \
             cluster {text} NOT NULL, epoch {int} NOT NULL, seq {int} NOT NULL, dataset {int} NOT NULL)",
            own("cluster")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {text} PRIMARY KEY, record {text} NOT NULL, version {int} NOT NULL)",
            own("shard")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (name {text} PRIMARY KEY, definition {text} NOT NULL, \
             epoch {int} NOT NULL, version {int} NOT NULL, live {int} NOT NULL)",
            own("map")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (map {text} NOT NULL, lo {blob} NOT NULL, hi {blob}, shard {text} NOT NULL, \
             state {text} NOT NULL, epoch {int} NOT NULL, grp {text}, lock_owner {text}, lock_until {int}, \
             PRIMARY KEY (map, lo))",
            own("map_range")
        ),
        index("map_range_group", "map_range", "(map, grp) WHERE grp IS NOT NULL"),
        index("map_range_shard", "map_range", "(shard, map, lo)"),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {text} PRIMARY KEY, map {text} NOT NULL, kind {text} NOT NULL, \
             body {text} NOT NULL, step {text} NOT NULL, state {text} NOT NULL, token {int} NOT NULL, \
             owner {text} NOT NULL, lease_until {int} NOT NULL, started {int} NOT NULL, message {text})",
            own("operation")
        ),
        index("operation_running", "operation", "(map) WHERE state = 'running'"),
        index("operation_started", "operation", "(started)"),
        format!("CREATE TABLE IF NOT EXISTS {} (seq {int} PRIMARY KEY, event {text} NOT NULL)", own("event")),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (store {text} NOT NULL, name {text} NOT NULL, id {int} NOT NULL UNIQUE, \
             record {text} NOT NULL, PRIMARY KEY (store, name))",
            own("dataset_list")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {text} PRIMARY KEY, wish {text} NOT NULL, progress {text})",
            own("operation_wish")
        ),
    ]);
    out.extend(crate::journal::statements(dialect));
    out.extend(crate::outcome::statements(dialect));
    out.extend(crate::runs::statements(dialect));
    out.extend(crate::barrier::statements(dialect));
    out.extend(crate::procedures::statements(dialect));
    out.extend(crate::known::statements(dialect));
    out.extend(crate::heat::statements(dialect));
    out.extend(crate::links::statements(dialect));
    out.extend(crate::writes::statements(dialect));
    out
}
