//! Removes, in the background, messages that have expired and those of queues that are gone.

use std::sync::Arc;
use std::time::Duration;

use polyshard_catalog::DatasetRecord;
use polyshard_store::{PeriodicTask, Placed, Removal, Upkeep};

use super::ask::{Kind, Query};
use super::messages::{REMOVE_ROWS_MAX, broken};
use super::statements::texts;
use super::{QueueStore, STORE, StoreError};

/// How often to look. Expired messages are never shown, so only their room is at stake.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Writes for one queue in one round, so that all queues get their turn.
const WRITES_PER_QUEUE_MAX: usize = 100;
/// When to look again at a queue that has nothing that expires, should another process have put something.
const LOOK_AGAIN_MS: i64 = 3600 * 1000;

/// How the messages of queues that are gone are found and removed.
static UPKEEP: Upkeep = Upkeep {
    store: &STORE,
    removals: &[Removal {
        any: |dialect| texts(dialect).any.clone(),
        remove: |dialect| texts(dialect).remove_some.clone(),
    }],
};

impl QueueStore {
    /// Starts the task that removes what nobody can see any more.
    pub fn keep_tidy(self: &Arc<Self>) -> PeriodicTask {
        let store = self.clone();
        PeriodicTask::start("removes expired messages", SWEEP_EVERY, self.deleted.clone(), move || {
            let store = store.clone();
            async move { store.sweep().await }
        })
    }

    /// Removes, in bounded steps, what has expired and what belongs to queues that are gone. A queue that cannot be
    /// reached now is left for the next round.
    pub async fn sweep(&self) {
        let queues: Vec<Arc<DatasetRecord>> =
            self.kit.router().view().datasets_of(STORE.id).cloned().collect();
        self.forget_all_but(&queues);
        for record in &queues {
            if self.is_due(record.id)
                && let Err(error) = self.remove_expired(record).await
            {
                report(&record.name, &error);
            }
        }
        UPKEEP.run(self.kit.router(), self.kit.driver(), self.now_ms()).await;
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
        let place = self.kit.place_of(record.clone(), name_in_account(&record.name))?;
        let now_ms = self.now_ms();
        // Noted before it is read: what is put meanwhile lowers it.
        self.expiries.lock().expect("no panic while held").insert(place.record.id, now_ms + LOOK_AGAIN_MS);
        let first_ms = self.first_expiry(&place).await;
        let first_ms = first_ms.inspect_err(|_| self.expires_at(place.record.id, now_ms))?;
        self.expires_at(place.record.id, first_ms);
        if first_ms > now_ms {
            return Ok(());
        }
        let remove = || {
            Query::new(Kind::Change, |texts| &texts.remove_expired, &place).bind(now_ms).bind(REMOVE_ROWS_MAX)
        };
        self.remove(&place, remove).await
    }

    async fn first_expiry(&self, place: &Placed) -> Result<i64, StoreError> {
        let first = Query::new(Kind::Read, |texts| &texts.first_expiry, place);
        let first = self.ask(place, first).await?.one().and_then(|row| row.opt_int(0)).map_err(broken)?;
        Ok(first.unwrap_or(i64::MAX))
    }

    /// Runs a removing statement until it finds no more, or until it is another queue's turn.
    async fn remove(&self, place: &Placed, next: impl Fn() -> Query) -> Result<(), StoreError> {
        for _ in 0..WRITES_PER_QUEUE_MAX {
            let removed = self.ask(place, next()).await?.affected();
            if removed < REMOVE_ROWS_MAX as u64 {
                break;
            }
        }
        Ok(())
    }
}

/// A shard that is away, or a range that may not be written now, is in other logs already; anything else is not.
fn report(queue: &str, error: &StoreError) {
    match error {
        StoreError::Kit(error) if error.is_passing() => {
            tracing::debug!(queue, %error, "expired messages stay until the next round");
        }
        _ => tracing::warn!(queue, %error, "expired messages not removed; retrying"),
    }
}

fn name_in_account(dataset: &str) -> &str {
    dataset.split_once('/').map_or(dataset, |(_, name)| name)
}
