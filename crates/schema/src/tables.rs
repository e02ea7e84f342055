//! The journal's own tables and functions on every shard.

use polyshard_engine::{Dialect, Expect, Statement};
use polyshard_shard::StoreSchema;

use crate::ids;

/// The tables and functions, to be made with those of the stores.
pub fn schema() -> StoreSchema {
    StoreSchema { statements, shared: &[] }
}

pub(crate) fn statements(dialect: Dialect) -> Vec<String> {
    let (int, text) = (dialect.bigint(), dialect.text());
    let own = |name| dialect.own_table(name);
    let mut out: Vec<String> = dialect.create_own_schema().map(str::to_owned).into_iter().collect();
    out.push(format!(
        "CREATE TABLE IF NOT EXISTS {} (one {int} PRIMARY KEY CHECK (one = 1), format {int} NOT NULL, \
         cluster {text} NOT NULL, position {int} NOT NULL, number {int} NOT NULL)",
        own("journal_applied")
    ));
    out.push(format!("CREATE TABLE IF NOT EXISTS {} (id {text} PRIMARY KEY)", own("several_mark")));
    out.extend(ids::statements(dialect));
    if dialect == Dialect::Sqlite {
        out.extend(polyshard_sql_on_sqlite::BOOKKEEPING.map(str::to_owned));
    }
    out
}

/// Makes them in a transaction, beside others who do the same.
pub(crate) fn creation(dialect: Dialect) -> Vec<Statement> {
    let lock =
        (dialect == Dialect::Postgres).then(|| Statement::new("SELECT pg_advisory_xact_lock(1886603852, 1)"));
    lock.into_iter().chain(statements(dialect).into_iter().map(Statement::new)).collect()
}

/// How far a shard is: position and cluster. `lock` keeps it so until the transaction ends.
pub(crate) fn select_applied(dialect: Dialect, lock: Lock) -> Statement {
    let suffix = match lock {
        Lock::No => "",
        Lock::Yes => dialect.for_update(),
    };
    Statement::new(format!("SELECT position, cluster FROM {}{suffix}", dialect.own_table("journal_applied")))
}

/// Whether what is read stays so.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lock {
    No,
    Yes,
}

/// The last statement of an entry on a shard: it fails unless the shard is exactly at the entry before.
pub(crate) fn mark(dialect: Dialect, position: u64) -> Statement {
    let sql = format!(
        "UPDATE {} SET position = {position} WHERE position = {}",
        dialect.own_table("journal_applied"),
        position - 1
    );
    Statement::new(sql).expect(Expect::Rows(1))
}

/// Changes nothing, but a row only if the shard is not beyond a position; it stays there until the transaction ends.
pub(crate) fn stay_upto(dialect: Dialect, position: u64) -> Statement {
    let table = dialect.own_table("journal_applied");
    // An update and not a lock: a transaction that goes by an older snapshot must not go on beside it.
    Statement::new(format!("UPDATE {table} SET position = position WHERE position <= {position}"))
}

/// Begins the count on a shard that is new here.
pub(crate) fn begin(dialect: Dialect, cluster: &str, position: u64, number: i64) -> Statement {
    let sql = format!(
        "INSERT INTO {} (one, format, cluster, position, number) VALUES (1, 1, $1, $2, $3) ON CONFLICT (one) \
         DO UPDATE SET cluster = excluded.cluster, position = excluded.position, number = excluded.number",
        dialect.own_table("journal_applied")
    );
    Statement::new(sql).bind(cluster.to_owned()).bind(position as i64).bind(number)
}
