//! One moment of all databases: writes wait, every database is held, writes go on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use polyshard_catalog::{Catalog, Changes, ShardRecord};
use polyshard_engine::Snapshot;
use polyshard_map::ShardId;
use polyshard_router::Router;
use polyshard_shard::Shard;

use crate::BackupError;
use crate::take::Clock;

/// How long writes under way may take to end, while new ones wait: about as long as a request should take at all.
const WRITES_END: Duration = Duration::from_secs(2);
/// How often it is tried: writes that do not end, and changes of maps, are mostly over soon.
const TRIES_MAX: u32 = 4;
/// The pause between tries, in which requests go on.
const PAUSE: Duration = Duration::from_millis(500);
/// Databases that are held or asked at once.
const AT_ONCE: usize = 32;

/// A moment of all databases.
pub(crate) struct Moment {
    pub(crate) catalog: Snapshot,
    pub(crate) shards: BTreeMap<ShardId, (Arc<Shard>, Snapshot)>,
    pub(crate) records: Vec<ShardRecord>,
    /// The last change that is in it.
    pub(crate) seq: u64,
    pub(crate) at_ms: i64,
    /// How long writes waited.
    pub(crate) pause_ms: u64,
}

/// Holds a moment of the catalog and the wanted shards, or of all.
pub(crate) async fn hold(
    router: &Router,
    catalog: &Catalog,
    wanted: Option<&[ShardId]>,
    clock: &Clock,
) -> Result<Moment, BackupError> {
    let mut last = BackupError::Busy("it was not tried".to_owned());
    for _ in 0..TRIES_MAX {
        match attempt(router, catalog, wanted, clock).await {
            Err(error @ BackupError::Busy(_)) => last = error,
            other => return other,
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(last)
}

async fn attempt(
    router: &Router,
    catalog: &Catalog,
    wanted: Option<&[ShardId]>,
    clock: &Clock,
) -> Result<Moment, BackupError> {
    let fail = |error: polyshard_router::RouterError| BackupError::Failed(error.to_string());
    router.refresh().await.map_err(fail)?;
    let seq = router.view().seq;
    check_quiet(catalog, seq).await?;
    let records = catalog.shards().await?;
    if let Some(unknown) = wanted.into_iter().flatten().find(|id| !records.iter().any(|one| one.id == **id)) {
        return Err(BackupError::Refused(format!("there is no shard {unknown}")));
    }
    let records: Vec<ShardRecord> = records
        .into_iter()
        .filter(|record| wanted.is_none_or(|wanted| wanted.contains(&record.id)))
        .collect();
    // Opened before the pause, so that it is short.
    let open = |record: &ShardRecord| {
        let id = record.id.clone();
        async move {
            let shard = router.administer(&id).await.map_err(|error| BackupError::of_shard(&id, error))?;
            shard.carrier().await.map_err(|error| BackupError::of_shard(&id, error))?;
            check_alone(router, &id, &shard).await?;
            Ok::<_, BackupError>((id, shard))
        }
    };
    let shards: Vec<(ShardId, Arc<Shard>)> =
        futures_util::stream::iter(records.iter().map(open)).buffered(AT_ONCE).try_collect().await?;

    let barrier = router.barrier(WRITES_END).await.ok_or_else(|| {
        BackupError::Busy(format!(
            "writes that were under way did not end within {} s; end open transactions, or try again later",
            WRITES_END.as_secs()
        ))
    })?;
    let began_ms = clock();
    let held = hold_all(catalog, shards).await;
    let at_ms = clock();
    drop(barrier);
    let (catalog_moment, shards) = held?;
    // A change that began meanwhile may be in one database and not in another.
    check_quiet(catalog, seq).await?;
    let pause_ms = u64::try_from(at_ms - began_ms).unwrap_or(0);
    Ok(Moment { catalog: catalog_moment, shards, records, seq, at_ms, pause_ms })
}

type Held = (Snapshot, BTreeMap<ShardId, (Arc<Shard>, Snapshot)>);

async fn hold_all(catalog: &Catalog, shards: Vec<(ShardId, Arc<Shard>)>) -> Result<Held, BackupError> {
    let hold = |(id, shard): (ShardId, Arc<Shard>)| async move {
        let held = async { Ok(shard.carrier().await?.snapshot().await?) };
        let held: Result<Snapshot, polyshard_shard::ShardError> = held.await;
        let held = held.map_err(|error| BackupError::of_shard(&id, error))?;
        Ok::<_, BackupError>((id, (shard, held)))
    };
    let shards =
        futures_util::stream::iter(shards.into_iter().map(hold)).buffer_unordered(AT_ONCE).try_collect();
    let (catalog, shards) = tokio::join!(catalog.hold_moment(), shards);
    Ok((catalog?, shards?))
}

/// No operation is under way, and nothing was changed since.
async fn check_quiet(catalog: &Catalog, seq: u64) -> Result<(), BackupError> {
    if let Some(operation) = catalog.running().await?.first() {
        return Err(BackupError::Busy(format!(
            "operation {} ({} of map {}) is under way; wait until it is done, see 'polyshard ops list'",
            operation.op.id, operation.op.kind, operation.op.map
        )));
    }
    match catalog.changes(seq).await? {
        Changes::Events(last, _) if last == seq => Ok(()),
        _ => Err(BackupError::Busy("maps, shards or datasets were changed meanwhile; try again".to_owned())),
    }
}

/// Writes of other processes would not wait for ours.
async fn check_alone(router: &Router, id: &ShardId, shard: &Shard) -> Result<(), BackupError> {
    let me = router.status().router;
    let routers = shard.routers().await.map_err(|error| BackupError::of_shard(id, error))?;
    match routers.iter().find(|router| **router != me) {
        None => Ok(()),
        Some(other) => Err(BackupError::Refused(format!(
            "another server process (router {other}) uses shard {id}, and its writes cannot be held from here; stop \
             the others while the backup begins"
        ))),
    }
}
