//! Runs the checker by itself, in one process of the cluster at a time; off unless the configuration says otherwise.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polyshard_admin::types::LastCheckAnswer;
use polyshard_map::ShardId;
use polyshard_wire::Shutdown;

use crate::operator::Operations;

/// How often it is looked whether another process has something to tell; a shorter time between two runs counts.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// What was found last, for those who show it.
#[derive(Debug, Default)]
pub(crate) struct Found(Mutex<LastCheckAnswer>);

impl Found {
    pub(crate) fn get(&self) -> LastCheckAnswer {
        self.0.lock().expect("no panic while held").clone()
    }

    fn put(&self, found: LastCheckAnswer) {
        *self.0.lock().expect("no panic while held") = found;
    }

    /// What an operator should know of a shard.
    pub(crate) fn warning(&self, shard: &ShardId) -> Option<String> {
        let found = self.0.lock().expect("no panic while held");
        let rows = *found.misplaced.get(shard)?;
        (rows > 0).then(|| format!("has {rows} rows that it does not own; see 'polyshard check'"))
    }
}

/// Checks again and again, until the shutdown.
pub(crate) async fn run(operations: Arc<Operations>, every: Duration, shutdown: Shutdown) {
    if every.is_zero() {
        return;
    }
    let mut said = LastCheckAnswer::default();
    loop {
        let round = tokio::select! {
            () = shutdown.started() => return,
            round = once(&operations, every) => round,
        };
        match round {
            Ok(found) => {
                let is_news = LastCheckAnswer { at_ms: None, ..found.clone() } != said;
                if is_news && !is_clean(&found) {
                    let misplaced: u64 = found.misplaced.values().sum();
                    let (differences, broken) = (found.differences, found.broken);
                    tracing::warn!(
                        misplaced,
                        differences,
                        broken,
                        "the checker found something: 'polyshard check'"
                    );
                }
                said = LastCheckAnswer { at_ms: None, ..found.clone() };
                operations.found().put(found);
            }
            Err(problem) => tracing::warn!(why = problem.message, "the checker cannot run now"),
        }
        tokio::select! {
            () = shutdown.started() => return,
            () = tokio::time::sleep(LOOK_EVERY.min(every)) => {}
        }
    }
}

/// Runs if it is time and nobody else does; answers what was found last.
async fn once(operations: &Operations, every: Duration) -> Result<LastCheckAnswer, polyshard_admin::Problem> {
    let fail = |error: polyshard_catalog::CatalogError| crate::problem::of_catalog(&error);
    if operations.catalog().claim_check(every).await.map_err(fail)? {
        let found = operations.check_all().await?;
        let body = serde_json::to_value(&found).expect("plain values");
        operations.catalog().put_check(&body).await.map_err(fail)?;
    }
    operations.last_found().await
}

fn is_clean(found: &LastCheckAnswer) -> bool {
    found.misplaced.values().all(|rows| *rows == 0) && found.differences == 0 && found.broken == 0
}
