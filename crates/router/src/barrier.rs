//! A moment without writes: new ones wait, those under way end. What is read then, of all shards, is of one moment.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use polyshard_catalog::{BARRIER_HOLD, Catalog, RaisedBarrier};
use polyshard_engine::{Listener, Target};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Router;
use crate::state::State;

/// How often a held barrier is looked at, should the word that it was lowered be lost.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Keeps writes of this process out until it is dropped.
pub struct Barrier {
    state: Arc<State>,
}

impl Barrier {
    async fn raise(state: &Arc<State>, wait: Duration) -> Option<Barrier> {
        let barrier = Barrier { state: state.clone() };
        barrier.state.gate.close_to_writes();
        // Dropped in any other case, which opens the gate again.
        tokio::time::timeout(wait, barrier.state.gate.without_writes()).await.ok()?;
        Some(barrier)
    }
}

impl Router {
    /// Lets the writes under way end and no new ones begin. None if they do not end in time: then they go on, and so
    /// do those that waited.
    pub async fn barrier(&self, wait: Duration) -> Option<Barrier> {
        Barrier::raise(self.state(), wait).await
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        self.state.gate.open_to_writes();
    }
}

/// Holds this process's writes whenever another asks for it. An embedded catalog belongs to one process, which has
/// nobody to ask. From this call on writes wait for the first look, if the catalog can be asked: a process that starts
/// while a barrier is up must not write.
pub(crate) fn follow(
    catalog: Arc<Catalog>,
    state: Arc<State>,
    poll: Duration,
    stopped: watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send {
    let alone = matches!(catalog.target(), Target::Sqlite(_));
    let first = (!alone && state.fresh.load(Ordering::SeqCst)).then(|| {
        state.gate.close_to_writes();
        Barrier { state: state.clone() }
    });
    async move {
        if !alone {
            follow_until(catalog, state, poll, stopped, first).await;
        }
    }
}

async fn follow_until(
    catalog: Arc<Catalog>,
    state: Arc<State>,
    poll: Duration,
    mut stopped: watch::Receiver<bool>,
    mut first: Option<Barrier>,
) {
    let mut listener: Option<Listener> = None;
    while !*stopped.borrow() {
        if listener.is_none() {
            listener = catalog.listen_for_barriers().await.ok();
        }
        let looked = catalog.barrier().await;
        // After the answer: it is held from when it was read of, or longer.
        let began = Instant::now();
        match looked {
            Ok(Some(raised)) if raised.router != state.router => {
                hold(&catalog, &state, raised, began, &mut listener).await;
                drop(first.take());
                continue;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "barriers cannot be looked for just now"),
        }
        drop(first.take());
        tokio::select! {
            () = hear(&mut listener) => {}
            () = tokio::time::sleep(poll) => {}
            _ = stopped.changed() => {}
        }
    }
}

/// Holds the writes, says so, and goes on when the barrier is down or has lasted long enough.
async fn hold(
    catalog: &Catalog,
    state: &Arc<State>,
    raised: RaisedBarrier,
    began: Instant,
    listener: &mut Option<Listener>,
) {
    let until = began + BARRIER_HOLD;
    // Nobody waits for the end of writes for the sake of a barrier that is down.
    let held = tokio::select! {
        held = Barrier::raise(state, BARRIER_HOLD) => held,
        () = lowered(catalog, raised.id) => return,
    };
    if held.is_some()
        && let Err(error) = catalog.acknowledge_barrier(raised.id, state.router).await
    {
        tracing::debug!(%error, "a barrier cannot be acknowledged just now");
    }
    while Instant::now() < until {
        let is_up = |found: &RaisedBarrier| found.id == raised.id;
        match catalog.barrier().await {
            Ok(found) if !found.as_ref().is_some_and(is_up) => return,
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "a barrier cannot be looked at just now"),
        }
        tokio::select! {
            () = hear(listener) => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

/// Ends when a barrier is seen to be down.
async fn lowered(catalog: &Catalog, id: uuid::Uuid) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Ok(found) = catalog.barrier().await
            && found.is_none_or(|found| found.id != id)
        {
            return;
        }
    }
}

/// Waits for a notification; for ever if there is no listener, since the timer looks too.
async fn hear(listener: &mut Option<Listener>) {
    match listener {
        None => std::future::pending().await,
        Some(open) => {
            if open.next().await.is_err() {
                *listener = None;
            }
        }
    }
}
