//! What a shard has taken of rows that another had and did not own: noted together with the rows, until the other has
//! removed its own. Whoever goes on after a crash then does not bring back what was deleted here meanwhile.

use polyshard_engine::{Access, Statement, Transaction};
use polyshard_map::ShardId;

use crate::{OpId, RowKey, Shard, ShardError};

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
    /// Makes a repair of another shard's rows, or of this one's, the only one that may write here. One that was begun
    /// before and has paused since is refused from now on, whatever it has read.
    pub async fn claim_repair(&self, of: &ShardId, mark: OpId) -> Result<(), ShardError> {
        self.ensure_move_tables().await?;
        // It is kept as a note of no table.
        let sql = format!(
            "INSERT INTO {} (shard, tab, key_digest, pk, row_digest) VALUES ($1, '', '', '', $2) \
             ON CONFLICT (shard, tab, key_digest) DO UPDATE SET row_digest = excluded.row_digest",
            self.own("taken")
        );
        let claim = Statement::new(sql).bind(of.to_string()).bind(mark.to_string());
        self.carrier().await?.write(claim.into()).await?;
        Ok(())
    }

    /// Proves that no other repair of these rows has begun, and keeps it so until the transaction ends.
    pub(crate) async fn prove_claim(
        &self,
        tx: &mut Transaction,
        of: &ShardId,
        mark: OpId,
    ) -> Result<(), ShardError> {
        let sql = format!(
            "UPDATE {} SET pk = '' WHERE shard = $1 AND tab = '' AND key_digest = '' AND row_digest = $2 RETURNING 1",
            self.own("taken")
        );
        let found = tx.run(Statement::new(sql).bind(of.to_string()).bind(mark.to_string())).await?;
        match found.rows().is_empty() {
            true => Err(ShardError::Superseded(mark)),
            false => Ok(()),
        }
    }

    /// The tables that rows were taken of from another shard.
    pub async fn taken_tables(&self, from: &ShardId) -> Result<Vec<String>, ShardError> {
        let sql = format!("SELECT DISTINCT tab FROM {} WHERE shard = $1 AND tab <> ''", self.own("taken"));
        let rows = self.carrier().await?.read(Statement::new(sql).bind(from.to_string())).await?;
        rows.rows().iter().map(|row| Ok(row.text(0)?.to_owned())).collect()
    }

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

    /// Forgets that rows of a table were taken: the other shard has them no more. Only for the repair that has claimed
    /// them: what another one has read may go by the notes.
    pub async fn forget_taken(
        &self,
        (from, mark): (&ShardId, OpId),
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
            let mut tx = self.carrier().await?.begin(Access::Write).await?;
            self.prove_claim(&mut tx, from, mark).await?;
            tx.run_all(key_digests.iter().map(forget).collect()).await?;
            tx.commit().await?;
        }
        Ok(())
    }
}
