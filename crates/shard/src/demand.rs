//! What a shard demands of sessions that introduce themselves: that their router has read the catalog up to some event.
//! It is raised against routers that did not say that they know of a change; whoever has read it passes at once.

use std::collections::BTreeSet;
use std::time::Duration;

use polyshard_engine::{self as engine, Dialect, Rows, Statement};

use crate::sql_local::SqlLocal;
use crate::tx::Reply;
use crate::{Demand, FenceEpoch, LocalTx, RouterId, Shard, ShardError, protocol};

/// For how many numbers of a shard it is kept that a router was cut off.
const CUT_KEPT: i64 = 10_000;

/// The tables: the demand, at most one row, and the routers that were cut off, each with the number of the demand.
pub(crate) fn tables(dialect: Dialect) -> [String; 2] {
    let int = dialect.bigint();
    [
        format!(
            "CREATE TABLE IF NOT EXISTS {} (one {int} PRIMARY KEY CHECK (one = 1), number {int} NOT NULL, \
             seq {int} NOT NULL)",
            dialect.own_table("demand")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (router {int} PRIMARY KEY, number {int} NOT NULL)",
            dialect.own_table("cut_off")
        ),
    ]
}

/// What is demanded, as a router asks.
pub(crate) fn select(dialect: Dialect, router: RouterId) -> Statement {
    let (demand, cut) = (dialect.own_table("demand"), dialect.own_table("cut_off"));
    let sql = format!(
        "SELECT number, seq, (SELECT cut.number FROM {cut} AS cut WHERE cut.router = $1) FROM {demand}"
    );
    Statement::new(sql).bind(i64::from(router.get()))
}

pub(crate) fn read(rows: &Rows) -> Result<Demand, engine::Error> {
    let Some(row) = rows.first() else { return Ok(Demand::default()) };
    Ok(Demand {
        number: FenceEpoch::new(row.int(0)? as u64),
        seq: row.int(1)? as u64,
        cut: FenceEpoch::new(row.opt_int(2)?.unwrap_or(0) as u64),
    })
}

impl Shard {
    /// Lets in no session from now on whose router has not read the catalog up to an event, and notes against whom that
    /// is. The sessions that are there stay: see [`Shard::cut_off`].
    ///
    /// A process that hangs may have the lock that this takes. If it is not to be had, sessions that have it and
    /// do nothing are ended: what they had begun is undone, as if that process had died.
    pub async fn demand(&self, seq: u64, against: &BTreeSet<RouterId>) -> Result<(), ShardError> {
        self.ensure_tables().await?;
        match self.try_demand(seq, against, Holders::Leave).await {
            Err(ShardError::Engine(engine::Error::Timeout { .. } | engine::Error::Conflict { .. })) => {
                self.try_demand(seq, against, Holders::End).await
            }
            other => other,
        }
    }

    async fn try_demand(
        &self,
        seq: u64,
        against: &BTreeSet<RouterId>,
        holders: Holders,
    ) -> Result<(), ShardError> {
        let mut tx = SqlLocal::begin(self.control()).await?;
        if holders == Holders::End && self.dialect() == Dialect::Postgres {
            let rows = tx.run(Statement::new("SELECT pg_backend_pid()::bigint")).await?;
            let pid = rows.first().map(|row| row.int(0)).transpose()?.unwrap_or_default();
            let ending = async {
                tokio::time::sleep(HOLDER_WAIT).await;
                self.control().read(Statement::new(END_HOLDERS).bind(pid)).await
            };
            let (locked, ended) = tokio::join!(tx.lock_meta(), ending);
            if let Err(error) = ended {
                tracing::debug!(shard = %self.id(), %error, "sessions that hold a shard's lock cannot be ended");
            }
            locked?;
        }
        tx.lock_meta().await?;
        tx.put_demand(seq, against).await?;
        tx.commit().await
    }
}

/// What to do about those who hold the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holders {
    Leave,
    End,
}

/// How long it is waited for a lock before it is looked who has it.
const HOLDER_WAIT: Duration = Duration::from_millis(100);

/// Ends the sessions in whose transaction nothing has happened for a second, and for which this one waits, or somebody
/// for whom it waits.
const END_HOLDERS: &str = "WITH RECURSIVE blocking (pid) AS (SELECT unnest(pg_blocking_pids($1::integer)) UNION \
    SELECT unnest(pg_blocking_pids(blocking.pid)) FROM blocking) \
    SELECT pg_terminate_backend(activity.pid) FROM pg_stat_activity AS activity \
    JOIN blocking ON blocking.pid = activity.pid \
    WHERE activity.state LIKE 'idle in transaction%' AND activity.state_change < now() - interval '1 second'";

impl SqlLocal {
    async fn put_demand(&mut self, seq: u64, against: &BTreeSet<RouterId>) -> Reply<()> {
        // A number of its own: a session that reads it beside fences and departures reads them of one moment.
        let number = protocol::bump(self).await?.get() as i64;
        let table = self.own("demand");
        let sql = format!(
            "INSERT INTO {table} (one, number, seq) VALUES (1, $1, $2) \
             ON CONFLICT (one) DO UPDATE SET number = excluded.number, seq = excluded.seq"
        );
        self.done(Statement::new(sql).bind(number).bind(seq as i64)).await?;
        let table = self.own("cut_off");
        // Whoever was cut off so long ago has ended: its number is random, and no other's.
        let forget = format!("DELETE FROM {table} WHERE number < $1");
        self.done(Statement::new(forget).bind(number.saturating_sub(CUT_KEPT))).await?;
        for router in against {
            let sql = format!(
                "INSERT INTO {table} (router, number) VALUES ($1, $2) \
                 ON CONFLICT (router) DO UPDATE SET number = excluded.number"
            );
            self.done(Statement::new(sql).bind(i64::from(router.get())).bind(number)).await?;
        }
        Ok(())
    }
}
