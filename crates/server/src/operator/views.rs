//! Records of the layers below as the admin API shows them. Pure.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use polyshard_admin::convert::{hash_view, kind_view, range_view};
use polyshard_admin::types::{
    Difference, Engine, Found as Shown, MapView, OperationState, OperationView, ShardLimits, ShardView, Side,
};
use polyshard_catalog::{Difference as Found, Found as Kind, OpRecord, OpState, ShardRecord, Step};
use polyshard_engine::Dialect;
use polyshard_map::{Entry, MapDefinition, ShardId};
use polyshard_router::view::KnownMap;
use polyshard_shard::Meta;

pub(super) fn operation(record: &OpRecord) -> OperationView {
    OperationView {
        id: record.op.id.to_string(),
        kind: record.op.kind.clone(),
        map: Some(record.op.map.clone()),
        state: match record.state {
            OpState::Running => OperationState::Running,
            OpState::Done => OperationState::Done,
            OpState::RolledBack => OperationState::RolledBack,
        },
        step: match record.state {
            OpState::Running if record.op.carry.is_some() => move_step(record.step),
            OpState::Running => record.step.as_str(),
            OpState::Done => "done",
            OpState::RolledBack => "rolled_back",
        }
        .to_owned(),
        ranges: Vec::new(),
        from: None,
        to: None,
        progress: None,
        paused: false,
        started_ms: record.started_ms,
        message: record.message.clone(),
    }
}

/// A move's step in the words of moves; the switch has several steps of its own.
fn move_step(step: Step) -> &'static str {
    match step {
        Step::Staging | Step::Preparing => "planned",
        Step::Fencing | Step::Departing | Step::Activating => "switching",
        Step::Copying | Step::CatchingUp | Step::Keeping | Step::Cleaning | Step::RollingBack => {
            step.as_str()
        }
    }
}

pub(super) fn engine(dialect: Dialect) -> Engine {
    match dialect {
        Dialect::Sqlite => Engine::Sqlite,
        Dialect::Postgres => Engine::Postgres,
    }
}

/// What a shard is kept in.
pub(crate) fn shard_engine(record: &ShardRecord) -> Engine {
    if record.url.starts_with("sqlite:") { Engine::Sqlite } else { Engine::Postgres }
}

/// A shard's record, and what the shard itself said if it answered.
pub(super) fn shard(record: &ShardRecord, meta: Option<&Meta>, ranges: u64) -> ShardView {
    let limit = |number: Option<u64>| number.and_then(NonZeroU64::new);
    let engine = shard_engine(record);
    ShardView {
        id: record.id.clone(),
        engine,
        url: record.url.clone(),
        server: record.server.clone(),
        region: record.region.clone(),
        tier: record.tier.clone(),
        limits: ShardLimits {
            bytes_max: limit(record.limits.bytes_max),
            connections_max: limit(record.limits.connections_max),
            shardlets_max: limit(record.limits.shardlets_max),
        },
        state: record.state,
        reachable: meta.is_some(),
        incarnation: Some(record.incarnation.to_string()),
        ranges,
        fence_epoch: meta.map(|meta| meta.fence_epoch.get()),
        version: record.version,
    }
}

pub(super) fn map(known: &KnownMap) -> MapView {
    let definition = known.map.definition();
    let by_shard: BTreeMap<ShardId, u64> =
        known.map.count_by_shard().into_iter().map(|(shard, count)| (shard, count as u64)).collect();
    MapView {
        name: definition.name().clone(),
        kind: kind_view(definition.scheme()),
        key: definition.key_type().to_string(),
        hash: hash_view(definition.scheme()),
        epoch: known.map.epoch().get(),
        version: known.version,
        entries: known.map.len() as u64,
        by_shard,
    }
}

/// Differences between catalog and shards.
pub(super) fn differences(definition: &MapDefinition, found: &[Found]) -> Vec<Difference> {
    let side =
        |entry: &Entry| Side { state: entry.state, epoch: entry.epoch.get(), group: entry.group.clone() };
    let one = |difference: &Found| Difference {
        shard: difference.shard.clone(),
        range: range_view(definition, difference.range()),
        found: match difference.found {
            Kind::CatalogOnly => Shown::CatalogOnly,
            Kind::ShardOnly => Shown::ShardOnly,
            Kind::Differs => Shown::Differs,
        },
        catalog: difference.catalog.as_ref().map(side),
        local: difference.local.as_ref().map(side),
    };
    found.iter().map(one).collect()
}
