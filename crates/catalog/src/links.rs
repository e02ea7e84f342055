//! Soft references between tables, which no database can watch because the rows may be on different shards: recorded
//! here, and looked into by the checker.

use polyshard_engine::{Dialect, Statement};
use polyshard_shard::OpId;
use serde_json::Value;

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::sql_catalog::{from_json, parse};
use crate::tx::{CatalogTx, Reply};

/// Soft references that there may be: the checker reads two tables for each.
pub const LINKS_MAX: usize = 1_000;

/// The table.
pub(crate) fn statement(dialect: Dialect) -> String {
    let text = dialect.text();
    format!(
        "CREATE TABLE IF NOT EXISTS {} (id {text} PRIMARY KEY, body {text} NOT NULL)",
        dialect.own_table("link")
    )
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
