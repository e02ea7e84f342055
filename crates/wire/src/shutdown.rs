//! The word that a process is stopping, passed from its owner to everything that must finish first.

use tokio::sync::watch;

/// Held by the owner of the process; starting it, or dropping it, tells every [`Shutdown`] made with it.
#[derive(Debug)]
pub struct ShutdownTrigger {
    sender: watch::Sender<bool>,
}

impl ShutdownTrigger {
    /// Starts the shutdown. Starting it again changes nothing.
    pub fn start(&self) {
        self.sender.send_replace(true);
    }
}

/// Tells its holder when to stop: finish the request in hand, take no new one, return.
#[derive(Clone, Debug)]
pub struct Shutdown {
    receiver: watch::Receiver<bool>,
}

impl Shutdown {
    /// A trigger, and the first of any number of clones that listen to it.
    pub fn new() -> (ShutdownTrigger, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (ShutdownTrigger { sender }, Shutdown { receiver })
    }

    /// Whether the shutdown has started. An owner that is gone can no longer say so, and counts as having said it.
    pub fn is_started(&self) -> bool {
        *self.receiver.borrow() || self.receiver.has_changed().is_err()
    }

    /// Waits until the shutdown starts; returns at once if it has. May be dropped and called again (as in `select!`).
    pub async fn started(&self) {
        // Waiting fails only when the trigger is gone, which means the same.
        let mut receiver = self.receiver.clone();
        let _gone = receiver.wait_for(|started| *started).await;
    }
}

#[cfg(test)]
mod tests {
    use super::Shutdown;

    #[tokio::test]
    async fn every_clone_hears_of_it_early_or_late() {
        let (trigger, shutdown) = Shutdown::new();
        let early = shutdown.clone();
        let waiting = tokio::spawn(async move { early.started().await });
        assert!(!shutdown.is_started());
        trigger.start();
        trigger.start();
        waiting.await.unwrap();
        shutdown.started().await;
        assert!(shutdown.clone().is_started());
    }

    #[tokio::test]
    async fn an_owner_that_is_gone_has_stopped() {
        let (trigger, shutdown) = Shutdown::new();
        drop(trigger);
        assert!(shutdown.is_started());
        shutdown.started().await;
    }
}
