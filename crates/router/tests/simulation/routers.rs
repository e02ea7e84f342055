//! Routers: the real state and gate, with their background work cut into steps that anything may come between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use polyshard_catalog::{Event, MapContents, MapRecord, OpState, Snapshot};
use polyshard_map::{KeyRange, MapName};
use polyshard_router::gate::Access;
use polyshard_router::state::State;
use polyshard_router::view::{KnownMap, View};
use polyshard_shard::{
    AckPhase, FenceRow, FenceState, HelloReply, HelloState, Learnt, OpId, RouterId, protocol,
};
use rand::RngExt;

use crate::database::{Trouble, now};
use crate::drivers::short;
use crate::rescue::Rescue;
use crate::rows::Store;
use crate::world::{Hello, Session, SimShard, World};

/// How long requests are held for a fence before they are let go again.
pub const HOLD_MAX_MS: i64 = 500;

/// How far a router is with answering one raising of one fence.
#[derive(Debug, Clone, Copy)]
enum Answer {
    SayHeld {
        since: i64,
    },
    Drain {
        since: i64,
    },
    SayDrained,
    AwaitEnd {
        since: i64,
    },
    Withdraw,
    /// The shard has answered whether requests may go on; the router has not heard it yet.
    Withdrawn(Option<bool>),
}

/// A task that answers one raising of one fence; its connection may be slow.
struct Answering {
    fence: FenceRow,
    answer: Answer,
    asleep_until: i64,
}

/// What a router has read of the catalog and not taken in yet.
enum Follow {
    Events(u64, Vec<Event>, Vec<MapContents>),
    All(Box<Snapshot>),
}

pub struct SimRouter {
    pub index: usize,
    pub state: State,
    pub paused_until: i64,
    /// It is not told of fences, and looks again only then.
    pub deaf_until: i64,
    /// Sessions that it believes to have, by shard.
    pub sessions: Vec<Vec<u64>>,
    /// What shards have answered when looked at, not learnt yet.
    looks: Vec<Option<HelloReply>>,
    answers: BTreeMap<(usize, OpId, u64), Answering>,
    pub rescues: BTreeMap<(usize, OpId), Rescue>,
    follow: Option<Follow>,
    /// What it has saved, to start from without the catalog.
    pub saved: Option<Snapshot>,
}

/// One thing that a router can do now.
#[derive(Debug, Clone)]
enum Task {
    Look(usize),
    Learn(usize),
    Hello(usize, u64),
    Answer(usize, OpId, u64),
    Rescue(usize, OpId),
    Follow,
    TakeIn,
}

impl SimRouter {
    /// Starts a router on the catalog, or without it on a view saved before.
    pub fn start(world: &mut World, index: usize) -> SimRouter {
        let number = world.number() as u32;
        let state = State::new(RouterId::new(number), View::empty());
        let saved = world.routers.get(index).and_then(|router| router.saved.clone());
        let without = world.catalog_is_down() || world.mishap(0.3);
        match &saved {
            Some(view) if without => {
                let view = View::from_snapshot(view.clone()).expect("what was saved is whole");
                state.replace(view).expect("what was saved is whole");
            }
            _ => {
                let view = View::from_snapshot(world.snapshot()).expect("the catalog's maps are whole");
                state.replace(view).expect("the catalog's maps are whole");
                state.fresh.store(true, Ordering::SeqCst);
            }
        }
        let shards = world.shards.len();
        SimRouter {
            index,
            state,
            paused_until: 0,
            deaf_until: 0,
            sessions: vec![Vec::new(); shards],
            looks: (0..shards).map(|_| None).collect(),
            answers: BTreeMap::new(),
            rescues: BTreeMap::new(),
            follow: None,
            saved,
        }
    }

    /// Saves what it knows, as the real one does in a file.
    pub fn save(&mut self) {
        let view = self.state.view();
        let contents = |known: &Arc<KnownMap>| MapContents {
            record: MapRecord {
                definition: known.published.definition().clone(),
                epoch: known.published.epoch(),
                version: known.version,
                live: true,
            },
            entries: known.published.entries(&KeyRange::all()).collect(),
        };
        self.saved = Some(Snapshot {
            cluster: view.cluster,
            seq: view.seq,
            epoch: view.epoch,
            running: view.unsettled.iter().copied().collect(),
            shards: view.shards.values().map(|record| record.as_ref().clone()).collect(),
            maps: view.maps.values().map(contents).collect(),
            datasets: vec![],
            journal: 0,
        });
    }

    /// Whether it has nothing left to do but to look again.
    pub fn is_quiet(&self) -> bool {
        self.answers.is_empty() && self.state.gate.holds() == 0
    }
}

impl World {
    /// Everything in the catalog, as a router reads it.
    pub fn snapshot(&self) -> Snapshot {
        let catalog = &self.catalog.state;
        let live: Vec<MapName> =
            catalog.maps.iter().filter(|(_, record)| record.live).map(|(name, _)| name.clone()).collect();
        let running = catalog.operations.values().filter(|record| record.state == OpState::Running);
        Snapshot {
            cluster: self.cluster,
            seq: catalog.events.len() as u64,
            epoch: catalog.epoch,
            running: running.map(|record| record.op.epoch).collect(),
            shards: self.shard_records.clone(),
            maps: live.iter().filter_map(|name| self.contents(name)).collect(),
            datasets: vec![],
            journal: 0,
        }
    }

    fn contents(&self, name: &MapName) -> Option<MapContents> {
        let record = self.catalog.state.maps.get(name).filter(|record| record.live)?.clone();
        Some(MapContents { record, entries: self.entries(name) })
    }

    /// A router does one thing.
    pub fn route(&mut self, router: usize) {
        if self.now_ms < self.routers[router].paused_until {
            return;
        }
        self.pick_up_answers(router);
        let tasks = self.tasks(router);
        let task = tasks[self.rng.random_range(0..tasks.len())].clone();
        self.perform(router, task);
    }

    /// A router does everything it can, once.
    pub fn route_all(&mut self, router: usize) {
        self.pick_up_answers(router);
        for task in self.tasks(router) {
            self.perform(router, task);
        }
    }

    fn tasks(&self, router: usize) -> Vec<Task> {
        let this = &self.routers[router];
        let mut tasks = vec![if this.follow.is_some() { Task::TakeIn } else { Task::Follow }];
        for (index, shard) in self.shards.iter().enumerate() {
            let look = match &this.looks[index] {
                Some(_) => Task::Learn(index),
                None => Task::Look(index),
            };
            // A router is told of new fences: it looks more eagerly then.
            let is_behind = shard.db.state.meta.fence_epoch > this.state.known(&shard.id);
            let eagerness = if is_behind { 4 } else { 1 };
            if self.now_ms >= this.deaf_until {
                tasks.extend(vec![look; eagerness]);
            }
            for id in &this.sessions[index] {
                let mid = |session: &Session| !matches!(session.hello, Hello::Ready);
                if shard.sessions.get(id).is_some_and(mid) {
                    tasks.push(Task::Hello(index, *id));
                }
            }
        }
        tasks.extend(this.rescues.keys().map(|(shard, op)| Task::Rescue(*shard, *op)));
        for (shard, op, attempt) in this.answers.keys() {
            tasks.extend(vec![Task::Answer(*shard, *op, *attempt); 2]);
        }
        tasks
    }

    fn perform(&mut self, router: usize, task: Task) {
        match task {
            Task::Look(shard) => self.look(router, shard),
            Task::Learn(shard) => {
                let Some(reply) = self.routers[router].looks[shard].take() else { return };
                let (id, state) = (&self.shards[shard].id, &self.routers[router].state);
                let (before, at) = (state.known(id), reply.fence_epoch);
                // If it is to ask again, it does so at the next look.
                let _ = state.hear(id, reply).expect("nothing is damaged");
                if at != before {
                    self.note(format!("r{router} hears s{shard} at {at}"));
                }
            }
            Task::Hello(shard, id) => self.introduce(router, shard, id),
            Task::Answer(shard, op, attempt) => self.answer(router, (shard, op, attempt)),
            Task::Rescue(shard, op) => self.rescue(router, shard, op),
            Task::Follow => self.follow(router),
            Task::TakeIn => self.take_in(router),
        }
    }

    fn look(&mut self, router: usize, shard: usize) {
        if let Some(reply) = self.ask(router, shard) {
            self.routers[router].looks[shard] = Some(reply);
        }
    }

    fn ask(&mut self, router: usize, shard: usize) -> Option<HelloReply> {
        let known = self.routers[router].state.known(&self.shards[shard].id);
        let fault = self.shard_fault(shard);
        let hello =
            |store: &mut Store| now(protocol::hello(&mut store.local, known)).expect("memory answers");
        self.shards[shard].db.look(&mut self.rng, fault, hello)
    }

    /// Sees that a router has learnt what a shard has to say; false if it cannot just now.
    pub fn teach(&mut self, router: usize, shard: usize) -> bool {
        if self.routers[router].state.shard(&self.shards[shard].id).is_learnt() {
            return true;
        }
        let Some(reply) = self.ask(router, shard) else { return false };
        let state = &self.routers[router].state;
        state.hear(&self.shards[shard].id, reply).expect("nothing is damaged") == Learnt::Known
    }

    /// Opens a session: its lock is taken, and nothing is known yet.
    pub fn open_session(&mut self, router: usize, shard: usize) {
        if self.now_ms < self.shards[shard].down_until {
            return;
        }
        let id = self.number();
        let state = &self.routers[router].state;
        let known = state.known(&self.shards[shard].id);
        let session = Session { router: state.router(), hello: Hello::Locked(known) };
        self.shards[shard].sessions.insert(id, session);
        self.routers[router].sessions[shard].push(id);
    }

    /// The next step of a session's introduction.
    fn introduce(&mut self, router: usize, shard: usize, id: u64) {
        let SimShard { id: shard_id, db, sessions, .. } = &mut self.shards[shard];
        let Some(session) = sessions.get_mut(&id) else { return };
        let state = &self.routers[router].state;
        match std::mem::replace(&mut session.hello, Hello::Ready) {
            Hello::Locked(known) => {
                // Plain reads: they do not wait for a commit that is under way.
                let reply = now(protocol::hello(&mut db.state.local, known)).expect("memory answers");
                session.hello = Hello::Answered(reply);
            }
            Hello::Answered(reply) => {
                let text = format!("r{router} opens session {id} on s{shard} at {}", reply.fence_epoch);
                match state.learn(shard_id, reply).expect("nothing is damaged") {
                    Learnt::Known => self.note(text),
                    Learnt::AskAgain => session.hello = Hello::Locked(state.known(shard_id)),
                }
            }
            Hello::Ready => {}
        }
    }

    fn follow(&mut self, router: usize) {
        if self.catalog_is_down() {
            return;
        }
        let state = &self.routers[router].state;
        let (fresh, since) = (state.fresh.load(Ordering::SeqCst), state.view().seq);
        // Now and then more has been forgotten than the router has missed.
        if !fresh || self.mishap(0.03) {
            self.routers[router].follow = Some(Follow::All(Box::new(self.snapshot())));
            return;
        }
        let events = self.catalog.state.events[since as usize..].to_vec();
        if events.is_empty() {
            return;
        }
        let mut names: Vec<&MapName> = events
            .iter()
            .filter_map(|event| match event {
                Event::Reload { map } => Some(map),
                _ => None,
            })
            .collect();
        names.sort();
        names.dedup();
        let contents = names.into_iter().filter_map(|name| self.contents(name)).collect();
        let last = self.catalog.state.events.len() as u64;
        self.routers[router].follow = Some(Follow::Events(last, events, contents));
    }

    fn take_in(&mut self, router: usize) {
        let Some(follow) = self.routers[router].follow.take() else { return };
        let state = &self.routers[router].state;
        let text = match follow {
            Follow::All(snapshot) => {
                let text = format!("r{router} reads the whole catalog at {}", snapshot.seq);
                let view = View::from_snapshot(*snapshot).expect("the catalog's maps are whole");
                state.replace(view).expect("departures fit the map");
                state.fresh.store(true, Ordering::SeqCst);
                text
            }
            Follow::Events(last, events, contents) => {
                let change = |view: &mut View| {
                    events.iter().try_for_each(|event| view.apply(event))?;
                    contents.into_iter().try_for_each(|contents| view.set_map(contents))?;
                    view.seq = last;
                    Ok::<(), polyshard_map::BuildError>(())
                };
                state.change(change).expect("events fit the map");
                format!("r{router} follows up to {last}")
            }
        };
        self.note(text);
    }

    /// Starts to answer the fences that are held and not answered yet.
    fn pick_up_answers(&mut self, router: usize) {
        for index in 0..self.shards.len() {
            let this = &mut self.routers[router];
            let held = this.state.gate.held(&self.shards[index].id);
            this.rescues.retain(|(shard, op), _| *shard != index || held.iter().any(|fence| fence.op == *op));
            for fence in held {
                let since = self.now_ms;
                if fence.state == FenceState::Departed {
                    this.rescues.entry((index, fence.op)).or_insert(Rescue::Wait { since });
                } else {
                    let key = (index, fence.op, fence.attempt);
                    let answer = Answer::SayHeld { since };
                    this.answers.entry(key).or_insert(Answering { fence, answer, asleep_until: 0 });
                }
            }
        }
    }

    /// The next step of an answer to a fence.
    fn answer(&mut self, router: usize, key: (usize, OpId, u64)) {
        let Some(mut answering) = self.routers[router].answers.remove(&key) else { return };
        if self.now_ms >= answering.asleep_until {
            let Some(next) = self.answer_on(router, key.0, &answering.fence, answering.answer) else {
                return;
            };
            answering.answer = next;
            if self.mishap(0.1) {
                answering.asleep_until = self.now_ms + self.rng.random_range(20..900);
            }
        }
        self.routers[router].answers.insert(key, answering);
    }

    fn answer_on(&mut self, router: usize, shard: usize, fence: &FenceRow, answer: Answer) -> Option<Answer> {
        let (op, attempt, now_ms) = (fence.op, fence.attempt, self.now_ms);
        let me = self.routers[router].state.router();
        let end = Answer::AwaitEnd { since: now_ms };
        let is_held = |world: &World| {
            let held = world.routers[router].state.gate.held(&world.shards[shard].id);
            held.iter().any(|held| held.op == op && held.attempt == attempt)
        };
        match answer {
            Answer::SayHeld { since } => match self.acknowledge(shard, fence, me, AckPhase::Held) {
                Some(true) => Some(Answer::Drain { since }),
                Some(false) => None,
                None => Some(end),
            },
            Answer::Drain { since } => {
                let gate = &self.routers[router].state.gate;
                if gate.check_drained(&self.shards[shard].id, fence) {
                    return Some(Answer::SayDrained);
                }
                Some(if now_ms - since > HOLD_MAX_MS { end } else { answer })
            }
            Answer::SayDrained => match self.acknowledge(shard, fence, me, AckPhase::Drained) {
                Some(true) => {
                    self.note(format!("r{router} has drained {} under {attempt} on s{shard}", short(op)));
                    Some(end)
                }
                Some(false) => None,
                None => Some(end),
            },
            Answer::AwaitEnd { since } => {
                let gate = &self.routers[router].state.gate;
                if !gate.is_held(&fence.map, &fence.ranges, &self.shards[shard].id, Access::Write) {
                    return None;
                }
                Some(if now_ms - since > HOLD_MAX_MS { Answer::Withdraw } else { answer })
            }
            Answer::Withdraw if !is_held(self) => None,
            Answer::Withdraw => {
                let said = self.on_shard(shard, |tx| now(protocol::withdraw(tx, op, attempt, me)));
                Some(Answer::Withdrawn(said.ok()))
            }
            Answer::Withdrawn(Some(true)) => {
                self.note(format!("r{router} lets {} under {attempt} go on s{shard}", short(op)));
                self.routers[router].state.gate.release_raising(&self.shards[shard].id, fence);
                None
            }
            Answer::Withdrawn(Some(false)) => None,
            Answer::Withdrawn(None) => Some(Answer::Withdraw),
        }
    }

    fn acknowledge(
        &mut self,
        shard: usize,
        fence: &FenceRow,
        router: RouterId,
        phase: AckPhase,
    ) -> Option<bool> {
        let (op, attempt) = (fence.op, fence.attempt);
        match self.on_shard(shard, |tx| now(protocol::acknowledge(tx, op, attempt, router, phase))) {
            Ok(stands) => Some(stands),
            Err(Trouble::Unknown) => None,
            Err(Trouble::Refused(error)) => panic!("a router may always acknowledge: {error}"),
        }
    }
}
