//! Backups that nobody has to ask for: taken when their class is due, by whichever process is first, and pruned.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use polyshard_azure_storage::Timestamp;
use polyshard_backup::{BackupError, Clock, Depot, Pruned, Retention, What};
use polyshard_catalog::RunState;
use polyshard_map::ShardId;
use polyshard_store::PeriodicTask;
use tokio::sync::{Notify, oneshot};

use super::Taking;
use crate::config::ScheduleConfig;
use crate::operator::now_ms;

/// How often it is looked whether one is due; sooner if a schedule is shorter.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// The task that takes them.
pub(crate) struct Scheduling(Option<PeriodicTask>);

impl Scheduling {
    /// Starts it, if there is a schedule.
    pub(crate) fn start(taking: &Arc<Taking>) -> Scheduling {
        let Some(shortest) = taking.config.schedules.iter().map(|schedule| schedule.every).min() else {
            return Scheduling(None);
        };
        let taking = taking.clone();
        let every = LOOK_EVERY.min(shortest / 2).max(Duration::from_millis(500));
        Scheduling(Some(PeriodicTask::start(
            "takes scheduled backups",
            every,
            Arc::new(Notify::new()),
            move || {
                let taking = taking.clone();
                async move { taking.take_due().await }
            },
        )))
    }

    pub(crate) async fn stop(self) {
        if let Some(rounds) = self.0 {
            rounds.stop().await;
        }
    }
}

impl Taking {
    async fn take_due(self: &Arc<Taking>) {
        // One runs at a time: the rarest first, which those that are due all the time would keep out otherwise.
        let mut schedules: Vec<&ScheduleConfig> = self.config.schedules.iter().collect();
        schedules.sort_by_key(|schedule| std::cmp::Reverse(schedule.every));
        for schedule in schedules {
            match self.catalog.is_run_due(&schedule.class, schedule.every).await {
                Ok(true) => self.take_scheduled(schedule).await,
                Ok(false) => self.remove_old(schedule).await,
                Err(error) => tracing::debug!(%error, "schedules of backups cannot be looked at just now"),
            }
        }
    }

    async fn take_scheduled(self: &Arc<Taking>, schedule: &ScheduleConfig) {
        let what = match self.shards_of(schedule) {
            None => What::Everything,
            Some(shards) if shards.is_empty() => {
                tracing::warn!(
                    class = schedule.class,
                    "no shard belongs to the class, and there is no backup of it"
                );
                return;
            }
            Some(shards) => What::Shards(shards),
        };
        let to = match self.location(None, &schedule.class) {
            Ok(to) => to,
            Err(problem) => {
                tracing::warn!(class = schedule.class, %problem, "a scheduled backup has no place");
                return;
            }
        };
        // It would fail, and be told of as a failure; the next look comes soon.
        if let Ok(true) = polyshard_backup::is_pruned(&to.depot).await {
            tracing::debug!(class = schedule.class, "a scheduled backup waits until old ones are removed");
            return;
        }
        let job = self.take_job(to, what, Some(&schedule.class));
        match self.start(&schedule.class, Some(schedule.every), job).await {
            Ok(Some(run)) => {
                tracing::info!(class = schedule.class, run = run.id, "a scheduled backup was begun")
            }
            // Another process was first, or another class's is under way: the next look comes soon.
            Ok(None) => {}
            Err(problem) => {
                tracing::debug!(class = schedule.class, %problem, "a scheduled backup waits");
            }
        }
    }

    /// The shards a schedule is for; none if it is for everything.
    fn shards_of(&self, schedule: &ScheduleConfig) -> Option<Vec<ShardId>> {
        let view = self.router.view();
        match (&schedule.tier, &schedule.map) {
            (Some(tier), _) => {
                let of_tier = view.shards.values().filter(|record| record.tier.as_ref() == Some(tier));
                Some(of_tier.map(|record| record.id.clone()).collect())
            }
            (None, Some(map)) => {
                let mut shards: Vec<ShardId> =
                    view.maps.get(map).into_iter().flat_map(|known| known.map.shards().cloned()).collect();
                shards.sort();
                shards.dedup();
                Some(shards)
            }
            (None, None) => None,
        }
    }

    /// Removes old ones of a class, and waits for it: what comes next would find the place busy. It is a task of its
    /// own, so that it ends in order when the server stops and this round is given up.
    async fn remove_old(self: &Arc<Taking>, schedule: &ScheduleConfig) {
        let (ending, ended) = oneshot::channel::<Infallible>();
        let (taking, schedule) = (self.clone(), schedule.clone());
        let task = tokio::spawn(async move {
            taking.prune_class(&schedule).await;
            drop(ending);
        });
        *self.removal.lock().expect("no panic while held") = Some(task);
        // Nothing is ever sent: that it is dropped is what is waited for.
        let Err(_) = ended.await;
        let task = self.removal.lock().expect("no panic while held").take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            tracing::error!(%error, "a removal of old backups failed");
        }
    }

    /// Removes what a class has more than it keeps, once after each of its backups. Whoever looks first does it; two
    /// do each other no harm.
    async fn prune_class(&self, schedule: &ScheduleConfig) {
        // What is being taken may need any chunk, and would be refused if it has only begun.
        match self.catalog.runs(1).await {
            Ok(runs) if runs.first().is_none_or(|run| run.state != RunState::Running) => {}
            _ => return,
        }
        let Ok(last) = self.catalog.last_runs().await else { return };
        let Some((_, last)) = last.into_iter().find(|(class, _)| *class == schedule.class) else { return };
        {
            let mut pruned = self.pruned.lock().expect("no panic while held");
            if pruned.insert(schedule.class.clone(), last) == Some(last) {
                return;
            }
        }
        let Some(to) = &self.config.to else { return };
        match self.prune_at(to, schedule).await {
            Ok(pruned) if pruned.backups.is_empty() && pruned.unfinished.is_empty() => {}
            Ok(pruned) => tracing::info!(
                class = schedule.class,
                backups = pruned.backups.len(),
                unfinished = pruned.unfinished.len(),
                bytes = pruned.bytes,
                "old backups were removed"
            ),
            Err(_) if self.stopping.load(Ordering::Relaxed) => {}
            Err(error) => {
                // It is tried again at the next look.
                self.pruned.lock().expect("no panic while held").remove(&schedule.class);
                tracing::warn!(class = schedule.class, %error, "old backups were not removed");
            }
        }
    }

    /// Removes this cluster's old backups of a class; others may keep theirs in the same place.
    async fn prune_at(&self, to: &str, schedule: &ScheduleConfig) -> Result<Pruned, BackupError> {
        let retention = Retention {
            class: Some(Some(schedule.class.clone())),
            keep: Some(schedule.keep),
            cluster: Some(self.catalog.cluster().await?),
        };
        let clock: Clock = Arc::new(now_ms);
        let depot = Depot::open(to, &self.variables)?;
        polyshard_backup::prune_until(&depot, &retention, &clock, &self.stopping).await
    }
}

/// A time as it stands in names: `20261115T160000Z`.
pub(super) fn time_text(ms: i64) -> String {
    let iso = Timestamp::from_unix_ms(ms).map_or_else(|| format!("{ms}."), Timestamp::iso);
    let whole = iso.split('.').next().unwrap_or_default();
    format!("{}Z", whole.replace(['-', ':'], ""))
}

#[cfg(test)]
mod tests {
    use super::time_text;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time_text(0), "19700101T000000Z");
        assert_eq!(time_text(951_782_400_000), "20000229T000000Z");
        assert_eq!(time_text(1_794_744_005_999), "20261115T120005Z");
        assert_eq!(time_text(4_107_542_399_000), "21000228T235959Z");
    }
}
