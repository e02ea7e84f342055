//! Removes, in the background, messages that have expired and those of queues that are gone.

use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::{CatalogError, DatasetRecord};
use polyshard_router::RouterError;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ask::{Ask, Kind};
use super::messages::{REMOVE_ROWS_MAX, broken};
use super::{Home, QueueStore, STORE, StoreError};

/// What the catalog calls queues that are gone and still have messages.
const GONE_STORE: &str = "queue-gone";
/// How often to look. Expired messages are never shown, so only their room is at stake.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Writes for one queue in one round, so that all queues get their turn.
const WRITES_PER_QUEUE_MAX: usize = 100;
/// When to look again at a queue that has nothing that expires, should another process have put something.
const LOOK_AGAIN_MS: i64 = 3600 * 1000;
/// How long a queue that is gone is remembered: a process that has not heard of it yet may still put messages.
const GONE_KEPT_MS: i64 = 5 * 60 * 1000;

/// What the catalog keeps about a queue that is gone.
#[derive(Debug, Serialize, Deserialize)]
struct Gone {
    format: u32,
    /// The number of its rows.
    dataset: u64,
    /// Its name in the account, by which its messages are found.
    name: String,
    /// When it was deleted, in milliseconds since 1970.
    gone_ms: i64,
}

/// The task that removes what nobody can see any more.
pub struct Sweeper {
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Sweeper {
    /// Starts it.
    pub fn start(store: Arc<QueueStore>) -> Sweeper {
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = stopped.changed() => return,
                    () = store.sweep() => {}
                }
                tokio::select! {
                    _ = stopped.changed() => return,
                    () = store.deleted.notified() => {}
                    () = tokio::time::sleep(SWEEP_EVERY) => {}
                }
            }
        });
        Sweeper { task, stop }
    }

    /// Stops it and waits until it has ended.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the task that removes expired messages failed");
        }
    }
}

impl QueueStore {
    /// Removes, in bounded steps, what has expired and what belongs to queues that are gone. A queue that cannot be
    /// reached now is left for the next round.
    pub async fn sweep(&self) {
        let view = self.router.view();
        let of = |store: &'static str| {
            let all = view.datasets.range((store.to_owned(), String::new())..);
            all.take_while(move |((of, _), _)| of == store).map(|(_, record)| record.clone())
        };
        let queues: Vec<Arc<DatasetRecord>> = of(STORE).collect();
        self.forget_all_but(&queues);
        for record in &queues {
            if self.is_due(record.id)
                && let Err(error) = self.remove_expired(record).await
            {
                report(&record.name, &error);
            }
        }
        for record in of(GONE_STORE) {
            if let Err(error) = self.remove_gone(&record, &queues).await {
                report(&record.name, &error);
            }
        }
    }

    /// Notes that a message of a queue expires at a time.
    pub(super) fn expires_at(&self, dataset: u64, expires_ms: i64) {
        let mut expiries = self.expiries.lock().expect("no panic while held");
        // A queue that is not there yet is looked at in the next round anyway.
        if let Some(first) = expiries.get_mut(&dataset) {
            *first = expires_ms.min(*first);
        }
    }

    fn is_due(&self, dataset: u64) -> bool {
        let expiries = self.expiries.lock().expect("no panic while held");
        expiries.get(&dataset).is_none_or(|first| *first <= self.now_ms())
    }

    fn forget_all_but(&self, queues: &[Arc<DatasetRecord>]) {
        let known: std::collections::HashSet<u64> = queues.iter().map(|record| record.id).collect();
        self.expiries.lock().expect("no panic while held").retain(|dataset, _| known.contains(dataset));
        self.empty.lock().expect("no panic while held").retain(|dataset| known.contains(dataset));
    }

    async fn remove_expired(&self, record: &Arc<DatasetRecord>) -> Result<(), StoreError> {
        let home = self.home_of(record.clone(), name_in_account(&record.name))?;
        let now_ms = self.now_ms();
        // Noted before it is read: what is put meanwhile lowers it.
        self.expiries.lock().expect("no panic while held").insert(home.dataset, now_ms + LOOK_AGAIN_MS);
        let first_ms = self.first_expiry(&home).await;
        let first_ms = first_ms.inspect_err(|_| self.expires_at(home.dataset, now_ms))?;
        self.expires_at(home.dataset, first_ms);
        if first_ms > now_ms {
            return Ok(());
        }
        let remove = || {
            Ask::new(Kind::Change, |texts| &texts.remove_expired, &home).bind(now_ms).bind(REMOVE_ROWS_MAX)
        };
        self.remove(&home, remove).await.map(drop)
    }

    async fn first_expiry(&self, home: &Home) -> Result<i64, StoreError> {
        let first = Ask::new(Kind::Read, |texts| &texts.first_expiry, home);
        let first = self.ask(home, first).await?.one().and_then(|row| row.opt_int(0)).map_err(broken)?;
        Ok(first.unwrap_or(i64::MAX))
    }

    /// Runs a removing statement until it finds no more, or until it is another queue's turn. Says how much it did.
    async fn remove(&self, home: &Home, next: impl Fn() -> Ask) -> Result<Removed, StoreError> {
        for _ in 0..WRITES_PER_QUEUE_MAX {
            let removed = self.ask(home, next()).await?.affected();
            if removed < REMOVE_ROWS_MAX as u64 {
                return Ok(Removed::All);
            }
        }
        Ok(Removed::Some)
    }

    /// Records that a queue is about to go, so that its messages are removed even if this process ends now.
    pub(super) async fn remember_gone(&self, record: &DatasetRecord) -> Result<(), StoreError> {
        let name = name_in_account(&record.name).to_owned();
        let gone = Gone { format: 1, dataset: record.id, name, gone_ms: self.now_ms() };
        let body = serde_json::to_value(&gone).expect("plain JSON");
        let name = format!("{}#{}", record.name, record.id);
        let rule = record.rule.clone();
        match self.driver.create_dataset(GONE_STORE, &name, &record.map, rule, body).await {
            // One that was left by an attempt that failed serves as well.
            Ok(_) | Err(CatalogError::Exists(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn remove_gone(
        &self,
        record: &Arc<DatasetRecord>,
        queues: &[Arc<DatasetRecord>],
    ) -> Result<(), StoreError> {
        let gone =
            Gone::deserialize(&record.body).map_err(|_| StoreError::Damaged("record of a deleted queue"))?;
        // Its deletion is under way, or was given up: the queue itself is the last word.
        if queues.iter().any(|queue| queue.id == gone.dataset) {
            return Ok(());
        }
        let home = Home { dataset: gone.dataset, ..self.home_of(record.clone(), &gone.name)? };
        let remove = || Ask::new(Kind::Change, |texts| &texts.remove_all, &home).bind(REMOVE_ROWS_MAX);
        let removed = self.remove(&home, remove).await?;
        if removed == Removed::All && gone.gone_ms.saturating_add(GONE_KEPT_MS) <= self.now_ms() {
            match self.driver.delete_dataset(GONE_STORE, &record.name).await {
                // Another process was quicker.
                Ok(_) | Err(CatalogError::NoSuchDataset(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// How much of what was to be removed is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removed {
    All,
    Some,
}

/// A shard that is away, or a range that may not be written now, is in other logs already; anything else is not.
fn report(queue: &str, error: &StoreError) {
    let passing = match error {
        StoreError::Router(RouterError::ReadOnly(_) | RouterError::Offline(_)) => true,
        StoreError::Router(error) => error.is_retryable(),
        StoreError::Catalog(error) => error.is_retryable(),
        _ => false,
    };
    if passing {
        tracing::debug!(queue, %error, "messages nobody can see stay until the next round");
    } else {
        tracing::warn!(queue, %error, "messages nobody can see could not be removed");
    }
}

fn name_in_account(dataset: &str) -> &str {
    dataset.split_once('/').map_or(dataset, |(_, name)| name)
}
