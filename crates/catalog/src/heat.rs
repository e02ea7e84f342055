//! What server processes tell each other of load through the catalog: one row for each process, how busy it sees shards
//! and keys; and how large shards have been, now and then.
//!
//! None of it decides who owns what. It may be late or missing, and whoever reads it must do without.

use std::time::Duration;

use polyshard_engine::{Batch, Dialect, Row, Statement};
use polyshard_map::ShardId;
use polyshard_shard::RouterId;
use serde_json::Value;

use crate::catalog::Catalog;
use crate::sql_catalog::{from_json, parse};
use crate::tx::Reply;

/// Rows of processes that are read: more than a cluster has.
const PROCESSES_MAX: u32 = 1_000;
/// The row of a process that has not spoken for so long is removed.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);
/// Sizes are kept for so long: a month shows a trend.
const SIZES_KEPT: Duration = Duration::from_secs(31 * 24 * 3_600);

/// The tables.
pub(crate) fn statements(dialect: Dialect) -> [String; 2] {
    let (int, text) = (dialect.bigint(), dialect.text());
    [
        format!(
            "CREATE TABLE IF NOT EXISTS {} (router {int} PRIMARY KEY, at {int} NOT NULL, body {text} NOT NULL)",
            dialect.own_table("heat")
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {} (shard {text} NOT NULL, at {int} NOT NULL, bytes {int} NOT NULL, \
             PRIMARY KEY (shard, at))",
            dialect.own_table("shard_size")
        ),
    ]
}

/// How large a shard was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeThen {
    /// The shard.
    pub shard: ShardId,
    /// When, by the catalog's clock, in milliseconds since 1970.
    pub at_ms: i64,
    /// Its bytes.
    pub bytes: u64,
}

impl Catalog {
    /// Says how busy a process sees shards and keys; what it said before is forgotten.
    pub async fn publish_heat(&self, router: RouterId, body: &Value) -> Reply<()> {
        let db = self.db().await?;
        let (table, now) = (db.dialect().own_table("heat"), db.dialect().now_ms());
        let put = format!(
            "INSERT INTO {table} (router, at, body) VALUES ($1, {now}, $2) \
             ON CONFLICT (router) DO UPDATE SET at = excluded.at, body = excluded.body"
        );
        let put = Statement::new(put).bind(i64::from(router.get())).bind(body.to_string());
        let forget = format!("DELETE FROM {table} WHERE at < {now} - {}", FORGOTTEN_AFTER.as_millis());
        db.write(Batch::from(put).push(Statement::new(forget))).await?;
        Ok(())
    }

    /// What processes have said within a time, by the catalog's clock.
    pub async fn heats(&self, within: Duration) -> Reply<Vec<(RouterId, Value)>> {
        let db = self.db().await?;
        let sql = format!(
            "SELECT router, body FROM {} WHERE at >= {} - {} ORDER BY router LIMIT {PROCESSES_MAX}",
            db.dialect().own_table("heat"),
            db.dialect().now_ms(),
            within.as_millis()
        );
        let read = |row: &Row| -> Reply<(RouterId, Value)> {
            Ok((RouterId::new(row.int(0)? as u32), from_json("heat", row.text(1)?)?))
        };
        db.read(Statement::new(sql)).await?.iter().map(read).collect()
    }

    /// A process ends, and says nothing any more.
    pub async fn forget_heat(&self, router: RouterId) -> Reply<()> {
        let db = self.db().await?;
        let sql = format!("DELETE FROM {} WHERE router = $1", db.dialect().own_table("heat"));
        db.write(Batch::from(Statement::new(sql).bind(i64::from(router.get())))).await?;
        Ok(())
    }

    /// Notes how large shards are, each if that was not noted within a time.
    pub async fn note_sizes(&self, sizes: &[(ShardId, u64)], every: Duration) -> Reply<()> {
        let db = self.db().await?;
        let (table, now) = (db.dialect().own_table("shard_size"), db.dialect().now_ms());
        let insert: std::sync::Arc<str> = format!(
            "INSERT INTO {table} (shard, at, bytes) SELECT $1, {now}, $2 WHERE NOT EXISTS \
             (SELECT 1 FROM {table} WHERE shard = $1 AND at > {now} - {}) ON CONFLICT (shard, at) DO NOTHING",
            every.as_millis()
        )
        .into();
        let note = |(shard, bytes): &(ShardId, u64)| {
            let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
            Statement::new(insert.clone()).bind(shard.to_string()).bind(bytes)
        };
        let forget = format!("DELETE FROM {table} WHERE at < {now} - {}", SIZES_KEPT.as_millis());
        let batch: Batch = sizes.iter().map(note).collect();
        db.write(batch.push(Statement::new(forget))).await?;
        Ok(())
    }

    /// How large shards have been within a time, each shard's in the order of time.
    pub async fn sizes(&self, within: Duration) -> Reply<Vec<SizeThen>> {
        let db = self.db().await?;
        let sql = format!(
            "SELECT shard, at, bytes FROM {} WHERE at >= {} - {} ORDER BY shard, at",
            db.dialect().own_table("shard_size"),
            db.dialect().now_ms(),
            within.as_millis()
        );
        let read = |row: &Row| -> Reply<SizeThen> {
            let bytes = u64::try_from(row.int(2)?).unwrap_or(0);
            Ok(SizeThen { shard: parse("shard", row.text(0)?)?, at_ms: row.int(1)?, bytes })
        };
        db.read(Statement::new(sql)).await?.iter().map(read).collect()
    }
}
