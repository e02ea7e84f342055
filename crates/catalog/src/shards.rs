//! The list of shards: add, change, remove, attach, detach. The order of the steps makes each of them safe to
//! stop anywhere and to repeat.

use async_recursion::async_recursion as boxed;
use polyshard_map::{Delta, Entry, Epoch, KeyRange, Map, MapDefinition, MapName, ShardId, State};
use polyshard_shard::{Edit, OpId, Role, Shard, ShardError};
use uuid::Uuid;

use crate::check::merge_by_epoch;
use crate::driver::Driver;
use crate::tx::{CatalogTx, Reply};
use crate::types::{Event, MapRecord, OpRecord, PasswordSource, ShardLimits, ShardRecord, Step};
use crate::{CatalogError, classify};

/// Entries removed in one operation when a shard is destroyed.
const REMOVE_ENTRIES: usize = 5_000;

/// A shard to be added.
#[derive(Debug, Clone)]
pub struct NewShard {
    /// Its name.
    pub id: ShardId,
    /// Its address, without a password.
    pub url: String,
    /// Where its password comes from.
    pub password: PasswordSource,
    /// The server that hosts it.
    pub server: Option<String>,
    /// Where it is.
    pub region: Option<String>,
    /// What class of storage it is.
    pub tier: Option<String>,
    /// What it can take.
    pub limits: ShardLimits,
}

impl NewShard {
    /// The record it would have: enough to open its database before it is added.
    pub fn candidate(&self) -> ShardRecord {
        self.clone().record(Uuid::nil())
    }

    fn record(self, incarnation: Uuid) -> ShardRecord {
        ShardRecord {
            id: self.id,
            url: self.url,
            password: self.password,
            server: self.server,
            region: self.region,
            tier: self.tier,
            limits: self.limits,
            state: State::Online,
            incarnation,
            version: 1,
        }
    }
}

/// What to change of a shard; nothing where none.
#[derive(Debug, Clone, Default)]
pub struct ShardPatch {
    /// Its new address, for a shard that was moved as it is.
    pub url: Option<String>,
    /// Where its password comes from now.
    pub password: Option<PasswordSource>,
    /// The server that hosts it now.
    pub server: Option<Option<String>>,
    /// Its new region.
    pub region: Option<Option<String>>,
    /// Its new tier.
    pub tier: Option<Option<String>>,
    /// Its new limits.
    pub limits: Option<ShardLimits>,
    /// Its new state.
    pub state: Option<State>,
    /// The version that the operator saw, if he insists on it.
    pub if_version: Option<u64>,
}

impl Driver {
    /// Adds a shard; `opened` is its database, which must be empty of other shards.
    #[boxed]
    pub async fn add_shard(&self, new: NewShard, opened: &Shard) -> Reply<ShardRecord> {
        let incarnation = self.catalog().fresh_id();
        self.add_shard_as(new, opened, incarnation).await
    }

    /// Likewise, with an incarnation that the caller has noted before, to know the shard again: a database that was
    /// prepared by an earlier try keeps the one it has.
    #[boxed]
    pub async fn add_shard_as(&self, new: NewShard, opened: &Shard, incarnation: Uuid) -> Reply<ShardRecord> {
        let catalog = self.catalog();
        let wrap = |error| CatalogError::Shard { shard: new.id.clone(), error };
        if catalog.shards().await?.iter().any(|record| record.id == new.id) {
            return Err(CatalogError::Exists(format!("shard {}", new.id)));
        }
        let meta = opened.initialise(catalog.cluster().await?, incarnation).await.map_err(wrap)?;
        let record = new.record(meta.incarnation);
        let mut tx = catalog.begin().await?;
        tx.lock().await?;
        if tx.shard(&record.id).await?.is_some() {
            return Err(CatalogError::Exists(format!("shard {}", record.id)));
        }
        tx.put_shard(&record).await?;
        tx.publish(&Event::Shards).await?;
        tx.commit().await?;
        Ok(record)
    }

    /// Changes a shard's record. A new address must lead to the same shard: `opened` is what is there.
    #[boxed]
    pub async fn patch_shard(
        &self,
        id: &ShardId,
        patch: ShardPatch,
        opened: Option<&Shard>,
    ) -> Reply<ShardRecord> {
        let catalog = self.catalog();
        if let Some(shard) = opened {
            let wrap = |error| CatalogError::Shard { shard: id.clone(), error };
            let known = catalog.shard(id).await?;
            let found = shard.meta().await.map_err(wrap)?;
            let same = found.is_some_and(|meta| meta.shard == *id && meta.incarnation == known.incarnation);
            if !same {
                return Err(CatalogError::Invalid(format!(
                    "the new address does not lead to shard {id} as the catalog knows it; to take a restored copy, \
                     detach the shard and attach the copy"
                )));
            }
        }
        let mut tx = catalog.begin().await?;
        tx.lock().await?;
        let mut record = tx.shard(id).await?.ok_or_else(|| CatalogError::NoSuchShard(id.clone()))?;
        if patch.if_version.is_some_and(|seen| seen != record.version) {
            return Err(CatalogError::ChangedMeanwhile {
                what: format!("shard {id}"),
                current: record.version,
            });
        }
        record.url = patch.url.unwrap_or(record.url);
        record.password = patch.password.unwrap_or(record.password);
        record.server = patch.server.unwrap_or(record.server);
        record.region = patch.region.unwrap_or(record.region);
        record.tier = patch.tier.unwrap_or(record.tier);
        record.limits = patch.limits.unwrap_or(record.limits);
        record.state = patch.state.unwrap_or(record.state);
        record.version += 1;
        tx.put_shard(&record).await?;
        tx.publish(&Event::Shards).await?;
        tx.commit().await?;
        Ok(record)
    }

    /// Removes a shard that has no ranges. With `destroy` its ranges are taken from the maps first, and
    /// what they hold is given up.
    #[boxed]
    pub async fn remove_shard(&self, id: &ShardId, destroy: bool) -> Reply<()> {
        let catalog = self.catalog();
        catalog.shard(id).await?;
        if destroy {
            for record in catalog.maps().await? {
                self.take_ranges(id, &record).await?;
            }
        }
        let shard = self.shard(id).await;
        let mut tx = catalog.begin().await?;
        tx.lock().await?;
        refuse_running(&mut tx, id, |_| true).await?;
        if let Some((map, count)) = tx.ranges_of(id).await?.into_iter().next() {
            return Err(CatalogError::HoldsData {
                what: format!("shard {id} has {count} ranges of map {map}"),
                remedy: format!("move or assign them away, or say --destroy {id} to give up what they hold"),
            });
        }
        tx.give_up_parts(id).await?;
        tx.delete_shard(id).await?;
        tx.publish(&Event::Shards).await?;
        tx.commit().await?;
        // From here on nobody finds the shard; forgetting its identity only lets the database be used again.
        if let Ok(shard) = shard
            && let Err(error) = shard.wipe().await
        {
            tracing::warn!(shard = %id, %error, "the removed shard's database still carries its identity");
        }
        Ok(())
    }

    /// Takes a shard and its ranges out of the catalog alone: it is lost, or goes elsewhere. Its own local map
    /// stays, and so does its data.
    #[boxed]
    pub async fn detach_shard(&self, id: &ShardId) -> Reply<()> {
        let catalog = self.catalog();
        let mut tx = catalog.begin().await?;
        tx.lock().await?;
        tx.shard(id).await?.ok_or_else(|| CatalogError::NoSuchShard(id.clone()))?;
        refuse_running(&mut tx, id, |record| needs(record, id)).await?;
        for (map, _) in tx.ranges_of(id).await? {
            tx.delete_ranges_of(id, &map).await?;
            bump(&mut tx, &map).await?;
            tx.publish(&Event::Reload { map }).await?;
        }
        tx.delete_shard(id).await?;
        tx.publish(&Event::Shards).await?;
        tx.commit().await
    }

    /// Takes in a database that is a shard already: detached before, restored, or of a lost catalog. Its ranges
    /// come back where no newer entry says otherwise; rows of it that are out of date are removed.
    #[boxed]
    pub async fn attach_shard(&self, new: NewShard, opened: &Shard) -> Reply<ShardRecord> {
        let catalog = self.catalog();
        let id = new.id.clone();
        let wrap = |error| CatalogError::Shard { shard: id.clone(), error };
        let shards = catalog.shards().await?;
        if shards.iter().any(|record| record.id == id) {
            return Err(CatalogError::Exists(format!("shard {id}")));
        }
        let found = opened.meta().await.map_err(wrap)?.ok_or_else(|| wrap(ShardError::NotAShard))?;
        if let Some(same) = shards.iter().find(|record| record.incarnation == found.incarnation) {
            return Err(CatalogError::Invalid(format!(
                "this database is shard {} already; nothing to attach",
                same.id
            )));
        }
        let cluster = catalog.cluster().await?;
        let mut tx = catalog.begin().await?;
        tx.lock().await?;
        // All that can be refused is refused before the database is touched.
        let (mut plans, mut taken_from) = (Vec::new(), Vec::new());
        for definition in opened.definitions().await.map_err(wrap)? {
            let map = definition.name().clone();
            if let Some(running) = tx.running(Some(&map)).await?.into_iter().next() {
                return Err(CatalogError::Busy { op: running.op.id, kind: running.op.kind });
            }
            let record = tx.map(&map).await?;
            if let Some(known) = &record {
                same_map(&known.definition, &definition, &id)?;
            }
            let locals = opened.local_entries(&map).await.map_err(wrap)?;
            let mine: Vec<Entry> = locals
                .into_iter()
                .filter(|local| local.incoming.is_none())
                .map(|local| local.entry)
                .collect();
            let existing = tx.entries(&map, &KeyRange::all()).await?;
            let merged = merge_by_epoch(existing.iter().chain(&mine));
            let taken = existing.iter().find(|entry| !merged.contains(entry));
            if let (Some(entry), true) = (taken, found.cluster != cluster) {
                return Err(CatalogError::Invalid(format!(
                    "shard {id} comes from another cluster and claims {} of map {map}, which is on shard {}; remove \
                     that entry first if the newcomer is right",
                    definition.describe_range(&entry.range),
                    entry.shard
                )));
            }
            if taken.is_some() {
                taken_from.push(map.clone());
            }
            let described = record.as_ref().map_or(&definition, |known| &known.definition).clone();
            Map::build(described, merged.iter().cloned(), Epoch::ZERO).map_err(|error| {
                CatalogError::Invalid(format!(
                    "what shard {id} has of map {map} does not fit the map: {error}"
                ))
            })?;
            plans.push((definition, record, mine, merged));
        }
        let meta = opened.reincarnate(cluster, catalog.fresh_id()).await.map_err(wrap)?;
        for (definition, record, mine, merged) in plans {
            let map = definition.name().clone();
            let stale: Vec<Entry> = mine.iter().filter(|entry| !merged.contains(entry)).cloned().collect();
            let kept: Vec<Entry> = merged.iter().filter(|entry| entry.shard == id).cloned().collect();
            let mark = OpId::new(catalog.fresh_id());
            opened.reconcile(mark, &map, &stale, &kept).await.map_err(wrap)?;
            tx.delete_entries(&map).await?;
            tx.apply(&map, &Delta { put: merged, ..Delta::default() }).await?;
            if let Some(highest) = mine.iter().map(|entry| entry.epoch).max() {
                tx.raise_epoch(highest).await?;
            }
            let epoch = tx.next_epoch().await?;
            let record = record.unwrap_or(MapRecord { definition, epoch, version: 0, live: true });
            tx.put_map(&MapRecord { epoch, version: record.version + 1, ..record }).await?;
            tx.publish(&Event::Reload { map }).await?;
        }
        let record = new.record(meta.incarnation);
        tx.put_shard(&record).await?;
        tx.publish(&Event::Shards).await?;
        tx.commit().await?;
        // Whoever lost a range to the newcomer's higher epoch must let it go, behind a fence.
        for map in taken_from {
            self.repair_shards(&map, None).await?;
        }
        Ok(record)
    }

    /// Takes all ranges of a shard out of a map, whatever they hold.
    async fn take_ranges(&self, id: &ShardId, record: &MapRecord) -> Reply<()> {
        let map = record.definition.name();
        let entries = self.catalog().entries_of(map, id).await?;
        for chunk in entries.chunks(REMOVE_ENTRIES) {
            let delta =
                Delta { remove: chunk.iter().map(|entry| entry.range.clone()).collect(), ..Delta::default() };
            let mut edits = classify::edits(&record.definition, chunk, &delta)?;
            edits.iter_mut().for_each(|(_, edit)| edit.destroy = true);
            self.edits(map, "destroy", edits, delta, None).await?;
        }
        Ok(())
    }

    /// Takes rows out of one shard's local map that are not its own. `owners` is the map as it should be: routers
    /// of that shard are told where the ranges really are.
    pub(crate) async fn take_extra(
        &self,
        seen: &MapRecord,
        id: &ShardId,
        extra: Vec<Entry>,
        owners: &[Entry],
    ) -> Reply<()> {
        let lost = extra.iter().flat_map(|entry| destinations(&entry.range, owners)).collect();
        let definition = seen.definition.clone();
        let edit = Edit {
            definition,
            role: Role::Lose,
            before: extra,
            after: vec![],
            lost,
            destroy: true,
            carried: None,
        };
        self.repair_edit(seen, id, edit).await
    }

    /// Gives one shard's local map the rows that it lacks.
    pub(crate) async fn give_missing(
        &self,
        seen: &MapRecord,
        id: &ShardId,
        missing: Vec<Entry>,
    ) -> Reply<()> {
        let definition = seen.definition.clone();
        let edit = Edit {
            definition,
            role: Role::Gain,
            before: vec![],
            after: missing,
            lost: vec![],
            destroy: true,
            carried: None,
        };
        self.repair_edit(seen, id, edit).await
    }

    /// A repair is made for the map as it was seen: after any other change it would make new differences.
    async fn repair_edit(&self, seen: &MapRecord, id: &ShardId, edit: Edit) -> Reply<()> {
        let (map, edits) = (seen.definition.name(), vec![(id.clone(), edit)]);
        self.edits(map, "repair", edits, Delta::default(), Some(seen.version)).await.map(drop)
    }
}

/// Where the parts of a range are.
fn destinations(range: &KeyRange, owners: &[Entry]) -> Vec<(KeyRange, Option<ShardId>, State)> {
    let (mut parts, mut rest) = (Vec::new(), vec![range.clone()]);
    for owner in owners {
        if let Some(part) = owner.range.intersect(range) {
            rest = rest.iter().flat_map(|range| range.subtract(&part)).collect();
            parts.push((part, Some(owner.shard.clone()), owner.state));
        }
    }
    parts.extend(rest.into_iter().map(|range| (range, None, State::Offline)));
    parts
}

/// Whether a shard's part of a map is of the map that the catalog has; its segments may be older.
fn same_map(known: &MapDefinition, found: &MapDefinition, shard: &ShardId) -> Reply<()> {
    let shape = |map: &MapDefinition| {
        let scheme = map.scheme();
        (map.key_type().clone(), scheme.kind(), scheme.hash().copied(), scheme.prefix())
    };
    if shape(known) == shape(found) {
        return Ok(());
    }
    let words = |map: &MapDefinition| format!("{} of {}", map.scheme().kind(), map.key_type());
    Err(CatalogError::Invalid(format!(
        "shard {shard} has a map {} that is {}, but the catalog's is {}; drop or rename one of them first",
        known.name(),
        words(found),
        words(known)
    )))
}

/// Whether an operation cannot do without a shard that is lost. One that is being undone need not undo anything there;
/// a move that has switched needs neither its old rows, nor, once they are being cleaned away, what it has beside the
/// rows on the target.
fn needs(record: &OpRecord, lost: &ShardId) -> bool {
    match (record.step, &record.op.carry) {
        (Step::RollingBack, _) | (Step::Cleaning, Some(_)) => false,
        (Step::Keeping, Some(carry)) => carry.from != *lost,
        _ => true,
    }
}

/// A shard that an operation is working with cannot leave.
async fn refuse_running<T: CatalogTx>(
    tx: &mut T,
    id: &ShardId,
    matters: impl Fn(&OpRecord) -> bool,
) -> Reply<()> {
    let uses = |record: &OpRecord| matters(record) && record.op.edits.iter().any(|(shard, _)| shard == id);
    match tx.running(None).await?.into_iter().find(uses) {
        Some(record) => Err(CatalogError::Busy { op: record.op.id, kind: record.op.kind }),
        None => Ok(()),
    }
}

async fn bump<T: CatalogTx>(tx: &mut T, map: &MapName) -> Reply<()> {
    if let Some(mut record) = tx.map(map).await? {
        record.version += 1;
        record.epoch = tx.next_epoch().await?;
        tx.put_map(&record).await?;
    }
    Ok(())
}
