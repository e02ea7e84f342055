//! How the journal speaks with SQLite shards, which know PostgreSQL's SQL only by translation: given by the caller.

use std::future::Future;
use std::pin::Pin;

use polyshard_engine::{Statement, Transaction};
use polyshard_sql::{Schema, SqlError};

/// What an SQLite shard's schema is read as.
pub type SchemaFuture<'a> = Pin<Box<dyn Future<Output = Result<Schema, SqlError>> + Send + 'a>>;

/// Translates for SQLite shards.
pub trait Embedded: Send + Sync {
    /// A shard's tables, as PostgreSQL would describe them; placements and position are filled in by the journal.
    fn schema<'a>(&'a self, transaction: &'a mut Transaction) -> SchemaFuture<'a>;

    /// A statement in SQLite's words, on a shard that has this schema.
    fn translate(
        &self,
        sql: &str,
        schema: &Schema,
        search_path: &[String],
    ) -> Result<Vec<Statement>, SqlError>;
}
