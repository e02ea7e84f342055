//! What every store does for its datasets: registers one on a shard before its first row there; in the background
//! removes the rows of deleted datasets and finishes bindings that were interrupted.

use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{BINDING_SUFFIX, Binding, CatalogError, DatasetRecord, Driver, Gone};
use polyshard_engine::{self as engine, Batch, Dialect, Statement};
use polyshard_map::{KeyRange, ShardId};
use polyshard_router::{Access, Router, RouterError, Ticket};
use polyshard_shard::{Dataset, Placement, ShardError, TableRows, part_name};

use tokio::sync::Notify;

use crate::declaration::Store;
use crate::kit::Kit;
use crate::periodic::PeriodicTask;

/// Rows removed by one write, so that others' writes are not held up for long.
const REMOVE_ROWS_MAX: i64 = 500;
/// Writes for one dataset on one shard in one round, so that all get their turn.
const WRITES_MAX: usize = 100;

/// What a shard must know of a dataset whose rows lie in tables of the store's own, with a column `dataset` that holds
/// its number and a column `placement`: one entry for each of the store's tables, the first under the dataset's name.
pub fn registration(store: &Store, record: &DatasetRecord, dialect: Dialect) -> Vec<Dataset> {
    let of =
        |(name, table): (String, &&str)| Dataset { name, ..descriptor(record, dialect.own_table(table)) };
    names_on_shards(store, record).into_iter().zip(store.tables).map(of).collect()
}

/// The same of one with a single table.
pub fn descriptor(record: &DatasetRecord, table: String) -> Dataset {
    let number = i64::try_from(record.id).expect("the catalog counts datasets within 63 bits");
    Dataset {
        name: record.name_on_shards(),
        map: record.map.clone(),
        table,
        placement: Placement::Column("placement".to_owned()),
        rows: TableRows::Numbered { column: "dataset".to_owned(), number },
    }
}

/// What shards call the rows of a dataset in each of the store's tables.
fn names_on_shards(store: &Store, record: &DatasetRecord) -> Vec<String> {
    let whole = record.name_on_shards();
    let further = store.tables.iter().skip(1).map(|table| part_name(&whole, table)).collect::<Vec<_>>();
    std::iter::once(whole).chain(further).collect()
}

impl Kit {
    /// Registers a dataset on a ticket's shard, with all tables of the store, before its first row there.
    pub async fn register(&self, ticket: &Ticket, record: &DatasetRecord) -> Result<(), engine::Error> {
        if self.router().is_registered(ticket, record.id) {
            return Ok(());
        }
        let tables = registration(self.store(), record, ticket.dialect());
        self.router().register(ticket, record.id, &tables).await.map_err(|error| match error {
            // Registering twice is the same as once, and no row was written.
            RouterError::Engine(error @ engine::Error::OutcomeUnknown { .. })
            | RouterError::Shard {
                error: ShardError::Engine(error @ engine::Error::OutcomeUnknown { .. }),
                ..
            } => engine::Error::Unavailable { message: error.to_string() },
            RouterError::Engine(error) | RouterError::Shard { error: ShardError::Engine(error), .. } => error,
            // Nothing was written yet, so the whole may be tried again.
            other => engine::Error::Unavailable { message: other.to_string() },
        })
    }
}

/// How the rows of deleted datasets are found in one of the store's tables, and removed.
#[derive(Debug, Clone, Copy)]
pub struct Removal {
    /// A statement that has a row if dataset `$1` has one.
    pub any: fn(Dialect) -> Arc<str>,
    /// A statement that removes up to `$2` rows of dataset `$1`.
    pub remove: fn(Dialect) -> Arc<str>,
}

/// What a store has to tell for its upkeep.
#[derive(Debug, Clone, Copy)]
pub struct Upkeep {
    /// The store.
    pub store: &'static Store,
    /// For each of its tables how rows are removed, in the order in which they go.
    pub removals: &'static [Removal],
}

impl Upkeep {
    /// Starts the task that does nothing else, in rounds: one after each time, and when `wake` is notified.
    pub fn start(&'static self, kit: &Kit, every: Duration, wake: Arc<Notify>) -> PeriodicTask {
        let kit = kit.clone();
        PeriodicTask::start("removes rows of deleted datasets", every, wake, move || {
            let kit = kit.clone();
            async move { self.run(kit.router(), kit.driver(), kit.now_ms()).await }
        })
    }

    /// One round. What cannot be done now is left for the next one.
    pub async fn run(&self, router: &Router, driver: &Driver, now_ms: i64) {
        debug_assert_eq!(self.removals.len(), self.store.tables.len());
        let list =
            |store: &str| -> Vec<Arc<DatasetRecord>> { router.view().datasets_of(store).cloned().collect() };
        for record in list(&Gone::list(self.store.id)) {
            if let Err(error) = self.remove_gone(router, driver, &record, now_ms).await {
                report(&record.name, &error);
            }
        }
        for record in list(&format!("{}{BINDING_SUFFIX}", self.store.id)) {
            if let Err(error) = self.finish_binding(router, driver, &record).await {
                report(&record.name, &error);
            }
        }
    }

    async fn finish_binding(
        &self,
        router: &Router,
        driver: &Driver,
        record: &DatasetRecord,
    ) -> Result<(), RouterError> {
        let Some(binding) = Binding::of(record) else { return Ok(()) };
        let key = (binding.store.clone(), binding.name.clone());
        if router.view().datasets.get(&key).is_none_or(|dataset| binding.is_met_by(dataset)) {
            return Ok(());
        }
        driver.bind_dataset(&binding).await?;
        router.refresh().await
    }

    async fn remove_gone(
        &self,
        router: &Router,
        driver: &Driver,
        record: &DatasetRecord,
        now_ms: i64,
    ) -> Result<(), RouterError> {
        let gone = Gone::of(record)?;
        let mut all = true;
        let mut failed = None;
        for shard in router.view().shards.keys() {
            // A shard that is away does not keep the others from being cleaned.
            match self.remove_rows(router, record, shard, gone.dataset).await {
                Ok(whole) => all &= whole,
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        // The first time they forget it, the second time none knows it: a move may have brought it back between.
        let forget = || self.forget_everywhere(router, record, gone.dataset);
        if all && gone.is_over(now_ms) && (forget().await? || forget().await?) {
            match driver.delete_dataset(&record.store, &record.name).await {
                // Another process was quicker.
                Ok(_) | Err(CatalogError::NoSuchDataset(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Has all shards forget a dataset that has no rows any more and gets no more. True when none knew it.
    async fn forget_everywhere(
        &self,
        router: &Router,
        record: &DatasetRecord,
        dataset: u64,
    ) -> Result<bool, RouterError> {
        let name = record.name.strip_suffix(&format!("#{dataset}")).unwrap_or(&record.name);
        let known = DatasetRecord {
            id: dataset,
            store: self.store.id.to_owned(),
            name: name.to_owned(),
            ..record.clone()
        };
        let (names, mut all) = (names_on_shards(self.store, &known), true);
        for shard in router.view().shards.keys() {
            let fail = |error| RouterError::Shard { shard: shard.clone(), error };
            let opened = router.administer(shard).await.map_err(fail)?;
            all &= opened.forget_dataset(&names).await.map_err(fail)?;
        }
        Ok(all)
    }

    /// Removes a dataset's rows from one shard, whatever brought them there; false if there may be more.
    async fn remove_rows(
        &self,
        router: &Router,
        record: &DatasetRecord,
        shard: &ShardId,
        dataset: u64,
    ) -> Result<bool, RouterError> {
        let dataset = i64::try_from(dataset).expect("the catalog counts datasets within 63 bits");
        let mut writes = WRITES_MAX;
        for removal in self.removals {
            loop {
                // A ticket is taken for each write, so that no move waits for long.
                let ticket = router.enter_shard(&record.map, &KeyRange::all(), shard, Access::Write).await?;
                // Most have nothing left, which must not cost a write in every round.
                let any = Statement::new((removal.any)(ticket.dialect())).bind(dataset);
                if ticket.read(any).await?.is_empty() {
                    break;
                }
                if writes == 0 {
                    return Ok(false);
                }
                writes -= 1;
                let remove = (removal.remove)(ticket.dialect());
                let remove = Statement::new(remove).bind(dataset).bind(REMOVE_ROWS_MAX);
                ticket.write(Batch::from(remove)).await?;
            }
        }
        Ok(true)
    }
}

/// A shard that is away, or a range that may not be written now, is in other logs already; anything else is not.
fn report(dataset: &str, error: &RouterError) {
    let passing = matches!(error, RouterError::ReadOnly(_) | RouterError::Offline(_)) || error.is_retryable();
    if passing {
        tracing::debug!(dataset, %error, "dataset cleanup postponed to the next round");
    } else {
        tracing::warn!(dataset, %error, "dataset cleanup failed; retrying");
    }
}
