//! Compares the catalog with the shards' local maps, and rebuilds either from the other (B4).

use std::collections::BTreeMap;

use polyshard_map::{Delta, Entry, KeyRange, MapName, ShardId};
use polyshard_shard::LocalEntry;
use serde::Serialize;

use crate::CatalogError;
use crate::driver::Driver;
use crate::tx::{CatalogTx, Reply};
use crate::types::{Event, MapRecord};

/// How catalog and shard differ about a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// The catalog says the shard has it; the shard does not.
    CatalogOnly,
    /// The shard says it has it; the catalog does not.
    ShardOnly,
    /// Both say so, with another state, epoch or group.
    Differs,
}

/// One difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// On which shard.
    pub shard: ShardId,
    /// How they differ.
    pub found: Found,
    /// What the catalog says.
    pub catalog: Option<Entry>,
    /// What the shard says.
    pub local: Option<Entry>,
}

impl Difference {
    /// The range concerned.
    pub fn range(&self) -> &KeyRange {
        let entry = self.local.as_ref().or(self.catalog.as_ref());
        &entry.expect("a difference has at least one side").range
    }
}

/// Lists the differences between the catalog's entries and the local maps of the shards that answered.
fn compare(catalog: &[Entry], locals: &BTreeMap<ShardId, Vec<LocalEntry>>) -> Vec<Difference> {
    let mut out = Vec::new();
    for (shard, rows) in locals {
        let mut theirs: BTreeMap<&KeyRange, &Entry> = rows
            .iter()
            .filter(|row| row.incoming.is_none())
            .map(|row| (&row.entry.range, &row.entry))
            .collect();
        for entry in catalog.iter().filter(|entry| entry.shard == *shard) {
            let difference = |found, local: Option<&Entry>| Difference {
                shard: shard.clone(),
                found,
                catalog: Some(entry.clone()),
                local: local.cloned(),
            };
            match theirs.remove(&entry.range) {
                None => out.push(difference(Found::CatalogOnly, None)),
                // The epoch of a range may lag behind where a change did not concern the shard (a lock).
                Some(local)
                    if local.state != entry.state
                        || local.group != entry.group
                        || local.epoch > entry.epoch =>
                {
                    out.push(difference(Found::Differs, Some(local)));
                }
                Some(_) => {}
            }
        }
        out.extend(theirs.into_values().map(|local| Difference {
            shard: shard.clone(),
            found: Found::ShardOnly,
            catalog: None,
            local: Some(local.clone()),
        }));
    }
    out
}

/// One owner for every range: where entries overlap, the highest epoch wins, piece by piece. Locks are kept from
/// entries that carry one.
pub fn merge_by_epoch<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<Entry> {
    let mut sorted: Vec<&Entry> = entries.collect();
    // The highest epoch first; each later entry keeps only what is still free.
    sorted.sort_by(|a, b| {
        b.epoch.cmp(&a.epoch).then_with(|| a.range.cmp(&b.range)).then_with(|| a.shard.cmp(&b.shard))
    });
    let mut taken: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
    for entry in sorted {
        for piece in free_pieces(&entry.range, &taken) {
            taken.insert(piece.lo().as_slice().to_vec(), Entry { range: piece, ..entry.clone() });
        }
    }
    taken.into_values().collect()
}

/// The parts of a range that no entry has yet.
fn free_pieces(range: &KeyRange, taken: &BTreeMap<Vec<u8>, Entry>) -> Vec<KeyRange> {
    let mut pieces = Vec::new();
    let below = taken.range(..range.lo().as_slice().to_vec()).next_back().map(|(_, entry)| entry);
    let mut from = range.lo().clone();
    let within = taken.range(range.lo().as_slice().to_vec()..).map(|(_, entry)| entry);
    for entry in below.into_iter().chain(within) {
        if range.hi().is_some_and(|hi| entry.range.lo() >= hi) {
            break;
        }
        if *entry.range.lo() > from
            && let Ok(piece) = KeyRange::new(from.clone(), Some(entry.range.lo().clone()))
        {
            pieces.push(piece);
        }
        match entry.range.hi() {
            None => return pieces,
            Some(hi) if *hi > from => from = hi.clone(),
            Some(_) => {}
        }
    }
    if let Ok(piece) = KeyRange::new(from, range.hi().cloned()) {
        pieces.push(piece);
    }
    pieces
}

impl Driver {
    /// Compares a map with the local maps of all shards. Also names the shards that did not answer.
    pub async fn check(&self, map: &MapName) -> Reply<(Vec<Difference>, Vec<(ShardId, String)>)> {
        self.catalog().map(map).await?;
        let (locals, away) = self.locals(map).await?;
        let catalog = self.catalog().entries(map).await?;
        let busy: Vec<KeyRange> = self.busy(map).await?;
        let mut differences = compare(&catalog, &locals);
        // An operation under way explains a difference: it will be gone when it ends.
        differences.retain(|difference| !busy.iter().any(|range| range.overlaps(difference.range())));
        Ok((differences, away))
    }

    /// Makes the shards' local maps what the catalog says. Answers what was repaired.
    pub async fn repair_shards(&self, map: &MapName, only: Option<&ShardId>) -> Reply<Vec<Difference>> {
        let mut seen = self.catalog().map(map).await?;
        let owners = self.catalog().entries(map).await?;
        let (differences, _) = self.check(map).await?;
        let wanted: Vec<Difference> = differences
            .into_iter()
            .filter(|difference| only.is_none_or(|only| difference.shard == *only))
            .collect();
        let mut by_shard: BTreeMap<ShardId, (Vec<Entry>, Vec<Entry>)> = BTreeMap::new();
        for difference in &wanted {
            let (extra, missing) = by_shard.entry(difference.shard.clone()).or_default();
            extra.extend(difference.local.clone());
            missing.extend(difference.catalog.clone().map(|entry| Entry { lock: None, ..entry }));
        }
        // All that is too much goes before anything comes, so that no key has two owners meanwhile. Each of the
        // operations makes a new version of the map.
        for (shard, (extra, _)) in &by_shard {
            if !extra.is_empty() {
                self.take_extra(&seen, shard, extra.clone(), &owners).await?;
                seen.version += 1;
            }
        }
        for (shard, (_, missing)) in by_shard {
            if !missing.is_empty() {
                self.give_missing(&seen, &shard, missing).await?;
                seen.version += 1;
            }
        }
        Ok(wanted)
    }

    /// Makes the catalog what the shards' local maps say; where two claim a range, the highest epoch wins. All
    /// shards must answer, or their ranges would be lost to the map.
    pub async fn repair_catalog(&self, map: &MapName) -> Reply<Vec<Difference>> {
        let (differences, away) = self.check(map).await?;
        if let Some((shard, why)) = away.into_iter().next() {
            return Err(CatalogError::Invalid(format!(
                "shard {shard} does not answer ({why}); the map can be rebuilt only from all shards: bring it back, \
                 or detach it"
            )));
        }
        let (locals, _) = self.locals(map).await?;
        let rows = locals.values().flatten().filter(|row| row.incoming.is_none()).map(|row| &row.entry);
        let merged = merge_by_epoch(rows);
        let highest = merged.iter().map(|entry| entry.epoch).max();
        let mut tx = self.catalog().begin().await?;
        tx.lock().await?;
        if let Some(record) = tx.running(Some(map)).await?.into_iter().next() {
            return Err(CatalogError::Busy { op: record.op.id, kind: record.op.kind });
        }
        let record = tx.map(map).await?.ok_or_else(|| CatalogError::NoSuchMap(map.clone()))?;
        tx.delete_entries(map).await?;
        tx.apply(map, &Delta { put: merged, ..Delta::default() }).await?;
        if let Some(highest) = highest {
            tx.raise_epoch(highest).await?;
        }
        let epoch = tx.next_epoch().await?;
        tx.put_map(&MapRecord { epoch, version: record.version + 1, ..record }).await?;
        tx.publish(&Event::Reload { map: map.clone() }).await?;
        tx.commit().await?;
        // A shard that lost a range to a higher epoch elsewhere must let it go.
        self.repair_shards(map, None).await?;
        Ok(differences)
    }

    /// The ranges of a map that operations under way have to do with.
    pub async fn busy(&self, map: &MapName) -> Reply<Vec<KeyRange>> {
        let running = self.catalog().running().await?;
        Ok(running
            .into_iter()
            .filter(|record| record.op.map == *map)
            .flat_map(|record| record.op.touches)
            .collect())
    }

    async fn locals(
        &self,
        map: &MapName,
    ) -> Reply<(BTreeMap<ShardId, Vec<LocalEntry>>, Vec<(ShardId, String)>)> {
        let (mut locals, mut away) = (BTreeMap::new(), Vec::new());
        for record in self.catalog().shards().await? {
            let read = match self.shard(&record.id).await {
                Ok(shard) => shard.local_entries(map).await.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match read {
                Ok(entries) => drop(locals.insert(record.id, entries)),
                Err(error) => away.push((record.id, error)),
            }
        }
        Ok((locals, away))
    }
}
