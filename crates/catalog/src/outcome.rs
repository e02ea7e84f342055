//! How transactions over several shards ended: decided here, durably, before the first shard is told.

use polyshard_engine::{Batch, Dialect, Statement};
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::tx::Reply;

/// The table.
pub(crate) fn statements(dialect: Dialect) -> Vec<String> {
    let (int, text) = (dialect.bigint(), dialect.text());
    let table = dialect.own_table("outcome");
    vec![format!("CREATE TABLE IF NOT EXISTS {table} (id {text} PRIMARY KEY, committed {int} NOT NULL)")]
}

impl Catalog {
    /// Decides how a transaction ends, unless that is decided already; answers how it does: true if it is committed.
    /// Repeating it is fine.
    pub async fn decide_outcome(&self, id: Uuid, commit: bool) -> Reply<bool> {
        let db = self.db().await?;
        let table = db.dialect().own_table("outcome");
        let insert =
            format!("INSERT INTO {table} (id, committed) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING");
        let insert = Statement::new(insert).bind(id.to_string()).bind(i64::from(commit));
        let select =
            Statement::new(format!("SELECT committed FROM {table} WHERE id = $1")).bind(id.to_string());
        let answers = db.write(Batch::new().push(insert).push(select)).await?;
        let row = answers.last().and_then(|rows| rows.first());
        Ok(row.map(|row| row.int(0)).transpose()?.is_some_and(|committed| committed == 1))
    }

    /// How a transaction ended, if that is decided.
    pub async fn outcome(&self, id: Uuid) -> Reply<Option<bool>> {
        let db = self.db().await?;
        let table = db.dialect().own_table("outcome");
        let select =
            Statement::new(format!("SELECT committed FROM {table} WHERE id = $1")).bind(id.to_string());
        let rows = db.read(select).await?;
        Ok(rows.first().map(|row| row.int(0)).transpose()?.map(|committed| committed == 1))
    }

    /// Forgets how a transaction ended, once every shard has ended it so.
    pub async fn forget_outcome(&self, id: Uuid) -> Reply<()> {
        let db = self.db().await?;
        let delete =
            format!("DELETE FROM {} WHERE id = $1 AND committed = 1", db.dialect().own_table("outcome"));
        db.write(Statement::new(delete).bind(id.to_string()).into()).await?;
        Ok(())
    }
}
