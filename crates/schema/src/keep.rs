//! What a process does for the journal in the background: shards that are behind are brought up, declarations are
//! finished, and blocks of ids are there before they are needed.

use std::sync::Arc;
use std::time::Duration;

use polyshard_store::PeriodicTask;
use tokio::sync::Notify;

use crate::JournalError;
use crate::journal::Journal;

/// How often shards are looked after; whoever uses one that is behind does not wait for it.
const SHARDS_EVERY: Duration = Duration::from_secs(1);
/// Entries about rows alone that are kept although every shard has them: to look at, and for shards that are attached
/// again after a short while.
const ROWS_KEPT: u64 = 10_000;
/// How often it is looked whether there is a new schema to say that this process goes by it. Nothing is asked of
/// anybody unless there is.
const SEEN_EVERY: Duration = Duration::from_millis(50);
/// How often what everybody has of writes on several shards is forgotten.
const WRITES_EVERY: Duration = Duration::from_secs(30);
/// How often blocks of ids are looked after: a burst of inserts waits for it at most so long, and once.
const IDS_EVERY: Duration = Duration::from_millis(250);
/// How long one shard may take for that: less than an insert waits for its id.
const IDS_WAIT: Duration = Duration::from_secs(2);

/// The tasks; stop them before the router is closed.
pub struct Keeper {
    shards: PeriodicTask,
    seen: PeriodicTask,
    ids: PeriodicTask,
    writes: PeriodicTask,
}

impl Journal {
    /// Starts the tasks.
    pub fn keep_up(&self) -> Keeper {
        let journal = self.clone();
        let (silent, watched) = (Silent::default(), Arc::new(tokio::sync::Mutex::default()));
        let shards = PeriodicTask::start(
            "keeps shards up to date",
            SHARDS_EVERY,
            Arc::new(Notify::new()),
            move || {
                let journal = journal.clone();
                let (said, watched) = (silent.clone(), watched.clone());
                async move {
                    journal.look_after_shards(&said).await;
                    let freed = journal.free_tables(&mut *watched.lock().await).await;
                    if let Err(error) = freed {
                        said.say(
                            &error,
                            format!("a table that was left changing could not be freed: {error}"),
                        );
                    }
                }
            },
        );
        let journal = self.clone();
        let seen = PeriodicTask::start(
            "says what it has seen",
            SEEN_EVERY,
            Arc::new(Notify::new()),
            move || {
                let journal = journal.clone();
                async move {
                    if let Err(error) = journal.inner.say_seen().await {
                        tracing::debug!(%error, "what this process has seen could not be said; tried again soon");
                    }
                }
            },
        );
        let journal = self.clone();
        let ids = PeriodicTask::start("leases ids", IDS_EVERY, Arc::new(Notify::new()), move || {
            let journal = journal.clone();
            async move { journal.look_after_ids().await }
        });
        let journal = self.clone();
        let writes =
            PeriodicTask::start("forgets writes", WRITES_EVERY, Arc::new(Notify::new()), move || {
                let journal = journal.clone();
                async move {
                    if let Err(error) = journal.forget_writes().await {
                        tracing::debug!(%error, "writes that are complete are forgotten later");
                    }
                }
            });
        Keeper { shards, seen, ids, writes }
    }

    async fn look_after_shards(&self, said: &Silent) {
        // Nothing was ever decided: nobody needs the shards for it.
        if self.position() == 0 {
            return;
        }
        for shard in self.inner.serving() {
            if let Err(error) = self.ready(&shard).await {
                said.say(&error, format!("shard {shard} is behind: {error}"));
            }
        }
        if let Err(error) = self.finish().await {
            said.say(&error, format!("a declaration is not on all shards yet: {error}"));
        }
        if let Err(error) = self.look_after_writes().await {
            said.say(&error, format!("writes on several shards could not be completed: {error}"));
        }
        if let Err(error) = self.compact(ROWS_KEPT).await {
            said.say(&error, format!("old entries of the journal could not be forgotten: {error}"));
        }
    }

    /// Forgets entries about rows alone that every shard has, but for the last ones. A shard that is offline or cannot
    /// be asked keeps them all.
    pub async fn compact(&self, keep: u64) -> Result<(), JournalError> {
        let Some(upto) = self.position().checked_sub(keep) else { return Ok(()) };
        // Now and then, not for each.
        if self.inner.catalog.rows_kept(upto).await? <= keep / 4 {
            return Ok(());
        }
        let mut least = upto;
        for id in self.inner.router.view().shards.keys() {
            let applied = self.inner.applied_on(&self.inner.shard(id).await?).await?;
            least = least.min(applied.unwrap_or(0));
        }
        Ok(self.inner.catalog.forget_rows(least).await?)
    }

    /// Asks all shards at once: one that does not answer is not to keep ids from the others, whose inserts wait.
    async fn look_after_ids(&self) {
        let refills = self.inner.serving().into_iter().map(|shard| async move {
            match tokio::time::timeout(IDS_WAIT, self.inner.refill(&shard)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::debug!(%shard, %error, "ids could not be leased; tried again soon")
                }
                Err(_) => tracing::debug!(%shard, "ids could not be leased in time; tried again soon"),
            }
        });
        futures_util::future::join_all(refills).await;
    }
}

impl Keeper {
    /// Stops the tasks and waits until they have ended.
    pub async fn stop(self) {
        self.shards.stop().await;
        self.seen.stop().await;
        self.ids.stop().await;
        self.writes.stop().await;
    }
}

/// Says each thing once, until something else is to be said.
#[derive(Clone, Default)]
struct Silent {
    last: Arc<std::sync::Mutex<String>>,
}

impl Silent {
    fn say(&self, error: &JournalError, what: String) {
        // What passes by itself is reported by whoever needs the shard or the catalog.
        if !matches!(
            error,
            JournalError::Stuck { .. } | JournalError::Damaged { .. } | JournalError::Refused(_)
        ) {
            tracing::debug!("{what}");
            return;
        }
        let mut last = self.last.lock().expect("no panic while held");
        if *last != what {
            tracing::warn!("{what}");
            *last = what;
        }
    }
}
