//! Soft references between tables, which no database can watch because the rows may be on different shards: recorded
//! here, and looked into by the checker; and what that found when it last ran by itself.

use std::time::Duration;

use polyshard_engine::{Dialect, Statement};
use polyshard_shard::OpId;
use serde_json::Value;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::sql_catalog::{from_json, parse};
use crate::tx::{CatalogTx, Reply};

/// Soft references that there may be: the checker reads two tables for each.
pub const LINKS_MAX: usize = 1_000;

/// The tables.
pub(crate) fn statements(dialect: Dialect) -> [String; 2] {
    let (int, text) = (dialect.bigint(), dialect.text());
    [
        format!(
            "CREATE TABLE IF NOT EXISTS {} (id {text} PRIMARY KEY, body {text} NOT NULL)",
            dialect.own_table("link")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (one {int} PRIMARY KEY CHECK (one = 1), claimed {int} NOT NULL, \
             at {int}, body {text})",
            dialect.own_table("checked")
        ),
    ]
}

impl Catalog {
    /// All soft references, in the order of their names.
    pub async fn links(&self) -> Reply<Vec<(OpId, Value)>> {
        let db = self.db().await?;
        let sql = format!("SELECT id, body FROM {} ORDER BY id", db.dialect().own_table("link"));
        let rows = db.read(Statement::new(sql)).await?;
        rows.iter().map(|row| Ok((parse("link", row.text(0)?)?, from_json("link", row.text(1)?)?))).collect()
    }

    /// Records a soft reference; the same again is the one that is there.
    pub async fn add_link(&self, body: &Value) -> Reply<OpId> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let known = tx.rows(Statement::new(format!("SELECT id, body FROM {}", tx.own("link")))).await?;
        for row in &known {
            if from_json::<Value>("link", row.text(1)?)? == *body {
                return parse("link", row.text(0)?);
            }
        }
        if known.len() >= LINKS_MAX {
            return Err(CatalogError::Invalid(format!(
                "there are {LINKS_MAX} links, which is the most; remove some"
            )));
        }
        let id = OpId::new(self.fresh_id());
        let sql = format!("INSERT INTO {} (id, body) VALUES ($1, $2)", tx.own("link"));
        tx.done(Statement::new(sql).bind(id.to_string()).bind(body.to_string())).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Whether it is time for the checker to run, and this process is the one: nobody else is told so before that time
    /// is over again.
    pub async fn claim_check(&self, every: Duration) -> Reply<bool> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let now = tx.now_ms().await?;
        let sql = format!(
            "INSERT INTO {} AS had (one, claimed) VALUES (1, $1) ON CONFLICT (one) DO UPDATE \
             SET claimed = excluded.claimed WHERE had.claimed <= $2 RETURNING claimed",
            tx.own("checked")
        );
        let before = now - i64::try_from(every.as_millis()).unwrap_or(i64::MAX);
        let claimed = !tx.rows(Statement::new(sql).bind(now).bind(before)).await?.is_empty();
        tx.commit().await?;
        Ok(claimed)
    }

    /// Stores what the checker found.
    pub async fn put_check(&self, body: &Value) -> Reply<()> {
        let mut tx = self.begin().await?;
        let sql = format!("UPDATE {} SET at = claimed, body = $1", tx.own("checked"));
        tx.done(Statement::new(sql).bind(body.to_string())).await?;
        tx.commit().await
    }

    /// What the checker found last, and when that began.
    pub async fn last_check(&self) -> Reply<Option<(i64, Value)>> {
        let db = self.db().await?;
        let sql =
            format!("SELECT at, body FROM {} WHERE body IS NOT NULL", db.dialect().own_table("checked"));
        let rows = db.read(Statement::new(sql)).await?;
        rows.first().map(|row| Ok((row.int(0)?, from_json("check", row.text(1)?)?))).transpose()
    }

    /// Forgets a soft reference.
    pub async fn remove_link(&self, id: OpId) -> Reply<()> {
        let mut tx = self.begin().await?;
        tx.lock().await?;
        let sql = format!("DELETE FROM {} WHERE id = $1 RETURNING id", tx.own("link"));
        if tx.rows(Statement::new(sql).bind(id.to_string())).await?.is_empty() {
            return Err(CatalogError::NoSuchOperation(id));
        }
        tx.commit().await
    }
}
