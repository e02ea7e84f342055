//! Triggers and rules by which a table could get rows under another key than the one that they were routed by.

use polyshard_engine::{Dialect, Statement};
use polyshard_sql::{SqlError, SqlState, TableName};

use crate::JournalError;
use crate::journal::Inner;
use crate::quote::table_name;
use crate::turn::Turn;

/// The first trigger that assigns to the column of the new row, or rule that does something instead. An assignment is
/// told from a comparison by what stands before it.
const CHANGING: &str = r#"
SELECT 'trigger ' || t.tgname FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid,
  regexp_replace($2::text, '(\W)', '\\\1', 'g') AS k (name)
WHERE t.tgrelid = $1::text::regclass AND NOT t.tgisinternal AND t.tgtype & 3 = 3
  AND regexp_replace(p.prosrc, '--[^\n]*|/\*.*?\*/', ' ', 'g')
      ~* ('((;|\mbegin|\mthen|\melse|\mloop)\s*(?=new\s*\.\s*"?' || k.name || '"?\s*:?=)|\minto\s+(?=new\s*\.\s*"?' ||
          k.name || '"?[^\w]))')
UNION ALL
SELECT 'rule ' || r.rulename FROM pg_catalog.pg_rewrite r
WHERE r.ev_class = $1::text::regclass AND r.is_instead AND r.ev_type IN ('2', '3')
LIMIT 1"#;

impl Inner {
    /// Refuses a table on which a trigger or rule may give rows another key: they would be on another's shard.
    pub(crate) async fn check_key_is_kept(
        &self,
        turn: &Turn,
        table: &TableName,
        column: &str,
    ) -> Result<(), JournalError> {
        let Some(first) = turn.shards().first() else { return Ok(()) };
        let shard = self.shard(first).await?;
        // On SQLite a trigger cannot assign to the row that is being written.
        if shard.dialect() != Dialect::Postgres {
            return Ok(());
        }
        let mut tx = shard.control_transaction().await.map_err(|error| JournalError::on(first, error))?;
        let name = table_name(Dialect::Postgres, table);
        let asked = Statement::new(CHANGING).bind(name).bind(column);
        let rows = tx.run(asked).await.map_err(|error| JournalError::on(first, error))?;
        let Some(row) = rows.first() else { return Ok(()) };
        let found = row.text(0).map_err(|error| JournalError::on(first, error))?;
        let message = format!("{found} of table {table} may change its key column {column}");
        let hint = "rows are placed by the key that the statement gives: drop it, or have the application give the key";
        Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message).hint(hint).into())
    }
}
