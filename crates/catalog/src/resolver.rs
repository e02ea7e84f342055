//! Finishes or rolls back, by itself, every operation whose driver is gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::CatalogError;
use crate::driver::Driver;

/// How often unfinished operations are looked for. Shorter than the lease, so that the lease decides.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The background task; stops when told.
pub struct Resolver {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Resolver {
    /// Starts looking.
    pub fn start(driver: Arc<Driver>) -> Resolver {
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                match resolve_once(&driver).await {
                    Ok(0) => {}
                    Ok(count) => tracing::debug!(count, "took over operations whose driver was gone"),
                    Err(error) => {
                        tracing::debug!(%error, "unfinished operations cannot be resolved just now")
                    }
                }
                tokio::select! {
                    _ = tokio::time::sleep(LOOK_EVERY) => {}
                    _ = stopped.changed() => return,
                }
            }
        });
        Resolver { stop, task }
    }

    /// Stops looking, and waits until it has stopped.
    pub async fn stop(self) {
        // Nobody listening means that the task has ended.
        let _ = self.stop.send(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the resolver failed");
        }
    }
}

/// Takes over what nobody drives. Each operation then goes on in a task of its own, so that one whose shard
/// is away does not keep the others waiting. Answers how many were taken over.
async fn resolve_once(driver: &Driver) -> Result<usize, CatalogError> {
    let mut taken = 0;
    for record in driver.catalog().running().await? {
        taken += usize::from(driver.take_over(record.op.id).await?);
    }
    Ok(taken)
}
