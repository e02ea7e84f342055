//! Which processes go by the catalog, and up to which event each has heard: whoever changes what an older view would
//! get wrong waits for all of them.

use std::collections::BTreeMap;

use polyshard_engine::{Batch, Dialect, Statement};
use polyshard_shard::RouterId;

use crate::catalog::Catalog;
use crate::tx::Reply;

/// The table: routers, with the last event that each has taken in.
pub(crate) fn statements(dialect: Dialect) -> Vec<String> {
    let int = dialect.bigint();
    vec![format!(
        "CREATE TABLE IF NOT EXISTS {} (router {int} PRIMARY KEY, seq {int} NOT NULL)",
        dialect.own_table("router_heard")
    )]
}

impl Catalog {
    /// Says that a router goes by everything up to an event from now on. It is waited for from then on.
    pub async fn heard(&self, router: RouterId, seq: u64) -> Reply<()> {
        let db = self.db().await?;
        let sql = format!(
            "INSERT INTO {} (router, seq) VALUES ($1, $2) ON CONFLICT (router) DO UPDATE SET seq = excluded.seq",
            db.dialect().own_table("router_heard")
        );
        let statement = Statement::new(sql).bind(i64::from(router.get())).bind(seq as i64);
        db.write(Batch::from(statement)).await?;
        Ok(())
    }

    /// Up to which event each router has heard.
    pub async fn who_heard(&self) -> Reply<BTreeMap<RouterId, u64>> {
        let db = self.db().await?;
        let sql = format!("SELECT router, seq FROM {}", db.dialect().own_table("router_heard"));
        let rows = db.read(Statement::new(sql)).await?;
        rows.rows().iter().map(|row| Ok((RouterId::new(row.int(0)? as u32), row.int(1)? as u64))).collect()
    }

    /// Waits no more for a router, unless it has heard of an event by now: it has ended, or was cut off and must read
    /// the catalog before it goes on.
    pub async fn forget_router(&self, router: RouterId, before: u64) -> Reply<()> {
        let db = self.db().await?;
        let sql =
            format!("DELETE FROM {} WHERE router = $1 AND seq < $2", db.dialect().own_table("router_heard"));
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        let statement = Statement::new(sql).bind(i64::from(router.get())).bind(before);
        db.write(Batch::from(statement)).await?;
        Ok(())
    }
}
