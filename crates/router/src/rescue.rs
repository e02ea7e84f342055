//! Finishes a switch whose coordinator has gone, from what the source shard has recorded: also while the catalog is
//! away (PROTOCOL §5). The catalog is brought up to date later, by whoever takes the operation over.

use std::collections::BTreeMap;
use std::sync::Weak;

use polyshard_map::{KeyRange, ShardId};
use polyshard_shard::{OpId, Shard, ShardError};

use crate::shards::Shards;

/// Puts departed ranges in force where they went, and takes the fence down. May be repeated, and may meet the
/// coordinator doing the same.
pub(crate) async fn finish(shards: &Weak<Shards>, source: &Shard, op: OpId) -> Result<(), ShardError> {
    let (Some(shards), Some((op_ref, departures))) = (shards.upgrade(), source.departed(op).await?) else {
        return Ok(());
    };
    let mut arrived: BTreeMap<ShardId, Vec<KeyRange>> = BTreeMap::new();
    for departure in departures {
        if let Some(to) = departure.to.filter(|to| to != source.id()) {
            arrived.entry(to).or_default().push(departure.range);
        }
    }
    for (to, ranges) in arrived {
        shards.get(&to).await?.activate(op_ref, Some(&ranges)).await?;
    }
    tracing::info!(%op, shard = %source.id(), "finished a switch whose coordinator was gone");
    source.release(op_ref).await
}
