//! What a router knows, shared by requests, sessions and background tasks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use polyshard_engine::Generation;
use polyshard_map::{BuildError, MapName, ShardId};
use polyshard_shard::{
    FenceEpoch, FenceRow, FenceState, HelloReply, HelloState, Learnt, RouterId, ShardError,
};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::gate::Gate;
use crate::meter::{RouterMeter, ShardMeter};
use crate::view::View;

/// A router's knowledge. No I/O: the simulation runs the very same.
pub struct State {
    /// Who it is.
    pub router: RouterId,
    /// Who is in which range, and what is held.
    pub gate: Gate,
    /// What is counted of all requests.
    pub meter: RouterMeter,
    view: ArcSwap<View>,
    /// How often the view was replaced.
    view_number: AtomicU64,
    /// Serialises changes of the view.
    changing: Mutex<()>,
    shards: Mutex<BTreeMap<ShardId, Arc<ShardState>>>,
    /// Whether the view was read from the catalog by this process, rather than from a saved file.
    pub fresh: AtomicBool,
}

/// What a router knows of one shard.
pub struct ShardState {
    known: Mutex<FenceEpoch>,
    /// Whether what the shard has to say is in the view; no ticket is given before.
    learnt: AtomicBool,
    /// Up to which number of the shard's the catalog has been read since, for composite maps.
    read_for: Mutex<FenceEpoch>,
    /// The last time that the shard has cut this router off, as far as it has heard.
    cut: Mutex<FenceEpoch>,
    /// Grows when a departure is learnt that tickets out now may not know of: they are void then.
    pub generation: Generation,
    /// What is counted of requests to it.
    pub meter: ShardMeter,
    /// Told when there is a fence to answer.
    pub(crate) fences: Notify,
}

impl State {
    /// A router that believes this, and has heard of no shard yet.
    pub fn new(router: RouterId, view: View) -> State {
        State {
            router,
            gate: Gate::default(),
            meter: RouterMeter::default(),
            // Zero is the number of no view.
            view_number: AtomicU64::new(1),
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

    /// Whether it is still this. Cheaper than to hold it.
    pub(crate) fn is_view(&self, view: &Arc<View>) -> bool {
        Arc::ptr_eq(&self.view.load(), view)
    }

    /// How often what it believes was replaced. What was derived from a view is right as long as the number that was
    /// read before that view is still this one.
    pub(crate) fn view_number(&self) -> u64 {
        self.view_number.load(Ordering::Acquire)
    }

    /// Makes a new view of the current one.
    pub fn change<E>(&self, change: impl FnOnce(&mut View) -> Result<(), E>) -> Result<(), E> {
        let _changing = self.changing.lock().expect("no panic while held");
        self.store(change, |_| false)
    }

    /// Takes a view that was read whole; what shards have told and it does not know stays in force.
    pub fn replace(&self, mut next: View) -> Result<(), BuildError> {
        let _changing = self.changing.lock().expect("no panic while held");
        let old = self.view.load_full();
        next.keep_departures(&old)?;
        // A catalog that has gone back may be without what the shards told long ago: they are asked anew.
        let gone_back = next.seq < old.seq;
        let change = |view: &mut View| {
            *view = next;
            Ok(())
        };
        self.store(change, |_| gone_back)
    }

    /// Stores a new view; the caller holds `changing`. A shard of a new incarnation is asked anew in any case.
    fn store<E>(
        &self,
        change: impl FnOnce(&mut View) -> Result<(), E>,
        forget: impl Fn(&ShardId) -> bool,
    ) -> Result<(), E> {
        let old = self.view.load_full();
        let mut next = View::clone(&old);
        change(&mut next)?;
        let incarnation = |view: &View, id: &ShardId| view.shards.get(id).map(|record| record.incarnation);
        // First forgotten, then stored: whoever finds the new view finds that there is something to ask.
        for (id, shard) in self.shards.lock().expect("no panic while held").iter() {
            if forget(id) || incarnation(&old, id) != incarnation(&next, id) {
                *shard.known.lock().expect("no panic while held") = FenceEpoch::ZERO;
                shard.learnt.store(false, Ordering::SeqCst);
                shard.fences.notify_one();
            }
        }
        self.view.store(Arc::new(next));
        self.view_number.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// What it knows of a shard.
    pub fn shard(&self, id: &ShardId) -> Arc<ShardState> {
        let mut shards = self.shards.lock().expect("no panic while held");
        let fresh = || ShardState {
            known: Mutex::new(FenceEpoch::ZERO),
            learnt: AtomicBool::new(false),
            read_for: Mutex::new(FenceEpoch::ZERO),
            cut: Mutex::new(FenceEpoch::ZERO),
            generation: Generation::default(),
            meter: ShardMeter::default(),
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

    /// Hears what the shard says, and voids tickets that the new session must not carry. A fence that stands may
    /// have been judged clear already, when this session was not there to be listed: then the ranges depart at any
    /// moment, and a ticket from before the fence would be too late.
    fn learn(&self, shard: &ShardId, reply: HelloReply) -> Result<Learnt, ShardError> {
        let learnt = self.hear(shard, reply)?;
        // The holds are set before the tickets are looked at: a ticket finds the hold or is found here.
        if self.gate.held(shard).iter().any(|fence| !self.gate.check_drained(shard, fence)) {
            self.shard(shard).generation.advance();
        }
        Ok(learnt)
    }

    /// Installs what a shard says: standing fences in the gate, departures in the view.
    fn hear(&self, shard: &ShardId, reply: HelloReply) -> Result<Learnt, ShardError> {
        let state = self.shard(shard);
        // Always in this order: the view, then what is known of a shard.
        let _changing = self.changing.lock().expect("no panic while held");
        let known = *state.known.lock().expect("no panic while held");
        if reply.since > known {
            return Ok(Learnt::AskAgain);
        }
        if reply.fence_epoch < reply.since {
            // It has told of more than it knows now. Nothing that relied on it is sure any more.
            state.learnt.store(false, Ordering::SeqCst);
            state.generation.advance();
            return Err(ShardError::WentBack { shard: shard.clone() });
        }
        // A router that does not know of a change reads of it before anything else. So does one that was cut off, and
        // registers again, whatever it has read: nobody waits for it any more.
        let is_behind = reply.demand.seq > self.view().seq && reply.demand.number > state.read_for();
        if is_behind || reply.demand.cut > state.read_for() {
            return Err(ShardError::OldMap { shard: shard.clone(), upto: reply.fence_epoch });
        }
        // If it was cut off for that, whoever looked a table or queue up before, and has not written yet, looks again.
        let mut cut = state.cut.lock().expect("no panic while held");
        if reply.demand.cut > *cut {
            *cut = reply.demand.cut;
            state.generation.advance();
        }
        drop(cut);
        // Departures that are no longer listed must be in the view.
        if !self.view().is_settled_up_to(reply.pruned_epoch) && !self.fresh.load(Ordering::SeqCst) {
            return Err(ShardError::IncarnationChanged { shard: shard.clone() });
        }
        // What another session has read since is newer: fences may have come and gone.
        if reply.fence_epoch < known {
            return Ok(Learnt::Known);
        }
        // A key of a composite map is placed by the map's segments. Whoever missed a change of these would hold, and
        // follow, the wrong keys: so the catalog is read first.
        let view = self.view();
        let composite = |map: &MapName| {
            view.maps.get(map).is_some_and(|known| known.map.definition().scheme().prefix().is_some())
        };
        let spoken_of =
            reply.fences.iter().map(|fence| &fence.map).chain(reply.departures.iter().map(|left| &left.map));
        if reply.fence_epoch > state.read_for() && spoken_of.into_iter().any(composite) {
            return Err(ShardError::OldMap { shard: shard.clone(), upto: reply.fence_epoch });
        }
        // First the holds, so that nobody gets to the new owner before it serves.
        let mut to_answer = false;
        for fence in reply.fences.iter().filter(|fence| fence.state != FenceState::Broken) {
            to_answer |= self.gate.hold(shard, fence);
        }
        let new: Vec<_> = reply.departures.iter().filter(|departure| departure.number > known).collect();
        if !new.is_empty() {
            let depart = |view: &mut View| new.iter().try_for_each(|departure| view.depart(departure));
            let stored = self.store(depart, |_| false);
            stored.map_err(|error| ShardError::Damaged { what: "departure", detail: error.to_string() })?;
            if new.iter().any(|departure| !self.gate.has_drained(shard, departure.op)) {
                state.generation.advance();
            }
        }
        *state.known.lock().expect("no panic while held") = reply.fence_epoch;
        // Then the releases: those who waited for a fence that is gone must find the new map.
        for held in self.gate.held(shard) {
            let stands = |fence: &FenceRow| fence.op == held.op && fence.state != FenceState::Broken;
            if !reply.fences.iter().any(stands) {
                self.gate.release(shard, held.op);
            }
        }
        state.learnt.store(true, Ordering::SeqCst);
        if to_answer {
            state.fences.notify_one();
        }
        Ok(Learnt::Known)
    }
}

impl ShardState {
    /// Up to which number of the shard's the catalog has been read since.
    pub fn read_for(&self) -> FenceEpoch {
        *self.read_for.lock().expect("no panic while held")
    }

    /// Notes that the catalog has been read since the shard spoke of this number.
    pub fn set_read_for(&self, upto: FenceEpoch) {
        let mut read_for = self.read_for.lock().expect("no panic while held");
        *read_for = upto.max(*read_for);
    }

    /// Whether what the shard has to say is in the view.
    pub fn is_learnt(&self) -> bool {
        self.learnt.load(Ordering::SeqCst)
    }
}
