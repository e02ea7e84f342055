//! Answers the fences of one shard: holds, drains, acknowledges; and lets go again only after the shard agrees.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use polyshard_engine::Listener;
use polyshard_shard::{AckPhase, FenceRow, FenceState, OpId, Shard, ShardError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::follow::Follower;
use crate::rescue;
use crate::shards::Shards;
use crate::state::State;

/// How often fences are looked for without being told: the safety net under the notifications.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long short requests may take to end before the shard is told that others are held: far less than the time after
/// which a silent router is cut off.
const DRAIN_SOON: Duration = Duration::from_millis(20);
/// The pause before an unreachable shard is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The task of one shard.
pub(crate) struct FenceTask {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl FenceTask {
    pub(crate) fn start(
        state: Arc<State>,
        shard: Arc<Shard>,
        shards: Weak<Shards>,
        follower: Arc<Follower>,
        hold_max: Duration,
    ) -> FenceTask {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run(state, shard, shards, follower, hold_max, stopped));
        FenceTask { stop, task }
    }

    pub(crate) async fn stop(self) {
        // Nobody listening means that the task has ended.
        let _ = self.stop.send(true);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a fence task failed");
        }
    }
}

async fn run(
    state: Arc<State>,
    shard: Arc<Shard>,
    shards: Weak<Shards>,
    follower: Arc<Follower>,
    hold_max: Duration,
    mut stopped: watch::Receiver<bool>,
) {
    let known = state.shard(shard.id());
    let mut listener: Option<Listener> = None;
    let mut answering: JoinSet<(OpId, u64)> = JoinSet::new();
    let mut answered: HashSet<(OpId, u64)> = HashSet::new();
    let mut departed: HashMap<OpId, Instant> = HashMap::new();
    while !*stopped.borrow() {
        if listener.is_none() {
            listener = shard.listen().await.ok();
        }
        match look(&state, &shard, &follower).await {
            Ok(()) => {}
            Err(error) => tracing::debug!(shard = %shard.id(), %error, "fences cannot be looked at just now"),
        }
        let held = state.gate.held(shard.id());
        departed.retain(|op, _| held.iter().any(|fence| fence.op == *op));
        for fence in held {
            if fence.state == FenceState::Departed {
                let since = *departed.entry(fence.op).or_insert_with(Instant::now);
                if since.elapsed() > hold_max
                    && let Err(error) = rescue::finish(&shards, &shard, fence.op).await
                {
                    tracing::debug!(shard = %shard.id(), %error, "a switch cannot be finished just now");
                }
            } else if answered.insert((fence.op, fence.attempt)) {
                answering.spawn(answer(state.clone(), shard.clone(), fence, hold_max));
            }
        }
        tokio::select! {
            _ = hear(&mut listener) => {}
            _ = known.fences.notified() => {}
            Some(done) = answering.join_next() => {
                if let Ok(key) = done {
                    answered.remove(&key);
                }
            }
            _ = tokio::time::sleep(if departed.is_empty() { LOOK_EVERY } else { hold_max.min(LOOK_EVERY) }) => {}
            _ = stopped.changed() => {}
        }
    }
    answering.shutdown().await;
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

/// Hears what the shard says now.
async fn look(state: &Arc<State>, shard: &Shard, follower: &Follower) -> Result<(), ShardError> {
    match shard.teach(state.as_ref()).await {
        Err(ShardError::OldMap { upto, .. }) => match follower.read_for(shard.id(), upto).await {
            Ok(()) => shard.teach(state.as_ref()).await,
            Err(error) => {
                tracing::debug!(shard = %shard.id(), %error, "a fence of a composite map waits for the catalog");
                Ok(())
            }
        },
        other => other,
    }
}

/// Answers one raising of one fence to its end.
async fn answer(state: Arc<State>, shard: Arc<Shard>, fence: FenceRow, hold_max: Duration) -> (OpId, u64) {
    let key = (fence.op, fence.attempt);
    let id = shard.id().clone();
    let ack = |phase| shard.acknowledge(fence.op, fence.attempt, state.router, phase);
    let drain = async {
        // One that is drained in a moment says so and nothing before: each word is a transaction on the shard.
        if tokio::time::timeout(DRAIN_SOON, state.gate.drained(&id, &fence)).await.is_err() {
            if !ack(AckPhase::Held).await? {
                return Ok(false);
            }
            state.gate.drained(&id, &fence).await;
        }
        ack(AckPhase::Drained).await
    };
    match tokio::time::timeout(hold_max, drain).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return key,
        Ok(Err(error)) => tracing::debug!(shard = %id, %error, "a fence could not be acknowledged"),
        Err(_) => tracing::debug!(shard = %id, op = %fence.op, "the range of a fence does not drain in time"),
    }
    let still_held = || state.gate.held(&id).iter().any(|held| (held.op, held.attempt) == key);
    if tokio::time::timeout(hold_max, gone(&state, &fence, &id)).await.is_ok() {
        return key;
    }
    // The coordinator is late. Requests go on only when the shard has agreed that they may.
    while still_held() {
        match shard.withdraw(fence.op, fence.attempt, state.router).await {
            Ok(true) => {
                // This raising only: the fence may have been raised, held and acknowledged again meanwhile.
                state.gate.release_raising(&id, &fence);
                return key;
            }
            // Departed: the new owner is known, and requests go there once the fence is taken down.
            Ok(false) => return key,
            Err(error) => {
                tracing::debug!(shard = %id, %error, "a fence cannot be withdrawn just now");
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
    key
}

/// Waits until a fence is no longer held.
async fn gone(state: &State, fence: &FenceRow, shard: &polyshard_map::ShardId) {
    state.gate.passable(&fence.map, &fence.ranges, shard, crate::gate::Access::Write).await;
}
