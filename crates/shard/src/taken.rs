//! What a shard has taken of rows that another had and did not own: noted together with the rows, until the other has
//! removed its own. Whoever goes on after a crash then does not bring back what was deleted here meanwhile.

use polyshard_engine::Statement;
use polyshard_map::ShardId;

use crate::{RowKey, Shard, ShardError};

/// A row that was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// Stands for its key: a key itself may be too long for an index.
    pub key_digest: String,
    /// Its primary key.
    pub key: RowKey,
    /// Stands for all of it: another row of the same key that comes later was not taken.
    pub row_digest: String,
}

impl Shard {
    pub(crate) fn note_taken(&self, from: &ShardId, table: &str, row: &Taken) -> Statement {
        let sql = format!(
            "INSERT INTO {} (shard, tab, key_digest, pk, row_digest) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (shard, tab, key_digest) DO UPDATE SET row_digest = excluded.row_digest",
            self.own("taken")
        );
        Statement::new(sql)
            .bind(from.to_string())
            .bind(table.to_owned())
            .bind(row.key_digest.clone())
            .bind(row.key.to_text())
            .bind(row.row_digest.clone())
    }

    /// Asks what was taken of a row of a table from another shard: its `row_digest`.
    pub fn select_taken(&self, from: &ShardId, table: &str, key_digest: &str) -> Statement {
        let sql = format!(
            "SELECT row_digest FROM {} WHERE shard = $1 AND tab = $2 AND key_digest = $3",
            self.own("taken")
        );
        Statement::new(sql).bind(from.to_string()).bind(table.to_owned()).bind(key_digest.to_owned())
    }

    /// Some of what was taken of a table from another shard, in the order of their digests, after one of them.
    pub async fn taken(
        &self,
        from: &ShardId,
        table: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<Taken>, ShardError> {
        let sql = format!(
            "SELECT key_digest, pk, row_digest FROM {} WHERE shard = $1 AND tab = $2 AND key_digest > $3 \
             ORDER BY key_digest LIMIT {limit}",
            self.own("taken")
        );
        let statement =
            Statement::new(sql).bind(from.to_string()).bind(table.to_owned()).bind(after.to_owned());
        let rows = self.carrier().await?.read(statement).await?;
        let read = |row: &polyshard_engine::Row| {
            Ok(Taken {
                key_digest: row.text(0)?.to_owned(),
                key: RowKey::from_text(row.text(1)?)?,
                row_digest: row.text(2)?.to_owned(),
            })
        };
        rows.rows().iter().map(read).collect()
    }

    /// Forgets that rows of a table were taken: the other shard has them no more.
    pub async fn forget_taken(
        &self,
        from: &ShardId,
        table: &str,
        key_digests: &[String],
    ) -> Result<(), ShardError> {
        let sql =
            format!("DELETE FROM {} WHERE shard = $1 AND tab = $2 AND key_digest = $3", self.own("taken"));
        let forget = |digest: &String| {
            let statement = Statement::new(sql.clone()).bind(from.to_string()).bind(table.to_owned());
            statement.bind(digest.clone())
        };
        if !key_digests.is_empty() {
            self.carrier().await?.write(key_digests.iter().map(forget).collect()).await?;
        }
        Ok(())
    }
}
