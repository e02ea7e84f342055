//! Backups that nobody has to ask for: taken when their class is due, by whichever process is first, and pruned.

use std::sync::Arc;
use std::time::Duration;

use polyshard_azure_http::Timestamp;
use polyshard_backup::{BackupError, Clock, Depot, Dry, Pruned, Retention, What};
use polyshard_map::ShardId;
use polyshard_router::Rounds;
use tokio::sync::Notify;

use super::Taking;
use crate::config::ScheduleConfig;
use crate::operator::now_ms;

/// How often it is looked whether one is due; sooner if a schedule is shorter.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// The task that takes them.
pub(crate) struct Scheduling(Option<Rounds>);

impl Scheduling {
    /// Starts it, if there is a schedule.
    pub(crate) fn start(taking: &Arc<Taking>) -> Scheduling {
        let Some(shortest) = taking.config.schedules.iter().map(|schedule| schedule.every).min() else {
            return Scheduling(None);
        };
        let taking = taking.clone();
        let every = LOOK_EVERY.min(shortest / 2).max(Duration::from_millis(500));
        Scheduling(Some(Rounds::start(
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
        for schedule in &self.config.schedules {
            match self.catalog.is_run_due(&schedule.class, schedule.every).await {
                Ok(true) => self.take_scheduled(schedule).await,
                Ok(false) => self.prune_class(schedule).await,
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

    /// Removes what a class has more than it keeps, once after each of its backups. Whoever looks first does it; two
    /// do each other no harm.
    async fn prune_class(&self, schedule: &ScheduleConfig) {
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
        polyshard_backup::prune(&Depot::open(to, &self.variables)?, &retention, &clock, Dry::No).await
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
