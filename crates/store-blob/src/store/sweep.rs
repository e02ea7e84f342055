//! Removes, in the background, what nobody needs any more: announced objects whose upload broke off, objects, contents
//! and blocks that no row names, deleted blobs that were kept for long enough, and all of containers that are gone.
//!
//! Every step may be repeated, by this process or another: rows are taken away only after what they stand for is gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use polyshard_catalog::{DatasetRecord, Gone};
use polyshard_engine::{self as engine, Expect, Row, Statement};
use polyshard_map::{KeyRange, MapName, ShardId};
use polyshard_router::{Access, Ticket};
use polyshard_store::{Error, PeriodicTask, Removal, Upkeep};

use super::gather;
use super::home::{Home, Read};
use super::pages;
use super::pending::{PendingKind, Unneeded, millis};
use super::rows::{Step, stored_snapshot};
use super::statements::{BASE, texts};
use super::{BlobStore, STORE, StoreError};
use crate::name::{BlobName, ContainerName};
use crate::objects::ObjectId;

/// Things that are looked at together.
const CHUNK_ROWS: i64 = 200;
/// Chunks of one shard, map and kind in one round, so that all get their turn.
const CHUNKS_MAX: usize = 50;
/// Objects that are deleted at the same time.
const DELETES_AT_ONCE: usize = 8;
/// Steps of one content or stage in one round.
const STEPS_MAX: usize = 1000;

/// When to look again for objects of containers that were deleted before this process started.
const LOOK_AGAIN_MS: i64 = 3600 * 1000;

/// What the sweep remembers from round to round: first of all, which datasets have objects and are not in the catalog.
#[derive(Default)]
pub(super) struct Lost {
    /// Since when that is known, in milliseconds.
    since_ms: HashMap<u64, i64>,
    /// When they were last looked for.
    looked_ms: i64,
    /// Contents of pages of which a round has looked at the first rows only: after which one the next goes on.
    pruned: HashMap<i64, pages::Place>,
}

/// How the rows of containers that are gone are found and removed.
const UPKEEP: Upkeep = Upkeep {
    store: &STORE,
    removals: &[
        Removal { any: |dialect| texts(dialect).any[0].clone(), remove: |dialect| remove(dialect, 0) },
        Removal { any: |dialect| texts(dialect).any[1].clone(), remove: |dialect| remove(dialect, 1) },
        Removal { any: |dialect| texts(dialect).any[2].clone(), remove: |dialect| remove(dialect, 2) },
        Removal { any: |dialect| texts(dialect).any[3].clone(), remove: |dialect| remove(dialect, 3) },
        Removal { any: |dialect| texts(dialect).any[4].clone(), remove: |dialect| remove(dialect, 4) },
    ],
};

fn remove(dialect: engine::Dialect, table: usize) -> Arc<str> {
    texts(dialect).remove_some[table].clone()
}

/// Something pending that is due.
struct Due {
    kind: PendingKind,
    id: String,
    number: i64,
    at: i64,
    home: Home,
}

impl BlobStore {
    /// Starts the task that removes what nobody needs any more.
    pub fn keep_tidy(self: &Arc<Self>) -> PeriodicTask {
        let store = self.clone();
        let every = self.options.sweep_every;
        PeriodicTask::start("removes what no blob needs any more", every, self.tidy.clone(), move || {
            let store = store.clone();
            async move { store.sweep().await }
        })
    }

    /// One round, in bounded steps. What cannot be reached now is left for the next one.
    pub async fn sweep(&self) {
        let view = self.kit.router().view();
        let mut maps: BTreeMap<MapName, BTreeMap<i64, Arc<DatasetRecord>>> = BTreeMap::new();
        for record in view.datasets_of(STORE.id) {
            let number = i64::try_from(record.id).expect("the catalog counts datasets within 63 bits");
            maps.entry(record.map.clone()).or_default().insert(number, record.clone());
        }
        for (map, records) in &maps {
            for shard in view.shards.keys() {
                for kind in PendingKind::ALL {
                    if let Err(error) = self.sweep_shard(map, shard, records, kind).await {
                        report(shard, &error);
                    }
                }
            }
        }
        UPKEEP.run(self.kit.router(), self.kit.driver(), self.kit.now_ms()).await;
        if self.is_lost_due() {
            match self.remove_lost_objects().await {
                Ok(()) => self.lost.lock().expect("no panic while held").looked_ms = self.kit.now_ms(),
                Err(error) => {
                    tracing::debug!(%error, "objects of deleted containers stay until the next round")
                }
            }
        }
    }

    /// Whether to look for objects of containers that are gone: every list costs something.
    fn is_lost_due(&self) -> bool {
        let view = self.kit.router().view();
        let is_gone = view.datasets_of(&Gone::list(STORE.id)).next().is_some();
        let lost = self.lost.lock().expect("no panic while held");
        is_gone || !lost.since_ms.is_empty() || self.kit.now_ms() - lost.looked_ms >= LOOK_AGAIN_MS
    }

    /// What one shard has pending of one kind, in the ranges that it owns.
    async fn sweep_shard(
        &self,
        map: &MapName,
        shard: &ShardId,
        records: &BTreeMap<i64, Arc<DatasetRecord>>,
        kind: PendingKind,
    ) -> Result<(), StoreError> {
        let mut after = (i64::MIN, String::new());
        for _ in 0..CHUNKS_MAX {
            let (due, is_last) = self.due(map, shard, records, kind, &mut after).await?;
            let settled: Vec<_> = due.into_iter().map(|due| self.settle(due)).collect();
            stream::iter(settled).buffer_unordered(DELETES_AT_ONCE).count().await;
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// The next of what is due. No ticket is held while it is dealt with.
    async fn due(
        &self,
        map: &MapName,
        shard: &ShardId,
        records: &BTreeMap<i64, Arc<DatasetRecord>>,
        kind: PendingKind,
        after: &mut (i64, String),
    ) -> Result<(Vec<Due>, bool), StoreError> {
        let age = match kind {
            PendingKind::Announced | PendingKind::AnnouncedContent => self.options.upload_max,
            _ => self.options.keep_removed,
        };
        let entered = self.kit.router().enter_shard(map, &KeyRange::all(), shard, Access::Read).await;
        let ticket = entered.map_err(Error::from)?;
        let statement = Statement::new(texts(ticket.dialect()).due.clone())
            .bind(kind.number())
            .bind(millis(age))
            .bind(after.0)
            .bind(after.1.as_str())
            .bind(CHUNK_ROWS);
        let rows = ticket.read(statement).await?;
        let ranges = ticket.ranges().to_vec();
        drop(ticket);
        let mut due = Vec::new();
        for row in &rows {
            *after = (row.int(5)?, row.text(3)?.to_owned());
            let is_owned = ranges.iter().any(|range| row.blob(0).is_ok_and(|place| range.contains(place)));
            if let (true, Some(record)) = (is_owned, records.get(&row.int(1)?)) {
                match self.read_due(row, record, kind) {
                    Ok(read) => due.extend(read),
                    // The others are none the worse for it.
                    Err(error) => report(&format_args!("shard {shard}, pending {}", after.1), &error),
                }
            }
        }
        Ok((due, rows.len() < CHUNK_ROWS as usize))
    }

    /// None if it lies where the blob is not any more: it is moved along.
    fn read_due(
        &self,
        row: &Row,
        record: &Arc<DatasetRecord>,
        kind: PendingKind,
    ) -> Result<Option<Due>, StoreError> {
        let damaged = |error: crate::name::NameError| StoreError::damaged("name of a blob", error);
        let (account, container) = record.name.split_once('/').unwrap_or_default();
        let container = ContainerName::new(account, container).map_err(damaged)?;
        let name = BlobName::new(container, row.text(2)?).map_err(damaged)?;
        let home = self.home_in(record.clone(), name)?;
        if home.placed.placement != row.blob(0)? {
            return Ok(None);
        }
        let (id, number, at) = (row.text(3)?.to_owned(), row.int(4)?, row.int(5)?);
        Ok(Some(Due { kind, id, number, at, home }))
    }

    async fn settle(&self, due: Due) {
        let done = match due.kind {
            PendingKind::Announced => self.condemn(&due).await,
            PendingKind::Object => self.remove_object(&due).await,
            PendingKind::Content => self.remove_content(&due).await,
            PendingKind::Stage => self.remove_stage(&due).await,
            PendingKind::Deleted => self.remove_deleted(&due).await,
            PendingKind::AnnouncedContent => self.condemn_content(&due).await,
        };
        if let Err(error) = done {
            report(&due.home.name, &error);
        }
    }

    /// From now on the upload, should it still be going on, cannot name the object.
    async fn condemn(&self, due: &Due) -> Result<(), StoreError> {
        let Some(id) = ObjectId::parse(&due.id) else {
            return Err(StoreError::damaged("object id", &due.id));
        };
        self.write(&due.home, vec![self.give_up(&due.home, &id)]).await?;
        Ok(())
    }

    /// From now on the writer, should it still be at work, can neither add rows nor name the content.
    async fn condemn_content(&self, due: &Due) -> Result<(), StoreError> {
        self.write(&due.home, vec![self.give_up_content(&due.home, due.number)]).await?;
        Ok(())
    }

    async fn remove_object(&self, due: &Due) -> Result<(), StoreError> {
        let Some(id) = ObjectId::parse(&due.id) else {
            return Err(StoreError::damaged("object id", &due.id));
        };
        let step = Step::new(&due.home, |dialect| texts(dialect).object_state.clone());
        let step = step.bind(due.id.as_str()).bind(due.kind.number()).bind(due.at);
        let rows = self.read(&due.home, step).await?;
        let (noted, used) = (rows.one()?.int(0)?, rows.one()?.int(1)?);
        // What was found due some time ago may have been restored since, and its note replaced.
        if noted == 0 {
            return Ok(());
        }
        // A snapshot may still have it: when that is deleted, the object is noted again.
        if used == 0 {
            self.options.objects.delete(due.home.dataset_id(), &id).await?;
        }
        self.done(due).await
    }

    async fn is_used(&self, home: &Home, object: &str, content: i64, stage: i64) -> Result<bool, StoreError> {
        let step = Step::new(home, |dialect| texts(dialect).is_used.clone());
        let rows = self.read(home, step.bind(object).bind(content).bind(stage)).await?;
        Ok(rows.one()?.int(0)? > 0)
    }

    /// Takes the row away, unless the thing was noted anew meanwhile.
    async fn done(&self, due: &Due) -> Result<(), StoreError> {
        self.write(&due.home, vec![self.done_step(due)]).await?;
        Ok(())
    }

    fn done_step(&self, due: &Due) -> Step {
        let step = Step::new(&due.home, |dialect| texts(dialect).done.clone());
        step.bind(due.id.as_str()).bind(due.kind.number()).bind(due.at)
    }

    async fn remove_content(&self, due: &Due) -> Result<(), StoreError> {
        let mut after = gather::FIRST_PAGE;
        for _ in 0..STEPS_MAX {
            if self.is_used(&due.home, "", due.number, 0).await? {
                return self.prune_content(due).await;
            }
            let (home, number) = (due.home.clone(), due.number);
            let work = async move |ticket: &Ticket| match gather::used(ticket, &home).await? {
                Some(used) => gather::remove_content(ticket, &home, number, after, &used).await.map(Some),
                None => Ok(None),
            };
            // A blob that is changed all the time is left for the next round.
            let removal = self.kit.run(&due.home.placed, Access::Write, work).await?;
            let Some((removal, next)) = removal else { return Ok(()) };
            after = next;
            if !self.carry_out(due, removal).await? {
                return self.done(due).await;
            }
        }
        Ok(())
    }

    /// Removes what nobody sees of a content that is still in use: pages that were written again or hidden since.
    async fn prune_content(&self, due: &Due) -> Result<(), StoreError> {
        let after = self.lost.lock().expect("no panic while held").pruned.remove(&due.number);
        match self.prune_pages(&due.home, due.number, after.unwrap_or(pages::START)).await? {
            None => self.done(due).await,
            Some(after) => {
                self.lost.lock().expect("no panic while held").pruned.insert(due.number, after);
                Ok(())
            }
        }
    }

    async fn remove_stage(&self, due: &Due) -> Result<(), StoreError> {
        let mut after = (Vec::new(), i64::MIN);
        for _ in 0..STEPS_MAX {
            if self.is_used(&due.home, "", 0, due.number).await? {
                return self.done(due).await;
            }
            let (home, number, from) = (due.home.clone(), due.number, after);
            let work = async move |ticket: &Ticket| match gather::used(ticket, &home).await? {
                Some(used) => {
                    gather::remove_stage(ticket, &home, number, from.clone(), &used).await.map(Some)
                }
                None => Ok(None),
            };
            let removal = self.kit.run(&due.home.placed, Access::Write, work).await?;
            let Some((removal, next)) = removal else { return Ok(()) };
            after = next;
            if !self.carry_out(due, removal).await? {
                return self.done(due).await;
            }
        }
        Ok(())
    }

    /// Removes rows and notes the objects that they named, in one transaction. Answers whether there may be more.
    async fn carry_out(&self, due: &Due, removal: gather::Removal) -> Result<bool, StoreError> {
        let mut steps = removal.steps;
        let condemned = removal.objects.into_iter().map(Unneeded::Object);
        steps.extend(condemned.map(|object| self.pend(&due.home, &object)));
        if !steps.is_empty() {
            self.write(&due.home, steps).await?;
        }
        Ok(removal.has_more)
    }

    /// Removes a deleted blob or snapshot for good, when its time is over.
    async fn remove_deleted(&self, due: &Due) -> Result<(), StoreError> {
        let snapshot = if due.number == BASE { 0 } else { due.number };
        let found = self.row(&due.home, snapshot, Read::Head).await?;
        // One that was brought back, or deleted again since, has another time.
        let over = found.filter(|blob| blob.deleted != 0 && blob.props.kept_until_ms <= blob.now_ms);
        let Some(blob) = over else { return self.done(due).await };
        let expire = Step::new(&due.home, |dialect| texts(dialect).expire.clone());
        let expire = expire.bind(stored_snapshot(snapshot)).bind(blob.version).expect(Expect::Rows(1));
        let mut steps = vec![expire, self.done_step(due)];
        steps.extend(self.pend_content(&due.home, &blob));
        self.write(&due.home, steps).await?;
        Ok(())
    }

    /// Removes the objects of containers that are gone for good, also of uploads that ended after that.
    async fn remove_lost_objects(&self) -> Result<(), StoreError> {
        let listed = self.options.objects.datasets().await?;
        // Every object was announced in a container that the catalog had: what it has not now, it has no more.
        self.kit.router().refresh().await.map_err(Error::from)?;
        let view = self.kit.router().view();
        let known: Vec<u64> = view.datasets_of(STORE.id).map(|record| record.id).collect();
        let lost: Vec<u64> = listed.into_iter().filter(|dataset| !known.contains(dataset)).collect();
        let now_ms = self.kit.now_ms();
        if !lost.is_empty() && !self.has_depot_alone().await? {
            return Ok(());
        }
        let due: Vec<u64> = {
            let seen = &mut self.lost.lock().expect("no panic while held").since_ms;
            seen.retain(|dataset, _| lost.contains(dataset));
            lost.iter().for_each(|dataset| {
                seen.entry(*dataset).or_insert(now_ms);
            });
            let keep = millis(self.options.keep_removed);
            seen.iter().filter(|(_, since)| now_ms - **since >= keep).map(|(dataset, _)| *dataset).collect()
        };
        for dataset in due {
            self.options.objects.delete_all(dataset).await?;
        }
        Ok(())
    }
}

/// A shard that is away, or a range that may not be written now, is in other logs already; anything else is not.
fn report(what: &dyn std::fmt::Display, error: &StoreError) {
    match error {
        StoreError::Kit(error) if error.is_passing() => {
            tracing::debug!(%what, %error, "removal postponed to the next round");
        }
        _ => tracing::warn!(%what, %error, "removal failed; retrying"),
    }
}
