//! Notifications of one channel, and the news that some may have been missed.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::Error;

/// Notifications that may wait for a slow listener; it then gets [`Event::Reconnected`] instead of them.
pub(crate) const LISTENER_EVENTS_MAX: usize = 1024;

/// What a listener hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A notification's payload.
    Notice(String),
    /// The connection was lost and is back, or the listener was too slow: read everything again, since
    /// notifications may have been missed.
    Reconnected,
}

/// A subscription to one channel; dropping it ends it.
pub struct Listener {
    events: broadcast::Receiver<Event>,
}

impl Listener {
    pub(crate) fn new(events: broadcast::Receiver<Event>) -> Listener {
        Listener { events }
    }

    /// Waits for the next event; [`Error::Closed`] once the database handle is closed.
    pub async fn next(&mut self) -> Result<Event, Error> {
        match self.events.recv().await {
            Ok(event) => Ok(event),
            Err(RecvError::Lagged(_)) => Ok(Event::Reconnected),
            Err(RecvError::Closed) => Err(Error::Closed),
        }
    }
}
