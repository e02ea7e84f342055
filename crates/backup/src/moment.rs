//! One moment of all databases: writes wait in every process, every database is held, writes go on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use polyshard_catalog::{
    ARCHIVE, BARRIER_HOLD, Catalog, Changes, OpState, REPAIR, RESTORE_ARCHIVE, ShardRecord,
};
use polyshard_engine::{Dialect, Snapshot, Statement, Target};
use polyshard_map::ShardId;
use polyshard_router::{Router, View};
use polyshard_shard::{OpId, RouterId, Shard, ShardError};
use uuid::Uuid;

use crate::BackupError;
use crate::take::{Clock, Probe};

/// How long writes under way may take to end, while new ones wait: about as long as a request should take at all.
const WRITES_END: Duration = Duration::from_secs(2);
/// How often it is tried: writes that do not end, and changes of maps, are mostly over soon.
const TRIES_MAX: u32 = 4;
/// The pause between tries, in which requests go on.
const PAUSE: Duration = Duration::from_millis(500);
/// Databases that are held or asked at once.
const AT_ONCE: usize = 32;
/// Procedures looked at, those under way first and then the latest: more than begin while a moment is held.
const PROCEDURES: u32 = 100;
/// Procedures that change rows past the barrier.
const PAST_BARRIER: [&str; 3] = [REPAIR, ARCHIVE, RESTORE_ARCHIVE];
/// How often the catalog is asked who holds its writes.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// A moment of all databases.
pub(crate) struct Moment {
    pub(crate) catalog: Snapshot,
    pub(crate) shards: BTreeMap<ShardId, (Arc<Shard>, Snapshot)>,
    pub(crate) records: Vec<ShardRecord>,
    /// The maps as they are in it, up to the last change.
    pub(crate) view: Arc<View>,
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
    probe: Option<&Probe>,
) -> Result<Moment, BackupError> {
    let mut last = BackupError::Busy("it was not tried".to_owned());
    for _ in 0..TRIES_MAX {
        match attempt(router, catalog, wanted, clock, probe).await {
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
    probe: Option<&Probe>,
) -> Result<Moment, BackupError> {
    let fail = |error: polyshard_router::RouterError| BackupError::Failed(error.to_string());
    router.refresh().await.map_err(fail)?;
    let view = router.view();
    let seq = view.seq;
    let repairs = check_quiet(catalog, seq).await?;
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
            Ok::<_, BackupError>((id, shard))
        }
    };
    let opening: Vec<_> = records.iter().map(open).collect();
    let shards: Vec<(ShardId, Arc<Shard>)> =
        futures_util::stream::iter(opening).buffered(AT_ONCE).try_collect().await?;

    let others = Others::raise(router, catalog).await?;
    let began_ms = clock();
    // Beyond that the others' holds have ended, and the moment is of no use.
    let held = tokio::time::timeout(BARRIER_HOLD, held(router, catalog, &shards, &others, probe)).await;
    let held = held.unwrap_or_else(|_| {
        Err(BackupError::Busy("a shard took too long to hold the moment; try again".to_owned()))
    });
    let at_ms = clock();
    // In any case: nobody shall wait for a barrier that is of no use any more.
    let lasted = others.lower(catalog).await;
    let (catalog_moment, held) = held?;
    lasted?;
    // A change that began meanwhile may be in one database and not in another.
    if !check_quiet(catalog, seq).await?.is_subset(&repairs) {
        return Err(BackupError::Busy("rows were put right meanwhile; try again".to_owned()));
    }
    let pause_ms = u64::try_from(at_ms - began_ms).unwrap_or(0);
    Ok(Moment { catalog: catalog_moment, shards: held, records, view, at_ms, pause_ms })
}

type Held = (Snapshot, BTreeMap<ShardId, (Arc<Shard>, Snapshot)>);

/// Takes the moment while nobody writes.
async fn held(
    router: &Router,
    catalog: &Catalog,
    shards: &[(ShardId, Arc<Shard>)],
    others: &Others,
    probe: Option<&Probe>,
) -> Result<Held, BackupError> {
    let barrier = router.barrier(WRITES_END).await.ok_or_else(|| {
        BackupError::Busy(format!(
            "writes that were under way did not end within {} s; end open transactions, or try again later",
            WRITES_END.as_secs()
        ))
    })?;
    let holding = others.wait(catalog, shards).await?;
    let held = hold_all(catalog, shards, probe).await?;
    check_prepared(shards).await?;
    // Whoever came meanwhile did not hold its writes.
    let now = others.sessions(shards).await?;
    if let Some(new) = now.difference(&holding).next() {
        return Err(BackupError::Busy(format!("server process {new} has started meanwhile; try again")));
    }
    drop(barrier);
    Ok(held)
}

async fn hold_all(
    catalog: &Catalog,
    shards: &[(ShardId, Arc<Shard>)],
    probe: Option<&Probe>,
) -> Result<Held, BackupError> {
    let hold = |(id, shard): (ShardId, Arc<Shard>)| async move {
        let held = async { Ok(shard.carrier().await?.snapshot().await?) };
        let held: Result<Snapshot, ShardError> = held.await;
        let held = held.map_err(|error| BackupError::of_shard(&id, error))?;
        if let Some(probe) = probe {
            probe(id.clone()).await;
        }
        Ok::<_, BackupError>((id, (shard, held)))
    };
    // One after the other if somebody looks on.
    let at_once = if probe.is_some() { 1 } else { AT_ONCE };
    let holding: Vec<_> = shards.iter().cloned().map(hold).collect();
    let shards = futures_util::stream::iter(holding).buffer_unordered(at_once);
    let (catalog, shards) = tokio::join!(catalog.hold_moment(), shards.try_collect());
    Ok((catalog?, shards?))
}

/// A transaction over several shards that is committed on some and only prepared on others is in no copy of the latter.
async fn check_prepared(shards: &[(ShardId, Arc<Shard>)]) -> Result<(), BackupError> {
    let ask = |(id, shard): (ShardId, Arc<Shard>)| async move {
        if shard.dialect() != Dialect::Postgres {
            return Ok(());
        }
        let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() \
                   AND starts_with(gid, 'polyshard:') LIMIT 1";
        let found = async { Ok(shard.carrier().await?.read(Statement::new(sql)).await?) };
        let found: Result<polyshard_engine::Rows, ShardError> = found.await;
        match found.map_err(|error| BackupError::of_shard(&id, error))?.is_empty() {
            true => Ok(()),
            false => Err(BackupError::Busy(format!(
                "a transaction over several shards that was left behind has not ended on shard {id} yet; try again \
                 in a minute"
            ))),
        }
    };
    let asked: Vec<_> = shards.iter().cloned().map(ask).collect();
    futures_util::stream::iter(asked).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
}

/// No operation is under way, and nothing was changed since. Answers the latest repairs, which change rows past the
/// barrier: another one at the end has begun and ended in between.
async fn check_quiet(catalog: &Catalog, seq: u64) -> Result<BTreeSet<OpId>, BackupError> {
    if let Some(operation) = catalog.running().await?.first() {
        return Err(BackupError::Busy(format!(
            "operation {} ({} of map {}) is under way; wait until it is done, see 'polyshard ops list'",
            operation.op.id, operation.op.kind, operation.op.map
        )));
    }
    let latest = catalog.procedures(PROCEDURES).await?;
    let repairs = || latest.iter().filter(|one| PAST_BARRIER.contains(&one.kind.as_str()));
    if let Some(running) = repairs().find(|one| one.state == OpState::Running) {
        return Err(BackupError::Busy(format!(
            "operation {} ({}) is under way; wait until it is done, see 'polyshard ops list'",
            running.id, running.kind
        )));
    }
    match catalog.changes(seq).await? {
        Changes::Events(last, _) if last == seq => Ok(repairs().map(|one| one.id).collect()),
        _ => Err(BackupError::Busy("maps, shards or datasets were changed meanwhile; try again".to_owned())),
    }
}

/// The other server processes on the same shards, which hold their writes when the catalog says so. There are none if
/// the catalog is embedded: it belongs to one process.
struct Others {
    me: RouterId,
    barrier: Option<Uuid>,
}

impl Others {
    async fn raise(router: &Router, catalog: &Catalog) -> Result<Others, BackupError> {
        let me = router.status().router;
        if matches!(catalog.target(), Target::Sqlite(_)) {
            return Ok(Others { me, barrier: None });
        }
        match catalog.raise_barrier(me).await? {
            Some(id) => Ok(Others { me, barrier: Some(id) }),
            None => Err(BackupError::Busy("another process holds a moment just now; try again".to_owned())),
        }
    }

    /// Those that have sessions on the shards.
    async fn sessions(&self, shards: &[(ShardId, Arc<Shard>)]) -> Result<BTreeSet<RouterId>, BackupError> {
        if self.barrier.is_none() {
            return Ok(BTreeSet::new());
        }
        let ask = |(id, shard): (ShardId, Arc<Shard>)| async move {
            shard.routers().await.map_err(|error| BackupError::of_shard(&id, error))
        };
        let asked: Vec<_> = shards.iter().cloned().map(ask).collect();
        let lists: Vec<BTreeSet<RouterId>> =
            futures_util::stream::iter(asked).buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(lists.into_iter().flatten().filter(|router| *router != self.me).collect())
    }

    /// Waits until all of them hold their writes; who they are.
    async fn wait(
        &self,
        catalog: &Catalog,
        shards: &[(ShardId, Arc<Shard>)],
    ) -> Result<BTreeSet<RouterId>, BackupError> {
        let Some(id) = self.barrier else { return Ok(BTreeSet::new()) };
        let wanted = self.sessions(shards).await?;
        let all = async {
            loop {
                let holding = catalog.barrier_acks(id).await?;
                if wanted.is_subset(&holding) {
                    return Ok(holding);
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        if let Ok(answered) = tokio::time::timeout(WRITES_END, all).await {
            return answered;
        }
        let holding = catalog.barrier_acks(id).await?;
        let silent: Vec<String> = wanted.difference(&holding).map(ToString::to_string).collect();
        Err(BackupError::Busy(format!(
            "another server process ({}) did not hold its writes within {} s: it is stopped, cut off from the \
             catalog, or has a transaction open. The backup would not be of one moment, and was not taken; see to \
             that process, and try again",
            silent.join(", "),
            WRITES_END.as_secs()
        )))
    }

    async fn lower(&self, catalog: &Catalog) -> Result<(), BackupError> {
        let Some(id) = self.barrier else { return Ok(()) };
        if catalog.lower_barrier(id).await? {
            return Ok(());
        }
        Err(BackupError::Busy(
            "it took too long to hold the moment, and others went on; try again".to_owned(),
        ))
    }
}
