//! The commit barrier of all processes: one asks for it here, every router holds its writes and says so.
//!
//! A router holds its writes for [`BARRIER_HOLD`] from when it read of the barrier, and so at least until that time has
//! passed on the catalog's clock since the barrier was raised. Whoever raised it takes its moment and lowers it; if it
//! is lowered in time by the catalog's clock, every router that had said so was holding all the while.

use std::collections::BTreeSet;
use std::time::Duration;

use polyshard_engine::{Batch, Dialect, Listener, Statement};
use polyshard_shard::RouterId;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::tx::{CatalogTx, Reply};

/// How long writes are held at most, if nobody says that they may go on.
pub const BARRIER_HOLD: Duration = Duration::from_secs(6);

/// Where barriers are announced.
const BARRIER_CHANNEL: &str = "polyshard_barrier";

/// The tables: the one barrier, and who holds its writes for it.
pub(crate) fn statements(dialect: Dialect) -> Vec<String> {
    let (int, text) = (dialect.bigint(), dialect.text());
    let own = |name| dialect.own_table(name);
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {} (one {int} PRIMARY KEY CHECK (one = 1), id {text} NOT NULL, \
             router {int} NOT NULL, raised {int} NOT NULL)",
            own("barrier")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {text} NOT NULL, router {int} NOT NULL, PRIMARY KEY (id, router))",
            own("barrier_ack")
        ),
    ]
}

/// A barrier that is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RaisedBarrier {
    /// Its name.
    pub id: Uuid,
    /// Who raised it.
    pub router: RouterId,
}

impl Catalog {
    /// Hears of barriers.
    pub async fn listen_for_barriers(&self) -> Reply<Listener> {
        Ok(self.db().await?.listen(BARRIER_CHANNEL).await?)
    }

    /// Raises the barrier for a router; none if another's is up.
    pub async fn raise_barrier(&self, router: RouterId) -> Reply<Option<Uuid>> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let now = tx.now_ms().await?;
        let (table, acks) = (tx.own("barrier"), tx.own("barrier_ack"));
        let over = now - BARRIER_HOLD.as_millis() as i64;
        let up = tx.rows(Statement::new(format!("SELECT raised FROM {table}"))).await?;
        if up.first().map(|row| row.int(0)).transpose()?.is_some_and(|raised| raised > over) {
            tx.commit().await?;
            return Ok(None);
        }
        let id = self.fresh_id();
        tx.done(Statement::new(format!("DELETE FROM {table}"))).await?;
        tx.done(Statement::new(format!("DELETE FROM {acks}"))).await?;
        let insert = format!("INSERT INTO {table} (one, id, router, raised) VALUES (1, $1, $2, $3)");
        let insert = Statement::new(insert).bind(id.to_string()).bind(i64::from(router.get())).bind(now);
        tx.done(insert).await?;
        tx.done(Statement::notify(BARRIER_CHANNEL, id.to_string())).await?;
        tx.commit().await?;
        Ok(Some(id))
    }

    /// The barrier that is up, if there is one.
    pub async fn barrier(&self) -> Reply<Option<RaisedBarrier>> {
        let db = self.db().await?;
        let sql = format!(
            "SELECT id, router FROM {} WHERE raised > {} - {}",
            db.dialect().own_table("barrier"),
            db.dialect().now_ms(),
            BARRIER_HOLD.as_millis()
        );
        let rows = db.read(Statement::new(sql)).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let id = crate::sql_catalog::parse("barrier", row.text(0)?)?;
        Ok(Some(RaisedBarrier { id, router: RouterId::new(row.int(1)? as u32) }))
    }

    /// Says that a router holds its writes, all those under way having ended.
    pub async fn acknowledge_barrier(&self, id: Uuid, router: RouterId) -> Reply<()> {
        let db = self.db().await?;
        let own = |name| db.dialect().own_table(name);
        let sql = format!(
            "INSERT INTO {} (id, router) SELECT id, $2 FROM {} WHERE id = $1 ON CONFLICT (id, router) DO NOTHING",
            own("barrier_ack"),
            own("barrier")
        );
        let insert = Statement::new(sql).bind(id.to_string()).bind(i64::from(router.get()));
        db.write(Batch::from(insert)).await?;
        Ok(())
    }

    /// The routers that hold their writes.
    pub async fn barrier_acks(&self, id: Uuid) -> Reply<BTreeSet<RouterId>> {
        let db = self.db().await?;
        let sql = format!("SELECT router FROM {} WHERE id = $1", db.dialect().own_table("barrier_ack"));
        let rows = db.read(Statement::new(sql).bind(id.to_string())).await?;
        rows.rows().iter().map(|row| Ok(RouterId::new(row.int(0)? as u32))).collect()
    }

    /// Lets writes go on everywhere. False if the barrier did not hold until now.
    pub async fn lower_barrier(&self, id: Uuid) -> Reply<bool> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let now = tx.now_ms().await?;
        let sql = format!("DELETE FROM {} WHERE id = $1 RETURNING raised", tx.own("barrier"));
        let rows = tx.rows(Statement::new(sql).bind(id.to_string())).await?;
        let raised = rows.first().map(|row| row.int(0)).transpose()?;
        tx.done(Statement::notify(BARRIER_CHANNEL, id.to_string())).await?;
        tx.commit().await?;
        Ok(raised.is_some_and(|raised| now < raised + BARRIER_HOLD.as_millis() as i64))
    }
}
