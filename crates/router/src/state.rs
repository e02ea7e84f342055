//! What a router knows, shared by requests, sessions and background tasks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use polyshard_engine::Generation;
use polyshard_map::ShardId;
use polyshard_shard::{FenceEpoch, FenceState, HelloReply, HelloState, RouterId, ShardError};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::gate::Gate;
use crate::view::View;

/// A router's knowledge. No I/O: the simulation runs the very same.
pub struct State {
    /// Who it is.
    pub router: RouterId,
    /// Who is in which range, and what is held.
    pub gate: Gate,
    view: ArcSwap<View>,
    /// Serialises changes of the view.
    changing: Mutex<()>,
    shards: Mutex<BTreeMap<ShardId, Arc<ShardState>>>,
    /// Whether the view was read from the catalog by this process, rather than from a saved file.
    pub fresh: AtomicBool,
}

/// What a router knows of one shard.
pub struct ShardState {
    known: Mutex<FenceEpoch>,
    /// Grows when a departure is learnt that tickets out now may not know of: they are void then.
    pub generation: Generation,
    /// Told when there is a fence to answer.
    pub(crate) fences: Notify,
}

impl State {
    /// A router that believes this, and has heard of no shard yet.
    pub fn new(router: RouterId, view: View) -> State {
        State {
            router,
            gate: Gate::default(),
            view: ArcSwap::from_pointee(view),
            changing: Mutex::new(()),
            shards: Mutex::default(),
            fresh: AtomicBool::new(false),
        }
    }

    /// What it believes now.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Makes a new view of the current one.
    pub fn change<E>(&self, change: impl FnOnce(&mut View) -> Result<(), E>) -> Result<(), E> {
        let _changing = self.changing.lock().expect("no panic while held");
        let mut next = View::clone(&self.view.load());
        change(&mut next)?;
        self.view.store(Arc::new(next));
        Ok(())
    }

    /// Takes a view that was read whole. What shards told of departures is asked of them again, since the new
    /// view may be without them.
    pub fn replace(&self, next: View) {
        let _changing = self.changing.lock().expect("no panic while held");
        let shards = self.shards.lock().expect("no panic while held");
        for shard in shards.values() {
            *shard.known.lock().expect("no panic while held") = FenceEpoch::ZERO;
            shard.fences.notify_one();
        }
        self.view.store(Arc::new(next));
    }

    /// What it knows of a shard.
    pub fn shard(&self, id: &ShardId) -> Arc<ShardState> {
        let mut shards = self.shards.lock().expect("no panic while held");
        let fresh = || ShardState {
            known: Mutex::new(FenceEpoch::ZERO),
            generation: Generation::default(),
            fences: Notify::new(),
        };
        shards.entry(id.clone()).or_insert_with(|| Arc::new(fresh())).clone()
    }
}

impl HelloState for State {
    fn router(&self) -> RouterId {
        self.router
    }

    fn known(&self, shard: &ShardId) -> FenceEpoch {
        *self.shard(shard).known.lock().expect("no panic while held")
    }

    fn incarnation(&self, shard: &ShardId) -> Option<Uuid> {
        self.view().shards.get(shard).map(|record| record.incarnation)
    }

    /// Installs what a shard says: departures in the view, standing fences in the gate. In this order: those who
    /// wait for a fence that is gone must find the new map.
    fn learn(&self, shard: &ShardId, reply: HelloReply) -> Result<(), ShardError> {
        let state = self.shard(shard);
        let mut known = state.known.lock().expect("no panic while held");
        if self.view().epoch < reply.pruned_epoch && !self.fresh.load(Ordering::SeqCst) {
            return Err(ShardError::IncarnationChanged { shard: shard.clone() });
        }
        let new: Vec<_> = reply.departures.iter().filter(|departure| departure.number > *known).collect();
        if !new.is_empty() {
            let applied = self.change(|view| new.iter().try_for_each(|departure| view.depart(departure)));
            applied.map_err(|error| ShardError::Damaged { what: "departure", detail: error.to_string() })?;
            if new.iter().any(|departure| !self.gate.has_drained(shard, departure.op)) {
                state.generation.advance();
            }
        }
        // What another session has read since is newer: fences may have come and gone.
        if reply.fence_epoch < *known {
            return Ok(());
        }
        *known = reply.fence_epoch;
        for fence in &reply.fences {
            match fence.state {
                FenceState::Holding | FenceState::Departed => drop(self.gate.hold(shard, fence)),
                FenceState::Broken => self.gate.release(shard, fence.op),
            }
        }
        for held in self.gate.held(shard) {
            if !reply.fences.iter().any(|fence| fence.op == held.op) {
                self.gate.release(shard, held.op);
            }
        }
        state.fences.notify_one();
        Ok(())
    }
}
