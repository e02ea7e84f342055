//! A background task that repeats its work until it is stopped.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// A task that works in rounds until it is stopped.
pub struct PeriodicTask {
    what: &'static str,
    task: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl PeriodicTask {
    /// Starts it: a round at once, and then each time this much time has passed or `wake` is notified. Stopping the
    /// task ends a round where it stands.
    pub fn start<R>(
        what: &'static str,
        every: Duration,
        wake: Arc<Notify>,
        mut round: impl FnMut() -> R + Send + 'static,
    ) -> PeriodicTask
    where
        R: Future<Output = ()> + Send,
    {
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = stopped.changed() => return,
                    () = round() => {}
                }
                tokio::select! {
                    _ = stopped.changed() => return,
                    () = wake.notified() => {}
                    () = tokio::time::sleep(every) => {}
                }
            }
        });
        PeriodicTask { what, task, stop }
    }

    /// Stops it and waits until it has ended.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the task that {} failed", self.what);
        }
    }
}
