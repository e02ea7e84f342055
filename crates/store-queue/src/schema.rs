//! The table that queues have on every shard.

use polyshard_engine::Dialect;
use polyshard_shard::{SharedTable, StoreSchema};

/// The table of messages, as the dialect's [`Dialect::own_table`] knows it.
pub(crate) const MESSAGES: &str = "queue_message";

/// What is to be made on every shard.
pub fn schema() -> StoreSchema {
    StoreSchema {
        statements,
        shared: &[SharedTable { name: MESSAGES, by_placement: |_| "placement, dataset, id" }],
    }
}

/// All messages of a queue have one placement, so the primary key serves both to find a message and to find what
/// belongs to a range, whichever queues it is of. A table that an earlier version made has its primary key in the
/// order `(dataset, placement, id)`, and an index for ranges beside it: every statement is for both. `due_at` is the
/// time a message that was got had become visible at, by which the messages of one get are put in order.
fn statements(dialect: Dialect) -> Vec<String> {
    let (int, blob) = (dialect.bigint(), dialect.blob());
    let own = |name| dialect.own_table(name);
    let clustered = match dialect {
        Dialect::Sqlite => " WITHOUT ROWID, STRICT",
        Dialect::Postgres => "",
    };
    let mut out: Vec<String> = dialect.create_own_schema().map(str::to_owned).into_iter().collect();
    out.extend([
        format!(
            "CREATE TABLE IF NOT EXISTS {} (dataset {int} NOT NULL, placement {blob} NOT NULL, id {blob} NOT NULL, \
             visible_at {int} NOT NULL, expires_at {int} NOT NULL, inserted_at {int} NOT NULL, \
             due_at {int} NOT NULL, dequeue_count {int} NOT NULL, receipt {int} NOT NULL, body {blob} NOT NULL, \
             PRIMARY KEY (placement, dataset, id)){clustered}",
            own(MESSAGES)
        ),
        index(dialect, "visible", "dataset, visible_at, id"),
        index(dialect, "expires", "dataset, expires_at"),
    ]);
    out
}

fn index(dialect: Dialect, name: &str, columns: &str) -> String {
    let on = format!("ON {} ({columns})", dialect.own_table(MESSAGES));
    match dialect {
        Dialect::Sqlite => format!("CREATE INDEX IF NOT EXISTS polyshard_queue_message_{name} {on}"),
        // Even to find that an index is there PostgreSQL waits for all who write to the table, and others wait behind
        // it: a process could not start while a transaction is open, or is left undecided by one that was killed.
        Dialect::Postgres => format!(
            "DO $$ BEGIN IF to_regclass('polyshard.queue_message_{name}') IS NULL THEN \
             CREATE INDEX IF NOT EXISTS queue_message_{name} {on}; END IF; END $$"
        ),
    }
}
