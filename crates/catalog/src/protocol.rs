//! The catalog's side of the protocol, as transactions over [`CatalogTx`]. No I/O of its own.

use polyshard_map::{self as map, Change, Entry, KeyRange, MapDefinition, MapName, ShardId};
use polyshard_shard::{Edit, OpId, Role};

use crate::CatalogError;
use crate::classify;
use crate::tx::{CatalogTx, Reply};
use crate::types::{ChangeRequest, Event, MapRecord, OpRecord, OpState, Operation, Publish, Step};

/// Who asks, and under what name the operation will go.
#[derive(Debug, Clone)]
pub struct Driver {
    /// The process.
    pub owner: String,
    /// A fresh name for the operation.
    pub id: OpId,
}

/// Checks a change against the map as it is, and records the intent to make it.
pub async fn intend<T: CatalogTx>(tx: &mut T, request: &ChangeRequest, driver: &Driver) -> Reply<OpRecord> {
    let (op, record) = compute(tx, request, driver).await?;
    let now = tx.now_ms().await?;
    begin(tx, op, Step::Preparing, record, driver, now).await
}

/// Works out what a change comes to, if nothing is in its way.
pub(crate) async fn compute<T: CatalogTx>(
    tx: &mut T,
    request: &ChangeRequest,
    driver: &Driver,
) -> Reply<(Operation, MapRecord)> {
    tx.lock().await?;
    let now = tx.now_ms().await?;
    let record = live_map(tx, &request.map, request.if_version).await?;
    // Rows of stores keep the placement that they were written with, which begins with the bound of their segment.
    if matches!(request.change, Change::SplitSegment { .. })
        && let Some(dataset) = tx.placed_by(&request.map).await?
    {
        return Err(CatalogError::HoldsData {
            what: format!(
                "map {} places {dataset}, whose rows know the segment that they were written in",
                request.map
            ),
            remedy: "split segments before anything is placed, or add a new segment".into(),
        });
    }
    for shard in request.change.shards() {
        require_shard(tx, shard).await?;
    }
    let window = window(tx, &request.map, &request.change).await?;
    let epoch = tx.next_epoch().await?;
    let definition = record.definition.clone();
    let delta = map::apply(&definition, &window, &request.change, request.by.as_deref(), epoch, now)?;
    // The list of segments is one value: two changes of it at once would lose one.
    let touches: Vec<KeyRange> = match &delta.segments {
        Some(_) => vec![KeyRange::all()],
        None => {
            delta.remove.iter().cloned().chain(delta.put.iter().map(|entry| entry.range.clone())).collect()
        }
    };
    refuse_overlap(tx, &request.map, &touches).await?;
    let definition = definition_after(&definition, &delta)?;
    let edits = classify::edits(&definition, &window, &delta)?;
    let op = Operation {
        id: driver.id,
        kind: kind(&request.change).to_owned(),
        map: request.map.clone(),
        epoch,
        touches,
        edits,
        publish: Publish::Delta(delta),
        carry: None,
    };
    Ok((op, record))
}

/// Records the intent to create a map, whose entries are then staged by [`stage`].
pub async fn intend_create<T: CatalogTx>(
    tx: &mut T,
    definition: &MapDefinition,
    shards: &[ShardId],
    driver: &Driver,
) -> Reply<OpRecord> {
    tx.lock().await?;
    let now = tx.now_ms().await?;
    if tx.map(definition.name()).await?.is_some() {
        return Err(CatalogError::Exists(format!("map {}", definition.name())));
    }
    for shard in shards {
        require_shard(tx, shard).await?;
    }
    let epoch = tx.next_epoch().await?;
    let record = MapRecord { definition: definition.clone(), epoch, version: 0, live: false };
    let edit = Edit {
        definition: definition.clone(),
        role: Role::Gain,
        before: vec![],
        after: vec![],
        lost: vec![],
        destroy: false,
        carried: None,
    };
    let op = Operation {
        id: driver.id,
        kind: "create".into(),
        map: definition.name().clone(),
        epoch,
        touches: vec![KeyRange::all()],
        edits: shards.iter().map(|shard| (shard.clone(), edit.clone())).collect(),
        publish: Publish::Live,
        carry: None,
    };
    begin(tx, op, Step::Staging, record, driver, now).await
}

/// Writes some of the entries of a map being created.
pub async fn stage<T: CatalogTx>(tx: &mut T, op: &OpRecord, entries: Vec<Entry>) -> Reply<()> {
    let stored = own(tx, op).await?;
    tx.put_operation(&stored).await?;
    tx.apply(&op.op.map, &map::Delta { put: entries, ..map::Delta::default() }).await
}

/// Records the intent to drop a map; `destroy` says that what it holds may go with it.
pub async fn intend_drop<T: CatalogTx>(
    tx: &mut T,
    name: &MapName,
    if_version: Option<u64>,
    destroy: bool,
    driver: &Driver,
) -> Reply<OpRecord> {
    tx.lock().await?;
    let now = tx.now_ms().await?;
    let record = live_map(tx, name, if_version).await?;
    if let Some(dataset) = tx.placed_by(name).await? {
        return Err(CatalogError::HoldsData {
            what: format!("map {name} places {dataset}"),
            remedy: "delete or unbind what it places first".into(),
        });
    }
    refuse_overlap(tx, name, &[KeyRange::all()]).await?;
    let epoch = tx.next_epoch().await?;
    let mut shards: Vec<ShardId> =
        tx.entries(name, &KeyRange::all()).await?.into_iter().map(|entry| entry.shard).collect();
    shards.sort();
    shards.dedup();
    let edit = Edit {
        definition: record.definition.clone(),
        role: Role::Drop,
        before: vec![],
        after: vec![],
        lost: vec![(KeyRange::all(), None, map::State::Offline)],
        destroy,
        carried: None,
    };
    let op = Operation {
        id: driver.id,
        kind: "drop".into(),
        map: name.clone(),
        epoch,
        touches: vec![KeyRange::all()],
        edits: shards.into_iter().map(|shard| (shard, edit.clone())).collect(),
        publish: Publish::Gone,
        carry: None,
    };
    begin(tx, op, Step::Preparing, record, driver, now).await
}

/// Records an operation with edits of the caller's own making: repairs and the removal of a shard, which both
/// go ahead whatever the ranges hold.
pub async fn intend_edits<T: CatalogTx>(
    tx: &mut T,
    name: &MapName,
    kind: &str,
    edits: Vec<(ShardId, Edit)>,
    delta: map::Delta,
    if_version: Option<u64>,
    driver: &Driver,
) -> Reply<OpRecord> {
    tx.lock().await?;
    let now = tx.now_ms().await?;
    let record = live_map(tx, name, if_version).await?;
    refuse_overlap(tx, name, &[KeyRange::all()]).await?;
    let epoch = tx.next_epoch().await?;
    let op = Operation {
        id: driver.id,
        kind: kind.to_owned(),
        map: name.clone(),
        epoch,
        touches: vec![KeyRange::all()],
        edits,
        publish: Publish::Delta(delta),
        carry: None,
    };
    begin(tx, op, Step::Preparing, record, driver, now).await
}

/// Records a step before it is done, and renews the lease.
pub async fn record<T: CatalogTx>(tx: &mut T, op: &OpRecord, step: Step, message: Option<&str>) -> Reply<()> {
    let mut stored = own(tx, op).await?;
    stored.step = step;
    stored.message = message.map(str::to_owned);
    tx.put_operation(&stored).await
}

/// Puts the operation in force in the catalog: the end. Nothing if that has happened already.
pub async fn publish<T: CatalogTx>(tx: &mut T, op: &OpRecord) -> Reply<()> {
    let mut stored = match own(tx, op).await {
        Err(CatalogError::Superseded(_)) if ended(tx, op, OpState::Done).await? => return Ok(()),
        other => other?,
    };
    let name = &op.op.map;
    let mut record = tx.map(name).await?.ok_or_else(|| CatalogError::NoSuchMap(name.clone()))?;
    record.epoch = record.epoch.max(op.op.epoch);
    // A move goes on after it is in force; its answer may have been lost.
    if stored.op.carry.is_some() && stored.step == Step::Keeping {
        return Ok(());
    }
    let event = match &op.op.publish {
        Publish::Delta(delta) => {
            tx.apply(name, delta).await?;
            record.definition = definition_after(&record.definition, delta)?;
            tx.put_map(&record).await?;
            let version = record.version;
            Event::Changed { map: name.clone(), epoch: op.op.epoch, version, delta: delta.clone() }
        }
        Publish::Live => {
            record.live = true;
            tx.put_map(&record).await?;
            Event::Reload { map: name.clone() }
        }
        Publish::Gone => {
            tx.delete_map(name).await?;
            Event::Dropped { map: name.clone() }
        }
    };
    tx.publish(&event).await?;
    match stored.op.carry {
        None => stored.state = OpState::Done,
        Some(_) => stored.step = Step::Keeping,
    }
    stored.message = None;
    tx.put_operation(&stored).await
}

/// Ends an operation that is in force and has cleaned up. Nothing if that has happened already.
pub async fn end<T: CatalogTx>(tx: &mut T, op: &OpRecord) -> Reply<()> {
    let mut stored = match own(tx, op).await {
        Err(CatalogError::Superseded(_)) if ended(tx, op, OpState::Done).await? => return Ok(()),
        other => other?,
    };
    stored.state = OpState::Done;
    stored.message = None;
    tx.put_operation(&stored).await
}

/// Gives the operation up in the catalog: the end. Nothing if that has happened already.
pub async fn discard<T: CatalogTx>(tx: &mut T, op: &OpRecord) -> Reply<()> {
    let mut stored = match own(tx, op).await {
        Err(CatalogError::Superseded(_)) if ended(tx, op, OpState::RolledBack).await? => return Ok(()),
        other => other?,
    };
    if op.op.publish == Publish::Live {
        tx.delete_map(&op.op.map).await?;
    } else if let Some(mut record) = tx.map(&op.op.map).await? {
        record.version += 1;
        tx.put_map(&record).await?;
    }
    stored.state = OpState::RolledBack;
    tx.put_operation(&stored).await
}

/// Takes over an operation whose driver has been silent for longer than its lease. None if it has not.
pub async fn take_over<T: CatalogTx>(tx: &mut T, id: OpId, owner: &str) -> Reply<Option<OpRecord>> {
    tx.lock().await?;
    let now = tx.now_ms().await?;
    let mut stored = tx.operation(id).await?.ok_or(CatalogError::NoSuchOperation(id))?;
    if stored.state != OpState::Running || stored.lease_until_ms > now {
        return Ok(None);
    }
    stored.token += 1;
    stored.owner = owner.to_owned();
    stored.lease_until_ms = now + tx.lease().as_millis() as i64;
    tx.put_operation(&stored).await?;
    Ok(Some(stored))
}

/// Renews the lease of an operation that takes long.
pub async fn renew<T: CatalogTx>(tx: &mut T, op: &OpRecord) -> Reply<()> {
    let stored = own(tx, op).await?;
    tx.put_operation(&stored).await
}

/// Locks, and reads the operation if this driver still owns it, with the lease renewed.
async fn own<T: CatalogTx>(tx: &mut T, op: &OpRecord) -> Reply<OpRecord> {
    tx.lock().await?;
    let now = tx.now_ms().await?;
    let mut stored = tx.operation(op.op.id).await?.ok_or(CatalogError::NoSuchOperation(op.op.id))?;
    if stored.token != op.token || stored.state != OpState::Running {
        return Err(CatalogError::Superseded(op.op.id));
    }
    stored.lease_until_ms = now + tx.lease().as_millis() as i64;
    Ok(stored)
}

/// Whether the operation ended that way under this driver's token: a reply that was lost, asked again.
async fn ended<T: CatalogTx>(tx: &mut T, op: &OpRecord, state: OpState) -> Reply<bool> {
    Ok(tx.operation(op.op.id).await?.is_some_and(|stored| stored.token == op.token && stored.state == state))
}

pub(crate) async fn begin<T: CatalogTx>(
    tx: &mut T,
    op: Operation,
    step: Step,
    mut record: MapRecord,
    driver: &Driver,
    now: i64,
) -> Reply<OpRecord> {
    record.version += 1;
    tx.put_map(&record).await?;
    let operation = OpRecord {
        op,
        step,
        state: OpState::Running,
        token: 1,
        owner: driver.owner.clone(),
        lease_until_ms: now + tx.lease().as_millis() as i64,
        started_ms: now,
        message: None,
    };
    tx.put_operation(&operation).await?;
    Ok(operation)
}

async fn live_map<T: CatalogTx>(tx: &mut T, name: &MapName, if_version: Option<u64>) -> Reply<MapRecord> {
    let record = tx.map(name).await?.filter(|record| record.live);
    let record = record.ok_or_else(|| CatalogError::NoSuchMap(name.clone()))?;
    match if_version {
        Some(seen) if seen != record.version => {
            Err(CatalogError::ChangedMeanwhile { what: format!("map {name}"), current: record.version })
        }
        _ => Ok(record),
    }
}

async fn require_shard<T: CatalogTx>(tx: &mut T, id: &ShardId) -> Reply<()> {
    if tx.has_shard(id).await? { Ok(()) } else { Err(CatalogError::NoSuchShard(id.clone())) }
}

/// Two operations may run on one map at once, but never on the same range.
async fn refuse_overlap<T: CatalogTx>(tx: &mut T, name: &MapName, touches: &[KeyRange]) -> Reply<()> {
    // What is about the whole map is in the way even of an operation that changes no entry.
    let whole = |ranges: &[KeyRange]| ranges.contains(&KeyRange::all());
    if let Some(position) = tx.depended_on(name).await? {
        return Err(CatalogError::Invalid(format!(
            "the rows of a table are being spread over map {name} (journal entry {position}); try again when that is \
             done, see 'polyshard schema check'"
        )));
    }
    for other in tx.running(Some(name)).await? {
        let theirs = &other.op.touches;
        let overlap = theirs.iter().any(|theirs| touches.iter().any(|ours| ours.overlaps(theirs)));
        if overlap || whole(touches) || whole(theirs) {
            return Err(CatalogError::Busy { op: other.op.id, kind: other.op.kind });
        }
    }
    Ok(())
}

/// The entries that a change needs to see.
async fn window<T: CatalogTx>(tx: &mut T, name: &MapName, change: &Change) -> Reply<Vec<Entry>> {
    let mut found: Vec<Entry> = Vec::new();
    for range in change.window() {
        found.extend(tx.entries(name, &range).await?);
    }
    let groups = change.groups(&found);
    for group in groups {
        found.extend(tx.group(name, &group).await?);
    }
    found.sort_by(|a, b| a.range.lo().cmp(b.range.lo()));
    found.dedup_by(|a, b| a.range == b.range);
    Ok(found)
}

/// The definition once the delta is in force: a composite map's segments may have changed.
fn definition_after(definition: &MapDefinition, delta: &map::Delta) -> Reply<MapDefinition> {
    match &delta.segments {
        None => Ok(definition.clone()),
        Some(segments) => definition
            .with_segments(segments.clone())
            .map_err(|error| CatalogError::Invalid(error.to_string())),
    }
}

/// What an operator calls the change.
fn kind(change: &Change) -> &'static str {
    match change {
        Change::Add { .. } => "add",
        Change::Remove { .. } => "remove",
        Change::Assign { .. } | Change::AssignGroup { .. } => "assign",
        Change::Split { .. } => "split",
        Change::Merge { .. } => "merge",
        Change::SetState { .. } => "set_state",
        Change::Lock { .. } => "lock",
        Change::Unlock { .. } => "unlock",
        Change::AddSegment { .. } => "add_segment",
        Change::SplitSegment { .. } => "split_segment",
        Change::RemoveSegment { .. } => "remove_segment",
    }
}
