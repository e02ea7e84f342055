//! Whether a move would take SQL rows where the SQL door does not serve them: to a shard of another engine.

use polyshard_journal::{Journal, JournalError};
use polyshard_map::{MapName, ShardId};
use polyshard_router::Router;
use polyshard_sql::Placement;

/// Why requests for SQL rows of a map would fail after a move between two shards; none if they would not. The SQL door
/// serves clusters whose shards are on one engine.
pub async fn sql_gap(
    journal: &Journal,
    router: &Router,
    map: &MapName,
    (from, to): (&ShardId, &ShardId),
) -> Result<Option<String>, JournalError> {
    let mut dialects = Vec::new();
    for id in [from, to] {
        let opened = router.administer(id).await.map_err(|error| JournalError::on(id, error))?;
        dialects.push(opened.dialect());
    }
    if dialects[0] == dialects[1] {
        return Ok(None);
    }
    let schema = journal.schema().await?;
    let mut tables = schema.tables.values();
    let placed =
        tables.find(|table| matches!(&table.placement, Placement::Sharded { map: by, .. } if by == map));
    Ok(placed.map(|table| {
        format!(
            "shard {to} is on another engine than shard {from}, and SQL is served while all shards are on one: \
             requests for rows of {} would fail there",
            table.name
        )
    }))
}
